-- Event texts of one execution by event id; none when it is unknown.
--
-- Bound: the events of the execution. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_history(
  p_instance_id text,
  p_execution_id bigint            -- null means the highest execution
)
RETURNS TABLE (out_event_data text)
LANGUAGE sql
STABLE
SET search_path FROM CURRENT
SET jit = off
AS $$
  SELECT h.event_data
  FROM history AS h
  WHERE h.instance_id = p_instance_id
    AND h.execution_id = COALESCE(
      p_execution_id,
      (SELECT max(e.execution_id) FROM executions AS e WHERE e.instance_id = p_instance_id),
      1
    )
  ORDER BY h.event_id
$$;
