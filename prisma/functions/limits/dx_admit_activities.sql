-- Gives slots of limits to activities that wait for one, as far as a claim has use for them: they become visible, and
-- the claim takes them as any other. The first step of dx_fetch_work_items.
--
-- An activity has its slot until its row is deleted, however it ends, by any program. So slots are counted, not
-- kept: a process that dies leaves its rows, which are delivered again and count once.
--
-- The keys of a limit take turns, one activity each, the oldest first; the next claim continues with the key behind the
-- last one. As many are admitted as the caller lacks. So before an activity that may begin comes at most one of each
-- other key that waits, after those that have slots.
--
-- With a rate, an activity takes a token when it is admitted. The token of one that could begin and has not does not
-- come back: several must not begin late at once. Where the next token comes later, a look at that time finds it.
--
-- Activities whose limit was removed are released, 1,000 at a time.
--
-- Bound: the activities of these limits that have slots; 1,000 keys of each, for each the activities of it that have
-- slots, up to its limit. Locks: rows of limits by name (skip locked), then the advisory locks of these limits (try),
-- worker rows (skip locked). Statements that admit at once share the advisory locks (dx_admit_at_once).
CREATE OR REPLACE FUNCTION dx_admit_activities(
  p_limit integer, p_names text[], -- this and the following: as in dx_fetch_work_items
  p_untagged boolean, p_tags text[],
  p_worker_id text,                -- the same
  p_now_ms bigint,
  OUT out_admitted integer,        -- how many can be claimed now
  OUT out_next_ms bigint,          -- when the first token is free that an activity waits for; null without one
  OUT out_is_held boolean          -- whether a later claim may admit more although nothing happens before
) LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_last_id CONSTANT bigint := 9223372036854775807;
  v_name text;
  v_routes text[];
  v_limit limits;
  v_key limit_keys;
  v_next record;
  -- The place in the round: behind the activity with this key and id.
  v_at_key text;
  v_at_id bigint;
  v_visits integer;
  v_has_admitted boolean;
  v_room bigint;                   -- how many more the claim has use for
  v_slots bigint;                  -- how many more all keys together may have; null: any number
  v_not_begun bigint;              -- how many have a slot, and wait for a claim
  v_next_ms bigint;
  v_token_ms double precision;     -- when the next token is free; null without a rate
