-- Returns one row: how many messages and activities could be claimed now, since when the oldest of them could, and how
-- many instances have not ended or are blocked, and how many activities and instances wait for limits.
--
-- A row can be claimed since it became visible, was inserted, or lost its lock, whichever came last. Messages of an
-- instance with a live lock or a pause, and messages that wait for a start, cannot be claimed. Messages to instances
-- that Duroxide runs are left out: its processes claim them.
--
-- Bound: the oldest p_limit rows of each route that can be claimed, among its 10 * p_limit oldest visible ones, and a
-- look at the lock of the instance of each message; rows that are not due cost nothing. Executions: 1,000 pages, chosen
-- at random from a table with more. Rows of blocked_instances, until p_limit are found;
-- p_limit activities that wait for limits, and 10 * p_limit instances. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_backlog(
  p_limit integer,                 -- rows of one route, >= 1
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_now_ms bigint, out_messages bigint,
  out_oldest_message_ms bigint,    -- null without a message
  out_activities json,             -- [{tag, depth, oldest_ms}]; tag is null for activities without one
  out_active_instances bigint,     -- an estimate where the table has more than 1,000 pages
  out_blocked_instances bigint,    -- at most p_limit
  out_limited_activities bigint,   -- that wait for limits; at most p_limit
  out_limited_instances bigint     -- that do, and are due, among the first 10 * p_limit; at most p_limit
) LANGUAGE plpgsql STABLE
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_pages bigint := pg_relation_size('executions') / current_setting('block_size')::bigint;
  v_percent real := least(100, 100 * 1000 / greatest(v_pages, 1)::real);
BEGIN
  out_now_ms := v_now_ms;

  SELECT count(*), min(message.since_ms) INTO out_messages, out_oldest_message_ms
  FROM dx_routes_of_messages() AS present
  CROSS JOIN LATERAL (
    SELECT visible.since_ms
    FROM (
      SELECT
        greatest(
          floor(extract(epoch FROM greatest(q.visible_at, q.created_at)) * 1000)::bigint, q.locked_until,
          (SELECT l.locked_until FROM instance_locks AS l WHERE l.instance_id = q.instance_id)
        ) AS since_ms
      FROM orchestrator_queue AS q WHERE q.route = present.route AND q.visible_at <= v_now
      ORDER BY q.visible_at, q.id LIMIT 10 * p_limit::bigint
    ) AS visible
    WHERE visible.since_ms <= v_now_ms
    LIMIT p_limit
  ) AS message
  WHERE present.route <> '' AND NOT starts_with(present.route, '0.') AND NOT starts_with(present.route, '~');

  -- Each condition on the session fits one index only.
  WITH free AS (
    SELECT activity.* FROM dx_routes_of_activities() AS present
    CROSS JOIN LATERAL (
      SELECT visible.*
      FROM (
        SELECT w.tag, w.visible_at, w.created_at, w.locked_until FROM worker_queue AS w
        WHERE w.session_id IS NULL AND w.route = present.route AND w.visible_at <= v_now
        ORDER BY w.visible_at, w.id LIMIT 10 * p_limit::bigint
      ) AS visible
      WHERE visible.locked_until IS NULL OR visible.locked_until <= v_now_ms
      LIMIT p_limit
    ) AS activity
    UNION ALL
    SELECT activity.* FROM dx_routes_of_sessions() AS present
    CROSS JOIN LATERAL (
      SELECT visible.*
      FROM (
        SELECT w.tag, w.visible_at, w.created_at, w.locked_until FROM worker_queue AS w
        WHERE num_nulls(w.session_id) = 0 AND w.route = present.route AND w.visible_at <= v_now
        ORDER BY w.visible_at, w.id LIMIT 10 * p_limit::bigint
      ) AS visible
      WHERE visible.locked_until IS NULL OR visible.locked_until <= v_now_ms
      LIMIT p_limit
    ) AS activity
  ),
  tagged AS (
    SELECT
      dx_tag(free.tag) AS tag, count(*) AS depth,
      min(greatest(
        floor(extract(epoch FROM greatest(free.visible_at, free.created_at)) * 1000)::bigint,
        free.locked_until
      )) AS oldest_ms
    FROM free
    GROUP BY dx_tag(free.tag)
  )
  SELECT COALESCE(json_agg(tagged ORDER BY tagged.tag), '[]') INTO out_activities FROM tagged;

  SELECT round(count(*) * 100 / v_percent) INTO out_active_instances
  FROM executions AS e TABLESAMPLE SYSTEM (v_percent) WHERE e.status = 'Running';

  SELECT count(*)
  INTO out_blocked_instances
  FROM (SELECT FROM dx_present_blocks() LIMIT p_limit) AS blocked;

  SELECT count(*)
  INTO out_limited_activities
  FROM (
    SELECT w.id FROM worker_queue AS w WHERE w.limit_name IS NOT NULL AND w.visible_at = 'infinity'
    ORDER BY w.limit_name LIMIT p_limit
  ) AS limited;

  SELECT count(*)
  INTO out_limited_instances
  FROM (
    SELECT
    FROM (
      SELECT waiting.limit_place FROM dx_parked_instance_routes() AS present
      CROSS JOIN LATERAL (
        SELECT i.limit_place FROM instances AS i
        WHERE (i.status = 'Running') IS TRUE AND i.limit_name = present.limit_name AND i.limit_route = present.route
        LIMIT 10 * p_limit::bigint
      ) AS waiting
      LIMIT 10 * p_limit::bigint
    ) AS parked
    WHERE parked.limit_place >> 20 <= v_now_ms
    LIMIT p_limit
  ) AS limited;

  RETURN NEXT;
END
$$;
