-- Whether an execution of an orchestration has begun and not ended.
--
-- Bound: one row. Locks: none.
CREATE OR REPLACE FUNCTION dx_is_execution_running(p_instance_id text, p_execution_id bigint) RETURNS boolean
LANGUAGE plpgsql STABLE
-- settings of the hot path
AS $$
BEGIN
  RETURN COALESCE(
    (
      SELECT e.status = 'Running' FROM executions AS e
      WHERE e.instance_id = p_instance_id AND e.execution_id = p_execution_id
    ),
    false
  );
END
$$;
