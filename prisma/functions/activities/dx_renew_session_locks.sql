-- Extends the live session locks of these workers to now + p_extend_for_ms, if the session was active within
-- p_idle_timeout_ms.
--
-- Returns the number of extended locks. An expired lock is never extended; an idle timeout of 0 extends none. A session
-- that another transaction has locked is passed over: a wait for it would let the locks of the others run out.
-- Bound: the sessions of the workers. Locks: session rows by id (skip locked).
CREATE OR REPLACE FUNCTION dx_renew_session_locks(
  p_worker_ids text[],
  p_extend_for_ms bigint,          -- milliseconds, > 0
  p_idle_timeout_ms bigint,        -- milliseconds since the last activity, >= 0
  p_now_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_renewed bigint;
BEGIN
  UPDATE sessions AS s SET locked_until = v_now_ms + p_extend_for_ms
  FROM (
    SELECT active.session_id FROM sessions AS active
    WHERE active.worker_id = ANY (p_worker_ids)
      AND active.locked_until > v_now_ms
      AND active.last_activity_at > v_now_ms - p_idle_timeout_ms
    ORDER BY active.session_id COLLATE "C" FOR NO KEY UPDATE SKIP LOCKED
  ) AS live
  WHERE s.session_id = live.session_id;
  GET DIAGNOSTICS v_renewed = ROW_COUNT;
  RETURN v_renewed;
END
$$;
