-- Returns the state of instances and of their current executions, one row per known id, unordered.
--
-- out_failure is the OrchestrationFailed event that ended a Failed execution. It is the last event, except that one
-- …CancelRequested event may follow for each activity that was open at that time.
--
-- Bound: the ids given; for failed ones also the events after the failure, read backwards from the last. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_instances(
  p_instance_ids text[]
)
RETURNS TABLE (
  out_instance_id text,
  out_orchestration_name text,
  out_orchestration_version text,
  out_parent_instance_id text,
  out_execution_id bigint,
  out_status text,
  out_output text,
  out_failure text,
  out_custom_status text,
  out_custom_status_version integer,
  out_created_at_ms bigint,        -- milliseconds since the Unix epoch
  out_updated_at_ms bigint
)
LANGUAGE plpgsql
STABLE
-- settings of the hot path
AS $$
BEGIN
  RETURN QUERY
  SELECT
    i.instance_id,
    i.orchestration_name,
    i.orchestration_version,
    i.parent_instance_id,
    i.current_execution_id,
    COALESCE(e.status, 'Running'),
    e.output,
    CASE
      WHEN e.status = 'Failed' THEN (
        SELECT CASE WHEN ended.event_data ~ '"type": ?"OrchestrationFailed"' THEN ended.event_data END
        FROM (
          SELECT h.event_data
          FROM history AS h
          WHERE h.instance_id = i.instance_id
            AND h.execution_id = i.current_execution_id
            -- Quotes inside a payload are escaped, so this is the type of the event itself, in compact or spaced JSON.
            AND h.event_data !~ '"type": ?"[A-Za-z]+CancelRequested"'
          ORDER BY h.event_id DESC
          LIMIT 1
        ) AS ended
      )
    END,
    i.custom_status,
    i.custom_status_version,
    floor(extract(epoch FROM i.created_at) * 1000)::bigint,
    floor(extract(epoch FROM i.updated_at) * 1000)::bigint
  FROM instances AS i
  LEFT JOIN executions AS e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
  WHERE i.instance_id = ANY (p_instance_ids);
END
$$;
