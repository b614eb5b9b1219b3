-- Claims up to p_limit instances that have a visible message and no live lock, and returns all that their turns read.
--
-- Returns one row per claimed instance, the instance with the oldest visible message first. No rows means that no
-- instance is eligible. An instance that another transaction has locked is skipped in favour of the next one. A row of
-- nulls means that a later look may find more: such instances are left, or the claim has looked behind a mark; with
-- out_is_limited, when a slot is freed, or at out_next_ms.
-- The visible messages of a claimed instance get the token and expiry of its lock, and count one more delivery. Texts
-- are returned as stored; this function does not parse them.
--
-- The route (dx_route) decides whether an instance is eligible: work for other processes costs nothing, nor do messages
-- that wait for a start, up to 1,000,000 of them. An instance that was delivered twice and not settled is a suspect
-- (dx_group_of). Without p_takes_over, an expired lock that has a holder counts as a live one; a pause has none.
--
-- Whatever the clock does, a claimed instance gets messages that are not to wait (due_at) in the order of their ids. A
-- claim that finds nothing may look ahead (dx_looks_ahead): it brings forward those that a clock set back has delayed.
--
-- Before, it gives free slots of limits to starts that wait for one (dx_admit_instances).
--
-- Bound: one look per route that has rows; dx_admit_instances; one pass over the visible messages of the eligible
-- routes, ended by the p_limit-th claim; then p_max_bytes of messages, at most 4,096 per instance, and the histories up
-- to their limits. A locked instance costs one look at its lock and 0.14 microseconds per further message: skipping
-- 10,000 messages of a busy instance takes 1.4 ms. A claim that has met more than 5,000 messages sets a mark
-- (dx_set_mark), so that the next ones skip the dead ones that an open transaction keeps (1 microsecond each).
--
-- Notifies listeners of messages that it moves to another route or to the present time, and of nothing else. Locks:
-- those of dx_admit_instances; advisory lock of the instance (try), its lock row (skip locked), its messages (skip
-- locked). Nothing waits.
CREATE OR REPLACE FUNCTION dx_fetch_orchestration_items(
  p_limit integer,                 -- instances, >= 1
  p_lock_timeout_ms bigint,        -- milliseconds, > 0
  p_min_version integer[], p_max_version integer[], -- {major,minor,patch}, pinned versions to take; null: every one
  p_names text[] DEFAULT NULL, p_versions text[] DEFAULT NULL, -- orchestrations to take, pair by pair; null: all
  p_suspects integer[] DEFAULT '{64,16,4,1}', -- suspects that may be claimed together, see dx_group_of
  p_max_bytes bigint DEFAULT 16777216,  -- of messages; at least one message is returned
  p_orphans boolean DEFAULT false, -- whether to take messages that have neither an instance nor a start, too
  p_takes_over boolean DEFAULT true, -- whether an instance whose lock has expired may be claimed
  p_history_limit integer DEFAULT NULL, -- event id; a history beyond it, or beyond 1 MiB, is cut to its last event
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_instance_id text,
  out_lock_token text,             -- <36 characters of the lock>.<instance id>
  out_now_ms bigint,               -- the clock of this claim
  out_orchestration_name text,     -- null when there is no instances row
  out_orchestration_version text, out_execution_id bigint,
  out_history json,                -- event texts by event id; null without any
  out_is_whole_history boolean,    -- false when out_history is the last event of a longer one
  out_message_ids json,            -- row ids, ascending
  out_messages json,               -- work item texts, in the order of out_message_ids
  out_enqueued_at_ms json,         -- when each of them was enqueued
  out_attempt_counts json,         -- deliveries of each of them, this one included
  out_key_values json,             -- [{key, value, lastUpdatedAtMs}]; null without any
  out_is_limited boolean, out_next_ms bigint -- starts wait for slots; when a token is free. Null with an instance
) LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_started timestamptz := clock_timestamp();
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM v_started) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_until_ms bigint;
  v_secret text := gen_random_uuid()::text;
  v_routes text[];
  v_parked text[]; -- of instances that wait for limits, without the ~
  v_admitted text[]; -- routes of instances that got a slot
  v_met text;
  v_candidate record;
  v_after_at timestamptz := '-infinity';
  v_after_id bigint := -9223372036854775808; -- those in front of all others have negative ids
  v_rows integer := CASE p_limit WHEN 1 THEN 1 ELSE 2 * p_limit END;
  v_seen text[] := '{}';
  v_crowded text[] := '{}'; -- have many messages and are left out; not what waits for a slot, as it may be released
  v_locked text[]; v_locked_routes text[];
  v_missing integer := p_limit;
  v_claimed integer;
  v_held boolean := false; -- whether another transaction has locked some
  v_bytes bigint := 0;
  v_messages bigint[];
  v_suspects integer := 0; v_most integer := 2147483647; -- suspects that are claimed, and that may be
  v_key text := -- what this claim asks for
    concat('orchestrator_queue'::regclass::oid, p_min_version, p_max_version, p_names, p_versions, p_orphans);
  v_mark text[];
  -- Index entries read, including those of dead rows; null where the server does not count.
  v_read bigint := pg_stat_get_xact_tuples_returned(to_regclass('orchestrator_queue_route_visible_at_id_idx'));
