-- Returns what the column `tag` holds for an activity of TypeScript without a tag: null or, in a schema that Duroxide
-- made, a value that dx_tag reads as null. Processes of Duroxide take every row with null in this column, and would
-- abandon such an activity until it counts as poison.
-- Bound: one look into the catalog. Locks: none.
CREATE OR REPLACE FUNCTION dx_no_tag() RETURNS text LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN CASE WHEN to_regclass('_duroxide_migrations') IS NOT NULL THEN 'duroxide-prisma' END;
END
$$;
