-- Locks the row of a stream, and inserts the row if the stream is new. Returns the id of the stream. Returns null if
-- the instance does not exist, or if another transaction has locked the instance to delete it and p_waits is false. A
-- part of dx_append_chunks and dx_store_chunks.
--
-- Bound: the stream. Locks: the row of the instance (key share) if the stream is new, then the row of the stream.
CREATE OR REPLACE FUNCTION dx_lock_stream(
  p_instance_id text, p_name text, p_waits boolean, p_now timestamptz
) RETURNS bigint LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_id bigint;
BEGIN
  SELECT s.id INTO v_id FROM progress_streams AS s
  WHERE s.instance_id = p_instance_id AND s.name = p_name
  FOR UPDATE;
  IF FOUND THEN
    RETURN v_id;
  END IF;
  -- A deletion that comes now waits, and finds the row.
  IF p_waits THEN
    PERFORM FROM instances AS i WHERE i.instance_id = p_instance_id FOR KEY SHARE;
  ELSE
    PERFORM FROM instances AS i WHERE i.instance_id = p_instance_id FOR KEY SHARE SKIP LOCKED;
  END IF;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  INSERT INTO progress_streams AS s (instance_id, name, appended_at) VALUES (p_instance_id, p_name, p_now)
  ON CONFLICT (instance_id, name) DO UPDATE SET appended_at = s.appended_at -- locks it
  RETURNING s.id INTO v_id;
  RETURN v_id;
END
$$;
