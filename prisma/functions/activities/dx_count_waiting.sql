-- Returns how many of the waiting activities each worker could claim, by its position, up to p_most + 1. That number
-- stands for more, too, or for an unknown number, because the p_most + 1000 oldest of a route are locked. Null: no
-- activity waits at all.
-- Bound: one look per route that has activities, and p_most + 1000 rows per route that the workers serve. It skips the
-- dead rows that an open transaction keeps, as claims do (dx_set_mark). Locks: none.
--
-- Each statement that asks for a handover pays for the rows it reads: 0.2 ms at 256 activities of one name under way,
-- 0.6 ms at 1,000. Read without a bound they would cost 1.2 ms at 2,000 on an idle machine, and several times that on a
-- busy one.
CREATE OR REPLACE FUNCTION dx_count_waiting(
  p_workers jsonb,                 -- as in dx_store_turns
  p_most bigint, p_now_ms bigint
) RETURNS bigint[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_first text;
  v_routes text[];
  v_waiting bigint[];
  -- As in dx_fetch_work_items.
  v_mark text[];
  v_from timestamptz := '-infinity';
  v_looked timestamptz;
  v_read bigint;                   -- entries of the index that the session had read before, dead rows among them
BEGIN
  IF current_setting('duroxide_prisma.handover', true) <> '' THEN
    v_mark := dx_read_mark('duroxide_prisma.handover', concat('worker_queue'::regclass::oid, p_workers), p_now_ms);
  END IF;
  IF v_mark IS NOT NULL THEN
    v_from := to_timestamp(v_mark[1]::float8 / 1000);
    v_routes := v_mark[2:];
  ELSE
    v_looked := clock_timestamp();
    v_read := pg_stat_get_xact_tuples_returned(to_regclass('worker_queue_route_visible_at_id_idx'));
    SELECT w.route INTO v_first FROM worker_queue AS w WHERE w.session_id IS NULL ORDER BY w.route LIMIT 1;
    -- Not started where no activity waits: it costs three times as much. From the first route on, which
    -- dx_routes_of_activities would look for again, past dead rows.
    IF v_first IS NOT NULL THEN
      WITH RECURSIVE present AS (
        SELECT v_first AS route
        UNION ALL
        SELECT (
          SELECT w.route FROM worker_queue AS w
          WHERE w.session_id IS NULL AND w.route > present.route
          ORDER BY w.route LIMIT 1
        )
        FROM present WHERE present.route IS NOT NULL
      )
      SELECT array_agg(present.route) INTO v_routes FROM present
      WHERE present.route IS NOT NULL;
    END IF;
  END IF;

  IF v_routes IS NOT NULL THEN
    SELECT array_agg(
      (
        SELECT count(*) + COALESCE(max(p_most) FILTER (WHERE waiting.is_one_of_many), 0)
        FROM unnest(v_routes) AS present (route)
        CROSS JOIN LATERAL (
          SELECT old.position = p_most + 1000 AS is_one_of_many
          FROM (
            SELECT activity.*, row_number() OVER () AS position
            FROM (
              SELECT w.lock_token, w.locked_until, w.tag FROM worker_queue AS w
              WHERE w.session_id IS NULL AND w.route = present.route AND w.visible_at BETWEEN v_from AND v_now
              ORDER BY w.visible_at, w.id LIMIT p_most + 1000
            ) AS activity
          ) AS old
          WHERE old.position = p_most + 1000
            OR (
              dx_is_free(old.lock_token, old.locked_until, p_now_ms)
              AND dx_is_taken(present.route, old.tag, worker.names, worker.untagged, worker.tags)
            )
          LIMIT p_most + 1
        ) AS waiting
        WHERE dx_is_served(present.route, worker.names, worker.untagged, worker.tags)
      )
      ORDER BY worker.position
    )
    INTO v_waiting
    FROM ROWS FROM (jsonb_to_recordset(p_workers) AS (names text[], untagged boolean, tags text[])) WITH ORDINALITY
      AS worker (names, untagged, tags, position);
  END IF;

  IF v_mark IS NULL
    AND pg_stat_get_xact_tuples_returned(to_regclass('worker_queue_route_visible_at_id_idx')) - v_read > 5000
  THEN
    SELECT array_agg(present.route) INTO v_routes FROM unnest(v_routes) AS present (route)
    WHERE EXISTS (
      SELECT
      FROM jsonb_to_recordset(p_workers) AS worker (names text[], untagged boolean, tags text[])
      WHERE dx_is_served(present.route, worker.names, worker.untagged, worker.tags)
    );
    PERFORM dx_set_mark(
      'duroxide_prisma.handover', concat('worker_queue'::regclass::oid, p_workers), v_looked,
      dx_oldest_activity(v_routes, v_now, p_now_ms), v_routes
    );
  END IF;

  RETURN v_waiting;
END
$$;
