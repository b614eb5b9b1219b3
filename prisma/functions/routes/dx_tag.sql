-- Returns the tag of an activity from the column `tag`; null for the value of dx_no_tag.
CREATE OR REPLACE FUNCTION dx_tag(p_stored text) RETURNS text LANGUAGE sql IMMUTABLE
AS $$
  SELECT NULLIF(p_stored, 'duroxide-prisma')
$$;
