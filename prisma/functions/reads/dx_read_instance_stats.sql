-- Returns the sizes of an instance: of the history of its current execution, and of its key-values as readers see them.
--
-- Returns one row, or none if the instance is unknown.
-- Bound: the events of the execution and the key-values of the instance. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_instance_stats(p_instance_id text) RETURNS TABLE (
  out_event_count bigint,
  out_history_bytes bigint,        -- UTF-8 bytes of the event texts
  out_first_event text,            -- null without a history
  out_key_count bigint,
  out_value_bytes bigint           -- of the values, as dx_value_bytes counts them
) LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET jit = off
AS $$
  SELECT
    event.count, event.bytes,
    (
      SELECT h.event_data FROM history AS h
      WHERE h.instance_id = i.instance_id AND h.execution_id = i.current_execution_id
      ORDER BY h.event_id LIMIT 1
    ),
    entry.count, entry.bytes
  FROM instances AS i
  CROSS JOIN LATERAL (
    SELECT
      count(*) AS count, COALESCE(sum(octet_length(convert_to(h.event_data, 'UTF8'))), 0)::bigint AS bytes
    FROM history AS h
    WHERE h.instance_id = i.instance_id AND h.execution_id = i.current_execution_id
  ) AS event
  CROSS JOIN LATERAL (
    SELECT count(*) AS count, COALESCE(sum(dx_value_bytes(visible.value)), 0)::bigint AS bytes
    FROM (
      SELECT d.value FROM kv_delta AS d
      WHERE d.instance_id = i.instance_id AND d.value IS NOT NULL
      UNION ALL
      SELECT s.value FROM kv_store AS s
      WHERE s.instance_id = i.instance_id
        AND NOT EXISTS (SELECT FROM kv_delta AS d WHERE d.instance_id = s.instance_id AND d.key = s.key)
    ) AS visible
  ) AS entry
  WHERE i.instance_id = p_instance_id
$$;
