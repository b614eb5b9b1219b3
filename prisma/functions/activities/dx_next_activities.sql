-- Returns the p_most oldest activities that a worker can claim, in the order in which they became visible: those
-- without a session of p_routes, and those of p_sessions that have one of p_session_routes.
-- Bound: p_most activities per route and session, and the locked ones in front of them. Locks: none.
CREATE OR REPLACE FUNCTION dx_next_activities(
  p_most integer, p_routes text[],
  p_from timestamptz,              -- no activity without a session that became visible earlier waits
  p_sessions text[], p_session_routes text[],
  p_suspects boolean,              -- whether to return suspects, too
  p_names text[],                  -- this and the following: as in dx_fetch_work_items
  p_untagged boolean, p_tags text[], p_now timestamptz,
  p_expired_ms bigint              -- a lock that ended by then may be taken over
) RETURNS TABLE (id bigint, attempt_count integer) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  SELECT old.id, old.attempt_count
  FROM (
    SELECT activity.* FROM unnest(p_routes) AS wanted (route)
    CROSS JOIN LATERAL (
      SELECT w.id, w.visible_at, w.attempt_count FROM worker_queue AS w
      WHERE w.session_id IS NULL
        AND w.route = wanted.route
        AND w.visible_at BETWEEN p_from AND p_now
        AND dx_is_free(w.lock_token, w.locked_until, p_expired_ms)
        AND (p_suspects OR w.attempt_count < 2)
        AND dx_is_taken(w.route, w.tag, p_names, p_untagged, p_tags)
      ORDER BY w.visible_at, w.id LIMIT p_most
    ) AS activity
    UNION ALL
    SELECT activity.* FROM unnest(p_sessions) AS wanted (session_id)
    CROSS JOIN unnest(p_session_routes) AS program (route)
    CROSS JOIN LATERAL (
      SELECT w.id, w.visible_at, w.attempt_count FROM worker_queue AS w
      WHERE w.session_id IS NOT NULL
        AND w.route = program.route
        AND w.session_id = wanted.session_id
        AND w.visible_at <= p_now
        AND dx_is_free(w.lock_token, w.locked_until, p_expired_ms)
        AND (p_suspects OR w.attempt_count < 2)
        AND dx_is_taken(w.route, w.tag, p_names, p_untagged, p_tags)
      ORDER BY w.visible_at, w.id LIMIT p_most
    ) AS activity
  ) AS old
  ORDER BY old.visible_at, old.id LIMIT p_most
$$;
