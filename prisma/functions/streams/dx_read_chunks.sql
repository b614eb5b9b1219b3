-- Returns where streams of instances are, and chunks of them from an offset on: one row for each item, in order. All of
-- it is read at one moment: after has_ended, no chunk follows.
--
-- An item gets as many chunks as fit into its max_bytes, at least one if there is one and max_bytes is not 0.
-- Bound: four index lookups per item, and the chunks returned, at most 10,000 of each item. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_chunks(
  p_items jsonb                    -- [{instance_id, stream, from, max_bytes}]; without from: from the oldest
) RETURNS TABLE (
  out_stream_id bigint,            -- null without a stream, and the next two are 0
  out_first_offset bigint, out_next_offset bigint,
  out_is_known boolean,            -- whether there is such an instance
  out_has_ended boolean,
  out_chunks json                  -- [[offset, writer, number, appended at (ms), chunk]]; null without any
) LANGUAGE sql STABLE
-- settings of the hot path
AS $$
  SELECT
    s.id, COALESCE(s.first_offset, 0), COALESCE(s.next_offset, 0), i.instance_id IS NOT NULL,
    COALESCE((
      SELECT e.status IN ('Completed', 'Failed') FROM executions AS e
      WHERE e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
    ), false),
    CASE WHEN s.id IS NOT NULL AND item.max_bytes > 0 THEN (
      SELECT json_agg(
        json_build_array(
          c.chunk_offset, c.writer, c.number, floor(extract(epoch FROM c.appended_at) * 1000)::bigint, c.chunk
        )
        ORDER BY c.chunk_offset
      )
      FROM progress_chunks AS c
      WHERE c.stream_id = s.id
        AND c.chunk_offset >= COALESCE(item."from", s.first_offset)
        AND c.chunk_offset < COALESCE(item."from", s.first_offset) + 10000
        AND c.bytes_before < item.max_bytes + (
          SELECT first.bytes_before FROM progress_chunks AS first
          WHERE first.stream_id = s.id AND first.chunk_offset = COALESCE(item."from", s.first_offset)
        )
    ) END
  FROM ROWS FROM (
    jsonb_to_recordset(p_items) AS (instance_id text, stream text, "from" bigint, max_bytes bigint)
  ) WITH ORDINALITY AS item (instance_id, stream, "from", max_bytes, position)
  LEFT JOIN LATERAL (
    SELECT i.instance_id, i.current_execution_id FROM instances AS i WHERE i.instance_id = item.instance_id
    OFFSET 0
  ) AS i ON true
  LEFT JOIN LATERAL (
    SELECT s.id, s.first_offset, s.next_offset FROM progress_streams AS s
    WHERE s.instance_id = item.instance_id AND s.name = item.stream
    OFFSET 0
  ) AS s ON true
  ORDER BY item.position
$$;