BEGIN
  IF p_now_ms IS NULL AND current_setting('duroxide_prisma.orchestrator_queue', true) <> '' THEN
    v_mark := dx_read_mark('duroxide_prisma.orchestrator_queue', v_key, v_now_ms);
  END IF;
  IF v_mark IS NULL THEN
    SELECT
      array_agg(served.route) FILTER (WHERE NOT starts_with(served.route, '~')),
      array_agg(substr(served.route, 2)) FILTER (WHERE starts_with(served.route, '~'))
    INTO v_routes, v_parked
    FROM dx_served_routes(p_min_version, p_max_version, p_names, p_versions, p_orphans) AS served;
  ELSE
    v_after_at := to_timestamp(v_mark[1]::float8 / 1000);
    v_routes := v_mark[2:];
    -- Only if an instance waits for a slot: listing the routes reads the dead rows that the mark lets claims skip.
    SELECT array_agg(substr(served.route, 2)) INTO v_parked
    FROM dx_served_routes(p_min_version, p_max_version, p_names, p_versions, p_orphans) AS served
    WHERE EXISTS (SELECT FROM dx_parked_instance_routes()) AND starts_with(served.route, '~');
  END IF;
  IF v_parked IS NOT NULL THEN
    SELECT * INTO v_admitted, out_next_ms, v_held FROM dx_admit_instances(p_limit, v_parked, v_now_ms);
    IF v_admitted IS NOT NULL THEN
      -- Their messages may be older than a mark.
      v_after_at := '-infinity';
      v_routes := ARRAY(SELECT unnest(v_routes) UNION SELECT unnest(v_admitted));
    END IF;
    out_is_limited := true;
    RETURN NEXT;
    out_is_limited := NULL;
    out_next_ms := NULL;
  END IF;

  WHILE v_routes IS NOT NULL LOOP
    -- Takes the advisory locks of the next eligible instances, ordered by their oldest visible message.
    v_locked := '{}'; v_locked_routes := '{}';
    FOR v_candidate IN
      SELECT *
      FROM dx_next_instances(v_routes, v_after_at, v_after_id, v_crowded, v_rows, p_takes_over, v_now, v_now_ms)
    LOOP
      v_after_at := v_candidate.visible_at;
      v_after_id := v_candidate.id;
      IF v_candidate.messages > 4 AND starts_with(v_candidate.instance_route, '~') IS NOT TRUE THEN
        v_crowded := v_crowded || v_candidate.instance_id;
      END IF;
      CONTINUE WHEN NOT v_candidate.free OR v_candidate.instance_id = ANY (v_seen);
      IF starts_with(v_candidate.instance_route, '~') THEN
        v_met := dx_meet_parked(v_candidate.instance_id);
        v_held := v_held OR v_met = 'Locked';
        CONTINUE WHEN v_met <> 'Released';
        -- Its messages may be older than those that come now.
        v_after_at := '-infinity';
        v_after_id := -9223372036854775808;
        EXIT;
      END IF;
      IF v_candidate.instance_route <> ALL (v_routes) AND v_candidate.instance_route <> '' THEN
        -- Inserted while the instance changed its version; other processes serve it. What its sender announced led
        -- them to no row of theirs, or to one that is locked here.
        PERFORM dx_notify('orch_work', ARRAY[v_candidate.visible_at])
        WHERE dx_reroute_message(v_candidate.id, v_candidate.instance_route);
        CONTINUE;
      END IF;
      v_seen := v_seen || v_candidate.instance_id;
      IF v_candidate.attempt_count >= 2 THEN
        v_most := least(v_most, dx_group_of(v_candidate.attempt_count, p_suspects));
        CONTINUE WHEN v_suspects >= v_most;
      END IF;
      -- The same key as in duroxide-pg, so that its processes and ours exclude each other.
      IF pg_try_advisory_xact_lock(hashtext(v_candidate.instance_id)) THEN
        v_locked := v_locked || v_candidate.instance_id;
        v_locked_routes := v_locked_routes || v_candidate.route;
        v_suspects := v_suspects + (v_candidate.attempt_count >= 2)::integer;
        EXIT WHEN cardinality(v_locked) >= v_missing;
      ELSE
        v_held := true;
      END IF;
    END LOOP;
    EXIT WHEN NOT FOUND;
    v_rows := least(greatest(2 * v_rows, 16), 10000);
    CONTINUE WHEN v_locked = '{}';
    -- The lock counts from here, so the time spent on skipping other instances does not shorten it.
    v_until_ms := p_lock_timeout_ms + COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    v_messages := dx_take_instances(
      v_locked, v_locked_routes, v_routes, v_secret, v_until_ms, p_max_bytes - v_bytes, p_takes_over, v_now_ms
    );
    RETURN QUERY
    WITH marked AS (
      UPDATE orchestrator_queue AS q
      SET lock_token = v_secret, locked_until = v_until_ms, attempt_count = q.attempt_count + 1
      WHERE q.id = ANY (v_messages)
      RETURNING q.instance_id, q.id, q.work_item, q.created_at, q.attempt_count
    ),
    batch AS (
      SELECT
        marked.instance_id, json_agg(marked.id ORDER BY marked.id) AS message_ids,
        json_agg(marked.attempt_count ORDER BY marked.id) AS attempt_counts,
        json_agg(marked.work_item ORDER BY marked.id) AS messages,
        json_agg(round(extract(epoch FROM marked.created_at) * 1000)::bigint ORDER BY marked.id) AS enqueued_at_ms
      FROM marked GROUP BY marked.instance_id
    )
    SELECT
      batch.instance_id, v_secret || '.' || batch.instance_id, v_now_ms, turn.orchestration_name,
      turn.orchestration_version, turn.execution_id, turn.history, turn.is_whole, batch.message_ids, batch.messages,
      batch.enqueued_at_ms, batch.attempt_counts, turn.key_values, NULL::boolean, NULL::bigint
    FROM batch
    CROSS JOIN LATERAL dx_turn_inputs(batch.instance_id, p_history_limit) AS turn
    ORDER BY array_position(v_seen, batch.instance_id);
    GET DIAGNOSTICS v_claimed = ROW_COUNT;
    IF v_claimed < cardinality(v_locked) THEN
      v_held := true;
      PERFORM dx_release_instances(v_locked, v_secret);
    END IF;
    v_missing := v_missing - v_claimed;
    EXIT WHEN v_missing <= 0;
    SELECT v_bytes + COALESCE(sum(octet_length(q.work_item)), 0) INTO v_bytes
    FROM orchestrator_queue AS q WHERE q.id = ANY (v_messages);
    -- Return what is claimed before its lock expires.
    EXIT WHEN v_bytes >= p_max_bytes OR v_claimed > 0
      AND clock_timestamp() > v_started + greatest(p_lock_timeout_ms / 4, 250) * interval '1 millisecond';
  END LOOP;

  IF v_missing > 0 AND (v_held OR v_mark IS NOT NULL) THEN
    RETURN NEXT;
  END IF;

  IF v_missing = p_limit
    AND (p_now_ms IS NOT NULL OR dx_looks_ahead('duroxide_prisma.orchestrator_queue_ahead', v_key, v_now_ms)) THEN
    v_claimed := dx_bring_messages_forward(v_routes, v_now);
    IF v_claimed > 0 THEN
      RETURN QUERY SELECT * FROM dx_fetch_orchestration_items(
        p_limit, p_lock_timeout_ms, p_min_version, p_max_version, p_names, p_versions, p_suspects, p_max_bytes,
        p_orphans, p_takes_over, p_history_limit, p_now_ms
      );
      PERFORM set_config('duroxide_prisma.orchestrator_queue_ahead', '', false) WHERE v_claimed >= 100; -- may be more
      RETURN;
    END IF;
  END IF;

  IF v_mark IS NULL AND p_now_ms IS NULL
    AND pg_stat_get_xact_tuples_returned(to_regclass('orchestrator_queue_route_visible_at_id_idx')) - v_read > 5000 THEN
    PERFORM dx_set_mark(
      'duroxide_prisma.orchestrator_queue', v_key, v_started, dx_oldest_message(v_routes, v_now, v_now_ms), v_routes
    );
  END IF;
END
$$;
