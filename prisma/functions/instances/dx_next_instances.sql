-- Returns the instances of the next p_most visible messages of these routes, ordered by their oldest one: its place in
-- the scan and its route; how many of the messages are theirs; whether no live lock holds the instance, and if so its
-- own route.
-- Bound: p_most messages per route, and one look at the lock and the row of each instance. Locks: none.
CREATE OR REPLACE FUNCTION dx_next_instances(
  p_routes text[],
  p_after_at timestamptz,          -- the scan begins behind this message
  p_after_id bigint,
  p_crowded text[],                -- instances to leave out
  p_most integer,
  p_takes_over boolean,            -- as in dx_fetch_orchestration_items
  p_now timestamptz, p_now_ms bigint
) RETURNS TABLE (
  instance_id text, messages bigint, visible_at timestamptz, id bigint, attempt_count integer, route text,
  free boolean, instance_route text
) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  WITH message AS MATERIALIZED (
    SELECT visible.instance_id, visible.visible_at, visible.id, visible.attempt_count, wanted.route
    FROM unnest(p_routes) AS wanted (route)
    CROSS JOIN LATERAL (
      SELECT q.instance_id, q.visible_at, q.id, q.attempt_count FROM orchestrator_queue AS q
      WHERE q.route = wanted.route
        AND q.visible_at <= p_now
        AND (q.visible_at, q.id) > (p_after_at, p_after_id)
        AND q.instance_id <> ALL (p_crowded)
      ORDER BY q.visible_at, q.id LIMIT p_most
    ) AS visible
    ORDER BY visible.visible_at, visible.id LIMIT p_most
  ),
  numbered AS (SELECT message.*, row_number() OVER () AS position FROM message)
  SELECT
    looked.*,
    CASE
      WHEN looked.free THEN (SELECT i.route FROM instances AS i WHERE i.instance_id = looked.instance_id)
    END
  FROM (
    SELECT
      met.instance_id, met.messages, met.visible_at, met.first[2], met.first[3]::integer, met.route,
      (
        SELECT l.instance_id FROM instance_locks AS l
        WHERE l.instance_id = met.instance_id
          AND (l.locked_until > p_now_ms OR NOT (p_takes_over OR l.lock_token = ''))
      ) IS NULL AS free
    FROM (
      SELECT
        numbered.instance_id, count(*) AS messages, min(numbered.visible_at) AS visible_at,
        min(ARRAY[numbered.position, numbered.id, numbered.attempt_count]) AS first,
        -- Messages that arrived before a start have no route.
        max(numbered.route) AS route
      FROM numbered
      GROUP BY numbered.instance_id
    ) AS met
    ORDER BY met.first
  ) AS looked
$$;
