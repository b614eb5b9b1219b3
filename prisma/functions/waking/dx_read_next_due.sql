-- Returns when something happens next in each queue by the passing of time alone: the first moment, later than now, at
-- which a row becomes visible or a pause ends. Null: nothing is due.
--
-- Locks that processes hold are left out, as finding the first to run out would read the whole queue: other processes
-- learn from their holders when they run out. Messages to instances that Duroxide runs are left out, too.
--
-- Bound: two looks per route that has rows, however many rows wait or are visible; one look at the pauses, and the rows
-- of limits. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_next_due(p_now_ms bigint DEFAULT NULL) RETURNS TABLE (
  out_now_ms bigint, out_orchestrator_ms bigint, out_worker_ms bigint,
  out_paused json                  -- of dx_read_paused: so that a process that lost a notification learns of it
) LANGUAGE plpgsql STABLE
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
BEGIN
  SELECT ceil(extract(epoch FROM min(
    (
      SELECT q.visible_at FROM orchestrator_queue AS q
      WHERE q.route = present.route AND q.visible_at > v_now AND q.visible_at < 'infinity'
      ORDER BY q.visible_at, q.id LIMIT 1
    )
  )) * 1000)
  INTO out_orchestrator_ms
  FROM dx_routes_of_messages() AS present WHERE NOT starts_with(present.route, '0.');

  out_orchestrator_ms := least(
    out_orchestrator_ms,
    (
      SELECT l.locked_until FROM instance_locks AS l
      WHERE l.lock_token = '' AND l.locked_until > v_now_ms AND l.locked_until < dx_no_end()
      ORDER BY l.locked_until LIMIT 1
    )
  );

  -- A token of a limit is back.
  out_orchestrator_ms := least(
    out_orchestrator_ms,
    (SELECT min(l.next_ms) FROM limits AS l WHERE l.kind = 'orchestration' AND l.next_ms > v_now_ms)
  );

  -- Each condition on the session fits one index only.
  -- WITH, because over a subquery the planner also plans min as the first row of an index: 10 microseconds for nothing.
  WITH due AS (
    SELECT (
      SELECT w.visible_at FROM worker_queue AS w
      WHERE w.session_id IS NULL
        AND w.route = present.route
        AND w.visible_at > v_now
        AND w.visible_at < 'infinity'
      ORDER BY w.visible_at, w.id LIMIT 1
    ) AS visible_at
    FROM dx_routes_of_activities() AS present
    UNION ALL
    SELECT (
      SELECT w.visible_at FROM worker_queue AS w
      WHERE num_nulls(w.session_id) = 0
        AND w.route = present.route
        AND w.visible_at > v_now
        AND w.visible_at < 'infinity'
      ORDER BY w.visible_at, w.id LIMIT 1
    )
    FROM dx_routes_of_sessions() AS present
  )
  SELECT ceil(extract(epoch FROM min(due.visible_at)) * 1000) INTO out_worker_ms FROM due;
  -- A token of a limit is back.
  out_worker_ms := least(
    out_worker_ms,
    (SELECT min(l.next_ms) FROM limits AS l WHERE l.kind = 'activity' AND l.next_ms > v_now_ms)
  );
  out_paused := dx_read_paused();
  out_now_ms := v_now_ms;
  RETURN NEXT;
END
$$;
