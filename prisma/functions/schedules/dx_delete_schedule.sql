-- Deletes a schedule and what is known of its runs. What they have started stays.
--
-- Returns whether there was one. Bound: one row and its runs. Locks: that row, then its runs.
CREATE OR REPLACE FUNCTION dx_delete_schedule(p_name text) RETURNS boolean LANGUAGE plpgsql
-- settings of the hot path
AS $$
BEGIN
  DELETE FROM schedules AS s WHERE s.name = p_name;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  DELETE FROM schedule_runs AS r WHERE r.schedule_name = p_name;
  RETURN true;
END
$$;
