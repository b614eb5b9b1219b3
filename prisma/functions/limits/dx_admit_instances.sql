-- Gives slots of limits to instances that wait for one, as far as a claim has use for them: they get the route on which
-- claims take them. A part of dx_fetch_orchestration_items. As dx_admit_activities, which says why keys take turns.
--
-- An instance has its slot until it is not Running, or its row is deleted, by any program. So slots are counted, not
-- kept: a process that dies leaves its instances, which continue elsewhere and count once.
--
-- With a rate, an instance takes a token with its slot. Instances whose limit was removed are released, 1,000 at a
-- time.
--
-- Bound: the instances of these limits that have slots; 1,000 keys of each, for each the instances of it that have
-- slots, up to its limit, and those that wait and are paused; their queued messages. Locks: rows of limits by name
-- (skip locked), then the advisory locks of these limits (try), instances (skip locked), their messages. Statements
-- that admit at once share the advisory locks (dx_admit_at_once).
CREATE OR REPLACE FUNCTION dx_admit_instances(
  p_limit integer,                 -- as in dx_fetch_orchestration_items
  p_routes text[],                 -- on which the caller takes instances
  p_now_ms bigint,
  OUT out_routes text[],           -- of those that were admitted; null without any
  OUT out_next_ms bigint,          -- when the first token is free that an instance waits for; null without one
  OUT out_is_held boolean          -- whether a later claim may admit more although nothing happens before
) LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_name text;
  v_routes text[];
  v_limit limits;
  v_key limit_keys;
  v_next record;
  -- The place in the round: behind the instance of this key at this place.
  v_at_key text;
  v_at_place bigint;
  v_last_place CONSTANT bigint := 9223372036854775807;
  v_due CONSTANT bigint := dx_limit_place(p_now_ms, 1048575);
  v_visits integer;
  v_has_admitted boolean;
  v_room bigint;                   -- how many more the claim has use for
  v_slots bigint;                  -- how many more all keys together may have; null: any number
  v_next_ms bigint;
  v_token_ms double precision;     -- when the next token is free; null without a rate
  v_ids text[];
