-- Returns what a turn of an instance reads besides its messages: one row, also without a row of the instance.
-- Bound: the history up to p_history_limit and 1 MiB, and the values. Locks: none.
CREATE OR REPLACE FUNCTION dx_turn_inputs(
  p_instance_id text,
  p_history_limit integer          -- as in dx_fetch_orchestration_items
) RETURNS TABLE (
  orchestration_name text, orchestration_version text, execution_id bigint, history json, is_whole boolean,
  key_values json
) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  SELECT
    i.orchestration_name, i.orchestration_version, execution.execution_id,
    CASE
      WHEN known.is_whole THEN (
        SELECT json_agg(event.event_data)
        FROM (
          SELECT h.event_data FROM history AS h
          WHERE h.instance_id = p_instance_id AND h.execution_id = execution.execution_id
          ORDER BY h.event_id
        ) AS event
      )
      ELSE (
        SELECT json_build_array(h.event_data) FROM history AS h
        WHERE h.instance_id = p_instance_id AND h.execution_id = execution.execution_id
        ORDER BY h.event_id DESC LIMIT 1
      )
    END,
    known.is_whole,
    (
      SELECT json_agg(json_build_object('key', s.key, 'value', s.value, 'lastUpdatedAtMs', s.last_updated_at_ms))
      FROM kv_store AS s WHERE s.instance_id = p_instance_id
    )
  FROM (SELECT 1) AS always
  LEFT JOIN instances AS i ON i.instance_id = p_instance_id
  CROSS JOIN LATERAL (
    SELECT COALESCE(
      i.current_execution_id, (SELECT max(e.execution_id) FROM executions AS e WHERE e.instance_id = p_instance_id), 1
    ) AS execution_id
  ) AS execution
  CROSS JOIN LATERAL (
    -- Event ids count from 1, so one look at the index is enough. Without an instance row, the started event says
    -- what the instance is.
    SELECT CASE
      WHEN p_history_limit IS NULL OR i.instance_id IS NULL THEN true
      WHEN (
        SELECT h.event_id FROM history AS h
        WHERE h.instance_id = p_instance_id
          AND h.execution_id = execution.execution_id
          AND h.event_id > p_history_limit
        LIMIT 1
      ) IS NOT NULL THEN false
      ELSE (
        SELECT COALESCE(sum(octet_length(h.event_data)), 0) FROM history AS h
        WHERE h.instance_id = p_instance_id AND h.execution_id = execution.execution_id
      ) <= 1048576
    END AS is_whole
  ) AS known
$$;
