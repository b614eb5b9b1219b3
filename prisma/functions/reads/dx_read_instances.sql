-- Returns the state of instances and of their current executions, one row per known id, unordered.
--
-- out_failure is the OrchestrationFailed event that ended a Failed execution.
--
-- Bound: the ids given; for failed ones also what dx_failure_of reads, for those that have not begun their messages.
-- Locks: none.
CREATE OR REPLACE FUNCTION dx_read_instances(p_instance_ids text[], p_now_ms bigint DEFAULT NULL) RETURNS TABLE (
  out_instance_id text, out_orchestration_name text, out_orchestration_version text,
  out_parent_instance_id text, out_execution_id bigint, out_status text, out_output text, out_failure text,
  out_custom_status text, out_custom_status_version integer,
  out_block jsonb,                 -- fields as in Block; null unless the instance is blocked
  out_pause jsonb,                 -- of dx_pause_of; null unless the instance is paused
  out_starts_at_ms bigint,         -- null unless its start is to wait
  out_created_at_ms bigint,
  out_updated_at_ms bigint
) LANGUAGE plpgsql STABLE
-- settings of the hot path
AS $$
BEGIN
  RETURN QUERY
  SELECT
    i.instance_id, i.orchestration_name, i.orchestration_version, i.parent_instance_id, i.current_execution_id,
    COALESCE(e.status, 'Running'), e.output,
    CASE WHEN e.status = 'Failed' THEN dx_failure_of(i.instance_id, i.current_execution_id) END,
    i.custom_status, i.custom_status_version,
    (
      SELECT jsonb_build_object(
        'reason', b.reason, 'problem', b.problem, 'eventId', b.event_id, 'build', b.build, 'tries', b.tries,
        'sinceMs', floor(extract(epoch FROM b.since) * 1000)::bigint,
        'triedAtMs', floor(extract(epoch FROM b.tried_at) * 1000)::bigint
      )
      FROM blocked_instances AS b
      WHERE b.instance_id = i.instance_id AND dx_is_blocked(b, i.current_execution_id, i.created_at)
    ),
    CASE WHEN COALESCE(e.status, 'Running') NOT IN ('Completed', 'Failed') THEN dx_pause_of(i) END,
    -- The first turn writes the version.
    CASE WHEN i.orchestration_version IS NULL AND COALESCE(e.status, 'Running') = 'Running' THEN (
      SELECT
        CASE
          WHEN min(q.visible_at) > COALESCE(to_timestamp(p_now_ms::float8 / 1000), clock_timestamp())
            THEN floor(extract(epoch FROM min(q.visible_at)) * 1000)::bigint
        END
      FROM orchestrator_queue AS q
      WHERE q.instance_id = i.instance_id AND q.work_item LIKE '{"StartOrchestration"%'
    ) END,
    floor(extract(epoch FROM i.created_at) * 1000)::bigint,
    floor(extract(epoch FROM i.updated_at) * 1000)::bigint
  FROM instances AS i
  LEFT JOIN executions AS e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
  WHERE i.instance_id = ANY (p_instance_ids);
END
$$;
