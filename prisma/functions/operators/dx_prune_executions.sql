-- Deletes executions of one instance with their histories, but neither the current nor a running one.
--
-- Returns one row. If both bounds are given, an execution must meet both. Key-values, queues and locks do not change.
-- Bound: the executions of the instance, and the deleted events. Locks: rows of the deleted executions, then of their
-- histories. The id of the current execution only grows, so an execution that is old now stays old.
CREATE OR REPLACE FUNCTION dx_prune_executions(
  p_instance_id text,
  p_keep_last bigint,              -- how many of the highest execution ids are kept; null or 0: no condition
  p_completed_before_ms bigint     -- only executions that ended before; null: any
) RETURNS TABLE (out_executions_deleted bigint, out_events_deleted bigint) LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_pruned bigint[];
  v_execution_id bigint;
  v_events bigint;
BEGIN
  WITH pruned AS (
    DELETE FROM executions AS e
    WHERE e.instance_id = p_instance_id
      AND e.status <> 'Running'
      AND e.execution_id IS DISTINCT FROM (
        SELECT i.current_execution_id FROM instances AS i
        WHERE i.instance_id = p_instance_id
      )
      AND e.execution_id <> ALL (ARRAY(
        SELECT newest.execution_id FROM executions AS newest
        WHERE newest.instance_id = p_instance_id
        ORDER BY newest.execution_id DESC LIMIT COALESCE(p_keep_last, 0)
      ))
      AND (p_completed_before_ms IS NULL OR e.completed_at < to_timestamp(p_completed_before_ms::float8 / 1000))
    RETURNING e.execution_id
  )
  SELECT COALESCE(array_agg(pruned.execution_id ORDER BY pruned.execution_id), '{}') INTO v_pruned
  FROM pruned;
  out_executions_deleted := cardinality(v_pruned);
  out_events_deleted := 0;
  -- One by one: for a join or a list, PostgreSQL may read all events of the instance.
  FOREACH v_execution_id IN ARRAY v_pruned LOOP
    DELETE FROM history AS h WHERE h.instance_id = p_instance_id AND h.execution_id = v_execution_id;
    GET DIAGNOSTICS v_events = ROW_COUNT;
    out_events_deleted := out_events_deleted + v_events;
  END LOOP;
  RETURN NEXT;
END
$$;
