-- Returns the streams of an instance, by name.
-- Bound: the streams of the instance. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_streams(p_instance_id text) RETURNS TABLE (
  out_name text, out_first_offset bigint, out_next_offset bigint,
  out_bytes bigint,                -- of the chunks that are kept
  out_appended_at_ms bigint        -- when the last one was appended
) LANGUAGE sql STABLE
-- settings of the hot path
AS $$
  SELECT
    s.name, s.first_offset, s.next_offset, s.next_bytes - s.first_bytes,
    floor(extract(epoch FROM s.appended_at) * 1000)::bigint
  FROM progress_streams AS s WHERE s.instance_id = p_instance_id
  ORDER BY s.name COLLATE "C"
$$;
