-- Stores the chunks that programs append. A part of dx_store_turns, so that a chunk is there if and only if its turn
-- is.
--
-- Bound: the chunks, and those that they drive out. Locks: rows of progress_streams by instance and name. The caller
-- has excluded deletions of these instances.
CREATE OR REPLACE FUNCTION dx_store_chunks(
  p_turns dx_turn[],
  p_changes jsonb,                 -- [{ack, action: chunk, stream, chunk, keep_chunks, keep_bytes}]. Other actions are
                                   --   left out
  p_now timestamptz
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_stream record;
  v_stream_id bigint;
BEGIN
  FOR v_stream IN
    SELECT
      turn.instance_id, turn.execution_id, c.stream, array_agg(c.chunk ORDER BY c.position) AS chunks,
      min(c.keep_chunks) AS keep_chunks, min(c.keep_bytes) AS keep_bytes
    FROM ROWS FROM (
      jsonb_to_recordset(p_changes)
        AS (ack bigint, action text, stream text, chunk text, keep_chunks bigint, keep_bytes bigint)
    ) WITH ORDINALITY AS c (ack, action, stream, chunk, keep_chunks, keep_bytes, position)
    CROSS JOIN LATERAL (SELECT p_turns[c.ack].instance_id, p_turns[c.ack].execution_id) AS turn
    WHERE c.action = 'chunk' AND turn.execution_id IS NOT NULL
    GROUP BY turn.instance_id, turn.execution_id, c.stream
    ORDER BY turn.instance_id COLLATE "C", c.stream COLLATE "C"
  LOOP
    v_stream_id := dx_lock_stream(v_stream.instance_id, v_stream.stream, true, p_now);
    CONTINUE WHEN v_stream_id IS NULL; -- a turn of an instance that has no row
    PERFORM dx_insert_chunks(
      v_stream_id, v_stream.execution_id::text, 0, v_stream.chunks, v_stream.keep_chunks, v_stream.keep_bytes, p_now
    );
  END LOOP;
END
$$;
