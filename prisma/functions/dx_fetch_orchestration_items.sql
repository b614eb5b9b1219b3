-- Claims up to p_limit instances that have a visible message and no live lease, and hands out all that a turn reads.
--
-- Returns one row per claimed instance, the one with the oldest visible message first; no rows means that there is no
-- eligible instance, not that a race was lost: an instance that another transaction is about to claim is passed over
-- for the next one. The visible messages of a claimed instance carry its lease's token and expiry from now on, and
-- count one delivery more. Texts are handed out as they are stored; nothing here parses them.
--
-- Bound: one pass over the visible messages in at most 50 rounds of a growing number of rows, ended by the p_limit-th
-- claim; then the history up to its limit, messages and store of the claimed instances. An instance that cannot be taken costs one look
-- each at its lease and version, and 0.14 microseconds per further message: passing over 10,000 messages of a busy
-- instance takes 1.4 ms (13 ms with the lease looked up per message). A skip scan over (instance_id, visible_at) would
-- pay 4.4 microseconds for every instance that has any message, timers of sleeping instances included.
--
-- Locks: advisory lock of the instance (try), its lease row (skip locked), its messages (skip locked). Nothing waits.
CREATE OR REPLACE FUNCTION dx_fetch_orchestration_items(
  p_limit integer,                 -- instances, >= 1
  p_lock_timeout_ms bigint,        -- milliseconds, > 0
  p_min_version integer[],         -- {major,minor,patch}, oldest pinned version to take; null takes every version
  p_max_version integer[],         -- newest pinned version to take, included
  p_history_limit integer DEFAULT NULL, -- event id; of a history beyond it only the last event is handed out
  p_now_ms bigint DEFAULT NULL     -- milliseconds since the Unix epoch; null means the database's clock
)
RETURNS TABLE (
  out_instance_id text,
  out_lock_token text,             -- <36 characters of the lease>.<instance id>
  out_attempt_count integer,       -- highest of the batch
  out_now_ms bigint,               -- the clock of this claim
  out_orchestration_name text,     -- null when there is no instances row
  out_orchestration_version text,
  out_execution_id bigint,
  out_history json,                -- event texts by event id; null when there are none
  out_is_whole_history boolean,    -- false when out_history is the last event of a longer one
  out_message_ids json,            -- row ids, ascending
  out_messages json,               -- work item texts, in the order of out_message_ids
  out_enqueued_at_ms json,         -- when each of them was enqueued, milliseconds since the Unix epoch
  out_key_values json              -- [{key, value, lastUpdatedAtMs}]; null when there are none
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
  v_until_ms bigint := v_now_ms + p_lock_timeout_ms;
  v_secret text := gen_random_uuid()::text;
  v_candidate record;
  v_after_at timestamptz := '-infinity';
  v_after_id bigint := 0;
  v_rows integer := CASE p_limit WHEN 1 THEN 1 ELSE 2 * p_limit END;
  v_found boolean;
  v_seen text[] := '{}';
  -- Of these, the ones with many messages: left out by the scan itself.
  v_crowded text[] := '{}';
  v_locked text[];
  v_held text[];
  v_leased text[];
  v_missing integer := p_limit;
  v_claimed integer;
BEGIN
  FOR v_round IN 1..50 LOOP
    -- The next instances by their oldest visible message; of those that may be taken, the advisory locks.
    v_locked := '{}';
    v_found := false;
    FOR v_candidate IN
      WITH message AS MATERIALIZED (
        SELECT q.instance_id, q.visible_at, q.id
        FROM orchestrator_queue AS q
        WHERE q.visible_at <= v_now
          AND (q.visible_at, q.id) > (v_after_at, v_after_id)
          AND q.instance_id <> ALL (v_crowded)
        ORDER BY q.visible_at, q.id
        LIMIT v_rows
      ),
      numbered AS (
        SELECT message.*, row_number() OVER () AS position
        FROM message
      )
      SELECT
        met.instance_id,
        met.messages,
        met.visible_at,
        met.first[2] AS id,
        lease.instance_id IS NULL AND version.accepted AS free
      FROM (
        SELECT
          numbered.instance_id,
          count(*) AS messages,
          min(numbered.visible_at) AS visible_at,
          min(ARRAY[numbered.position, numbered.id]) AS first
        FROM numbered
        GROUP BY numbered.instance_id
        ORDER BY first
      ) AS met
      LEFT JOIN instance_locks AS lease
        ON lease.instance_id = met.instance_id
        AND lease.locked_until > v_now_ms
      CROSS JOIN LATERAL (
        SELECT p_min_version IS NULL OR COALESCE(
          (
            SELECT
              e.duroxide_version_major IS NULL
              OR ARRAY[e.duroxide_version_major, e.duroxide_version_minor, e.duroxide_version_patch]
                BETWEEN p_min_version AND p_max_version
            FROM instances AS i
            JOIN executions AS e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
            WHERE i.instance_id = met.instance_id
          ),
          true
        ) AS accepted
      ) AS version
      ORDER BY met.first
    LOOP
      v_found := true;
      v_after_at := v_candidate.visible_at;
      v_after_id := v_candidate.id;
      IF v_candidate.messages > 4 THEN
        v_crowded := v_crowded || v_candidate.instance_id;
      END IF;
      CONTINUE WHEN v_candidate.instance_id = ANY (v_seen);
      v_seen := v_seen || v_candidate.instance_id;
      -- The key of duroxide-pg, so that processes of both exclude each other.
      IF v_candidate.free AND pg_try_advisory_xact_lock(hashtext(v_candidate.instance_id)) THEN
        v_locked := v_locked || v_candidate.instance_id;
        EXIT WHEN cardinality(v_locked) >= v_missing;
      END IF;
    END LOOP;
    EXIT WHEN NOT v_found;
    v_rows := least(greatest(2 * v_rows, 16), 1000);
    CONTINUE WHEN v_locked = '{}';

    -- The statements from here on see all that was committed before the advisory locks were ours. A lease that exists
    -- now is taken over when it is expired and nobody works on it; the others are new, and nobody else inserts them.
    v_leased := '{}';
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
      INTO v_leased
      FROM taken_over;
    END IF;
    WITH leased AS (
      INSERT INTO instance_locks (instance_id, lock_token, locked_until, locked_at)
      SELECT one.instance_id, v_secret, v_until_ms, v_now_ms
      FROM unnest(v_locked) AS one (instance_id)
      WHERE v_held IS NULL OR one.instance_id <> ALL (v_held)
      ORDER BY one.instance_id COLLATE "C"
      ON CONFLICT (instance_id) DO NOTHING
      RETURNING instance_id
    )
    SELECT v_leased || COALESCE(array_agg(leased.instance_id), '{}')
    INTO v_leased
    FROM leased;
    CONTINUE WHEN v_leased = '{}';

    RETURN QUERY
    WITH visible AS (
      SELECT q.id
      FROM unnest(v_leased) AS leased (instance_id)
      JOIN orchestrator_queue AS q ON q.instance_id = leased.instance_id
      WHERE q.visible_at <= v_now
        AND (q.lock_token IS NULL OR q.locked_until <= v_now_ms)
        AND (
          p_min_version IS NULL
          -- Not EXISTS: below OR it may be planned as one read of the whole table.
          OR (
            SELECT i.instance_id
            FROM instances AS i
            JOIN executions AS e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
            WHERE i.instance_id = q.instance_id
              AND e.duroxide_version_major IS NOT NULL
              AND ARRAY[e.duroxide_version_major, e.duroxide_version_minor, e.duroxide_version_patch]
                NOT BETWEEN p_min_version AND p_max_version
          ) IS NULL
        )
      ORDER BY q.id
      FOR UPDATE OF q SKIP LOCKED
    ),
    marked AS (
      UPDATE orchestrator_queue AS q
      SET lock_token = v_secret,
          locked_until = v_until_ms,
          attempt_count = q.attempt_count + 1
      FROM visible
      WHERE q.id = visible.id
      RETURNING q.instance_id, q.id, q.work_item, q.created_at, q.attempt_count
    ),
    batch AS (
      SELECT
        marked.instance_id,
        max(marked.attempt_count) AS attempt_count,
        json_agg(marked.id ORDER BY marked.id) AS message_ids,
        json_agg(marked.work_item ORDER BY marked.id) AS messages,
        json_agg(round(extract(epoch FROM marked.created_at) * 1000)::bigint ORDER BY marked.id) AS enqueued_at_ms
      FROM marked
      GROUP BY marked.instance_id
    )
    SELECT
      batch.instance_id,
      v_secret || '.' || batch.instance_id,
      batch.attempt_count,
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
      -- Ids count events up from 1, so one look at the index tells. Without an instance row the started event says what
      -- the instance is.
      SELECT p_history_limit IS NULL OR i.instance_id IS NULL OR (
        SELECT h.event_id
        FROM history AS h
        WHERE h.instance_id = batch.instance_id
          AND h.execution_id = execution.execution_id
          AND h.event_id > p_history_limit
        LIMIT 1
      ) IS NULL AS is_whole
    ) AS known
    ORDER BY array_position(v_seen, batch.instance_id);

    GET DIAGNOSTICS v_claimed = ROW_COUNT;
    IF v_claimed < cardinality(v_leased) THEN
      -- Their messages were settled, or their version was pinned, between the look and the lock.
      DELETE FROM instance_locks AS l
      WHERE l.instance_id = ANY (v_leased)
        AND l.lock_token = v_secret
        AND NOT EXISTS (
          SELECT FROM orchestrator_queue AS q
          WHERE q.instance_id = l.instance_id
            AND q.lock_token = v_secret
        );
    END IF;
    v_missing := v_missing - v_claimed;
    EXIT WHEN v_missing <= 0;
  END LOOP;
END
$$;
