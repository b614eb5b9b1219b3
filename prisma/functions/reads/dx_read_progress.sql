-- Returns the custom status, its version and the value of one key of each item whose instance has ended, or is
-- elsewhere than the caller knows it to be: in another execution, or with another last event.
--
-- Returns one row per such item, in order. The rows have about p_max_bytes of texts, at least one row if there is such
-- an item. If all of them have out_is_last, no later item has anything new.
-- Bound: three index lookups per item; for those that are returned also that of the value. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_progress(
  p_items jsonb,                   -- [{instance_id, key, execution_id, last_event_id}]; a key of null reads no value
  p_max_bytes bigint
) RETURNS TABLE (
  out_index integer,               -- among the items, from 1
  out_execution_id bigint,
  out_last_event_id bigint,        -- of the current execution; 0 without a history
  out_custom_status text, out_custom_status_version integer, out_value text, out_has_ended boolean,
  out_is_of_rust boolean,          -- the current execution is not pinned, or to a version of Duroxide in Rust
  out_is_last boolean
) LANGUAGE plpgsql STABLE
-- settings of the hot path
AS $$
BEGIN
  RETURN QUERY
  SELECT
    part.position::integer, part.current_execution_id, part.event_id, part.custom_status, part.custom_status_version,
    part.value, part.has_ended, part.is_of_rust, part.is_last
  FROM (
    SELECT sized.*, max(sized.before) OVER () < p_max_bytes AS is_last
    FROM (
      SELECT moved.*, value.value, sum(text.bytes) OVER (ORDER BY moved.position) - text.bytes AS before
      FROM (
        SELECT item.position, item.instance_id, item.key, i.*, e.*, h.*
        FROM ROWS FROM (
          jsonb_to_recordset(p_items) AS (instance_id text, key text, execution_id bigint, last_event_id bigint)
        ) WITH ORDINALITY AS item (instance_id, key, execution_id, last_event_id, position)
        CROSS JOIN LATERAL (
          SELECT i.current_execution_id, i.custom_status, i.custom_status_version
          FROM instances AS i WHERE i.instance_id = item.instance_id
          OFFSET 0
        ) AS i
        CROSS JOIN LATERAL (
          SELECT
            COALESCE(bool_or(e.status IN ('Completed', 'Failed')), false) AS has_ended,
            COALESCE(max(e.duroxide_version_major) < 1000, count(*) > 0) AS is_of_rust
          FROM executions AS e
          WHERE e.instance_id = item.instance_id AND e.execution_id = i.current_execution_id
        ) AS e
        CROSS JOIN LATERAL (
          SELECT COALESCE(max(h.event_id), 0) AS event_id FROM history AS h
          WHERE h.instance_id = item.instance_id AND h.execution_id = i.current_execution_id
        ) AS h
        WHERE e.has_ended OR i.current_execution_id <> item.execution_id OR h.event_id <> item.last_event_id
        OFFSET 0 -- values are read only of those that are returned
      ) AS moved
      CROSS JOIN LATERAL (
        -- As in dx_read_key_values, which would read all keys of the instance for one.
        SELECT (
          SELECT v.value
          FROM (
            SELECT 1 AS rank, d.value FROM kv_delta AS d
            WHERE d.instance_id = moved.instance_id AND d.key = moved.key
            UNION ALL
            SELECT 2, s.value FROM kv_store AS s
            WHERE s.instance_id = moved.instance_id AND s.key = moved.key
          ) AS v
          ORDER BY v.rank LIMIT 1
        ) AS value
        OFFSET 0
      ) AS value
      CROSS JOIN LATERAL (
        SELECT COALESCE(octet_length(moved.custom_status), 0) + COALESCE(octet_length(value.value), 0) AS bytes
      ) AS text
    ) AS sized
  ) AS part
  WHERE part.before < p_max_bytes
  ORDER BY part.position;
END
$$;
