-- Claims up to p_limit visible activities that carry no live lock, the one visible longest first, and the sessions they
-- need.
--
-- Returns one row per claimed activity; no rows means that there is none to take: an activity or a session that
-- another transaction is about to claim is passed over for the next one. An activity with a session is taken only with
-- p_session_owner, and only while its session is not another owner's; the session is the owner's then, its lock
-- p_session_timeout_ms from now. An activity that was delivered twice without an end is a suspect, and is claimed alone.
--
-- The index leads from one route (name and tag) to the next, and within a route from one session to the next: activities
-- of names, tags and sessions this process does not serve, and activities whose time has not come, cost nothing.
--
-- Bound: one look per route that has rows, and per session of a route that is served; at most 10 rounds, each looking at
-- four times as many rows as the one before. Locked rows before the first free one are looked at in passing (0.2
-- microseconds each).
--
-- Locks: worker rows (skip locked), then advisory locks of sessions (try), then session rows (skip locked). Nothing
-- waits.
CREATE OR REPLACE FUNCTION dx_fetch_work_items(
  p_limit integer,                 -- rows, >= 1
  p_lock_timeout_ms bigint,        -- milliseconds, > 0
  p_untagged boolean,              -- whether rows without a tag are taken
  p_tags text[],                   -- tags to take; null means rows of every tag, and p_untagged is true
  p_session_owner text,            -- null takes only rows without a session
  p_session_timeout_ms bigint,     -- milliseconds, > 0; null without an owner
  p_names text[] DEFAULT NULL,     -- activities to take; null: all
  p_suspects boolean DEFAULT true, -- whether a suspect may be claimed
  p_max_new_sessions integer DEFAULT NULL, -- sessions that may become the owner's; null: any number
  p_now_ms bigint DEFAULT NULL     -- milliseconds since the Unix epoch; null means the database's clock
)
RETURNS TABLE (
  out_work_item text,
  out_lock_token text,             -- <row id>.<36 characters of the lock>
  out_attempt_count integer
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_secret text := gen_random_uuid()::text;
  v_missing integer := p_limit;
  v_reach integer := p_limit;
  v_routes text[];
  -- Sessions that may be taken: the owner's, and free ones up to their limit.
  v_sessions text[] := '{}';
  v_session_routes text[] := '{}';
  v_suspects boolean := p_suspects;
  v_candidates bigint[];
  v_attempts integer[];
  v_ids bigint[];
  v_wanted text[];
  v_session text;
  v_busy text[];
  v_won text[] := '{}';
  v_lost text[] := '{}';
  v_claimed integer;
BEGIN
  WITH RECURSIVE present AS (
    (
      SELECT w.route
      FROM worker_queue AS w
      WHERE w.session_id IS NULL
      ORDER BY w.route
      LIMIT 1
    )
    UNION ALL
    SELECT (
      SELECT w.route
      FROM worker_queue AS w
      WHERE w.session_id IS NULL
        AND w.route > present.route
      ORDER BY w.route
      LIMIT 1
    )
    FROM present
    WHERE present.route IS NOT NULL
  )
  SELECT array_agg(present.route)
  INTO v_routes
  FROM present
  WHERE present.route IS NOT NULL
    AND (p_names IS NULL OR dx_is_served(present.route, p_names, p_untagged, p_tags));

  IF p_session_owner IS NOT NULL THEN
    WITH RECURSIVE present AS (
      (
        SELECT w.route, w.session_id
        FROM worker_queue AS w
        WHERE w.session_id IS NOT NULL
        ORDER BY w.route, w.session_id
        LIMIT 1
      )
      UNION ALL
      SELECT next.route, next.session_id
      FROM present
      CROSS JOIN LATERAL (
        SELECT p_names IS NULL OR dx_is_served(present.route, p_names, p_untagged, p_tags) AS served
      ) AS program
      CROSS JOIN LATERAL (
        (
          SELECT w.route, w.session_id
          FROM worker_queue AS w
          WHERE program.served
            AND w.session_id IS NOT NULL
            AND (w.route, w.session_id) > (present.route, present.session_id)
          ORDER BY w.route, w.session_id
          LIMIT 1
        )
        UNION ALL
        (
          SELECT w.route, w.session_id
          FROM worker_queue AS w
          WHERE NOT program.served
            AND w.session_id IS NOT NULL
            AND w.route > present.route
          ORDER BY w.route, w.session_id
          LIMIT 1
        )
      ) AS next
    ),
    first AS (
      SELECT present.route, present.session_id, one.visible_at, one.id, owned.session_id IS NOT NULL AS is_ours
      FROM present
      LEFT JOIN LATERAL (
        SELECT s.session_id
        FROM sessions AS s
        WHERE s.session_id = present.session_id
          AND s.locked_until > v_now_ms
          AND s.worker_id = p_session_owner
      ) AS owned ON true
      CROSS JOIN LATERAL (
        SELECT w.visible_at, w.id
        FROM worker_queue AS w
        WHERE w.route = present.route
          AND w.session_id = present.session_id
          AND w.visible_at <= v_now
          AND (w.lock_token IS NULL OR w.locked_until <= v_now_ms)
          AND CASE WHEN w.tag IS NULL THEN p_untagged ELSE p_tags IS NULL OR w.tag = ANY (p_tags) END
          -- A name may end as another one's tag does.
          AND (p_names IS NULL OR left(w.route, length(w.route) - COALESCE(length(w.tag) + 2, 0)) = ANY (p_names))
        ORDER BY w.visible_at, w.id
        LIMIT 1
      ) AS one
      WHERE (p_names IS NULL OR dx_is_served(present.route, p_names, p_untagged, p_tags))
        -- Not EXISTS: below OR it may be planned as one read of the whole table.
        AND (
          SELECT s.session_id
          FROM sessions AS s
          WHERE s.session_id = present.session_id
            AND s.locked_until > v_now_ms
            AND s.worker_id <> p_session_owner
        ) IS NULL
    ),
    ranked AS (
      SELECT
        first.route,
        first.session_id,
        first.is_ours,
        dense_rank() OVER (PARTITION BY first.is_ours ORDER BY earliest.visible_at, earliest.id) AS rank
      FROM first
      JOIN (
        SELECT DISTINCT ON (one.session_id) one.session_id, one.visible_at, one.id
        FROM first AS one
        ORDER BY one.session_id, one.visible_at, one.id
      ) AS earliest ON earliest.session_id = first.session_id
    )
    SELECT COALESCE(array_agg(ranked.session_id), '{}'), COALESCE(array_agg(ranked.route), '{}')
    INTO v_sessions, v_session_routes
    FROM ranked
    WHERE ranked.is_ours
      OR ranked.rank <= COALESCE(p_max_new_sessions, p_limit);
  END IF;

  FOR v_round IN 1..10 LOOP
    SELECT array_agg(candidate.id), array_agg(candidate.attempt_count)
    INTO v_candidates, v_attempts
    FROM (
      SELECT one.id, one.attempt_count
      FROM (
        SELECT free.*
        FROM unnest(v_routes) AS wanted (route)
        CROSS JOIN LATERAL (
          SELECT w.id, w.visible_at, w.attempt_count
          FROM worker_queue AS w
          WHERE w.session_id IS NULL
            AND w.route = wanted.route
            AND w.visible_at <= v_now
            AND (w.lock_token IS NULL OR w.locked_until <= v_now_ms)
            AND (v_suspects OR w.attempt_count < 2)
            AND CASE WHEN w.tag IS NULL THEN p_untagged ELSE p_tags IS NULL OR w.tag = ANY (p_tags) END
            -- A name may end as another one's tag does.
            AND (p_names IS NULL OR left(w.route, length(w.route) - COALESCE(length(w.tag) + 2, 0)) = ANY (p_names))
          ORDER BY w.visible_at, w.id
          LIMIT v_reach
        ) AS free
        UNION ALL
        SELECT bound.*
        FROM unnest(v_sessions, v_session_routes) AS wanted (session_id, route)
        CROSS JOIN LATERAL (
          SELECT w.id, w.visible_at, w.attempt_count
          FROM worker_queue AS w
          WHERE w.session_id IS NOT NULL
            AND w.route = wanted.route
            AND w.session_id = wanted.session_id
            AND w.visible_at <= v_now
            AND (w.lock_token IS NULL OR w.locked_until <= v_now_ms)
            AND (v_suspects OR w.attempt_count < 2)
            AND CASE WHEN w.tag IS NULL THEN p_untagged ELSE p_tags IS NULL OR w.tag = ANY (p_tags) END
            -- A name may end as another one's tag does.
            AND (p_names IS NULL OR left(w.route, length(w.route) - COALESCE(length(w.tag) + 2, 0)) = ANY (p_names))
          ORDER BY w.visible_at, w.id
          LIMIT v_reach
        ) AS bound
        WHERE wanted.session_id <> ALL (v_lost)
      ) AS one
      ORDER BY one.visible_at, one.id
      LIMIT v_reach
    ) AS candidate;
    EXIT WHEN v_candidates IS NULL;
    IF v_suspects AND v_attempts[1] >= 2 AND v_missing = p_limit THEN
      v_candidates := v_candidates[1:1];
    ELSE
      v_candidates := ARRAY(
        SELECT one.id
        FROM unnest(v_candidates, v_attempts) AS one (id, attempt_count)
        WHERE one.attempt_count < 2
      );
    END IF;

    -- In the order of the candidates, not of the ids: a later round must not take an older row's place.
    SELECT array_agg(locked.id), array_agg(DISTINCT locked.session_id) FILTER (WHERE locked.session_id IS NOT NULL)
    INTO v_ids, v_wanted
    FROM (
      SELECT w.id, w.session_id
      FROM unnest(v_candidates) WITH ORDINALITY AS candidate (id, position)
      JOIN worker_queue AS w ON w.id = candidate.id
      WHERE CASE
          WHEN w.visible_at > v_now THEN false
          ELSE w.lock_token IS NULL OR w.locked_until <= v_now_ms
        END
      ORDER BY candidate.position
      LIMIT v_missing
      FOR UPDATE OF w SKIP LOCKED
    ) AS locked;

    IF v_wanted IS NOT NULL THEN
      v_busy := '{}';
      FOREACH v_session IN ARRAY v_wanted LOOP
        IF NOT pg_try_advisory_xact_lock(hashtext('session ' || v_session)) THEN
          v_busy := v_busy || v_session;
        END IF;
      END LOOP;
      WITH locked AS (
        SELECT s.session_id
        FROM sessions AS s
        WHERE s.session_id = ANY (v_wanted)
          AND s.session_id <> ALL (v_busy)
          AND (s.locked_until <= v_now_ms OR s.worker_id = p_session_owner)
        ORDER BY s.session_id COLLATE "C"
        FOR UPDATE SKIP LOCKED
      ),
      refreshed AS (
        UPDATE sessions AS s
        SET worker_id = p_session_owner,
            locked_until = v_now_ms + p_session_timeout_ms,
            last_activity_at = v_now_ms
        FROM locked
        WHERE s.session_id = locked.session_id
        RETURNING s.session_id
      ),
      created AS (
        INSERT INTO sessions (session_id, worker_id, locked_until, last_activity_at)
        SELECT wanted.session_id, p_session_owner, v_now_ms + p_session_timeout_ms, v_now_ms
        FROM unnest(v_wanted) AS wanted (session_id)
        WHERE wanted.session_id <> ALL (v_busy)
          AND NOT EXISTS (
            SELECT FROM sessions AS s
            WHERE s.session_id = wanted.session_id
          )
        ORDER BY wanted.session_id COLLATE "C"
        ON CONFLICT (session_id) DO NOTHING
        RETURNING session_id
      ),
      -- Ours already, only its row is busy: an ack or a renewal of ours stamps it. No other owner can take it from us.
      kept AS (
        SELECT s.session_id
        FROM sessions AS s
        WHERE s.session_id = ANY (v_wanted)
          AND s.worker_id = p_session_owner
          AND s.locked_until > v_now_ms
      )
      SELECT COALESCE(array_agg(one.session_id), '{}')
      INTO v_won
      FROM (
        SELECT refreshed.session_id FROM refreshed
        UNION
        SELECT created.session_id FROM created
        UNION
        SELECT kept.session_id FROM kept
      ) AS one;
      v_lost := v_lost || ARRAY(
        SELECT wanted.session_id
        FROM unnest(v_wanted) AS wanted (session_id)
        WHERE wanted.session_id <> ALL (v_won)
      );
    END IF;

    RETURN QUERY
    WITH claimed AS (
      UPDATE worker_queue AS w
      SET lock_token = v_secret,
          locked_until = v_now_ms + p_lock_timeout_ms,
          attempt_count = w.attempt_count + 1
      WHERE w.id = ANY (v_ids)
        AND (w.session_id IS NULL OR w.session_id = ANY (v_won))
      RETURNING w.id, w.work_item, w.attempt_count
    )
    SELECT claimed.work_item, claimed.id || '.' || v_secret, claimed.attempt_count
    FROM claimed
    ORDER BY array_position(v_candidates, claimed.id);
    GET DIAGNOSTICS v_claimed = ROW_COUNT;
    v_missing := v_missing - v_claimed;
    EXIT WHEN v_missing = 0 OR (v_claimed > 0 AND v_suspects AND v_attempts[1] >= 2);
    -- Every candidate was looked at, and none lost to another claim.
    EXIT WHEN cardinality(v_attempts) < v_reach
      AND cardinality(v_attempts) = cardinality(v_candidates)
      AND v_claimed = COALESCE(cardinality(v_ids), 0);
    -- A suspect that another claim has, or that is not first, is not waited for.
    v_suspects := false;
    v_reach := least(v_reach * 4, 1000000);
  END LOOP;
END
$$;
