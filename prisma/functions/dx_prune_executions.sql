-- Deletes executions of one instance with their histories: never the current one, never a running one.
--
-- Returns one row. With both bounds given an execution must meet both. Key-values, queues and leases stay.
--
-- Bound: the executions of the instance, and the events deleted. Locks: rows of the deleted executions, then of their
-- histories. The current execution only ever moves on, so what is old now stays old.
CREATE OR REPLACE FUNCTION dx_prune_executions(
  p_instance_id text,
  p_keep_last bigint,              -- so many of the highest execution ids stay; null or 0: no condition
  p_completed_before_ms bigint     -- only those that ended before, milliseconds since the Unix epoch; null: any
)
RETURNS TABLE (
  out_executions_deleted bigint,
  out_events_deleted bigint
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
  RETURN QUERY
  WITH pruned AS (
    DELETE FROM executions AS e
    WHERE e.instance_id = p_instance_id
      AND e.status <> 'Running'
      AND e.execution_id IS DISTINCT FROM (
        SELECT i.current_execution_id
        FROM instances AS i
        WHERE i.instance_id = p_instance_id
      )
      AND e.execution_id <> ALL (ARRAY(
        SELECT newest.execution_id
        FROM executions AS newest
        WHERE newest.instance_id = p_instance_id
        ORDER BY newest.execution_id DESC
        LIMIT COALESCE(p_keep_last, 0)
      ))
      AND (p_completed_before_ms IS NULL OR e.completed_at < to_timestamp(p_completed_before_ms::float8 / 1000))
    RETURNING e.execution_id
  ),
  forgotten AS (
    DELETE FROM history AS h
    WHERE h.instance_id = p_instance_id
      -- Not a join, which may be planned as one read of all events of the instance.
      AND h.execution_id = ANY (ARRAY(SELECT pruned.execution_id FROM pruned))
    RETURNING h.event_id
  )
  SELECT (SELECT count(*) FROM pruned), (SELECT count(*) FROM forgotten);
END
$$;
