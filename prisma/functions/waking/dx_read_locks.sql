-- Returns when live locks that keep visible work from being claimed run out, the first and the last of each queue; null
-- without one. A process that has just begun looks at these times: their holders may have died before it could learn of
-- them.
--
-- An activity with a session is claimable when its own lock and that of its session have run out. Pauses of instances
-- are left out: dx_read_next_due has them.
--
-- Bound: the 1,000 oldest visible rows of each route, 10,000 of each queue, and a look at the lock of the instance or
-- session of each: 30 ms at most. Claims take the oldest rows, so these are the locked ones. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_locks(p_now_ms bigint DEFAULT NULL) RETURNS TABLE (
  out_now_ms bigint,
  out_orchestrator_first_ms bigint, out_orchestrator_last_ms bigint, out_worker_first_ms bigint,
  out_worker_last_ms bigint
) LANGUAGE plpgsql STABLE
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
BEGIN
  out_now_ms := v_now_ms;

  WITH held AS (
    SELECT greatest(
      head.locked_until,
      (
        SELECT l.locked_until FROM instance_locks AS l
        WHERE l.instance_id = head.instance_id AND l.lock_token <> ''
      )
    ) AS until_ms
    FROM (
      SELECT message.* FROM dx_routes_of_messages() AS present
      CROSS JOIN LATERAL (
        SELECT q.instance_id, q.locked_until FROM orchestrator_queue AS q
        WHERE q.route = present.route AND q.visible_at <= v_now
        ORDER BY q.visible_at, q.id LIMIT 1000
      ) AS message
      LIMIT 10000
    ) AS head
  )
  SELECT min(held.until_ms), max(held.until_ms)
  INTO out_orchestrator_first_ms, out_orchestrator_last_ms
  FROM held WHERE held.until_ms > v_now_ms;

  -- Each condition on the session fits one index only.
  WITH held AS (
    (
      SELECT activity.locked_until AS until_ms FROM dx_routes_of_activities() AS present
      CROSS JOIN LATERAL (
        SELECT w.locked_until FROM worker_queue AS w
        WHERE w.session_id IS NULL AND w.route = present.route AND w.visible_at <= v_now
        ORDER BY w.visible_at, w.id LIMIT 1000
      ) AS activity
      LIMIT 10000
    )
    UNION ALL
    SELECT greatest(
      head.locked_until, (SELECT s.locked_until FROM sessions AS s WHERE s.session_id = head.session_id)
    )
    FROM (
      SELECT activity.* FROM dx_routes_of_sessions() AS present
      CROSS JOIN LATERAL (
        SELECT w.session_id, w.locked_until FROM worker_queue AS w
        WHERE num_nulls(w.session_id) = 0 AND w.route = present.route AND w.visible_at <= v_now
        ORDER BY w.visible_at, w.id LIMIT 1000
      ) AS activity
      LIMIT 10000
    ) AS head
  )
  SELECT min(held.until_ms), max(held.until_ms) INTO out_worker_first_ms, out_worker_last_ms
  FROM held WHERE held.until_ms > v_now_ms;

  RETURN NEXT;
END
$$;
