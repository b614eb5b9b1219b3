-- Whether a worker may take activities of a session: no other worker owns it, who may be full.
--
-- Bound: one row. Locks: none.
CREATE OR REPLACE FUNCTION dx_may_take_session(
  p_session_id text,
  p_worker_id text,                -- null takes none
  p_now_ms bigint
) RETURNS boolean LANGUAGE plpgsql STABLE
-- settings of the caller
AS $$
BEGIN
  RETURN p_worker_id IS NOT NULL
    AND NOT EXISTS (
      SELECT FROM sessions AS s
      WHERE s.session_id = p_session_id AND s.locked_until > p_now_ms AND s.worker_id <> p_worker_id
    );
END
$$;
