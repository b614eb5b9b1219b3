-- Claims up to p_limit visible activities without a live lock, in the order in which they became visible, and the
-- sessions they need.
--
-- Returns one row per claimed activity. No rows means that there is nothing to claim: an activity or a session that
-- another transaction has locked is skipped in favour of the next one. A row of nulls means that a later look may find
-- more: others have locked all that is left, or the claim has looked behind a mark; with out_next_ms, a look at that
-- time; with out_is_limited, when a slot is freed. An activity with a session needs p_worker_id and is taken only while
-- no other worker owns its session. This worker then owns the session, with a lock of p_session_timeout_ms from now. An
-- activity that was delivered twice and not settled is a suspect (dx_group_of). Without p_takes_over, an expired lock
-- counts as a live one. Before, the claim gives free slots of limits to activities that wait for one
-- (dx_admit_activities).
--
-- The index leads from one route (name and tag) to the next: activities with names, tags and sessions this process does
-- not serve cost nothing, and those that are not visible yet a look ahead (dx_looks_ahead). New sessions are those with
-- the oldest activities.
--
-- Bound: dx_admit_activities; one look per route that has rows, and one per session of the worker and served route. New
-- sessions: 32 per route. Where more exist, the 256 oldest activities per route; 4,096 if these have too few free
-- sessions (4 ms); after that one look per session (7 microseconds). Then at most 10 rounds, each over four times the
-- rows of the one before. Locked rows before the first free one are skipped (0.2 microseconds each). A claim that has
-- met more than 5,000 rows sets a mark (dx_set_mark): the next ones skip the dead rows that an open transaction keeps
-- (1 microsecond each).
--
-- Notifies listeners of activities it has made visible and not claimed. Locks: those of dx_admit_activities; without
-- waiting, worker rows (skip locked), advisory locks of sessions (try), session rows (skip locked).
CREATE OR REPLACE FUNCTION dx_fetch_work_items(
  p_limit integer,                 -- rows, >= 1
  p_lock_timeout_ms bigint,        -- milliseconds, > 0
  p_untagged boolean,              -- whether rows without a tag are taken
  p_tags text[],                   -- tags to take; null means rows of every tag, and p_untagged is true
  p_worker_id text,                -- the owner of new sessions; null takes only rows without a session
  p_session_timeout_ms bigint,     -- milliseconds, > 0; null without p_worker_id
  p_names text[] DEFAULT NULL,     -- activities to take; null: all
  p_suspects integer[] DEFAULT '{64,16,4,1}', -- suspects that may be claimed together, see dx_group_of
  p_max_new_sessions integer DEFAULT NULL, -- sessions the worker may acquire; null: any number
  p_takes_over boolean DEFAULT true, -- whether an activity whose lock has expired may be claimed
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_work_item text,
  out_lock_token text,             -- <row id>.<36 characters of the lock>
  out_attempt_count integer,
  out_is_limited boolean,          -- whether its end frees a slot of a limit; without an activity: one waits for a slot
  out_next_ms bigint
) LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  -- A lock that ended by then may be taken over.
  v_expired_ms bigint := CASE WHEN p_takes_over THEN v_now_ms ELSE 0 END;
  v_secret text := gen_random_uuid()::text;
  v_missing integer := p_limit;
  v_reach integer := p_limit;
  v_routes text[];
  v_session_routes text[];
  -- Sessions to take from: those the worker owns, and free ones up to the limit.
  v_sessions text[] := '{}';
  v_new integer := least(COALESCE(p_max_new_sessions, p_limit), p_limit);
  v_suspects boolean := p_suspects[1] > 0; -- whether to take some; only the first round does
  v_admitted integer := 0;
  v_most integer := 2147483647;
  v_chosen bigint[];
  v_candidates bigint[];
  v_attempts integer[];
  v_ids bigint[];
  v_wanted text[];
  v_won text[] := '{}';
  v_claimed integer;
  v_began timestamptz := clock_timestamp();
  v_key text := concat('worker_queue'::regclass::oid, p_untagged, p_tags, p_names); -- what this claim asks for
  v_mark text[];
  v_from timestamptz := '-infinity';
  -- Index entries read, including those of dead rows; null where the server does not count.
  v_read bigint := pg_stat_get_xact_tuples_returned(to_regclass('worker_queue_route_visible_at_id_idx'));
  v_admission record;
  v_has_admitted boolean := false;
  v_is_held boolean := false;
