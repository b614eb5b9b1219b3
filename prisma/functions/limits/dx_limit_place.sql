-- Returns the place of an instance among those that wait for a limit (instances.limit_place).
CREATE OR REPLACE FUNCTION dx_limit_place(
  p_due_ms bigint,                 -- when its start is due
  p_number bigint                  -- of orchestrator_queue_id_seq
) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$
  SELECT (p_due_ms << 20) + (p_number & 1048575)
$$;
