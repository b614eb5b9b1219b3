-- Makes a worker the owner of sessions, with a lock of p_lock_timeout_ms from now, as far as no other worker owns them.
--
-- Returns those it owns now. Bound: the sessions given. Locks, without waiting: their advisory locks (try), then their
-- rows (skip locked).
CREATE OR REPLACE FUNCTION dx_take_sessions(
  p_sessions text[], p_worker_id text,
  p_lock_timeout_ms bigint,        -- milliseconds, > 0
  p_now_ms bigint
) RETURNS text[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_session text;
  v_busy text[] := '{}';
  v_owned text[];
BEGIN
  FOREACH v_session IN ARRAY p_sessions LOOP
    IF NOT pg_try_advisory_xact_lock(hashtext('session ' || v_session)) THEN
      v_busy := v_busy || v_session;
    END IF;
  END LOOP;
  WITH locked AS (
    SELECT s.session_id FROM sessions AS s
    WHERE s.session_id = ANY (p_sessions)
      AND s.session_id <> ALL (v_busy)
      AND (s.locked_until <= p_now_ms OR s.worker_id = p_worker_id)
    ORDER BY s.session_id COLLATE "C" FOR UPDATE SKIP LOCKED
  ),
  refreshed AS (
    UPDATE sessions AS s
    SET worker_id = p_worker_id, locked_until = p_now_ms + p_lock_timeout_ms, last_activity_at = p_now_ms
    FROM locked WHERE s.session_id = locked.session_id
    RETURNING s.session_id
  ),
  created AS (
    INSERT INTO sessions (session_id, worker_id, locked_until, last_activity_at)
    SELECT wanted.session_id, p_worker_id, p_now_ms + p_lock_timeout_ms, p_now_ms
    FROM unnest(p_sessions) AS wanted (session_id)
    WHERE wanted.session_id <> ALL (v_busy)
      AND NOT EXISTS (SELECT FROM sessions AS s WHERE s.session_id = wanted.session_id)
    ORDER BY wanted.session_id COLLATE "C"
    ON CONFLICT (session_id) DO NOTHING RETURNING session_id
  ),
  -- The worker owns the session already: its row is only busy with an ack or a renewal of the same worker.
  kept AS (
    SELECT s.session_id FROM sessions AS s
    WHERE s.session_id = ANY (p_sessions) AND s.worker_id = p_worker_id AND s.locked_until > p_now_ms
  )
  SELECT COALESCE(array_agg(owned.session_id), '{}') INTO v_owned
  FROM (
    SELECT refreshed.session_id FROM refreshed
    UNION
    SELECT created.session_id FROM created
    UNION
    SELECT kept.session_id FROM kept
  ) AS owned;
  RETURN v_owned;
END
$$;
