-- Deletes the row of a process that closes.
-- Bound: the row. Locks: the row.
CREATE OR REPLACE FUNCTION dx_remove_process(p_id uuid) RETURNS void LANGUAGE sql
SET search_path FROM CURRENT
AS $$
  DELETE FROM processes AS p WHERE p.id = p_id
$$;
