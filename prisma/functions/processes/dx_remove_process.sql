-- Deletes the row of a process that closes. Returns whether there was one.
-- Bound: the row. Locks: the row.
CREATE OR REPLACE FUNCTION dx_remove_process(p_id uuid) RETURNS boolean LANGUAGE sql
SET search_path FROM CURRENT
AS $$
  WITH removed AS (DELETE FROM processes AS p WHERE p.id = p_id RETURNING p.id)
  SELECT EXISTS (SELECT FROM removed)
$$;
