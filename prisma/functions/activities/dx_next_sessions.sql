-- Returns up to p_most sessions that no worker owns and that have an activity which can be claimed, those with the
-- oldest ones first. A part of dx_fetch_work_items, which says how much it reads. Locks: none.
CREATE OR REPLACE FUNCTION dx_next_sessions(
  p_routes text[],                 -- of activities with a session
  p_most integer,
  p_names text[],                  -- this and the following: as in dx_fetch_work_items
  p_untagged boolean, p_tags text[], p_now timestamptz,
  p_now_ms bigint,                 -- the same time
  p_expired_ms bigint              -- a lock that ended by then may be taken over
) RETURNS text[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_free text[];
  v_is_cut boolean;
  v_depth integer;
BEGIN
  -- With few sessions the order is exact. Else the sessions of the oldest activities; if other workers own these or
  -- they are delayed, one session after another.
  FOREACH v_depth IN ARRAY ARRAY[32, 256, 4096, 2147483647] LOOP
    IF v_depth IN (256, 4096) THEN
      SELECT
        COALESCE(array_agg(old.session_id) FILTER (WHERE old.is_free), '{}'),
        COALESCE(bool_or(old.is_cut), false)
      INTO v_free, v_is_cut
      FROM (
        SELECT
          met.session_id, bool_or(met.is_cut) AS is_cut,
          (
            SELECT s.session_id FROM sessions AS s
            WHERE s.session_id = met.session_id AND s.locked_until > p_now_ms
          ) IS NULL AS is_free
        FROM (
          SELECT activity.*, count(*) OVER (PARTITION BY wanted.route) >= v_depth AS is_cut
          FROM unnest(p_routes) AS wanted (route)
          CROSS JOIN LATERAL (
            SELECT w.session_id, w.visible_at, w.id FROM worker_queue AS w
            WHERE num_nulls(w.session_id) = 0
              AND w.route = wanted.route
              AND w.visible_at <= p_now
              AND dx_is_free(w.lock_token, w.locked_until, p_expired_ms)
              AND dx_is_taken(w.route, w.tag, p_names, p_untagged, p_tags)
            ORDER BY w.visible_at, w.id LIMIT v_depth
          ) AS activity
        ) AS met
        GROUP BY met.session_id ORDER BY min(met.visible_at), min(met.id)
      ) AS old;
      EXIT WHEN NOT v_is_cut OR cardinality(v_free) >= p_most;
      CONTINUE;
    END IF;
    WITH RECURSIVE present AS (
      SELECT wanted.route, next.session_id, 1 AS position FROM unnest(p_routes) AS wanted (route)
      CROSS JOIN LATERAL (
        SELECT w.session_id FROM worker_queue AS w
        WHERE w.session_id IS NOT NULL AND (w.route, w.session_id) >= (wanted.route, '')
        ORDER BY w.route, w.session_id LIMIT 1
      ) AS next
      UNION ALL
      -- By route and session: an index on sessions alone would give this order as well, but read the rows of all
      -- routes.
      SELECT present.route, next.session_id, present.position + 1 FROM present
      CROSS JOIN LATERAL (
        SELECT w.route, w.session_id FROM worker_queue AS w
        WHERE w.session_id IS NOT NULL AND (w.route, w.session_id) > (present.route, present.session_id)
        ORDER BY w.route, w.session_id LIMIT 1
      ) AS next
      WHERE present.position < v_depth AND next.route = present.route
    )
    SELECT
      COALESCE(array_agg(found.session_id ORDER BY found.visible_at, found.id) FILTER (WHERE found.id IS NOT NULL), '{}'),
      COALESCE(max(found.position) >= v_depth, false)
    INTO v_free, v_is_cut
    FROM (
      SELECT
        present.session_id, max(present.position) AS position, min(first.visible_at) AS visible_at,
        min(first.id) AS id
      FROM present
      LEFT JOIN LATERAL (
        SELECT w.visible_at, w.id FROM worker_queue AS w
        WHERE w.session_id IS NOT NULL
          AND w.route = present.route
          AND w.session_id = present.session_id
          AND w.visible_at <= p_now
          AND dx_is_free(w.lock_token, w.locked_until, p_expired_ms)
          AND dx_is_taken(w.route, w.tag, p_names, p_untagged, p_tags)
          AND (
            SELECT s.session_id FROM sessions AS s
            WHERE s.session_id = present.session_id AND s.locked_until > p_now_ms
          ) IS NULL
        ORDER BY w.visible_at, w.id LIMIT 1
      ) AS first ON true
      GROUP BY present.session_id
    ) AS found;
    EXIT WHEN NOT v_is_cut;
  END LOOP;
  RETURN v_free[1:p_most];
END
$$;
