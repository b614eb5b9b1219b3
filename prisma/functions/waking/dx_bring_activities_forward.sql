-- Gives activities of the future that are not to wait the present time, among the next 100 of each route: the clock was
-- set back since they were stored. Those that were given back with a delay have visible_at > created_at, and stay.
--
-- Returns how many there were. Bound: 100 rows per route. Locks: these activities (skip locked).
CREATE OR REPLACE FUNCTION dx_bring_activities_forward(
  p_routes text[],                 -- of activities without a session
  p_session_routes text[],         -- of activities with one
  p_now timestamptz,
  p_expired_ms bigint              -- a lock that ended by then may be taken over
) RETURNS integer LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_count integer;
BEGIN
  UPDATE worker_queue AS w SET visible_at = p_now
  WHERE w.id = ANY (ARRAY(
    SELECT free.id
    FROM (
      SELECT next.* FROM unnest(p_routes) AS wanted (route)
      CROSS JOIN LATERAL (
        SELECT w.id, w.visible_at, w.created_at FROM worker_queue AS w
        WHERE w.session_id IS NULL AND w.route = wanted.route AND w.visible_at > p_now
        ORDER BY w.visible_at, w.id LIMIT 100
      ) AS next
      UNION ALL
      SELECT next.* FROM unnest(p_session_routes) AS wanted (route)
      CROSS JOIN LATERAL (
        SELECT w.id, w.visible_at, w.created_at FROM worker_queue AS w
        WHERE num_nulls(w.session_id) = 0 AND w.route = wanted.route AND w.visible_at > p_now
        ORDER BY w.visible_at, w.id LIMIT 100
      ) AS next
    ) AS next
    CROSS JOIN LATERAL (
      SELECT w.id FROM worker_queue AS w
      WHERE w.id = next.id AND dx_is_free(w.lock_token, w.locked_until, p_expired_ms)
      FOR UPDATE SKIP LOCKED
    ) AS free
    WHERE next.visible_at <= next.created_at
  ));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END
$$;
