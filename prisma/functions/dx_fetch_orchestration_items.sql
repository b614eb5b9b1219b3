-- Claims up to p_limit instances that have a visible message and no live lock, and returns all that their turns read.
--
-- Returns one row per claimed instance, the instance with the oldest visible message first. No rows means that no
-- instance is eligible, not that a race was lost: an instance that another transaction is about to claim is skipped in
-- favour of the next one. The visible messages of a claimed instance get the token and expiry of its lock, and count
-- one more delivery. Texts are returned as stored; this function does not parse them.
--
-- The route (dx_route) decides whether an instance is eligible: with p_names, one of these programs must serve it. The
-- index leads from one route to the next, so work for other processes costs nothing: neither 1,000,000 messages for
-- definitions or versions this process does not serve, nor messages that wait for a start. An instance that was
-- delivered twice and not settled is a suspect (dx_group_of). Without p_takes_over, an expired lock that has a
-- holder counts as a live one; a pause has none.
--
-- A message that is not to wait, visible_at <= created_at, is due since ever (due_at): whatever the clock does, a claimed
-- instance gets such messages in the order of their ids, at once. Where the clock was set back, they do not lead claims to
-- their instance before visible_at; a claim that finds nothing gives those among the next 100 of each route the present
-- time, if it looks ahead (dx_looks_ahead).
--
-- Bound: one look per route that has rows; one pass over the visible messages of the eligible routes, ended by the
-- p_limit-th claim; then p_max_bytes of messages, at most 4,096 per instance, and the histories up to their limits. A
-- locked instance costs one look at its lock and 0.14 microseconds per further message: skipping 10,000 messages of a
-- busy instance takes 1.4 ms. A claim that has met more than 5,000 messages sets a mark (dx_set_mark), so that the next
-- ones skip the dead ones that an open transaction keeps (1 microsecond each).
--
-- It notifies listeners of messages that it moves to another route or to the present time, and of nothing else.
--
-- Locks: advisory lock of the instance (try), its lock row (skip locked), its messages (skip locked). Nothing waits.
CREATE OR REPLACE FUNCTION dx_fetch_orchestration_items(
  p_limit integer,                 -- instances, >= 1
  p_lock_timeout_ms bigint,        -- milliseconds, > 0
  p_min_version integer[],         -- {major,minor,patch}, oldest pinned version to take; null takes every version
  p_max_version integer[],         -- newest pinned version to take, included
  p_names text[] DEFAULT NULL,     -- orchestrations to take, their versions at the same index of p_versions; null: all
  p_versions text[] DEFAULT NULL,
  p_suspects integer[] DEFAULT '{64,16,4,1}', -- suspects that may be claimed together, see dx_group_of
  p_max_bytes bigint DEFAULT 16777216,  -- of messages; at least one message is returned
  p_orphans boolean DEFAULT false, -- whether to take messages that have neither an instance nor a start, too
  p_takes_over boolean DEFAULT true, -- whether an instance whose lock has expired may be claimed
  p_history_limit integer DEFAULT NULL, -- event id; a history beyond it, or beyond 1 MiB, is cut to its last event
  p_now_ms bigint DEFAULT NULL     -- milliseconds since the Unix epoch; null means the database's clock
)
RETURNS TABLE (
  out_instance_id text,
  out_lock_token text,             -- <36 characters of the lock>.<instance id>
  out_now_ms bigint,               -- the clock of this claim
  out_orchestration_name text,     -- null when there is no instances row
  out_orchestration_version text,
  out_execution_id bigint,
  out_history json,                -- event texts by event id; null when there are none
  out_is_whole_history boolean,    -- false when out_history is the last event of a longer one
  out_message_ids json,            -- row ids, ascending
  out_messages json,               -- work item texts, in the order of out_message_ids
  out_enqueued_at_ms json,         -- when each of them was enqueued, milliseconds since the Unix epoch
  out_attempt_counts json,         -- deliveries of each of them, this one included
  out_key_values json              -- [{key, value, lastUpdatedAtMs}]; null when there are none
)
LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_started timestamptz := clock_timestamp();
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM v_started) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_until_ms bigint;
  v_secret text := gen_random_uuid()::text;
  -- The part of a route after the pinned version, for each program that is served.
  v_served text[];
  v_routes text[];
  v_candidate record;
  v_after_at timestamptz := '-infinity';
  v_after_id bigint := -9223372036854775808; -- those in front of all others have negative ids
  v_rows integer := CASE p_limit WHEN 1 THEN 1 ELSE 2 * p_limit END;
  v_found boolean;
  v_seen text[] := '{}';
  -- Instances with many messages; the scan itself leaves these out.
  v_crowded text[] := '{}';
  v_locked text[];
  v_locked_routes text[];
  v_held text[];
  v_owned text[];
  v_missing integer := p_limit;
  v_claimed integer;
  v_bytes bigint := 0;
  -- Row ids of messages: the batches, and those of their rows that no other transaction has locked.
  v_batch bigint[];
  v_marks bigint[];
  -- Suspects that are claimed, and how many there may be.
  v_suspects integer := 0;
  v_most integer := 2147483647;
  -- What this claim asks for; needed only where a session has a mark, or sets one.
  v_key text;
  v_mark text[];
  -- Index entries read, including those of dead rows; null where the server does not count.
  v_read bigint := pg_stat_get_xact_tuples_returned(to_regclass('orchestrator_queue_route_visible_at_id_idx'));
