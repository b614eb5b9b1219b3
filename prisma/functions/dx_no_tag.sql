-- What the column `tag` holds of an activity of ours without a tag: null; in a schema that Duroxide made, a value that
-- dx_tag reads as none. Processes of Duroxide take every row that has null there, and would give ours back until it is
-- poison.
--
-- Bound: one look into the catalog. Locks: none.
CREATE OR REPLACE FUNCTION dx_no_tag()
RETURNS text
LANGUAGE sql
STABLE
SET search_path FROM CURRENT
AS $$
  SELECT CASE WHEN to_regclass('_duroxide_migrations') IS NOT NULL THEN 'duroxide-prisma' END
$$;
