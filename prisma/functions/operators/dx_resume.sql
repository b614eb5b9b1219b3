-- Ends what dx_pause has begun: exactly this target, no wider or narrower one.
--
-- Returns whether it was paused. Announces it to all processes.
-- Bound: one row, and the lock of an instance. Locks: advisory lock of the instance (waits for a claim), its lock row,
-- the row of paused.
CREATE OR REPLACE FUNCTION dx_resume(
  p_target text,                   -- as in the table, and so are the following
  p_name text, p_version text
) RETURNS boolean LANGUAGE plpgsql
-- settings of the hot path
AS $$
BEGIN
  IF p_target = 'instance' THEN
    PERFORM pg_advisory_xact_lock(hashtext(p_name));
    DELETE FROM instance_locks AS l
    WHERE l.instance_id = p_name AND l.lock_token = '' AND l.locked_until >= dx_no_end();
  END IF;
  DELETE FROM paused AS p WHERE p.target = p_target AND p.name = p_name AND p.version = p_version;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM dx_announce_pauses();
  IF p_target = 'instance' THEN
    -- Duroxide knows this channel alone.
    PERFORM dx_notify('orch_work', ARRAY[now()]);
  END IF;
  RETURN true;
END
$$;
