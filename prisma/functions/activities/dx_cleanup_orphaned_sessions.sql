-- Deletes sessions with an expired lock and no queued activity.
--
-- Returns the number of deleted sessions. A session that a claim is working on is left to the next call.
-- Bound: the expired sessions. Locks: session rows (skip locked).
CREATE OR REPLACE FUNCTION dx_cleanup_orphaned_sessions(p_now_ms bigint DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_deleted bigint;
BEGIN
  DELETE FROM sessions AS s
  USING (
    SELECT orphan.session_id FROM sessions AS orphan
    WHERE orphan.locked_until < v_now_ms
      AND NOT EXISTS (SELECT FROM worker_queue AS w WHERE w.session_id = orphan.session_id)
    ORDER BY orphan.session_id COLLATE "C" FOR UPDATE SKIP LOCKED
  ) AS orphan
  WHERE s.session_id = orphan.session_id;
  GET DIAGNOSTICS v_deleted = ROW_COUNT;
  RETURN v_deleted;
END
$$;
