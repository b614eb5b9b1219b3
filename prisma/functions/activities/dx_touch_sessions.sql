-- Says that activities of these sessions have ended now. Sessions whose lock has expired are left alone.
--
-- Bound: the sessions given. Locks: session rows by id.
CREATE OR REPLACE FUNCTION dx_touch_sessions(p_sessions text[], p_now_ms bigint) RETURNS void LANGUAGE plpgsql
-- settings of the hot path
AS $$
BEGIN
  UPDATE sessions AS s SET last_activity_at = p_now_ms
  FROM (
    SELECT active.session_id FROM sessions AS active
    WHERE active.session_id = ANY (p_sessions) AND active.locked_until > p_now_ms
    ORDER BY active.session_id COLLATE "C" FOR NO KEY UPDATE
  ) AS locked
  WHERE s.session_id = locked.session_id;
END
$$;
