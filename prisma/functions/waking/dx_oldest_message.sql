-- Returns when the first message of these routes became visible that no process holds; null without one.
-- Bound: per route, the visible messages that processes hold in front of the first other one. Locks: none.
CREATE OR REPLACE FUNCTION dx_oldest_message(
  p_routes text[], p_now timestamptz,
  p_now_ms bigint                  -- the same time
) RETURNS timestamptz LANGUAGE plpgsql STABLE
-- settings of the caller
AS $$
BEGIN
  RETURN (
    SELECT min(oldest.visible_at) FROM unnest(p_routes) AS wanted (route)
    CROSS JOIN LATERAL (
      SELECT q.visible_at FROM orchestrator_queue AS q
      WHERE q.route = wanted.route
        AND q.visible_at <= p_now
        AND dx_is_free(q.lock_token, q.locked_until, p_now_ms)
      ORDER BY q.visible_at, q.id LIMIT 1
    ) AS oldest
  );
END
$$;