BEGIN
  IF p_now_ms IS NULL AND current_setting('duroxide_prisma.orchestrator_queue', true) <> '' THEN
    v_key := concat('orchestrator_queue'::regclass::oid, p_min_version, p_max_version, p_names, p_versions, p_orphans);
    v_mark := dx_read_mark('duroxide_prisma.orchestrator_queue', v_key, v_now_ms);
  END IF;
  IF v_mark IS NOT NULL THEN
    v_after_at := to_timestamp(v_mark[1]::float8 / 1000);
    v_routes := v_mark[2:];
  ELSE
    IF p_names IS NOT NULL THEN
      SELECT array_agg(' =' || one.version || ' ' || one.name) || array_agg(' * ' || one.name)
      INTO v_served
      FROM unnest(p_names, p_versions) AS one (name, version);
    END IF;
    SELECT array_agg(parts.route)
    INTO v_routes
    FROM (
      SELECT
        present.route,
        split_part(present.route, ' ', 1) AS pinned,
        substr(present.route, strpos(present.route, ' ')) AS program
      FROM dx_routes_of_messages() AS present
    ) AS parts
    WHERE (parts.route <> '' OR p_orphans)
      AND (
        p_min_version IS NULL
        OR CASE
          WHEN parts.pinned IN ('', '-') THEN true
          WHEN parts.pinned ~ '^[0-9]{1,9}[.][0-9]{1,9}[.][0-9]{1,9}$' THEN
            string_to_array(parts.pinned, '.')::integer[] BETWEEN p_min_version AND p_max_version
          -- A row written by hand; claims must not fail for that.
          ELSE false
        END
      )
      AND CASE
        WHEN p_names IS NULL THEN true
        WHEN parts.program LIKE ' >%' THEN EXISTS (
          SELECT
          FROM unnest(p_names, p_versions) AS one (name, version)
          WHERE one.name = substr(parts.program, strpos(substr(parts.program, 2), ' ') + 2)
            AND dx_semantic_version(one.version) COLLATE "C"
              >= dx_semantic_version(substr(split_part(substr(parts.program, 2), ' ', 1), 2))
        )
        ELSE parts.program = ANY (v_served)
      END;
  END IF;

  WHILE v_routes IS NOT NULL LOOP
    -- Takes the advisory locks of the next eligible instances, ordered by their oldest visible message.
    v_locked := '{}';
    v_locked_routes := '{}';
    v_found := false;
    FOR v_candidate IN
      WITH message AS MATERIALIZED (
        SELECT one.instance_id, one.visible_at, one.id, one.attempt_count, wanted.route
        FROM unnest(v_routes) AS wanted (route)
        CROSS JOIN LATERAL (
          SELECT q.instance_id, q.visible_at, q.id, q.attempt_count
          FROM orchestrator_queue AS q
          WHERE q.route = wanted.route
            AND q.visible_at <= v_now
            AND (q.visible_at, q.id) > (v_after_at, v_after_id)
            AND q.instance_id <> ALL (v_crowded)
          ORDER BY q.visible_at, q.id
          LIMIT v_rows
        ) AS one
        ORDER BY one.visible_at, one.id
        LIMIT v_rows
      ),
      numbered AS (
        SELECT message.*, row_number() OVER () AS position
        FROM message
      )
      SELECT
        looked.*,
        -- Scalar subqueries: PostgreSQL may plan joins as one read of the whole table.
        CASE
          WHEN looked.free THEN (
            SELECT i.route
            FROM instances AS i
            WHERE i.instance_id = looked.instance_id
          )
        END AS instance_route
      FROM (
        SELECT
          met.instance_id,
          met.messages,
          met.visible_at,
          met.first[2] AS id,
          met.first[3] AS attempt_count,
          met.route,
          (
            SELECT l.instance_id
            FROM instance_locks AS l
            WHERE l.instance_id = met.instance_id
              AND (l.locked_until > v_now_ms OR NOT (p_takes_over OR l.lock_token = ''))
          ) IS NULL AS free
        FROM (
          SELECT
            numbered.instance_id,
            count(*) AS messages,
            min(numbered.visible_at) AS visible_at,
            min(ARRAY[numbered.position, numbered.id, numbered.attempt_count]) AS first,
            -- Messages that arrived before a start have no route.
            max(numbered.route) AS route
          FROM numbered
          GROUP BY numbered.instance_id
        ) AS met
        ORDER BY met.first
      ) AS looked
    LOOP
      v_found := true;
      v_after_at := v_candidate.visible_at;
      v_after_id := v_candidate.id;
      IF v_candidate.messages > 4 THEN
        v_crowded := v_crowded || v_candidate.instance_id;
      END IF;
      CONTINUE WHEN NOT v_candidate.free OR v_candidate.instance_id = ANY (v_seen);
      IF v_candidate.instance_route <> ALL (v_routes) AND v_candidate.instance_route <> '' THEN
        -- Inserted while the instance changed its version; other processes serve it. What its sender announced led
        -- them to no row of theirs, or to one that is locked here.
        UPDATE orchestrator_queue AS q
        SET route = v_candidate.instance_route
        FROM (SELECT one.id FROM orchestrator_queue AS one WHERE one.id = v_candidate.id FOR UPDATE SKIP LOCKED) AS stale
        WHERE q.id = stale.id;
        IF FOUND THEN
          PERFORM dx_notify('orch_work', ARRAY[v_candidate.visible_at]);
        END IF;
        CONTINUE;
      END IF;
      v_seen := v_seen || v_candidate.instance_id;
      IF v_candidate.attempt_count >= 2 THEN
        v_most := least(v_most, dx_group_of(v_candidate.attempt_count::integer, p_suspects));
        CONTINUE WHEN v_suspects >= v_most;
      END IF;
      -- The same key as in duroxide-pg, so that its processes and ours exclude each other.
      IF pg_try_advisory_xact_lock(hashtext(v_candidate.instance_id)) THEN
        v_locked := v_locked || v_candidate.instance_id;
        v_locked_routes := v_locked_routes || v_candidate.route;
        IF v_candidate.attempt_count >= 2 THEN
          v_suspects := v_suspects + 1;
        END IF;
        EXIT WHEN cardinality(v_locked) >= v_missing;
      END IF;
    END LOOP;
    EXIT WHEN NOT v_found;
    v_rows := least(greatest(2 * v_rows, 16), 10000);
    CONTINUE WHEN v_locked = '{}';

    -- The statements from here on see everything that was committed before we took the advisory locks. An existing lock
    -- row is taken over if it has expired and no transaction works on it. The other rows are new, and no other
    -- transaction can insert them. The lock counts from here, so the time spent on skipping other instances does not
    -- shorten it.
    v_until_ms := p_lock_timeout_ms
      + COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    v_owned := '{}';
    SELECT array_agg(l.instance_id)
    INTO v_held
    FROM instance_locks AS l
    WHERE l.instance_id = ANY (v_locked);
    IF v_held IS NOT NULL THEN
      WITH expired AS (
        SELECT l.instance_id
        FROM instance_locks AS l
        WHERE l.instance_id = ANY (v_held)
          AND l.locked_until <= v_now_ms
          AND (p_takes_over OR l.lock_token = '')
        ORDER BY l.instance_id COLLATE "C"
        FOR UPDATE SKIP LOCKED
      ),
      taken_over AS (
        UPDATE instance_locks AS l
        SET lock_token = v_secret,
            locked_until = v_until_ms,
            locked_at = v_now_ms
        FROM expired
        WHERE l.instance_id = expired.instance_id
        RETURNING l.instance_id
      )
      SELECT COALESCE(array_agg(instance_id), '{}')
      INTO v_owned
      FROM taken_over;
    END IF;
    WITH owned AS (
      INSERT INTO instance_locks (instance_id, lock_token, locked_until, locked_at)
      SELECT one.instance_id, v_secret, v_until_ms, v_now_ms
      FROM unnest(v_locked) AS one (instance_id)
      WHERE v_held IS NULL OR one.instance_id <> ALL (v_held)
      ORDER BY one.instance_id COLLATE "C"
      ON CONFLICT (instance_id) DO NOTHING
      RETURNING instance_id
    )
    SELECT v_owned || COALESCE(array_agg(owned.instance_id), '{}')
    INTO v_owned
    FROM owned;
    CONTINUE WHEN v_owned = '{}';

    SELECT array_agg(sized.id ORDER BY sized.before, sized.id)
    INTO v_batch
    FROM (
      SELECT
        one.id,
        -- Bytes of the messages before this one.
        sum(one.bytes) OVER (ORDER BY owned.position, one.place, one.id) - one.bytes AS before
      FROM unnest(v_locked, v_locked_routes) WITH ORDINALITY AS owned (instance_id, route, position)
      CROSS JOIN LATERAL (
        -- What is not to wait keeps the order of the ids; times say where timers go among it. Nothing goes in front of
        -- negative ids: what begins an execution, and what was requeued. While we hold the instance, locks of its messages
        -- are of holders that lost theirs.
        (
          SELECT
            due.id,
            due.bytes,
            COALESCE(max(due.visible_at) FILTER (WHERE due.id > 0) OVER (ORDER BY due.id), '-infinity') AS place
          FROM (
            SELECT q.id, q.visible_at, octet_length(q.work_item) AS bytes
            FROM orchestrator_queue AS q
            WHERE q.instance_id = owned.instance_id
              AND q.due_at = '-infinity'
            ORDER BY q.id
            LIMIT 4096
          ) AS due
        )
        UNION ALL
        (
          SELECT q.id, octet_length(q.work_item), q.due_at
          FROM orchestrator_queue AS q
          WHERE q.instance_id = owned.instance_id
            AND q.due_at > '-infinity'
            AND q.due_at <= v_now
          ORDER BY q.due_at, q.id
          LIMIT 4096
        )
        ORDER BY place, id
        LIMIT 4096
      ) AS one
      WHERE owned.instance_id = ANY (v_owned)
        -- The version may have changed before the instance was locked.
        AND COALESCE(
          (
            SELECT CASE WHEN i.route = '' THEN dx_message_route(i.instance_id, '') ELSE i.route END
            FROM instances AS i
            WHERE i.instance_id = owned.instance_id
          ),
          owned.route
        ) = ANY (v_routes)
    ) AS sized
    WHERE sized.before = 0
      OR sized.before < p_max_bytes - v_bytes;
    SELECT array_agg(free.id)
    INTO v_marks
    FROM (
      SELECT q.id
      FROM orchestrator_queue AS q
      WHERE q.id = ANY (v_batch)
      ORDER BY q.id
      FOR UPDATE SKIP LOCKED
    ) AS free;
    IF cardinality(v_marks) < cardinality(v_batch) THEN
      -- Another transaction works on a message, for example changes its route. The messages after it are left as well,
      -- to keep their order.
      SELECT array_agg(behind.id)
      INTO v_marks
      FROM (
        SELECT
          q.id,
          bool_and(q.id = ANY (v_marks)) OVER (PARTITION BY q.instance_id ORDER BY one.position) AS in_order
        FROM unnest(v_batch) WITH ORDINALITY AS one (id, position)
        JOIN orchestrator_queue AS q ON q.id = one.id
      ) AS behind
      WHERE behind.in_order;
    END IF;

    RETURN QUERY
    WITH marked AS (
      UPDATE orchestrator_queue AS q
      SET lock_token = v_secret,
          locked_until = v_until_ms,
          attempt_count = q.attempt_count + 1
      WHERE q.id = ANY (v_marks)
      RETURNING q.instance_id, q.id, q.work_item, q.created_at, q.attempt_count
    ),
    batch AS (
      SELECT
        marked.instance_id,
        json_agg(marked.id ORDER BY marked.id) AS message_ids,
        json_agg(marked.attempt_count ORDER BY marked.id) AS attempt_counts,
        json_agg(marked.work_item ORDER BY marked.id) AS messages,
        json_agg(round(extract(epoch FROM marked.created_at) * 1000)::bigint ORDER BY marked.id) AS enqueued_at_ms
      FROM marked
      GROUP BY marked.instance_id
    )
    SELECT
      batch.instance_id,
      v_secret || '.' || batch.instance_id,
      v_now_ms,
      i.orchestration_name,
      i.orchestration_version,
      execution.execution_id,
      CASE
        WHEN known.is_whole THEN (
          SELECT json_agg(event.event_data)
          FROM (
            SELECT h.event_data
            FROM history AS h
            WHERE h.instance_id = batch.instance_id
              AND h.execution_id = execution.execution_id
            ORDER BY h.event_id
          ) AS event
        )
        ELSE (
          SELECT json_build_array(h.event_data)
          FROM history AS h
          WHERE h.instance_id = batch.instance_id
            AND h.execution_id = execution.execution_id
          ORDER BY h.event_id DESC
          LIMIT 1
        )
      END,
      known.is_whole,
      batch.message_ids,
      batch.messages,
      batch.enqueued_at_ms,
      batch.attempt_counts,
      (
        SELECT json_agg(json_build_object('key', s.key, 'value', s.value, 'lastUpdatedAtMs', s.last_updated_at_ms))
        FROM kv_store AS s
        WHERE s.instance_id = batch.instance_id
      )
    FROM batch
    LEFT JOIN instances AS i ON i.instance_id = batch.instance_id
    CROSS JOIN LATERAL (
      SELECT COALESCE(
        i.current_execution_id,
        (SELECT max(e.execution_id) FROM executions AS e WHERE e.instance_id = batch.instance_id),
        1
      ) AS execution_id
    ) AS execution
    CROSS JOIN LATERAL (
      -- Event ids count from 1, so one look at the index is enough. Without an instance row, the started event says
      -- what the instance is.
      SELECT CASE
        WHEN p_history_limit IS NULL OR i.instance_id IS NULL THEN true
        WHEN (
          SELECT h.event_id
          FROM history AS h
          WHERE h.instance_id = batch.instance_id
            AND h.execution_id = execution.execution_id
            AND h.event_id > p_history_limit
          LIMIT 1
        ) IS NOT NULL THEN false
        ELSE (
          SELECT COALESCE(sum(octet_length(h.event_data)), 0)
          FROM history AS h
          WHERE h.instance_id = batch.instance_id
            AND h.execution_id = execution.execution_id
        ) <= 1048576
      END AS is_whole
    ) AS known
    ORDER BY array_position(v_seen, batch.instance_id);

    GET DIAGNOSTICS v_claimed = ROW_COUNT;
    IF v_claimed < cardinality(v_owned) THEN
      -- Before the instances were locked, another process settled their messages or pinned their version.
      DELETE FROM instance_locks AS l
      WHERE l.instance_id = ANY (v_owned)
        AND l.lock_token = v_secret
        AND NOT EXISTS (
          SELECT FROM orchestrator_queue AS q
          WHERE q.instance_id = l.instance_id
            AND q.lock_token = v_secret
        );
    END IF;
    v_missing := v_missing - v_claimed;
    EXIT WHEN v_missing <= 0;
    SELECT v_bytes + COALESCE(sum(octet_length(q.work_item)), 0)
    INTO v_bytes
    FROM orchestrator_queue AS q
    WHERE q.instance_id = ANY (v_owned)
      AND q.due_at <= v_now
      AND q.lock_token = v_secret;
    -- Return what is claimed before its lock expires.
    EXIT WHEN v_bytes >= p_max_bytes
      OR (v_claimed > 0 AND clock_timestamp() > v_started + greatest(p_lock_timeout_ms / 4, 250) * interval '1 millisecond');
  END LOOP;

  IF v_missing = p_limit THEN
    v_key := concat('orchestrator_queue'::regclass::oid, p_min_version, p_max_version, p_names, p_versions, p_orphans);
  END IF;
  IF v_missing = p_limit AND (p_now_ms IS NOT NULL OR dx_looks_ahead('duroxide_prisma.orchestrator_queue_ahead', v_key, v_now_ms))
  THEN
    UPDATE orchestrator_queue AS q
    SET visible_at = v_now
    WHERE q.id = ANY (ARRAY(
      SELECT free.id
      FROM unnest(v_routes) AS wanted (route)
      CROSS JOIN LATERAL (
        SELECT one.id, one.instance_id, one.due_at
        FROM orchestrator_queue AS one
        WHERE one.route = wanted.route
          AND one.visible_at > v_now
        ORDER BY one.visible_at, one.id
        LIMIT 100
      ) AS next
      CROSS JOIN LATERAL (
        SELECT one.id
        FROM orchestrator_queue AS one
        WHERE one.id = next.id
        FOR UPDATE SKIP LOCKED
      ) AS free
      WHERE next.due_at = '-infinity'
        -- Unless it arrives with a start that is to wait.
        AND (
          (SELECT h.event_id FROM history AS h WHERE h.instance_id = next.instance_id LIMIT 1) IS NOT NULL
          OR (
            SELECT start.id
            FROM orchestrator_queue AS start
            WHERE start.instance_id = next.instance_id
              AND start.due_at > v_now
              AND start.work_item LIKE '{"StartOrchestration"%'
            LIMIT 1
          ) IS NULL
        )
    ));
    GET DIAGNOSTICS v_claimed = ROW_COUNT;
    IF v_claimed > 0 THEN
      RETURN QUERY SELECT *
      FROM dx_fetch_orchestration_items(
        p_limit,
        p_lock_timeout_ms,
        p_min_version,
        p_max_version,
        p_names,
        p_versions,
        p_suspects,
        p_max_bytes,
        p_orphans,
        p_takes_over,
        p_history_limit,
        p_now_ms
      );
      PERFORM set_config('duroxide_prisma.orchestrator_queue_ahead', '', false) WHERE v_claimed >= 100; -- there may be more
      RETURN;
    END IF;
  END IF;

  IF v_mark IS NULL AND p_now_ms IS NULL
    AND pg_stat_get_xact_tuples_returned(to_regclass('orchestrator_queue_route_visible_at_id_idx')) - v_read > 5000
  THEN
    SELECT min(one.visible_at)
    INTO v_after_at
    FROM unnest(v_routes) AS wanted (route)
    CROSS JOIN LATERAL (
      SELECT q.visible_at
      FROM orchestrator_queue AS q
      WHERE q.route = wanted.route
        AND q.visible_at <= v_now
        AND (q.lock_token IS NULL OR q.locked_until <= v_now_ms)
      ORDER BY q.visible_at, q.id
      LIMIT 1
    ) AS one;
    v_key := concat('orchestrator_queue'::regclass::oid, p_min_version, p_max_version, p_names, p_versions, p_orphans);
    PERFORM dx_set_mark('duroxide_prisma.orchestrator_queue', v_key, v_started, v_after_at, v_routes);
  END IF;
END
$$;
