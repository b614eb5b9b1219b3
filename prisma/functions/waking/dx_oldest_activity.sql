-- Returns when the first activity without a session of these routes became visible that no process holds; null without
-- one.
-- Bound: per route, the visible activities that processes hold in front of the first other one. Locks: none.
CREATE OR REPLACE FUNCTION dx_oldest_activity(
  p_routes text[], p_now timestamptz,
  p_now_ms bigint                  -- the same time
) RETURNS timestamptz LANGUAGE plpgsql STABLE
-- settings of the caller
AS $$
BEGIN
  RETURN (
    SELECT min(oldest.visible_at) FROM unnest(p_routes) AS wanted (route)
    CROSS JOIN LATERAL (
      SELECT w.visible_at FROM worker_queue AS w
      WHERE w.session_id IS NULL
        AND w.route = wanted.route
        AND w.visible_at <= p_now
        AND dx_is_free(w.lock_token, w.locked_until, p_now_ms)
      ORDER BY w.visible_at, w.id LIMIT 1
    ) AS oldest
  );
END
$$;
