-- Makes one step of a pass over the messages without a route, oldest first: a message whose instance exists by now gets
-- its route; a message that has been visible for longer than p_max_age_ms is deleted.
--
-- It repairs two races: a message and the start of its id that were inserted at the same time did not see each other; a
-- message in an open transaction missed that its instance changed its version or was deleted.
--
-- It notifies listeners if a message got another route: its sender did so before any process could claim it.
--
-- Returns one row: the number of deleted messages, and where the next step of the pass begins, null after the last
-- step.
-- Bound: p_limit rows; the first step of a pass also looks at the newest 1,000 visible rows of each route. Locks: queue
-- rows (skip locked). Nothing waits.
CREATE OR REPLACE FUNCTION dx_sweep_messages(
  p_max_age_ms bigint,             -- milliseconds, >= 0
  p_limit integer,                 -- rows, >= 1
  p_after text,                    -- out_next of the step before; null begins a pass
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_deleted bigint,
  out_next text                    -- <microseconds since the Unix epoch>.<row id>
) LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_oldest timestamptz := to_timestamp((v_now_ms - p_max_age_ms)::float8 / 1000);
  v_after_at timestamptz := '-infinity';
  v_after_id bigint := 0;
  v_seen integer := 0;
  v_row record;
  v_delivers boolean := false;
BEGIN
  out_deleted := 0;
  IF p_after IS NULL THEN
    -- A transaction that sent a message may commit after the instance changed its version or was deleted. Among the
    -- newest messages of each route, this finds those whose instance has another route by now, and updates them.
    FOR v_row IN
      SELECT newest.id, dx_message_route(newest.instance_id, newest.work_item) AS route
      FROM dx_routes_of_messages() AS present
      CROSS JOIN LATERAL (
        SELECT q.id, q.instance_id, q.route, q.work_item, q.lock_token FROM orchestrator_queue AS q
        WHERE q.route = present.route AND q.visible_at <= v_now
        ORDER BY q.visible_at DESC, q.id DESC LIMIT 1000
      ) AS newest
      WHERE present.route <> ''
        AND newest.lock_token IS NULL
        AND newest.route NOT LIKE '- %'
        AND newest.route IS DISTINCT FROM (
          SELECT i.route FROM instances AS i
          WHERE i.instance_id = newest.instance_id AND i.route <> ''
        )
    LOOP
      v_delivers := dx_reroute_message(v_row.id, v_row.route) OR v_delivers;
    END LOOP;
  END IF;
  IF p_after IS NOT NULL THEN
    v_after_at := 'epoch'::timestamptz + split_part(p_after, '.', 1)::bigint * interval '1 microsecond';
    v_after_id := split_part(p_after, '.', 2)::bigint;
  END IF;
  FOR v_row IN
    SELECT q.id, q.instance_id, q.visible_at, dx_message_route(q.instance_id, q.work_item) AS route
    FROM orchestrator_queue AS q
    WHERE q.route = '' AND q.visible_at <= v_now AND (q.visible_at, q.id) > (v_after_at, v_after_id)
    ORDER BY q.visible_at, q.id LIMIT p_limit
  LOOP
    v_seen := v_seen + 1;
    v_after_at := v_row.visible_at;
    v_after_id := v_row.id;
    IF v_row.route <> '' THEN
      v_delivers := dx_reroute_message(v_row.id, v_row.route) OR v_delivers;
    ELSIF v_row.visible_at <= v_oldest THEN
      DELETE FROM orchestrator_queue AS q
      WHERE q.id = (
          SELECT message.id FROM orchestrator_queue AS message WHERE message.id = v_row.id
          FOR UPDATE SKIP LOCKED
        )
        AND (
          SELECT start.id FROM orchestrator_queue AS start
          WHERE start.instance_id = q.instance_id AND start.work_item LIKE '{"StartOrchestration"%'
          LIMIT 1
        ) IS NULL;
      IF FOUND THEN
        out_deleted := out_deleted + 1;
      END IF;
    END IF;
  END LOOP;
  IF v_delivers THEN
    PERFORM dx_notify('orch_work', ARRAY[v_now]);
  END IF;
  IF v_seen >= p_limit THEN
    out_next := (extract(epoch FROM v_after_at) * 1000000)::bigint || '.' || v_after_id;
  END IF;
  RETURN NEXT;
END
$$;
