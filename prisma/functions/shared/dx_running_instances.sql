-- Returns those of the given ids that have not ended, unordered.
--
-- An instance has ended if its current execution is Completed or Failed, or is ContinuedAsNew and no queued message
-- continues it. An id without a row has not ended while its start is queued; otherwise it is unknown and left out. An
-- ended instance stays ended until it is deleted.
--
-- Bound: one look per id, and the messages of ids that continued as new or have no row. Locks: none.
CREATE OR REPLACE FUNCTION dx_running_instances(p_instance_ids text[]) RETURNS SETOF text
LANGUAGE plpgsql STABLE
-- settings of the hot path
AS $$
BEGIN
  RETURN QUERY
  SELECT given.id FROM unnest(p_instance_ids) AS given (id)
  LEFT JOIN instances AS i ON i.instance_id = given.id
  LEFT JOIN executions AS e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
  WHERE CASE
    WHEN i.instance_id IS NOT NULL AND COALESCE(e.status, 'Running') <> 'ContinuedAsNew'
      THEN COALESCE(e.status, 'Running') NOT IN ('Completed', 'Failed')
    -- Not EXISTS: inside CASE, PostgreSQL may plan it as one read of the whole table.
    ELSE (
      SELECT q.id FROM orchestrator_queue AS q
      WHERE q.instance_id = given.id
        AND q.work_item LIKE
          CASE WHEN i.instance_id IS NULL THEN '{"StartOrchestration"%' ELSE '{"ContinueAsNew"%' END
      LIMIT 1
    ) IS NOT NULL
  END;
END
$$;