BEGIN
  out_is_held := false;
  FOR v_name, v_routes IN
    SELECT parked.limit_name, array_agg(parked.route) FROM dx_parked_instance_routes() AS parked
    WHERE parked.route = ANY (p_routes)
    GROUP BY parked.limit_name
    ORDER BY parked.limit_name COLLATE "C"
  LOOP
    SELECT l.* INTO v_limit FROM limits AS l WHERE l.kind = 'orchestration' AND l.name = v_name
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND AND (SELECT l.name FROM limits AS l WHERE l.kind = 'orchestration' AND l.name = v_name) IS NULL THEN
      v_ids := ARRAY(
        SELECT i.instance_id FROM instances AS i
        WHERE (i.status = 'Running') IS TRUE AND i.limit_name = v_name AND i.limit_route = ANY (v_routes)
        LIMIT 1000
        FOR UPDATE SKIP LOCKED
      );
      PERFORM dx_unpark_instances(v_ids, false);
      out_routes := out_routes || v_routes;
      out_is_held := true;
      CONTINUE;
    END IF;
    IF v_limit.name IS NULL OR NOT pg_try_advisory_xact_lock(dx_limit_lock('orchestration', v_name)) THEN
      out_is_held := true;
      CONTINUE;
    END IF;

    v_room := p_limit - (
      SELECT count(*) FROM instances AS i
      WHERE (i.status = 'Running') IS TRUE
        AND i.limit_place IS NOT NULL
        AND i.limit_route IS NULL
        AND i.limit_name = v_name
        AND i.route = ANY (v_routes)
        AND (
          SELECT l.instance_id FROM instance_locks AS l
          WHERE l.instance_id = i.instance_id AND l.locked_until > p_now_ms
        ) IS NULL
    );
    v_slots := v_limit.concurrency - dx_count_slots('orchestration', v_name, NULL, v_limit.concurrency);
    v_limit.free_ms := dx_tokens_back_ms(v_limit.free_ms, v_limit.rate, v_limit.rate_ms, v_limit.burst, p_now_ms);
    v_next_ms := NULL;
    v_at_key := v_limit.last_key;
    v_at_place := v_last_place;
    v_visits := 0;
    v_has_admitted := true;
    WHILE v_room > 0 AND COALESCE(v_slots, 1) > 0 LOOP
      IF v_visits = 1000 THEN
        out_is_held := true;
        EXIT;
      END IF;
      SELECT waiting.* INTO v_next FROM unnest(v_routes) AS own (route)
      CROSS JOIN LATERAL (
        SELECT i.limit_key, i.limit_place, i.instance_id, i.limit_route FROM instances AS i
        WHERE (i.status = 'Running') IS TRUE
          AND i.limit_name = v_name
          AND i.limit_route = own.route
          AND (i.limit_key, i.limit_place) > (v_at_key, v_at_place)
          -- It is paused, perhaps for long.
          AND NOT EXISTS (
            SELECT FROM instance_locks AS l WHERE l.instance_id = i.instance_id AND l.locked_until > p_now_ms
          )
        ORDER BY i.limit_key, i.limit_place LIMIT 1
      ) AS waiting
      ORDER BY waiting.limit_key, waiting.limit_place LIMIT 1;
      IF NOT FOUND THEN
        -- The round begins again, unless none in it could be admitted.
        EXIT WHEN NOT v_has_admitted;
        v_has_admitted := false;
        v_at_key := '';
        v_at_place := -1;
        CONTINUE;
      END IF;
      v_at_key := v_next.limit_key;
      v_at_place := v_last_place;
      v_visits := v_visits + 1;
      -- It starts later; not if only the clock was set back. The next claim looks behind it, or keys that start later
      -- would take all its visits.
      IF v_next.limit_place > v_due AND EXISTS (
        SELECT FROM orchestrator_queue AS q
        WHERE q.instance_id = v_next.instance_id AND q.due_at > to_timestamp(p_now_ms::float8 / 1000)
      ) THEN
        v_limit.last_key := v_at_key;
        CONTINUE;
      END IF;

      v_key := dx_limit_key(v_limit, v_at_key);
      v_token_ms := dx_next_token_ms(v_limit.free_ms, v_limit.rate, v_limit.rate_ms, v_limit.burst);
      IF v_token_ms > p_now_ms THEN
        v_next_ms := least(v_next_ms, ceil(v_token_ms)::bigint);
        EXIT;
      END IF;
      -- Its turn: now, or if its own bound holds it back, in the next round.
      v_limit.last_key := v_at_key;
      CONTINUE WHEN v_key.concurrency <= dx_count_slots('orchestration', v_name, v_at_key, v_key.concurrency);
      IF v_key.rate IS NOT NULL THEN
        v_key.free_ms := dx_tokens_back_ms(v_key.free_ms, v_key.rate, v_key.rate_ms, v_key.burst, p_now_ms);
        v_token_ms := dx_next_token_ms(v_key.free_ms, v_key.rate, v_key.rate_ms, v_key.burst);
        IF v_token_ms > p_now_ms THEN
          v_next_ms := least(v_next_ms, ceil(v_token_ms)::bigint);
          CONTINUE;
        END IF;
      END IF;

      v_ids := ARRAY(
        SELECT i.instance_id FROM instances AS i
        WHERE i.instance_id = v_next.instance_id AND i.limit_route IS NOT NULL
        FOR UPDATE SKIP LOCKED
      );
      IF v_ids = '{}' THEN
        out_is_held := true;
        CONTINUE;
      END IF;
      PERFORM dx_unpark_instances(v_ids, true);

      v_has_admitted := true;
      v_slots := v_slots - 1;
      v_room := v_room - 1;
      out_routes := out_routes || v_next.limit_route;
      v_limit.free_ms := v_limit.free_ms + v_limit.rate_ms::float8 / v_limit.rate;
      IF v_key.rate IS NOT NULL THEN
        INSERT INTO limit_keys (kind, name, key, is_own, free_ms)
        VALUES ('orchestration', v_name, v_at_key, false, v_key.free_ms + v_key.rate_ms::float8 / v_key.rate)
        ON CONFLICT (kind, name, key) DO UPDATE SET free_ms = EXCLUDED.free_ms;
      END IF;
    END LOOP;

    IF v_visits > 0 THEN
      UPDATE limits AS l
      SET last_key = v_limit.last_key, free_ms = COALESCE(v_limit.free_ms, 0), next_ms = v_next_ms
      WHERE l.kind = 'orchestration' AND l.name = v_name;
      out_next_ms := least(out_next_ms, v_next_ms);
      PERFORM dx_clean_limit_keys(v_limit, p_now_ms);
    END IF;
  END LOOP;
END
$$;
