-- Appends chunks to a stream that the caller has locked, and deletes the oldest ones that are then too many. The newest
-- chunk always stays. A part of dx_append_chunks and dx_store_chunks.
--
-- Bound: the chunks given, and those deleted. Locks: rows of progress_streams and progress_chunks.
CREATE OR REPLACE FUNCTION dx_insert_chunks(
  p_stream_id bigint,
  p_writer text,
  p_number bigint,                 -- of the first chunk
  p_chunks text[],                 -- at least one
  p_keep_chunks bigint,
  p_keep_bytes bigint,
  p_now timestamptz
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_stream progress_streams;
  v_bytes bigint;
BEGIN
  SELECT s.* INTO v_stream FROM progress_streams AS s WHERE s.id = p_stream_id;
  INSERT INTO progress_chunks (stream_id, chunk_offset, bytes_before, writer, number, chunk, appended_at)
  SELECT
    p_stream_id, v_stream.next_offset + c.position - 1,
    v_stream.next_bytes + COALESCE(
      sum(octet_length(c.chunk)) OVER (ORDER BY c.position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0
    ),
    p_writer, p_number + c.position - 1, c.chunk, p_now
  FROM unnest(p_chunks) WITH ORDINALITY AS c (chunk, position);
  SELECT sum(octet_length(chunk)) INTO v_bytes FROM unnest(p_chunks) AS given (chunk);

  v_stream.next_offset := v_stream.next_offset + cardinality(p_chunks);
  v_stream.next_bytes := v_stream.next_bytes + v_bytes;
  IF v_stream.next_offset - v_stream.first_offset > p_keep_chunks
    OR v_stream.next_bytes - v_stream.first_bytes > p_keep_bytes
  THEN
    -- Reads what is deleted next, and one more.
    SELECT c.chunk_offset, c.bytes_before INTO v_stream.first_offset, v_stream.first_bytes
    FROM progress_chunks AS c
    WHERE c.stream_id = p_stream_id
      AND c.chunk_offset >= GREATEST(v_stream.first_offset, v_stream.next_offset - p_keep_chunks)
      AND (c.bytes_before >= v_stream.next_bytes - p_keep_bytes OR c.chunk_offset = v_stream.next_offset - 1)
    ORDER BY c.chunk_offset LIMIT 1;
    DELETE FROM progress_chunks AS c
    WHERE c.stream_id = p_stream_id AND c.chunk_offset < v_stream.first_offset;
  END IF;
  UPDATE progress_streams AS s
  SET first_offset = v_stream.first_offset, next_offset = v_stream.next_offset, first_bytes = v_stream.first_bytes,
      next_bytes = v_stream.next_bytes, appended_at = p_now
  WHERE s.id = p_stream_id;
END
$$;
