-- Claims up to p_limit visible activities that carry no live lock, smallest row id first, and the sessions they need.
--
-- Returns one row per claimed activity; no rows means that there is none to take: an activity or a session that
-- another transaction is about to claim is passed over for the next one. An activity with a session is taken only with
-- p_session_owner, and only while its session is not another owner's; the session is the owner's then, its lease
-- p_session_timeout_ms from now. Behind more than 200 activities whose time has not come, the order is by the time they
-- became visible instead, so that a claim need not walk through them.
--
-- Bound: at most 10 rounds, each looking at four times as many rows as the one before; claimed rows and rows of busy
-- sessions that lie before the first free one are looked at in passing (0.2 microseconds each).
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
  v_many_delayed boolean;
  v_candidates bigint[];
  v_ids bigint[];
  v_wanted text[];
  v_session text;
  v_busy text[];
  v_won text[] := '{}';
  v_lost text[] := '{}';
  v_claimed integer;
BEGIN
  SELECT count(*) > 200
  INTO v_many_delayed
  FROM (
    SELECT
    FROM worker_queue AS w
    WHERE w.visible_at > v_now
    ORDER BY w.visible_at
    LIMIT 201
  ) AS delayed;

  -- CASE and BETWEEN below leave the planner one index each. With conditions it can use elsewhere, it may read all
  -- visible rows and sort them, or look for a rare tag in the order of ids, as its statistics are.
  FOR v_round IN 1..10 LOOP
    IF v_many_delayed THEN
      v_candidates := ARRAY(
        SELECT w.id
        FROM worker_queue AS w
        WHERE w.visible_at <= v_now
          AND (w.lock_token IS NULL OR w.locked_until <= v_now_ms)
          AND CASE WHEN w.tag IS NULL THEN p_untagged ELSE p_tags IS NULL OR w.tag = ANY (p_tags) END
        ORDER BY w.visible_at, w.id
        LIMIT v_reach
      );
    ELSIF p_tags IS NULL THEN
      v_candidates := ARRAY(
        SELECT w.id
        FROM worker_queue AS w
        WHERE CASE
          WHEN w.visible_at > v_now THEN false
          ELSE w.lock_token IS NULL OR w.locked_until <= v_now_ms
        END
        ORDER BY w.id
        LIMIT v_reach
      );
    ELSE
      -- Each accepted tag by its own range of the index: rows of other tags are never met.
      v_candidates := ARRAY(
        SELECT tagged.id
        FROM (
          (
            SELECT w.id
            FROM worker_queue AS w
            WHERE p_untagged
              AND w.tag IS NULL
              AND CASE
                WHEN w.visible_at > v_now THEN false
                ELSE w.lock_token IS NULL OR w.locked_until <= v_now_ms
              END
            ORDER BY w.tag, w.id
            LIMIT v_reach
          )
          UNION ALL
          SELECT one.id
          FROM unnest(p_tags) AS accepted (tag)
          CROSS JOIN LATERAL (
            SELECT w.id
            FROM worker_queue AS w
            WHERE w.tag BETWEEN accepted.tag AND accepted.tag
              AND CASE
                WHEN w.visible_at > v_now THEN false
                ELSE w.lock_token IS NULL OR w.locked_until <= v_now_ms
              END
            ORDER BY w.tag, w.id
            LIMIT v_reach
          ) AS one
        ) AS tagged
        ORDER BY tagged.id
        LIMIT v_reach
      );
    END IF;
    EXIT WHEN v_candidates = '{}';

    SELECT array_agg(locked.id), array_agg(DISTINCT locked.session_id) FILTER (WHERE locked.session_id IS NOT NULL)
    INTO v_ids, v_wanted
    FROM (
      SELECT w.id, w.session_id
      FROM worker_queue AS w
      WHERE w.id = ANY (v_candidates)
        AND CASE
          WHEN w.visible_at > v_now THEN false
          ELSE w.lock_token IS NULL OR w.locked_until <= v_now_ms
        END
        AND CASE
          WHEN w.session_id IS NULL THEN true
          WHEN p_session_owner IS NULL OR w.session_id = ANY (v_lost) THEN false
          -- Not EXISTS: below CASE it may be planned as one read of the whole table.
          ELSE (
            SELECT s.session_id
            FROM sessions AS s
            WHERE s.session_id = w.session_id
              AND s.locked_until > v_now_ms
              AND s.worker_id <> p_session_owner
          ) IS NULL
        END
      ORDER BY w.id
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
      -- Ours already, only its row is busy: an ack or a renewal of ours stamps it. Nobody can take it from us.
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
    ORDER BY claimed.id;
    GET DIAGNOSTICS v_claimed = ROW_COUNT;
    v_missing := v_missing - v_claimed;
    EXIT WHEN v_missing = 0;
    -- All candidates there are were looked at, and none lost to another owner of its session.
    EXIT WHEN cardinality(v_candidates) < v_reach AND v_claimed = COALESCE(cardinality(v_ids), 0);
    v_reach := least(v_reach * 4, 1000000);
  END LOOP;
END
$$;