BEGIN
  out_admitted := 0;
  out_is_held := false;

  FOR v_name, v_routes IN
    SELECT parked.limit_name, array_agg(parked.route) FROM dx_parked_activity_routes() AS parked
    WHERE p_names IS NULL OR dx_is_served(parked.route, p_names, p_untagged, p_tags)
    GROUP BY parked.limit_name
    ORDER BY parked.limit_name COLLATE "C"
  LOOP
    SELECT l.* INTO v_limit FROM limits AS l WHERE l.kind = 'activity' AND l.name = v_name
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND AND (SELECT l.name FROM limits AS l WHERE l.kind = 'activity' AND l.name = v_name) IS NULL THEN
      UPDATE worker_queue AS w SET visible_at = least(w.created_at, v_now), limit_name = NULL
      WHERE w.id = ANY (ARRAY(
        SELECT parked.id FROM worker_queue AS parked
        WHERE parked.limit_name IS NOT NULL AND parked.visible_at = 'infinity' AND parked.limit_name = v_name
        ORDER BY parked.route, parked.limit_key, parked.id LIMIT 1000
        FOR UPDATE SKIP LOCKED
      ));
      out_admitted := out_admitted + 1;
      out_is_held := true;
      CONTINUE;
    END IF;
    IF v_limit.name IS NULL OR NOT pg_try_advisory_xact_lock(dx_limit_lock('activity', v_name)) THEN
      out_is_held := true;
      CONTINUE;
    END IF;

    SELECT
      p_limit - count(*) FILTER (
        WHERE w.visible_at <= v_now
          AND dx_is_free(w.lock_token, w.locked_until, p_now_ms)
          AND (w.session_id IS NULL OR dx_may_take_session(w.session_id, p_worker_id, p_now_ms))
          AND dx_is_taken(w.route, w.tag, p_names, p_untagged, p_tags)
      ),
      v_limit.concurrency - count(*),
      count(*) FILTER (
        WHERE w.attempt_count = 0 AND w.visible_at <= v_now AND dx_is_free(w.lock_token, w.locked_until, p_now_ms)
      )
    INTO v_room, v_slots, v_not_begun
    FROM worker_queue AS w WHERE w.limit_name IS NOT NULL AND w.limit_name = v_name AND w.visible_at < 'infinity';

    v_limit.free_ms := greatest(
      dx_tokens_back_ms(v_limit.free_ms, v_limit.rate, v_limit.rate_ms, v_limit.burst, p_now_ms),
      p_now_ms + least(v_not_begun, v_limit.burst) * v_limit.rate_ms::float8 / v_limit.rate
    );
    v_next_ms := NULL;
    v_at_key := v_limit.last_key;
    v_at_id := v_last_id;
    v_visits := 0;
    v_has_admitted := true;
    WHILE v_room > 0 AND COALESCE(v_slots, 1) > 0 LOOP
      IF v_visits = 1000 THEN
        out_is_held := true;
        EXIT;
      END IF;
      SELECT waiting.* INTO v_next FROM unnest(v_routes) AS own (route)
      CROSS JOIN LATERAL (
        SELECT w.limit_key, w.id FROM worker_queue AS w
        WHERE w.limit_name IS NOT NULL
          AND w.visible_at = 'infinity'
          AND w.limit_name = v_name
          AND w.route = own.route
          AND (w.limit_key, w.id) > (v_at_key, v_at_id)
          AND (w.session_id IS NULL OR dx_may_take_session(w.session_id, p_worker_id, p_now_ms))
          AND dx_is_taken(w.route, w.tag, p_names, p_untagged, p_tags)
        ORDER BY w.limit_key, w.id LIMIT 1
      ) AS waiting
      ORDER BY waiting.limit_key, waiting.id LIMIT 1;
      IF NOT FOUND THEN
        -- The round begins again, unless none in it could be admitted.
        EXIT WHEN NOT v_has_admitted;
        v_has_admitted := false;
        v_at_key := '';
        v_at_id := 0;
        CONTINUE;
      END IF;
      v_at_key := v_next.limit_key;
      v_at_id := v_last_id;
      v_visits := v_visits + 1;

      v_key := dx_limit_key(v_limit, v_at_key);
      v_token_ms := dx_next_token_ms(v_limit.free_ms, v_limit.rate, v_limit.rate_ms, v_limit.burst);
      IF v_token_ms > p_now_ms THEN
        v_next_ms := least(v_next_ms, ceil(v_token_ms)::bigint);
        EXIT;
      END IF;
      -- Its turn: now, or if its own bound holds it back, in the next round.
      v_limit.last_key := v_at_key;
      CONTINUE WHEN v_key.concurrency <= (
        SELECT count(*)
        FROM (
          SELECT FROM worker_queue AS w
          WHERE w.limit_name IS NOT NULL
            AND w.visible_at < 'infinity'
            AND w.limit_name = v_name
            AND w.limit_key = v_at_key
          LIMIT v_key.concurrency
        ) AS admitted
      );
      IF v_key.rate IS NOT NULL THEN
        v_key.free_ms := greatest(
          dx_tokens_back_ms(v_key.free_ms, v_key.rate, v_key.rate_ms, v_key.burst, p_now_ms),
          p_now_ms + v_key.rate_ms::float8 / v_key.rate * (
            SELECT count(*)
            FROM (
              SELECT FROM worker_queue AS w
              WHERE w.limit_name IS NOT NULL
                AND w.visible_at < 'infinity'
                AND w.limit_name = v_name
                AND w.limit_key = v_at_key
                AND w.attempt_count = 0
                AND w.visible_at <= v_now
                AND dx_is_free(w.lock_token, w.locked_until, p_now_ms)
              LIMIT v_key.burst
            ) AS not_begun
          )
        );
        v_token_ms := dx_next_token_ms(v_key.free_ms, v_key.rate, v_key.rate_ms, v_key.burst);
        IF v_token_ms > p_now_ms THEN
          v_next_ms := least(v_next_ms, ceil(v_token_ms)::bigint);
          CONTINUE;
        END IF;
      END IF;

      -- Among other activities its age counts.
      UPDATE worker_queue AS w SET visible_at = least(w.created_at, v_now)
      WHERE w.id = (
        SELECT parked.id FROM worker_queue AS parked
        WHERE parked.id = v_next.id AND parked.visible_at = 'infinity'
        FOR UPDATE SKIP LOCKED
      );
      IF NOT FOUND THEN
        out_is_held := true;
        CONTINUE;
      END IF;

      v_has_admitted := true;
      v_slots := v_slots - 1;
      v_room := v_room - 1;
      out_admitted := out_admitted + 1;
      v_limit.free_ms := v_limit.free_ms + v_limit.rate_ms::float8 / v_limit.rate;
      IF v_key.rate IS NOT NULL THEN
        INSERT INTO limit_keys (kind, name, key, is_own, free_ms)
        VALUES ('activity', v_name, v_at_key, false, v_key.free_ms + v_key.rate_ms::float8 / v_key.rate)
        ON CONFLICT (kind, name, key) DO UPDATE SET free_ms = EXCLUDED.free_ms;
      END IF;
    END LOOP;

    IF v_visits > 0 THEN
      UPDATE limits AS l
      SET last_key = v_limit.last_key, free_ms = COALESCE(v_limit.free_ms, 0), next_ms = v_next_ms
      WHERE l.kind = 'activity' AND l.name = v_name;
      out_next_ms := least(out_next_ms, v_next_ms);
      PERFORM dx_clean_limit_keys(v_limit, p_now_ms);
    END IF;
  END LOOP;
END
$$;
