-- Pauses what an operator names, until dx_resume. Pausing it again only gives it another reason.
--
-- An instance gets a lock without a holder and without an end: no process takes it, Duroxide's included. A process that
-- runs it has lost its lock: its turn is not stored, its messages are free again, and the delivery does not count. All
-- other targets are rows alone, which processes read when they start and whenever they are notified.
--
-- Returns Paused, or for an instance NotFound or Ended; then nothing has changed. Announces it to all processes.
-- Bound: one row; of an instance its lock and its batch. Locks: advisory lock of the instance (waits for a claim), its
-- lock row (waits for a turn that is being stored), messages of its batch, the row of paused.
CREATE OR REPLACE FUNCTION dx_pause(
  p_target text,                   -- as in the table, and so are the following
  p_name text, p_version text, p_reason text, p_now_ms bigint DEFAULT NULL
) RETURNS text LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_since timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_lock record;
BEGIN
  IF p_target = 'instance' THEN
    PERFORM pg_advisory_xact_lock(hashtext(p_name));
    SELECT l.lock_token, l.locked_until INTO v_lock FROM instance_locks AS l
    WHERE l.instance_id = p_name
    FOR UPDATE;
    -- This sees the turn that the lock has waited for.
    IF NOT EXISTS (SELECT FROM instances AS i WHERE i.instance_id = p_name) THEN
      RETURN 'NotFound';
    END IF;
    IF NOT EXISTS (SELECT FROM dx_running_instances(ARRAY[p_name])) THEN
      RETURN 'Ended';
    END IF;
    INSERT INTO instance_locks AS l (instance_id, lock_token, locked_until, locked_at)
    VALUES (p_name, '', dx_no_end(), v_now_ms)
    ON CONFLICT (instance_id) DO UPDATE
    SET lock_token = EXCLUDED.lock_token, locked_until = EXCLUDED.locked_until, locked_at = EXCLUDED.locked_at;
    IF v_lock.lock_token <> '' THEN
      UPDATE orchestrator_queue AS q
      SET lock_token = NULL, locked_until = NULL,
          -- A holder that died before counts.
          attempt_count = CASE
            WHEN v_lock.locked_until > v_now_ms THEN greatest(q.attempt_count - 1, 0)
            ELSE q.attempt_count
          END
      WHERE q.instance_id = p_name AND q.lock_token = v_lock.lock_token;
    END IF;
    -- Duroxide deletes an instance without this row.
    DELETE FROM paused AS p USING instances AS i
    WHERE p.target = 'instance' AND p.name = p_name AND i.instance_id = p_name AND p.since < i.created_at;
  END IF;

  INSERT INTO paused (target, name, version, reason, since)
  VALUES (p_target, p_name, p_version, p_reason, v_since)
  ON CONFLICT (target, name, version) DO UPDATE SET reason = EXCLUDED.reason;
  PERFORM dx_announce_pauses();
  RETURN 'Paused';
END
$$;