BEGIN
  IF (
    SELECT w.id FROM worker_queue AS w WHERE w.limit_name IS NOT NULL AND w.visible_at = 'infinity'
    ORDER BY w.limit_name LIMIT 1
  ) IS NOT NULL THEN
    SELECT * INTO v_admission
    FROM dx_admit_activities(p_limit, p_names, p_untagged, p_tags, p_worker_id, v_now_ms) AS admission;
    v_has_admitted := v_admission.out_admitted > 0;
    v_is_held := v_admission.out_is_held;
    out_is_limited := true;
    RETURN NEXT;
    out_is_limited := NULL;
    out_next_ms := v_admission.out_next_ms;
  END IF;

  -- What is admitted may have become visible behind a mark.
  IF p_now_ms IS NULL AND NOT v_has_admitted AND current_setting('duroxide_prisma.worker_queue', true) <> '' THEN
    v_mark := dx_read_mark('duroxide_prisma.worker_queue', v_key, v_now_ms);
  END IF;
  IF v_mark IS NOT NULL THEN
    v_from := to_timestamp(v_mark[1]::float8 / 1000);
    v_routes := v_mark[2:];
  ELSE
    SELECT array_agg(present.route) INTO v_routes FROM dx_routes_of_activities() AS present
    WHERE p_names IS NULL OR dx_is_served(present.route, p_names, p_untagged, p_tags);
  END IF;

  IF p_worker_id IS NOT NULL THEN
    SELECT array_agg(present.route) INTO v_session_routes FROM dx_routes_of_sessions() AS present
    WHERE p_names IS NULL OR dx_is_served(present.route, p_names, p_untagged, p_tags);
  END IF;

  IF v_session_routes IS NOT NULL THEN
    v_sessions := ARRAY(
      SELECT s.session_id FROM sessions AS s
      WHERE s.worker_id = p_worker_id AND s.locked_until > v_now_ms
    );
    IF v_new > 0 THEN
      v_sessions := v_sessions
        || dx_next_sessions(v_session_routes, v_new, p_names, p_untagged, p_tags, v_now, v_now_ms, v_expired_ms);
    END IF;
  END IF;

  FOR v_round IN 1..10 LOOP
    SELECT array_agg(candidate.id), array_agg(candidate.attempt_count) INTO v_candidates, v_attempts
    FROM dx_next_activities(
      v_reach, v_routes, v_from, v_sessions, v_session_routes, v_suspects, p_names, p_untagged, p_tags, v_now,
      v_expired_ms
    ) AS candidate;
    EXIT WHEN v_candidates IS NULL;
    IF 2 <= ANY (v_attempts) THEN
      v_chosen := '{}';
      FOR v_position IN 1..cardinality(v_candidates) LOOP
        IF v_attempts[v_position] >= 2 THEN
          v_most := least(v_most, dx_group_of(v_attempts[v_position], p_suspects));
          CONTINUE WHEN v_admitted >= v_most;
          v_admitted := v_admitted + 1;
        END IF;
        v_chosen := v_chosen || v_candidates[v_position];
      END LOOP;
      v_candidates := v_chosen;
    END IF;

    -- In the order of the candidates, not of the ids: a row of a later round must not displace an older one.
    SELECT array_agg(locked.id), array_agg(DISTINCT locked.session_id) FILTER (WHERE locked.session_id IS NOT NULL)
    INTO v_ids, v_wanted
    FROM (
      SELECT activity.id, activity.session_id
      FROM unnest(v_candidates) AS candidate (id)
      -- Not a plain join: planned while statistics call the queue empty, it would read all of it.
      CROSS JOIN LATERAL (
        SELECT w.id, w.session_id FROM worker_queue AS w
        WHERE w.id = candidate.id
          AND CASE WHEN w.visible_at > v_now THEN false ELSE dx_is_free(w.lock_token, w.locked_until, v_expired_ms) END
        FOR UPDATE SKIP LOCKED
      ) AS activity
      LIMIT v_missing -- in the order of the candidates; no further row is locked
    ) AS locked;

    IF v_wanted IS NOT NULL THEN
      v_won := dx_take_sessions(v_wanted, p_worker_id, p_session_timeout_ms, v_now_ms);
      -- Later rounds leave out those that others own.
      v_sessions := ARRAY(
        SELECT wanted.session_id FROM unnest(v_sessions) AS wanted (session_id)
        WHERE wanted.session_id <> ALL (v_wanted) OR wanted.session_id = ANY (v_won)
      );
    END IF;

    RETURN QUERY
    WITH claimed AS (
      UPDATE worker_queue AS w
      SET lock_token = v_secret, locked_until = v_now_ms + p_lock_timeout_ms,
          attempt_count = w.attempt_count + 1
      WHERE w.id = ANY (v_ids) AND (w.session_id IS NULL OR w.session_id = ANY (v_won))
      RETURNING w.id, w.work_item, w.attempt_count, w.limit_name
    )
    SELECT
      claimed.work_item, claimed.id || '.' || v_secret, claimed.attempt_count, claimed.limit_name IS NOT NULL,
      NULL::bigint
    FROM claimed ORDER BY array_position(v_candidates, claimed.id);
    GET DIAGNOSTICS v_claimed = ROW_COUNT;
    v_missing := v_missing - v_claimed;
    EXIT WHEN v_missing = 0;
    -- Others have locked some.
    v_is_held := v_is_held OR cardinality(v_candidates) > v_claimed;
    -- All candidates were seen, and no other claim took one of them.
    EXIT WHEN cardinality(v_attempts) < v_reach
      AND cardinality(v_attempts) = cardinality(v_candidates)
      AND v_claimed = COALESCE(cardinality(v_ids), 0);
    -- Look past suspects that were refused, or that another claim has locked.
    v_suspects := false;
    v_reach := least(v_reach * 4, 1000000);
  END LOOP;

  IF v_has_admitted AND v_missing > 0 AND p_worker_id IS NOT NULL THEN
    -- Some may be of sessions that others own.
    PERFORM dx_notify('worker_work', ARRAY[v_now]);
  END IF;
  IF out_next_ms IS NOT NULL THEN
    RETURN NEXT;
    out_next_ms := NULL;
  END IF;
  IF v_missing > 0 AND (v_is_held OR v_mark IS NOT NULL) THEN
    RETURN NEXT;
  END IF;

  IF v_missing = p_limit
    AND (p_now_ms IS NOT NULL OR dx_looks_ahead('duroxide_prisma.worker_queue_ahead', v_key, v_now_ms)) THEN
    v_claimed := dx_bring_activities_forward(v_routes, v_session_routes, v_now, v_expired_ms);
    IF v_claimed > 0 THEN
      RETURN QUERY SELECT * FROM dx_fetch_work_items(
        p_limit, p_lock_timeout_ms, p_untagged, p_tags, p_worker_id, p_session_timeout_ms, p_names, p_suspects,
        p_max_new_sessions, p_takes_over, p_now_ms
      );
      PERFORM set_config('duroxide_prisma.worker_queue_ahead', '', false) WHERE v_claimed >= 100; -- may be more
      RETURN;
    END IF;
  END IF;

  IF v_mark IS NULL AND p_now_ms IS NULL
    AND pg_stat_get_xact_tuples_returned(to_regclass('worker_queue_route_visible_at_id_idx')) - v_read > 5000 THEN
    PERFORM dx_set_mark(
      'duroxide_prisma.worker_queue', v_key, v_began, dx_oldest_activity(v_routes, v_now, v_now_ms), v_routes
    );
  END IF;
END
$$;
