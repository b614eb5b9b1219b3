-- Returns what the tries of a call have appended to a stream since the last of them began anew: how many chunks, and
-- those of them that are kept. One row, without a stream as well.
--
-- It waits for an append of an earlier delivery that is under way. A later one finds its lock lost.
--
-- Bound: the chunks of the stream. Locks: the row of the stream (share).
CREATE OR REPLACE FUNCTION dx_resume_chunks(
  p_instance_id text, p_stream text,
  p_call text                      -- <execution>/<first try>/, the beginning of its writers
) RETURNS TABLE (out_count bigint, out_chunks text[]) LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_stream_id bigint;
BEGIN
  SELECT s.id INTO v_stream_id FROM progress_streams AS s
  WHERE s.instance_id = p_instance_id AND s.name = p_stream
  FOR SHARE;
  RETURN QUERY
  WITH of_call AS (
    SELECT c.chunk_offset, c.number, c.chunk FROM progress_chunks AS c
    WHERE c.stream_id = v_stream_id AND starts_with(c.writer, p_call)
  )
  SELECT COALESCE(max(c.number), 0), COALESCE(array_agg(c.chunk ORDER BY c.chunk_offset), '{}')
  FROM of_call AS c
  WHERE c.chunk_offset >= COALESCE((SELECT max(first.chunk_offset) FROM of_call AS first WHERE first.number = 1), 0);
END
$$;
