-- Built by scripts/prisma/buildMigration.mjs from prisma/functions; edit the functions there.
--
-- Purpose: create functions.
-- Effect on running workers: their next statement runs the functions below.

-- The functions below keep this path: a temporary table of their caller must not hide ours.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Notes why these instances do not continue, and where they are: a block holds while they stay there. An instance is
-- given once; one without a row of instances, whose start is still queued, has no block.
--
-- Bound: one look at the end of each history. Locks: rows of blocked_instances by instance.
CREATE OR REPLACE FUNCTION dx_block_instances(
  p_instance_ids text[],
  p_blocks jsonb[],                -- {reason, problem, eventId, build}
  p_now_ms bigint
) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
  IF p_instance_ids = '{}' THEN
    RETURN;
  END IF;
  INSERT INTO blocked_instances AS b (
    instance_id, execution_id, last_event_id, reason, problem, event_id, build, since, tried_at, tries
  )
  SELECT
    i.instance_id, i.current_execution_id, COALESCE(last.event_id, 0), a.block ->> 'reason', a.block ->> 'problem',
    (a.block ->> 'eventId')::bigint, a.block ->> 'build', now.at, now.at, 1
  FROM unnest(p_instance_ids, p_blocks) AS a (instance_id, block)
  CROSS JOIN (SELECT to_timestamp(p_now_ms::float8 / 1000) AS at) AS now
  JOIN instances AS i ON i.instance_id = a.instance_id
  LEFT JOIN LATERAL (
    SELECT h.event_id FROM history AS h
    WHERE h.instance_id = i.instance_id AND h.execution_id = i.current_execution_id
    ORDER BY h.event_id DESC LIMIT 1
  ) AS last ON true
  ORDER BY i.instance_id COLLATE "C"
  ON CONFLICT (instance_id) DO UPDATE
  SET execution_id = EXCLUDED.execution_id, last_event_id = EXCLUDED.last_event_id,
      reason = EXCLUDED.reason, problem = EXCLUDED.problem, event_id = EXCLUDED.event_id,
      build = EXCLUDED.build, tried_at = EXCLUDED.tried_at,
      -- An instance that has continued meanwhile is blocked anew.
      (since, tries) = (
        SELECT
          CASE WHEN stays THEN b.since ELSE EXCLUDED.since END,
          CASE WHEN stays THEN b.tries + 1 ELSE 1 END
        FROM (
          SELECT (b.execution_id, b.last_event_id) = (EXCLUDED.execution_id, EXCLUDED.last_event_id) AS stays
        ) AS compared
      );
END
$$;

-- Abandons claimed batches: frees their messages and ends the locks. With a delay, pauses the instance.
--
-- A pause is a lock with an empty token that lasts as long as the delay. Until it expires no process, Duroxide's
-- included, claims the batch or any message that arrives in the meantime, so messages keep their order. Their times do
-- not change.
--
-- With begins_first, the messages that begin an execution and are not in the batch get in front of all others of their
-- instance, and where there is one, the instance is not paused. A start is put in front of the mail that is stored
-- before it; but mail of a transaction that commits later has a smaller id, and may fill every batch.
--
-- With a block, the instance is blocked: blocked_instances says why no turn could be run, and where the instance was.
--
-- Returns one outcome per item, in order: Done, or LockLost if the token is unknown, superseded or settled (of two
-- items with one token, the second). An expired lock that no other process has taken over can still be abandoned.
-- Bound: the batches of these locks; with begins_first, the messages of these instances. Locks: instance locks by
-- instance; messages that begin an execution (skip locked); queue rows of the batches; rows of blocked_instances.
CREATE OR REPLACE FUNCTION dx_abandon_orchestration_items(
  -- [{token, delay_ms, ignore_attempt, begins_first, block: {reason, problem, eventId, build}}];
  -- delay null or 0: no pause
  p_items jsonb, p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
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
  v_outcomes text[] := array_fill('LockLost'::text, ARRAY[jsonb_array_length(p_items)]);
  v_instances text[] := '{}';
  v_secrets text[] := '{}';
  v_claimed_ms bigint[] := '{}';
  v_delays bigint[] := '{}';
  v_ignores boolean[] := '{}';
  v_wanting text[] := '{}';
  v_blocked text[] := '{}';
  v_blocks jsonb[] := '{}';
  v_begun text[];
  v_lock record;
  v_previous text;
BEGIN
  FOR v_lock IN
    SELECT a.position, a.delay_ms, a.ignore_attempt, a.begins_first, a.block, l.instance_id, l.lock_token, l.locked_at
    FROM ROWS FROM (
      jsonb_to_recordset(p_items)
      AS (token text, delay_ms bigint, ignore_attempt boolean, begins_first boolean, block jsonb)
    ) WITH ORDINALITY AS a (token, delay_ms, ignore_attempt, begins_first, block, position)
    JOIN instance_locks AS l ON l.instance_id = substr(a.token, 38)
    WHERE l.lock_token = left(a.token, 36)
    ORDER BY l.instance_id COLLATE "C", a.position FOR UPDATE OF l
  LOOP
    CONTINUE WHEN v_lock.instance_id = v_previous;
    v_previous := v_lock.instance_id;
    v_outcomes[v_lock.position] := 'Done';
    v_instances := v_instances || v_lock.instance_id;
    v_secrets := v_secrets || v_lock.lock_token;
    v_claimed_ms := v_claimed_ms || v_lock.locked_at;
    v_delays := v_delays || v_lock.delay_ms;
    v_ignores := v_ignores || v_lock.ignore_attempt;
    IF v_lock.begins_first THEN
      v_wanting := v_wanting || v_lock.instance_id;
    END IF;
    IF v_lock.block IS NOT NULL THEN
      v_blocked := v_blocked || v_lock.instance_id;
      v_blocks := v_blocks || v_lock.block;
    END IF;
  END LOOP;

  IF v_wanting <> '{}' THEN
    WITH begin AS (
      SELECT message.id FROM unnest(v_instances, v_secrets) AS a (instance_id, lock_token)
      JOIN orchestrator_queue AS message ON message.instance_id = a.instance_id
      WHERE a.instance_id = ANY (v_wanting)
        AND message.due_at <= to_timestamp(v_now_ms::float8 / 1000)
        AND (message.lock_token = a.lock_token) IS NOT TRUE
        -- Not LIKE, which reads whole messages.
        AND (left(message.work_item, 21) = '{"StartOrchestration"' OR left(message.work_item, 16) = '{"ContinueAsNew"')
      ORDER BY message.id DESC -- the last one gets the smallest id
      FOR UPDATE OF message SKIP LOCKED
    ),
    -- Numbered before the update, whose plan may visit the rows in another order.
    numbered AS MATERIALIZED (
      SELECT begin.id, -nextval('orchestrator_queue_id_seq') AS new_id FROM begin
    ),
    moved AS (
      UPDATE orchestrator_queue AS q
      SET id = numbered.new_id, visible_at = least(q.visible_at, q.created_at)
      FROM numbered WHERE q.id = numbered.id
      RETURNING q.instance_id
    )
    SELECT array_agg(moved.instance_id) INTO v_begun FROM moved;
    IF v_begun IS NOT NULL THEN
      SELECT array_agg(CASE WHEN a.instance_id <> ALL (v_begun) THEN a.delay_ms END ORDER BY a.position)
      INTO v_delays
      FROM unnest(v_instances, v_delays) WITH ORDINALITY AS a (instance_id, delay_ms, position);
    END IF;
  END IF;

  UPDATE orchestrator_queue AS q
  SET lock_token = NULL, locked_until = NULL,
      attempt_count = CASE
        WHEN v_ignores[array_position(v_instances, q.instance_id)] THEN greatest(q.attempt_count - 1, 0)
        ELSE q.attempt_count
      END
  -- Not a plain join: planned while statistics call the queue empty, it would read all of it.
  WHERE q.id = ANY (ARRAY(
    SELECT message.id FROM unnest(v_instances, v_secrets, v_claimed_ms) AS claimed (instance_id, lock_token, locked_at)
    CROSS JOIN LATERAL (
      SELECT m.id FROM orchestrator_queue AS m
      WHERE m.instance_id = claimed.instance_id
        AND m.due_at <= to_timestamp(claimed.locked_at::float8 / 1000)
        AND m.lock_token = claimed.lock_token
      OFFSET 0
    ) AS message
  ));

  PERFORM dx_block_instances(v_blocked, v_blocks, v_now_ms);

  UPDATE instance_locks AS l SET lock_token = '', locked_until = v_now_ms + a.delay_ms
  FROM unnest(v_instances, v_delays) AS a (instance_id, delay_ms)
  WHERE l.instance_id = a.instance_id AND a.delay_ms > 0;

  DELETE FROM instance_locks AS l USING unnest(v_instances, v_delays) AS a (instance_id, delay_ms)
  WHERE l.instance_id = a.instance_id AND COALESCE(a.delay_ms, 0) <= 0;
  RETURN v_outcomes;
END
$$;

-- Returns the id of the row that the token of an activity names; null for a text that is not such a token.
CREATE OR REPLACE FUNCTION dx_row_id(p_token text) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE WHEN p_token ~ '^[0-9]{1,18}[.]' THEN split_part(p_token, '.', 1)::bigint END
$$;

-- Returns the time that is so many milliseconds after the Unix epoch, at most the end of the year 9999: clients read no
-- later dates.
CREATE OR REPLACE FUNCTION dx_time_of(p_ms bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE
AS $$
  SELECT to_timestamp(least(p_ms, 253402300799999)::float8 / 1000)
$$;

-- Abandons claimed activities: they become visible again, at their old time or after a delay.
--
-- With a delay, created_at is never later than now: visible_at <= created_at says that a row is not to wait, and would
-- say it of this one if the clock was set back since it was stored.
--
-- With a block, its instance is blocked (see dx_block_instances); of several activities, by the first.
--
-- Returns one outcome per item, in order: Done, or LockLost if the token is unknown, superseded or settled (of two
-- items with one token, the second). An expired lock that no other worker has taken over can still be abandoned.
-- Bound: the rows given. Locks: worker rows by id; rows of blocked_instances by instance.
CREATE OR REPLACE FUNCTION dx_abandon_work_items(
  p_items jsonb,                   -- [{token, delay_ms, ignore_attempt, block: {reason, problem, eventId, build}}]
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
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
  v_outcomes text[] := array_fill('LockLost'::text, ARRAY[jsonb_array_length(p_items)]);
  v_ids bigint[] := '{}';
  v_visible_ms bigint[] := '{}';
  v_ignores boolean[] := '{}';
  v_blocked text[];
  v_blocks jsonb[];
  v_row record;
  v_previous bigint;
BEGIN
  FOR v_row IN
    SELECT
      item.position, CASE WHEN item.delay_ms > 0 THEN v_now_ms + item.delay_ms END AS visible_at_ms,
      item.ignore_attempt, activity.id
    FROM (
      SELECT a.*, dx_row_id(a.token) AS id
      FROM ROWS FROM (jsonb_to_recordset(p_items) AS (token text, delay_ms bigint, ignore_attempt boolean))
        WITH ORDINALITY AS a (token, delay_ms, ignore_attempt, position)
      ORDER BY id, a.position
    ) AS item
    CROSS JOIN LATERAL (
      SELECT w.id FROM worker_queue AS w
      WHERE w.id = item.id AND w.lock_token = split_part(item.token, '.', 2)
      FOR UPDATE
    ) AS activity
  LOOP
    CONTINUE WHEN v_row.id = v_previous;
    v_previous := v_row.id;
    v_outcomes[v_row.position] := 'Done';
    v_ids := v_ids || v_row.id;
    v_visible_ms := v_visible_ms || v_row.visible_at_ms;
    v_ignores := v_ignores || v_row.ignore_attempt;
  END LOOP;

  UPDATE worker_queue AS w
  SET lock_token = NULL, locked_until = NULL,
      (visible_at, created_at, attempt_count) = (
        SELECT
          CASE WHEN v_visible_ms[item.at] IS NULL THEN w.visible_at ELSE dx_time_of(v_visible_ms[item.at]) END,
          CASE
            WHEN v_visible_ms[item.at] IS NULL THEN w.created_at
            ELSE least(w.created_at, to_timestamp(v_now_ms::float8 / 1000))
          END,
          CASE WHEN v_ignores[item.at] THEN greatest(w.attempt_count - 1, 0) ELSE w.attempt_count END
        FROM (SELECT array_position(v_ids, w.id) AS at OFFSET 0) AS item
      )
  -- Not a plain join: planned while statistics call the queue empty, it would read all of it.
  WHERE w.id = ANY (v_ids);

  IF p_items @? '$[*].block' THEN
    SELECT array_agg(blocked.instance_id), array_agg(blocked.block)
    INTO v_blocked, v_blocks
    FROM (
      SELECT DISTINCT ON (w.instance_id COLLATE "C") w.instance_id, item.value -> 'block' AS block
      FROM jsonb_array_elements(p_items) WITH ORDINALITY AS item (value, position)
      CROSS JOIN LATERAL (
        SELECT x.instance_id FROM worker_queue AS x WHERE x.id = dx_row_id(item.value ->> 'token')
        OFFSET 0
      ) AS w
      WHERE item.value ? 'block' AND v_outcomes[item.position] = 'Done'
      ORDER BY w.instance_id COLLATE "C", item.position
    ) AS blocked;
    PERFORM dx_block_instances(v_blocked, v_blocks, v_now_ms);
  END IF;
  RETURN v_outcomes;
END
$$;

-- Stores changes of attributes: the last change of a name counts. A part of dx_store_turns.
--
-- Bound: the changes. Locks: rows of attributes.
CREATE OR REPLACE FUNCTION dx_store_attributes(
  p_turns dx_turn[],
  p_changes jsonb                  -- [{ack, action: attribute, name, text, number, time_ms}]; without a value the
                                   --   attribute is removed. Other actions are left out
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_change record;
BEGIN
  -- One by one: a join to the set could become one read of the whole table.
  FOR v_change IN
    SELECT DISTINCT ON (turn.instance_id COLLATE "C", c.name COLLATE "C")
      turn.instance_id, c.name, c.text, c.number, to_timestamp(c.time_ms::float8 / 1000) AS time,
      (SELECT i.created_at FROM instances AS i WHERE i.instance_id = turn.instance_id) AS created_at
    FROM ROWS FROM (
      jsonb_to_recordset(p_changes)
        AS (ack bigint, action text, name text, text text, number double precision, time_ms bigint)
    ) WITH ORDINALITY AS c (ack, action, name, text, number, time_ms, position)
    CROSS JOIN LATERAL (SELECT p_turns[c.ack].instance_id, p_turns[c.ack].execution_id) AS turn
    WHERE c.action = 'attribute' AND turn.execution_id IS NOT NULL
    ORDER BY turn.instance_id COLLATE "C", c.name COLLATE "C", c.position DESC
  LOOP
    IF num_nonnulls(v_change.text, v_change.number, v_change.time) = 0 THEN
      DELETE FROM attributes AS a
      WHERE a.instance_id = v_change.instance_id
        AND a.name || '' = v_change.name; -- not by the index of all that have the attribute
    ELSIF v_change.created_at IS NOT NULL THEN
      INSERT INTO attributes AS a (instance_id, name, text_value, number_value, time_value, created_at)
      VALUES (
        v_change.instance_id, v_change.name, v_change.text, v_change.number, v_change.time, v_change.created_at
      )
      ON CONFLICT (instance_id, name) DO UPDATE
      SET text_value = excluded.text_value, number_value = excluded.number_value, time_value = excluded.time_value,
          created_at = excluded.created_at
      -- The first turn repeats what the start has stored.
      WHERE (a.text_value, a.number_value, a.time_value, a.created_at)
        IS DISTINCT FROM (excluded.text_value, excluded.number_value, excluded.time_value, excluded.created_at);
    END IF;
  END LOOP;
END
$$;

-- Locks the row of a stream, and inserts the row if the stream is new. Returns the id of the stream. Returns null if
-- the instance does not exist, or if another transaction has locked the instance to delete it and p_waits is false. A
-- part of dx_append_chunks and dx_store_chunks.
--
-- Bound: the stream. Locks: the row of the instance (key share) if the stream is new, then the row of the stream.
CREATE OR REPLACE FUNCTION dx_lock_stream(
  p_instance_id text, p_name text, p_waits boolean, p_now timestamptz
) RETURNS bigint LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_id bigint;
BEGIN
  SELECT s.id INTO v_id FROM progress_streams AS s
  WHERE s.instance_id = p_instance_id AND s.name = p_name
  FOR UPDATE;
  IF FOUND THEN
    RETURN v_id;
  END IF;
  -- A deletion that comes now waits, and finds the row.
  IF p_waits THEN
    PERFORM FROM instances AS i WHERE i.instance_id = p_instance_id FOR KEY SHARE;
  ELSE
    PERFORM FROM instances AS i WHERE i.instance_id = p_instance_id FOR KEY SHARE SKIP LOCKED;
  END IF;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  INSERT INTO progress_streams AS s (instance_id, name, appended_at) VALUES (p_instance_id, p_name, p_now)
  ON CONFLICT (instance_id, name) DO UPDATE SET appended_at = s.appended_at -- locks it
  RETURNING s.id INTO v_id;
  RETURN v_id;
END
$$;

-- Appends chunks to a stream that the caller has locked, and deletes the oldest ones that are then too many. The newest
-- chunk always stays. A part of dx_append_chunks and dx_store_chunks.
--
-- Bound: the chunks given, and those deleted. Locks: rows of progress_streams and progress_chunks.
CREATE OR REPLACE FUNCTION dx_insert_chunks(
  p_stream_id bigint,
  p_writer text,
  p_number bigint,                 -- of the first chunk
  p_chunks text[],                 -- at least one
  p_keep_chunks bigint,
  p_keep_bytes bigint,
  p_now timestamptz
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_stream progress_streams;
  v_bytes bigint;
BEGIN
  SELECT s.* INTO v_stream FROM progress_streams AS s WHERE s.id = p_stream_id;
  INSERT INTO progress_chunks (stream_id, chunk_offset, bytes_before, writer, number, chunk, appended_at)
  SELECT
    p_stream_id, v_stream.next_offset + c.position - 1,
    v_stream.next_bytes + COALESCE(
      sum(octet_length(c.chunk)) OVER (ORDER BY c.position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0
    ),
    p_writer, p_number + c.position - 1, c.chunk, p_now
  FROM unnest(p_chunks) WITH ORDINALITY AS c (chunk, position);
  SELECT sum(octet_length(chunk)) INTO v_bytes FROM unnest(p_chunks) AS given (chunk);

  v_stream.next_offset := v_stream.next_offset + cardinality(p_chunks);
  v_stream.next_bytes := v_stream.next_bytes + v_bytes;
  IF v_stream.next_offset - v_stream.first_offset > p_keep_chunks
    OR v_stream.next_bytes - v_stream.first_bytes > p_keep_bytes
  THEN
    -- Reads what is deleted next, and one more.
    SELECT c.chunk_offset, c.bytes_before INTO v_stream.first_offset, v_stream.first_bytes
    FROM progress_chunks AS c
    WHERE c.stream_id = p_stream_id
      AND c.chunk_offset >= GREATEST(v_stream.first_offset, v_stream.next_offset - p_keep_chunks)
      AND (c.bytes_before >= v_stream.next_bytes - p_keep_bytes OR c.chunk_offset = v_stream.next_offset - 1)
    ORDER BY c.chunk_offset LIMIT 1;
    DELETE FROM progress_chunks AS c
    WHERE c.stream_id = p_stream_id AND c.chunk_offset < v_stream.first_offset;
  END IF;
  UPDATE progress_streams AS s
  SET first_offset = v_stream.first_offset, next_offset = v_stream.next_offset, first_bytes = v_stream.first_bytes,
      next_bytes = v_stream.next_bytes, appended_at = p_now
  WHERE s.id = p_stream_id;
END
$$;

-- Stores the chunks that programs append. A part of dx_store_turns, so that a chunk is there if and only if its turn
-- is.
--
-- Bound: the chunks, and those that they drive out. Locks: rows of progress_streams by instance and name. The caller
-- has excluded deletions of these instances.
CREATE OR REPLACE FUNCTION dx_store_chunks(
  p_turns dx_turn[],
  p_changes jsonb,                 -- [{ack, action: chunk, stream, chunk, keep_chunks, keep_bytes}]. Other actions are
                                   --   left out
  p_now timestamptz
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_stream record;
  v_stream_id bigint;
BEGIN
  FOR v_stream IN
    SELECT
      turn.instance_id, turn.execution_id, c.stream, array_agg(c.chunk ORDER BY c.position) AS chunks,
      min(c.keep_chunks) AS keep_chunks, min(c.keep_bytes) AS keep_bytes
    FROM ROWS FROM (
      jsonb_to_recordset(p_changes)
        AS (ack bigint, action text, stream text, chunk text, keep_chunks bigint, keep_bytes bigint)
    ) WITH ORDINALITY AS c (ack, action, stream, chunk, keep_chunks, keep_bytes, position)
    CROSS JOIN LATERAL (SELECT p_turns[c.ack].instance_id, p_turns[c.ack].execution_id) AS turn
    WHERE c.action = 'chunk' AND turn.execution_id IS NOT NULL
    GROUP BY turn.instance_id, turn.execution_id, c.stream
    ORDER BY turn.instance_id COLLATE "C", c.stream COLLATE "C"
  LOOP
    v_stream_id := dx_lock_stream(v_stream.instance_id, v_stream.stream, true, p_now);
    CONTINUE WHEN v_stream_id IS NULL; -- a turn of an instance that has no row
    PERFORM dx_insert_chunks(
      v_stream_id, v_stream.execution_id::text, 0, v_stream.chunks, v_stream.keep_chunks, v_stream.keep_bytes, p_now
    );
  END LOOP;
END
$$;

-- How many suspects one process may hold together if work with these deliveries without an end is one of them. The
-- number of p_groups that counts: the first one after two deliveries, the last one for all that were delivered more
-- often. Work that was delivered less than twice is not a suspect: the largest integer.
--
-- Each claim admits its candidates in order: a suspect while fewer are admitted than the smallest number so far. A
-- suspect that is refused therefore holds back those behind it, and is the first one of a later claim. Rule and
-- arithmetic are in src/provider/driver/suspects.ts.
CREATE OR REPLACE FUNCTION dx_group_of(
  p_deliveries integer,
  p_groups integer[]               -- at least one
) RETURNS integer LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE
    WHEN p_deliveries < 2 THEN 2147483647
    ELSE p_groups[least(p_deliveries - 1, cardinality(p_groups))]
  END
$$;

-- Lists the limits and routes of activities that wait for a slot, in order.
--
-- Bound: one look at an index for each. Locks: none. PostgreSQL puts it into the statement that calls it.
CREATE OR REPLACE FUNCTION dx_parked_activity_routes() RETURNS TABLE (limit_name text, route text) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  WITH RECURSIVE present AS (
    (
      SELECT w.limit_name, w.route FROM worker_queue AS w
      WHERE w.limit_name IS NOT NULL AND w.visible_at = 'infinity'
      ORDER BY w.limit_name, w.route LIMIT 1
    )
    UNION ALL
    SELECT next.limit_name, next.route
    FROM present
    CROSS JOIN LATERAL (
      SELECT w.limit_name, w.route FROM worker_queue AS w
      WHERE w.limit_name IS NOT NULL AND w.visible_at = 'infinity'
        AND (w.limit_name, w.route) > (present.limit_name, present.route)
      ORDER BY w.limit_name, w.route LIMIT 1
    ) AS next
  )
  SELECT present.limit_name, present.route FROM present
$$;

-- Whether a worker takes activities with this route (name and tag).
CREATE OR REPLACE FUNCTION dx_is_served(
  p_route text, p_names text[], p_untagged boolean,
  p_tags text[]                    -- null: every tag
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF p_untagged AND p_route = ANY (p_names) THEN
    RETURN true;
  END IF;
  IF strpos(p_route, ' #') = 0 THEN
    RETURN false;
  END IF;
  RETURN EXISTS (
    SELECT FROM unnest(p_names) AS served (name)
    WHERE starts_with(p_route, served.name || ' #')
      AND (p_tags IS NULL OR substr(p_route, length(served.name) + 3) = ANY (p_tags))
  );
END
$$;

-- Returns the advisory lock of a limit; see dx_admit_at_once.
CREATE OR REPLACE FUNCTION dx_limit_lock(
  p_kind text, p_name text, p_part integer DEFAULT 0 -- from 1: one of those that may give slots at once
) RETURNS bigint LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN hashtextextended(concat_ws(' ', 'limit', p_part, p_kind, p_name), 'limits'::regclass::oid::bigint);
END
$$;

-- Whether no process holds a row: it has no lock, or its lock has ended.
CREATE OR REPLACE FUNCTION dx_is_free(
  p_token text, p_until_ms bigint, p_now_ms bigint
) RETURNS boolean LANGUAGE sql IMMUTABLE
AS $$
  SELECT p_token IS NULL OR p_until_ms <= p_now_ms
$$;

-- Whether a worker may take activities of a session: no other worker owns it, who may be full.
--
-- Bound: one row. Locks: none.
CREATE OR REPLACE FUNCTION dx_may_take_session(
  p_session_id text,
  p_worker_id text,                -- null takes none
  p_now_ms bigint
) RETURNS boolean LANGUAGE plpgsql STABLE
-- settings of the caller
AS $$
BEGIN
  RETURN p_worker_id IS NOT NULL
    AND NOT EXISTS (
      SELECT FROM sessions AS s
      WHERE s.session_id = p_session_id AND s.locked_until > p_now_ms AND s.worker_id <> p_worker_id
    );
END
$$;

-- Returns the tag of an activity from the column `tag`; null for the value of dx_no_tag.
CREATE OR REPLACE FUNCTION dx_tag(p_stored text) RETURNS text LANGUAGE sql IMMUTABLE
AS $$
  SELECT NULLIF(p_stored, 'duroxide-prisma')
$$;

-- Whether a worker takes an activity of a route that dx_is_served has let through. Its tag decides, as a name may end
-- like the tag of another route.
CREATE OR REPLACE FUNCTION dx_is_taken(
  p_route text,
  p_stored_tag text,               -- as in the column `tag`
  p_names text[],                  -- null: every name
  p_untagged boolean,
  p_tags text[]                    -- null: every tag
) RETURNS boolean LANGUAGE sql IMMUTABLE
AS $$
  SELECT
    CASE WHEN dx_tag(p_stored_tag) IS NULL THEN p_untagged ELSE p_tags IS NULL OR p_stored_tag = ANY (p_tags) END
    AND (p_names IS NULL OR left(p_route, length(p_route) - COALESCE(length(dx_tag(p_stored_tag)) + 2, 0)) = ANY (p_names))
$$;

-- Returns when all used tokens of a rate are back, in milliseconds since the Unix epoch; null without a rate.
--
-- A rate is kept by this number alone (GCRA): a token takes p_rate_ms / p_rate to come back, and p_burst may be
-- missing. A stored time that is later than tokens explain is from before the clock was set back, or the rate raised.
CREATE OR REPLACE FUNCTION dx_tokens_back_ms(
  p_stored_ms double precision,    -- null: none were used
  p_rate integer, p_rate_ms bigint, p_burst integer, p_now_ms bigint
) RETURNS double precision LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE WHEN p_rate IS NOT NULL THEN
    greatest(least(COALESCE(p_stored_ms, 0), p_now_ms + (p_burst + 1) * p_rate_ms::float8 / p_rate), p_now_ms)
  END
$$;

-- Returns the bounds of a key of a limit: its own, or those of each key. Its tokens, if it has used some.
--
-- Bound: one row. Locks: none.
CREATE OR REPLACE FUNCTION dx_limit_key(p_limit limits, p_key text) RETURNS limit_keys LANGUAGE plpgsql STABLE
-- settings of the caller
AS $$
DECLARE
  v_key limit_keys;
BEGIN
  SELECT k.* INTO v_key FROM limit_keys AS k
  WHERE k.kind = p_limit.kind AND k.name = p_limit.name AND k.key = p_key;
  IF v_key.is_own IS NOT TRUE THEN
    v_key.concurrency := p_limit.key_concurrency;
    v_key.rate := p_limit.key_rate;
    v_key.rate_ms := p_limit.key_rate_ms;
    v_key.burst := p_limit.key_burst;
  END IF;
  RETURN v_key;
END
$$;

-- Returns when the next token of a rate is free, in milliseconds since the Unix epoch; null without a rate.
CREATE OR REPLACE FUNCTION dx_next_token_ms(
  p_back_ms double precision,      -- when all are back: of dx_tokens_back_ms
  p_rate integer, p_rate_ms bigint, p_burst integer
) RETURNS double precision LANGUAGE sql IMMUTABLE
AS $$
  SELECT p_back_ms - (p_burst - 1) * p_rate_ms::float8 / p_rate
$$;

-- Deletes ten rows of keys whose tokens are back, so that rows of keys do not add up.
--
-- Bound: ten rows. Locks: these rows.
CREATE OR REPLACE FUNCTION dx_clean_limit_keys(p_limit limits, p_now_ms bigint) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  IF p_limit.key_rate IS NULL THEN
    RETURN;
  END IF;
  DELETE FROM limit_keys AS k
  -- By ctid: PostgreSQL 15 reads all keys of the name to find ten of them.
  WHERE k.ctid = ANY (ARRAY(
    SELECT old.ctid FROM limit_keys AS old
    WHERE old.kind = p_limit.kind AND old.name = p_limit.name AND old.free_ms <= p_now_ms AND NOT old.is_own
    ORDER BY old.free_ms LIMIT 10
    FOR UPDATE
  ));
END
$$;

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

-- Returns what this session remembers of the last full look of a claim, or of a handover, through a queue: the time
-- before which no row was waiting, in milliseconds since the Unix epoch, then the routes that had rows. Null: look
-- through all of it.
--
-- It exists only where rows died in great number and could not be removed (dx_set_mark). A row that becomes free below
-- the mark, or whose transaction commits that late, is found by the next full look.
CREATE OR REPLACE FUNCTION dx_read_mark(
  p_setting text,                  -- duroxide_prisma.<queue>, or duroxide_prisma.handover
  p_key text,                      -- what is asked for
  p_now_ms bigint
) RETURNS text[] LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT CASE WHEN mark[1] = p_key AND p_now_ms BETWEEN mark[2]::bigint AND mark[3]::bigint THEN mark[4:] END
  FROM (SELECT NULLIF(current_setting(p_setting, true), '')::text[]) AS stored (mark)
$$;

-- Lists the routes that have activities without a session, in order.
--
-- Bound: one look at an index for each. Locks: none. PostgreSQL puts it into the statement that calls it.
CREATE OR REPLACE FUNCTION dx_routes_of_activities() RETURNS TABLE (route text) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  WITH RECURSIVE present AS (
    (SELECT q.route FROM worker_queue AS q WHERE q.session_id IS NULL ORDER BY q.route LIMIT 1)
    UNION ALL
    SELECT (
      SELECT q.route FROM worker_queue AS q
      WHERE q.session_id IS NULL AND q.route > present.route
      ORDER BY q.route LIMIT 1
    )
    FROM present WHERE present.route IS NOT NULL
  )
  SELECT present.route FROM present
  WHERE present.route IS NOT NULL
$$;

-- Lists the routes that have activities with a session, in order.
--
-- Bound: one look at an index for each. Locks: none. PostgreSQL puts it into the statement that calls it.
CREATE OR REPLACE FUNCTION dx_routes_of_sessions() RETURNS TABLE (route text) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  WITH RECURSIVE present AS (
    (SELECT q.route FROM worker_queue AS q WHERE num_nulls(q.session_id) = 0 ORDER BY q.route LIMIT 1)
    UNION ALL
    SELECT (
      SELECT q.route FROM worker_queue AS q
      WHERE num_nulls(q.session_id) = 0 AND q.route > present.route
      ORDER BY q.route LIMIT 1
    )
    FROM present WHERE present.route IS NOT NULL
  )
  SELECT present.route FROM present
  WHERE present.route IS NOT NULL
$$;

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

-- Returns the p_most oldest activities that a worker can claim, in the order in which they became visible: those
-- without a session of p_routes, and those of p_sessions that have one of p_session_routes.
-- Bound: p_most activities per route and session, and the locked ones in front of them. Locks: none.
CREATE OR REPLACE FUNCTION dx_next_activities(
  p_most integer, p_routes text[],
  p_from timestamptz,              -- no activity without a session that became visible earlier waits
  p_sessions text[], p_session_routes text[],
  p_suspects boolean,              -- whether to return suspects, too
  p_names text[],                  -- this and the following: as in dx_fetch_work_items
  p_untagged boolean, p_tags text[], p_now timestamptz,
  p_expired_ms bigint              -- a lock that ended by then may be taken over
) RETURNS TABLE (id bigint, attempt_count integer) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  SELECT old.id, old.attempt_count
  FROM (
    SELECT activity.* FROM unnest(p_routes) AS wanted (route)
    CROSS JOIN LATERAL (
      SELECT w.id, w.visible_at, w.attempt_count FROM worker_queue AS w
      WHERE w.session_id IS NULL
        AND w.route = wanted.route
        AND w.visible_at BETWEEN p_from AND p_now
        AND dx_is_free(w.lock_token, w.locked_until, p_expired_ms)
        AND (p_suspects OR w.attempt_count < 2)
        AND dx_is_taken(w.route, w.tag, p_names, p_untagged, p_tags)
      ORDER BY w.visible_at, w.id LIMIT p_most
    ) AS activity
    UNION ALL
    SELECT activity.* FROM unnest(p_sessions) AS wanted (session_id)
    CROSS JOIN unnest(p_session_routes) AS program (route)
    CROSS JOIN LATERAL (
      SELECT w.id, w.visible_at, w.attempt_count FROM worker_queue AS w
      WHERE w.session_id IS NOT NULL
        AND w.route = program.route
        AND w.session_id = wanted.session_id
        AND w.visible_at <= p_now
        AND dx_is_free(w.lock_token, w.locked_until, p_expired_ms)
        AND (p_suspects OR w.attempt_count < 2)
        AND dx_is_taken(w.route, w.tag, p_names, p_untagged, p_tags)
      ORDER BY w.visible_at, w.id LIMIT p_most
    ) AS activity
  ) AS old
  ORDER BY old.visible_at, old.id LIMIT p_most
$$;

-- Makes a worker the owner of sessions, with a lock of p_lock_timeout_ms from now, as far as no other worker owns them.
--
-- Returns those it owns now. Bound: the sessions given. Locks, without waiting: their advisory locks (try), then their
-- rows (skip locked).
CREATE OR REPLACE FUNCTION dx_take_sessions(
  p_sessions text[], p_worker_id text,
  p_lock_timeout_ms bigint,        -- milliseconds, > 0
  p_now_ms bigint
) RETURNS text[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_session text;
  v_busy text[] := '{}';
  v_owned text[];
BEGIN
  FOREACH v_session IN ARRAY p_sessions LOOP
    IF NOT pg_try_advisory_xact_lock(hashtext('session ' || v_session)) THEN
      v_busy := v_busy || v_session;
    END IF;
  END LOOP;
  WITH locked AS (
    SELECT s.session_id FROM sessions AS s
    WHERE s.session_id = ANY (p_sessions)
      AND s.session_id <> ALL (v_busy)
      AND (s.locked_until <= p_now_ms OR s.worker_id = p_worker_id)
    ORDER BY s.session_id COLLATE "C" FOR UPDATE SKIP LOCKED
  ),
  refreshed AS (
    UPDATE sessions AS s
    SET worker_id = p_worker_id, locked_until = p_now_ms + p_lock_timeout_ms, last_activity_at = p_now_ms
    FROM locked WHERE s.session_id = locked.session_id
    RETURNING s.session_id
  ),
  created AS (
    INSERT INTO sessions (session_id, worker_id, locked_until, last_activity_at)
    SELECT wanted.session_id, p_worker_id, p_now_ms + p_lock_timeout_ms, p_now_ms
    FROM unnest(p_sessions) AS wanted (session_id)
    WHERE wanted.session_id <> ALL (v_busy)
      AND NOT EXISTS (SELECT FROM sessions AS s WHERE s.session_id = wanted.session_id)
    ORDER BY wanted.session_id COLLATE "C"
    ON CONFLICT (session_id) DO NOTHING RETURNING session_id
  ),
  -- The worker owns the session already: its row is only busy with an ack or a renewal of the same worker.
  kept AS (
    SELECT s.session_id FROM sessions AS s
    WHERE s.session_id = ANY (p_sessions) AND s.worker_id = p_worker_id AND s.locked_until > p_now_ms
  )
  SELECT COALESCE(array_agg(owned.session_id), '{}') INTO v_owned
  FROM (
    SELECT refreshed.session_id FROM refreshed
    UNION
    SELECT created.session_id FROM created
    UNION
    SELECT kept.session_id FROM kept
  ) AS owned;
  RETURN v_owned;
END
$$;

-- Returns the name of the channel on which listeners of this schema learn of work or changes: `<schema>_<kind>`. A
-- longer name than PostgreSQL accepts (63 bytes) becomes `dx_<32 hexadecimal digits>_<kind>`, from the schema's SHA-256
-- in UTF-8. src/prisma/internal/channels.ts makes the same names.
CREATE OR REPLACE FUNCTION dx_channel(
  p_kind text                      -- orch_work, worker_work, changes or queues
) RETURNS text LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_schema text := current_schema();
  v_name text := v_schema || '_' || p_kind;
BEGIN
  IF octet_length(convert_to(v_name, 'UTF8')) <= 63 THEN
    RETURN v_name;
  END IF;
  RETURN 'dx_' || left(encode(sha256(convert_to(v_schema, 'UTF8')), 'hex'), 32) || '_' || p_kind;
END
$$;

-- Whether this statement may notify: not under `SET duroxide.notify = off`, nor while more than half of the server's
-- queue of notifications is full. A notification then would fail the statement that stores the work.
--
-- Bound: none. Locks: none. PostgreSQL puts it into the statement that calls it.
CREATE OR REPLACE FUNCTION dx_may_notify() RETURNS boolean LANGUAGE sql VOLATILE
-- settings of the caller
AS $$
  SELECT current_setting('duroxide.notify', true) IS DISTINCT FROM 'off' AND pg_notification_queue_usage() <= 0.5
$$;

-- Notifies listeners that work of a queue becomes visible at these times: the payload is one time in milliseconds since
-- the Unix epoch. The caller leaves it out under `duroxide.quiet = on`, which processes set that announce what they
-- store after the commit: PostgreSQL commits transactions that notify one at a time.
--
-- One notification for each distinct time of a transaction. What is visible already has the time at which the
-- transaction began, so all its statements together make one notification of it. After 16 times only one that is
-- earlier than the others to come is notified: who looks at a time that was notified finds out about the next one
-- (dx_read_next_due).
--
-- It never fails the statement that stores the work: while more than half of the server's queue of notifications is
-- full, it does nothing, and `SET duroxide.notify = off` turns them off, as PREPARE TRANSACTION needs.
--
-- Bound: the times given. Locks: none before the commit.
CREATE OR REPLACE FUNCTION dx_notify(
  p_kind text,                     -- as in dx_channel, of a queue
  p_times timestamptz[]
) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
  v_clock timestamptz := clock_timestamp();
  v_now_ms bigint := floor(extract(epoch FROM now()) * 1000);
  v_channel text := dx_channel(p_kind);
  -- What this transaction has notified. A rollback to a savepoint takes back both.
  v_setting text := 'duroxide.notified_' || md5(v_channel);
  v_known bigint[] := COALESCE(NULLIF(current_setting(v_setting, true), '')::bigint[], '{}');
  v_ms bigint;
BEGIN
  FOR v_ms IN
    SELECT DISTINCT CASE WHEN due.at <= v_clock THEN v_now_ms ELSE ceil(extract(epoch FROM due.at) * 1000)::bigint END
    FROM unnest(p_times) AS due (at) WHERE due.at < 'infinity'
    ORDER BY 1
  LOOP
    CONTINUE WHEN v_ms = ANY (v_known);
    IF cardinality(v_known) >= 16 THEN
      CONTINUE WHEN v_ms > (SELECT min(known.ms) FROM unnest(v_known) AS known (ms) WHERE known.ms > v_now_ms);
      v_known := v_known[:15];
    END IF;
    EXIT WHEN NOT dx_may_notify();
    v_known := v_known || v_ms;
    PERFORM pg_notify(v_channel, v_ms::text);
    PERFORM set_config(v_setting, v_known::text, true);
  END LOOP;
END
$$;

-- Whether a claim that has found nothing is to look for rows of the future that are not to wait, because the clock may
-- have been set back: once in ten seconds per session, and at once where the clock shows less than at the last such
-- look, which this session remembers.
CREATE OR REPLACE FUNCTION dx_looks_ahead(
  p_setting text,                  -- duroxide_prisma.<queue>_ahead
  p_key text,                      -- what is asked for
  p_now_ms bigint
) RETURNS boolean LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT CASE
    WHEN looked[1] = p_key AND p_now_ms BETWEEN looked[2]::bigint AND looked[2]::bigint + 10000 THEN false
    ELSE set_config(p_setting, ARRAY[p_key, p_now_ms::text]::text, false) IS NOT NULL
  END
  FROM (SELECT NULLIF(current_setting(p_setting, true), '')::text[]) AS mark (looked)
$$;

-- Gives activities of the future that are not to wait the present time, among the next 100 of each route: the clock was
-- set back since they were stored. Those that were given back with a delay have visible_at > created_at, and stay.
--
-- Returns how many there were. Bound: 100 rows per route. Locks: these activities (skip locked).
CREATE OR REPLACE FUNCTION dx_bring_activities_forward(
  p_routes text[],                 -- of activities without a session
  p_session_routes text[],         -- of activities with one
  p_now timestamptz,
  p_expired_ms bigint              -- a lock that ended by then may be taken over
) RETURNS integer LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_count integer;
BEGIN
  UPDATE worker_queue AS w SET visible_at = p_now
  WHERE w.id = ANY (ARRAY(
    SELECT free.id
    FROM (
      SELECT next.* FROM unnest(p_routes) AS wanted (route)
      CROSS JOIN LATERAL (
        SELECT w.id, w.visible_at, w.created_at FROM worker_queue AS w
        WHERE w.session_id IS NULL AND w.route = wanted.route AND w.visible_at > p_now
        ORDER BY w.visible_at, w.id LIMIT 100
      ) AS next
      UNION ALL
      SELECT next.* FROM unnest(p_session_routes) AS wanted (route)
      CROSS JOIN LATERAL (
        SELECT w.id, w.visible_at, w.created_at FROM worker_queue AS w
        WHERE num_nulls(w.session_id) = 0 AND w.route = wanted.route AND w.visible_at > p_now
        ORDER BY w.visible_at, w.id LIMIT 100
      ) AS next
    ) AS next
    CROSS JOIN LATERAL (
      SELECT w.id FROM worker_queue AS w
      WHERE w.id = next.id AND dx_is_free(w.lock_token, w.locked_until, p_expired_ms)
      FOR UPDATE SKIP LOCKED
    ) AS free
    WHERE next.visible_at <= next.created_at
  ));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END
$$;

-- Remembers in this session what a full look through a queue has found, for 20 times as long as it took, at most 10
-- seconds: full looks then take a twentieth of the time, however many dead rows an open transaction keeps. Returns the
-- mark.
--
-- The mark stays a second behind the time of the look, so that what is committed or given back within a second of its
-- time is found at once.
CREATE OR REPLACE FUNCTION dx_set_mark(
  p_setting text,                  -- as in dx_read_mark
  p_key text,                      -- what is asked for
  p_began timestamptz,             -- when the look began
  p_oldest timestamptz,            -- of the rows that wait; null without one
  p_routes text[]                  -- that had rows; null without one
) RETURNS text LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT set_config(
    p_setting,
    (
      ARRAY[
        p_key,
        look.began_ms::text, (look.ended_ms + least(20 * (look.ended_ms - look.began_ms), 10000))::text,
        least(look.began_ms - 1000, floor(extract(epoch FROM p_oldest) * 1000)::bigint)::text
      ] || p_routes
    )::text,
    false
  )
  FROM (
    SELECT
      floor(extract(epoch FROM p_began) * 1000)::bigint AS began_ms,
      ceil(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ended_ms
  ) AS look
$$;

-- Returns when the first activity without a session of these routes became visible that no process holds; null without
-- one.
-- Bound: per route, the visible activities that processes hold in front of the first other one. Locks: none.
CREATE OR REPLACE FUNCTION dx_oldest_activity(
  p_routes text[], p_now timestamptz,
  p_now_ms bigint                  -- the same time
) RETURNS timestamptz LANGUAGE plpgsql STABLE
-- settings of the caller
AS $$
BEGIN
  RETURN (
    SELECT min(oldest.visible_at) FROM unnest(p_routes) AS wanted (route)
    CROSS JOIN LATERAL (
      SELECT w.visible_at FROM worker_queue AS w
      WHERE w.session_id IS NULL
        AND w.route = wanted.route
        AND w.visible_at <= p_now
        AND dx_is_free(w.lock_token, w.locked_until, p_now_ms)
      ORDER BY w.visible_at, w.id LIMIT 1
    ) AS oldest
  );
END
$$;

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

-- Returns the status of an instance, as the column instances.status has it: Running, Completed, Failed or Cancelled.
-- Null for null.
--
-- An execution has no status for cancelled: it is Failed, with an output that says so. One that continues as a new one
-- has not ended its instance.
CREATE OR REPLACE FUNCTION dx_status(
  p_status text,                   -- of the current execution
  p_output text
) RETURNS text LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE
    WHEN p_status = 'ContinuedAsNew' THEN 'Running'
    WHEN p_status = 'Failed' AND starts_with(p_output, 'canceled: ') THEN 'Cancelled'
    ELSE p_status
  END
$$;

-- Returns the instances that messages of stored turns start: children and detached starts. Null without any.
-- Bound: the messages given. Locks: none.
CREATE OR REPLACE FUNCTION dx_instances_of_children(
  p_turns dx_turn[],
  p_orchestrator_items jsonb       -- as in dx_store_turns
) RETURNS dx_instance[] LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  IF jsonb_path_exists(p_orchestrator_items, '$[*].start') IS NOT TRUE THEN
    RETURN NULL;
  END IF;
  RETURN (
    SELECT array_agg(
      ROW(
        message.instance_id, child.orchestration_name, NULL, child.parent_instance_id, NULL, 0, 'Running', NULL, NULL,
        child.major, child.minor, child.patch, child.orchestration_version, false, message.ack, true,
        child.attributes,
        CASE
          WHEN child.major > 0 THEN (
            SELECT l.name FROM limits AS l WHERE l.kind = 'orchestration' AND l.name = child.orchestration_name
          )
        END,
        child.limit_key
      )::dx_instance
      ORDER BY message.position
    )
    FROM ROWS FROM (jsonb_to_recordset(p_orchestrator_items) AS (ack bigint, instance_id text, start jsonb))
      WITH ORDINALITY AS message (ack, instance_id, start, position)
    CROSS JOIN LATERAL jsonb_populate_record(NULL::dx_start, message.start) AS child
    WHERE p_turns[message.ack].execution_id IS NOT NULL AND message.start IS NOT NULL
  );
END
$$;

-- Returns what the column `tag` holds for an activity of TypeScript without a tag: null or, in a schema that Duroxide
-- made, a value that dx_tag reads as null. Processes of Duroxide take every row with null in this column, and would
-- abandon such an activity until it counts as poison.
-- Bound: one look into the catalog. Locks: none.
CREATE OR REPLACE FUNCTION dx_no_tag() RETURNS text LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN CASE WHEN to_regclass('_duroxide_migrations') IS NOT NULL THEN 'duroxide-prisma' END;
END
$$;

-- Puts what is queued of an activity under its limit, which was set: what waits without a lock waits for a slot from
-- now on, what has a lock has one. A part of dx_set_limit. Announces it to all processes.
--
-- Bound: the queued activities of the name. Locks: worker rows by id.
CREATE OR REPLACE FUNCTION dx_limit_activities(p_name text, p_now timestamptz) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_is_shared boolean := dx_no_tag() IS NOT NULL;
BEGIN
  UPDATE worker_queue AS w
  SET limit_name = p_name, limit_key = COALESCE(w.limit_key, ''),
      visible_at = CASE WHEN w.lock_token IS NULL THEN 'infinity' ELSE w.visible_at END
  WHERE w.id = ANY (ARRAY(
    SELECT queued.id
    FROM (SELECT routes.route FROM dx_routes_of_activities() AS routes UNION SELECT * FROM dx_routes_of_sessions())
      AS present (route)
    CROSS JOIN LATERAL (
      SELECT one.id FROM worker_queue AS one
      WHERE one.route = present.route AND one.session_id IS NULL
        AND dx_is_taken(one.route, one.tag, ARRAY[p_name], true, NULL)
        AND NOT (v_is_shared AND one.tag IS NULL)
      UNION ALL
      SELECT one.id FROM worker_queue AS one
      WHERE one.route = present.route AND num_nulls(one.session_id) = 0
        AND dx_is_taken(one.route, one.tag, ARRAY[p_name], true, NULL)
        AND NOT (v_is_shared AND one.tag IS NULL)
    ) AS queued
    WHERE dx_is_served(present.route, ARRAY[p_name], true, NULL)
    ORDER BY queued.id
  ));
  PERFORM dx_notify('worker_work', ARRAY[p_now]);
END
$$;

-- Returns the payload of the wake-ups of a task.
CREATE OR REPLACE FUNCTION dx_wakeup_of(
  p_id uuid,
  p_wakeup jsonb                   -- that of the task; null without one
) RETURNS jsonb LANGUAGE sql STABLE
-- settings of the caller
AS $$
  SELECT COALESCE(p_wakeup, jsonb_build_object('kind', 'task_wakeup', 'task_id', p_id))
$$;

-- Writes wake-ups of a task that waits for a slot of its limit: each stands for any task of its name.
--
-- Returns whether one waits; null if it has not found one among 1,000 keys.
-- Bound: 1,000 keys. Locks: none.
CREATE OR REPLACE FUNCTION dx_wake_limited_task(
  p_name text, p_count bigint,
  p_key text,                      -- that was served last: it looks behind it first
  p_now_ms bigint,
  p_at_ms bigint                   -- when they are delivered
) RETURNS boolean LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_key text := p_key;
  v_at timestamptz := 'infinity';
  v_has_wrapped boolean := false;
  v_next record;
BEGIN
  FOR v_visit IN 1 .. 1000 LOOP
    SELECT t.limit_key, t.run_at, t.id, t.queue, t.wakeup INTO v_next FROM queue_tasks AS t
    WHERE t.has_slot IS NOT NULL
      AND t.name = p_name
      AND NOT t.has_slot
      AND (t.limit_key, t.run_at) > (v_key, v_at)
      AND t.lost < 2
    ORDER BY t.limit_key, t.run_at, t.id LIMIT 1;
    IF NOT FOUND THEN
      IF v_has_wrapped THEN
        RETURN false;
      END IF;
      v_has_wrapped := true;
      v_key := '';
      v_at := '-infinity';
      CONTINUE;
    END IF;
    v_key := v_next.limit_key;
    v_at := 'infinity';
    IF v_next.run_at <= v_now THEN
      INSERT INTO queue_outbox (queue, payload, created_at, deliver_at)
      SELECT v_next.queue, dx_wakeup_of(v_next.id, v_next.wakeup), v_now, to_timestamp(p_at_ms::float8 / 1000)
      FROM generate_series(1, p_count);
      RETURN true;
    END IF;
  END LOOP;
  RETURN NULL;
END
$$;

-- Puts the tasks of a name under their limit, which was set or changed: one that runs has a slot, one that waits waits
-- for one. A part of dx_set_limit.
--
-- A task that another transaction has locked stays as it is until its next attempt.
-- Bound: the tasks that have not ended. Locks: the tasks of the name (skip locked).
CREATE OR REPLACE FUNCTION dx_limit_tasks(p_name text, p_now_ms bigint) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_count bigint;
BEGIN
  UPDATE queue_tasks AS t SET has_slot = t.status = 'Running', limit_key = COALESCE(t.limit_key, '')
  WHERE t.id = ANY (ARRAY(
    SELECT open.id FROM queue_tasks AS open
    WHERE open.look_at IS NOT NULL AND open.name = p_name AND num_nulls(open.has_slot) = 1
    FOR NO KEY UPDATE SKIP LOCKED
  ));
  v_count := (
    SELECT count(*)
    FROM (
      SELECT FROM queue_tasks AS t
      WHERE t.has_slot IS NOT NULL AND t.name = p_name AND NOT t.has_slot AND t.run_at <= v_now
      LIMIT 100
    ) AS waiting
  );
  UPDATE limits AS l SET next_ms = NULL, has_waiting = l.has_waiting OR v_count > 0
  WHERE l.kind = 'task' AND l.name = p_name;
  IF v_count > 0 THEN
    -- What they begin wakes others.
    PERFORM dx_wake_limited_task(p_name, v_count, '', p_now_ms, p_now_ms);
  END IF;
END
$$;

-- Lists the routes that have queued messages, in order.
--
-- Bound: one look at an index for each. Locks: none. PostgreSQL puts it into the statement that calls it.
CREATE OR REPLACE FUNCTION dx_routes_of_messages() RETURNS TABLE (route text) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  WITH RECURSIVE present AS (
    (SELECT q.route FROM orchestrator_queue AS q ORDER BY q.route LIMIT 1)
    UNION ALL
    SELECT (
      SELECT q.route FROM orchestrator_queue AS q
      WHERE q.route > present.route
      ORDER BY q.route LIMIT 1
    )
    FROM present WHERE present.route IS NOT NULL
  )
  SELECT present.route FROM present
  WHERE present.route IS NOT NULL
$$;

-- Returns the place of an instance among those that wait for a limit (instances.limit_place).
CREATE OR REPLACE FUNCTION dx_limit_place(
  p_due_ms bigint,                 -- when its start is due
  p_number bigint                  -- of orchestrator_queue_id_seq
) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$
  SELECT (p_due_ms << 20) + (p_number & 1048575)
$$;

-- Puts the instances of an orchestration under its limit, which was set: those that run have a slot, and count; starts
-- that are queued and have not begun wait for a slot. A part of dx_set_limit. Announces it to all processes.
--
-- An instance whose turn or claim is stored at that moment is left out: another call puts it under the limit.
-- Bound: the running instances of the name, and the messages of its routes. Locks: instances, and the messages of those
-- that have not begun (skip locked).
CREATE OR REPLACE FUNCTION dx_limit_instances(p_name text, p_now timestamptz) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_ids text[];
BEGIN
  UPDATE instances AS i SET limit_name = p_name, limit_key = COALESCE(i.limit_key, '')
  WHERE i.instance_id = ANY (ARRAY(
    SELECT running.instance_id FROM instances AS running
    WHERE running.status = 'Running'
      AND running.orchestration_name = p_name
      AND running.limit_name IS NULL
      AND running.route <> '' AND NOT starts_with(running.route, '0.') -- Duroxide runs those
    FOR UPDATE SKIP LOCKED
  ));

  v_ids := ARRAY(
    SELECT i.instance_id FROM dx_routes_of_messages() AS present
    CROSS JOIN LATERAL (
      SELECT message.id, message.instance_id FROM orchestrator_queue AS message
      WHERE message.route = present.route
        AND message.lock_token IS NULL
        AND message.work_item LIKE '{"StartOrchestration"%'
      OFFSET 0
    ) AS q
    JOIN instances AS i ON i.instance_id = q.instance_id
    JOIN orchestrator_queue AS start ON start.id = q.id
    WHERE regexp_replace(present.route, '^\S+ \S+ ', '') = p_name
      AND i.limit_name = p_name
      AND i.limit_route IS NULL
      AND i.status = 'Running'
      AND start.lock_token IS NULL
      AND (SELECT h.event_id FROM history AS h WHERE h.instance_id = i.instance_id LIMIT 1) IS NULL
    FOR UPDATE OF start, i SKIP LOCKED
  );
  IF v_ids <> '{}' THEN
    UPDATE instances AS i
    SET limit_route = i.route, route = '~' || i.route,
        limit_place = COALESCE(
          i.limit_place,
          (
            SELECT dx_limit_place(
              floor(extract(epoch FROM greatest(q.visible_at, q.created_at)) * 1000)::bigint, abs(q.id)
            )
            FROM orchestrator_queue AS q
            WHERE q.instance_id = i.instance_id AND q.work_item LIKE '{"StartOrchestration"%'
            LIMIT 1
          )
        )
    WHERE i.instance_id = ANY (v_ids);
    -- A claim moves those that another transaction has locked.
    UPDATE orchestrator_queue AS q SET route = '~' || q.route
    WHERE q.id = ANY (ARRAY(
      SELECT message.id FROM orchestrator_queue AS message
      WHERE message.instance_id = ANY (v_ids) AND message.lock_token IS NULL AND NOT starts_with(message.route, '~')
      FOR UPDATE SKIP LOCKED
    ));
  END IF;
  PERFORM dx_notify('orch_work', ARRAY[p_now]);
END
$$;

-- Changes the limits of a definition, at run time. Bounds that are left out stay as they are; null removes one. What
-- waits without a lock waits for a slot from now on; what runs has one.
--
-- Returns false, and changes nothing, if the definition has limits and p_replaces is false; else true.
--
-- A statement under way that read no limit may still store activities: they have no slot and are not counted. The
-- limit of an activity or orchestration is announced to all processes.
--
-- Bound: what waits of the name; of a task, all that have not ended. Locks: the advisory lock of the limit (waits for
-- those that give slots), its rows; then those of dx_limit_activities, dx_limit_instances or dx_limit_tasks.
CREATE OR REPLACE FUNCTION dx_set_limit(
  p_kind text,                     -- activity, orchestration or task
  p_name text,
  p_changes jsonb,                 -- {total, each_key, keys: {<key>: bound}}, each bound {concurrency, rate, rate_ms,
                                   --   burst} or null
  p_replaces boolean DEFAULT true,
  p_now_ms bigint DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql
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
BEGIN
  PERFORM pg_advisory_xact_lock(dx_limit_lock(p_kind, p_name));
  INSERT INTO limits (kind, name, since) VALUES (p_kind, p_name, v_now) ON CONFLICT (kind, name) DO NOTHING;
  IF NOT FOUND AND NOT p_replaces THEN
    RETURN false;
  END IF;

  UPDATE limits AS l
  SET since = v_now,
      concurrency = CASE WHEN changes.total THEN all_keys.concurrency ELSE l.concurrency END,
      rate = CASE WHEN changes.total THEN all_keys.rate ELSE l.rate END,
      rate_ms = CASE WHEN changes.total THEN all_keys.rate_ms ELSE l.rate_ms END,
      burst = CASE WHEN changes.total THEN all_keys.burst ELSE l.burst END,
      key_concurrency = CASE WHEN changes.each_key THEN one_key.concurrency ELSE l.key_concurrency END,
      key_rate = CASE WHEN changes.each_key THEN one_key.rate ELSE l.key_rate END,
      key_rate_ms = CASE WHEN changes.each_key THEN one_key.rate_ms ELSE l.key_rate_ms END,
      key_burst = CASE WHEN changes.each_key THEN one_key.burst ELSE l.key_burst END
  FROM (SELECT p_changes ? 'total' AS total, p_changes ? 'each_key' AS each_key) AS changes,
    jsonb_to_record(COALESCE(NULLIF(p_changes -> 'total', 'null'), '{}'))
      AS all_keys (concurrency integer, rate integer, rate_ms bigint, burst integer),
    jsonb_to_record(COALESCE(NULLIF(p_changes -> 'each_key', 'null'), '{}'))
      AS one_key (concurrency integer, rate integer, rate_ms bigint, burst integer)
  WHERE l.kind = p_kind AND l.name = p_name;

  DELETE FROM limit_keys AS k
  WHERE k.kind = p_kind AND k.name = p_name AND k.is_own AND p_changes -> 'keys' -> k.key = 'null';
  INSERT INTO limit_keys (kind, name, key, is_own, concurrency, rate, rate_ms, burst)
  SELECT p_kind, p_name, own.key, true, bound.concurrency, bound.rate, bound.rate_ms, bound.burst
  FROM jsonb_each(COALESCE(p_changes -> 'keys', '{}')) AS own (key, value)
  CROSS JOIN LATERAL jsonb_to_record(own.value)
    AS bound (concurrency integer, rate integer, rate_ms bigint, burst integer)
  WHERE own.value <> 'null'
  ON CONFLICT (kind, name, key) DO UPDATE
  SET is_own = true, concurrency = EXCLUDED.concurrency, rate = EXCLUDED.rate, rate_ms = EXCLUDED.rate_ms,
      burst = EXCLUDED.burst;

  IF p_kind = 'activity' THEN
    PERFORM dx_limit_activities(p_name, v_now);
  ELSIF p_kind = 'task' THEN
    PERFORM dx_limit_tasks(p_name, v_now_ms);
  ELSIF p_kind = 'orchestration' THEN
    PERFORM dx_limit_instances(p_name, v_now);
  END IF;
  RETURN true;
END
$$;

-- Whether anything waits for a slot of a limit. A start that begins later does not count, unless 100 instances or more
-- are parked: reading further would cost each start too much.
--
-- Bound: one look at an index, of orchestrations at 100 entries. Locks: none.
CREATE OR REPLACE FUNCTION dx_is_limit_awaited(
  p_kind text, p_name text,        -- as in dx_set_limit
  p_now_ms bigint
) RETURNS boolean LANGUAGE plpgsql STABLE
-- settings of the caller
AS $$
BEGIN
  RETURN CASE p_kind
    WHEN 'activity' THEN EXISTS (
      SELECT FROM worker_queue AS w
      WHERE w.limit_name IS NOT NULL AND w.visible_at = 'infinity' AND w.limit_name = p_name
    )
    WHEN 'orchestration' THEN (
      SELECT count(*) = 100 OR COALESCE(bool_or(parked.place < dx_limit_place(p_now_ms + 1, 0)), false)
      FROM (
        SELECT COALESCE(i.limit_place, 0) AS place FROM instances AS i
        WHERE (i.status = 'Running') IS TRUE AND i.limit_route IS NOT NULL AND i.limit_name = p_name
        LIMIT 100
      ) AS parked
    )
  END;
END
$$;

-- Returns the share of a bound that a part of its limit stands for: a sixteenth, 125 at most, not rounded; null without
-- a bound. Eight shares are half of the bound at most: so the other half may be in use while each of eight transactions
-- gives its share.
CREATE OR REPLACE FUNCTION dx_share_at_once(
  p_concurrency bigint             -- null: no bound
) RETURNS float8 LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE WHEN p_concurrency IS NOT NULL THEN least(125, p_concurrency::float8 / 16) END
$$;

-- Takes as many parts of a limit as can be had without waiting, up to p_needed, until the end of the transaction.
-- Called by dx_admit_at_once.
--
-- Returns how many of them the transaction holds. Those that it holds already count: taking them again succeeds.
--
-- Bound: eight locks. Locks: advisory locks of parts (try).
CREATE OR REPLACE FUNCTION dx_take_limit_parts(
  p_kind text, p_name text,        -- as in dx_set_limit
  p_needed integer                 -- 1 to 8
) RETURNS integer LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_held integer := 0;
BEGIN
  FOR v_part IN 1 .. 8 LOOP
    EXIT WHEN v_held = p_needed;
    IF pg_try_advisory_xact_lock(dx_limit_lock(p_kind, p_name, v_part)) THEN
      v_held := v_held + 1;
    END IF;
  END LOOP;
  RETURN v_held;
END
$$;

-- Counts the slots of a limit that are in use: from the rows that have one.
--
-- Bound: p_most of them. Locks: none.
CREATE OR REPLACE FUNCTION dx_count_slots(
  p_kind text, p_name text,        -- as in dx_set_limit
  p_key text,                      -- null: of all keys
  p_most bigint                    -- counts no further; null: all
) RETURNS bigint LANGUAGE plpgsql STABLE
-- settings of the caller
AS $$
BEGIN
  RETURN CASE
    WHEN p_kind = 'activity' AND p_key IS NULL THEN (
      SELECT count(*)
      FROM (
        SELECT FROM worker_queue AS w
        WHERE w.limit_name IS NOT NULL AND w.visible_at < 'infinity' AND w.limit_name = p_name
        LIMIT p_most
      ) AS admitted
    )
    WHEN p_kind = 'activity' THEN (
      SELECT count(*)
      FROM (
        SELECT FROM worker_queue AS w
        WHERE w.limit_name IS NOT NULL
          AND w.visible_at < 'infinity'
          AND w.limit_name = p_name
          AND w.limit_key = p_key
        LIMIT p_most
      ) AS admitted
    )
    WHEN p_kind = 'orchestration' AND p_key IS NULL THEN (
      SELECT count(*)
      FROM (
        SELECT FROM instances AS i
        WHERE i.limit_route IS NULL AND (i.status = 'Running') IS TRUE AND i.limit_name = p_name
        LIMIT p_most
      ) AS admitted
    )
    WHEN p_kind = 'orchestration' THEN (
      SELECT count(*)
      FROM (
        SELECT FROM instances AS i
        WHERE i.limit_route IS NULL
          AND (i.status = 'Running') IS TRUE
          AND i.limit_name = p_name
          AND i.limit_key = p_key
        LIMIT p_most
      ) AS admitted
    )
  END;
END
$$;

-- Returns how many slots of a bound a statement may give at once, if it holds p_parts of the eight parts of the limit;
-- 0 or less: none. Called by dx_admit_at_once.
--
-- With all parts it may give all that are free. With fewer, it may give one share for each part that it holds, if that
-- leaves a share free for each part that it does not hold: other transactions may have given those, and have not
-- committed. Shares are rounded down together, so a bound below 16 needs several parts for one slot.
--
-- Bound: the slots in use, up to the bound. Locks: none.
CREATE OR REPLACE FUNCTION dx_room_at_once(
  p_kind text, p_name text, p_key text, -- as in dx_count_slots
  p_concurrency bigint,            -- null: no bound
  p_parts integer
) RETURNS bigint LANGUAGE plpgsql STABLE
-- settings of the caller
AS $$
DECLARE
  v_share CONSTANT float8 := dx_share_at_once(p_concurrency);
  v_most CONSTANT bigint := p_concurrency - ceil((8 - p_parts) * v_share);
BEGIN
  RETURN CASE
    WHEN p_parts = 0 THEN 0
    WHEN p_concurrency IS NULL THEN 2147483647
    WHEN p_parts = 8 THEN v_most - dx_count_slots(p_kind, p_name, p_key, v_most)
    WHEN floor(p_parts * v_share) > 0 THEN
      least(floor(p_parts * v_share), v_most - dx_count_slots(p_kind, p_name, p_key, v_most))
    ELSE 0
  END;
END
$$;

-- Gives slots of limits at once to activities or instances that the caller is about to store in this transaction: they
-- need not wait for a claim to admit them, and may be handed over.
--
-- Returns which of them have one, in order; true for one without a limit. Null: none has a limit.
--
-- Transactions do not wait for each other, so each must leave room for what others have given and have not committed. A
-- limit has eight parts, each an advisory lock until the end of the transaction. Who holds a part may give a share of
-- the total bound, and of that of each key (dx_room_at_once). A caller takes as many parts as its slots need or, if
-- these are too few, all that no other transaction holds. If nothing can be given, it keeps no lock.
--
-- No slot is given here if another of the same name already waits, if the limit has a rate, if another transaction
-- gives slots of it by a claim, or if this transaction has given some before: others have left room for those, not for
-- more (duroxide.given_at_once). Nor in a transaction that is not READ COMMITTED: its snapshot may be older than its
-- locks.
--
-- Bound: what has slots of these names and keys, up to their limits, read once or twice. Locks: advisory locks of
-- limits, shared, and those of their parts (try).
CREATE OR REPLACE FUNCTION dx_admit_at_once(
  p_kind text,                     -- activity or orchestration
  p_names text[],                  -- null where Duroxide runs it, or where it is to wait
  p_keys text[],                   -- of the same length
  p_now_ms bigint
) RETURNS boolean[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_given text[] := NULLIF(current_setting('duroxide.given_at_once', true), '')::text[];
  v_answers boolean[];
  v_limit limits;
  v_name text;
  v_keys text[];                   -- the keys that are asked for, and how many of each
  v_counts bigint[];
  v_bounds bigint[];               -- what each allows, and what is left of that
  v_rooms bigint[];
  v_count bigint;                  -- the same of all keys
  v_room bigint;
  v_needed integer;
  v_parts integer;
  v_is_enough boolean;
BEGIN
  FOR v_limit IN
    SELECT l.* FROM limits AS l WHERE l.kind = p_kind AND l.name = ANY (p_names)
    ORDER BY l.name COLLATE "C"
  LOOP
    v_name := v_limit.name;
    v_answers := COALESCE(v_answers, array_fill(true, ARRAY[cardinality(p_names)]));
    v_is_enough := false;
    v_keys := NULL;
    v_rooms := NULL;
    v_room := 0;
    IF v_limit.rate IS NULL
      AND v_limit.key_rate IS NULL
      AND (p_kind || ' ' || v_name = ANY (v_given)) IS NOT TRUE
      AND current_setting('transaction_isolation') = 'read committed'
      AND NOT dx_is_limit_awaited(p_kind, v_name, p_now_ms)
    THEN
      BEGIN
        IF NOT pg_try_advisory_xact_lock_shared(dx_limit_lock(p_kind, v_name)) THEN
          RAISE SQLSTATE 'DX001';
        END IF;
        -- Under the lock: this sees what was changed and admitted before.
        SELECT l.* INTO v_limit FROM limits AS l WHERE l.kind = p_kind AND l.name = v_name;
        IF v_limit.rate IS NOT NULL OR v_limit.key_rate IS NOT NULL THEN
          RAISE SQLSTATE 'DX001';
        END IF;
        SELECT
          array_agg(same.key), array_agg(same.count), array_agg(same.bound), sum(same.count),
          least(8, ceil(greatest(
            1,
            max(same.count / NULLIF(dx_share_at_once(same.bound), 0)),
            sum(same.count) / dx_share_at_once(v_limit.concurrency)
          )))
        INTO v_keys, v_counts, v_bounds, v_count, v_needed
        FROM (
          SELECT
            one.key, count(*),
            CASE
              WHEN k.rate IS NOT NULL THEN 0
              WHEN k.is_own THEN k.concurrency
              ELSE v_limit.key_concurrency
            END AS bound
          FROM (
            SELECT COALESCE(asked.key, '') AS key FROM unnest(p_names, p_keys) AS asked (name, key)
            WHERE asked.name = v_name
          ) AS one
          LEFT JOIN limit_keys AS k ON k.kind = p_kind AND k.name = v_name AND k.key = one.key AND k.is_own
          GROUP BY one.key, k.rate, k.is_own, k.concurrency
        ) AS same;

        LOOP
          v_parts := dx_take_limit_parts(p_kind, v_name, v_needed);
          v_room := dx_room_at_once(p_kind, v_name, NULL, v_limit.concurrency, v_parts);
          v_rooms := ARRAY(
            SELECT CASE WHEN v_room > 0 THEN dx_room_at_once(p_kind, v_name, same.key, same.bound, v_parts) ELSE 0 END
            FROM unnest(v_keys, v_bounds) WITH ORDINALITY AS same (key, bound, position)
            ORDER BY same.position
          );
          v_is_enough := v_count <= v_room AND true = ALL (
            SELECT same.count <= same.room FROM unnest(v_counts, v_rooms) AS same (count, room)
          );
          EXIT WHEN v_is_enough OR v_parts < v_needed OR v_parts = 8;
          v_needed := 8; -- the shares were too small: with all parts, all that is free
        END LOOP;
        IF v_room <= 0 OR 0 >= ALL (v_rooms) THEN
          RAISE SQLSTATE 'DX001';
        END IF;
        v_given := v_given || (p_kind || ' ' || v_name);
        PERFORM set_config('duroxide.given_at_once', v_given::text, true);
      EXCEPTION WHEN SQLSTATE 'DX001' THEN
        -- Nothing is given. The locks are gone with this block: a transaction that stays open would hold up all claims.
        v_room := 0;
      END;
    END IF;
    CONTINUE WHEN v_is_enough;

    v_answers := ARRAY(
      SELECT ranked.answer AND (NOT ranked.is_limited OR ranked.has_room AND ranked.place <= v_room)
      FROM (
        SELECT
          each_one.*,
          count(*) FILTER (WHERE each_one.is_limited AND each_one.has_room) OVER (ORDER BY each_one.position) AS place
        FROM (
          SELECT
            asked.answer, asked.position, asked.name IS NOT DISTINCT FROM v_name AS is_limited,
            (
              row_number() OVER (PARTITION BY asked.name, COALESCE(asked.key, '') ORDER BY asked.position)
                <= of_key.room
            ) IS TRUE AS has_room
          FROM ROWS FROM (unnest(v_answers), unnest(p_names), unnest(p_keys)) WITH ORDINALITY
            AS asked (answer, name, key, position)
          LEFT JOIN unnest(v_keys, v_rooms) AS of_key (key, room)
            ON v_room > 0 AND of_key.key = COALESCE(asked.key, '')
        ) AS each_one
      ) AS ranked
      ORDER BY ranked.position
    );
  END LOOP;
  RETURN v_answers;
END
$$;

-- Says which of these instances, about to be created, wait for a slot of their limits: returns the place of each, 0 for
-- one that need not wait. Those that start later always wait. A part of dx_start_orchestrations and dx_store_instances.
--
-- Bound: dx_admit_at_once. Locks: the same.
CREATE OR REPLACE FUNCTION dx_park_instances(
  p_instances dx_instance[],       -- with limit_name
  p_delays bigint[],               -- milliseconds from now, of starts by their field turn; null for children alone
  p_now_ms bigint
) RETURNS bigint[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_names text[];
  v_keys text[];
  v_delays bigint[];
  v_admitted boolean[];
BEGIN
  SELECT
    array_agg(asked.limit_name ORDER BY asked.ordinality), array_agg(asked.limit_key ORDER BY asked.ordinality),
    array_agg(asked.delay ORDER BY asked.ordinality)
  INTO v_names, v_keys, v_delays
  FROM (
    SELECT
      instance.*, CASE WHEN instance.is_child OR p_delays IS NULL THEN 0 ELSE p_delays[instance.turn] END AS delay
    FROM unnest(p_instances) WITH ORDINALITY AS instance
  ) AS asked;
  v_admitted := dx_admit_at_once(
    'orchestration',
    ARRAY(
      SELECT CASE WHEN asked.delay = 0 THEN asked.name END
      FROM ROWS FROM (unnest(v_names), unnest(v_delays)) WITH ORDINALITY AS asked (name, delay, position)
      ORDER BY asked.position
    ),
    v_keys,
    p_now_ms
  );
  RETURN ARRAY(
    SELECT
      CASE
        WHEN asked.name IS NOT NULL AND (asked.delay > 0 OR asked.is_admitted IS FALSE) THEN dx_limit_place(
          least(p_now_ms + asked.delay, 8000000000000), nextval('orchestrator_queue_id_seq')
        )
        ELSE 0
      END
    FROM ROWS FROM (unnest(v_names), unnest(v_delays), unnest(v_admitted)) WITH ORDINALITY
      AS asked (name, delay, is_admitted, position)
    ORDER BY asked.position
  );
END
$$;

-- Returns which processes may run the next turn of an instance, as one text that an index can search: the version the
-- execution is pinned to, the version of the orchestration, and its name, such as `1000.1.0 =1.0.0 Fulfil`.
--
-- `-` means that the execution is not pinned, ` *` any version of the orchestration, ` >1.0.0` that version or a newer
-- one.
CREATE OR REPLACE FUNCTION dx_route(
  p_major integer,                 -- pinned version; null without one
  p_minor integer, p_patch integer, p_name text,
  p_version text,                  -- null: any
  p_or_newer boolean
) RETURNS text LANGUAGE sql IMMUTABLE
AS $$
  -- Casts, because integer || text is not immutable, and then PostgreSQL could not inline the function.
  SELECT COALESCE(p_major::text || '.' || p_minor::text || '.' || p_patch::text, '-')
    || CASE WHEN p_version IS NULL THEN ' *' WHEN p_or_newer THEN ' >' || p_version ELSE ' =' || p_version END
    || ' ' || p_name
$$;

-- Creates instances whose id is free, each with execution 1 and its attributes. A part of dx_start_orchestrations and
-- dx_store_instances.
--
-- Returns the positions of the created ones. An id is free if it has no row in instances or executions and no queued
-- start; of two instances with one id the first is created. Of concurrent transactions exactly one creates it.
-- Bound: the instances given, and the queued messages of their ids. Locks: the new instances by id, then their
-- executions and attributes.
CREATE OR REPLACE FUNCTION dx_create_instances(
  p_instances dx_instance[],
  p_texts text[],                  -- as in dx_store_turns
  p_now timestamptz,
  p_places bigint[] DEFAULT NULL   -- of dx_park_instances; null: none waits for a limit
) RETURNS bigint[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_created bigint[];
  v_attributes boolean;
BEGIN
  WITH free AS (
    SELECT DISTINCT ON (instance.instance_id COLLATE "C") instance.*
    FROM unnest(p_instances) WITH ORDINALITY AS instance
    -- Not NOT EXISTS: a join that was planned while these tables were empty reads the whole of them.
    WHERE (SELECT i.instance_id FROM instances AS i WHERE i.instance_id = instance.instance_id) IS NULL
      AND (SELECT e.status FROM executions AS e WHERE e.instance_id = instance.instance_id LIMIT 1) IS NULL
      AND (
        SELECT q.id FROM orchestrator_queue AS q
        WHERE q.instance_id = instance.instance_id AND q.work_item LIKE '{"StartOrchestration"%'
        LIMIT 1
      ) IS NULL
    ORDER BY instance.instance_id COLLATE "C", instance.ordinality
  ),
  created AS (
    INSERT INTO instances (
      instance_id, orchestration_name, orchestration_version, current_execution_id, created_at, updated_at,
      parent_instance_id, custom_status, custom_status_version, route, status, limit_name, limit_key, limit_route,
      limit_place
    )
    SELECT
      free.instance_id, free.orchestration_name, free.orchestration_version, 1, p_now, p_now, free.parent_instance_id,
      free.custom_status, free.custom_status_version,
      -- Columns, so that PostgreSQL can inline the function, which takes it 1 microsecond per row instead of 45.
      CASE WHEN p_places[free.ordinality] > 0 THEN '~' ELSE '' END
        || dx_route(free.major, free.minor, free.patch, free.orchestration_name, free.served_version, free.or_newer),
      dx_status(free.status, COALESCE(free.output, p_texts[free.text_at])), free.limit_name,
      CASE WHEN free.limit_name IS NULL THEN free.limit_key ELSE COALESCE(free.limit_key, '') END,
      CASE
        WHEN p_places[free.ordinality] > 0
          THEN dx_route(free.major, free.minor, free.patch, free.orchestration_name, free.served_version, free.or_newer)
      END,
      NULLIF(p_places[free.ordinality], 0)
    FROM free
    ORDER BY free.instance_id COLLATE "C"
    ON CONFLICT (instance_id) DO NOTHING RETURNING instance_id
  ),
  pinned AS (
    INSERT INTO executions (
      instance_id, execution_id, status, output, started_at, completed_at, duroxide_version_major,
      duroxide_version_minor, duroxide_version_patch
    )
    SELECT
      free.instance_id, 1, free.status, COALESCE(free.output, p_texts[free.text_at]), p_now,
      CASE WHEN free.status <> 'Running' THEN p_now END, free.major, free.minor, free.patch
    FROM free
    -- IS TRUE: a hash of all, not a loop over them for each. The planner expects one row of both.
    WHERE (free.instance_id IN (SELECT created.instance_id FROM created)) IS TRUE
    ORDER BY free.instance_id COLLATE "C"
    ON CONFLICT (instance_id, execution_id) DO NOTHING
  )
  SELECT array_agg(free.ordinality), bool_or(free.attributes IS NOT NULL) INTO v_created, v_attributes FROM free
  WHERE (free.instance_id IN (SELECT created.instance_id FROM created)) IS TRUE;
  IF v_attributes THEN
    INSERT INTO attributes (instance_id, name, text_value, number_value, time_value, created_at)
    SELECT
      instance.instance_id, attribute.name, attribute.text, attribute.number,
      to_timestamp(attribute.time_ms::float8 / 1000), p_now
    FROM unnest(p_instances) WITH ORDINALITY AS instance
    CROSS JOIN LATERAL jsonb_to_recordset(instance.attributes)
      AS attribute (name text, text text, number double precision, time_ms bigint)
    WHERE instance.ordinality = ANY (v_created)
    -- Of an instance of this id that Duroxide has deleted.
    ON CONFLICT (instance_id, name) DO UPDATE
    SET text_value = excluded.text_value, number_value = excluded.number_value, time_value = excluded.time_value,
        created_at = excluded.created_at;
  END IF;
  RETURN v_created;
END
$$;

-- Stores what turns say of their instances, and creates the instances that they start. A part of dx_store_turns, for
-- all but first turns, whose caller has created these rows.
--
-- Returns the ids of the instances that were started; null without any. Bound: the turns, and the messages given; with
-- limits: dx_admit_at_once. Locks: with limits those of dx_admit_at_once; instance rows by id where they are missing;
-- as dx_create_instances; then the rows of the turns.
CREATE OR REPLACE FUNCTION dx_store_instances(
  p_turns dx_turn[],
  p_creates boolean,               -- whether a claimed turn names its instance, which may have no row then
  p_orchestrator_items jsonb,      -- this and the next one: as in dx_store_turns
  p_texts text[], p_now timestamptz
) RETURNS text[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_created text[] := '{}';
  v_children dx_instance[];
  v_child dx_instance;
  v_places bigint[];               -- of those that wait for a limit
  v_positions bigint[];
  v_started text[];
BEGIN
  IF p_creates THEN
    -- Before the update below: a transaction that waits for a concurrent start of the same id must not hold an instance
    -- row.
    WITH created AS (
      INSERT INTO instances AS i (
        instance_id, orchestration_name, orchestration_version, current_execution_id, created_at, updated_at,
        parent_instance_id, custom_status, custom_status_version, status
      )
      SELECT
        turn.instance_id, turn.orchestration_name, turn.orchestration_version, turn.execution_id, p_now, p_now,
        turn.parent_instance_id, turn.custom_status, COALESCE(turn.sets_custom_status, false)::integer,
        COALESCE(
          dx_status(turn.status, COALESCE(turn.output, p_texts[turn.text_at])),
          -- An earlier turn may have named no instance.
          (
            SELECT dx_status(e.status, e.output) FROM executions AS e
            WHERE e.instance_id = turn.instance_id AND e.execution_id = turn.execution_id
          ),
          'Running'
        )
      FROM unnest(p_turns) AS turn
      WHERE turn.execution_id IS NOT NULL
        AND turn.orchestration_name IS NOT NULL
        AND turn.orchestration_version IS NOT NULL
        AND NOT EXISTS (SELECT FROM instances AS x WHERE x.instance_id = turn.instance_id)
      ORDER BY turn.instance_id COLLATE "C"
      ON CONFLICT (instance_id) DO UPDATE
      SET orchestration_name = excluded.orchestration_name,
          orchestration_version = excluded.orchestration_version,
          current_execution_id = greatest(i.current_execution_id, excluded.current_execution_id),
          updated_at = p_now,
          parent_instance_id = COALESCE(i.parent_instance_id, excluded.parent_instance_id),
          custom_status = CASE
            WHEN excluded.custom_status_version > 0 THEN excluded.custom_status
            ELSE i.custom_status
          END,
          custom_status_version = i.custom_status_version + excluded.custom_status_version,
          status = excluded.status
      RETURNING i.instance_id
    )
    SELECT COALESCE(array_agg(created.instance_id), '{}') INTO v_created FROM created;
  END IF;

  v_children := dx_instances_of_children(p_turns, p_orchestrator_items);
  IF v_children IS NOT NULL THEN
    FOREACH v_child IN ARRAY v_children LOOP
      IF v_child.limit_name IS NOT NULL THEN
        v_places := dx_park_instances(v_children, NULL, floor(extract(epoch FROM p_now) * 1000)::bigint);
        EXIT;
      END IF;
    END LOOP;
    v_positions := dx_create_instances(v_children, NULL, p_now, v_places);
    SELECT array_agg(v_children[created.position].instance_id) INTO v_started
    FROM unnest(v_positions) AS created (position);
  END IF;

  -- In any order: of all transactions only the one that stores the turn of an instance updates its row.
  UPDATE instances AS i
  SET orchestration_name = CASE WHEN turn.names THEN turn.orchestration_name ELSE i.orchestration_name END,
      orchestration_version = CASE WHEN turn.names THEN turn.orchestration_version ELSE i.orchestration_version END,
      parent_instance_id = CASE
        WHEN turn.names THEN COALESCE(i.parent_instance_id, turn.parent_instance_id)
        ELSE i.parent_instance_id
      END,
      current_execution_id = greatest(i.current_execution_id, turn.execution_id), updated_at = p_now,
      custom_status = CASE WHEN turn.sets_custom_status THEN turn.custom_status ELSE i.custom_status END,
      custom_status_version = i.custom_status_version + COALESCE(turn.sets_custom_status, false)::integer,
      status = COALESCE(dx_status(turn.status, COALESCE(turn.output, p_texts[turn.text_at])), i.status),
      limit_place = NULL
  FROM (
    SELECT turn.*, turn.orchestration_name IS NOT NULL AND turn.orchestration_version IS NOT NULL AS names
    FROM unnest(p_turns) AS turn WHERE turn.execution_id IS NOT NULL
  ) AS turn
  WHERE i.instance_id = turn.instance_id AND i.instance_id <> ALL (v_created);
  RETURN v_started;
END
$$;

-- Stores what turns say of their executions: statuses, outputs, pinned versions. A part of dx_store_turns.
--
-- Returns whether an execution got its row.
-- Bound: the turns. Locks: the rows of these executions, the new ones by instance.
CREATE OR REPLACE FUNCTION dx_store_executions(
  p_turns dx_turn[],
  p_creates boolean,               -- whether the turns were claimed, so that their executions may have no row yet
  p_describes boolean,             -- whether any has a status or a pinned version
  p_texts text[], p_now timestamptz
) RETURNS boolean LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_creates boolean := false;
BEGIN
  IF p_creates THEN
    -- Whether or not the instance has a row.
    INSERT INTO executions (instance_id, execution_id, status, started_at)
    SELECT turn.instance_id, turn.execution_id, 'Running', p_now FROM unnest(p_turns) AS turn
    WHERE turn.execution_id IS NOT NULL
      AND NOT EXISTS (
        SELECT FROM executions AS e
        WHERE e.instance_id = turn.instance_id AND e.execution_id = turn.execution_id
      )
    ORDER BY turn.instance_id COLLATE "C"
    ON CONFLICT (instance_id, execution_id) DO NOTHING;
    v_creates := FOUND;
  END IF;

  IF p_describes THEN
    UPDATE executions AS e
    SET status = COALESCE(turn.status, e.status),
        output = CASE WHEN turn.status IS NULL THEN e.output ELSE COALESCE(turn.output, p_texts[turn.text_at]) END,
        completed_at = CASE
          WHEN turn.status IS NULL THEN e.completed_at
          WHEN turn.status IN ('Completed', 'Failed', 'ContinuedAsNew') THEN p_now
        END,
        duroxide_version_major = COALESCE(turn.major, e.duroxide_version_major),
        duroxide_version_minor = COALESCE(turn.minor, e.duroxide_version_minor),
        duroxide_version_patch = COALESCE(turn.patch, e.duroxide_version_patch)
    FROM unnest(p_turns) AS turn
    WHERE e.instance_id = turn.instance_id
      AND e.execution_id = turn.execution_id
      AND (turn.status IS NOT NULL OR turn.major IS NOT NULL);
  END IF;
  RETURN v_creates;
END
$$;

-- Stores changes of key-values. The changes of an ended execution become visible to the next execution and to readers.
-- A part of dx_store_turns.
--
-- Bound: the changes, and the key-value rows of instances that change them. Locks: rows of kv_delta, then of kv_store.
CREATE OR REPLACE FUNCTION dx_store_key_values(
  p_turns dx_turn[],
  p_key_values jsonb,              -- as in dx_store_turns
  p_ends boolean,                  -- whether any turn ends its execution
  p_now_ms bigint
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  IF p_key_values IS NOT NULL THEN
    -- The last change of a key counts. clear_all removes every key that exists at its position.
    INSERT INTO kv_delta (instance_id, key, value, last_updated_at_ms)
    WITH change AS (
      SELECT
        p_turns[c.ack].instance_id AS instance_id, c.action, c.key, c.value, c.last_updated_at_ms, c.position,
        max(c.position) FILTER (WHERE c.action = 'clear_all') OVER (PARTITION BY c.ack) AS cleared_at
      FROM ROWS FROM (
        jsonb_to_recordset(p_key_values)
          AS (ack bigint, action text, key text, value text, last_updated_at_ms bigint)
      ) WITH ORDINALITY AS c (ack, action, key, value, last_updated_at_ms, position)
      WHERE p_turns[c.ack].execution_id IS NOT NULL
    ),
    changed_key AS (
      SELECT change.instance_id, change.key, change.position, change.value, change.last_updated_at_ms
      FROM change WHERE change.action = 'set' AND change.position > COALESCE(change.cleared_at, 0)
      UNION ALL
      SELECT change.instance_id, change.key, change.position, NULL, p_now_ms FROM change
      WHERE change.action = 'clear_key' OR (change.action = 'set' AND change.position < change.cleared_at)
      UNION ALL
      SELECT change.instance_id, stored.key, 0, NULL, p_now_ms FROM change
      CROSS JOIN LATERAL (
        SELECT d.key FROM kv_delta AS d WHERE d.instance_id = change.instance_id
        UNION
        SELECT s.key FROM kv_store AS s WHERE s.instance_id = change.instance_id
      ) AS stored
      WHERE change.position = change.cleared_at
    )
    SELECT DISTINCT ON (changed_key.instance_id COLLATE "C", changed_key.key COLLATE "C")
      changed_key.instance_id, changed_key.key, changed_key.value, changed_key.last_updated_at_ms
    FROM changed_key
    ORDER BY changed_key.instance_id COLLATE "C", changed_key.key COLLATE "C", changed_key.position DESC
    ON CONFLICT (instance_id, key) DO UPDATE
    SET value = excluded.value, last_updated_at_ms = excluded.last_updated_at_ms;
  END IF;

  IF NOT p_ends THEN
    RETURN;
  END IF;
  WITH moved AS (
    DELETE FROM kv_delta AS d USING unnest(p_turns) AS turn
    WHERE d.instance_id = turn.instance_id
      AND turn.execution_id IS NOT NULL
      AND turn.status IN ('Completed', 'Failed', 'ContinuedAsNew')
    RETURNING d.instance_id, d.key, d.value, d.last_updated_at_ms, turn.execution_id
  ),
  removed AS (
    DELETE FROM kv_store AS s USING moved
    WHERE s.instance_id = moved.instance_id AND s.key = moved.key AND moved.value IS NULL
  )
  INSERT INTO kv_store (instance_id, key, value, execution_id, last_updated_at_ms)
  SELECT moved.instance_id, moved.key, moved.value, moved.execution_id, moved.last_updated_at_ms
  FROM moved WHERE moved.value IS NOT NULL
  ON CONFLICT (instance_id, key) DO UPDATE
  SET value = excluded.value, execution_id = excluded.execution_id,
      last_updated_at_ms = excluded.last_updated_at_ms;
END
$$;

-- Returns how many of the waiting activities each worker could claim, by its position, up to p_most + 1. That number
-- stands for more, too, or for an unknown number, because the p_most + 1000 oldest of a route are locked. Null: no
-- activity waits at all.
-- Bound: one look per route that has activities, and p_most + 1000 rows per route that the workers serve. It skips the
-- dead rows that an open transaction keeps, as claims do (dx_set_mark). Locks: none.
--
-- Each statement that asks for a handover pays for the rows it reads: 0.2 ms at 256 activities of one name under way,
-- 0.6 ms at 1,000. Read without a bound they would cost 1.2 ms at 2,000 on an idle machine, and several times that on a
-- busy one.
CREATE OR REPLACE FUNCTION dx_count_waiting(
  p_workers jsonb,                 -- as in dx_store_turns
  p_most bigint, p_now_ms bigint
) RETURNS bigint[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_first text;
  v_routes text[];
  v_waiting bigint[];
  -- As in dx_fetch_work_items.
  v_mark text[];
  v_from timestamptz := '-infinity';
  v_looked timestamptz;
  v_read bigint;                   -- entries of the index that the session had read before, dead rows among them
BEGIN
  IF current_setting('duroxide_prisma.handover', true) <> '' THEN
    v_mark := dx_read_mark('duroxide_prisma.handover', concat('worker_queue'::regclass::oid, p_workers), p_now_ms);
  END IF;
  IF v_mark IS NOT NULL THEN
    v_from := to_timestamp(v_mark[1]::float8 / 1000);
    v_routes := v_mark[2:];
  ELSE
    v_looked := clock_timestamp();
    v_read := pg_stat_get_xact_tuples_returned(to_regclass('worker_queue_route_visible_at_id_idx'));
    SELECT w.route INTO v_first FROM worker_queue AS w WHERE w.session_id IS NULL ORDER BY w.route LIMIT 1;
    -- Not started where no activity waits: it costs three times as much. From the first route on, which
    -- dx_routes_of_activities would look for again, past dead rows.
    IF v_first IS NOT NULL THEN
      WITH RECURSIVE present AS (
        SELECT v_first AS route
        UNION ALL
        SELECT (
          SELECT w.route FROM worker_queue AS w
          WHERE w.session_id IS NULL AND w.route > present.route
          ORDER BY w.route LIMIT 1
        )
        FROM present WHERE present.route IS NOT NULL
      )
      SELECT array_agg(present.route) INTO v_routes FROM present
      WHERE present.route IS NOT NULL;
    END IF;
  END IF;

  IF v_routes IS NOT NULL THEN
    SELECT array_agg(
      (
        SELECT count(*) + COALESCE(max(p_most) FILTER (WHERE waiting.is_one_of_many), 0)
        FROM unnest(v_routes) AS present (route)
        CROSS JOIN LATERAL (
          SELECT old.position = p_most + 1000 AS is_one_of_many
          FROM (
            SELECT activity.*, row_number() OVER () AS position
            FROM (
              SELECT w.lock_token, w.locked_until, w.tag FROM worker_queue AS w
              WHERE w.session_id IS NULL AND w.route = present.route AND w.visible_at BETWEEN v_from AND v_now
              ORDER BY w.visible_at, w.id LIMIT p_most + 1000
            ) AS activity
          ) AS old
          WHERE old.position = p_most + 1000
            OR (
              dx_is_free(old.lock_token, old.locked_until, p_now_ms)
              AND dx_is_taken(present.route, old.tag, worker.names, worker.untagged, worker.tags)
            )
          LIMIT p_most + 1
        ) AS waiting
        WHERE dx_is_served(present.route, worker.names, worker.untagged, worker.tags)
      )
      ORDER BY worker.position
    )
    INTO v_waiting
    FROM ROWS FROM (jsonb_to_recordset(p_workers) AS (names text[], untagged boolean, tags text[])) WITH ORDINALITY
      AS worker (names, untagged, tags, position);
  END IF;

  IF v_mark IS NULL
    AND pg_stat_get_xact_tuples_returned(to_regclass('worker_queue_route_visible_at_id_idx')) - v_read > 5000
  THEN
    SELECT array_agg(present.route) INTO v_routes FROM unnest(v_routes) AS present (route)
    WHERE EXISTS (
      SELECT
      FROM jsonb_to_recordset(p_workers) AS worker (names text[], untagged boolean, tags text[])
      WHERE dx_is_served(present.route, worker.names, worker.untagged, worker.tags)
    );
    PERFORM dx_set_mark(
      'duroxide_prisma.handover', concat('worker_queue'::regclass::oid, p_workers), v_looked,
      dx_oldest_activity(v_routes, v_now, p_now_ms), v_routes
    );
  END IF;

  RETURN v_waiting;
END
$$;

-- Stores the activities that turns schedule, and hands some of them over to the caller. A part of dx_store_turns, which
-- says which ones.
--
-- An activity with a limit waits for a slot of it, unless dx_admit_at_once gives it one.
--
-- Returns those that were handed over, as dx_store_turns.
-- Bound: the activities given; to hand over: dx_count_waiting; with limits: dx_admit_at_once. Locks: those of
-- dx_admit_at_once, and new rows.
CREATE OR REPLACE FUNCTION dx_store_activities(
  p_turns dx_turn[],
  p_worker_items jsonb,            -- this and the following: as in dx_store_turns
  p_cancelled_activities jsonb, p_workers jsonb, p_texts text[], p_now_ms bigint
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_no_tag CONSTANT text := dx_no_tag();
  v_secret CONSTANT text := gen_random_uuid();
  -- By position of the worker; null: none waits.
  v_waiting bigint[];
  -- By position of the activity: whether it has a slot; null: none has a limit.
  v_admitted boolean[];
  v_limited text[] := '{}';
  v_handed_over jsonb;
  v_count bigint;
BEGIN
  IF p_workers IS NOT NULL THEN
    v_waiting := dx_count_waiting(
      p_workers, (SELECT max(COALESCE(turn.spare, 0)) FROM unnest(p_turns) AS turn), p_now_ms
    );
  END IF;

  IF (SELECT l.name FROM limits AS l WHERE l.kind = 'activity' LIMIT 1) IS NOT NULL THEN
    -- Read first: if a limit is set after this, these activities are neither admitted nor counted by it.
    v_limited := ARRAY(
      SELECT l.name FROM limits AS l
      WHERE l.kind = 'activity'
        AND l.name = ANY (ARRAY(SELECT a.name FROM jsonb_to_recordset(p_worker_items) AS a (name text)))
    );
    v_admitted := dx_admit_at_once(
      'activity',
      array_agg(CASE WHEN a.served_by IS NULL THEN a.name END ORDER BY a.position),
      array_agg(a.limit_key ORDER BY a.position),
      p_now_ms
    )
    FROM ROWS FROM (jsonb_to_recordset(p_worker_items) AS (name text, limit_key text, served_by text)) WITH ORDINALITY
      AS a (name, limit_key, served_by, position);
  END IF;

  WITH item AS (
    SELECT
      activity.*, v_admitted[activity.position] IS FALSE AS is_parked,
      v_admitted[activity.position] IS FALSE OR activity.served_by IS NULL AND activity.name = ANY (v_limited)
        AS is_limited,
      row_number() OVER (PARTITION BY activity.ack ORDER BY activity.position) - 1 AS index,
      worker.lock_timeout_ms,
      worker.position IS NOT NULL
        AND activity.session_id IS NULL
        AND activity.served_by IS NULL
        AND v_admitted[activity.position] IS NOT FALSE
        AND activity.name = ANY (worker.names)
        AND CASE
          WHEN activity.tag IS NULL THEN worker.untagged
          ELSE worker.tags IS NULL OR activity.tag = ANY (worker.tags)
        END
        -- Otherwise it never runs.
        AND (
          p_cancelled_activities IS NULL
          OR NOT p_cancelled_activities @> jsonb_build_array(
            jsonb_build_object(
              'instance_id', activity.instance_id, 'execution_id', activity.execution_id,
              'activity_id', activity.activity_id
            )
          )
        ) AS is_served
    FROM ROWS FROM (
      jsonb_to_recordset(p_worker_items) AS (
        ack bigint, work_item text, text_at integer, name text, instance_id text, execution_id bigint,
        activity_id bigint, session_id text, tag text, served_by text, limit_key text
      )
    ) WITH ORDINALITY AS activity (
      ack, work_item, text_at, name, instance_id, execution_id, activity_id, session_id, tag, served_by, limit_key,
      position
    )
    LEFT JOIN ROWS FROM (
      jsonb_to_recordset(p_workers) AS (lock_timeout_ms bigint, names text[], untagged boolean, tags text[])
    ) WITH ORDINALITY AS worker (lock_timeout_ms, names, untagged, tags, position)
      ON worker.position = p_turns[activity.ack].worker
      AND (v_waiting IS NULL OR v_waiting[worker.position] <= COALESCE(p_turns[activity.ack].spare, 0))
    WHERE p_turns[activity.ack].execution_id IS NOT NULL
  ),
  numbered AS MATERIALIZED (
    SELECT nextval('worker_queue_id_seq') AS id, ordered.*
    FROM (
      SELECT
        item.*,
        item.is_served
          AND count(*) FILTER (WHERE item.is_served) OVER (PARTITION BY item.ack ORDER BY item.position)
            <= p_turns[item.ack].handover_limit AS is_handed_over
      FROM item
      ORDER BY item.position
    ) AS ordered
  ),
  stored AS (
    INSERT INTO worker_queue (
      id, work_item, visible_at, lock_token, locked_until, created_at, attempt_count, instance_id, execution_id,
      activity_id, session_id, tag, route, limit_name, limit_key
    )
    SELECT
      activity.id, COALESCE(activity.work_item, p_texts[activity.text_at]),
      CASE WHEN activity.is_parked THEN 'infinity' ELSE v_now END,
      CASE WHEN activity.is_handed_over THEN v_secret END,
      CASE WHEN activity.is_handed_over THEN p_now_ms + activity.lock_timeout_ms END,
      v_now, activity.is_handed_over::integer, activity.instance_id, activity.execution_id, activity.activity_id,
      activity.session_id, COALESCE(activity.tag, CASE WHEN activity.served_by IS NULL THEN v_no_tag END),
      activity.name || COALESCE(' #' || activity.tag, ''),
      CASE WHEN activity.is_limited THEN activity.name END,
      CASE WHEN activity.is_limited THEN COALESCE(activity.limit_key, '') ELSE activity.limit_key END
    FROM (SELECT numbered.* FROM numbered ORDER BY numbered.id) AS activity
  )
  SELECT jsonb_object_agg(turn.ack, turn.activities), sum(jsonb_array_length(turn.activities))
  INTO v_handed_over, v_count
  FROM (
    SELECT
      activity.ack,
      jsonb_agg(
        CASE
          WHEN activity.is_limited
            THEN jsonb_build_object('index', activity.index, 'lockToken', activity.id || '.' || v_secret, 'isLimited', true)
          ELSE jsonb_build_object('index', activity.index, 'lockToken', activity.id || '.' || v_secret)
        END
        ORDER BY activity.index
      ) AS activities
    FROM numbered AS activity WHERE activity.is_handed_over
    GROUP BY activity.ack
  ) AS turn;

  IF jsonb_array_length(p_worker_items) > COALESCE(v_count, 0)
    AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on'
  THEN
    PERFORM dx_notify('worker_work', ARRAY[v_now]);
  END IF;
  RETURN v_handed_over;
END
$$;

-- Deletes the activities that turns cancel. A part of dx_store_turns, after dx_store_activities: an activity that one
-- turn both schedules and cancels never runs.
--
-- Bound: the activities given. Locks: worker rows by id.
CREATE OR REPLACE FUNCTION dx_cancel_activities(
  p_turns dx_turn[],
  p_cancelled_activities jsonb     -- as in dx_store_turns
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  -- Not a join: planned while the queue was empty, it would read the whole of it for each activity.
  DELETE FROM worker_queue AS w
  WHERE w.id = ANY (ARRAY(
    SELECT locked.id FROM worker_queue AS locked
    WHERE locked.id = ANY (ARRAY(
      SELECT found.id
      FROM jsonb_to_recordset(p_cancelled_activities)
        AS activity (ack bigint, instance_id text, execution_id bigint, activity_id bigint)
      CROSS JOIN LATERAL (
        SELECT queued.id FROM worker_queue AS queued
        WHERE queued.instance_id = activity.instance_id
          AND queued.execution_id = activity.execution_id
          AND queued.activity_id = activity.activity_id
        OFFSET 0
      ) AS found
      WHERE p_turns[activity.ack].execution_id IS NOT NULL
    ))
    ORDER BY locked.id FOR UPDATE
  ));
END
$$;

-- Sets which processes take the next turn of instances whose turns are stored. They also take the messages that arrived
-- during this one. A part of dx_store_turns.
--
-- Returns how many messages it has rerouted.
-- Bound: the turns, and the messages of instances whose route changes. Locks: instance rows; queue rows of these
-- instances.
CREATE OR REPLACE FUNCTION dx_reroute_instances(p_turns dx_turn[]) RETURNS bigint LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_rerouted bigint;
BEGIN
  WITH wanted AS (
    SELECT
      i.instance_id, turn.secret,
      dx_route(
        e.duroxide_version_major, e.duroxide_version_minor, e.duroxide_version_patch, i.orchestration_name,
        CASE
          WHEN turn.status = 'ContinuedAsNew' THEN COALESCE(turn.next_version, i.orchestration_version)
          ELSE i.orchestration_version
        END,
        turn.status IS NOT DISTINCT FROM 'ContinuedAsNew' AND turn.next_version IS NULL
      ) AS route
    FROM unnest(p_turns) AS turn
    JOIN instances AS i ON i.instance_id = turn.instance_id
    JOIN executions AS e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
    WHERE turn.execution_id IS NOT NULL
  ),
  changed AS (
    UPDATE instances AS i SET route = wanted.route
    FROM wanted WHERE i.instance_id = wanted.instance_id AND i.route <> wanted.route
    RETURNING i.instance_id, i.route, wanted.secret
  )
  UPDATE orchestrator_queue AS q
  SET route = (SELECT changed.route FROM changed WHERE changed.instance_id = q.instance_id)
  -- Not a plain join: planned while statistics call the queue empty, it would read all of it.
  WHERE q.id = ANY (ARRAY(
    SELECT message.id FROM changed
    CROSS JOIN LATERAL (
      SELECT m.id FROM orchestrator_queue AS m
      WHERE m.instance_id = changed.instance_id
        AND m.route <> changed.route
        AND (m.lock_token = changed.secret) IS NOT TRUE
      OFFSET 0
    ) AS message
  ));
  GET DIAGNOSTICS v_rerouted = ROW_COUNT;
  RETURN v_rerouted;
END
$$;

-- Leaves in the queue what turns have not read: messages of their batches, and messages that events have recorded,
-- which are inserted again. Deletes the remaining timers of ended executions. A part of dx_store_turns, before
-- dx_store_messages, which places the start of the next execution in front of all these.
--
-- Bound: the messages and events given, and the timers of ended executions. Locks: these queue rows.
CREATE OR REPLACE FUNCTION dx_leave_messages(
  p_turns dx_turn[],
  p_ends boolean,                  -- whether any turn ends its execution
  p_leaves boolean,                -- whether any has left_ids
  p_requeues boolean,              -- whether any has requeued
  p_now timestamptz
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  IF p_ends THEN
    -- They would otherwise wake the instance when they are due, only to be dropped.
    DELETE FROM orchestrator_queue AS q
    WHERE q.id = ANY (ARRAY(
      SELECT timer.id FROM unnest(p_turns) AS turn
      CROSS JOIN LATERAL (
        SELECT queued.id FROM orchestrator_queue AS queued
        WHERE queued.instance_id = turn.instance_id
          AND queued.due_at > p_now
          AND queued.work_item LIKE '{"TimerFired"%'
        OFFSET 0
      ) AS timer
      WHERE turn.execution_id IS NOT NULL AND turn.status IN ('Completed', 'Failed', 'ContinuedAsNew')
    ));
  END IF;

  IF p_leaves THEN
    -- The update of the route did not reach these messages, because they carry the lock's token.
    UPDATE orchestrator_queue AS q
    SET lock_token = NULL, locked_until = NULL, attempt_count = 0,
        route = COALESCE((SELECT i.route FROM instances AS i WHERE i.instance_id = q.instance_id), q.route)
    FROM unnest(p_turns) AS turn
    CROSS JOIN LATERAL unnest(turn.left_ids) AS unread (id)
    WHERE q.id = unread.id
      AND q.instance_id IS NOT DISTINCT FROM turn.instance_id -- not "=": found by id, whatever the statistics say
      AND q.lock_token = turn.secret;
  END IF;

  IF p_requeues THEN
    -- Batches are in order of the ids, so these are negative: smaller than the ids of messages that wait, that were
    -- requeued before, or that another transaction is about to commit.
    INSERT INTO orchestrator_queue (id, instance_id, work_item, visible_at, created_at, route)
    SELECT
      -nextval('orchestrator_queue_id_seq'), unread.instance_id, unread.work_item, p_now, p_now, unread.route
    FROM (
      SELECT
        h.instance_id,
        -- As the sender wrote it: -> keeps the text of a value.
        '{"QueueMessage":{"instance":' || to_json(h.instance_id)::text
          || ',"name":' || (event.data -> 'name')::text
          || ',"data":' || (event.data -> 'data')::text || '}}' AS work_item,
        COALESCE(i.route, '') AS route
      FROM unnest(p_turns) WITH ORDINALITY AS turn
      CROSS JOIN LATERAL (SELECT DISTINCT requeued.id FROM unnest(turn.requeued) AS requeued (id)) AS wanted
      JOIN history AS h
        ON h.instance_id = turn.instance_id
        AND h.execution_id = turn.execution_id
        AND h.event_id = wanted.id
      CROSS JOIN LATERAL (SELECT h.event_data::json AS data) AS event
      LEFT JOIN instances AS i ON i.instance_id = h.instance_id
      WHERE turn.status = 'ContinuedAsNew' AND event.data ->> 'type' = 'ExternalEventPersistent'
      ORDER BY turn.ordinality, h.event_id DESC
    ) AS unread;
  END IF;
END
$$;

-- Gives messages that arrived before their start the route of their instance; with a start that is to wait, its time,
-- too. A part of dx_store_starts and dx_store_messages, after the starts are stored.
--
-- Bound: the queued messages of these instances. Locks: those that have another route (skip locked).
CREATE OR REPLACE FUNCTION dx_route_earlier_messages(
  p_instance_ids text[],
  p_visible_at timestamptz[],      -- of their starts; null: none is to wait
  p_now timestamptz
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_start record;
BEGIN
  -- Start by start, as few have any: a join, planned while the queue was empty, reads the whole queue for each message.
  FOR v_start IN
    SELECT s.instance_id, s.visible_at, s.route
    FROM (
      SELECT start.*, (SELECT i.route FROM instances AS i WHERE i.instance_id = start.instance_id) AS route
      FROM unnest(p_instance_ids, p_visible_at) AS start (instance_id, visible_at)
    ) AS s
    WHERE (
      SELECT q.id FROM orchestrator_queue AS q WHERE q.instance_id = s.instance_id AND q.route <> s.route LIMIT 1
    ) IS NOT NULL
  LOOP
    UPDATE orchestrator_queue AS q
    SET route = v_start.route,
        -- With a start that is to wait. Others keep their times, by which an ack finds the rows of a claimed batch.
        visible_at = CASE
          WHEN q.lock_token IS NULL AND v_start.visible_at > greatest(p_now, q.due_at)
            THEN v_start.visible_at + interval '1 millisecond'
          ELSE q.visible_at
        END,
        created_at = CASE
          WHEN q.lock_token IS NULL AND v_start.visible_at > greatest(p_now, q.due_at)
            THEN v_start.visible_at + interval '1 millisecond'
          ELSE q.created_at
        END
    WHERE q.id = ANY (ARRAY(
      SELECT message.id FROM orchestrator_queue AS message
      WHERE message.instance_id = v_start.instance_id AND message.route <> v_start.route
      FOR UPDATE SKIP LOCKED
    ));
  END LOOP;
END
$$;

-- Stores the messages of turns, timers among them; routes the messages that arrived before their start; deletes the
-- timers that turns cancel. A part of dx_store_turns.
--
-- Returns how many messages it has inserted.
-- Bound: the messages given, the queued messages of instances that were started, and the timers of instances that
-- cancel some. Locks: queue rows of started instances (skip locked); timers.
CREATE OR REPLACE FUNCTION dx_store_messages(
  p_turns dx_turn[],
  p_orchestrator_items jsonb,      -- as in dx_store_turns
  p_started text[],                -- instances that were started with these turns; null or empty: none
  p_cancels boolean,               -- whether any turn has cancelled_timers
  p_texts text[], p_now_ms bigint
) RETURNS bigint LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_inserted bigint := 0;
BEGIN
  IF p_orchestrator_items IS NOT NULL THEN
    INSERT INTO orchestrator_queue (id, instance_id, work_item, visible_at, created_at, route)
    SELECT
      nextval('orchestrator_queue_id_seq') * CASE
        -- The message that begins an execution must be in its first batch, however many messages wait.
        WHEN due.at <= v_now
          AND (
            COALESCE(message.work_item, p_texts[message.text_at]) LIKE '{"StartOrchestration"%'
            OR COALESCE(message.work_item, p_texts[message.text_at]) LIKE '{"ContinueAsNew"%'
          )
          AND (
            SELECT q.id FROM orchestrator_queue AS q
            WHERE q.instance_id = message.instance_id AND q.due_at <= v_now
            LIMIT 1
          ) IS NOT NULL THEN -1
        ELSE 1
      END,
      message.instance_id, COALESCE(message.work_item, p_texts[message.text_at]), due.at, v_now,
      COALESCE(
        (
          -- The start waits with its instance; a claim finds out what to do with another message.
          SELECT CASE WHEN message.instance_id = ANY (p_started) THEN i.route ELSE COALESCE(i.limit_route, i.route) END
          FROM instances AS i WHERE i.instance_id = message.instance_id
        ),
        ''
      )
    FROM (
      SELECT m.*
      FROM ROWS FROM (
        jsonb_to_recordset(p_orchestrator_items)
          AS (ack bigint, instance_id text, work_item text, text_at integer, visible_at_ms bigint, delay_ms bigint)
      ) WITH ORDINALITY AS m (ack, instance_id, work_item, text_at, visible_at_ms, delay_ms, position)
      WHERE p_turns[m.ack].execution_id IS NOT NULL
      ORDER BY m.position
    ) AS message
    CROSS JOIN LATERAL (
      SELECT dx_time_of(COALESCE(greatest(message.visible_at_ms, p_now_ms + message.delay_ms), p_now_ms)) AS at
    ) AS due;
    GET DIAGNOSTICS v_inserted = ROW_COUNT;
  END IF;

  IF p_started <> '{}' THEN
    PERFORM dx_route_earlier_messages(p_started, NULL, v_now);
  END IF;

  IF p_cancels THEN
    -- After the insert: one turn may create a timer and cancel it. A timer that is visible by now is left to the next
    -- turn.
    DELETE FROM orchestrator_queue AS q
    WHERE q.id = ANY (ARRAY(
      SELECT timer.id FROM unnest(p_turns) AS turn
      CROSS JOIN LATERAL (
        SELECT queued.id FROM orchestrator_queue AS queued
        WHERE queued.instance_id = turn.instance_id
          AND queued.due_at > v_now
          AND turn.cancelled_timers ? queued.work_item
        OFFSET 0
      ) AS timer
      WHERE turn.execution_id IS NOT NULL
    ));
  END IF;

  IF p_orchestrator_items IS NOT NULL AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
    PERFORM dx_notify(
      'orch_work',
      ARRAY(
        SELECT dx_time_of(COALESCE(greatest(message.visible_at_ms, p_now_ms + message.delay_ms), p_now_ms))
        FROM jsonb_to_recordset(p_orchestrator_items) AS message (ack bigint, visible_at_ms bigint, delay_ms bigint)
        WHERE p_turns[message.ack].execution_id IS NOT NULL
      )
    );
  END IF;
  RETURN v_inserted;
END
$$;

-- Stores turns: history, status, key-value changes, new work, cancellations. The shared part of the functions that ack
-- claimed turns (dx_ack_orchestration_items), store optimistic turns (dx_advance_orchestrations) and start instances
-- with their first turns (dx_start_orchestrations). The caller has checked that they may be stored, and excludes every
-- other turn of these instances until its transaction ends.
--
-- Returns the activities that were handed over: an object with the position of a turn as the key, and as its value
-- [{index, lockToken}], sorted, with the index of each among the activities of its turn, from 0. Null without any.
--
-- Handed over are the first activities of a turn that its worker serves, without a session, at most handover_limit.
-- They are stored claimed. If more activities that the worker serves were visible and free before than spare, the slots
-- that it keeps for them, or if that is unknown (dx_count_waiting), none is: no activity overtakes another.
--
-- Each part names its turn by position, from 1, in ack. An argument without parts is null. event_data, work_item and
-- output may be given in p_texts, text_at being the position there: a large text is then neither parsed nor copied with
-- its row. So rows are sorted before their texts are read.
--
-- The caller decodes the turns once, which takes 5 microseconds each; a step that reads them again from JSON took 1 to
-- 2 for each. The functions of the steps run under the settings of the caller: settings of their own take 0.8
-- microseconds per call, up to 7 on a loaded machine.
--
-- Bound: the rows given, and the key-value rows of instances that change them. To hand over: dx_count_waiting.
--
-- Locks, in the order of the steps below: parent rows (key share), then instance rows by id, then the rows of starts by
-- id; executions, history, key-values, attributes, streams; worker rows by id; queue rows.
CREATE OR REPLACE FUNCTION dx_store_turns(
  p_turns dx_turn[],
  p_children text[],               -- of first turns, whose instances and executions the caller has created with their
                                   --   final values: the children that it has created, too. Null for all other turns
  p_history jsonb,                 -- [{ack, event_id, event_type, event_data}]
  p_key_values jsonb,              -- [{ack, action, key, value, last_updated_at_ms}], in the order they apply;
                                   --   and changes of attributes, for dx_store_attributes, and
                                   --   chunks of streams, for dx_store_chunks
  p_worker_items jsonb,            -- [{ack, work_item, name, instance_id, execution_id, activity_id, session_id, tag,
                                   --   served_by, limit_key}]
  p_cancelled_activities jsonb,    -- [{ack, instance_id, execution_id, activity_id}]
  p_orchestrator_items jsonb,      -- [{ack, instance_id, work_item, visible_at_ms, delay_ms, start: {orchestration_name,
                                   --   orchestration_version, parent_instance_id, major, minor, patch}}]; a start
                                   --   creates its instance where the id is free
  p_workers jsonb,                 -- [{lock_timeout_ms, names, untagged, tags}], with tags as in dx_fetch_work_items
  p_texts text[],                  -- null if no part has a text_at
  p_now_ms bigint
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_started text[] := p_children;
  -- Which of the rare steps are needed.
  v_claimed boolean;
  v_leaves boolean;
  v_names boolean;
  v_parents text[];
  v_describes boolean;
  v_reroutes boolean;
  v_ended text[];
  v_ends boolean;
  v_requeues boolean;
  v_cancels boolean;
  v_handed_over jsonb;
  -- Of a step that most acks take: an assignment starts no statement, as PERFORM does.
  v_rows bigint;
BEGIN
  SELECT
    bool_or(turn.secret IS NOT NULL), bool_or(turn.left_ids IS NOT NULL),
    bool_or(turn.orchestration_name IS NOT NULL AND turn.orchestration_version IS NOT NULL) FILTER (WHERE stored.yes),
    array_agg(turn.parent_instance_id) FILTER (WHERE stored.yes AND turn.parent_instance_id IS NOT NULL),
    bool_or(turn.status IS NOT NULL OR turn.major IS NOT NULL) FILTER (WHERE stored.yes),
    bool_or(turn.orchestration_name IS NOT NULL OR turn.major IS NOT NULL OR turn.status = 'ContinuedAsNew')
      FILTER (WHERE stored.yes),
    array_agg(turn.instance_id)
      FILTER (WHERE stored.yes AND turn.status IN ('Completed', 'Failed', 'ContinuedAsNew')),
    bool_or(turn.requeued IS NOT NULL) FILTER (WHERE stored.yes),
    bool_or(turn.cancelled_timers IS NOT NULL) FILTER (WHERE stored.yes)
  INTO v_claimed, v_leaves, v_names, v_parents, v_describes, v_reroutes, v_ended, v_requeues, v_cancels
  FROM unnest(p_turns) AS turn
  CROSS JOIN LATERAL (SELECT turn.execution_id IS NOT NULL AS yes) AS stored;
  v_ends := v_ended IS NOT NULL;

  IF v_parents IS NOT NULL THEN
    -- A deletion of the parent with its children must not miss this child.
    PERFORM FROM instances AS i WHERE i.instance_id = ANY (v_parents)
    ORDER BY i.instance_id COLLATE "C"
    FOR KEY SHARE;
  END IF;

  IF p_children IS NULL THEN
    v_started := dx_store_instances(p_turns, v_claimed AND v_names, p_orchestrator_items, p_texts, v_now);
    IF v_claimed OR v_describes THEN
      v_reroutes := dx_store_executions(p_turns, v_claimed, v_describes, p_texts, v_now) OR v_reroutes;
    END IF;
  END IF;

  IF p_history IS NOT NULL THEN
    INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
    SELECT
      p_turns[event.ack].instance_id, p_turns[event.ack].execution_id, event.event_id, event.event_type,
      COALESCE(event.event_data, p_texts[event.text_at]), v_now
    FROM jsonb_to_recordset(p_history)
      AS event (ack bigint, event_id bigint, event_type text, event_data text, text_at integer)
    WHERE p_turns[event.ack].execution_id IS NOT NULL;
  END IF;

  IF p_key_values IS NOT NULL
    OR (v_ends AND EXISTS (SELECT FROM kv_delta AS d WHERE d.instance_id = ANY (v_ended)))
  THEN
    PERFORM dx_store_key_values(p_turns, p_key_values, v_ends, p_now_ms);
    IF p_key_values @? '$[*] ? (@.action == "attribute")' THEN
      PERFORM dx_store_attributes(p_turns, p_key_values);
    END IF;
    IF p_key_values @? '$[*] ? (@.action == "chunk")' THEN
      PERFORM dx_store_chunks(p_turns, p_key_values, v_now);
    END IF;
  END IF;

  IF p_worker_items IS NOT NULL THEN
    v_handed_over := dx_store_activities(p_turns, p_worker_items, p_cancelled_activities, p_workers, p_texts, p_now_ms);
  END IF;
  IF p_cancelled_activities IS NOT NULL THEN
    PERFORM dx_cancel_activities(p_turns, p_cancelled_activities);
  END IF;

  IF p_children IS NULL AND v_reroutes THEN
    v_rows := dx_reroute_instances(p_turns);
  END IF;
  IF v_ends OR v_leaves THEN
    PERFORM dx_leave_messages(p_turns, v_ends, v_leaves, v_ends AND v_requeues, v_now);
  END IF;
  IF p_orchestrator_items IS NOT NULL OR v_cancels OR v_started <> '{}' THEN
    v_rows := dx_store_messages(p_turns, p_orchestrator_items, v_started, v_cancels, p_texts, p_now_ms);
  END IF;
  RETURN v_handed_over;
END
$$;

-- Stores turns: history, status, key-value changes, new work, cancellations. Deletes their locks and their batches. The
-- messages in left_ids are not deleted: they keep their places in the queue as if they had not been delivered. The
-- messages that the events in requeued have recorded are inserted again, in front of all others.
--
-- Returns one outcome per ack, in order: Done; LockLost if the lock of the token is unknown, expired, superseded or
-- already settled (of several acks with one token, all but the first that can be stored); DuplicateEvent if an event id
-- exists already or is given twice. An ack that is not Done has changed nothing, and does not affect the others.
-- Bound: the rows given, the batches of these locks, and the key-value rows of instances that change them.
-- Locks: instance locks by instance; then as dx_store_turns; then queue rows of the batches. The row in instance_locks
-- stays locked until the transaction ends: two acks of one token exclude each other whatever they store, and so do an
-- ack and a takeover.
CREATE OR REPLACE FUNCTION dx_ack_orchestration_items(
  p_acks jsonb,                    -- [{token and other fields of dx_turn}]
  p_history jsonb,                 -- this and the following: as in dx_store_turns
  p_key_values jsonb, p_worker_items jsonb, p_cancelled_activities jsonb, p_orchestrator_items jsonb,
  p_texts text[] DEFAULT NULL, p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
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
  v_count integer := jsonb_array_length(p_acks);
  v_outcomes text[] := array_fill('LockLost'::text, ARRAY[v_count]);
  -- Without an instance where it was refused, without an execution also where only the batch is consumed.
  v_turns dx_turn[] := ARRAY(SELECT turn FROM jsonb_populate_recordset(NULL::dx_turn, p_acks) AS turn);
  -- Of the locks that end, by position.
  v_instances text[] := array_fill(NULL::text, ARRAY[v_count]);
  v_secrets text[] := array_fill(NULL::text, ARRAY[v_count]);
  v_claimed_ms bigint[] := array_fill(NULL::bigint, ARRAY[v_count]);
  v_lock record;
  v_previous text;
  v_repeated boolean := false;
  v_locked integer := 0;
  v_duplicate bigint;
BEGIN
  FOR v_lock IN
    SELECT ack.position, l.instance_id, l.lock_token, l.locked_at
    FROM ROWS FROM (jsonb_to_recordset(p_acks) AS (token text)) WITH ORDINALITY AS ack (token, position)
    JOIN instance_locks AS l ON l.instance_id = substr(ack.token, 38)
    WHERE l.lock_token = left(ack.token, 36) AND l.locked_until > v_now_ms
    ORDER BY l.instance_id COLLATE "C", ack.position FOR UPDATE OF l
  LOOP
    v_repeated := v_repeated OR v_lock.instance_id IS NOT DISTINCT FROM v_previous;
    v_previous := v_lock.instance_id;
    v_locked := v_locked + 1;
    v_outcomes[v_lock.position] := 'Done';
    v_turns[v_lock.position].instance_id := v_lock.instance_id;
    v_turns[v_lock.position].secret := v_lock.lock_token;
    v_instances[v_lock.position] := v_lock.instance_id;
    v_secrets[v_lock.position] := v_lock.lock_token;
    v_claimed_ms[v_lock.position] := v_lock.locked_at;
  END LOOP;
  IF v_locked < v_count THEN
    FOR v_position IN 1 .. v_count LOOP
      IF v_outcomes[v_position] = 'LockLost' THEN
        v_turns[v_position].execution_id := NULL;
      END IF;
    END LOOP;
  END IF;

  IF p_history IS NOT NULL THEN
    -- While we hold the locks, no other transaction writes these histories: an event id that is free now stays free.
    FOR v_duplicate IN
      SELECT event.ack FROM jsonb_to_recordset(p_history) AS event (ack bigint, event_id bigint)
      WHERE v_turns[event.ack].execution_id IS NOT NULL
      GROUP BY event.ack, event.event_id
      -- Not EXISTS: below OR it may be planned as one read of the whole table.
      HAVING count(*) > 1
        OR (
          SELECT h.event_id FROM history AS h
          WHERE h.instance_id = v_turns[event.ack].instance_id
            AND h.execution_id = v_turns[event.ack].execution_id
            AND h.event_id = event.event_id
        ) IS NOT NULL
    LOOP
      v_outcomes[v_duplicate] := 'DuplicateEvent';
      v_instances[v_duplicate] := NULL;
      v_turns[v_duplicate].instance_id := NULL;
      v_turns[v_duplicate].execution_id := NULL;
    END LOOP;
  END IF;

  IF v_repeated THEN
    -- Of several acks with one token, the first that can be stored ends the lock. A refused ack leaves it as it is.
    v_previous := NULL;
    FOR v_lock IN
      SELECT ack.position, substr(ack.token, 38) AS instance_id
      FROM ROWS FROM (jsonb_to_recordset(p_acks) AS (token text)) WITH ORDINALITY AS ack (token, position)
      WHERE v_outcomes[ack.position] <> 'LockLost'
      ORDER BY substr(ack.token, 38) COLLATE "C", ack.position
    LOOP
      IF v_lock.instance_id = v_previous THEN
        v_outcomes[v_lock.position] := 'LockLost';
        v_instances[v_lock.position] := NULL;
        v_turns[v_lock.position].instance_id := NULL;
        v_turns[v_lock.position].execution_id := NULL;
      ELSIF v_outcomes[v_lock.position] = 'Done' THEN
        v_previous := v_lock.instance_id;
      END IF;
    END LOOP;
  END IF;

  PERFORM dx_store_turns(
    v_turns, NULL, p_history, p_key_values, p_worker_items, p_cancelled_activities, p_orchestrator_items, NULL, p_texts,
    v_now_ms
  );

  -- Every message of a batch was due when its lock was taken; messages that fell due later are not looked at.
  -- Not a join: planned while the queue was empty, it would read the whole of it.
  DELETE FROM orchestrator_queue AS q
  WHERE q.id = ANY (ARRAY(
    SELECT message.id
    FROM unnest(v_instances, v_secrets, v_claimed_ms) AS ended (instance_id, lock_token, locked_at)
    CROSS JOIN LATERAL (
      SELECT queued.id FROM orchestrator_queue AS queued
      WHERE queued.instance_id = ended.instance_id
        AND queued.due_at <= to_timestamp(ended.locked_at::float8 / 1000)
        AND queued.lock_token = ended.lock_token
      OFFSET 0
    ) AS message
  ));

  DELETE FROM instance_locks AS l WHERE l.instance_id = ANY (v_instances);

  RETURN v_outcomes;
END
$$;

-- Says that activities of these sessions have ended now. Sessions whose lock has expired are left alone.
--
-- Bound: the sessions given. Locks: session rows by id.
CREATE OR REPLACE FUNCTION dx_touch_sessions(p_sessions text[], p_now_ms bigint) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
  UPDATE sessions AS s SET last_activity_at = p_now_ms
  FROM (
    SELECT active.session_id FROM sessions AS active
    WHERE active.session_id = ANY (p_sessions) AND active.locked_until > p_now_ms
    ORDER BY active.session_id COLLATE "C" FOR NO KEY UPDATE
  ) AS locked
  WHERE s.session_id = locked.session_id;
END
$$;

-- Deletes claimed activities and delivers their completions.
--
-- Returns one outcome per item, in order: Done, or LockLost if the token is unknown, expired, superseded or settled (of
-- two items with one token, the second), or if the activity was cancelled.
-- Bound: the rows given. Locks: worker rows by id; then session rows by id.
CREATE OR REPLACE FUNCTION dx_ack_work_items(
  p_items jsonb,                   -- [{token, instance_id, work_item or text_at}]; neither: nothing is delivered
  p_texts text[] DEFAULT NULL,     -- as in dx_store_turns
  p_now_ms bigint DEFAULT NULL,
  p_delivers boolean[] DEFAULT NULL -- by position, whether the completion is delivered; null: all are
) RETURNS text[] LANGUAGE plpgsql
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
  v_outcomes text[] := array_fill('LockLost'::text, ARRAY[jsonb_array_length(p_items)]);
  v_ids bigint[] := '{}';
  v_sessions text[] := '{}';
  v_row record;
  v_previous bigint;
BEGIN
  FOR v_row IN
    SELECT item.position, activity.id, activity.session_id
    FROM (
      SELECT a.*, dx_row_id(a.token) AS id
      FROM ROWS FROM (jsonb_to_recordset(p_items) AS (token text)) WITH ORDINALITY AS a (token, position)
      ORDER BY id, a.position
    ) AS item
    CROSS JOIN LATERAL (
      SELECT w.id, w.session_id FROM worker_queue AS w
      WHERE w.id = item.id AND w.lock_token = split_part(item.token, '.', 2) AND w.locked_until > v_now_ms
      FOR UPDATE
    ) AS activity
  LOOP
    CONTINUE WHEN v_row.id = v_previous;
    v_previous := v_row.id;
    v_outcomes[v_row.position] := 'Done';
    v_ids := v_ids || v_row.id;
    IF v_row.session_id IS NOT NULL THEN
      v_sessions := v_sessions || v_row.session_id;
    END IF;
  END LOOP;

  DELETE FROM worker_queue AS w WHERE w.id = ANY (v_ids);

  IF v_sessions <> '{}' THEN
    PERFORM dx_touch_sessions(v_sessions, v_now_ms);
  END IF;

  IF p_delivers IS NULL OR true = ANY (p_delivers) THEN
    INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
    SELECT
      a.instance_id, COALESCE(a.work_item, p_texts[a.text_at]), v_now, v_now,
      COALESCE((SELECT i.route FROM instances AS i WHERE i.instance_id = a.instance_id), '')
    FROM (
      SELECT item.*
      FROM ROWS FROM (jsonb_to_recordset(p_items) AS (instance_id text, work_item text, text_at integer))
        WITH ORDINALITY AS item (instance_id, work_item, text_at, position)
      WHERE v_outcomes[item.position] = 'Done'
        AND (item.work_item IS NOT NULL OR item.text_at IS NOT NULL)
        AND (p_delivers IS NULL OR p_delivers[item.position])
      ORDER BY item.position
    ) AS a;
    IF FOUND AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
      PERFORM dx_notify('orch_work', ARRAY[v_now]);
    END IF;
  END IF;
  RETURN v_outcomes;
END
$$;

-- Makes a committed version the active one. Readers have the version before, or this one.
--
-- Returns {_tag: Activated, previous}, {_tag: ActiveVersionChanged, actual}, {_tag: DatasetNotFound}, {_tag:
-- VersionNotFound} or {_tag: VersionNotCommitted, status}; previous and actual are null without an active version.
-- Bound: one row. Locks: the data set, the version (shared).
CREATE OR REPLACE FUNCTION dx_activate_version(
  p_dataset_uuid uuid, p_version bigint,
  p_compares boolean,              -- whether the active version must be p_expected
  p_expected bigint,               -- null for none
  p_now_ms bigint DEFAULT NULL
) RETURNS jsonb LANGUAGE plpgsql
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
  v_active bigint;
  v_status text;
BEGIN
  SELECT d.active_version INTO v_active FROM queue_datasets AS d
  WHERE d.dataset_uuid = p_dataset_uuid
  FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('_tag', 'DatasetNotFound');
  END IF;

  SELECT v.status INTO v_status FROM queue_dataset_versions AS v
  WHERE v.dataset_uuid = p_dataset_uuid AND v.dataset_version = p_version
  FOR SHARE;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('_tag', 'VersionNotFound');
  END IF;
  IF v_status <> 'Committed' THEN
    RETURN jsonb_build_object('_tag', 'VersionNotCommitted', 'status', v_status);
  END IF;
  IF p_compares AND v_active IS DISTINCT FROM p_expected THEN
    RETURN jsonb_build_object('_tag', 'ActiveVersionChanged', 'actual', v_active);
  END IF;

  UPDATE queue_datasets AS d
  SET active_version = p_version, updated_at = to_timestamp(v_now_ms::float8 / 1000)
  WHERE d.dataset_uuid = p_dataset_uuid AND v_active IS DISTINCT FROM p_version;
  RETURN jsonb_build_object('_tag', 'Activated', 'previous', v_active);
END
$$;

-- Returns the route (name and tag) of an activity. Empty if its text names none, or if the route is too long.
CREATE OR REPLACE FUNCTION dx_activity_route(
  p_work_item text,
  p_tag text,                      -- as the column `tag` has it
  p_session_id text
) RETURNS text LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_route text;
BEGIN
  BEGIN
    v_route := p_work_item::jsonb -> 'ActivityExecute' ->> 'name' || COALESCE(' #' || dx_tag(p_tag), '');
  EXCEPTION
    -- The text is not JSON, or too deep. An insert must not fail for that.
    WHEN data_exception OR program_limit_exceeded THEN
      NULL;
  END;
  -- An index entry holds at most 2,704 bytes. An insert by another program must not fail for that, and no TypeScript
  -- worker serves names this long.
  RETURN CASE
    WHEN octet_length(v_route) + COALESCE(octet_length(p_session_id), 0) <= 2400 THEN v_route
    ELSE ''
  END;
END
$$;

-- Writes messages to the outbox in the given order, in the transaction that gives rise to them.
--
-- Functions that store other rows together with a message insert into queue_outbox themselves, in their own statement,
-- a row of this shape: `queue`; `payload`, a JSON object whose `kind` is a text; `created_at` = now; `deliver_at` = now
-- plus the delay. All other columns keep their defaults. The trigger dx_notify_outbox wakes the publishers with the
-- commit, unless the caller says `duroxide.quiet = on` because it wakes them itself.
--
-- Returns the number of messages. Bound: the rows given. Locks: none.
CREATE OR REPLACE FUNCTION dx_add_to_outbox(
  p_rows jsonb,                    -- [{queue, payload, delay_ms, expires_ms}]; delay_ms defaults to 0, expires_ms to never.
                                   -- A message that expires is not sent after that time, and is deleted once it is sent
  p_now_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql
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
  v_count bigint;
BEGIN
  INSERT INTO queue_outbox (queue, payload, created_at, deliver_at, expires_at)
  SELECT
    m.queue, m.payload, to_timestamp(v_now_ms::float8 / 1000), dx_time_of(v_now_ms + COALESCE(m.delay_ms, 0)),
    to_timestamp((v_now_ms + m.expires_ms)::float8 / 1000)
  FROM ROWS FROM (
    jsonb_to_recordset(p_rows) AS (queue text, payload jsonb, delay_ms bigint, expires_ms bigint)
  ) WITH ORDINALITY AS m (queue, payload, delay_ms, expires_ms, position)
  ORDER BY m.position;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END
$$;

-- Returns a text that compares as semantic versions do, byte by byte: under COLLATE "C". Any other text is lower than
-- every version. Build metadata is ignored.
--
-- The three numbers come first, nine digits each. A release ends with a tilde. A pre-release has a space before each
-- identifier, which is lower than every character of one: so fewer identifiers are lower than more, and all are lower
-- than the release. A number has its length in front, and is lower than a word.
CREATE OR REPLACE FUNCTION dx_semantic_version(p_version text) RETURNS text LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE
    WHEN p_version ~ '^[0-9]{1,9}[.][0-9]{1,9}[.][0-9]{1,9}([-+]|$)' THEN
      (
        SELECT string_agg(lpad(part.digits, 9, '0'), '.' ORDER BY part.place)
        FROM unnest(string_to_array(substring(p_version FROM '^[0-9.]+'), '.')) WITH ORDINALITY AS part (digits, place)
      )
        || COALESCE(
          (
            SELECT string_agg(
              CASE
                WHEN part.identifier ~ '^[0-9]+$' THEN ' 1' || lpad(length(part.identifier)::text, 4, '0')
                ELSE ' 2'
              END || part.identifier,
              ''
              ORDER BY part.place
            )
            FROM unnest(string_to_array(substring(p_version FROM '^[0-9.]+-([^+]*)'), '.'))
              WITH ORDINALITY AS part (identifier, place)
          ),
          '~'
        )
    ELSE ''
  END
$$;

-- Lists the routes of queued messages that a process takes, those with ~ of instances that wait for limits among them:
-- by the version that an instance is pinned to, and by its program (dx_route).
--
-- Bound: one look per route that has rows. Locks: none. PostgreSQL puts it into the statement that calls it.
CREATE OR REPLACE FUNCTION dx_served_routes(
  p_min_version integer[],         -- this and the following: as in dx_fetch_orchestration_items
  p_max_version integer[], p_names text[], p_versions text[], p_orphans boolean
) RETURNS TABLE (route text) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  SELECT present.route FROM dx_routes_of_messages() AS present
  CROSS JOIN LATERAL (
    SELECT
      ltrim(split_part(present.route, ' ', 1), '~') AS pinned,
      substr(present.route, strpos(present.route, ' ')) AS program
  ) AS part
  WHERE (present.route <> '' OR p_orphans)
    AND (
      p_min_version IS NULL
      OR CASE
        WHEN part.pinned IN ('', '-') THEN true
        WHEN part.pinned ~ '^[0-9]{1,9}[.][0-9]{1,9}[.][0-9]{1,9}$' THEN
          string_to_array(part.pinned, '.')::integer[] BETWEEN p_min_version AND p_max_version
        -- A row written by hand; claims must not fail for that.
        ELSE false
      END
    )
    AND CASE
      WHEN p_names IS NULL THEN true
      WHEN part.program LIKE ' >%' THEN EXISTS (
        SELECT FROM unnest(p_names, p_versions) AS served (name, version)
        WHERE served.name = substr(part.program, strpos(substr(part.program, 2), ' ') + 2)
          AND dx_semantic_version(served.version) COLLATE "C"
            >= dx_semantic_version(substr(split_part(substr(part.program, 2), ' ', 1), 2))
      )
      ELSE part.program = ANY (
        ARRAY(
          SELECT unnest(ARRAY[' =' || served.version || ' ' || served.name, ' * ' || served.name])
          FROM unnest(p_names, p_versions) AS served (name, version)
        )
      )
    END
$$;

-- Lists the limits and routes of instances that wait for a slot.
--
-- Bound: two looks at an index for each name of a limit that a running instance has, and one for each route that waits.
-- Locks: none. PostgreSQL puts it into the statement that calls it.
CREATE OR REPLACE FUNCTION dx_parked_instance_routes() RETURNS TABLE (limit_name text, route text) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  -- Name by name: behind the routes of a name the index has its instances with a slot, whose limit_route is null. A
  -- walk from route to route across names would read them all.
  WITH RECURSIVE named AS (
    (
      SELECT i.limit_name FROM instances AS i
      WHERE i.limit_name IS NOT NULL AND (i.status = 'Running') IS TRUE
      ORDER BY i.limit_name LIMIT 1
    )
    UNION ALL
    SELECT next.limit_name
    FROM named
    CROSS JOIN LATERAL (
      SELECT i.limit_name FROM instances AS i
      WHERE (i.status = 'Running') IS TRUE AND i.limit_name > named.limit_name
      ORDER BY i.limit_name LIMIT 1
    ) AS next
  ),
  present AS (
    SELECT first.limit_name, first.limit_route
    FROM named
    CROSS JOIN LATERAL (
      SELECT i.limit_name, i.limit_route FROM instances AS i
      WHERE (i.status = 'Running') IS TRUE AND i.limit_name = named.limit_name AND i.limit_route IS NOT NULL
      ORDER BY i.limit_route LIMIT 1
    ) AS first
    UNION ALL
    SELECT next.limit_name, next.limit_route
    FROM present
    CROSS JOIN LATERAL (
      SELECT i.limit_name, i.limit_route FROM instances AS i
      WHERE (i.status = 'Running') IS TRUE AND i.limit_name = present.limit_name AND i.limit_route > present.limit_route
      ORDER BY i.limit_route LIMIT 1
    ) AS next
  )
  SELECT present.limit_name, present.limit_route FROM present
$$;

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

-- Lets instances that waited for a slot of a limit begin: with a slot, or without a limit. The caller has locked them.
--
-- Bound: the instances given, and their queued messages. Locks: these messages.
CREATE OR REPLACE FUNCTION dx_unpark_instances(
  p_instance_ids text[],
  p_has_slot boolean               -- false: their limit was removed, or they only end
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  UPDATE orchestrator_queue AS q SET route = substr(q.route, 2)
  WHERE q.instance_id = ANY (p_instance_ids)
    AND left(q.route, 1) = '~'; -- not starts_with: found by the instances, whatever the statistics say
  UPDATE instances AS i
  SET route = i.limit_route, limit_route = NULL, limit_name = CASE WHEN p_has_slot THEN i.limit_name END,
      limit_place = CASE WHEN p_has_slot THEN i.limit_place END
  WHERE i.instance_id = ANY (p_instance_ids);
END
$$;

-- Decides on visible messages of an instance that waits for a slot of a limit: they wait with the instance, but a
-- cancellation or an interruption lets the instance go at once, without a slot, because it only ends. A part of
-- dx_fetch_orchestration_items.
--
-- Returns Released if it goes, Waits if not; Locked if it has a slot meanwhile, or another transaction has locked it.
-- Bound: the queued messages of the instance. Locks: the instance (skip locked), then these messages.
CREATE OR REPLACE FUNCTION dx_meet_parked(p_instance_id text) RETURNS text LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_route text;
BEGIN
  SELECT i.limit_route INTO v_route FROM instances AS i WHERE i.instance_id = p_instance_id FOR UPDATE SKIP LOCKED;
  IF v_route IS NULL THEN
    -- It has a slot meanwhile, or gets one.
    RETURN 'Locked';
  END IF;
  -- The quotes of a payload are escaped.
  IF EXISTS (
    SELECT FROM orchestrator_queue AS q
    WHERE q.instance_id = p_instance_id
      AND (q.work_item LIKE '{"CancelInstance"%' OR q.work_item ~ '"name": ?"duroxide-prisma/interrupt"')
  ) THEN
    PERFORM dx_unpark_instances(ARRAY[p_instance_id], false);
    RETURN 'Released';
  END IF;
  UPDATE orchestrator_queue AS q SET route = '~' || v_route
  WHERE q.id = ANY (ARRAY(
    SELECT message.id FROM orchestrator_queue AS message
    WHERE message.instance_id = p_instance_id AND NOT starts_with(message.route, '~')
    FOR UPDATE SKIP LOCKED
  ));
  RETURN 'Waits';
END
$$;

-- Gives a queued message another route. Returns whether it got it: not if it has it already, or if another transaction
-- holds the message.
--
-- Bound: one row. Locks: the message (skip locked).
CREATE OR REPLACE FUNCTION dx_reroute_message(p_id bigint, p_route text) RETURNS boolean LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  -- Not a join: planned while the queue was empty, it would read the whole of it.
  UPDATE orchestrator_queue AS q SET route = p_route
  WHERE q.id = (
      SELECT message.id FROM orchestrator_queue AS message WHERE message.id = p_id
      FOR UPDATE SKIP LOCKED
    )
    AND q.route <> p_route;
  RETURN FOUND;
END
$$;

-- Returns the route of a message: the route of its instance or, for a start or a continue-as-new without an instance,
-- the version and name it asks for. Empty if the id is unknown: the message waits for its start.
-- Bound: one row of instances and executions; the text of a start. Locks: none.
CREATE OR REPLACE FUNCTION dx_message_route(p_instance_id text, p_work_item text) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
  v_route text;
  v_item jsonb;
BEGIN
  SELECT COALESCE(
    -- Of one that waits for a limit, the route it will have: a claim finds out what to do with the message.
    NULLIF(COALESCE(i.limit_route, i.route), ''),
    -- Duroxide wrote this row.
    (
      SELECT dx_route(
        e.duroxide_version_major, e.duroxide_version_minor, e.duroxide_version_patch, i.orchestration_name,
        i.orchestration_version, false
      )
      FROM executions AS e
      WHERE e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
    ),
    dx_route(NULL, NULL, NULL, i.orchestration_name, i.orchestration_version, false)
  )
  INTO v_route
  FROM instances AS i WHERE i.instance_id = p_instance_id;
  IF v_route IS NOT NULL THEN
    RETURN CASE WHEN octet_length(v_route) <= 2400 THEN v_route ELSE '' END;
  END IF;
  IF p_work_item LIKE '{"StartOrchestration"%' OR p_work_item LIKE '{"ContinueAsNew"%' THEN
    BEGIN
      v_item := p_work_item::jsonb;
      v_item := COALESCE(v_item -> 'StartOrchestration', v_item -> 'ContinueAsNew');
      v_route := dx_route(NULL, NULL, NULL, v_item ->> 'orchestration', v_item ->> 'version', false);
    EXCEPTION
      -- The text is not JSON, or too deep. An insert must not fail for that.
      WHEN data_exception OR program_limit_exceeded THEN
        v_route := NULL;
    END;
    -- An index entry holds at most 2,704 bytes. An insert by another program must not fail for that, and no TypeScript
    -- process serves names this long.
    IF octet_length(v_route) <= 2400 THEN
      RETURN v_route;
    END IF;
  END IF;
  -- A tool wrote the history, or the turn named no orchestration: any claim takes the message.
  IF EXISTS (SELECT FROM history AS h WHERE h.instance_id = p_instance_id) THEN
    RETURN '- ?';
  END IF;
  RETURN '';
END
$$;

-- Takes the locks of instances whose advisory locks the caller holds, and returns the messages of their batches that no
-- other transaction has locked: none of instances that another process has taken.
--
-- An existing lock row is taken over if it has expired and no transaction works on it. The other rows are new, and no
-- other transaction can insert them. Sees everything that was committed before the caller took the advisory locks.
--
-- Bound: p_max_bytes of messages, at most 4,096 per instance. Locks: lock rows of the instances (skip locked), their
-- messages (skip locked). Nothing waits.
CREATE OR REPLACE FUNCTION dx_take_instances(
  p_instances text[],
  p_instance_routes text[],        -- of the message that led to each of them
  p_routes text[],                 -- that the process takes
  p_secret text,                   -- of the locks
  p_until_ms bigint,
  p_max_bytes bigint,              -- at least one message is returned
  p_takes_over boolean,            -- as in dx_fetch_orchestration_items
  p_now_ms bigint
) RETURNS bigint[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_held text[];
  v_owned text[] := '{}';
  -- Row ids of messages: the batches, and those of their rows that no other transaction has locked.
  v_batch bigint[];
  v_free bigint[];
BEGIN
  SELECT array_agg(l.instance_id) INTO v_held FROM instance_locks AS l
  WHERE l.instance_id = ANY (p_instances);
  IF v_held IS NOT NULL THEN
    WITH expired AS (
      SELECT l.instance_id FROM instance_locks AS l
      WHERE l.instance_id = ANY (v_held)
        AND l.locked_until <= p_now_ms
        AND (p_takes_over OR l.lock_token = '')
      ORDER BY l.instance_id COLLATE "C" FOR UPDATE SKIP LOCKED
    ),
    taken_over AS (
      UPDATE instance_locks AS l
      SET lock_token = p_secret, locked_until = p_until_ms, locked_at = p_now_ms
      FROM expired WHERE l.instance_id = expired.instance_id
      RETURNING l.instance_id
    )
    SELECT COALESCE(array_agg(instance_id), '{}') INTO v_owned FROM taken_over;
  END IF;
  WITH owned AS (
    INSERT INTO instance_locks (instance_id, lock_token, locked_until, locked_at)
    SELECT taken.instance_id, p_secret, p_until_ms, p_now_ms
    FROM unnest(p_instances) AS taken (instance_id)
    WHERE v_held IS NULL OR taken.instance_id <> ALL (v_held)
    ORDER BY taken.instance_id COLLATE "C"
    ON CONFLICT (instance_id) DO NOTHING RETURNING instance_id
  )
  SELECT v_owned || COALESCE(array_agg(owned.instance_id), '{}') INTO v_owned FROM owned;
  IF v_owned = '{}' THEN
    RETURN '{}';
  END IF;

  SELECT array_agg(sized.id ORDER BY sized.before, sized.id) INTO v_batch
  FROM (
    SELECT
      due.id,
      -- Bytes of the messages before this one.
      sum(due.bytes) OVER (ORDER BY owned.position, due.place, due.id) - due.bytes AS before
    FROM unnest(p_instances, p_instance_routes) WITH ORDINALITY AS owned (instance_id, route, position)
    CROSS JOIN LATERAL (
      -- What is not to wait keeps the order of the ids; times say where timers go among it. Nothing goes in front of
      -- negative ids: what begins an execution, and what was requeued. While we hold the instance, locks of its
      -- messages are of holders that lost theirs.
      (
        SELECT
          prompt.id, prompt.bytes,
          COALESCE(max(prompt.visible_at) FILTER (WHERE prompt.id > 0) OVER (ORDER BY prompt.id), '-infinity') AS place
        FROM (
          SELECT q.id, q.visible_at, octet_length(q.work_item) AS bytes FROM orchestrator_queue AS q
          -- Not "=" and the id alone: the primary key has that order, too, and a plan from when the queue was empty
          -- would read it from end to end.
          WHERE q.instance_id = owned.instance_id AND q.due_at <= '-infinity'
          ORDER BY q.due_at, q.id LIMIT 4096
        ) AS prompt
      )
      UNION ALL
      (
        SELECT q.id, octet_length(q.work_item), q.due_at FROM orchestrator_queue AS q
        WHERE q.instance_id = owned.instance_id AND q.due_at > '-infinity' AND q.due_at <= v_now
        ORDER BY q.due_at, q.id LIMIT 4096
      )
      ORDER BY place, id LIMIT 4096
    ) AS due
    WHERE owned.instance_id = ANY (v_owned)
      -- The version may have changed before the instance was locked.
      AND COALESCE(
        (
          SELECT CASE WHEN i.route = '' THEN dx_message_route(i.instance_id, '') ELSE i.route END
          FROM instances AS i WHERE i.instance_id = owned.instance_id
        ),
        owned.route
      ) = ANY (p_routes)
  ) AS sized
  WHERE sized.before = 0 OR sized.before < p_max_bytes;
  SELECT array_agg(free.id) INTO v_free
  FROM (
    SELECT q.id FROM orchestrator_queue AS q
    WHERE q.id = ANY (v_batch)
      AND NOT starts_with(q.route, '~') -- a limit was set meanwhile, and its start waits for a slot
    ORDER BY q.id FOR UPDATE SKIP LOCKED
  ) AS free;
  IF cardinality(v_free) < cardinality(v_batch) THEN
    -- Another transaction works on a message, for example changes its route. The messages after it are left as well,
    -- to keep their order.
    SELECT array_agg(behind.id) INTO v_free
    FROM (
      SELECT
        q.id,
        bool_and(q.id = ANY (v_free)) OVER (PARTITION BY q.instance_id ORDER BY chosen.position) AS in_order
      FROM unnest(v_batch) WITH ORDINALITY AS chosen (id, position)
      JOIN orchestrator_queue AS q ON q.id = chosen.id
    ) AS behind
    WHERE behind.in_order;
  END IF;
  RETURN COALESCE(v_free, '{}');
END
$$;

-- Returns what a turn of an instance reads besides its messages: one row, also without a row of the instance.
-- Bound: the history up to p_history_limit and 1 MiB, and the values. Locks: none.
CREATE OR REPLACE FUNCTION dx_turn_inputs(
  p_instance_id text,
  p_history_limit integer          -- as in dx_fetch_orchestration_items
) RETURNS TABLE (
  orchestration_name text, orchestration_version text, execution_id bigint, history json, is_whole boolean,
  key_values json
) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  SELECT
    i.orchestration_name, i.orchestration_version, execution.execution_id,
    CASE
      WHEN known.is_whole THEN (
        SELECT json_agg(event.event_data)
        FROM (
          SELECT h.event_data FROM history AS h
          WHERE h.instance_id = p_instance_id AND h.execution_id = execution.execution_id
          ORDER BY h.event_id
        ) AS event
      )
      ELSE (
        SELECT json_build_array(h.event_data) FROM history AS h
        WHERE h.instance_id = p_instance_id AND h.execution_id = execution.execution_id
        ORDER BY h.event_id DESC LIMIT 1
      )
    END,
    known.is_whole,
    (
      SELECT json_agg(json_build_object('key', s.key, 'value', s.value, 'lastUpdatedAtMs', s.last_updated_at_ms))
      FROM kv_store AS s WHERE s.instance_id = p_instance_id
    )
  FROM (SELECT 1) AS always
  LEFT JOIN instances AS i ON i.instance_id = p_instance_id
  CROSS JOIN LATERAL (
    SELECT COALESCE(
      i.current_execution_id, (SELECT max(e.execution_id) FROM executions AS e WHERE e.instance_id = p_instance_id), 1
    ) AS execution_id
  ) AS execution
  CROSS JOIN LATERAL (
    -- Event ids count from 1, so one look at the index is enough. Without an instance row, the started event says
    -- what the instance is.
    SELECT CASE
      WHEN p_history_limit IS NULL OR i.instance_id IS NULL THEN true
      WHEN (
        SELECT h.event_id FROM history AS h
        WHERE h.instance_id = p_instance_id
          AND h.execution_id = execution.execution_id
          AND h.event_id > p_history_limit
        LIMIT 1
      ) IS NOT NULL THEN false
      ELSE (
        SELECT COALESCE(sum(octet_length(h.event_data)), 0) FROM history AS h
        WHERE h.instance_id = p_instance_id AND h.execution_id = execution.execution_id
      ) <= 1048576
    END AS is_whole
  ) AS known
$$;

-- Ends the locks of a claim on instances of which it got no message: before they were locked, another process settled
-- their messages or pinned their version.
--
-- Bound: the locks given, and the queued messages of their instances. Locks: the lock rows.
CREATE OR REPLACE FUNCTION dx_release_instances(
  p_instances text[],
  p_secret text                    -- of the locks
) RETURNS void LANGUAGE sql VOLATILE
-- settings of the caller
AS $$
  DELETE FROM instance_locks AS l
  WHERE l.instance_id = ANY (p_instances)
    AND l.lock_token = p_secret
    AND NOT EXISTS (
      SELECT FROM orchestrator_queue AS q
      WHERE q.instance_id = l.instance_id AND q.lock_token = p_secret
    );
$$;

-- Gives messages of the future that are not to wait (due_at) the present time, among the next 100 of each route: the
-- clock was set back since they were stored. One that arrives with a start that is to wait stays.
--
-- Returns how many there were. Bound: 100 rows per route. Locks: these messages (skip locked).
CREATE OR REPLACE FUNCTION dx_bring_messages_forward(p_routes text[], p_now timestamptz) RETURNS integer
LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_count integer;
BEGIN
  UPDATE orchestrator_queue AS q SET visible_at = p_now
  WHERE q.id = ANY (ARRAY(
    SELECT free.id FROM unnest(p_routes) AS wanted (route)
    CROSS JOIN LATERAL (
      SELECT message.id, message.instance_id, message.due_at FROM orchestrator_queue AS message
      WHERE message.route = wanted.route AND message.visible_at > p_now
      ORDER BY message.visible_at, message.id LIMIT 100
    ) AS next
    CROSS JOIN LATERAL (
      SELECT message.id FROM orchestrator_queue AS message
      WHERE message.id = next.id
      FOR UPDATE SKIP LOCKED
    ) AS free
    WHERE next.due_at = '-infinity'
      -- Unless it arrives with a start that is to wait.
      AND (
        (SELECT h.event_id FROM history AS h WHERE h.instance_id = next.instance_id LIMIT 1) IS NOT NULL
        OR (
          SELECT start.id FROM orchestrator_queue AS start
          WHERE start.instance_id = next.instance_id
            AND start.due_at > p_now
            AND start.work_item LIKE '{"StartOrchestration"%'
          LIMIT 1
        ) IS NULL
      )
  ));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END
$$;

-- Returns when the first message of these routes became visible that no process holds; null without one.
-- Bound: per route, the visible messages that processes hold in front of the first other one. Locks: none.
CREATE OR REPLACE FUNCTION dx_oldest_message(
  p_routes text[], p_now timestamptz,
  p_now_ms bigint                  -- the same time
) RETURNS timestamptz LANGUAGE plpgsql STABLE
-- settings of the caller
AS $$
BEGIN
  RETURN (
    SELECT min(oldest.visible_at) FROM unnest(p_routes) AS wanted (route)
    CROSS JOIN LATERAL (
      SELECT q.visible_at FROM orchestrator_queue AS q
      WHERE q.route = wanted.route
        AND q.visible_at <= p_now
        AND dx_is_free(q.lock_token, q.locked_until, p_now_ms)
      ORDER BY q.visible_at, q.id LIMIT 1
    ) AS oldest
  );
END
$$;

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
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
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

-- Returns the names of tasks that have limits. Bound: the limits of tasks. Locks: none.
CREATE OR REPLACE FUNCTION dx_limited_tasks() RETURNS text[] LANGUAGE sql STABLE
-- settings of the caller
AS $$
  SELECT ARRAY(SELECT l.name FROM limits AS l WHERE l.kind = 'task')
$$;

-- Whether an execution of an orchestration has begun and not ended.
--
-- Bound: one row. Locks: none.
CREATE OR REPLACE FUNCTION dx_is_execution_running(p_instance_id text, p_execution_id bigint) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
  RETURN COALESCE(
    (
      SELECT e.status = 'Running' FROM executions AS e
      WHERE e.instance_id = p_instance_id AND e.execution_id = p_execution_id
    ),
    false
  );
END
$$;

-- Says what tasks do that a claim could not lock: another transaction has locked them, or they wait for a slot. A part
-- of dx_claim_tasks, whose outcomes these are.
--
-- A task that waits while another transaction has locked it is Locked: if that is neither a claim nor an end, nothing
-- else wakes the task.
--
-- Bound: the wake-ups given. Locks: none.
CREATE OR REPLACE FUNCTION dx_judge_unlocked_tasks(
  p_ids uuid[],                    -- of the task that each wake-up names
  p_names text[],                  -- of the tasks that the caller serves
  p_limited text[],                -- of the tasks with a limit
  p_now_ms bigint,
  INOUT p_outcomes text[],         -- of each wake-up; only those that are Missing are judged
  INOUT p_stands_for text[]        -- the name of whose tasks it may begin one
) LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_row record;
BEGIN
  FOR v_row IN
    SELECT item.position, t.* FROM unnest(p_ids) WITH ORDINALITY AS item (id, position)
    CROSS JOIN LATERAL (
      SELECT
        x.name, x.status, x.run_at > v_now AS is_early, NOT x.has_slot AND x.lost < 2 AS is_limited,
        x.status = 'Pending' OR (x.status = 'Running' AND x.lease_until <= p_now_ms) AS is_waiting
      FROM queue_tasks AS x WHERE x.id = item.id
      OFFSET 0
    ) AS t
    WHERE p_outcomes[item.position] = 'Missing'
  LOOP
    p_outcomes[v_row.position] := CASE
      WHEN v_row.is_limited AND v_row.is_early THEN 'NotDue'
      WHEN v_row.is_limited THEN 'Limited'
      WHEN v_row.is_waiting THEN 'Locked'
      ELSE 'Busy'
    END;
    IF p_outcomes[v_row.position] IN ('Limited', 'Busy') AND v_row.name = ANY (p_names)
      AND (v_row.is_limited OR v_row.name = ANY (p_limited))
    THEN
      p_stands_for[v_row.position] := v_row.name;
    END IF;
  END LOOP;
END
$$;

-- Announces that tasks have ended: to the executions that wait for them and run, by a message in the same transaction,
-- and to the processes that wait, by notifications with the commit. Other tasks of the list are passed over.
--
-- The notifications fail no statement, as those of dx_notify. Without them, callers that wait find the end with their
-- next look.
--
-- Bound: the rows given, and the executions that wait for them. Locks: the rows of queue_task_callers, which are
-- deleted.
CREATE OR REPLACE FUNCTION dx_announce_task_ends(
  p_ids uuid[],                    -- of tasks whose end is stored
  p_now_ms bigint
) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
  v_now timestamptz := to_timestamp(p_now_ms::float8 / 1000);
BEGIN
  WITH joined AS (
    DELETE FROM queue_task_callers AS c WHERE c.task_id = ANY (p_ids)
    RETURNING c.task_id, c.instance_id, c.execution_id, c.signal
  ),
  caller AS (
    SELECT
      t.id AS task_id, t.reply_instance_id AS instance_id, t.reply_execution_id AS execution_id,
      t.reply_name AS signal
    FROM queue_tasks AS t WHERE t.id = ANY (p_ids) AND t.reply_instance_id IS NOT NULL
    UNION ALL
    SELECT joined.* FROM joined
  )
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
  SELECT
    caller.instance_id,
    json_build_object(
      'QueueMessage',
      json_build_object(
        'instance', caller.instance_id, 'name', caller.signal,
        'data', json_build_object('status', t.status, 'result', t.result, 'error', t.error)::text
      )
    )::text,
    v_now, v_now
  FROM caller
  CROSS JOIN LATERAL (
    SELECT x.status, x.result, x.error FROM queue_tasks AS x
    WHERE x.id = caller.task_id
    OFFSET 0
  ) AS t
  WHERE dx_is_execution_running(caller.instance_id, caller.execution_id)
  ORDER BY caller.task_id, caller.instance_id, caller.signal;
  -- The trigger has done it, unless the caller is quiet about what it announces itself.
  IF FOUND AND current_setting('duroxide.quiet', true) = 'on' THEN
    PERFORM dx_notify('orch_work', ARRAY[v_now]);
  END IF;

  IF dx_may_notify() THEN
    PERFORM pg_notify(dx_channel('queues'), string_agg('t ' || task.id, E'\n'))
    FROM (
      SELECT t.id, row_number() OVER () / 150 AS part -- a payload has fewer than 8,000 bytes
      FROM queue_tasks AS t WHERE t.id = ANY (p_ids) AND t.is_awaited
    ) AS task
    GROUP BY task.part;
  END IF;
END
$$;

-- Announces that attempts at tasks with limits have ended: wakes as many tasks that wait for a slot. The caller has
-- stored the ends.
--
-- It waits for calls of dx_admit_tasks that have not seen these ends, and sees what they have left waiting.
-- Bound: the names given, 1,000 keys of each. Locks: advisory locks of their limits, shared, in the order of names.
CREATE OR REPLACE FUNCTION dx_free_task_slots(
  p_names text[],                  -- of the tasks, one for each slot; those without a limit are left out
  p_now_ms bigint                  -- null: the time after the locks were taken
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_name text;
  v_count bigint;
  v_now_ms bigint;
BEGIN
  FOR v_name, v_count IN
    SELECT free.name, count(*) FROM unnest(p_names) AS free (name)
    WHERE EXISTS (SELECT FROM limits AS l WHERE l.kind = 'task' AND l.name = free.name)
    GROUP BY free.name
    ORDER BY free.name COLLATE "C"
  LOOP
    PERFORM pg_advisory_xact_lock_shared(dx_limit_lock('task', v_name));
    v_now_ms := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    PERFORM dx_wake_limited_task(v_name, v_count, l.last_key, v_now_ms, v_now_ms) FROM limits AS l
    WHERE l.kind = 'task' AND l.name = v_name AND l.has_waiting;
  END LOOP;
END
$$;

-- Returns the UUID that a text holds; null for any other text.
CREATE OR REPLACE FUNCTION dx_task_id(p_text text) RETURNS uuid LANGUAGE sql IMMUTABLE
AS $$
  -- A regular expression takes several times as long.
  SELECT CASE
    WHEN p_text LIKE '________-____-____-____-____________'
      AND translate(p_text, '0123456789abcdefABCDEF', '') = '----'
    THEN p_text::uuid
  END
$$;

-- Cancels tasks: one that waits never runs; the attempt that runs can no longer commit, and its worker is notified.
--
-- Returns one outcome per task, in order: Cancelled, Ended if it was already, or Missing.
-- Bound: the tasks given. Locks: the tasks, by id; waits for an attempt that commits; then as dx_free_task_slots.
CREATE OR REPLACE FUNCTION dx_cancel_tasks(
  p_ids text[], p_reason text,
  p_replies boolean DEFAULT true,  -- whether an execution that waits for the task receives its end
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
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
  v_outcomes text[] := array_fill('Missing'::text, ARRAY[COALESCE(cardinality(p_ids), 0)]);
  v_cancelled uuid[] := '{}';
  v_freed text[] := '{}';
  v_row record;
BEGIN
  FOR v_row IN
    SELECT item.position, task.*
    FROM (
      SELECT i.position, dx_task_id(i.id) AS id
      FROM unnest(p_ids) WITH ORDINALITY AS i (id, position)
      ORDER BY 2
    ) AS item
    CROSS JOIN LATERAL (
      SELECT t.id, t.name, t.has_slot, t.status, t.attempt, t.worker_id, t.started_at FROM queue_tasks AS t
      WHERE t.id = item.id
      FOR NO KEY UPDATE
    ) AS task
  LOOP
    IF v_row.id = ANY (v_cancelled) THEN
      v_outcomes[v_row.position] := 'Cancelled';
      CONTINUE;
    ELSIF v_row.status NOT IN ('Pending', 'Running') THEN
      v_outcomes[v_row.position] := 'Ended';
      CONTINUE;
    END IF;
    v_outcomes[v_row.position] := 'Cancelled';
    v_cancelled := v_cancelled || v_row.id;
    IF v_row.has_slot THEN
      v_freed := v_freed || v_row.name;
    END IF;
    IF v_row.status = 'Running' THEN
      INSERT INTO queue_task_attempts (task_id, attempt, worker_id, started_at, ended_at, outcome)
      VALUES (v_row.id, v_row.attempt, v_row.worker_id, v_row.started_at, v_now, 'Cancelled')
      ON CONFLICT DO NOTHING;
    END IF;
    UPDATE queue_tasks AS t
    SET status = 'Cancelled', error = json_build_object('_tag', 'Cancelled', 'reason', p_reason)::text,
        worker_id = NULL, started_at = NULL, lease_until = NULL, heartbeat_at = NULL, look_at = NULL, has_slot = NULL,
        unserved_at = NULL,
        reply_instance_id = CASE WHEN p_replies THEN t.reply_instance_id END,
        -- The worker of the attempt waits for hints of the task.
        is_awaited = t.is_awaited OR v_row.status = 'Running', updated_at = v_now, ended_at = v_now
    WHERE t.id = v_row.id;
  END LOOP;

  IF v_cancelled <> '{}' THEN
    PERFORM dx_announce_task_ends(v_cancelled, v_now_ms);
  END IF;
  IF v_freed <> '{}' THEN
    PERFORM dx_free_task_slots(v_freed, p_now_ms);
  END IF;
  RETURN v_outcomes;
END
$$;

-- Stores what a claim of tasks has found besides those it takes. A part of dx_claim_tasks, which has locked them all.
--
-- Bound: the tasks given. Locks: as dx_announce_task_ends and dx_cancel_tasks; the caller has those of limits.
CREATE OR REPLACE FUNCTION dx_store_claim_findings(
  p_lost uuid[],                   -- their attempts were lost
  p_dead uuid[],                   -- they end, because the last attempt was lost
  p_cancelled uuid[],              -- they end, because their execution has ended
  p_unserved uuid[],               -- they wait for another worker
  p_now_ms bigint
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_freed text[];
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
BEGIN
  IF p_lost <> '{}' THEN
    INSERT INTO queue_task_attempts (task_id, attempt, worker_id, started_at, ended_at, outcome)
    SELECT t.id, t.attempt, t.worker_id, t.started_at, v_now, 'Lost' FROM queue_tasks AS t
    WHERE t.id = ANY (p_lost)
    ON CONFLICT DO NOTHING;
  END IF;
  IF p_unserved <> '{}' THEN
    UPDATE queue_tasks AS t SET unserved_at = v_now WHERE t.id = ANY (p_unserved);
  END IF;
  IF p_dead <> '{}' THEN
    v_freed := ARRAY(SELECT t.name FROM queue_tasks AS t WHERE t.id = ANY (p_dead) AND t.has_slot);
    UPDATE queue_tasks AS t
    SET status = 'Dead', error = '{"_tag":"Lost"}', worker_id = NULL, started_at = NULL, lease_until = NULL,
        heartbeat_at = NULL, look_at = NULL, has_slot = NULL, updated_at = v_now, dead_at = v_now
    WHERE t.id = ANY (p_dead);
    PERFORM dx_announce_task_ends(p_dead, p_now_ms);
    IF v_freed <> '{}' THEN
      PERFORM dx_free_task_slots(v_freed, p_now_ms);
    END IF;
  END IF;
  IF p_cancelled <> '{}' THEN
    PERFORM dx_cancel_tasks(p_cancelled::text[], 'its orchestration has ended', false, p_now_ms);
  END IF;
END
$$;

-- Begins tasks with a limit for wake-ups of their name, and suspects for wake-ups of their own. A part of
-- dx_claim_tasks, which has the locks of their limits; says of each wake-up which task it began.
--
-- Bound, locks: those of dx_admit_tasks, once per name and once per suspect.
CREATE OR REPLACE FUNCTION dx_admit_wakeups(
  p_ids uuid[],                    -- of the task that each wake-up names
  p_stands_for text[],             -- the name of whose tasks it may begin one; null: none
  p_suspects bigint[],             -- positions of wake-ups whose task is a suspect and waits for a slot
  p_names text[], p_lease_ms bigint[], p_worker_id text, p_claim_id integer, -- as in dx_claim_tasks
  p_known uuid[],                  -- tasks that the claim has begun already
  p_now_ms bigint,
  INOUT p_outcomes text[],         -- of each wake-up, as in dx_claim_tasks
  INOUT p_answers uuid[]           -- the task of each outcome
) LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_row record;
  v_admitted record;
  v_position bigint;
BEGIN
  FOR v_row IN
    SELECT wakeup.name, array_agg(wakeup.position) AS positions
    FROM unnest(p_stands_for) WITH ORDINALITY AS wakeup (name, position)
    WHERE wakeup.name IS NOT NULL
    GROUP BY wakeup.name
    ORDER BY wakeup.name COLLATE "C"
  LOOP
    SELECT admitted.* INTO v_admitted
    FROM dx_admit_tasks(
      v_row.name, cardinality(v_row.positions), p_lease_ms[array_position(p_names, v_row.name)], p_worker_id,
      p_claim_id, p_known, NULL, p_now_ms
    ) AS admitted;
    FOR v_position IN
      SELECT item.position FROM unnest(v_row.positions) AS item (position)
      -- Each its own task, if that has begun.
      ORDER BY p_ids[item.position] = ANY (v_admitted.out_ids) DESC, item.position
    LOOP
      IF p_ids[v_position] = ANY (v_admitted.out_ids) THEN
        p_answers[v_position] := p_ids[v_position];
      ELSE
        p_answers[v_position] := v_admitted.out_ids[1];
      END IF;
      IF p_answers[v_position] IS NOT NULL THEN
        p_outcomes[v_position] := 'Claimed';
        v_admitted.out_ids := array_remove(v_admitted.out_ids, p_answers[v_position]);
      ELSE
        p_answers[v_position] := p_ids[v_position];
        IF NOT v_admitted.out_may_drop THEN
          p_outcomes[v_position] := 'Locked';
        END IF;
      END IF;
    END LOOP;
  END LOOP;
  FOREACH v_position IN ARRAY p_suspects LOOP
    SELECT admitted.* INTO v_admitted FROM queue_tasks AS t
    CROSS JOIN LATERAL dx_admit_tasks(
      t.name, 1, p_lease_ms[array_position(p_names, t.name)], p_worker_id, p_claim_id, '{}', t.id, p_now_ms
    ) AS admitted
    WHERE t.id = p_ids[v_position];
    IF v_admitted.out_ids <> '{}' THEN
      p_outcomes[v_position] := 'Claimed';
    END IF;
  END LOOP;
END
$$;

-- Claims the tasks that wake-ups name, each for the length of its lease: begins the next attempt.
--
-- Returns one row per wake-up, in order, whose outcome says what to do with it. Claimed: the caller runs this attempt.
-- Busy: another attempt runs, also one that another wake-up of the same call has begun. Locked: another transaction
-- has locked the task, so its state is unknown: ask again. NotDue: it may run after out_due_ms. Ended, Missing: there
-- is nothing to run. Exhausted: it is dead now, its last attempt was lost. Unserved: the caller does not serve its
-- name, which the task notes if it waits: a worker that serves it takes it (dx_take_tasks), or wakes it at its start.
-- Suspect: its last attempts were lost, and the caller may hold no further task of its kind now (dx_group_of): ask
-- again later. Limited: it waits for a slot of its limit, and another wake-up follows. A wake-up of a task with a
-- limit stands for any task of its name, so the claimed one may be another (dx_admit_tasks).
--
-- An attempt whose lease has ended is lost, and the next one begins. A lost attempt counts against the maximum only if
-- five were lost before it, or if the task has a single attempt: until then, another suspect may have ended the worker.
-- Such a task was claimed as the only suspect; others join it only once it has proved itself, after 5 minutes or more.
-- A task whose execution has ended is cancelled. A claim that is repeated with its id is answered again.
--
-- Bound: the wake-ups given, and what dx_admit_tasks reads. Locks: the tasks, by id (skip locked); then those of
-- dx_admit_tasks, by name.
CREATE OR REPLACE FUNCTION dx_claim_tasks(
  p_ids uuid[],                    -- of the task that each wake-up names; null: it names none
  p_names text[],                  -- of the tasks that the caller serves
  p_lease_ms bigint[],             -- of each of them, milliseconds, > 0
  p_worker_id text,
  p_claim_id integer DEFAULT NULL, -- chosen by the caller
  p_suspects integer[] DEFAULT '{64,16,4,1}', -- suspects that may be claimed together, see dx_group_of
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_outcome text, out_id text, out_name text, out_attempt integer,
  out_counted integer,             -- the attempts that count against the maximum, this one included
  out_lost integer,                -- attempts lost one after another before this one; of a suspect, before the next
  out_payload text,
  out_due_ms bigint,               -- milliseconds from now
  out_trace_context text
) LANGUAGE plpgsql
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
  v_outcomes text[] := array_fill('Missing'::text, ARRAY[cardinality(p_ids)]);
  v_row record;
  v_previous uuid;
  v_name integer;
  v_claimed uuid[] := '{}';
  v_until_ms bigint[] := '{}';
  v_losses integer[] := '{}';
  v_uncounted integer[] := '{}';
  v_again uuid[] := '{}';
  v_is_lost boolean;
  v_row_losses integer;
  v_row_uncounted integer;
  v_suspects integer := 0;
  v_most integer := 2147483647;
  v_lost uuid[] := '{}';
  v_dead uuid[] := '{}';
  v_cancelled uuid[] := '{}';
  v_unserved uuid[] := '{}';
  v_limited CONSTANT text[] := dx_limited_tasks();
  v_stands_for text[] := array_fill(NULL::text, ARRAY[cardinality(p_ids)]); -- the name of whose tasks one may begin
  v_answers uuid[] := p_ids;
  v_waiting_suspects bigint[] := '{}'; -- their positions
  v_freed text[] := '{}';
BEGIN
  FOR v_row IN
    SELECT item.position, item.id, task.*
    FROM (
      SELECT wakeup.id, wakeup.position FROM unnest(p_ids) WITH ORDINALITY AS wakeup (id, position)
      ORDER BY wakeup.id, wakeup.position
    ) AS item
    CROSS JOIN LATERAL (
      SELECT
        t.name, t.status, t.attempt, t.uncounted, t.lost, t.max_attempts, t.lease_until, t.run_at, t.reply_instance_id,
        t.reply_execution_id, t.unserved_at, t.has_slot, t.worker_id = p_worker_id AND t.claim_id = p_claim_id AS is_ours
      FROM queue_tasks AS t
      WHERE t.id = item.id
        -- Those that wait for a slot are locked in the order of their limit.
        AND (num_nulls(t.has_slot) = 1 OR t.has_slot OR t.lost >= 2 OR t.name <> ALL (p_names))
      FOR NO KEY UPDATE SKIP LOCKED
    ) AS task
  LOOP
    IF v_row.id = v_previous THEN
      v_outcomes[v_row.position] := 'Busy';
      IF v_row.name = ANY (v_limited) AND v_name IS NOT NULL THEN
        v_stands_for[v_row.position] := v_row.name;
      END IF;
      CONTINUE;
    END IF;
    v_previous := v_row.id;
    v_name := array_position(p_names, v_row.name);
    IF v_row.status = 'Running' AND v_row.is_ours THEN
      v_outcomes[v_row.position] := 'Claimed';
      v_again := v_again || v_row.id;
      IF v_row.lost >= 2 THEN
        v_most := least(v_most, dx_group_of(v_row.lost, p_suspects));
        v_suspects := v_suspects + 1;
      END IF;
      CONTINUE;
    END IF;
    v_is_lost := v_row.status = 'Running' AND v_row.lease_until <= v_now_ms;
    v_row_losses := v_row.lost + v_is_lost::integer;
    v_row_uncounted := v_row.uncounted
      + (v_is_lost AND v_row.max_attempts > 1 AND v_row.lost <= cardinality(p_suspects))::integer;
    v_outcomes[v_row.position] := CASE
      WHEN v_row.status NOT IN ('Pending', 'Running') THEN 'Ended'
      WHEN v_name IS NULL THEN 'Unserved'
      WHEN v_row.status = 'Running' AND NOT v_is_lost THEN 'Busy'
      WHEN v_row.status = 'Pending' AND v_row.run_at > v_now THEN 'NotDue'
      WHEN v_row.attempt - v_row_uncounted >= v_row.max_attempts THEN 'Exhausted'
      ELSE 'Claimed'
    END;
    IF v_name IS NULL AND v_row.status = 'Pending' AND v_row.unserved_at IS NULL THEN
      v_unserved := v_unserved || v_row.id;
    END IF;
    IF v_outcomes[v_row.position] IN ('Busy', 'Ended') AND v_row.name = ANY (v_limited) AND v_name IS NOT NULL THEN
      v_stands_for[v_row.position] := v_row.name;
    END IF;
    CONTINUE WHEN v_outcomes[v_row.position] NOT IN ('Claimed', 'Exhausted');
    IF v_row.reply_instance_id IS NOT NULL
      AND NOT dx_is_execution_running(v_row.reply_instance_id, v_row.reply_execution_id)
    THEN
      v_cancelled := v_cancelled || v_row.id;
      v_outcomes[v_row.position] := 'Ended';
      IF v_row.has_slot THEN
        v_freed := v_freed || v_row.name;
      END IF;
    ELSIF v_outcomes[v_row.position] = 'Exhausted' THEN
      v_dead := v_dead || v_row.id;
      IF v_row.has_slot THEN
        v_freed := v_freed || v_row.name;
      END IF;
    ELSE
      IF v_row_losses >= 2 THEN
        v_most := least(v_most, dx_group_of(v_row_losses, p_suspects));
        IF v_suspects >= v_most THEN
          v_outcomes[v_row.position] := 'Suspect';
          CONTINUE;
        END IF;
        v_suspects := v_suspects + 1;
      END IF;
      IF NOT v_row.has_slot THEN
        v_outcomes[v_row.position] := 'Suspect';
        v_waiting_suspects := v_waiting_suspects || v_row.position;
        v_freed := v_freed || v_row.name;
        CONTINUE;
      END IF;
      v_claimed := v_claimed || v_row.id;
      v_until_ms := v_until_ms || (v_now_ms + p_lease_ms[v_name]);
      v_losses := v_losses || v_row_losses;
      v_uncounted := v_uncounted || v_row_uncounted;
    END IF;
    IF v_is_lost THEN
      v_lost := v_lost || v_row.id;
    END IF;
  END LOOP;

  IF 'Missing' = ANY (v_outcomes) THEN
    SELECT unlocked.p_outcomes, unlocked.p_stands_for INTO v_outcomes, v_stands_for
    FROM dx_judge_unlocked_tasks(p_ids, p_names, v_limited, v_now_ms, v_outcomes, v_stands_for) AS unlocked;
  END IF;

  v_freed := v_freed || array_remove(v_stands_for, NULL);
  IF v_freed <> '{}' THEN
    FOR v_row IN SELECT DISTINCT freed.name COLLATE "C" AS name FROM unnest(v_freed) AS freed (name) ORDER BY 1 LOOP
      PERFORM pg_advisory_xact_lock(dx_limit_lock('task', v_row.name));
    END LOOP;
  END IF;

  IF v_lost || v_dead || v_cancelled || v_unserved <> '{}' THEN
    PERFORM dx_store_claim_findings(v_lost, v_dead, v_cancelled, v_unserved, v_now_ms);
  END IF;

  UPDATE queue_tasks AS t
  SET status = 'Running', attempt = t.attempt + 1, uncounted = claim.uncounted, lost = claim.losses,
      worker_id = p_worker_id, started_at = v_now, claim_id = p_claim_id, lease_until = claim.until_ms,
      heartbeat_at = v_now, look_at = least(t.look_at, to_timestamp((claim.until_ms + 500)::float8 / 1000)),
      unserved_at = NULL, updated_at = v_now
  FROM unnest(v_claimed, v_until_ms, v_losses, v_uncounted) AS claim (id, until_ms, losses, uncounted)
  WHERE t.id = claim.id;

  IF v_again <> '{}' THEN
    UPDATE queue_tasks AS t
    SET lease_until = v_now_ms + p_lease_ms[array_position(p_names, t.name)], heartbeat_at = v_now
    WHERE t.id = ANY (v_again);
  END IF;

  IF v_freed <> '{}' THEN
    SELECT admitted.p_outcomes, admitted.p_answers INTO v_outcomes, v_answers
    FROM dx_admit_wakeups(
      p_ids, v_stands_for, v_waiting_suspects, p_names, p_lease_ms, p_worker_id, p_claim_id, v_claimed || v_again,
      v_now_ms, v_outcomes, v_answers
    ) AS admitted;
  END IF;

  RETURN QUERY
  SELECT
    answer.outcome, answer.id::text, t.name, t.attempt, t.attempt - t.uncounted,
    t.lost + (answer.outcome = 'Suspect' AND t.status = 'Running')::integer,
    CASE WHEN answer.outcome = 'Claimed' THEN t.payload END,
    CASE
      WHEN answer.outcome = 'NotDue'
      THEN ceil(extract(epoch FROM least(t.run_at, '9999-12-31')) * 1000)::bigint - v_now_ms
    END,
    t.trace_context
  FROM unnest(v_outcomes, v_answers) WITH ORDINALITY AS answer (outcome, id, position)
  LEFT JOIN LATERAL (SELECT x.* FROM queue_tasks AS x WHERE x.id = answer.id OFFSET 0) AS t ON true
  ORDER BY answer.position;
END
$$;

-- Begins attempts at tasks of a limit, as far as it has slots and tokens: up to p_most, whichever of them are next. A
-- part of dx_take_tasks and dx_admit_wakeups, for wake-ups of tasks of this name: each stands for any of these tasks,
-- so the order of the queue does not matter, and wake-ups that find no slot can be dropped.
--
-- A task has its slot as long as an attempt at it runs. So slots are counted, not kept: when a process dies, its
-- attempt keeps the slot until its lease has ended and the next attempt begins, which needs no other slot and no token.
--
-- The keys of a limit take turns, one task each, the one that is due longest first; the next call continues with the
-- key behind the last one. So before a task that may begin comes at most one of each other key that waits, after those
-- that run.
--
-- Once wake-ups were dropped, the limit has has_waiting: then each end of an attempt writes a wake-up of a task that
-- waits (dx_free_task_slots). Where tasks wait for a token, a wake-up is written for its time. dx_sweep_tasks looks at
-- what was lost. Where tasks wait and have room after all, this call writes two wake-ups more.
--
-- A task whose limit was removed is claimed as one without a limit.
--
-- Bound: the tasks of this limit that run; 1,000 keys, for each those of its tasks that run, up to its limit. Locks:
-- the advisory lock of the limit (waits for calls of the same limit, and ends of attempts), then tasks (skip locked).
CREATE OR REPLACE FUNCTION dx_admit_tasks(
  p_name text, p_most integer,
  p_lease_ms bigint, p_worker_id text, p_claim_id integer, -- as in dx_claim_tasks
  p_known uuid[],                  -- tasks that a repeated claim knows to be its own
  p_suspect uuid,                  -- only this task, out of turn; null: all but suspects
  p_now_ms bigint,
  OUT out_ids uuid[],
  OUT out_may_drop boolean         -- whether wake-ups of the name beyond these may be dropped: others follow, or no task
                                   -- waits
) LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_last_id CONSTANT uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
  v_limit limits;
  v_has_limit boolean;
  v_key limit_keys;
  v_next record;
  -- The place in the round: behind the task with this key, time and id.
  v_at_key text := '';
  v_at timestamptz := 'infinity';
  v_at_id uuid := v_last_id;
  v_visits integer := 0;
  v_has_begun boolean := true;
  v_is_held boolean := false;      -- whether a later call may begin more although nothing happens before
  v_is_blocked boolean := false;   -- whether some wait for a slot or a token
  v_is_done boolean := false;      -- whether no further task was found
  v_slots bigint;                  -- how many more all keys together may have; null: any number
  v_next_ms bigint;                -- when the first token is free that a task waits for
  v_token_ms double precision;     -- when the next token is free; null without a rate
BEGIN
  PERFORM pg_advisory_xact_lock(dx_limit_lock('task', p_name));
  SELECT l.* INTO v_limit FROM limits AS l WHERE l.kind = 'task' AND l.name = p_name;
  v_has_limit := FOUND;

  SELECT
    v_limit.concurrency - count(*),
    COALESCE(
      array_agg(t.id) FILTER (
        WHERE t.worker_id = p_worker_id AND t.claim_id = p_claim_id AND t.id <> ALL (p_known) AND p_suspect IS NULL
      ),
      '{}'
    )
  INTO v_slots, out_ids
  FROM queue_tasks AS t WHERE t.has_slot IS NOT NULL AND t.name = p_name AND t.has_slot;
  IF out_ids <> '{}' THEN
    out_ids := out_ids[:p_most];
    UPDATE queue_tasks AS t SET lease_until = p_now_ms + p_lease_ms, heartbeat_at = v_now WHERE t.id = ANY (out_ids);
  END IF;

  IF v_has_limit THEN
    v_limit.free_ms := dx_tokens_back_ms(v_limit.free_ms, v_limit.rate, v_limit.rate_ms, v_limit.burst, p_now_ms);
    v_at_key := v_limit.last_key;
  END IF;
  WHILE cardinality(out_ids) < p_most LOOP
    IF v_slots <= 0 THEN
      v_is_blocked := true;
      EXIT;
    ELSIF v_visits = 1000 THEN
      v_is_held := true;
      EXIT;
    END IF;
    SELECT t.limit_key, t.run_at, t.id INTO v_next FROM queue_tasks AS t
    WHERE t.has_slot IS NOT NULL
      AND t.name = p_name
      AND NOT t.has_slot
      AND (t.limit_key, t.run_at, t.id) > (v_at_key, v_at, v_at_id)
      AND CASE WHEN p_suspect IS NULL THEN t.lost < 2 ELSE t.id = p_suspect END
    ORDER BY t.limit_key, t.run_at, t.id LIMIT 1;
    IF NOT FOUND THEN
      -- The round begins again, unless none in it could begin.
      IF NOT v_has_begun THEN
        v_is_done := true;
        EXIT;
      END IF;
      v_has_begun := false;
      v_at_key := '';
      v_at := '-infinity';
      v_at_id := '00000000-0000-0000-0000-000000000000';
      CONTINUE;
    END IF;
    v_visits := v_visits + 1;
    v_at_key := v_next.limit_key;
    v_at := 'infinity';
    v_at_id := v_last_id;
    CONTINUE WHEN v_next.run_at > v_now;

    v_key := dx_limit_key(v_limit, v_at_key);
    v_token_ms := dx_next_token_ms(v_limit.free_ms, v_limit.rate, v_limit.rate_ms, v_limit.burst);
    IF v_token_ms > p_now_ms THEN
      v_next_ms := least(v_next_ms, ceil(v_token_ms)::bigint);
      v_is_blocked := true;
      EXIT;
    END IF;
    -- Its turn: now, or if its own bound holds it back, in the next round.
    v_limit.last_key := v_at_key;
    IF v_key.concurrency <= (
      SELECT count(*)
      FROM (
        SELECT FROM queue_tasks AS t
        WHERE t.has_slot IS NOT NULL AND t.name = p_name AND t.has_slot AND t.limit_key = v_at_key
        LIMIT v_key.concurrency
      ) AS running
    ) THEN
      v_is_blocked := true;
      CONTINUE;
    END IF;
    IF v_key.rate IS NOT NULL THEN
      v_key.free_ms := dx_tokens_back_ms(v_key.free_ms, v_key.rate, v_key.rate_ms, v_key.burst, p_now_ms);
      v_token_ms := dx_next_token_ms(v_key.free_ms, v_key.rate, v_key.rate_ms, v_key.burst);
      IF v_token_ms > p_now_ms THEN
        v_next_ms := least(v_next_ms, ceil(v_token_ms)::bigint);
        v_is_blocked := true;
        CONTINUE;
      END IF;
    END IF;

    SELECT t.id, t.reply_instance_id, t.reply_execution_id INTO v_next FROM queue_tasks AS t
    WHERE t.id = v_next.id AND NOT t.has_slot
    FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
      v_is_held := true;
      CONTINUE;
    END IF;
    v_has_begun := true;
    IF v_next.reply_instance_id IS NOT NULL
      AND NOT dx_is_execution_running(v_next.reply_instance_id, v_next.reply_execution_id)
    THEN
      PERFORM dx_cancel_tasks(ARRAY[v_next.id::text], 'its orchestration has ended', false, p_now_ms);
      CONTINUE;
    END IF;
    UPDATE queue_tasks AS t
    SET status = 'Running', attempt = t.attempt + 1, worker_id = p_worker_id, started_at = v_now, claim_id = p_claim_id,
        lease_until = p_now_ms + p_lease_ms, heartbeat_at = v_now, unserved_at = NULL,
        look_at = least(t.look_at, to_timestamp((p_now_ms + p_lease_ms + 500)::float8 / 1000)),
        has_slot = CASE WHEN v_has_limit THEN true END, updated_at = v_now
    WHERE t.id = v_next.id;
    out_ids := out_ids || v_next.id;
    v_slots := v_slots - 1;
    v_limit.free_ms := v_limit.free_ms + v_limit.rate_ms::float8 / v_limit.rate;
    IF v_key.rate IS NOT NULL THEN
      INSERT INTO limit_keys (kind, name, key, is_own, free_ms)
      VALUES ('task', p_name, v_at_key, false, v_key.free_ms + v_key.rate_ms::float8 / v_key.rate)
      ON CONFLICT (kind, name, key) DO UPDATE SET free_ms = EXCLUDED.free_ms;
    END IF;
  END LOOP;

  out_may_drop := NOT v_is_held AND (v_is_blocked OR v_is_done);
  IF NOT v_has_limit OR p_suspect IS NOT NULL AND out_ids = '{}' THEN
    RETURN;
  END IF;
  IF v_next_ms IS NOT NULL AND (v_limit.next_ms IS NULL OR v_limit.next_ms NOT BETWEEN p_now_ms + 1 AND v_next_ms) THEN
    PERFORM dx_wake_limited_task(p_name, 1, v_limit.last_key, p_now_ms, v_next_ms);
    v_limit.next_ms := v_next_ms;
  END IF;
  IF v_limit.has_waiting AND NOT v_is_blocked AND NOT v_is_done AND COALESCE(v_slots, 1) > 0 THEN
    PERFORM dx_wake_limited_task(p_name, 2, v_limit.last_key, p_now_ms, p_now_ms);
  END IF;
  v_limit.free_ms := COALESCE(v_limit.free_ms, 0);
  v_limit.has_waiting := v_is_blocked OR v_is_held OR (v_limit.has_waiting AND NOT v_is_done);
  UPDATE limits AS l
  SET last_key = v_limit.last_key, free_ms = v_limit.free_ms, next_ms = v_limit.next_ms,
      has_waiting = v_limit.has_waiting
  WHERE l.kind = 'task' AND l.name = p_name
    AND (l.last_key, l.free_ms, l.next_ms, l.has_waiting)
      IS DISTINCT FROM (v_limit.last_key, v_limit.free_ms, v_limit.next_ms, v_limit.has_waiting);
  PERFORM dx_clean_limit_keys(v_limit, p_now_ms);
END
$$;

-- Whether a turn leaves nothing but events, activities that any process may run, and perhaps its end.
CREATE OR REPLACE FUNCTION dx_is_plain(
  p_turn jsonb,                    -- of dx_store_turns, with appends
  p_worker_items jsonb             -- the same, of this turn
) RETURNS boolean LANGUAGE sql IMMUTABLE
AS $$
  SELECT COALESCE((p_turn ->> 'appends')::boolean, false)
    AND p_turn ->> 'parent_instance_id' IS NULL
    AND NOT p_turn ?| '{next_version,sets_custom_status,cancelled_timers,requeued,left_ids}'
    AND (
      p_worker_items IS NULL
      OR (
        -- Where there are more, a set of rows is cheaper than row after row.
        jsonb_array_length(p_worker_items) <= 8
        AND NOT jsonb_path_exists(
          p_worker_items, '$[*] ? (@.session_id != null || @.tag != null || exists(@.served_by))'
        )
      )
    )
$$;

-- Whether the clock of a turn differs from the time of the statement by more than two seconds: then the statement says
-- its time, or leaves the turn.
CREATE OR REPLACE FUNCTION dx_is_clock_off(p_clock_ms bigint, p_now_ms bigint) RETURNS boolean LANGUAGE sql IMMUTABLE
AS $$
  SELECT abs(p_clock_ms - p_now_ms) > 2000
$$;

-- Stores what one plain turn leaves: its events and its activities. The shared part of dx_start_with_plain_turn and
-- dx_advance_with_plain_turn; dx_store_turns does the same, and all the rest, for sets.
--
-- Returns the activities that were handed over, as dx_store_turns does: [{index, lockToken}].
-- Bound: the rows given, and dx_count_waiting; with limits: dx_admit_at_once. Locks: those of dx_admit_at_once, and new
-- rows.
CREATE OR REPLACE FUNCTION dx_store_plain_turn(
  p_turn jsonb,                    -- {handover_limit, spare}
  p_instance_id text, p_execution_id bigint,
  p_history jsonb,                 -- as in dx_store_turns; null without events
  p_worker_items jsonb,            -- the same; null without activities. None has a session, a tag or served_by
  p_workers jsonb,                 -- the same, one at most
  p_texts text[],                  -- the same
  p_has_limits boolean,            -- whether there is any limit of activities
  p_now_ms bigint
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_no_tag text;
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_waiting bigint[];
  v_names jsonb;
  v_until_ms bigint;
  v_secret text;
  -- How many more may be handed over.
  v_left bigint := 0;
  v_item jsonb;
  v_token text;
  v_id bigint;
  v_handed_over jsonb := '[]';
  -- As in dx_store_activities.
  v_admitted boolean[];
  v_limited text[] := '{}';
  v_is_limited boolean;
BEGIN
  IF p_history IS NOT NULL THEN
    INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
    SELECT p_instance_id, p_execution_id, h.event_id, h.event_type, COALESCE(h.event_data, p_texts[h.text_at]), v_now
    FROM jsonb_to_recordset(p_history) AS h (event_id bigint, event_type text, event_data text, text_at integer);
  END IF;
  IF p_worker_items IS NULL THEN
    RETURN v_handed_over;
  END IF;
  v_no_tag := dx_no_tag();

  IF (p_workers -> 0 ->> 'untagged')::boolean THEN
    v_waiting := dx_count_waiting(p_workers, (p_turn ->> 'spare')::bigint, p_now_ms);
    IF v_waiting IS NULL OR v_waiting[1] <= (p_turn ->> 'spare')::bigint THEN
      v_names := p_workers -> 0 -> 'names';
      v_until_ms := p_now_ms + (p_workers -> 0 ->> 'lock_timeout_ms')::bigint;
      v_secret := gen_random_uuid()::text;
      v_left := (p_turn ->> 'handover_limit')::bigint;
    END IF;
  END IF;
  IF p_has_limits THEN
    v_limited := ARRAY(
      SELECT l.name FROM limits AS l
      WHERE l.kind = 'activity'
        AND l.name = ANY (ARRAY(SELECT a.name FROM jsonb_to_recordset(p_worker_items) AS a (name text)))
    );
    v_admitted := dx_admit_at_once(
      'activity',
      array_agg(a.name ORDER BY a.position), array_agg(a.limit_key ORDER BY a.position),
      p_now_ms
    )
    FROM ROWS FROM (jsonb_to_recordset(p_worker_items) AS (name text, limit_key text)) WITH ORDINALITY
      AS a (name, limit_key, position);
  END IF;
  FOR v_index IN 0 .. jsonb_array_length(p_worker_items) - 1 LOOP
    v_item := p_worker_items -> v_index;
    v_is_limited := v_admitted[v_index + 1] IS FALSE OR v_item ->> 'name' = ANY (v_limited);
    v_token := CASE
      WHEN v_left > 0 AND v_names ? (v_item ->> 'name') AND v_admitted[v_index + 1] IS NOT FALSE THEN v_secret
    END;
    INSERT INTO worker_queue (
      work_item, visible_at, lock_token, locked_until, created_at, attempt_count, instance_id, execution_id,
      activity_id, tag, route, limit_name, limit_key
    )
    VALUES (
      COALESCE(v_item ->> 'work_item', p_texts[(v_item ->> 'text_at')::integer]),
      CASE WHEN v_admitted[v_index + 1] IS FALSE THEN 'infinity' ELSE v_now END, v_token,
      CASE WHEN v_token IS NOT NULL THEN v_until_ms END, v_now, (v_token IS NOT NULL)::integer,
      v_item ->> 'instance_id', (v_item ->> 'execution_id')::bigint, (v_item ->> 'activity_id')::bigint, v_no_tag,
      v_item ->> 'name', CASE WHEN v_is_limited THEN v_item ->> 'name' END,
      CASE WHEN v_is_limited THEN COALESCE(v_item ->> 'limit_key', '') ELSE v_item ->> 'limit_key' END
    )
    RETURNING id INTO v_id;
    IF v_token IS NOT NULL THEN
      v_left := v_left - 1;
      v_handed_over := v_handed_over || CASE
        WHEN v_is_limited
          THEN jsonb_build_object('index', v_index, 'lockToken', v_id || '.' || v_token, 'isLimited', true)
        ELSE jsonb_build_object('index', v_index, 'lockToken', v_id || '.' || v_token)
      END;
    END IF;
  END LOOP;
  IF jsonb_array_length(p_worker_items) > jsonb_array_length(v_handed_over)
    AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on'
  THEN
    PERFORM dx_notify('worker_work', ARRAY[v_now]);
  END IF;
  RETURN v_handed_over;
END
$$;

-- Stores one optimistic turn with its only result in the common case: the turn is plain (dx_is_plain). Called by
-- dx_advance_orchestrations, which does the same for sets and for all else, at 1.5 times the cost where the turn
-- continues and 1.9 times where it is the last one (0.54 instead of 0.28 ms of the server's time on a busy machine).
--
-- Returns its answer, {_tag: Advanced, …}. Null: the caller has to do it, and nothing is stored.
-- Bound: as dx_advance_orchestrations. Locks: the same.
CREATE OR REPLACE FUNCTION dx_advance_with_plain_turn(
  p_turn jsonb,                    -- as in dx_advance_orchestrations
  p_token text,                    -- of its only result
  p_history jsonb,                 -- this and the following: as in dx_store_turns, of this turn
  p_worker_items jsonb, p_workers jsonb, p_texts text[], p_now_ms bigint
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_id CONSTANT text := p_turn ->> 'instance_id';
  v_execution_id CONSTANT bigint := p_turn ->> 'execution_id';
  v_status CONSTANT text := p_turn ->> 'status';
  v_output text;
  v_is_free boolean;
  v_has_limits boolean;            -- whether there is any limit of activities
BEGIN
  IF NOT dx_is_plain(p_turn, p_worker_items)
    OR v_status NOT IN ('Completed', 'Failed')
    OR p_turn ->> 'orchestration_name' IS NOT NULL
    OR p_turn ->> 'major' IS NOT NULL
    OR p_token !~ '^[0-9]{1,18}[.]'
    OR dx_is_clock_off((p_turn ->> 'clock_ms')::bigint, p_now_ms)
    OR NOT pg_try_advisory_xact_lock(hashtext(v_id))
  THEN
    RETURN NULL;
  END IF;

  -- This and what follows sees everything that was committed before we took the advisory lock. A limit that is set from
  -- here on counts none of the new activities, as the head of dx_set_limit says.
  SELECT
    (SELECT l.instance_id FROM instance_locks AS l WHERE l.instance_id = v_id) IS NULL
      AND (
        SELECT q.id FROM orchestrator_queue AS q
        WHERE q.instance_id = v_id
          -- At its end there must be none at all: timers would have to be deleted.
          AND q.due_at <= CASE WHEN v_status IS NULL THEN v_now ELSE 'infinity' END
        LIMIT 1
      ) IS NULL
      AND (SELECT i.current_execution_id FROM instances AS i WHERE i.instance_id = v_id) = v_execution_id
      AND (
        SELECT e.status FROM executions AS e
        WHERE e.instance_id = v_id AND e.execution_id = v_execution_id
      ) = 'Running'
      AND (
        SELECT h.event_id = (p_turn ->> 'last_event_id')::bigint
          AND encode(sha256(convert_to(h.event_data, 'UTF8')), 'hex') = p_turn ->> 'last_event_hash'
        FROM history AS h WHERE h.instance_id = v_id AND h.execution_id = v_execution_id
        ORDER BY h.event_id DESC LIMIT 1
      )
      -- At its end, changes of key-values become visible.
      AND (
        v_status IS NULL
        OR (SELECT d.key FROM kv_delta AS d WHERE d.instance_id = v_id LIMIT 1) IS NULL
      ),
    p_worker_items IS NOT NULL AND (SELECT l.name FROM limits AS l WHERE l.kind = 'activity' LIMIT 1) IS NOT NULL
  INTO v_is_free, v_has_limits;
  IF v_is_free IS NOT TRUE THEN
    RETURN NULL;
  END IF;

  -- Before new activities are stored: where this was the last one, none waits, and those are handed over.
  DELETE FROM worker_queue AS w
  WHERE w.id = (
    SELECT activity.id FROM worker_queue AS activity
    WHERE activity.id = split_part(p_token, '.', 1)::bigint
      AND activity.lock_token = split_part(p_token, '.', 2)
      AND activity.locked_until > p_now_ms
      AND activity.instance_id IS NOT DISTINCT FROM v_id -- not "=": found by id, whatever the statistics say
      AND num_nonnulls(activity.session_id) = 0 -- not IS NULL, the condition of an index
    FOR UPDATE SKIP LOCKED
  );
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;

  IF v_status IS NULL THEN
    UPDATE instances AS i SET updated_at = v_now WHERE i.instance_id = v_id;
  ELSE
    v_output := COALESCE(p_turn ->> 'output', p_texts[(p_turn ->> 'text_at')::integer]);
    UPDATE instances AS i SET updated_at = v_now, status = dx_status(v_status, v_output) WHERE i.instance_id = v_id;
    UPDATE executions AS e SET status = v_status, output = v_output, completed_at = v_now
    WHERE e.instance_id = v_id AND e.execution_id = v_execution_id;
  END IF;
  RETURN jsonb_build_object(
    '_tag', 'Advanced', 'nowMs', p_now_ms, 'handedOver', dx_store_plain_turn(
      p_turn, v_id, v_execution_id, p_history, p_worker_items, p_workers, p_texts, v_has_limits, p_now_ms
    )
  );
END
$$;

-- Finds out which optimistic turns continue the histories as they are stored, and takes the advisory locks of their
-- instances. A part of dx_advance_orchestrations, which says when a turn fits.
--
-- Returns the turns, without an execution where one does not fit.
-- Bound: one row of each table per turn; the events given where ids may be taken. Locks: advisory locks of the
-- instances (try), the same as claims take.
CREATE OR REPLACE FUNCTION dx_check_turns(
  p_turns dx_turn[],
  p_history jsonb,                 -- as in dx_store_turns
  p_now_ms bigint
) RETURNS dx_turn[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_turns dx_turn[] := p_turns;
  v_ours text[];
  v_position bigint;
BEGIN
  SELECT array_agg(turn.instance_id) INTO v_ours
  FROM (SELECT DISTINCT turn.instance_id FROM unnest(v_turns) AS turn) AS turn
  WHERE pg_try_advisory_xact_lock(hashtext(turn.instance_id));

  -- This and what follows sees everything that was committed before we took the advisory locks.
  FOR v_position IN
    SELECT turn.ordinality FROM unnest(v_turns) WITH ORDINALITY AS turn
    WHERE (
      turn.instance_id = ANY (v_ours)
      AND dx_is_clock_off(turn.clock_ms, p_now_ms) IS NOT TRUE
      AND (SELECT l.instance_id FROM instance_locks AS l WHERE l.instance_id = turn.instance_id) IS NULL
      AND (
        SELECT q.id FROM orchestrator_queue AS q
        WHERE q.instance_id = turn.instance_id AND q.due_at <= v_now
        LIMIT 1
      ) IS NULL
      AND (SELECT i.current_execution_id FROM instances AS i WHERE i.instance_id = turn.instance_id) = turn.execution_id
      AND (
        SELECT e.status FROM executions AS e
        WHERE e.instance_id = turn.instance_id AND e.execution_id = turn.execution_id
      ) = 'Running'
      AND (
        SELECT h.event_id = turn.last_event_id
          AND encode(sha256(convert_to(h.event_data, 'UTF8')), 'hex') = turn.last_event_hash
        FROM history AS h
        WHERE h.instance_id = turn.instance_id AND h.execution_id = turn.execution_id
        ORDER BY h.event_id DESC LIMIT 1
      )
    ) IS NOT TRUE
  LOOP
    v_turns[v_position].execution_id := NULL;
  END LOOP;

  IF p_history IS NOT NULL AND EXISTS (SELECT FROM unnest(v_turns) AS turn WHERE turn.appends IS NOT TRUE) THEN
    FOR v_position IN
      SELECT event.ack FROM jsonb_to_recordset(p_history) AS event (ack bigint, event_id bigint)
      WHERE v_turns[event.ack].execution_id IS NOT NULL
      GROUP BY event.ack, event.event_id
      HAVING count(*) > 1
        OR CASE
          WHEN event.event_id > v_turns[event.ack].last_event_id THEN false
          ELSE (
            SELECT h.event_id FROM history AS h
            WHERE h.instance_id = v_turns[event.ack].instance_id
              AND h.execution_id = v_turns[event.ack].execution_id
              AND h.event_id = event.event_id
          ) IS NOT NULL
        END
    LOOP
      v_turns[v_position].execution_id := NULL;
    END LOOP;
  END IF;
  RETURN v_turns;
END
$$;

-- Locks the activities that led to optimistic turns or that these cancel. A part of dx_advance_orchestrations.
--
-- Returns the turns, without an execution where one lacks a live lock of its caller, or where another transaction has
-- locked one of these activities, or where an earlier turn of its instance is stored.
-- Bound: the activities given. Locks: their rows (skip locked).
CREATE OR REPLACE FUNCTION dx_hold_activities(
  p_turns dx_turn[],               -- as dx_check_turns returns them
  p_results jsonb,                 -- as in dx_advance_orchestrations
  p_cancelled_activities jsonb,    -- as in dx_store_turns
  p_now_ms bigint, OUT out_turns dx_turn[],
  OUT out_ended bigint[],          -- ids of the activities that ended
  OUT out_held bigint[]            -- those, then those that are cancelled as well
) LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_row record;
  v_position bigint;
BEGIN
  out_turns := p_turns;
  out_ended := '{}';
  FOR v_row IN
    SELECT result.ack, activity.id
    FROM jsonb_to_recordset(p_results) AS result (ack bigint, token text)
    CROSS JOIN LATERAL (
      SELECT w.id FROM worker_queue AS w
      WHERE w.id = dx_row_id(result.token)
        AND w.lock_token = split_part(result.token, '.', 2)
        AND w.locked_until > p_now_ms
        -- Not "=": found by id, whatever the statistics say.
        AND w.instance_id IS NOT DISTINCT FROM out_turns[result.ack].instance_id
      FOR UPDATE SKIP LOCKED
    ) AS activity
    WHERE out_turns[result.ack].execution_id IS NOT NULL
  LOOP
    -- One activity that is given twice: one result stays missing.
    CONTINUE WHEN v_row.id = ANY (out_ended);
    out_ended := out_ended || v_row.id;
    out_turns[v_row.ack].results := out_turns[v_row.ack].results - 1;
  END LOOP;
  out_held := out_ended;
  IF p_cancelled_activities IS NOT NULL THEN
    out_held := out_held || ARRAY(
      SELECT activity.id
      FROM jsonb_to_recordset(p_cancelled_activities)
        AS c (ack bigint, instance_id text, execution_id bigint, activity_id bigint)
      CROSS JOIN LATERAL (
        SELECT w.id FROM worker_queue AS w
        WHERE w.instance_id = c.instance_id
          AND w.execution_id = c.execution_id
          AND w.activity_id = c.activity_id
        FOR UPDATE SKIP LOCKED
      ) AS activity
      WHERE out_turns[c.ack].execution_id IS NOT NULL
    );
    FOR v_position IN
      SELECT c.ack
      FROM jsonb_to_recordset(p_cancelled_activities)
        AS c (ack bigint, instance_id text, execution_id bigint, activity_id bigint)
      CROSS JOIN LATERAL (
        SELECT w.id FROM worker_queue AS w
        WHERE w.instance_id = c.instance_id
          AND w.execution_id = c.execution_id
          AND w.activity_id = c.activity_id
        OFFSET 0
      ) AS activity
      WHERE activity.id <> ALL (out_held)
    LOOP
      out_turns[v_position].execution_id := NULL;
    END LOOP;
  END IF;

  -- Of the turns of one instance the first.
  FOR v_position IN
    SELECT turn.ordinality
    FROM (
      SELECT
        turn.ordinality, turn.results,
        row_number() OVER (PARTITION BY turn.instance_id, turn.results = 0 ORDER BY turn.ordinality) AS place
      FROM unnest(out_turns) WITH ORDINALITY AS turn WHERE turn.execution_id IS NOT NULL
    ) AS turn
    WHERE (turn.results = 0) IS NOT TRUE OR turn.place > 1
  LOOP
    out_turns[v_position].execution_id := NULL;
  END LOOP;
END
$$;

-- Stores optimistic turns: the results of activities, and the turns that these lead to, which were run without a claim.
-- A turn that cannot be stored leaves its results as messages, as dx_ack_work_items does.
--
-- Returns one answer per turn, in order: {_tag: Advanced, nowMs, handedOver: [{index, lockToken}]}, or {_tag: Queued,
-- results: [Done or LockLost]}, with nowMs if clock_ms differs from it by more than 2 seconds. A turn is stored if its
-- clock_ms does not and, at the moment of the call, no other transaction works on its instance, which has no row in
-- instance_locks and no visible message; its execution is the current one, is running, and ends with the event that has
-- last_event_id and last_event_hash (after a failover that lost turns, another one may have its id); its own event ids
-- are free; its activities have their live locks; and none of these or of those it cancels is locked by another
-- transaction. Of two turns of one instance the first is stored.
--
-- Raises 55P03 if a result must become a message while another transaction has locked its activity and this one has
-- turns to store: it would wait with locks of theirs.
--
-- Bound: the rows given; otherwise as dx_store_turns and dx_ack_work_items.
-- Locks: advisory locks of the instances (try); worker rows of the turns to be stored (skip locked); then as
-- dx_store_turns; then the other worker rows (skip locked), sessions by id. A transaction with the advisory lock of an
-- instance that has no row in instance_locks is the only one to store its turns, so no transaction that waits for these
-- worker rows holds what dx_store_turns waits for. Without a turn to store: as dx_ack_work_items.
CREATE OR REPLACE FUNCTION dx_advance_orchestrations(
  p_turns jsonb,                   -- [{fields of dx_turn}]
  p_results jsonb,                 -- [{ack, token, instance_id, work_item or text_at}], by turn; at least one for each
  p_history jsonb,                 -- this and the following: as in dx_store_turns
  p_key_values jsonb, p_worker_items jsonb, p_cancelled_activities jsonb, p_orchestrator_items jsonb,
  p_workers jsonb, p_texts text[] DEFAULT NULL, p_now_ms bigint DEFAULT NULL
) RETURNS jsonb LANGUAGE plpgsql
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
  -- Without an execution where the turn is not stored.
  v_turns dx_turn[];
  -- The locked activities: those that ended, then those that are cancelled as well.
  v_ended bigint[];
  v_held bigint[];
  v_sessions text[];
  v_stored bigint;
  v_stores_all boolean;
  v_handed_over jsonb;
  v_settled text[];
  v_answer jsonb;
BEGIN
  IF jsonb_array_length(p_turns) = 1
    AND jsonb_array_length(p_results) = 1
    AND num_nonnulls(p_key_values, p_cancelled_activities, p_orchestrator_items) = 0
  THEN
    v_answer := dx_advance_with_plain_turn(
      p_turns -> 0, p_results -> 0 ->> 'token', p_history, p_worker_items, p_workers, p_texts, v_now_ms
    );
    IF v_answer IS NOT NULL THEN
      RETURN jsonb_build_array(v_answer);
    END IF;
  END IF;

  v_turns := dx_check_turns(
    ARRAY(SELECT turn FROM jsonb_populate_recordset(NULL::dx_turn, p_turns) AS turn), p_history, v_now_ms
  );
  SELECT held.out_turns, held.out_ended, held.out_held INTO v_turns, v_ended, v_held
  FROM dx_hold_activities(v_turns, p_results, p_cancelled_activities, v_now_ms) AS held;
  SELECT count(turn.execution_id), count(*) = count(turn.execution_id) INTO v_stored, v_stores_all
  FROM unnest(v_turns) AS turn;

  IF v_stores_all THEN
    -- Before new activities are stored: where these were the last ones, none waits, and those are handed over.
    WITH gone AS (DELETE FROM worker_queue AS w WHERE w.id = ANY (v_ended) RETURNING w.session_id)
    SELECT array_agg(gone.session_id) FILTER (WHERE gone.session_id IS NOT NULL) INTO v_sessions
    FROM gone;
  END IF;

  IF v_stored > 0 THEN
    v_handed_over := dx_store_turns(
      v_turns, NULL, p_history, p_key_values, p_worker_items, p_cancelled_activities, p_orchestrator_items, p_workers,
      p_texts, v_now_ms
    );
  END IF;

  IF v_held <> '{}' AND NOT v_stores_all THEN
    v_held := v_held || ARRAY(
      SELECT activity.id FROM jsonb_to_recordset(p_results) AS r (ack bigint, token text)
      CROSS JOIN LATERAL (
        SELECT w.id FROM worker_queue AS w
        WHERE w.id = dx_row_id(r.token)
          AND w.lock_token = split_part(r.token, '.', 2)
          AND w.locked_until > v_now_ms
        FOR UPDATE SKIP LOCKED
      ) AS activity
      WHERE v_turns[r.ack].execution_id IS NULL
    );
    IF EXISTS (
      SELECT FROM jsonb_to_recordset(p_results) AS r (ack bigint, token text)
      CROSS JOIN LATERAL (
        SELECT w.id FROM worker_queue AS w
        WHERE w.id = dx_row_id(r.token)
          AND w.lock_token = split_part(r.token, '.', 2)
          AND w.locked_until > v_now_ms
        OFFSET 0
      ) AS activity
      WHERE v_turns[r.ack].execution_id IS NULL AND activity.id <> ALL (v_held)
    ) THEN
      RAISE EXCEPTION 'another transaction has locked an activity that ended'
        USING ERRCODE = 'lock_not_available';
    END IF;
  END IF;

  IF v_stores_all THEN
    IF v_sessions IS NOT NULL THEN
      PERFORM dx_touch_sessions(v_sessions, v_now_ms);
    END IF;
  ELSE
    -- The results of turns that are stored are part of their histories.
    v_settled := dx_ack_work_items(
      p_results, p_texts, v_now_ms,
      ARRAY(SELECT v_turns[r.ack].execution_id IS NULL FROM jsonb_to_recordset(p_results) AS r (ack bigint))
    );
  END IF;

  RETURN (
    SELECT jsonb_agg(
      CASE
        WHEN turn.execution_id IS NULL THEN jsonb_build_object(
          '_tag', 'Queued',
          'results', (
            SELECT jsonb_agg(v_settled[r.position] ORDER BY r.position)
            FROM ROWS FROM (jsonb_to_recordset(p_results) AS (ack bigint)) WITH ORDINALITY AS r (ack, position)
            WHERE r.ack = turn.ordinality
          )
        ) || CASE WHEN dx_is_clock_off(turn.clock_ms, v_now_ms) THEN jsonb_build_object('nowMs', v_now_ms) ELSE '{}' END
        ELSE jsonb_build_object(
          '_tag', 'Advanced', 'nowMs', v_now_ms,
          'handedOver', COALESCE(v_handed_over -> turn.ordinality::text, '[]')
        )
      END
      ORDER BY turn.ordinality
    )
    FROM unnest(v_turns) WITH ORDINALITY AS turn
  );
END
$$;

-- Notifies all processes of this schema to read what is paused. A part of dx_pause and dx_resume. It fails no
-- statement, as dx_notify.
CREATE OR REPLACE FUNCTION dx_announce_pauses() RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  IF NOT dx_may_notify() THEN
    RETURN;
  END IF;
  PERFORM pg_notify(dx_channel('changes'), '- paused');
END
$$;

-- Appends chunks of running activities to streams of their instances.
--
-- Returns one outcome per item, in order: Done; LockLost if the token is unknown, superseded or settled, if the
-- activity was cancelled, or if its instance has ended or is gone; Locked if another transaction has locked the
-- activity or the instance, which is to be asked again. A lock that has expired and was not taken over is good enough,
-- as for a renewal.
--
-- Of an item with is_repeat, chunks are left out that an earlier call has stored, whose answer was lost.
--
-- A chunk of an older delivery never follows one of a newer delivery: the token is compared while the row of the stream
-- is locked.
--
-- Bound: the items given; of a repeated one the chunks of its stream. Locks: rows of progress_streams by instance and
-- name, before each new one that of its instance (key share, skip locked); then worker rows (key share, skip locked).
-- It waits for streams alone, and so for no transaction that waits for it.
CREATE OR REPLACE FUNCTION dx_append_chunks(
  p_items jsonb,                   -- [{token, instance_id, stream, writer, number, is_repeat, chunks, keep_chunks,
                                   --   keep_bytes}]
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
  v_now timestamptz := to_timestamp(
    COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)::float8 / 1000
  );
  v_outcomes text[] := array_fill('LockLost'::text, ARRAY[jsonb_array_length(p_items)]);
  v_streams bigint[] := array_fill(NULL::bigint, ARRAY[jsonb_array_length(p_items)]);
  v_empty bigint[] := '{}';
  v_item record;
  v_stream_id bigint;
  v_stored bigint;
BEGIN
  FOR v_item IN
    SELECT item.instance_id, item.stream, array_agg(item.position) AS positions
    FROM ROWS FROM (jsonb_to_recordset(p_items) AS (instance_id text, stream text))
      WITH ORDINALITY AS item (instance_id, stream, position)
    GROUP BY item.instance_id, item.stream
    ORDER BY item.instance_id COLLATE "C", item.stream COLLATE "C"
  LOOP
    v_stream_id := dx_lock_stream(v_item.instance_id, v_item.stream, false, v_now);
    FOR v_index IN 1 .. cardinality(v_item.positions) LOOP
      v_streams[v_item.positions[v_index]] := v_stream_id;
    END LOOP;
  END LOOP;

  -- These look-ups see what was committed before the streams were locked.
  FOR v_item IN
    SELECT
      item.position, item.instance_id, item.writer, item.number, item.is_repeat, item.chunks, item.keep_chunks,
      item.keep_bytes, v_streams[item.position] AS stream_id, found.execution_id AS found, held.id AS held
    FROM ROWS FROM (
      jsonb_to_recordset(p_items) AS (
        token text, instance_id text, writer text, number bigint, is_repeat boolean, chunks text[], keep_chunks bigint,
        keep_bytes bigint
      )
    ) WITH ORDINALITY
      AS item (token, instance_id, writer, number, is_repeat, chunks, keep_chunks, keep_bytes, position)
    CROSS JOIN LATERAL (
      SELECT w.execution_id FROM worker_queue AS w
      WHERE w.id = dx_row_id(item.token)
        AND w.lock_token = split_part(item.token, '.', 2)
        AND w.instance_id || '' = item.instance_id
      OFFSET 0
    ) AS found
    LEFT JOIN LATERAL (
      SELECT w.id FROM worker_queue AS w
      WHERE w.id = dx_row_id(item.token) AND w.lock_token = split_part(item.token, '.', 2)
      FOR KEY SHARE SKIP LOCKED
    ) AS held ON true
    ORDER BY item.position
  LOOP
    IF v_item.held IS NULL OR v_item.stream_id IS NULL THEN
      v_outcomes[v_item.position] := CASE
        WHEN (SELECT i.instance_id FROM instances AS i WHERE i.instance_id = v_item.instance_id) IS NULL THEN 'LockLost'
        ELSE 'Locked'
      END;
      CONTINUE;
    END IF;
    CONTINUE WHEN NOT dx_is_execution_running(v_item.instance_id, v_item.found);
    v_outcomes[v_item.position] := 'Done';
    IF v_item.is_repeat THEN
      -- The first of them may have been removed since.
      SELECT COALESCE(max(c.number) + 1 - v_item.number, 0) INTO v_stored FROM progress_chunks AS c
      WHERE c.stream_id = v_item.stream_id AND c.writer = v_item.writer AND c.number >= v_item.number;
      CONTINUE WHEN v_stored >= cardinality(v_item.chunks);
    ELSE
      v_stored := 0;
    END IF;
    PERFORM dx_insert_chunks(
      v_item.stream_id, v_item.writer, v_item.number + v_stored, v_item.chunks[v_stored + 1 :], v_item.keep_chunks,
      v_item.keep_bytes, v_now
    );
  END LOOP;

  v_empty := ARRAY(
    SELECT DISTINCT v_streams[outcome.position] FROM unnest(v_outcomes) WITH ORDINALITY AS outcome (what, position)
    WHERE outcome.what <> 'Done' AND v_streams[outcome.position] IS NOT NULL
  );
  IF v_empty <> '{}' THEN
    DELETE FROM progress_streams AS s WHERE s.id = ANY (v_empty) AND s.next_offset = 0;
  END IF;
  RETURN v_outcomes;
END
$$;

-- Adds events outside a turn, for tools and tests: needs no lock and writes no other table.
--
-- Returns the number of events. Raises DX002 if one of the ids exists already or is given twice; then nothing is
-- written.
-- Bound: the rows given. Locks: none, but waits for a concurrent writer of the same event id.
CREATE OR REPLACE FUNCTION dx_append_history(
  p_instance_id text, p_execution_id bigint,
  p_history jsonb,                 -- [{event_id, event_type, event_data or text_at}]
  p_texts text[] DEFAULT NULL,     -- as in dx_store_turns
  p_now_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_count bigint;
BEGIN
  INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
  SELECT
    p_instance_id, p_execution_id, h.event_id, h.event_type, COALESCE(h.event_data, p_texts[h.text_at]),
    to_timestamp(v_now_ms::float8 / 1000)
  FROM jsonb_to_recordset(p_history) AS h (event_id bigint, event_type text, event_data text, text_at integer)
  ORDER BY h.event_id;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
EXCEPTION
  WHEN unique_violation THEN
    RAISE EXCEPTION 'an event id is taken'
      USING ERRCODE = 'DX002',
        DETAIL = json_build_object('instanceId', p_instance_id, 'executionId', p_execution_id)::text;
END
$$;

-- Reads which of the tasks have ended, and marks the others: their end will be announced.
--
-- Returns the tasks that have ended or do not exist, up to 32 in a row, so that no value gets too long; the status of
-- the latter is Missing.
-- Bound: the tasks given. Locks: tasks that are not marked yet, by id.
CREATE OR REPLACE FUNCTION dx_await_tasks(p_ids uuid[], p_now_ms bigint DEFAULT NULL)
RETURNS SETOF json                 -- [[id, ...], [status, ...], [result, ...], [error, ...]]
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
  v_open uuid[];
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
BEGIN
  -- look_at IS NOT NULL would lead to the index of all that have not ended.
  v_open := ARRAY(SELECT t.id FROM queue_tasks AS t WHERE t.id = ANY (p_ids) AND num_nulls(t.look_at) = 0);
  IF v_open <> '{}' THEN
    -- An update locks in an order of its own.
    PERFORM FROM queue_tasks AS t
    WHERE t.id = ANY (v_open) AND NOT t.is_awaited AND num_nulls(t.look_at) = 0
    ORDER BY t.id FOR NO KEY UPDATE;
    UPDATE queue_tasks AS t
    SET is_awaited = true, updated_at = to_timestamp(v_now_ms::float8 / 1000)
    WHERE t.id = ANY (v_open) AND NOT t.is_awaited AND num_nulls(t.look_at) = 0;
  END IF;

  RETURN QUERY
  SELECT json_build_array(json_agg(part.id), json_agg(part.status), json_agg(part.result), json_agg(part.error))
  FROM (
    SELECT ended.*, (row_number() OVER () - 1) / 32 AS number
    FROM (
      SELECT task.id, COALESCE(t.status, 'Missing') AS status, t.result, t.error
      FROM unnest(p_ids) AS task (id)
      LEFT JOIN LATERAL (
        SELECT x.status, x.result, x.error FROM queue_tasks AS x
        WHERE x.id = task.id
        OFFSET 0
      ) AS t ON true
      WHERE t.status IS NULL OR t.status NOT IN ('Pending', 'Running')
    ) AS ended
  ) AS part
  GROUP BY part.number;
END
$$;

-- Creates tasks and their wake-ups, in the transaction of the caller. A task whose key, or whose given id, exists
-- already stays as it is.
--
-- A wake-up becomes a row of the outbox. That of a task that can begin at once, in a queue of p_queues, becomes a
-- message of that queue: the row would be inserted, claimed and deleted first.
--
-- Returns one row per task, in order. Ids that are not given grow with time, so that new rows share pages of the
-- indexes.
-- Bound: the rows given. Locks: waits for another transaction that creates a task of the same name and key, in the
-- order of name and key, then for one that creates the same id.
CREATE OR REPLACE FUNCTION dx_create_tasks(
  p_tasks jsonb,                   -- [{id, name, key, limit_key, payload, max_attempts, queue, wakeup, delay_ms,
                                   --   run_at_ms, reply_instance_id, reply_execution_id, reply_name, is_awaited,
                                   --   trace_context}]; only name, payload, max_attempts and queue are
                                   -- needed; runs at the later of delay and time
  p_queues text[] DEFAULT NULL,    -- queues whose messages are in queue_messages, and are received there
  p_deliveries integer[] DEFAULT NULL, -- how often each of them delivers a message at most
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (out_id text, out_is_new boolean) LANGUAGE plpgsql
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
  v_latest_ms CONSTANT bigint := 253402300799999; -- the end of the year 9999: clients read no later dates
  v_time text := regexp_replace(lpad(to_hex(v_now_ms), 12, '0'), '^(.{8})', '\1-') || '-7';
  v_limited CONSTANT text[] := dx_limited_tasks();
  v_ids uuid[];
  v_new uuid[];
  v_sent uuid[]; -- those whose wake-ups need no outbox, and their queues
  v_sent_to text[];
BEGIN
  WITH item AS MATERIALIZED (
    SELECT
      -- Version 7: 48 bits of time before the random ones.
      COALESCE(i.id, (v_time || substr(gen_random_uuid()::text, 16))::uuid) AS id,
      i.name, i.key, i.limit_key, i.payload, i.max_attempts, i.queue, i.wakeup, i.delay_ms, i.run_at_ms,
      i.reply_instance_id, i.reply_execution_id, i.reply_name, i.is_awaited, i.trace_context, i.position
    FROM ROWS FROM (
      jsonb_to_recordset(p_tasks) AS (
        id uuid, name text, key text, limit_key text, payload text, max_attempts integer, queue text, wakeup jsonb,
        delay_ms bigint, run_at_ms bigint, reply_instance_id text, reply_execution_id bigint, reply_name text,
        is_awaited boolean, trace_context text
      )
    ) WITH ORDINALITY AS i (
      id, name, key, limit_key, payload, max_attempts, queue, wakeup, delay_ms, run_at_ms,
      reply_instance_id, reply_execution_id, reply_name, is_awaited, trace_context, position
    )
  ),
  created AS (
    INSERT INTO queue_tasks AS t (
      id, name, key, limit_key, has_slot, payload, max_attempts, run_at, look_at, queue, wakeup,
      reply_instance_id, reply_execution_id, reply_name, is_awaited, trace_context, created_at, updated_at
    )
    SELECT
      item.id, item.name, item.key,
      CASE WHEN item.name = ANY (v_limited) THEN COALESCE(item.limit_key, '') ELSE item.limit_key END,
      CASE WHEN item.name = ANY (v_limited) THEN false END, item.payload, item.max_attempts, due.at,
      -- The wake-up may be lost.
      due.at + interval '30 seconds',
      item.queue, item.wakeup, item.reply_instance_id, item.reply_execution_id, item.reply_name,
      COALESCE(item.is_awaited, false), item.trace_context, v_now, v_now
    FROM item
    CROSS JOIN LATERAL (
      SELECT to_timestamp(
        least(greatest(v_now_ms + COALESCE(item.delay_ms, 0), item.run_at_ms), v_latest_ms - 86400000)::float8 / 1000
      ) AS at
    ) AS due
    ORDER BY item.name COLLATE "C", item.key COLLATE "C", item.id
    ON CONFLICT DO NOTHING
    RETURNING t.id, t.queue, t.wakeup, t.run_at,
      COALESCE(t.queue = ANY (p_queues) AND num_nulls(t.wakeup) = 1 AND t.run_at <= v_now, false) AS is_sent
  ),
  announced AS (
    INSERT INTO queue_outbox (queue, payload, created_at, deliver_at)
    SELECT created.queue, dx_wakeup_of(created.id, created.wakeup), v_now, created.run_at FROM created
    WHERE NOT created.is_sent
  )
  SELECT
    (SELECT array_agg(item.id ORDER BY item.position) FROM item), found.new, found.sent, found.sent_to
  INTO v_ids, v_new, v_sent, v_sent_to
  FROM (
    SELECT
      array_agg(created.id) AS new, array_agg(created.id) FILTER (WHERE created.is_sent) AS sent,
      array_agg(created.queue) FILTER (WHERE created.is_sent) AS sent_to
    FROM created
  ) AS found;

  -- By a statement of its own, for which a role without rights on this table has no use.
  IF v_sent IS NOT NULL THEN
    INSERT INTO queue_messages (queue, payload, created_at, visible_at, max_attempts)
    SELECT
      wakeup.queue, dx_wakeup_of(wakeup.id, NULL), v_now, v_now, p_deliveries[array_position(p_queues, wakeup.queue)]
    FROM unnest(v_sent, v_sent_to) AS wakeup (id, queue);
  END IF;

  IF cardinality(v_new) = cardinality(v_ids) THEN
    RETURN QUERY
    SELECT task.id::text, true FROM unnest(v_ids) WITH ORDINALITY AS task (id, position)
    ORDER BY task.position;
    RETURN;
  END IF;

  -- What the others are is read by a statement of its own, which sees rows that were committed meanwhile.
  RETURN QUERY
  SELECT
    COALESCE(
      CASE WHEN v_ids[item.position] = ANY (v_new) THEN v_ids[item.position] END,
      (SELECT t.id FROM queue_tasks AS t WHERE t.name = item.name AND t.key = item.key AND t.key IS NOT NULL),
      (SELECT t.id FROM queue_tasks AS t WHERE t.id = v_ids[item.position])
    )::text,
    COALESCE(v_ids[item.position] = ANY (v_new), false)
  FROM ROWS FROM (jsonb_to_recordset(p_tasks) AS (name text, key text))
    WITH ORDINALITY AS item (name, key, position)
  ORDER BY item.position;
END
$$;

-- Publishes batches of buffered records: each with its row, the task that will process it, and the outbox row of the
-- task's first wake-up.
--
-- Returns one outcome per batch, in order: {_tag: Published, taskId}; {_tag: Known, taskId} if the version has the
-- batch already; {_tag: BatchDiffers} if it has it with another number of records; {_tag: VersionNotFound}; or {_tag:
-- VersionNotBuilding, status} for a new batch of a version that was committed or discarded. If one of them is refused,
-- none is published, and new ones are {_tag: Unpublished}.
-- Bound: the batches given. Locks: their versions in order (shared), the new batches, then as dx_create_tasks. Waits
-- for a transaction that publishes the same batch, commits the version or discards it.
CREATE OR REPLACE FUNCTION dx_buffer_batches(
  p_batches jsonb,                 -- [{dataset_uuid, dataset_version, batch_uri, record_count, task}]; task as in
                                   --   dx_create_tasks
  p_now_ms bigint DEFAULT NULL
) RETURNS jsonb LANGUAGE plpgsql
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
  v_is_accepted boolean;
  v_published bigint[];
  v_tasks jsonb;
BEGIN
  PERFORM v.status FROM queue_dataset_versions AS v
  WHERE (v.dataset_uuid, v.dataset_version) IN (
    SELECT b.dataset_uuid, b.dataset_version
    FROM jsonb_to_recordset(p_batches) AS b (dataset_uuid uuid, dataset_version bigint)
  )
  ORDER BY v.dataset_uuid, v.dataset_version FOR SHARE;

  SELECT bool_and(
    CASE
      WHEN stored.task_id IS NOT NULL THEN stored.record_count = b.record_count
      ELSE COALESCE(version.status = 'Building', false)
    END
  )
  INTO v_is_accepted
  FROM jsonb_to_recordset(p_batches) AS b (
    dataset_uuid uuid, dataset_version bigint, batch_uri text, record_count bigint
  )
  LEFT JOIN LATERAL (
    SELECT batch.task_id, batch.record_count FROM queue_dataset_batches AS batch
    WHERE batch.dataset_uuid = b.dataset_uuid
      AND batch.dataset_version = b.dataset_version
      AND batch.batch_uri = b.batch_uri
    OFFSET 0
  ) AS stored ON true
  LEFT JOIN LATERAL (
    SELECT v.status FROM queue_dataset_versions AS v
    WHERE v.dataset_uuid = b.dataset_uuid AND v.dataset_version = b.dataset_version
    OFFSET 0
  ) AS version ON true;

  -- The row of a batch decides who publishes it: its task is created by the same statement or by none.
  WITH given AS (
    SELECT DISTINCT ON (b.dataset_uuid, b.dataset_version, b.batch_uri) b.*
    FROM ROWS FROM (
      jsonb_to_recordset(p_batches) AS (
        dataset_uuid uuid, dataset_version bigint, batch_uri text, record_count bigint, task jsonb
      )
    ) WITH ORDINALITY AS b (dataset_uuid, dataset_version, batch_uri, record_count, task, position)
    WHERE v_is_accepted
    ORDER BY b.dataset_uuid, b.dataset_version, b.batch_uri, b.position
  ),
  published AS (
    INSERT INTO queue_dataset_batches (
      dataset_uuid, dataset_version, batch_uri, record_count, status, task_id, created_at
    )
    SELECT
      given.dataset_uuid, given.dataset_version, given.batch_uri, given.record_count, 'Buffered',
      (given.task ->> 'id')::uuid, to_timestamp(v_now_ms::float8 / 1000)
    FROM given
    CROSS JOIN LATERAL (
      SELECT v.status FROM queue_dataset_versions AS v
      WHERE v.dataset_uuid = given.dataset_uuid AND v.dataset_version = given.dataset_version
      OFFSET 0
    ) AS version
    WHERE version.status = 'Building'
    ORDER BY given.dataset_uuid, given.dataset_version, given.batch_uri
    ON CONFLICT (dataset_uuid, dataset_version, batch_uri) DO NOTHING
    RETURNING dataset_uuid, dataset_version, batch_uri
  )
  SELECT array_agg(given.position ORDER BY given.position), jsonb_agg(given.task ORDER BY given.position)
  INTO v_published, v_tasks
  FROM published
  JOIN given
    ON given.dataset_uuid = published.dataset_uuid
    AND given.dataset_version = published.dataset_version
    AND given.batch_uri = published.batch_uri;
  IF v_tasks IS NOT NULL THEN
    PERFORM dx_create_tasks(v_tasks, p_now_ms => p_now_ms);
  END IF;

  RETURN (
    SELECT jsonb_agg(
      CASE
        WHEN b.position = ANY (v_published) THEN jsonb_build_object('_tag', 'Published', 'taskId', stored.task_id)
        WHEN stored.record_count = b.record_count THEN jsonb_build_object('_tag', 'Known', 'taskId', stored.task_id)
        WHEN stored.task_id IS NOT NULL THEN jsonb_build_object('_tag', 'BatchDiffers')
        WHEN version.status IS NULL THEN jsonb_build_object('_tag', 'VersionNotFound')
        WHEN version.status = 'Building' THEN jsonb_build_object('_tag', 'Unpublished')
        ELSE jsonb_build_object('_tag', 'VersionNotBuilding', 'status', version.status)
      END
      ORDER BY b.position
    )
    FROM ROWS FROM (
      jsonb_to_recordset(p_batches) AS (dataset_uuid uuid, dataset_version bigint, batch_uri text, record_count bigint)
    ) WITH ORDINALITY AS b (dataset_uuid, dataset_version, batch_uri, record_count, position)
    LEFT JOIN LATERAL (
      SELECT batch.task_id, batch.record_count FROM queue_dataset_batches AS batch
      WHERE batch.dataset_uuid = b.dataset_uuid
        AND batch.dataset_version = b.dataset_version
        AND batch.batch_uri = b.batch_uri
      OFFSET 0
    ) AS stored ON true
    LEFT JOIN LATERAL (
      SELECT v.status FROM queue_dataset_versions AS v
      WHERE v.dataset_uuid = b.dataset_uuid AND v.dataset_version = b.dataset_version
      OFFSET 0
    ) AS version ON true
  );
END
$$;

-- Moves messages that the caller has locked to the dead letters.
--
-- Bound: the rows given. Locks: none besides the caller's.
CREATE OR REPLACE FUNCTION dx_bury_messages(
  p_ids bigint[],
  p_reasons text[],                -- null: they were delivered too often
  p_now timestamptz
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  WITH buried AS (DELETE FROM queue_messages AS m WHERE m.id = ANY (p_ids) RETURNING m.*)
  INSERT INTO queue_dead (id, queue, payload, created_at, died_at, attempts, max_attempts, last_error)
  SELECT
    buried.id, buried.queue, buried.payload, buried.created_at, p_now, buried.attempts, buried.max_attempts,
    COALESCE(p_reasons[array_position(p_ids, buried.id)], 'delivered ' || buried.attempts || ' times without an ack')
  FROM buried
  ORDER BY buried.id;
END
$$;

-- Finds out which first turns can be stored with their starts, and takes the advisory locks of their instances. A part
-- of dx_start_orchestrations, which says when a turn can be stored.
--
-- Returns the turns with their instances, without an execution where a turn cannot be stored.
-- Bound: one row of each table per turn; the events given where ids may be given twice. Locks: advisory locks of the
-- instances (try), the same as claims take.
CREATE OR REPLACE FUNCTION dx_check_first_turns(
  p_turns dx_turn[],
  p_starts dx_start[],             -- by the same positions
  p_history jsonb,                 -- as in dx_store_turns
  p_now_ms bigint
) RETURNS dx_turn[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_turns dx_turn[] := p_turns;
  v_ours text[];
  v_start record;
  v_position bigint;
BEGIN
  SELECT array_agg(start.instance_id) INTO v_ours
  FROM (
    SELECT DISTINCT start.instance_id FROM unnest(p_starts) WITH ORDINALITY AS start
    WHERE p_turns[start.ordinality].execution_id = 1
  ) AS start
  WHERE pg_try_advisory_xact_lock(hashtext(start.instance_id));

  -- This and what follows sees everything that was committed before we took the advisory locks. Of two starts of one id
  -- the first counts.
  FOR v_start IN
    SELECT
      start.ordinality AS position, start.instance_id,
      start.is_first
        AND turn.execution_id = 1
        AND dx_is_clock_off(turn.clock_ms, p_now_ms) IS NOT TRUE
        AND COALESCE(start.delay_ms, 0) = 0
        AND start.instance_id = ANY (v_ours)
        AND (SELECT i.instance_id FROM instances AS i WHERE i.instance_id = start.instance_id) IS NULL
        AND (SELECT e.status FROM executions AS e WHERE e.instance_id = start.instance_id LIMIT 1) IS NULL
        AND (SELECT l.instance_id FROM instance_locks AS l WHERE l.instance_id = start.instance_id) IS NULL
        AND (SELECT q.id FROM orchestrator_queue AS q WHERE q.instance_id = start.instance_id LIMIT 1) IS NULL
        AND (SELECT h.event_id FROM history AS h WHERE h.instance_id = start.instance_id LIMIT 1) IS NULL AS begins
    FROM (
      SELECT
        start.*, row_number() OVER (PARTITION BY start.instance_id ORDER BY start.ordinality) = 1 AS is_first
      FROM unnest(p_starts) WITH ORDINALITY AS start
    ) AS start
    CROSS JOIN LATERAL (
      SELECT p_turns[start.ordinality].execution_id AS execution_id, p_turns[start.ordinality].clock_ms AS clock_ms
    ) AS turn
  LOOP
    IF v_start.begins THEN
      v_turns[v_start.position].instance_id := v_start.instance_id;
    ELSE
      v_turns[v_start.position].execution_id := NULL;
    END IF;
  END LOOP;

  IF EXISTS (SELECT FROM unnest(v_turns) AS turn WHERE turn.execution_id IS NOT NULL AND turn.appends IS NOT TRUE) THEN
    FOR v_position IN
      SELECT event.ack FROM jsonb_to_recordset(p_history) AS event (ack bigint, event_id bigint)
      GROUP BY event.ack, event.event_id HAVING count(*) > 1
    LOOP
      v_turns[v_position].execution_id := NULL;
    END LOOP;
  END IF;
  RETURN v_turns;
END
$$;

-- Returns the ids of all children of the given instances, unordered: children with a row, and children whose start is
-- still queued.
-- Bound: the children, and the queued starts of all children. An index holds only these: with 100 of them the call
-- takes 1 ms, whatever else is queued. Without that index it took 2, 9 and 130 ms in front of 10,000, 100,000 and
-- 1,000,000 timers, and 40, 300 and 3,500 ms in front of as many starts of 500 bytes. The index adds less than a
-- microsecond to a start, and 5 % to one of 100,000 bytes. Locks: none.
CREATE OR REPLACE FUNCTION dx_children_of(p_instance_ids text[]) RETURNS SETOF text LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
  RETURN QUERY
  SELECT i.instance_id FROM instances AS i
  WHERE i.parent_instance_id = ANY (p_instance_ids)
  UNION
  SELECT q.instance_id FROM orchestrator_queue AS q
  -- Compares text, as an unreadable message must not fail this call. Inside a payload the quotes would be escaped.
  WHERE q.work_item LIKE '{"StartOrchestration"%'
    AND q.work_item NOT LIKE '%"parent_instance":null%'
    -- An array: a subquery may be joined, which takes the text apart once for each of the given.
    AND substring(q.work_item FROM '"parent_instance": ?("(?:[^"\\]|\\.)*")') = ANY (ARRAY(
      SELECT to_json(parent.id)::text FROM unnest(p_instance_ids) AS parent (id)
    ))
    -- An instance with a row has its parent already, and will ignore the start.
    AND NOT EXISTS (SELECT FROM instances AS i WHERE i.instance_id = q.instance_id);
END
$$;

-- Moves locked messages of the outbox to queue_messages, and marks them as sent or deletes them. A part of
-- dx_claim_outbox. What PgQueue would refuse (no kind, too large) stays.
--
-- Returns how many were moved, by queue and together. Bound: the rows given. Locks: none besides the caller's.
CREATE OR REPLACE FUNCTION dx_move_outbox(
  p_ids bigint[],
  p_expiring bigint[],             -- those of them that are deleted in any case
  p_queues text[],                 -- this and the following: as in dx_claim_outbox
  p_max_attempts integer[], p_keeps boolean, p_now timestamptz,
  OUT out_moved jsonb,             -- {queue: count}
  OUT out_count bigint
) LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_most_bytes CONSTANT integer := 262144; -- of a payload in PgQueue, as JSON
BEGIN
  WITH kept AS (
    UPDATE queue_outbox AS o
    SET sent_at = p_now, lease_token = NULL, lease_until = NULL, attempts = o.attempts + 1, last_error = NULL
    WHERE p_keeps
      AND o.id = ANY (p_ids)
      AND o.expires_at IS NULL
      AND jsonb_typeof(o.payload -> 'kind') = 'string'
      AND octet_length(o.payload::text) <= v_most_bytes
    RETURNING o.queue, o.payload
  ),
  deleted AS (
    DELETE FROM queue_outbox AS o
    WHERE o.id = ANY (CASE WHEN p_keeps THEN p_expiring ELSE p_ids END)
      AND jsonb_typeof(o.payload -> 'kind') = 'string'
      AND octet_length(o.payload::text) <= v_most_bytes
    RETURNING o.queue, o.payload
  ),
  moved AS (
    SELECT kept.queue, kept.payload FROM kept
    UNION ALL
    SELECT deleted.queue, deleted.payload FROM deleted
  ),
  sent AS (
    INSERT INTO queue_messages (queue, payload, created_at, visible_at, max_attempts)
    SELECT moved.queue, moved.payload, p_now, p_now, p_max_attempts[array_position(p_queues, moved.queue)]
    FROM moved
  )
  SELECT COALESCE(jsonb_object_agg(total.queue, total.count), '{}'), COALESCE(sum(total.count), 0)
  INTO out_moved, out_count
  FROM (SELECT moved.queue, count(*) AS count FROM moved GROUP BY moved.queue) AS total;
END
$$;

-- Claims the messages of the outbox that are due and belong to queues of the caller, of each queue the oldest first.
-- Each is leased to the caller, which sends it; or, under p_max_attempts, moved to queue_messages and marked as sent,
-- or deleted, in this transaction. What PgQueue would refuse (no kind, too large) is leased in any case: the caller
-- learns why. Messages that have expired are deleted.
--
-- Queues with messages that are due share a claim equally, so that a backlog of one does not delay the others.
--
-- Returns one row: the leased messages, how many of each queue were moved, whether there may be more, when to look
-- again, and the time of the look. The next look is due when the next message is, or when the lease of another
-- publisher ends, which may have died; a second from now if another claim is under way. Null: nothing to wait for. If
-- there is no more, the row also names other queues whose oldest message has been due for over a minute and is not
-- leased: perhaps no publisher has such a queue.
-- Bound: p_limit messages, deleted ones included. In the queues of the caller, messages that others have leased are
-- read and passed over; in up to 100 other queues the oldest message is read. Locks: the claimed rows (skip locked).
CREATE OR REPLACE FUNCTION dx_claim_outbox(
  p_limit integer,                 -- rows, >= 1
  p_lease_ms bigint,               -- milliseconds, > 0
  p_token text,                    -- of this claim, unique
  p_queues text[],                 -- of the caller
  p_max_attempts integer[] DEFAULT NULL, -- of each of these queues, all in this schema; null: lease all
  p_keeps boolean DEFAULT true,    -- whether moved messages that do not expire stay, marked as sent, or are deleted
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_messages jsonb,              -- [{id, queue, payload, attempts}]; id as text; attempts includes this one
  out_moved jsonb,                 -- {queue: count}
  out_is_full boolean,
  out_unclaimed_queues jsonb,      -- [name]
  out_next_ms bigint, out_now_ms bigint
) LANGUAGE plpgsql
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
  v_queues text[] := p_queues;
  v_queue text := '';
  v_share integer;
  v_some bigint[];
  v_ids bigint[] := '{}';
  v_expiring bigint[] := '{}'; -- of these
  v_moved bigint := 0;
  v_first record;
BEGIN
  IF cardinality(p_queues) > 1 THEN
    v_queues := ARRAY(
      SELECT given.queue FROM (SELECT DISTINCT q.queue FROM unnest(p_queues) AS q (queue)) AS given
      CROSS JOIN LATERAL (
        SELECT o.deliver_at, o.id FROM queue_outbox AS o
        WHERE o.sent_at IS NULL
          AND o.queue = given.queue
          AND o.deliver_at <= v_now
          AND (o.lease_until IS NULL OR o.lease_until <= v_now_ms)
        ORDER BY o.deliver_at, o.id LIMIT 1
      ) AS oldest
      ORDER BY oldest.deliver_at, oldest.id LIMIT p_limit
    );
  END IF;

  out_is_full := false;
  v_share := p_limit / greatest(cardinality(v_queues), 1);
  FOREACH v_queue IN ARRAY v_queues LOOP
    SELECT
      COALESCE(array_agg(due.id), '{}'),
      v_expiring || COALESCE(array_agg(due.id) FILTER (WHERE due.expires_at IS NOT NULL), '{}')
    INTO v_some, v_expiring
    FROM (
      SELECT o.id, o.expires_at FROM queue_outbox AS o
      WHERE o.sent_at IS NULL
        AND o.queue = v_queue
        AND o.deliver_at <= v_now
        AND (o.lease_until IS NULL OR o.lease_until <= v_now_ms)
      ORDER BY o.deliver_at, o.id LIMIT v_share FOR UPDATE SKIP LOCKED
    ) AS due;
    out_is_full := out_is_full OR cardinality(v_some) >= v_share;
    v_ids := v_ids || v_some;
  END LOOP;

  IF v_expiring <> '{}' THEN
    DELETE FROM queue_outbox AS o WHERE o.id = ANY (v_expiring) AND o.expires_at <= v_now;
  END IF;

  out_moved := '{}';
  IF p_max_attempts IS NOT NULL AND v_ids <> '{}' THEN
    SELECT sent.out_moved, sent.out_count INTO out_moved, v_moved
    FROM dx_move_outbox(v_ids, v_expiring, p_queues, p_max_attempts, p_keeps, v_now) AS sent;
  END IF;

  out_messages := '[]';
  IF cardinality(v_ids) > v_moved THEN
    WITH claimed AS (
      UPDATE queue_outbox AS o
      SET lease_token = p_token, lease_until = v_now_ms + p_lease_ms, attempts = o.attempts + 1
      -- sent_at IS NULL would lead to the index of all that are not sent.
      WHERE o.id = ANY (v_ids) AND num_nulls(o.sent_at) = 1
      RETURNING o.id, o.queue, o.payload, o.attempts, o.deliver_at
    )
    SELECT COALESCE(
      jsonb_agg(
        jsonb_build_object(
          'id', claimed.id::text, 'queue', claimed.queue, 'payload', claimed.payload,
          'attempts', claimed.attempts
        )
        ORDER BY claimed.deliver_at, claimed.id
      ),
      '[]'
    )
    INTO out_messages
    FROM claimed;
  END IF;

  out_unclaimed_queues := '[]';
  IF out_is_full THEN
    out_next_ms := v_now_ms;
  ELSE
    out_next_ms := (
      SELECT least(min(later.at_ms), min(held.at_ms)) FROM unnest(p_queues) AS given (queue)
      LEFT JOIN LATERAL (
        SELECT ceil(extract(epoch FROM o.deliver_at) * 1000)::bigint AS at_ms FROM queue_outbox AS o
        WHERE o.sent_at IS NULL
          AND o.queue = given.queue
          AND o.deliver_at > v_now
          AND o.deliver_at < 'infinity' -- never
        ORDER BY o.deliver_at, o.id LIMIT 1
      ) AS later ON true
      LEFT JOIN LATERAL (
        SELECT min(CASE WHEN o.lease_until > v_now_ms THEN o.lease_until ELSE v_now_ms + 1000 END) AS at_ms
        FROM queue_outbox AS o
        WHERE o.sent_at IS NULL
          AND o.queue = given.queue
          AND o.deliver_at <= v_now
          AND o.lease_token IS DISTINCT FROM p_token
      ) AS held ON true
    );
    v_queue := '';
    FOR i IN 1..100 LOOP
      SELECT o.queue, o.deliver_at, o.lease_until INTO v_first FROM queue_outbox AS o
      WHERE o.sent_at IS NULL AND o.queue > v_queue
      ORDER BY o.queue, o.deliver_at, o.id LIMIT 1;
      EXIT WHEN NOT FOUND;
      v_queue := v_first.queue;
      IF v_queue <> ALL (p_queues)
        AND v_first.deliver_at <= v_now - interval '1 minute'
        AND (v_first.lease_until IS NULL OR v_first.lease_until <= v_now_ms)
      THEN
        out_unclaimed_queues := out_unclaimed_queues || to_jsonb(v_queue);
      END IF;
    END LOOP;
  END IF;
  out_now_ms := v_now_ms;
  RETURN NEXT;
END
$$;

-- Whether what the last run of a schedule has started still runs. What was deleted does not. Bound: two rows. Locks:
-- none.
CREATE OR REPLACE FUNCTION dx_is_schedule_running(p_instance_id text, p_task_id uuid)
RETURNS boolean LANGUAGE sql STABLE
-- settings of the caller
AS $$
  SELECT EXISTS (SELECT FROM instances AS i WHERE i.instance_id = p_instance_id AND i.status = 'Running')
    OR EXISTS (SELECT FROM queue_tasks AS t WHERE t.id = p_task_id AND t.status IN ('Pending', 'Running'))
$$;

-- Claims schedules that have something to do: an occurrence is due, an operator asks for runs, or what keeps an
-- occurrence waiting has ended. A claim only keeps other schedulers away for p_hold_ms, after which they try as well;
-- which of them fires, dx_fire_schedules decides.
--
-- Returns {nowMs, nextMs, isFull, schedules: [...], waiting: [{name, instanceId, taskId}]}: nextMs is when to look
-- again, null for never; waiting are the runs whose end lets an occurrence start.
-- Bound: p_limit schedules, 16 MiB of payloads, and the schedules with an occurrence that waits. Locks: the rows it
-- claims (skip locked).
CREATE OR REPLACE FUNCTION dx_claim_schedules(
  p_codes text[],                  -- what this process can make payloads of
  p_limit integer, p_hold_ms bigint, p_now_ms bigint DEFAULT NULL
) RETURNS json LANGUAGE plpgsql
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
  v_now timestamptz := dx_time_of(v_now_ms);
  v_until timestamptz := dx_time_of(v_now_ms + p_hold_ms);
  v_most_bytes CONSTANT bigint := 16777216;
  v_found text[];
  v_names text[];
  v_next timestamptz;
  v_is_full boolean;
BEGIN
  WITH due AS MATERIALIZED (
    SELECT s.name, s.look_at, COALESCE(octet_length(s.payload), 0) AS bytes
    FROM schedules AS s
    WHERE s.look_at <= v_now AND (s.code IS NULL OR s.code = ANY (p_codes))
    ORDER BY s.look_at
    LIMIT p_limit
    FOR NO KEY UPDATE SKIP LOCKED
  ),
  freed AS MATERIALIZED (
    SELECT s.name, s.look_at, COALESCE(octet_length(s.payload), 0) AS bytes
    FROM schedules AS s
    -- A run by hand starts also during a pause.
    WHERE s.queued IS NOT NULL AND (s.paused_at IS NULL OR s.queued ->> 'kind' = 'Manual')
      AND (s.look_at <= v_now) IS NOT TRUE
      AND (s.code IS NULL OR s.code = ANY (p_codes))
      AND NOT dx_is_schedule_running(s.last_instance_id, s.last_task_id)
    LIMIT p_limit
    FOR NO KEY UPDATE SKIP LOCKED
  ),
  found AS (
    SELECT one.name, sum(one.bytes) OVER (ORDER BY one.look_at, one.name) - one.bytes AS before
    FROM (SELECT * FROM due UNION ALL SELECT * FROM freed) AS one
  )
  SELECT array_agg(found.name), array_agg(found.name) FILTER (WHERE found.before < v_most_bytes)
  INTO v_found, v_names FROM found;
  v_is_full := cardinality(v_found) >= p_limit OR cardinality(v_found) > cardinality(v_names);

  UPDATE schedules AS s SET look_at = v_until WHERE s.name = ANY (v_names);

  -- What another scheduler is about to fire may be left to us.
  v_next := least(
    (
      SELECT s.look_at FROM schedules AS s
      WHERE s.look_at > v_now AND (s.code IS NULL OR s.code = ANY (p_codes)) AND s.name <> ALL (COALESCE(v_names, '{}'))
      ORDER BY s.look_at
      LIMIT 1
    ),
    CASE WHEN EXISTS (
      SELECT FROM schedules AS s WHERE s.look_at <= v_now AND (s.code IS NULL OR s.code = ANY (p_codes))
    ) THEN v_until END
  );

  RETURN json_build_object(
    'nowMs', v_now_ms,
    'nextMs', ceil(extract(epoch FROM v_next) * 1000)::bigint,
    'isFull', COALESCE(v_is_full, false),
    'schedules', COALESCE(
      (
        SELECT json_agg(json_build_object(
          'name', s.name, 'definition', s.definition, 'payload', s.payload, 'code', s.code, 'revision', s.revision,
          'firedUntilMs', floor(extract(epoch FROM s.fired_until) * 1000)::bigint,
          'isPaused', s.paused_at IS NOT NULL, 'queued', s.queued, 'requests', s.requests, 'runCount', s.run_count,
          'lastInstanceId', s.last_instance_id, 'lastTaskId', s.last_task_id,
          'isRunning', dx_is_schedule_running(s.last_instance_id, s.last_task_id)
        ))
        FROM unnest(v_names) AS claimed (name)
        CROSS JOIN LATERAL (SELECT s.* FROM schedules AS s WHERE s.name = claimed.name OFFSET 0) AS s
      ),
      '[]'
    ),
    'waiting', COALESCE(
      (
        SELECT json_agg(json_build_object(
          'name', s.name, 'instanceId', s.last_instance_id, 'taskId', s.last_task_id
        ))
        FROM schedules AS s
        WHERE s.queued IS NOT NULL AND (s.paused_at IS NULL OR s.queued ->> 'kind' = 'Manual')
          AND (s.code IS NULL OR s.code = ANY (p_codes))
          AND dx_is_schedule_running(s.last_instance_id, s.last_task_id)
      ),
      '[]'
    )
  );
END
$$;

-- Deletes messages of the outbox that were sent some time ago, the oldest first.
--
-- Returns one row: how many were deleted, and when the next one is to be. Null: no sent message is left.
-- Bound: p_limit rows. Locks: the deleted rows (skip locked).
CREATE OR REPLACE FUNCTION dx_clean_outbox(
  p_keep_ms bigint,                -- milliseconds since they were sent
  p_limit integer,                 -- rows, >= 1
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (out_deleted integer, out_next_ms bigint, out_now_ms bigint) LANGUAGE plpgsql
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
  v_ids bigint[];
BEGIN
  v_ids := ARRAY(
    SELECT o.id FROM queue_outbox AS o
    WHERE o.sent_at IS NOT NULL AND o.sent_at <= to_timestamp((v_now_ms - p_keep_ms)::float8 / 1000)
    ORDER BY o.sent_at LIMIT p_limit FOR UPDATE SKIP LOCKED
  );
  DELETE FROM queue_outbox AS o WHERE o.id = ANY (v_ids);
  out_deleted := cardinality(v_ids);
  SELECT ceil(extract(epoch FROM o.sent_at) * 1000)::bigint + p_keep_ms INTO out_next_ms
  FROM queue_outbox AS o WHERE o.sent_at IS NOT NULL
  ORDER BY o.sent_at LIMIT 1;
  out_now_ms := v_now_ms;
  RETURN NEXT;
END
$$;

-- Deletes tasks that ended some time ago, the oldest first, with their attempts.
--
-- Returns how many were deleted. Bound: p_limit tasks. Locks: the deleted rows; tasks that are locked are skipped.
CREATE OR REPLACE FUNCTION dx_clean_tasks(
  p_keep_ended_ms bigint,          -- milliseconds since they were completed or cancelled
  p_keep_dead_ms bigint,           -- milliseconds since they died
  p_limit integer,                 -- tasks, >= 1
  p_now_ms bigint DEFAULT NULL
) RETURNS integer LANGUAGE plpgsql
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
  v_ids uuid[];
BEGIN
  v_ids := ARRAY(
    SELECT t.id FROM queue_tasks AS t
    WHERE t.ended_at IS NOT NULL AND t.ended_at <= to_timestamp((v_now_ms - p_keep_ended_ms)::float8 / 1000)
    ORDER BY t.ended_at LIMIT p_limit FOR UPDATE SKIP LOCKED
  );
  v_ids := v_ids || ARRAY(
    SELECT t.id FROM queue_tasks AS t
    WHERE t.dead_at IS NOT NULL AND t.dead_at <= to_timestamp((v_now_ms - p_keep_dead_ms)::float8 / 1000)
    ORDER BY t.dead_at, t.id LIMIT p_limit - cardinality(v_ids) FOR UPDATE SKIP LOCKED
  );
  DELETE FROM queue_task_attempts AS a WHERE a.task_id = ANY (v_ids);
  DELETE FROM queue_tasks AS t WHERE t.id = ANY (v_ids);
  RETURN cardinality(v_ids);
END
$$;

-- Deletes sessions with an expired lock and no queued activity.
--
-- Returns the number of deleted sessions. A session that a claim is working on is left to the next call.
-- Bound: the expired sessions. Locks: session rows (skip locked).
CREATE OR REPLACE FUNCTION dx_cleanup_orphaned_sessions(p_now_ms bigint DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_deleted bigint;
BEGIN
  DELETE FROM sessions AS s
  USING (
    SELECT orphan.session_id FROM sessions AS orphan
    WHERE orphan.locked_until < v_now_ms
      AND NOT EXISTS (SELECT FROM worker_queue AS w WHERE w.session_id = orphan.session_id)
    ORDER BY orphan.session_id COLLATE "C" FOR UPDATE SKIP LOCKED
  ) AS orphan
  WHERE s.session_id = orphan.session_id;
  GET DIAGNOSTICS v_deleted = ROW_COUNT;
  RETURN v_deleted;
END
$$;

-- The fence for outputs of an attempt: locks the row of its task until the end of the transaction.
--
-- Returns whether it is the task's newest attempt and still runs. While it is locked, no other attempt begins.
-- Bound: one row. Locks: the version of its batch (shared), if it has one, then the task; waits for other transactions
-- that have locked them.
CREATE OR REPLACE FUNCTION dx_lock_attempt(p_task_id uuid, p_attempt integer) RETURNS boolean LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
  -- The transaction may commit the batch later. A discard locks the version before its tasks.
  PERFORM FROM queue_dataset_batches AS b
  JOIN queue_dataset_versions AS v
    ON v.dataset_uuid = b.dataset_uuid
    AND v.dataset_version = b.dataset_version
  WHERE b.task_id = p_task_id
  FOR SHARE OF v;

  RETURN COALESCE(
    (
      SELECT t.status = 'Running' AND t.attempt = p_attempt FROM queue_tasks AS t
      WHERE t.id = p_task_id
      FOR NO KEY UPDATE
    ),
    false
  );
END
$$;

-- Commits the output of a batch for the attempt that has processed it. The first commit counts: a later one, also of a
-- newer attempt, is answered with what is stored.
--
-- Returns {_tag: Committed, outputUri, recordCount, attempt}, {_tag: BatchNotFound}, {_tag: StaleAttempt} or {_tag:
-- VersionNotBuilding, datasetUuid, version, status}.
-- Bound: one row. Locks: the version (shared), the task, the batch. Waits for a commit or discard of the version.
CREATE OR REPLACE FUNCTION dx_commit_batch(
  p_task_id uuid, p_attempt integer, p_output_uri text, p_record_count bigint, p_now_ms bigint DEFAULT NULL
) RETURNS jsonb LANGUAGE plpgsql
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
  v_batch queue_dataset_batches%ROWTYPE;
  v_status text;
BEGIN
  SELECT b.* INTO v_batch FROM queue_dataset_batches AS b WHERE b.task_id = p_task_id;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('_tag', 'BatchNotFound');
  END IF;

  SELECT v.status INTO v_status FROM queue_dataset_versions AS v
  WHERE v.dataset_uuid = v_batch.dataset_uuid AND v.dataset_version = v_batch.dataset_version
  FOR SHARE;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('_tag', 'BatchNotFound');
  END IF;

  IF NOT dx_lock_attempt(p_task_id, p_attempt) THEN
    RETURN jsonb_build_object('_tag', 'StaleAttempt');
  END IF;

  -- Read again: another attempt may have committed it before this one had the lock.
  SELECT b.* INTO v_batch FROM queue_dataset_batches AS b WHERE b.task_id = p_task_id FOR UPDATE;
  IF v_batch.status = 'Buffered' THEN
    IF v_status <> 'Building' THEN
      RETURN jsonb_build_object(
        '_tag', 'VersionNotBuilding', 'datasetUuid', v_batch.dataset_uuid, 'version', v_batch.dataset_version,
        'status', v_status
      );
    END IF;
    UPDATE queue_dataset_batches AS b
    SET status = 'Committed', output_uri = p_output_uri, output_record_count = p_record_count,
        attempt = p_attempt, committed_at = to_timestamp(v_now_ms::float8 / 1000)
    WHERE b.task_id = p_task_id
    RETURNING b.* INTO v_batch;
  END IF;
  RETURN jsonb_build_object(
    '_tag', 'Committed', 'outputUri', v_batch.output_uri, 'recordCount', v_batch.output_record_count,
    'attempt', v_batch.attempt
  );
END
$$;

-- Commits a version if all its batches are committed, and at least p_batch_count of them. A committed version is
-- answered like the commit itself.
--
-- Returns {_tag: Committed, batchCount, recordCount}, {_tag: BatchesMissing, missing, published}, {_tag:
-- VersionNotFound}, {_tag: VersionNotBuilding, status}, {_tag: StaleAttempt} or {_tag: IsolationUnfit, level}.
-- Bound: the batches of the version. Locks: the version, the task. Waits for transactions that publish or commit
-- batches of the version; a batch that comes later finds it committed.
CREATE OR REPLACE FUNCTION dx_commit_version(
  p_dataset_uuid uuid, p_version bigint,
  p_batch_count bigint,            -- fewest batches; null for those that were published
  p_task_id uuid,                  -- the attempt that commits; null for a commit outside of a task
  p_attempt integer, p_now_ms bigint DEFAULT NULL
) RETURNS jsonb LANGUAGE plpgsql
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
  v_status text;
  v_published bigint;
  v_committed bigint;
  v_records bigint;
BEGIN
  -- Other levels do not show the batches of transactions that ended while this one waited for the lock.
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RETURN jsonb_build_object('_tag', 'IsolationUnfit', 'level', current_setting('transaction_isolation'));
  END IF;

  SELECT v.status INTO v_status FROM queue_dataset_versions AS v
  WHERE v.dataset_uuid = p_dataset_uuid AND v.dataset_version = p_version
  FOR UPDATE;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('_tag', 'VersionNotFound');
  END IF;
  IF p_task_id IS NOT NULL AND NOT dx_lock_attempt(p_task_id, p_attempt) THEN
    RETURN jsonb_build_object('_tag', 'StaleAttempt');
  END IF;
  IF v_status = 'Discarded' THEN
    RETURN jsonb_build_object('_tag', 'VersionNotBuilding', 'status', v_status);
  END IF;

  SELECT count(*), count(*) FILTER (WHERE b.status = 'Committed'), COALESCE(sum(b.output_record_count), 0)
  INTO v_published, v_committed, v_records
  FROM queue_dataset_batches AS b
  WHERE b.dataset_uuid = p_dataset_uuid AND b.dataset_version = p_version;
  IF v_committed < greatest(v_published, p_batch_count) THEN
    RETURN jsonb_build_object(
      '_tag', 'BatchesMissing', 'missing', greatest(v_published, p_batch_count) - v_committed,
      'published', v_published
    );
  END IF;

  IF v_status = 'Building' THEN
    UPDATE queue_dataset_versions AS v
    SET status = 'Committed', record_count = v_records, task_id = p_task_id, attempt = p_attempt,
        committed_at = to_timestamp(v_now_ms::float8 / 1000)
    WHERE v.dataset_uuid = p_dataset_uuid AND v.dataset_version = p_version;
  END IF;
  RETURN jsonb_build_object('_tag', 'Committed', 'batchCount', v_committed, 'recordCount', v_records);
END
$$;

-- Completes tasks with the results of their attempts.
--
-- Returns one outcome per item, in order; null if all are Done. Done: the task is completed by this attempt, now or
-- before. Stale: the attempt is not the newest one, or the task has ended otherwise; nothing changes. Uncommitted, only
-- of p_committed: the task still runs, so the transaction that completed it was rolled back. Under p_is_first a task
-- that is completed is Stale: its rows were committed with it, and must not be committed again.
--
-- The attempt of a completed task stays in the row of the task: its number, worker and times.
--
-- Bound: the rows given. Locks: the tasks, by id; then as dx_free_task_slots, but not in a transaction of a handler,
-- whose commit is followed by a call with p_committed.
CREATE OR REPLACE FUNCTION dx_complete_tasks(
  p_ids uuid[], p_attempts integer[], p_results text[],
  p_committed boolean[],           -- checks that its own transaction has completed the task, and completes nothing
  p_is_first boolean, p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
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
  v_outcomes text[];
  v_announced uuid[];
  v_freed text[];
BEGIN
  WITH item AS MATERIALIZED (
    SELECT
      given.position, given.result, given.is_committed, task.id, task.name, task.has_slot, task.is_announced,
      CASE
        WHEN task.attempt IS DISTINCT FROM given.attempt THEN 'Stale'
        WHEN task.status = 'Completed' AND NOT p_is_first THEN 'Done'
        WHEN task.status <> 'Running' THEN 'Stale'
        WHEN given.is_committed THEN 'Uncommitted'
        ELSE 'Complete'
      END AS outcome
    FROM (
      SELECT i.*
      FROM unnest(p_ids, p_attempts, p_results, p_committed) WITH ORDINALITY
        AS i (id, attempt, result, is_committed, position)
      ORDER BY i.id, i.position
    ) AS given
    LEFT JOIN LATERAL (
      SELECT t.id, t.name, t.status, t.attempt, t.has_slot, t.is_awaited OR t.reply_instance_id IS NOT NULL AS is_announced
      FROM queue_tasks AS t WHERE t.id = given.id
      FOR NO KEY UPDATE
    ) AS task ON true
  ),
  completed AS (
    UPDATE queue_tasks AS t
    SET status = 'Completed', result = item.result, error = NULL, lease_until = NULL, heartbeat_at = NULL,
        look_at = NULL, has_slot = NULL, updated_at = v_now, ended_at = v_now
    FROM item WHERE t.id = item.id AND item.outcome = 'Complete'
  )
  SELECT
    CASE
      WHEN bool_or(item.outcome <> 'Complete')
      THEN array_replace(array_agg(item.outcome ORDER BY item.position), 'Complete', 'Done')
    END,
    array_agg(item.id) FILTER (WHERE item.outcome = 'Complete' AND item.is_announced),
    array_agg(item.name) FILTER (
      WHERE CASE item.outcome WHEN 'Complete' THEN item.has_slot WHEN 'Done' THEN item.is_committed END
    )
  INTO v_outcomes, v_announced, v_freed
  FROM item;

  IF v_announced IS NOT NULL THEN
    PERFORM dx_announce_task_ends(v_announced, v_now_ms);
  END IF;
  IF v_freed IS NOT NULL AND NOT p_is_first THEN
    PERFORM dx_free_task_slots(v_freed, p_now_ms);
  END IF;
  RETURN v_outcomes;
END
$$;

-- Returns the statuses and names that instances have, unordered.
--
-- Bound: one index lookup for each of them, and one for each status. Locks: none.
CREATE OR REPLACE FUNCTION dx_groups_of_instances(
  p_statuses text[],
  p_name text                      -- only this one; null: any
) RETURNS TABLE (out_status text, out_name text) LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
  WITH RECURSIVE found AS (
    SELECT wanted.status, first.orchestration_name
    FROM unnest(p_statuses) AS wanted (status)
    CROSS JOIN LATERAL (
      SELECT i.orchestration_name FROM instances AS i
      WHERE i.status = wanted.status AND i.orchestration_name >= COALESCE(p_name, '')
      ORDER BY i.orchestration_name LIMIT 1
    ) AS first
    WHERE p_name IS NULL OR first.orchestration_name = p_name
    UNION ALL
    SELECT found.status, next.orchestration_name FROM found
    CROSS JOIN LATERAL (
      SELECT i.orchestration_name FROM instances AS i
      WHERE p_name IS NULL AND i.status = found.status AND i.orchestration_name > found.orchestration_name
      ORDER BY i.orchestration_name LIMIT 1
    ) AS next
  )
  SELECT found.status, found.orchestration_name FROM found
$$;

-- Counts instances by name, status and, if asked for, version.
--
-- Returns one row for each, unordered. Where ANALYZE has found more than p_exact_up_to instances of a name and status,
-- by a sample of the table, that estimate is the answer: autovacuum repeats it after each tenth of new rows. Then a
-- version that the sample lacks is left out. All others are counted.
--
-- Bound: dx_groups_of_instances, and the index entries of names and statuses that are counted; by version, their rows.
-- Locks: none.
CREATE OR REPLACE FUNCTION dx_count_instances(
  p_statuses text[],               -- this and the next one as in dx_groups_of_instances
  p_name text,
  p_by_version boolean, p_exact_up_to bigint
) RETURNS TABLE (out_name text, out_status text, out_version text, out_instances bigint, out_is_estimate boolean)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET max_parallel_workers_per_gather = 0 -- to start them takes longer than to count
AS $$
DECLARE
  v_group record;
  v_rows CONSTANT float8 := (SELECT c.reltuples FROM pg_class AS c WHERE c.oid = 'instances'::regclass);
  -- [{name, version, status, instances}]
  v_common CONSTANT jsonb := (
    SELECT jsonb_agg(jsonb_build_object(
      -- In the order of the columns in the table.
      'name', s.most_common_vals[n][1], 'version', s.most_common_vals[n][2], 'status', s.most_common_vals[n][3],
      'instances', (s.most_common_freqs[n] * v_rows)::bigint
    ))
    FROM pg_stats_ext AS s
    CROSS JOIN LATERAL generate_subscripts(s.most_common_vals, 1) AS n
    WHERE s.statistics_schemaname = current_schema() AND s.statistics_name = 'instances_name_version_status_stats'
  );
BEGIN
  FOR v_group IN
    SELECT g.out_status AS status, g.out_name AS name, (
        SELECT sum(c.instances) FROM jsonb_to_recordset(v_common) AS c (name text, status text, instances bigint)
        WHERE c.status = g.out_status AND c.name = g.out_name
      ) AS estimate
    FROM dx_groups_of_instances(p_statuses, p_name) AS g
  LOOP
    IF v_group.estimate > p_exact_up_to THEN
      RETURN QUERY
      SELECT v_group.name, v_group.status, CASE WHEN p_by_version THEN c.version END, sum(c.instances)::bigint, true
      FROM jsonb_to_recordset(v_common) AS c (name text, version text, status text, instances bigint)
      WHERE c.status = v_group.status AND c.name = v_group.name
      GROUP BY 3;
    ELSIF p_by_version THEN
      RETURN QUERY
      SELECT v_group.name, v_group.status, i.orchestration_version, count(*), false
      FROM instances AS i
      WHERE i.status = v_group.status AND i.orchestration_name = v_group.name
      GROUP BY 3;
    ELSE
      -- From the index alone. Deleted meanwhile: none.
      RETURN QUERY
      SELECT v_group.name, v_group.status, NULL::text, counted.instances, false
      FROM (
        SELECT count(*) AS instances FROM instances AS i
        WHERE i.status = v_group.status AND i.orchestration_name = v_group.name
      ) AS counted
      WHERE counted.instances > 0;
    END IF;
  END LOOP;
END
$$;

-- Creates a data set, unless one of this name exists.
--
-- Returns its id. Bound: one row. Locks: the data set; waits for a transaction that creates one of the same name.
CREATE OR REPLACE FUNCTION dx_create_dataset(p_name text, p_now_ms bigint DEFAULT NULL) RETURNS text
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
  v_uuid uuid;
BEGIN
  INSERT INTO queue_datasets (dataset_uuid, name, created_at, updated_at)
  VALUES (gen_random_uuid(), p_name, v_now, v_now) ON CONFLICT (name) DO NOTHING
  RETURNING dataset_uuid INTO v_uuid;
  IF v_uuid IS NULL THEN
    SELECT d.dataset_uuid INTO v_uuid FROM queue_datasets AS d WHERE d.name = p_name;
  END IF;
  RETURN v_uuid::text;
END
$$;

-- Gives tasks that are dead or were cancelled their attempts again: each waits for its next attempt, with a row of the
-- outbox that wakes it. No execution waits for them then.
--
-- Bound: the tasks given. Locks: the caller has locked them.
CREATE OR REPLACE FUNCTION dx_run_tasks_again(p_ids uuid[], p_now_ms bigint) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_limited CONSTANT text[] := dx_limited_tasks();
BEGIN
  WITH again AS (
    UPDATE queue_tasks AS t
    SET status = 'Pending', uncounted = t.attempt, lost = 0, run_at = v_now,
        look_at = v_now + interval '30 seconds', reply_instance_id = NULL, updated_at = v_now, dead_at = NULL,
        ended_at = NULL, has_slot = CASE WHEN t.name = ANY (v_limited) THEN false END,
        limit_key = CASE WHEN t.name = ANY (v_limited) THEN COALESCE(t.limit_key, '') ELSE t.limit_key END
    WHERE t.id = ANY (p_ids)
    RETURNING t.id, t.queue, t.wakeup
  )
  INSERT INTO queue_outbox (queue, payload, created_at, deliver_at)
  SELECT again.queue, dx_wakeup_of(again.id, again.wakeup), v_now, v_now FROM again;
END
$$;

-- Lets an execution wait again for tasks that it has called. The end of one that has completed is sent again. For a
-- retry, one that is dead or was cancelled runs again, with all its attempts. Otherwise only a cancelled one does whose
-- call had ended, and the other ends are sent.
--
-- Returns false, and changes nothing, if one of them does not exist that was called with a signal.
-- Bound: the tasks given. Locks: the tasks, by id; waits for attempts that commit.
CREATE OR REPLACE FUNCTION dx_recall_tasks(
  p_instance_id text, p_execution_id bigint,
  p_calls jsonb,                   -- [{id, name, key, signal}]: the id, or name and key of a task that calls share;
                                   -- without a signal no message brings its end
  p_is_retry boolean,              -- the caller is about to begin the execution again
  p_now_ms bigint DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql
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
  v_is_missing boolean;
  v_ids uuid[];
  v_signals text[];
  v_shared boolean[];
  v_again uuid[];
BEGIN
  SELECT
    bool_or(task.id IS NULL AND item.signal IS NOT NULL), array_agg(task.id), array_agg(item.signal),
    array_agg(item.is_shared),
    array_agg(task.id) FILTER (
      WHERE task.status IN ('Dead', 'Cancelled')
        AND (p_is_retry OR (task.status = 'Cancelled' AND task.reply_instance_id IS NULL))
    )
  INTO v_is_missing, v_ids, v_signals, v_shared, v_again
  FROM (
    SELECT
      COALESCE(c.id, (SELECT t.id FROM queue_tasks AS t WHERE t.name = c.name AND t.key = c.key)) AS id,
      c.id IS NULL AS is_shared, c.signal
    FROM jsonb_to_recordset(p_calls) AS c (id uuid, name text, key text, signal text)
    ORDER BY 1
  ) AS item
  LEFT JOIN LATERAL (
    SELECT t.id, t.status, t.reply_instance_id FROM queue_tasks AS t WHERE t.id = item.id
    FOR NO KEY UPDATE
  ) AS task ON true;
  IF v_is_missing THEN
    RETURN false;
  END IF;

  IF v_again IS NOT NULL THEN
    PERFORM dx_run_tasks_again(v_again, v_now_ms);
  END IF;
  UPDATE queue_tasks AS t
  SET reply_instance_id = p_instance_id, reply_execution_id = p_execution_id, reply_name = call.signal
  FROM unnest(v_ids, v_signals, v_shared) AS call (id, signal, is_shared)
  WHERE t.id = call.id AND NOT call.is_shared;
  UPDATE queue_tasks AS t SET is_awaited = true
  FROM unnest(v_ids, v_signals, v_shared) AS call (id, signal, is_shared)
  WHERE t.id = call.id AND call.is_shared AND call.signal IS NOT NULL AND t.status IN ('Pending', 'Running');
  INSERT INTO queue_task_callers (task_id, signal, instance_id, execution_id)
  SELECT t.id, call.signal, p_instance_id, p_execution_id
  FROM unnest(v_ids, v_signals, v_shared) AS call (id, signal, is_shared)
  CROSS JOIN LATERAL (SELECT x.id, x.status FROM queue_tasks AS x WHERE x.id = call.id OFFSET 0) AS t
  WHERE call.is_shared AND call.signal IS NOT NULL AND t.status IN ('Pending', 'Running')
  ON CONFLICT DO NOTHING;

  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
  SELECT
    p_instance_id,
    json_build_object(
      'QueueMessage',
      json_build_object(
        'instance', p_instance_id, 'name', call.signal,
        'data', json_build_object('status', t.status, 'result', t.result, 'error', t.error)::text
      )
    )::text,
    v_now, v_now
  FROM unnest(v_ids, v_signals) AS call (id, signal)
  CROSS JOIN LATERAL (
    SELECT x.status, x.result, x.error FROM queue_tasks AS x
    WHERE x.id = call.id
    OFFSET 0
  ) AS t
  WHERE call.signal IS NOT NULL
    AND t.status NOT IN ('Pending', 'Running')
    AND (p_is_retry OR dx_is_execution_running(p_instance_id, p_execution_id))
  ORDER BY call.signal;
  RETURN true;
END
$$;

-- The end of a lock that an operator sets, in milliseconds: that of the year 9999. No clock reaches it, and every
-- client reads it.
CREATE OR REPLACE FUNCTION dx_no_end() RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$
  SELECT 253402300799999
$$;

-- Removes the last events of the current execution of an instance, so that it runs again from there. The removed events
-- are kept in removed_events. An instance that has ended is Running again.
--
-- Returns Cut; Changed if the execution has another history than the caller has read; Locked while a process runs the
-- instance; or TaskMissing if a task that it waits for does not exist. Only Cut changes anything.
--
-- The messages get in front of all that wait for the instance, in the order given.
--
-- Bound: the events that are removed, the values and the queued work of the instance. Locks: the advisory lock of the
-- id (waits for claims); the instance lock; the instance row; as dx_recall_tasks; then rows of executions, history,
-- removed_events, key-values, attributes, worker queue, orchestrator queue and blocked_instances.
CREATE OR REPLACE FUNCTION dx_cut_history(
  p_instance_id text, p_execution_id bigint,
  p_last_event_id bigint, p_status text, -- as the caller has read them
  p_keep bigint,                   -- the last event that stays, >= 1
  p_event jsonb,                   -- {event_id, event_type, event_data}, appended; its id is greater than all others
  p_reason text,
  p_custom_status text,            -- that of the events that stay
  p_stored jsonb,                  -- [{key, value, execution_id, last_updated_at_ms}], of earlier executions; null: as it is
  p_changed jsonb,                 -- [{key, value, last_updated_at_ms}], of the events that stay
  p_messages text[],
  p_cancelled_activities bigint[], -- event ids
  p_withdrawn text[],              -- texts of messages that are deleted
  p_attributes jsonb,              -- [{name, text, number, time_ms}], all those of the events that stay
  p_tasks jsonb DEFAULT '[]',      -- calls of tasks that it waits for again, as in dx_recall_tasks
  p_now_ms bigint DEFAULT NULL
) RETURNS text LANGUAGE plpgsql
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
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext(p_instance_id));
  PERFORM FROM instance_locks AS l WHERE l.instance_id = p_instance_id FOR UPDATE;
  IF EXISTS (
    SELECT FROM instance_locks AS l
    WHERE l.instance_id = p_instance_id AND l.lock_token <> '' AND l.locked_until > v_now_ms
  ) THEN
    RETURN 'Locked';
  END IF;

  PERFORM FROM instances AS i
  WHERE i.instance_id = p_instance_id AND i.current_execution_id = p_execution_id
  FOR UPDATE;
  IF NOT FOUND
    OR p_last_event_id IS DISTINCT FROM (
      SELECT max(h.event_id) FROM history AS h
      WHERE h.instance_id = p_instance_id AND h.execution_id = p_execution_id
    )
    OR NOT EXISTS (
      SELECT FROM executions AS e
      WHERE e.instance_id = p_instance_id AND e.execution_id = p_execution_id AND e.status = p_status
    )
  THEN
    RETURN 'Changed';
  END IF;
  -- A role that retries nothing with tasks needs no rights on them.
  IF p_tasks <> '[]' AND NOT dx_recall_tasks(p_instance_id, p_execution_id, p_tasks, true, v_now_ms) THEN
    RETURN 'TaskMissing';
  END IF;

  -- An operator's pause stays. Turns that are run without a claim look for this lock, and for the last event.
  DELETE FROM instance_locks AS l WHERE l.instance_id = p_instance_id AND l.locked_until <> dx_no_end();
  UPDATE instances AS i
  SET updated_at = v_now, status = 'Running', custom_status = p_custom_status,
      custom_status_version = i.custom_status_version + (i.custom_status IS DISTINCT FROM p_custom_status)::integer,
      -- It does not wait for a slot, and counts.
      limit_name = limited.name, limit_key = COALESCE(i.limit_key, CASE WHEN limited.name IS NOT NULL THEN '' END)
  FROM (
    SELECT (
      SELECT l.name FROM limits AS l WHERE l.kind = 'orchestration' AND l.name = instance.orchestration_name
    ) AS name
    FROM instances AS instance WHERE instance.instance_id = p_instance_id
  ) AS limited
  WHERE i.instance_id = p_instance_id;
  UPDATE executions AS e SET status = 'Running', output = NULL, completed_at = NULL
  WHERE e.instance_id = p_instance_id AND e.execution_id = p_execution_id;

  INSERT INTO removed_events (instance_id, execution_id, removed_at, kept, reason, events)
  SELECT p_instance_id, p_execution_id, clock_timestamp(), p_keep, p_reason, array_agg(h.event_data ORDER BY h.event_id)
  FROM history AS h
  WHERE h.instance_id = p_instance_id AND h.execution_id = p_execution_id AND h.event_id > p_keep
  HAVING count(*) > 0;
  DELETE FROM history AS h
  WHERE h.instance_id = p_instance_id AND h.execution_id = p_execution_id AND h.event_id > p_keep;
  INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
  SELECT p_instance_id, p_execution_id, e.event_id, e.event_type, e.event_data, v_now
  FROM jsonb_to_record(p_event) AS e (event_id bigint, event_type text, event_data text);

  IF p_stored IS NOT NULL THEN
    DELETE FROM kv_store AS s WHERE s.instance_id = p_instance_id;
    INSERT INTO kv_store (instance_id, key, value, execution_id, last_updated_at_ms)
    SELECT p_instance_id, v.key, v.value, v.execution_id, v.last_updated_at_ms
    FROM jsonb_to_recordset(p_stored) AS v (key text, value text, execution_id bigint, last_updated_at_ms bigint);
  END IF;
  DELETE FROM kv_delta AS d WHERE d.instance_id = p_instance_id;
  INSERT INTO kv_delta (instance_id, key, value, last_updated_at_ms)
  SELECT p_instance_id, v.key, v.value, v.last_updated_at_ms
  FROM jsonb_to_recordset(p_changed) AS v (key text, value text, last_updated_at_ms bigint);

  DELETE FROM attributes AS a WHERE a.instance_id = p_instance_id;
  INSERT INTO attributes (instance_id, name, text_value, number_value, time_value, created_at)
  SELECT
    i.instance_id, attribute.name, attribute.text, attribute.number,
    to_timestamp(attribute.time_ms::float8 / 1000), i.created_at
  FROM jsonb_to_recordset(p_attributes)
    AS attribute (name text, text text, number double precision, time_ms bigint)
  CROSS JOIN LATERAL (SELECT * FROM instances AS i WHERE i.instance_id = p_instance_id OFFSET 0) AS i;

  DELETE FROM worker_queue AS w
  WHERE w.instance_id = p_instance_id AND w.execution_id = p_execution_id
    AND w.activity_id = ANY (p_cancelled_activities);
  DELETE FROM orchestrator_queue AS q
  WHERE q.instance_id = p_instance_id AND q.work_item = ANY (p_withdrawn);

  DELETE FROM blocked_instances AS b WHERE b.instance_id = p_instance_id;
  INSERT INTO orchestrator_queue (id, instance_id, work_item, visible_at, created_at)
  SELECT -nextval('orchestrator_queue_id_seq'), p_instance_id, message.work_item, v_now, v_now
  FROM (
    SELECT m.work_item FROM unnest(p_messages) WITH ORDINALITY AS m (work_item, position)
    ORDER BY m.position DESC -- the first one gets the smallest id
  ) AS message;
  RETURN 'Cut';
END
$$;

-- Takes single messages out of claimed batches and hides them for the delay: messages this version cannot read must
-- neither block their instance nor be lost. The delivery is not counted; the lock and the rest of the batch do not
-- change. As in dx_abandon_work_items, created_at is never later than now.
--
-- Returns one outcome per item, in order: Done, or LockLost if the token is unknown, superseded or settled. Ids that do
-- not belong to the batch are ignored.
-- Bound: the messages given. Locks: instance locks by instance; the given queue rows.
CREATE OR REPLACE FUNCTION dx_defer_messages(
  p_items jsonb,                   -- [{token, ids: [row id], delay_ms}]
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
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
  v_outcomes text[] := array_fill('LockLost'::text, ARRAY[jsonb_array_length(p_items)]);
  v_lock record;
BEGIN
  FOR v_lock IN
    SELECT a.position, a.ids, v_now_ms + a.delay_ms AS visible_at_ms, l.instance_id, l.lock_token
    FROM ROWS FROM (jsonb_to_recordset(p_items) AS (token text, ids bigint[], delay_ms bigint))
      WITH ORDINALITY AS a (token, ids, delay_ms, position)
    JOIN instance_locks AS l ON l.instance_id = substr(a.token, 38)
    WHERE l.lock_token = left(a.token, 36)
    ORDER BY l.instance_id COLLATE "C", a.position FOR UPDATE OF l
  LOOP
    v_outcomes[v_lock.position] := 'Done';
    UPDATE orchestrator_queue AS q
    SET lock_token = NULL, locked_until = NULL, attempt_count = greatest(q.attempt_count - 1, 0),
        visible_at = dx_time_of(v_lock.visible_at_ms),
        created_at = least(q.created_at, to_timestamp(v_now_ms::float8 / 1000))
    WHERE q.id = ANY (v_lock.ids)
      AND q.instance_id IS NOT DISTINCT FROM v_lock.instance_id -- not "=": found by id, whatever the statistics say
      AND q.lock_token = v_lock.lock_token;
  END LOOP;
  RETURN v_outcomes;
END
$$;

-- Gives back messages of the outbox that were not sent: each is due again after its pause. Messages that were sent, or
-- that another publisher has claimed since, stay as they are; so do messages that another transaction has locked, until
-- their lease ends.
--
-- Returns how many were given back. Bound: the rows given. Locks: their rows; rows that are locked are skipped.
CREATE OR REPLACE FUNCTION dx_defer_outbox(
  p_rows jsonb,                    -- [{id, pause_ms, error}]; without error: not tried, due as before
  p_token text,                    -- of the claim
  p_now_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql
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
  v_row record;
  v_count bigint := 0;
BEGIN
  FOR v_row IN
    SELECT m.id, m.pause_ms, m.error
    FROM jsonb_to_recordset(p_rows) AS m (id bigint, pause_ms bigint, error text)
    -- A join may be planned as one read of the whole table; sent_at IS NULL would lead to the index of all not sent.
    CROSS JOIN LATERAL (
      SELECT o.id FROM queue_outbox AS o
      WHERE o.id = m.id AND num_nulls(o.sent_at) = 1 AND o.lease_token = p_token
      FOR UPDATE SKIP LOCKED
    ) AS claimed
  LOOP
    UPDATE queue_outbox AS o
    SET deliver_at = CASE
          WHEN v_row.error IS NULL THEN o.deliver_at
          ELSE to_timestamp((v_now_ms + v_row.pause_ms)::float8 / 1000)
        END,
        last_error = COALESCE(v_row.error, o.last_error), lease_token = NULL, lease_until = NULL
    WHERE o.id = v_row.id;
    v_count := v_count + 1;
  END LOOP;
  RETURN v_count;
END
$$;

-- Returns those of the given ids that have not ended, unordered.
--
-- An instance has ended if its current execution is Completed or Failed, or is ContinuedAsNew and no queued message
-- continues it. An id without a row has not ended while its start is queued; otherwise it is unknown and left out. An
-- ended instance stays ended until it is deleted.
--
-- Bound: one look per id, and the messages of ids that continued as new or have no row. Locks: none.
CREATE OR REPLACE FUNCTION dx_running_instances(p_instance_ids text[]) RETURNS SETOF text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
  RETURN QUERY
  SELECT given.id FROM unnest(p_instance_ids) AS given (id)
  LEFT JOIN instances AS i ON i.instance_id = given.id
  LEFT JOIN executions AS e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
  WHERE CASE
    WHEN i.instance_id IS NOT NULL AND COALESCE(e.status, 'Running') <> 'ContinuedAsNew'
      THEN COALESCE(e.status, 'Running') NOT IN ('Completed', 'Failed')
    -- Not EXISTS: inside CASE, PostgreSQL may plan it as one read of the whole table.
    ELSE (
      SELECT q.id FROM orchestrator_queue AS q
      WHERE q.instance_id = given.id
        AND q.work_item LIKE
          CASE WHEN i.instance_id IS NULL THEN '{"StartOrchestration"%' ELSE '{"ContinueAsNew"%' END
      LIMIT 1
    ) IS NOT NULL
  END;
END
$$;

-- Deletes the streams of these instances, with their chunks. A part of dx_delete_instances, because a server may lack
-- triggers for statements, and of the trigger dx_delete_streams, because other programs delete instances, too.
--
-- Bound: their streams. Locks: rows of progress_streams by instance and name. Who appends to one of them has locked it,
-- or the row of the instance: so no chunk outlives its instance.
CREATE OR REPLACE FUNCTION dx_delete_streams_of(p_instance_ids text[]) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
  v_instance text;
  v_ids bigint[] := '{}';
BEGIN
  -- Most have none. One that gets its first stream now has locked the row of its instance.
  FOR v_instance IN
    SELECT DISTINCT s.instance_id COLLATE "C" FROM progress_streams AS s WHERE s.instance_id = ANY (p_instance_ids)
    ORDER BY 1
  LOOP
    v_ids := v_ids || ARRAY(
      SELECT s.id FROM progress_streams AS s WHERE s.instance_id = v_instance
      ORDER BY s.name COLLATE "C" FOR UPDATE
    );
  END LOOP;
  IF v_ids <> '{}' THEN
    DELETE FROM progress_streams AS s WHERE s.id = ANY (v_ids);
    DELETE FROM progress_chunks AS c WHERE c.stream_id = ANY (v_ids);
  END IF;
END
$$;

-- Deletes instances with all their rows, or deletes nothing. The rows are histories, executions, both queues, locks,
-- key-values, attributes, instances.
--
-- Returns one row. Nothing was deleted if out_still_running or out_child_left_behind is set: the first is an id of
-- p_must_have_ended that has not ended, or was updated since it was read; the second a child outside the set, possibly
-- still a queued start, with its parent inside the set. Unknown ids are no error; their rows in other tables are
-- deleted as well.
--
-- A tree too big for one call is held first (see dx_hold_instances) and deleted in several calls, children before
-- parents.
--
-- Bound: all rows of these instances, their children, and the queued starts of all children.
-- Locks: advisory locks of all ids by key (waits), so that no claim takes an instance; instance locks by id; ids
-- without an instance row by id, so that no start takes one; instance rows by id; then rows of executions, history,
-- key-values, attributes, streams, worker queue, orchestrator queue. The call waits for turns and starts that are being
-- stored. A later turn finds no lock; a later start waits.
CREATE OR REPLACE FUNCTION dx_delete_instances(
  p_instance_ids text[],           -- some thousands at most: each takes a place in the server's table of locks
  p_must_have_ended text[],        -- a part of p_instance_ids
  p_updated_ms bigint[] DEFAULT NULL -- when each of these was updated last, as it was read; null: whenever
) RETURNS TABLE (
  out_still_running text, out_child_left_behind text, out_instances_deleted bigint,
  out_executions_deleted bigint, out_events_deleted bigint, out_queue_messages_deleted bigint
) LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
  v_unknown text[];
  v_activities bigint;
BEGIN
  out_instances_deleted := 0;
  out_executions_deleted := 0;
  out_events_deleted := 0;
  out_queue_messages_deleted := 0;

  -- In the order of the keys, which two ids may share.
  PERFORM pg_advisory_xact_lock(instance.key)
  FROM (
    SELECT DISTINCT hashtext(id) AS key FROM unnest(p_instance_ids) AS given (id)
    ORDER BY key
  ) AS instance;

  PERFORM FROM instance_locks AS l WHERE l.instance_id = ANY (p_instance_ids)
  ORDER BY l.instance_id COLLATE "C" FOR UPDATE;

  -- A start of one of these ids waits until the transaction that inserted the row has ended, even after the row is
  -- deleted.
  WITH reserved AS (
    INSERT INTO instances (instance_id, orchestration_name, current_execution_id, created_at, updated_at)
    SELECT DISTINCT given.id COLLATE "C", '', 1, now(), now()
    FROM unnest(p_instance_ids) AS given (id)
    WHERE NOT EXISTS (SELECT FROM instances AS i WHERE i.instance_id = given.id)
    ORDER BY 1
    ON CONFLICT (instance_id) DO NOTHING RETURNING instance_id
  )
  SELECT array_agg(reserved.instance_id) INTO v_unknown FROM reserved;
  DELETE FROM instances AS i WHERE i.instance_id = ANY (v_unknown);

  -- Excludes first turns of children, which lock the row of their parent.
  PERFORM FROM instances AS i WHERE i.instance_id = ANY (p_instance_ids)
  ORDER BY i.instance_id COLLATE "C" FOR UPDATE;

  SELECT running.id INTO out_still_running
  FROM dx_running_instances(p_must_have_ended) AS running (id)
  LIMIT 1;
  IF out_still_running IS NULL AND p_updated_ms IS NOT NULL THEN
    SELECT read.id INTO out_still_running
    FROM unnest(p_must_have_ended, p_updated_ms) AS read (id, updated_ms)
    JOIN instances AS i ON i.instance_id = read.id
    WHERE floor(extract(epoch FROM i.updated_at) * 1000)::bigint <> read.updated_ms
    LIMIT 1;
  END IF;
  IF out_still_running IS NOT NULL THEN
    RETURN NEXT;
    RETURN;
  END IF;

  SELECT child.id INTO out_child_left_behind FROM dx_children_of(p_instance_ids) AS child (id)
  WHERE child.id <> ALL (p_instance_ids)
  LIMIT 1;
  IF out_child_left_behind IS NOT NULL THEN
    RETURN NEXT;
    RETURN;
  END IF;

  DELETE FROM instance_locks AS l WHERE l.instance_id = ANY (p_instance_ids);
  DELETE FROM instances AS i WHERE i.instance_id = ANY (p_instance_ids);
  GET DIAGNOSTICS out_instances_deleted = ROW_COUNT;
  DELETE FROM executions AS e WHERE e.instance_id = ANY (p_instance_ids);
  GET DIAGNOSTICS out_executions_deleted = ROW_COUNT;
  DELETE FROM history AS h WHERE h.instance_id = ANY (p_instance_ids);
  GET DIAGNOSTICS out_events_deleted = ROW_COUNT;
  DELETE FROM removed_events AS r WHERE r.instance_id = ANY (p_instance_ids);
  DELETE FROM paused AS p WHERE p.target = 'instance' AND p.name = ANY (p_instance_ids);
  DELETE FROM kv_store AS s WHERE s.instance_id = ANY (p_instance_ids);
  DELETE FROM kv_delta AS d WHERE d.instance_id = ANY (p_instance_ids);
  DELETE FROM attributes AS a WHERE a.instance_id = ANY (p_instance_ids);
  PERFORM dx_delete_streams_of(p_instance_ids);
  DELETE FROM worker_queue AS w
  -- Not a plain join: planned while statistics call the queue empty, it would read all of it.
  WHERE w.id = ANY (ARRAY(
    SELECT locked.id FROM worker_queue AS locked
    WHERE locked.instance_id = ANY (p_instance_ids)
    ORDER BY locked.id + 0 -- not in the order of the primary key: found by the instance, whatever the statistics say
    FOR UPDATE
  ));
  GET DIAGNOSTICS v_activities = ROW_COUNT;
  DELETE FROM orchestrator_queue AS q WHERE q.instance_id = ANY (p_instance_ids);
  GET DIAGNOSTICS out_queue_messages_deleted = ROW_COUNT;
  out_queue_messages_deleted := out_queue_messages_deleted + v_activities;
  DELETE FROM blocked_instances AS b WHERE b.instance_id = ANY (p_instance_ids);
  RETURN NEXT;
END
$$;

-- Deletes an instance that has ended, with all its descendants, so that its id is free. A part of dx_start_with_more.
--
-- Does nothing if it has not ended as p_which says, has a parent, has a descendant that has not ended, or has more than
-- 1,000 of them: a start of the id then finds it taken.
--
-- Bound: as dx_delete_instances, of 1,000 instances. Locks: the same.
CREATE OR REPLACE FUNCTION dx_delete_ended(
  p_instance_id text,
  p_which text                     -- Ended: however it has ended; Failed: only if it has failed or was cancelled
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_tree text[] := ARRAY[p_instance_id];
  v_children text[] := v_tree;
  v_deletion record;
BEGIN
  IF (
    SELECT i.parent_instance_id IS NULL AND (
      i.status IN ('Failed', 'Cancelled')
      -- Has ended, too, without a message that continues it.
      OR p_which = 'Ended' AND NOT EXISTS (SELECT FROM dx_running_instances(ARRAY[p_instance_id]))
    )
    FROM instances AS i WHERE i.instance_id = p_instance_id
  ) IS NOT TRUE THEN
    RETURN;
  END IF;
  LOOP
    WHILE v_children <> '{}' LOOP
      v_children := ARRAY(SELECT child.id FROM dx_children_of(v_children) AS child (id) WHERE child.id <> ALL (v_tree));
      v_tree := v_tree || v_children;
      IF cardinality(v_tree) > 1001 THEN
        RETURN;
      END IF;
    END LOOP;
    SELECT d.* INTO v_deletion FROM dx_delete_instances(v_tree, v_tree) AS d;
    -- A child that came meanwhile.
    EXIT WHEN v_deletion.out_child_left_behind IS NULL;
    v_children := v_tree;
  END LOOP;
END
$$;

-- Deletes a schedule and what is known of its runs. What they have started stays.
--
-- Returns whether there was one. Bound: one row and its runs. Locks: that row, then its runs.
CREATE OR REPLACE FUNCTION dx_delete_schedule(p_name text) RETURNS boolean LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
  DELETE FROM schedules AS s WHERE s.name = p_name;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  DELETE FROM schedule_runs AS r WHERE r.schedule_name = p_name;
  RETURN true;
END
$$;

-- Trigger: deletes the streams of deleted instances, for Duroxide, too.
CREATE OR REPLACE FUNCTION dx_delete_streams() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM dx_delete_streams_of(ARRAY(SELECT gone.instance_id FROM gone));
  RETURN NULL;
END
$$;

-- Deletes a discarded version and its batches.
--
-- Returns {_tag: Deleted}, also if it does not exist, or {_tag: VersionNotDiscarded, status}. Bound: the batches of the
-- version. Locks: the version, its batches.
CREATE OR REPLACE FUNCTION dx_delete_version(p_dataset_uuid uuid, p_version bigint) RETURNS jsonb
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
  v_status text;
BEGIN
  SELECT v.status INTO v_status FROM queue_dataset_versions AS v
  WHERE v.dataset_uuid = p_dataset_uuid AND v.dataset_version = p_version
  FOR UPDATE;
  IF v_status <> 'Discarded' THEN
    RETURN jsonb_build_object('_tag', 'VersionNotDiscarded', 'status', v_status);
  END IF;
  DELETE FROM queue_dataset_batches AS b
  WHERE b.dataset_uuid = p_dataset_uuid AND b.dataset_version = p_version;
  DELETE FROM queue_dataset_versions AS v
  WHERE v.dataset_uuid = p_dataset_uuid AND v.dataset_version = p_version;
  RETURN jsonb_build_object('_tag', 'Deleted');
END
$$;

-- Discards a version that is building or committed, unless it is the active one. Its tasks that have not ended are
-- cancelled.
--
-- Returns {_tag: Discarded}, {_tag: VersionNotFound} or {_tag: VersionIsActive}. Bound: the batches of the version.
-- Locks: the data set (shared), the version, its tasks. Waits for transactions that publish or commit batches of the
-- version.
CREATE OR REPLACE FUNCTION dx_discard_version(
  p_dataset_uuid uuid, p_version bigint, p_now_ms bigint DEFAULT NULL
) RETURNS jsonb LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
  v_active bigint;
BEGIN
  SELECT d.active_version INTO v_active FROM queue_datasets AS d
  WHERE d.dataset_uuid = p_dataset_uuid
  FOR SHARE;
  IF v_active = p_version THEN
    RETURN jsonb_build_object('_tag', 'VersionIsActive');
  END IF;

  UPDATE queue_dataset_versions AS v SET status = 'Discarded'
  WHERE v.dataset_uuid = p_dataset_uuid AND v.dataset_version = p_version;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('_tag', 'VersionNotFound');
  END IF;
  PERFORM dx_cancel_tasks(
    ARRAY(
      SELECT b.task_id::text FROM queue_dataset_batches AS b
      WHERE b.dataset_uuid = p_dataset_uuid AND b.dataset_version = p_version AND b.status = 'Buffered'
    ),
    'the version of its batch was discarded', true, p_now_ms
  );
  RETURN jsonb_build_object('_tag', 'Discarded');
END
$$;

-- Inserts messages in the given order. The instance need not exist and is not created; duplicates are allowed. The
-- trigger dx_route_message sets which processes take a message, and makes it wait for a start that is not due yet.
--
-- A message with bounds is refused if as many messages wait for its instance, or the current history has as many
-- events. Concurrent calls may exceed a bound by what they send.
--
-- Returns the positions of the messages that were refused, from 1. Bound: the rows given, and for those with bounds the
-- messages that wait for their instances. Locks: none.
CREATE OR REPLACE FUNCTION dx_enqueue_for_orchestrator(
  p_messages jsonb,                -- [{instance_id, work_item or text_at, visible_at_ms, delay_ms, most_waiting,
                                   --   most_events}]: visible at the later of both; null: no bound
  p_texts text[] DEFAULT NULL,     -- as in dx_store_turns
  p_now_ms bigint DEFAULT NULL
) RETURNS bigint[] LANGUAGE plpgsql
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
  v_refused bigint[] := '{}';
BEGIN
  IF p_messages @? '$[*].most_waiting' THEN
    v_refused := ARRAY(
      SELECT m.position
      FROM ROWS FROM (
        jsonb_to_recordset(p_messages) AS (instance_id text, most_waiting bigint, most_events bigint)
      ) WITH ORDINALITY AS m (instance_id, most_waiting, most_events, position)
      WHERE m.most_waiting IS NOT NULL
        AND (
          EXISTS (SELECT FROM orchestrator_queue AS q WHERE q.instance_id = m.instance_id OFFSET m.most_waiting - 1)
          OR m.most_events <= (
            SELECT max(h.event_id)
            FROM instances AS i
            JOIN history AS h ON h.instance_id = i.instance_id AND h.execution_id = i.current_execution_id
            WHERE i.instance_id = m.instance_id
          )
        )
    );
  END IF;
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
  SELECT
    m.instance_id, COALESCE(m.work_item, p_texts[m.text_at]),
    dx_time_of(greatest(m.visible_at_ms, v_now_ms + COALESCE(m.delay_ms, 0))),
    to_timestamp(v_now_ms::float8 / 1000)
  FROM ROWS FROM (
    jsonb_to_recordset(p_messages)
      AS (instance_id text, work_item text, text_at integer, visible_at_ms bigint, delay_ms bigint)
  ) WITH ORDINALITY AS m (instance_id, work_item, text_at, visible_at_ms, delay_ms, position)
  WHERE m.position <> ALL (v_refused)
  ORDER BY m.position;
  RETURN v_refused;
END
$$;

-- Inserts activities in the given order, visible at once. One with a limit waits for a slot of it.
--
-- Returns the number of activities. Bound: the rows given. Locks: none.
CREATE OR REPLACE FUNCTION dx_enqueue_for_worker(
  p_activities jsonb,              -- [{work_item or text_at, name, instance_id, execution_id, activity_id, session_id, tag,
                                   --   served_by, limit_key}]
  p_texts text[] DEFAULT NULL,     -- as in dx_store_turns
  p_now_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql
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
  v_no_tag text := dx_no_tag();
  v_limited text[] := ARRAY(SELECT l.name FROM limits AS l WHERE l.kind = 'activity');
  v_count bigint;
BEGIN
  INSERT INTO worker_queue (
    work_item, visible_at, created_at, instance_id, execution_id, activity_id, session_id, tag, route,
    limit_name, limit_key
  )
  SELECT
    COALESCE(w.work_item, p_texts[w.text_at]), CASE WHEN limited.name IS NULL THEN v_now ELSE 'infinity' END, v_now,
    w.instance_id, w.execution_id, w.activity_id, w.session_id,
    COALESCE(w.tag, CASE WHEN w.served_by IS NULL THEN v_no_tag END), w.name || COALESCE(' #' || w.tag, ''),
    limited.name, CASE WHEN limited.name IS NULL THEN w.limit_key ELSE COALESCE(w.limit_key, '') END
  FROM ROWS FROM (
    jsonb_to_recordset(p_activities) AS (
      work_item text, text_at integer, name text, instance_id text, execution_id bigint, activity_id bigint,
      session_id text, tag text, served_by text, limit_key text
    )
  ) WITH ORDINALITY
    AS w (
      work_item, text_at, name, instance_id, execution_id, activity_id, session_id, tag, served_by, limit_key, position
    )
  CROSS JOIN LATERAL (
    SELECT CASE WHEN w.served_by IS NULL AND w.name = ANY (v_limited) THEN w.name END AS name
  ) AS limited
  ORDER BY w.position;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  IF current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
    PERFORM dx_notify('worker_work', ARRAY[v_now]);
  END IF;
  RETURN v_count;
END
$$;

-- Sends a hint to those who wait for a topic of queues, outbox, tasks or schedules. src/waking/Topics.ts says what
-- topics there are. Equal hints of a transaction are one.
--
-- The caller leaves it out under `duroxide.quiet = on`. It fails no statement, as dx_notify.
CREATE OR REPLACE FUNCTION dx_hint(
  p_topic text,                    -- such as `o`
  p_at timestamptz DEFAULT NULL    -- when to look; null or past: now
) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  IF NOT dx_may_notify() THEN
    RETURN;
  END IF;
  PERFORM pg_notify(
    dx_channel('queues'),
    p_topic || CASE
      WHEN p_at > clock_timestamp() AND p_at < 'infinity' THEN ' @' || ceil(extract(epoch FROM p_at) * 1000)::bigint
      ELSE ''
    END
  );
END
$$;

-- Moves the ends of leases. A lease that ends at once is over, and its message can be delivered again.
--
-- Returns one outcome per receipt, in order: Done; Sooner if the message now becomes visible earlier than before;
-- Expired if the lease is unknown, has ended, or was moved before in the same call. Bound: the rows given. Locks:
-- messages by id.
CREATE OR REPLACE FUNCTION dx_extend_messages(
  p_ids bigint[], p_tokens text[],
  p_lease_ms bigint[],             -- from now on; 0 ends the lease
  p_uncounted boolean[],           -- whether the delivery does not count, since no receiver saw it
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
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
  v_outcomes text[] := array_fill('Expired'::text, ARRAY[cardinality(p_ids)]);
  v_ids bigint[] := '{}';
  v_at timestamptz;
  v_row record;
BEGIN
  FOR v_row IN
    SELECT item.position, item.lease_ms, item.uncounted, message.id, message.queue, message.visible_at
    FROM (
      SELECT a.*
      FROM unnest(p_ids, p_tokens, p_lease_ms, p_uncounted) WITH ORDINALITY
        AS a (id, token, lease_ms, uncounted, position)
      ORDER BY a.id, a.position
    ) AS item
    CROSS JOIN LATERAL (
      SELECT m.id, m.queue, m.visible_at FROM queue_messages AS m
      WHERE m.id = item.id AND m.lease_token = item.token AND m.visible_at > v_now
      FOR UPDATE
    ) AS message
  LOOP
    CONTINUE WHEN v_row.id = v_ids[cardinality(v_ids)];
    v_ids := v_ids || v_row.id;
    v_at := to_timestamp((v_now_ms + v_row.lease_ms)::float8 / 1000);
    UPDATE queue_messages AS m
    SET visible_at = v_at, lease_token = CASE WHEN v_row.lease_ms > 0 THEN m.lease_token END,
        attempts = m.attempts - CASE WHEN v_row.uncounted THEN 1 ELSE 0 END
    WHERE m.id = v_row.id;
    v_outcomes[v_row.position] := CASE WHEN v_at < v_row.visible_at THEN 'Sooner' ELSE 'Done' END;
    IF v_at < v_row.visible_at AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
      PERFORM dx_hint('m ' || v_row.queue, v_at);
    END IF;
  END LOOP;
  RETURN v_outcomes;
END
$$;

-- Ends attempts without a result: the task waits for its next attempt, with a row of the outbox that wakes it then, or
-- is dead.
--
-- Returns one outcome per item, in order: Retried, Dead, or Stale if the attempt is not the newest one, or the task has
-- ended; then nothing changes. A task is dead if delay_ms is null or its attempts are used up. An attempt that does not
-- count (given back) leaves the task as it was before.
-- Bound: the rows given. Locks: the tasks, by id; then as dx_free_task_slots.
CREATE OR REPLACE FUNCTION dx_fail_tasks(
  p_items jsonb,                   -- [{task_id, attempt, outcome, error, delay_ms, counts}]; counts defaults to true
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
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
  v_latest_ms CONSTANT bigint := 253402300799999; -- the end of the year 9999: clients read no later dates
  v_outcomes text[] := array_fill('Stale'::text, ARRAY[jsonb_array_length(p_items)]);
  v_limited CONSTANT text[] := dx_limited_tasks();
  v_announced uuid[] := '{}';
  v_freed text[] := '{}';
  v_run_at timestamptz;
  v_row record;
  v_previous uuid;
BEGIN
  FOR v_row IN
    SELECT
      item.position, item.attempt AS expected, item.outcome, item.error AS problem, item.delay_ms,
      COALESCE(item.counts, true) AS counts, task.*
    FROM (
      SELECT i.*
      FROM ROWS FROM (
        jsonb_to_recordset(p_items)
          AS (task_id uuid, attempt integer, outcome text, error text, delay_ms bigint, counts boolean)
      ) WITH ORDINALITY AS i (task_id, attempt, outcome, error, delay_ms, counts, position)
      ORDER BY i.task_id, i.position
    ) AS item
    CROSS JOIN LATERAL (
      SELECT
        t.id, t.name, t.has_slot, t.status, t.attempt, t.uncounted, t.max_attempts, t.worker_id, t.started_at, t.queue, t.wakeup,
        t.is_awaited OR t.reply_instance_id IS NOT NULL AS is_announced
      FROM queue_tasks AS t WHERE t.id = item.task_id
      FOR NO KEY UPDATE
    ) AS task
  LOOP
    CONTINUE WHEN v_row.attempt <> v_row.expected OR v_row.status <> 'Running' OR v_row.id = v_previous;
    v_previous := v_row.id;
    IF v_row.has_slot THEN
      v_freed := v_freed || v_row.name;
    END IF;
    INSERT INTO queue_task_attempts (task_id, attempt, worker_id, started_at, ended_at, outcome, error)
    VALUES (v_row.id, v_row.attempt, v_row.worker_id, v_row.started_at, v_now, v_row.outcome, v_row.problem)
    ON CONFLICT DO NOTHING;

    IF v_row.counts AND (v_row.delay_ms IS NULL OR v_row.attempt - v_row.uncounted >= v_row.max_attempts) THEN
      v_outcomes[v_row.position] := 'Dead';
      UPDATE queue_tasks AS t
      SET status = 'Dead', error = v_row.problem, worker_id = NULL, started_at = NULL, lease_until = NULL,
          heartbeat_at = NULL, look_at = NULL, has_slot = NULL, updated_at = v_now, dead_at = v_now
      WHERE t.id = v_row.id;
      IF v_row.is_announced THEN
        v_announced := v_announced || v_row.id;
      END IF;
      CONTINUE;
    END IF;

    v_outcomes[v_row.position] := 'Retried';
    v_run_at := to_timestamp(least(v_now_ms + COALESCE(v_row.delay_ms, 0), v_latest_ms - 86400000)::float8 / 1000);
    UPDATE queue_tasks AS t
    SET status = 'Pending', uncounted = t.uncounted + CASE WHEN v_row.counts THEN 0 ELSE 1 END,
        lost = CASE WHEN v_row.outcome = 'GivenBack' THEN t.lost ELSE 0 END,
        error = COALESCE(v_row.problem, t.error), run_at = v_run_at, worker_id = NULL, started_at = NULL,
        lease_until = NULL, heartbeat_at = NULL, look_at = v_run_at + interval '30 seconds',
        has_slot = CASE WHEN t.name = ANY (v_limited) THEN false END,
        limit_key = CASE WHEN t.name = ANY (v_limited) THEN COALESCE(t.limit_key, '') ELSE t.limit_key END,
        updated_at = v_now
    WHERE t.id = v_row.id;
    INSERT INTO queue_outbox (queue, payload, created_at, deliver_at)
    VALUES (v_row.queue, dx_wakeup_of(v_row.id, v_row.wakeup), v_now, v_run_at);
  END LOOP;

  IF v_announced <> '{}' THEN
    PERFORM dx_announce_task_ends(v_announced, v_now_ms);
  END IF;
  IF v_freed <> '{}' THEN
    PERFORM dx_free_task_slots(v_freed, p_now_ms);
  END IF;
  RETURN v_outcomes;
END
$$;

-- Returns the OrchestrationFailed event that ended a failed execution, or null if no event ended it.
--
-- It is the last event, except that one …CancelRequested event may follow for each activity that was open at that time.
--
-- Bound: the events after the failure, read backwards from the last. Locks: none.
CREATE OR REPLACE FUNCTION dx_failure_of(p_instance_id text, p_execution_id bigint) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
  RETURN (
    SELECT CASE WHEN ended.event_data ~ '"type": ?"OrchestrationFailed"' THEN ended.event_data END
    FROM (
      SELECT h.event_data FROM history AS h
      WHERE h.instance_id = p_instance_id
        AND h.execution_id = p_execution_id
        -- Quotes inside a payload are escaped, so this is the type of the event itself, in compact or spaced JSON.
        AND h.event_data !~ '"type": ?"[A-Za-z]+CancelRequested"'
      ORDER BY h.event_id DESC LIMIT 1
    ) AS ended
  );
END
$$;

-- Starts instances as dx_start_orchestrations does, some of them with more: at a time, in place of an ended instance of
-- the same id, or with a message. A part of dx_start_orchestrations.
--
-- Returns one outcome per start, in order, as dx_start_orchestrations. Of a start with a message: Started, and the
-- message is behind it; AlreadyExists, and the message is sent to the running instance; Full if that instance has too
-- many messages; Ended if the instance of this id has ended. The last two send nothing.
--
-- Bound: the starts given; for each instance that is deleted as dx_delete_ended; for messages as
-- dx_enqueue_for_orchestrator. Locks: those of dx_delete_ended by id, then those of dx_start_orchestrations. Two sets
-- with several starts that delete may wait for each other: PostgreSQL then fails one with 40P01.
CREATE OR REPLACE FUNCTION dx_start_with_more(
  p_starts jsonb,                  -- as in dx_start_orchestrations; some have more: {start_at_ms, replaces, message}
                                   --   replaces: Ended or Failed, as in dx_delete_ended; message: {work_item or
                                   --   text_at, most_waiting, most_events}
  p_turns jsonb,                   -- this and the following: as in dx_start_orchestrations
  p_history jsonb, p_key_values jsonb, p_worker_items jsonb, p_cancelled_activities jsonb, p_orchestrator_items jsonb,
  p_workers jsonb, p_texts text[], p_now_ms bigint
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_start jsonb;
  v_answers jsonb;
  v_messages jsonb;
  v_ended bigint[];
  v_full bigint[];
BEGIN
  FOR v_start IN
    SELECT start.value FROM jsonb_array_elements(p_starts) AS start (value)
    WHERE start.value #> '{more,replaces}' IS NOT NULL
    ORDER BY (start.value ->> 'instance_id') COLLATE "C"
  LOOP
    PERFORM dx_delete_ended(v_start ->> 'instance_id', v_start #>> '{more,replaces}');
  END LOOP;

  v_answers := dx_start_orchestrations(
    (
      SELECT jsonb_agg(
        CASE
          WHEN start.value #> '{more,start_at_ms}' IS NULL THEN start.value - 'more'
          ELSE start.value - 'more' || jsonb_build_object(
            'delay_ms', greatest((start.value #>> '{more,start_at_ms}')::bigint - p_now_ms, 0)
          )
        END
        ORDER BY start.position
      )
      FROM jsonb_array_elements(p_starts) WITH ORDINALITY AS start (value, position)
    ),
    p_turns, p_history, p_key_values, p_worker_items, p_cancelled_activities, p_orchestrator_items, p_workers, p_texts,
    p_now_ms
  );
  IF NOT p_starts @? '$[*].more.message' THEN
    RETURN v_answers;
  END IF;

  WITH sent AS (
    SELECT start.position, start.value ->> 'instance_id' AS instance_id, start.value #> '{more,message}' AS message,
      v_answers -> (start.position - 1)::integer <> '"AlreadyExists"' AS is_new
    FROM jsonb_array_elements(p_starts) WITH ORDINALITY AS start (value, position)
    WHERE start.value #> '{more,message}' IS NOT NULL
  ),
  running AS (
    SELECT id FROM dx_running_instances(ARRAY(SELECT sent.instance_id FROM sent WHERE NOT sent.is_new)) AS r (id)
  ),
  judged AS (
    SELECT sent.*, sent.is_new OR sent.instance_id IN (SELECT running.id FROM running) AS is_running FROM sent
  )
  SELECT
    jsonb_agg(
      jsonb_build_object('position', judged.position, 'instance_id', judged.instance_id)
        || CASE WHEN judged.is_new THEN judged.message - 'most_waiting' - 'most_events' ELSE judged.message END
      ORDER BY judged.position
    ) FILTER (WHERE judged.is_running),
    array_agg(judged.position) FILTER (WHERE NOT judged.is_running)
  INTO v_messages, v_ended FROM judged;
  IF v_messages IS NOT NULL THEN
    v_full := ARRAY(
      SELECT (v_messages -> (refused.index - 1)::integer ->> 'position')::bigint
      FROM unnest(dx_enqueue_for_orchestrator(v_messages, p_texts, p_now_ms)) AS refused (index)
    );
  END IF;
  RETURN (
    SELECT jsonb_agg(
      CASE
        WHEN answer.position = ANY (v_ended) THEN to_jsonb('Ended'::text)
        WHEN answer.position = ANY (v_full) THEN to_jsonb('Full'::text)
        ELSE answer.value
      END
      ORDER BY answer.position
    )
    FROM jsonb_array_elements(v_answers) WITH ORDINALITY AS answer (value, position)
  );
END
$$;

-- Creates one instance with its first turn in the common case: the turn is plain (dx_is_plain) and not the last one.
-- Called by dx_start_orchestrations, which does the same for sets and for all else, at 1.6 times the cost (0.8 instead
-- of 0.5 ms of the server's time on a busy machine).
--
-- Returns its answer, {_tag: Begun, …}. Null: the caller has to do it, and nothing is stored.
-- Bound: as dx_start_orchestrations. Locks: the same.
CREATE OR REPLACE FUNCTION dx_start_with_plain_turn(
  p_start jsonb,                   -- as in dx_start_orchestrations, with appends
  p_turn jsonb,                    -- the same
  p_history jsonb,                 -- this and the following: the same, of this turn
  p_worker_items jsonb, p_workers jsonb, p_texts text[], p_now_ms bigint
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_id CONSTANT text := p_start ->> 'instance_id';
  v_is_taken boolean;
  v_has_limits boolean;            -- whether there is any limit of activities
  v_limit text;                    -- name of the orchestration's limit; null without one
  v_admitted boolean[];
BEGIN
  IF (p_turn ->> 'execution_id')::bigint IS DISTINCT FROM 1
    OR NOT dx_is_plain(p_turn, p_worker_items)
    OR p_turn ->> 'status' <> 'Running'
    OR p_turn ->> 'output' IS NOT NULL
    OR p_turn ->> 'text_at' IS NOT NULL
    OR p_turn ->> 'orchestration_name' IS NULL
    OR p_turn ->> 'orchestration_version' IS NULL
    OR p_turn ->> 'major' IS NULL
    OR COALESCE((p_start ->> 'delay_ms')::bigint, 0) <> 0
    OR dx_is_clock_off((p_turn ->> 'clock_ms')::bigint, p_now_ms)
    OR NOT pg_try_advisory_xact_lock(hashtext(v_id))
  THEN
    RETURN NULL;
  END IF;

  -- This sees everything that was committed before we took the advisory lock.
  SELECT
    (SELECT i.instance_id FROM instances AS i WHERE i.instance_id = v_id) IS NOT NULL
      OR (SELECT e.status FROM executions AS e WHERE e.instance_id = v_id LIMIT 1) IS NOT NULL
      OR (SELECT l.instance_id FROM instance_locks AS l WHERE l.instance_id = v_id) IS NOT NULL
      OR (SELECT q.id FROM orchestrator_queue AS q WHERE q.instance_id = v_id LIMIT 1) IS NOT NULL
      OR (SELECT h.event_id FROM history AS h WHERE h.instance_id = v_id LIMIT 1) IS NOT NULL,
    p_worker_items IS NOT NULL AND (SELECT l.name FROM limits AS l WHERE l.kind = 'activity' LIMIT 1) IS NOT NULL,
    (SELECT l.name FROM limits AS l WHERE l.kind = 'orchestration' AND l.name = p_start ->> 'orchestration_name')
  INTO v_is_taken, v_has_limits, v_limit;
  IF v_is_taken THEN
    RETURN NULL;
  END IF;
  IF v_limit IS NOT NULL THEN
    v_admitted := dx_admit_at_once('orchestration', ARRAY[v_limit], ARRAY[p_start ->> 'limit_key'], p_now_ms);
    IF v_admitted[1] IS FALSE THEN
      RETURN NULL;
    END IF;
  END IF;

  INSERT INTO instances (
    instance_id, orchestration_name, orchestration_version, current_execution_id, created_at, updated_at, route,
    limit_name, limit_key
  )
  VALUES (
    v_id, p_turn ->> 'orchestration_name', p_turn ->> 'orchestration_version', 1, v_now, v_now,
    dx_route(
      (p_turn ->> 'major')::integer, (p_turn ->> 'minor')::integer, (p_turn ->> 'patch')::integer,
      p_turn ->> 'orchestration_name', p_turn ->> 'orchestration_version', false
    ),
    v_limit, COALESCE(p_start ->> 'limit_key', CASE WHEN v_limit IS NOT NULL THEN '' END)
  )
  ON CONFLICT (instance_id) DO NOTHING;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  INSERT INTO executions (
    instance_id, execution_id, status, started_at, duroxide_version_major, duroxide_version_minor,
    duroxide_version_patch
  )
  VALUES (
    v_id, 1, 'Running', v_now, (p_turn ->> 'major')::integer, (p_turn ->> 'minor')::integer,
    (p_turn ->> 'patch')::integer
  )
  ON CONFLICT (instance_id, execution_id) DO NOTHING;
  RETURN jsonb_build_object(
    '_tag', 'Begun', 'nowMs', p_now_ms, 'handedOver', dx_store_plain_turn(
      p_turn, v_id, 1, p_history, p_worker_items, p_workers, p_texts, v_has_limits, p_now_ms
    )
  );
END
$$;

-- Returns the instances that starts create, with what their first turns say of them.
-- Bound: the starts given. Locks: none.
CREATE OR REPLACE FUNCTION dx_instances_of_starts(
  p_starts dx_start[],
  p_turns dx_turn[]                -- by the same positions; without an execution: the start is stored without it
) RETURNS dx_instance[] LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  RETURN (
    SELECT array_agg(
      ROW(
        start.instance_id,
        CASE WHEN says.names THEN (first.turn).orchestration_name ELSE start.orchestration_name END,
        CASE WHEN says.names THEN (first.turn).orchestration_version END,
        CASE WHEN says.names THEN (first.turn).parent_instance_id END, (first.turn).custom_status,
        COALESCE((first.turn).sets_custom_status, false)::integer, COALESCE((first.turn).status, 'Running'),
        CASE WHEN (first.turn).status IS NOT NULL THEN (first.turn).output END,
        CASE WHEN (first.turn).status IS NOT NULL THEN (first.turn).text_at END,
        CASE WHEN says.pins THEN (first.turn).major ELSE start.major END,
        CASE WHEN says.pins THEN (first.turn).minor ELSE start.minor END,
        CASE WHEN says.pins THEN (first.turn).patch ELSE start.patch END,
        COALESCE(
          CASE WHEN says.continues THEN (first.turn).next_version END,
          CASE
            WHEN says.names THEN (first.turn).orchestration_version
            -- As after an ack that says any of this: the row has no version, so every one serves the instance.
            WHEN says.pins OR says.continues OR (first.turn).orchestration_name IS NOT NULL THEN NULL
            ELSE start.orchestration_version
          END
        ),
        says.continues AND (first.turn).next_version IS NULL, start.ordinality, false, start.attributes,
        -- What Duroxide runs has no limit.
        CASE
          WHEN start.major > 0 THEN (
            SELECT l.name FROM limits AS l WHERE l.kind = 'orchestration' AND l.name = start.orchestration_name
          )
        END,
        start.limit_key
      )::dx_instance
      ORDER BY start.ordinality
    )
    FROM unnest(p_starts) WITH ORDINALITY AS start
    -- OFFSET 0: each turn is looked up once.
    CROSS JOIN LATERAL (
      SELECT CASE WHEN p_turns[start.ordinality].execution_id IS NOT NULL THEN p_turns[start.ordinality] END AS turn
      OFFSET 0
    ) AS first
    CROSS JOIN LATERAL (
      SELECT
        (first.turn).orchestration_name IS NOT NULL AND (first.turn).orchestration_version IS NOT NULL AS names,
        (first.turn).major IS NOT NULL AS pins,
        (first.turn).status IS NOT DISTINCT FROM 'ContinuedAsNew' AS continues
    ) AS says
  );
END
$$;

-- Stores the messages of starts that are stored without their first turn, and makes earlier messages of their instances
-- arrive with them. A part of dx_start_orchestrations.
--
-- Bound: the starts given, and the queued messages of their ids. Locks: earlier messages (skip locked).
CREATE OR REPLACE FUNCTION dx_store_starts(
  p_starts dx_start[],
  p_started bigint[],              -- positions of those whose instances were created
  p_turns dx_turn[],               -- by position; without an execution: the start is stored without it
  p_texts text[],                  -- as in dx_store_turns
  p_now_ms bigint
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
BEGIN
  INSERT INTO orchestrator_queue (id, instance_id, work_item, visible_at, created_at, route)
  SELECT
    -- The start must be in the first batch, however many messages wait.
    nextval('orchestrator_queue_id_seq') * CASE
      WHEN s.delay_ms > 0 THEN 1
      WHEN (
        SELECT q.id FROM orchestrator_queue AS q
        WHERE q.instance_id = s.instance_id AND q.due_at <= v_now
        LIMIT 1
      ) IS NULL THEN 1
      ELSE -1
    END,
    s.instance_id, COALESCE(s.work_item, p_texts[s.text_at]),
    dx_time_of(p_now_ms + greatest(s.delay_ms, 0)), v_now,
    (SELECT i.route FROM instances AS i WHERE i.instance_id = s.instance_id)
  FROM (
    SELECT start.* FROM unnest(p_starts) WITH ORDINALITY AS start
    WHERE start.ordinality = ANY (p_started) AND p_turns[start.ordinality].execution_id IS NULL
    ORDER BY start.ordinality
  ) AS s;

  PERFORM dx_route_earlier_messages(
    array_agg(start.instance_id), array_agg(dx_time_of(p_now_ms + greatest(start.delay_ms, 0))), v_now
  )
  FROM unnest(p_starts) WITH ORDINALITY AS start
  WHERE start.ordinality = ANY (p_started) AND p_turns[start.ordinality].execution_id IS NULL;

  IF current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
    PERFORM dx_notify(
      'orch_work',
      ARRAY(
        SELECT dx_time_of(p_now_ms + COALESCE(start.delay_ms, 0))
        FROM unnest(p_starts) WITH ORDINALITY AS start
        WHERE start.ordinality = ANY (p_started) AND p_turns[start.ordinality].execution_id IS NULL
      )
    );
  END IF;
END
$$;

-- Creates instances whose id is free, each with execution 1 (Running, pinned) and its start message, or with its first
-- turn.
--
-- Returns one outcome per start, in order: Started; {_tag: Begun, nowMs, handedOver: [{index, lockToken}]} if the first
-- turn was stored instead of the message; {_tag: Started, nowMs} if its clock_ms differs from nowMs by more than 2
-- seconds, and so the start was stored without it; or AlreadyExists if the id has a row in instances or executions or a
-- queued start (of two starts of one id, the second); of starts with more, also Ended or Full. Of concurrent starts of
-- one id exactly one creates it. A first turn is stored if its limit, if it has one, has a slot at once
-- (dx_admit_at_once), and nothing else is stored under the id, no message, lock or event, and no other transaction
-- claims or deletes it. Otherwise its start is stored as one without a first turn.
--
-- A start with a limit that has no slot waits for one; dx_admit_instances gives it. Messages that arrived before the
-- start become claimable with it, not earlier.
--
-- Bound: the starts given, and the queued messages of their ids; for first turns as dx_store_turns; with more as
-- dx_start_with_more.
-- Locks: advisory locks of ids with a first turn (try); instances by id (the new ones, children of first turns
-- included), then their executions, then earlier messages (skip locked); for first turns then as dx_store_turns. A
-- start waits only for another start, a first turn or a deletion of the same id. If lock_timeout ends that wait, all
-- starts of the call fail with 55P03.
CREATE OR REPLACE FUNCTION dx_start_orchestrations(
  p_starts jsonb,                  -- [{fields of dx_start, without a parent; more, as in dx_start_with_more}]
  p_turns jsonb DEFAULT NULL,      -- first turns, with fields of dx_turn: one for each start, {} for one without; null
                                   --   if none has one
  p_history jsonb DEFAULT NULL,    -- this and the following: as in dx_store_turns, of the first turns
  p_key_values jsonb DEFAULT NULL, p_worker_items jsonb DEFAULT NULL,
  p_cancelled_activities jsonb DEFAULT NULL, p_orchestrator_items jsonb DEFAULT NULL,
  p_workers jsonb DEFAULT NULL, p_texts text[] DEFAULT NULL, p_now_ms bigint DEFAULT NULL
) RETURNS jsonb LANGUAGE plpgsql
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
  v_count integer := jsonb_array_length(p_starts);
  v_starts dx_start[];
  -- The first turns, by position of the start; without an execution where the start is stored without it.
  v_turns dx_turn[];
  v_instances dx_instance[];
  v_has_limits boolean;            -- whether any orchestration has limits
  v_places bigint[];               -- of those that wait for a limit
  v_given_before CONSTANT text := COALESCE(current_setting('duroxide.given_at_once', true), '');
  v_created bigint[];
  v_started bigint[];
  v_children text[];
  v_position bigint;
  v_gone text[];
  v_first_turns bigint;
  v_handed_over jsonb;
  v_answer jsonb;
BEGIN
  IF v_count = 1
    AND p_turns IS NOT NULL
    AND num_nonnulls(p_key_values, p_cancelled_activities, p_orchestrator_items) = 0
  THEN
    v_answer := dx_start_with_plain_turn(
      p_starts -> 0, p_turns -> 0, p_history, p_worker_items, p_workers, p_texts, v_now_ms
    );
    IF v_answer IS NOT NULL THEN
      RETURN jsonb_build_array(v_answer);
    END IF;
  END IF;

  IF p_starts @? '$[*].more' THEN
    RETURN dx_start_with_more(
      p_starts, p_turns, p_history, p_key_values, p_worker_items, p_cancelled_activities, p_orchestrator_items,
      p_workers, p_texts, v_now_ms
    );
  END IF;

  SELECT
    ARRAY(SELECT start FROM jsonb_populate_recordset(NULL::dx_start, p_starts) AS start),
    (SELECT l.name FROM limits AS l WHERE l.kind = 'orchestration' LIMIT 1) IS NOT NULL
  INTO v_starts, v_has_limits;
  IF p_turns IS NOT NULL THEN
    v_turns := dx_check_first_turns(
      ARRAY(SELECT turn FROM jsonb_populate_recordset(NULL::dx_turn, p_turns) AS turn),
      v_starts, p_history, v_now_ms
    );
  END IF;

  -- The children of first turns with the starts, because all are inserted in one order.
  LOOP
    v_instances := dx_instances_of_starts(v_starts, v_turns) || dx_instances_of_children(v_turns, p_orchestrator_items);
    EXIT WHEN NOT v_has_limits;
    PERFORM set_config('duroxide.given_at_once', v_given_before, true); -- the last pass gave none
    v_places := dx_park_instances(
      v_instances,
      ARRAY(
        SELECT greatest(COALESCE(start.delay_ms, 0), 0) FROM unnest(v_starts) WITH ORDINALITY AS start
        ORDER BY start.ordinality
      ),
      v_now_ms
    );
    -- Without a slot no first turn; nor are its children created then.
    FOR v_position IN
      SELECT turn.ordinality FROM unnest(v_turns) WITH ORDINALITY AS turn
      WHERE turn.execution_id IS NOT NULL AND v_places[turn.ordinality] > 0
    LOOP
      v_turns[v_position].execution_id := NULL;
    END LOOP;
    EXIT WHEN NOT FOUND;
  END LOOP;
  v_created := dx_create_instances(v_instances, p_texts, v_now, v_places);
  SELECT
    array_agg(instance.turn) FILTER (WHERE NOT instance.is_child),
    array_agg(instance.instance_id) FILTER (WHERE instance.is_child),
    count(v_turns[instance.turn].execution_id) FILTER (WHERE NOT instance.is_child)
  INTO v_started, v_children, v_first_turns
  FROM unnest(v_instances) WITH ORDINALITY AS instance WHERE instance.ordinality = ANY (v_created);
  IF v_turns IS NOT NULL AND COALESCE(cardinality(v_started), 0) < v_count THEN
    FOR v_position IN
      SELECT turn.ordinality FROM unnest(v_turns) WITH ORDINALITY AS turn
      WHERE turn.execution_id IS NOT NULL AND (turn.ordinality = ANY (v_started)) IS NOT TRUE
    LOOP
      v_turns[v_position].execution_id := NULL;
    END LOOP;
    IF FOUND AND v_children IS NOT NULL THEN
      -- Their parents were started by a transaction that we waited for.
      v_gone := ARRAY(
        SELECT child.instance_id FROM unnest(v_instances) WITH ORDINALITY AS child
        WHERE child.is_child
          AND child.ordinality = ANY (v_created)
          AND v_turns[child.turn].execution_id IS NULL
      );
      DELETE FROM attributes AS a WHERE a.instance_id = ANY (v_gone);
      DELETE FROM executions AS e WHERE e.instance_id = ANY (v_gone);
      DELETE FROM instances AS i WHERE i.instance_id = ANY (v_gone);
      v_children := ARRAY(
        SELECT child.instance_id FROM unnest(v_children) AS child (instance_id)
        WHERE child.instance_id <> ALL (v_gone)
      );
    END IF;
  END IF;
  IF v_started IS NULL THEN
    RETURN to_jsonb(array_fill('AlreadyExists'::text, ARRAY[v_count]));
  END IF;

  IF v_first_turns < v_count THEN
    PERFORM dx_store_starts(v_starts, v_started, v_turns, p_texts, v_now_ms);
  END IF;
  IF v_first_turns > 0 THEN
    v_handed_over := dx_store_turns(
      v_turns, COALESCE(v_children, '{}'), p_history, p_key_values, p_worker_items, p_cancelled_activities,
      p_orchestrator_items, p_workers, p_texts, v_now_ms
    );
  END IF;

  RETURN (
    SELECT jsonb_agg(
      CASE
        WHEN v_turns[start.position].execution_id IS NOT NULL THEN jsonb_build_object(
          '_tag', 'Begun', 'nowMs', v_now_ms,
          'handedOver', COALESCE(v_handed_over -> start.position::text, '[]')
        )
        WHEN start.position <> ALL (v_started) THEN to_jsonb('AlreadyExists'::text)
        WHEN dx_is_clock_off(v_turns[start.position].clock_ms, v_now_ms)
          THEN jsonb_build_object('_tag', 'Started', 'nowMs', v_now_ms)
        ELSE to_jsonb('Started'::text)
      END
      ORDER BY start.position
    )
    FROM generate_series(1, v_count) AS start (position)
  );
END
$$;

-- Settles occurrences of schedules: starts what they start, notes what they have started, and when the next is due, all
-- or nothing for each schedule. A schedule that has changed since it was claimed stays as it is and starts nothing: so
-- an occurrence fires once, however many schedulers have found it due.
--
-- Returns the positions of the schedules that were settled, from 1.
-- Bound: what is given, and 100 older runs of each schedule. Locks: the schedules, by name; then those of
-- dx_cancel_tasks, dx_create_tasks, dx_start_orchestrations and dx_enqueue_for_orchestrator.
CREATE OR REPLACE FUNCTION dx_fire_schedules(
  p_fires jsonb,                   -- [{name, revision, fired_until_ms, next_ms, look_ms, queued, requests, run_count,
                                   --   last}]; last is the number of the run that is its last one from now on, null: as
                                   --   it was
  p_runs jsonb,                    -- this and the following name their schedule by its position, as fire:
                                   --   [{fire, number, kind, occurrence_ms, missed_since_ms, outcome, note,
                                   --   instance_id, task}]; task is a position in p_tasks
  p_starts jsonb,                  -- [{fire, fields of dx_start}]
  p_tasks jsonb,                   -- [{fire, as for dx_create_tasks}]
  p_messages jsonb,                -- [{fire, as for dx_enqueue_for_orchestrator}]
  p_cancels jsonb,                 -- [{fire, task_id, reason}]
  p_texts text[],                  -- as in dx_store_turns
  p_now_ms bigint DEFAULT NULL
) RETURNS bigint[] LANGUAGE plpgsql
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
  v_now timestamptz := dx_time_of(v_now_ms);
  v_kept_runs CONSTANT integer := 100;
  v_won bigint[] := '{}';
  v_fire record;
  v_cancel record;
  v_items jsonb;
  v_positions bigint[];
  v_ids text[];
BEGIN
  FOR v_fire IN
    SELECT f.*
    FROM ROWS FROM (
      jsonb_to_recordset(p_fires) AS (
        name text, revision bigint, fired_until_ms bigint, next_ms bigint, look_ms bigint, queued jsonb, requests jsonb,
        run_count bigint
      )
    ) WITH ORDINALITY AS f (
      name, revision, fired_until_ms, next_ms, look_ms, queued, requests, run_count, position
    )
    ORDER BY f.name COLLATE "C"
  LOOP
    UPDATE schedules AS s
    SET revision = s.revision + 1, fired_until = dx_time_of(v_fire.fired_until_ms),
        next_at = to_timestamp(v_fire.next_ms::float8 / 1000), look_at = to_timestamp(v_fire.look_ms::float8 / 1000),
        queued = v_fire.queued, requests = v_fire.requests, run_count = v_fire.run_count
    WHERE s.name = v_fire.name AND s.revision = v_fire.revision;
    IF FOUND THEN
      v_won := v_won || v_fire.position;
    END IF;
  END LOOP;
  IF v_won = '{}' THEN
    RETURN v_won;
  END IF;

  FOR v_cancel IN
    SELECT array_agg(c.task_id) AS ids, c.reason
    FROM jsonb_to_recordset(p_cancels) AS c (fire bigint, task_id text, reason text)
    WHERE c.fire = ANY (v_won)
    GROUP BY c.reason
    ORDER BY min(c.task_id)
  LOOP
    PERFORM dx_cancel_tasks(v_cancel.ids, v_cancel.reason, true, v_now_ms);
  END LOOP;

  SELECT jsonb_agg(t.task ORDER BY t.position), array_agg(t.position ORDER BY t.position) INTO v_items, v_positions
  FROM jsonb_array_elements(p_tasks) WITH ORDINALITY AS t (task, position)
  WHERE (t.task ->> 'fire')::bigint = ANY (v_won);
  IF v_items IS NOT NULL THEN
    v_ids := ARRAY(
      SELECT task.out_id FROM ROWS FROM (dx_create_tasks(v_items, p_now_ms => v_now_ms))
        WITH ORDINALITY AS task (out_id, out_is_new, position)
      ORDER BY task.position
    );
  END IF;

  v_items := (
    SELECT jsonb_agg(s.start ORDER BY s.position)
    FROM jsonb_array_elements(p_starts) WITH ORDINALITY AS s (start, position)
    WHERE (s.start ->> 'fire')::bigint = ANY (v_won)
  );
  IF v_items IS NOT NULL THEN
    PERFORM dx_start_orchestrations(v_items, p_texts => p_texts, p_now_ms => v_now_ms);
  END IF;

  v_items := (
    SELECT jsonb_agg(m.message ORDER BY m.position)
    FROM jsonb_array_elements(p_messages) WITH ORDINALITY AS m (message, position)
    WHERE (m.message ->> 'fire')::bigint = ANY (v_won)
  );
  IF v_items IS NOT NULL THEN
    PERFORM dx_enqueue_for_orchestrator(v_items, p_texts, v_now_ms);
  END IF;

  INSERT INTO schedule_runs AS r (
    schedule_name, number, kind, occurrence_at, missed_since, outcome, note, instance_id, task_id, settled_at
  )
  SELECT
    p_fires -> (run.fire - 1)::integer ->> 'name', run.number, run.kind, dx_time_of(run.occurrence_ms),
    to_timestamp(run.missed_since_ms::float8 / 1000), run.outcome, run.note, run.instance_id,
    v_ids[array_position(v_positions, run.task)]::uuid, v_now
  FROM jsonb_to_recordset(p_runs) AS run (
    fire bigint, number bigint, kind text, occurrence_ms bigint, missed_since_ms bigint, outcome text, note text,
    instance_id text, task bigint
  )
  WHERE run.fire = ANY (v_won)
  ON CONFLICT (schedule_name, number) DO UPDATE
  SET outcome = EXCLUDED.outcome, note = EXCLUDED.note, instance_id = EXCLUDED.instance_id, task_id = EXCLUDED.task_id,
      settled_at = EXCLUDED.settled_at;

  FOR v_fire IN
    SELECT f.name, f.run_count, f.last
    FROM unnest(v_won) AS won (position)
    CROSS JOIN LATERAL jsonb_to_record(p_fires -> (won.position - 1)::integer)
      AS f (name text, run_count bigint, last bigint)
  LOOP
    IF v_fire.last IS NOT NULL THEN
      UPDATE schedules AS s
      SET (last_instance_id, last_task_id) = (
        SELECT r.instance_id, r.task_id FROM schedule_runs AS r
        WHERE r.schedule_name = v_fire.name AND r.number = v_fire.last
      )
      WHERE s.name = v_fire.name;
    END IF;
    DELETE FROM schedule_runs AS r
    WHERE r.schedule_name = v_fire.name AND r.number <= v_fire.run_count - v_kept_runs;
  END LOOP;
  RETURN v_won;
END
$$;

-- Creates a running instance with a history, which continues from its last event. Its execution has the number that it
-- had in the instance it was made from.
--
-- Returns whether the id was free: no execution, event, value, lock or message is stored under it. Bound: the events
-- and values given. Locks: the new instance.
CREATE OR REPLACE FUNCTION dx_fork_instance(
  p_instance_id text,
  p_of text,                       -- the instance it is made from
  p_orchestration_name text,
  p_orchestration_version text,
  p_execution_id bigint,
  p_major integer,                 -- pinned version
  p_minor integer,
  p_patch integer,
  p_history jsonb,                 -- [{event_id, event_type, event_data}]
  p_custom_status text,            -- that of these events
  p_stored jsonb,                  -- as in dx_cut_history, not null
  p_changed jsonb,
  p_messages text[],
  p_attributes jsonb,              -- as in dx_cut_history
  p_now_ms bigint DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql
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
BEGIN
  IF EXISTS (SELECT FROM executions AS e WHERE e.instance_id = p_instance_id)
    OR EXISTS (SELECT FROM history AS h WHERE h.instance_id = p_instance_id)
    OR EXISTS (SELECT FROM instance_locks AS l WHERE l.instance_id = p_instance_id)
    OR EXISTS (SELECT FROM orchestrator_queue AS q WHERE q.instance_id = p_instance_id)
    OR EXISTS (SELECT FROM kv_store AS s WHERE s.instance_id = p_instance_id)
    OR EXISTS (SELECT FROM kv_delta AS d WHERE d.instance_id = p_instance_id)
  THEN
    RETURN false;
  END IF;
  INSERT INTO instances (
    instance_id, orchestration_name, orchestration_version, current_execution_id, created_at, updated_at,
    custom_status, custom_status_version, route, limit_name, limit_key
  )
  VALUES (
    p_instance_id, p_orchestration_name, p_orchestration_version, p_execution_id, v_now, v_now,
    p_custom_status, (p_custom_status IS NOT NULL)::integer,
    dx_route(p_major, p_minor, p_patch, p_orchestration_name, p_orchestration_version, false),
    -- It does not wait for a slot, and counts.
    (SELECT l.name FROM limits AS l WHERE l.kind = 'orchestration' AND l.name = p_orchestration_name),
    COALESCE((SELECT i.limit_key FROM instances AS i WHERE i.instance_id = p_of), '')
  )
  ON CONFLICT (instance_id) DO NOTHING;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  INSERT INTO executions (
    instance_id, execution_id, status, started_at, duroxide_version_major, duroxide_version_minor,
    duroxide_version_patch
  )
  VALUES (
    p_instance_id, p_execution_id, 'Running', v_now, p_major, p_minor, p_patch
  );
  INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
  SELECT p_instance_id, p_execution_id, e.event_id, e.event_type, e.event_data, v_now
  FROM jsonb_to_recordset(p_history) AS e (event_id bigint, event_type text, event_data text);
  INSERT INTO kv_store (instance_id, key, value, execution_id, last_updated_at_ms)
  SELECT p_instance_id, v.key, v.value, v.execution_id, v.last_updated_at_ms
  FROM jsonb_to_recordset(p_stored) AS v (key text, value text, execution_id bigint, last_updated_at_ms bigint);
  INSERT INTO kv_delta (instance_id, key, value, last_updated_at_ms)
  SELECT p_instance_id, v.key, v.value, v.last_updated_at_ms
  FROM jsonb_to_recordset(p_changed) AS v (key text, value text, last_updated_at_ms bigint);
  DELETE FROM attributes AS a WHERE a.instance_id = p_instance_id; -- of an instance that Duroxide has deleted
  INSERT INTO attributes (instance_id, name, text_value, number_value, time_value, created_at)
  SELECT
    p_instance_id, attribute.name, attribute.text, attribute.number,
    to_timestamp(attribute.time_ms::float8 / 1000), v_now
  FROM jsonb_to_recordset(p_attributes)
    AS attribute (name text, text text, number double precision, time_ms bigint);
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
  SELECT p_instance_id, m.work_item, v_now, v_now
  FROM unnest(p_messages) WITH ORDINALITY AS m (work_item, position)
  ORDER BY m.position;
  RETURN true;
END
$$;

-- Takes instances away from the processes that run them, so that a tree can be deleted in several transactions.
--
-- Returns one row. out_still_running is an id of p_must_have_ended that has not ended; then nothing was held. Otherwise
-- out_children has the ids of all children. Each given instance that has not ended gets a lock that no process holds:
-- until it expires no claim takes the instance, and a turn under way has lost its lock.
--
-- A tree is held from the root down and then deleted from the leaves up, in slices. Invariant: a parent takes no turn
-- between the moment it is held and its deletion. So out_children, read after that moment, is complete for good, and
-- the parent does not notice that children disappear. An instance that has ended takes no turn anyway. The invariant
-- guarantees that a deletion finishes. That no child is left without its parent does not depend on it:
-- dx_delete_instances looks for children in the transaction that deletes. If a deletion stops half way, the root still
-- exists and can be deleted again; instances that were not deleted continue when the lock expires.
--
-- Bound: the ids given, their children, and the queued starts of all children.
-- Locks: advisory locks of all ids by key (waits for claims); instance locks by id (waits for turns that are being
-- stored).
CREATE OR REPLACE FUNCTION dx_hold_instances(
  p_instance_ids text[],           -- some thousands at most: each takes a place in the server's table of locks
  p_must_have_ended text[],        -- a part of p_instance_ids
  p_for_ms bigint,                 -- milliseconds, > 0
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (out_still_running text, out_children text[]) LANGUAGE plpgsql
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
  v_secret text := gen_random_uuid()::text;
  v_running text[];
BEGIN
  -- In the order of the keys, which two ids may share.
  PERFORM pg_advisory_xact_lock(instance.key)
  FROM (
    SELECT DISTINCT hashtext(id) AS key FROM unnest(p_instance_ids) AS given (id)
    ORDER BY key
  ) AS instance;

  SELECT array_agg(running.id) INTO v_running FROM dx_running_instances(p_instance_ids) AS running (id);

  SELECT running.id INTO out_still_running FROM unnest(v_running) AS running (id)
  WHERE running.id = ANY (p_must_have_ended)
  LIMIT 1;
  IF out_still_running IS NOT NULL THEN
    RETURN NEXT;
    RETURN;
  END IF;

  INSERT INTO instance_locks AS l (instance_id, lock_token, locked_until, locked_at)
  SELECT DISTINCT running.id COLLATE "C", v_secret, v_now_ms + p_for_ms, v_now_ms
  FROM unnest(v_running) AS running (id)
  ORDER BY 1
  ON CONFLICT (instance_id) DO UPDATE
  SET lock_token = excluded.lock_token, locked_until = excluded.locked_until, locked_at = excluded.locked_at
  -- What an operator has paused is held already, and stays paused if the deletion stops.
  WHERE l.lock_token <> '' OR l.locked_until < dx_no_end();

  SELECT COALESCE(array_agg(child.id), '{}') INTO out_children
  FROM dx_children_of(p_instance_ids) AS child (id);
  RETURN NEXT;
END
$$;

-- Returns the first instances with an attribute that is equal to a value or in a range, created between two times and
-- behind a position, in the order of their creation; unordered where fewer than p_most_sorted are in the range.
--
-- An index has the instances with a value in their order. Those in a range are all returned while there are at most
-- p_most_sorted. Of a wider range, those are returned that have the attribute, whatever its value is: the caller
-- compares it, and continues behind the last one.
--
-- Bound: the rows returned, and those of instances that Duroxide has deleted; for a range also p_most_sorted. Locks:
-- none.
CREATE OR REPLACE FUNCTION dx_instances_of_attribute(
  p_name text,
  p_kind text,                     -- text, number or time. The values of a time are milliseconds since the Unix epoch
  p_equals text,                   -- null: a range
  p_from text, p_below text,       -- null: without this end
  p_created_from timestamptz, p_created_before timestamptz, -- null: any
  p_after_at timestamptz, p_after_id text, -- the position; null: the beginning
  p_newest boolean,                -- whether the order begins with the newest
  p_most_sorted bigint, p_limit bigint
) RETURNS SETOF instances LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
  v_column CONSTANT text := 'a.' || p_kind || '_value';
  v_value CONSTANT text := CASE p_kind
    WHEN 'text' THEN '%s'
    WHEN 'number' THEN '%s::float8'
    WHEN 'time' THEN 'to_timestamp(%s::float8 / 1000)'
  END;
  -- Duroxide leaves the attributes of instances that it deletes; a later instance of the id was created later.
  v_of_name CONSTANT text := '
    SELECT i.*
    FROM attributes AS a
    CROSS JOIN LATERAL (
      SELECT i.* FROM instances AS i WHERE i.instance_id = a.instance_id AND i.created_at = a.created_at OFFSET 0
    ) AS i
    WHERE a.name = $1';
  v_bounds CONSTANT text := concat(
    CASE WHEN p_created_from IS NOT NULL THEN ' AND a.created_at >= $4' END,
    CASE WHEN p_created_before IS NOT NULL THEN ' AND a.created_at < $5' END,
    CASE
      WHEN p_after_id IS NULL THEN NULL
      WHEN p_newest THEN ' AND (a.created_at, a.instance_id) < ($6, $7)'
      ELSE ' AND (a.created_at, a.instance_id) > ($6, $7)'
    END
  );
  v_order CONSTANT text := CASE
    WHEN p_newest THEN ' ORDER BY a.created_at DESC, a.instance_id DESC LIMIT $8'
    ELSE ' ORDER BY a.created_at, a.instance_id LIMIT $8'
  END;
  v_in_range CONSTANT text := concat(
    ' AND ' || v_column || ' IS NOT NULL',
    CASE WHEN p_from IS NOT NULL THEN ' AND ' || v_column || ' >= ' || format(v_value, '$2') END,
    CASE WHEN p_below IS NOT NULL THEN ' AND ' || v_column || ' < ' || format(v_value, '$3') END
  );
  v_query text := v_of_name || ' AND ' || v_column || ' = ' || format(v_value, '$2') || v_bounds || v_order;
  v_count bigint;
BEGIN
  IF p_equals IS NULL THEN
    -- Without the bounds: all pages are read in the same way.
    EXECUTE format('SELECT count(*) FROM (SELECT FROM attributes AS a WHERE a.name = $1%s LIMIT $4) AS a', v_in_range)
    INTO v_count
    USING p_name, p_from, p_below, p_most_sorted + 1;
    v_query := v_of_name || CASE WHEN v_count <= p_most_sorted THEN v_in_range || v_bounds ELSE v_bounds || v_order END;
  END IF;
  RETURN QUERY EXECUTE v_query
  USING p_name, COALESCE(p_equals, p_from), p_below, p_created_from, p_created_before, p_after_at, p_after_id, p_limit;
END
$$;

-- Returns whether a block still holds: no turn has been stored since, of any execution. So storing a turn costs nothing
-- for instances that are not blocked.
--
-- Bound: one index lookup. Locks: none.
CREATE OR REPLACE FUNCTION dx_is_blocked(
  p_block blocked_instances,
  p_execution_id bigint,           -- the current one
  p_created_at timestamptz         -- of the instance
) RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
  SELECT p_block.execution_id = p_execution_id
    AND p_block.since >= p_created_at
    AND NOT EXISTS (
      SELECT FROM history AS h
      WHERE h.instance_id = p_block.instance_id AND h.execution_id = p_block.execution_id
        AND h.event_id > p_block.last_event_id
    )
$$;

-- Adds an execution to those that wait for the end of a task: each of them receives it, by a signal of its own, by a
-- message in the transaction that stores it.
--
-- Returns null; of a task that has ended, or does not exist: [status, result, error], where the status of the latter is
-- Missing.
-- Bound: one task. Locks: the task; waits for a transaction that ends it.
CREATE OR REPLACE FUNCTION dx_join_task(
  p_id uuid, p_instance_id text, p_execution_id bigint,
  p_signal text,                  -- the same when a call is repeated
  p_now_ms bigint DEFAULT NULL
) RETURNS json LANGUAGE plpgsql
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
  v_task record;
BEGIN
  SELECT t.status, t.result, t.error, t.is_awaited INTO v_task FROM queue_tasks AS t
  WHERE t.id = p_id
  FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN json_build_array('Missing', NULL, NULL);
  ELSIF v_task.status NOT IN ('Pending', 'Running') THEN
    RETURN json_build_array(v_task.status, v_task.result, v_task.error);
  END IF;

  INSERT INTO queue_task_callers (task_id, signal, instance_id, execution_id)
  VALUES (p_id, p_signal, p_instance_id, p_execution_id) ON CONFLICT DO NOTHING;
  -- Only the end of such a task is announced.
  IF NOT v_task.is_awaited THEN
    UPDATE queue_tasks AS t
    SET is_awaited = true, updated_at = to_timestamp(v_now_ms::float8 / 1000)
    WHERE t.id = p_id;
  END IF;
  RETURN NULL;
END
$$;

-- Returns the messages that only say that some task of a name may begin: the task that they name has one of these
-- names, which has a limit, and it waits for a slot, runs, or has ended.
--
-- Bound: the messages given. Locks: none.
CREATE OR REPLACE FUNCTION dx_limited_messages(
  p_messages bigint[], p_names text[], p_now_ms bigint
) RETURNS TABLE (id bigint, name text) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  SELECT message.id, task.name
  FROM unnest(p_messages) AS given (id)
  CROSS JOIN LATERAL (
    SELECT m.id, dx_task_id(m.payload ->> 'task_id') AS task_id FROM queue_messages AS m
    WHERE m.id = given.id AND m.payload ->> 'kind' IS NOT NULL
    OFFSET 0
  ) AS message
  CROSS JOIN LATERAL (
    SELECT t.name FROM queue_tasks AS t
    WHERE t.id = message.task_id
      AND t.name = ANY (p_names)
      AND CASE t.status
        WHEN 'Pending' THEN NOT t.has_slot AND t.run_at <= to_timestamp(p_now_ms::float8 / 1000) AND t.lost < 2
        WHEN 'Running' THEN t.lease_until > p_now_ms
        ELSE true
      END
    OFFSET 0
  ) AS task
  WHERE EXISTS (SELECT FROM limits AS l WHERE l.kind = 'task' AND l.name = task.name)
$$;

-- Marks messages of the outbox as sent, also those that another publisher has claimed since: a queue has accepted them.
-- Deletes those that expire.
--
-- Returns the ids of those that another transaction has locked, so that one of them does not keep the others from being
-- marked; call again with these. Bound: the ids given. Locks: their rows; rows that are locked are skipped.
CREATE OR REPLACE FUNCTION dx_mark_sent(p_ids bigint[], p_now_ms bigint DEFAULT NULL) RETURNS text[]
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
  v_ids bigint[];
BEGIN
  -- sent_at IS NULL would lead to the index of all that are not sent.
  v_ids := ARRAY(
    SELECT o.id FROM queue_outbox AS o
    WHERE o.id = ANY (p_ids) AND num_nulls(o.sent_at) = 1
    ORDER BY o.id FOR UPDATE SKIP LOCKED
  );
  DELETE FROM queue_outbox AS o WHERE o.id = ANY (v_ids) AND o.expires_at IS NOT NULL;
  UPDATE queue_outbox AS o
  SET sent_at = to_timestamp(v_now_ms::float8 / 1000), lease_token = NULL, lease_until = NULL,
      last_error = NULL
  WHERE o.id = ANY (v_ids);
  RETURN ARRAY(
    SELECT o.id::text FROM queue_outbox AS o
    WHERE o.id = ANY (p_ids) AND num_nulls(o.sent_at) = 1
    ORDER BY o.id
  );
END
$$;

-- Trigger: notifies listeners that a slot of a limit is free, if an activity waits for one. Quiet statements are left
-- out: processes of this package announce the slots that these free.
CREATE OR REPLACE FUNCTION dx_notify_free_slot() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off
AS $$
BEGIN
  -- In an IF of its own: PL/pgSQL runs a condition with a query as one, even where a comparison decides.
  IF current_setting('duroxide.quiet', true) = 'on' OR OLD.visible_at = 'infinity' THEN
    RETURN NULL;
  END IF;
  IF EXISTS (
    SELECT FROM worker_queue AS w WHERE w.limit_name = OLD.limit_name AND w.visible_at = 'infinity'
  ) THEN
    PERFORM dx_notify('worker_work', ARRAY[now()]);
  END IF;
  RETURN NULL;
END
$$;

-- Trigger: when an instance that has a slot of a limit ends or is deleted, notifies listeners, if another one waits for
-- that limit. For our own statements as well: few instances end while others wait.
CREATE OR REPLACE FUNCTION dx_notify_free_instance_slot() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off
AS $$
BEGIN
  -- Apart, as in dx_notify_free_slot.
  IF OLD.limit_route IS NOT NULL OR OLD.status <> 'Running' OR (TG_OP = 'UPDATE' AND NEW.status = 'Running') THEN
    RETURN NULL;
  END IF;
  IF EXISTS (
    SELECT FROM instances AS i
    WHERE (i.status = 'Running') IS TRUE AND i.limit_route IS NOT NULL AND i.limit_name = OLD.limit_name
  ) THEN
    PERFORM dx_notify('orch_work', ARRAY[now()]);
  END IF;
  RETURN NULL;
END
$$;

-- Trigger: notifies listeners of work that another program gave a new time, such as Duroxide, when it gives work back.
CREATE OR REPLACE FUNCTION dx_notify_moved() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM dx_notify(TG_ARGV[0], ARRAY[NEW.visible_at]);
  RETURN NULL;
END
$$;

-- Trigger: wakes the publishers of the outbox with the commit, once for all messages of a transaction.
CREATE OR REPLACE FUNCTION dx_notify_outbox() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM dx_hint('o');
  RETURN NULL;
END
$$;

-- Opens the next version of a data set, with status Building. No number is used twice, not even after a deletion.
--
-- Returns {_tag: Opened, version} or {_tag: DatasetNotFound}. Bound: one row. Locks: the data set.
CREATE OR REPLACE FUNCTION dx_open_version(p_dataset_uuid uuid, p_now_ms bigint DEFAULT NULL) RETURNS jsonb
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
  v_version bigint;
BEGIN
  UPDATE queue_datasets AS d SET last_version = d.last_version + 1, updated_at = v_now
  WHERE d.dataset_uuid = p_dataset_uuid
  RETURNING d.last_version INTO v_version;
  IF v_version IS NULL THEN
    RETURN jsonb_build_object('_tag', 'DatasetNotFound');
  END IF;
  INSERT INTO queue_dataset_versions (dataset_uuid, dataset_version, status, created_at)
  VALUES (p_dataset_uuid, v_version, 'Building', v_now);
  RETURN jsonb_build_object('_tag', 'Opened', 'version', v_version);
END
$$;

-- Pauses what an operator names, until dx_resume. Pausing it again only gives it another reason.
--
-- An instance gets a lock without a holder and without an end: no process takes it, Duroxide's included. A process that
-- runs it has lost its lock: its turn is not stored, its messages are free again, and the delivery does not count. All
-- other targets are rows alone, which processes read when they start and whenever they are notified.
--
-- Returns Paused, or for an instance NotFound or Ended; then nothing has changed. Announces it to all processes.
-- Bound: one row; of an instance its lock and its batch. Locks: advisory lock of the instance (waits for a claim), its
-- lock row (waits for a turn that is being stored), messages of its batch, the row of paused.
CREATE OR REPLACE FUNCTION dx_pause(
  p_target text,                   -- as in the table, and so are the following
  p_name text, p_version text, p_reason text, p_now_ms bigint DEFAULT NULL
) RETURNS text LANGUAGE plpgsql
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
  v_since timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_lock record;
BEGIN
  IF p_target = 'instance' THEN
    PERFORM pg_advisory_xact_lock(hashtext(p_name));
    SELECT l.lock_token, l.locked_until INTO v_lock FROM instance_locks AS l
    WHERE l.instance_id = p_name
    FOR UPDATE;
    -- This sees the turn that the lock has waited for.
    IF NOT EXISTS (SELECT FROM instances AS i WHERE i.instance_id = p_name) THEN
      RETURN 'NotFound';
    END IF;
    IF NOT EXISTS (SELECT FROM dx_running_instances(ARRAY[p_name])) THEN
      RETURN 'Ended';
    END IF;
    INSERT INTO instance_locks AS l (instance_id, lock_token, locked_until, locked_at)
    VALUES (p_name, '', dx_no_end(), v_now_ms)
    ON CONFLICT (instance_id) DO UPDATE
    SET lock_token = EXCLUDED.lock_token, locked_until = EXCLUDED.locked_until, locked_at = EXCLUDED.locked_at;
    IF v_lock.lock_token <> '' THEN
      UPDATE orchestrator_queue AS q
      SET lock_token = NULL, locked_until = NULL,
          -- A holder that died before counts.
          attempt_count = CASE
            WHEN v_lock.locked_until > v_now_ms THEN greatest(q.attempt_count - 1, 0)
            ELSE q.attempt_count
          END
      WHERE q.instance_id = p_name AND q.lock_token = v_lock.lock_token;
    END IF;
    -- Duroxide deletes an instance without this row.
    DELETE FROM paused AS p USING instances AS i
    WHERE p.target = 'instance' AND p.name = p_name AND i.instance_id = p_name AND p.since < i.created_at;
  END IF;

  INSERT INTO paused (target, name, version, reason, since)
  VALUES (p_target, p_name, p_version, p_reason, v_since)
  ON CONFLICT (target, name, version) DO UPDATE SET reason = EXCLUDED.reason;
  PERFORM dx_announce_pauses();
  RETURN 'Paused';
END
$$;

-- Returns why an instance that has not ended is paused: fields as in dx_read_paused; null if it is not. The narrowest
-- of several pauses counts.
--
-- Bound: four rows. Locks: none.
CREATE OR REPLACE FUNCTION dx_pause_of(p_instance instances) RETURNS jsonb LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT jsonb_build_object(
    'target', p.target, 'name', p.name, 'version', p.version, 'reason', p.reason,
    'sinceMs', floor(extract(epoch FROM p.since) * 1000)::bigint
  )
  FROM (
    VALUES
      (1, 'instance', p_instance.instance_id, ''),
      (
        2, 'orchestration', p_instance.orchestration_name,
        -- Before its first turn, its route says which version it asks for.
        COALESCE(p_instance.orchestration_version, substr(split_part(p_instance.route, ' ', 2), 2))
      ),
      (3, 'orchestration', p_instance.orchestration_name, ''),
      (4, 'everything', '', '')
  ) AS wanted (width, target, name, version)
  JOIN paused AS p ON p.target = wanted.target AND p.name = wanted.name AND p.version = wanted.version
  WHERE wanted.width > 1 OR p.since >= p_instance.created_at
  ORDER BY wanted.width LIMIT 1
$$;

-- Pauses or resumes a schedule. Occurrences during a pause do not fire, also not after it; runs by hand still do.
--
-- Returns Done, Unchanged if it was so already, or Missing. Bound: one row. Locks: that row.
CREATE OR REPLACE FUNCTION dx_pause_schedule(
  p_name text,
  p_is_paused boolean, p_reason text, -- the reason of a pause, null: none given
  p_now_ms bigint DEFAULT NULL
) RETURNS text LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
  v_now timestamptz := dx_time_of(COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint));
  v_was_paused boolean;
BEGIN
  SELECT s.paused_at IS NOT NULL INTO v_was_paused FROM schedules AS s WHERE s.name = p_name FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN 'Missing';
  ELSIF v_was_paused = p_is_paused THEN
    RETURN 'Unchanged';
  ELSIF p_is_paused THEN
    UPDATE schedules AS s
    SET paused_at = v_now, pause_reason = p_reason, next_at = NULL, revision = s.revision + 1,
        look_at = CASE WHEN s.requests <> '[]' THEN v_now END
    WHERE s.name = p_name;
  ELSE
    UPDATE schedules AS s
    SET paused_at = NULL, pause_reason = NULL, revision = s.revision + 1,
        fired_until = greatest(s.fired_until, v_now), look_at = v_now
    WHERE s.name = p_name;
  END IF;
  RETURN 'Done';
END
$$;

-- Lists the blocks that hold, with the orchestrations of their instances.
--
-- Bound: the rows of blocked_instances, with two index lookups each, in any plan. Locks: none. PostgreSQL puts it into
-- the statement that calls it.
CREATE OR REPLACE FUNCTION dx_present_blocks() RETURNS TABLE (
  instance_id text, execution_id bigint, event_id bigint, orchestration_name text
) LANGUAGE sql STABLE
-- settings of the caller
AS $$
  SELECT b.instance_id, b.execution_id, b.event_id, i.orchestration_name
  FROM (SELECT x.* FROM blocked_instances AS x ORDER BY x.instance_id) AS b
  CROSS JOIN LATERAL (
    SELECT x.current_execution_id, x.created_at, x.orchestration_name FROM instances AS x
    WHERE x.instance_id = b.instance_id
    OFFSET 0
  ) AS i
  WHERE dx_is_blocked(b, i.current_execution_id, i.created_at)
$$;

-- Returns the key of the advisory lock that the listening session of a process holds: the first half of its id.
CREATE OR REPLACE FUNCTION dx_process_key(p_id uuid) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$
  SELECT ('x' || left(replace(p_id::text, '-', ''), 16))::bit(64)::bigint
$$;

-- Deletes executions of one instance with their histories, but neither the current nor a running one.
--
-- Returns one row. If both bounds are given, an execution must meet both. Key-values, queues and locks do not change.
-- Bound: the executions of the instance, and the deleted events. Locks: rows of the deleted executions, then of their
-- histories. The id of the current execution only grows, so an execution that is old now stays old.
CREATE OR REPLACE FUNCTION dx_prune_executions(
  p_instance_id text,
  p_keep_last bigint,              -- how many of the highest execution ids are kept; null or 0: no condition
  p_completed_before_ms bigint     -- only executions that ended before; null: any
) RETURNS TABLE (out_executions_deleted bigint, out_events_deleted bigint) LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
  v_pruned bigint[];
  v_execution_id bigint;
  v_events bigint;
BEGIN
  WITH pruned AS (
    DELETE FROM executions AS e
    WHERE e.instance_id = p_instance_id
      AND e.status <> 'Running'
      AND e.execution_id IS DISTINCT FROM (
        SELECT i.current_execution_id FROM instances AS i
        WHERE i.instance_id = p_instance_id
      )
      AND e.execution_id <> ALL (ARRAY(
        SELECT newest.execution_id FROM executions AS newest
        WHERE newest.instance_id = p_instance_id
        ORDER BY newest.execution_id DESC LIMIT COALESCE(p_keep_last, 0)
      ))
      AND (p_completed_before_ms IS NULL OR e.completed_at < to_timestamp(p_completed_before_ms::float8 / 1000))
    RETURNING e.execution_id
  )
  SELECT COALESCE(array_agg(pruned.execution_id ORDER BY pruned.execution_id), '{}') INTO v_pruned
  FROM pruned;
  out_executions_deleted := cardinality(v_pruned);
  out_events_deleted := 0;
  -- One by one: for a join or a list, PostgreSQL may read all events of the instance.
  FOREACH v_execution_id IN ARRAY v_pruned LOOP
    DELETE FROM history AS h WHERE h.instance_id = p_instance_id AND h.execution_id = v_execution_id;
    GET DIAGNOSTICS v_events = ROW_COUNT;
    out_events_deleted := out_events_deleted + v_events;
  END LOOP;
  RETURN NEXT;
END
$$;

-- Discards committed versions that are older than the active one, except the newest p_keep of them, and returns the
-- oldest discarded versions of the data set with the outputs that were committed to them: [{version, outputUris}]; null
-- without the data set.
--
-- Bound: p_limit versions and their batches. Locks: the data set (shared), the versions by number.
CREATE OR REPLACE FUNCTION dx_prune_versions(
  p_dataset_uuid uuid,
  p_keep bigint,                   -- versions, >= 0
  p_limit integer                  -- versions, >= 1
) RETURNS jsonb LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
  v_active bigint;
BEGIN
  SELECT d.active_version INTO v_active FROM queue_datasets AS d
  WHERE d.dataset_uuid = p_dataset_uuid
  FOR SHARE;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;

  WITH older AS (
    SELECT v.dataset_version FROM queue_dataset_versions AS v
    WHERE v.dataset_uuid = p_dataset_uuid AND v.dataset_version < v_active AND v.status = 'Committed'
    ORDER BY v.dataset_version DESC
    OFFSET p_keep
  ),
  locked AS (
    SELECT v.dataset_version FROM queue_dataset_versions AS v
    WHERE v.dataset_uuid = p_dataset_uuid
      AND v.dataset_version = ANY (ARRAY(SELECT older.dataset_version FROM older))
    ORDER BY v.dataset_version LIMIT p_limit FOR NO KEY UPDATE
  )
  UPDATE queue_dataset_versions AS v SET status = 'Discarded'
  FROM locked WHERE v.dataset_uuid = p_dataset_uuid AND v.dataset_version = locked.dataset_version;

  RETURN (
    SELECT COALESCE(
      jsonb_agg(
        jsonb_build_object('version', discarded.dataset_version, 'outputUris', discarded.outputs)
        ORDER BY discarded.dataset_version
      ),
      '[]'
    )
    FROM (
      SELECT
        v.dataset_version,
        ARRAY(
          SELECT b.output_uri FROM queue_dataset_batches AS b
          WHERE b.dataset_uuid = p_dataset_uuid
            AND b.dataset_version = v.dataset_version
            AND b.status = 'Committed'
          ORDER BY b.batch_uri
        ) AS outputs
      FROM queue_dataset_versions AS v
      WHERE v.dataset_uuid = p_dataset_uuid AND v.status = 'Discarded'
      ORDER BY v.dataset_version LIMIT p_limit
    ) AS discarded
  );
END
$$;

-- Inserts messages into their queues.
--
-- Returns the time of the statement, from which delays count. Bound: the rows given. Locks: none.
CREATE OR REPLACE FUNCTION dx_publish_messages(
  p_messages jsonb,                -- [{queue, payload, delay_ms, max_attempts}]
  p_now_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql
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
BEGIN
  INSERT INTO queue_messages (queue, payload, created_at, visible_at, max_attempts)
  SELECT m.queue, m.payload, v_now, to_timestamp((v_now_ms + m.delay_ms)::float8 / 1000), m.max_attempts
  FROM ROWS FROM (
    jsonb_to_recordset(p_messages) AS (queue text, payload jsonb, delay_ms bigint, max_attempts integer)
  ) WITH ORDINALITY AS m (queue, payload, delay_ms, max_attempts, position)
  ORDER BY m.position;
  IF current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
    -- The first time of each queue: a receiver that looks then finds out about the next one.
    PERFORM dx_hint('m ' || message.queue, to_timestamp((v_now_ms + message.delay_ms)::float8 / 1000))
    FROM (
      SELECT m.queue, min(m.delay_ms) AS delay_ms
      FROM jsonb_to_recordset(p_messages) AS m (queue text, delay_ms bigint)
      GROUP BY m.queue
    ) AS message;
  END IF;
  RETURN v_now_ms;
END
$$;

-- Returns the active version of a data set with the outputs of its batches, as they were at one moment: {_tag: Active,
-- datasetUuid, version, recordCount, committedMs, outputs: [{outputUri, recordCount}]}, by the URI of the batch; {_tag:
-- Inactive} without an active version, {_tag: DatasetNotFound} without a data set of this name.
-- Bound: the batches of the version. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_active_dataset(p_name text) RETURNS jsonb LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
  -- One statement, and STABLE: both read what was committed when the call began.
  RETURN COALESCE(
    (
      SELECT CASE
        WHEN d.active_version IS NULL THEN jsonb_build_object('_tag', 'Inactive')
        ELSE jsonb_build_object(
          '_tag', 'Active', 'datasetUuid', d.dataset_uuid, 'version', v.dataset_version,
          'recordCount', v.record_count,
          'committedMs', floor(extract(epoch FROM v.committed_at) * 1000)::bigint,
          'outputs', COALESCE(
            (
              SELECT jsonb_agg(
                jsonb_build_object('outputUri', b.output_uri, 'recordCount', b.output_record_count)
                ORDER BY b.batch_uri
              )
              FROM queue_dataset_batches AS b
              WHERE b.dataset_uuid = v.dataset_uuid AND b.dataset_version = v.dataset_version
            ),
            '[]'
          )
        )
      END
      FROM queue_datasets AS d
      LEFT JOIN queue_dataset_versions AS v
        ON v.dataset_uuid = d.dataset_uuid
        AND v.dataset_version = d.active_version
      WHERE d.name = p_name
    ),
    jsonb_build_object('_tag', 'DatasetNotFound')
  );
END
$$;

-- Returns one row: how many messages and activities could be claimed now, since when the oldest of them could, and how
-- many instances have not ended or are blocked, and how many activities and instances wait for limits.
--
-- A row can be claimed since it became visible, was inserted, or lost its lock, whichever came last. Messages of an
-- instance with a live lock or a pause, and messages that wait for a start, cannot be claimed. Messages to instances
-- that Duroxide runs are left out: its processes claim them.
--
-- Bound: the oldest p_limit rows of each route that can be claimed, among its 10 * p_limit oldest visible ones, and a
-- look at the lock of the instance of each message; rows that are not due cost nothing. Executions: 1,000 pages, chosen
-- at random from a table with more. Rows of blocked_instances, until p_limit are found;
-- p_limit activities that wait for limits, and 10 * p_limit instances. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_backlog(
  p_limit integer,                 -- rows of one route, >= 1
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_now_ms bigint, out_messages bigint,
  out_oldest_message_ms bigint,    -- null without a message
  out_activities json,             -- [{tag, depth, oldest_ms}]; tag is null for activities without one
  out_active_instances bigint,     -- an estimate where the table has more than 1,000 pages
  out_blocked_instances bigint,    -- at most p_limit
  out_limited_activities bigint,   -- that wait for limits; at most p_limit
  out_limited_instances bigint     -- that do, and are due, among the first 10 * p_limit; at most p_limit
) LANGUAGE plpgsql STABLE
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
  v_pages bigint := pg_relation_size('executions') / current_setting('block_size')::bigint;
  v_percent real := least(100, 100 * 1000 / greatest(v_pages, 1)::real);
BEGIN
  out_now_ms := v_now_ms;

  SELECT count(*), min(message.since_ms) INTO out_messages, out_oldest_message_ms
  FROM dx_routes_of_messages() AS present
  CROSS JOIN LATERAL (
    SELECT visible.since_ms
    FROM (
      SELECT
        greatest(
          floor(extract(epoch FROM greatest(q.visible_at, q.created_at)) * 1000)::bigint, q.locked_until,
          (SELECT l.locked_until FROM instance_locks AS l WHERE l.instance_id = q.instance_id)
        ) AS since_ms
      FROM orchestrator_queue AS q WHERE q.route = present.route AND q.visible_at <= v_now
      ORDER BY q.visible_at, q.id LIMIT 10 * p_limit::bigint
    ) AS visible
    WHERE visible.since_ms <= v_now_ms
    LIMIT p_limit
  ) AS message
  WHERE present.route <> '' AND NOT starts_with(present.route, '0.') AND NOT starts_with(present.route, '~');

  -- Each condition on the session fits one index only.
  WITH free AS (
    SELECT activity.* FROM dx_routes_of_activities() AS present
    CROSS JOIN LATERAL (
      SELECT visible.*
      FROM (
        SELECT w.tag, w.visible_at, w.created_at, w.locked_until FROM worker_queue AS w
        WHERE w.session_id IS NULL AND w.route = present.route AND w.visible_at <= v_now
        ORDER BY w.visible_at, w.id LIMIT 10 * p_limit::bigint
      ) AS visible
      WHERE visible.locked_until IS NULL OR visible.locked_until <= v_now_ms
      LIMIT p_limit
    ) AS activity
    UNION ALL
    SELECT activity.* FROM dx_routes_of_sessions() AS present
    CROSS JOIN LATERAL (
      SELECT visible.*
      FROM (
        SELECT w.tag, w.visible_at, w.created_at, w.locked_until FROM worker_queue AS w
        WHERE num_nulls(w.session_id) = 0 AND w.route = present.route AND w.visible_at <= v_now
        ORDER BY w.visible_at, w.id LIMIT 10 * p_limit::bigint
      ) AS visible
      WHERE visible.locked_until IS NULL OR visible.locked_until <= v_now_ms
      LIMIT p_limit
    ) AS activity
  ),
  tagged AS (
    SELECT
      dx_tag(free.tag) AS tag, count(*) AS depth,
      min(greatest(
        floor(extract(epoch FROM greatest(free.visible_at, free.created_at)) * 1000)::bigint,
        free.locked_until
      )) AS oldest_ms
    FROM free
    GROUP BY dx_tag(free.tag)
  )
  SELECT COALESCE(json_agg(tagged ORDER BY tagged.tag), '[]') INTO out_activities FROM tagged;

  SELECT round(count(*) * 100 / v_percent) INTO out_active_instances
  FROM executions AS e TABLESAMPLE SYSTEM (v_percent) WHERE e.status = 'Running';

  SELECT count(*)
  INTO out_blocked_instances
  FROM (SELECT FROM dx_present_blocks() LIMIT p_limit) AS blocked;

  SELECT count(*)
  INTO out_limited_activities
  FROM (
    SELECT w.id FROM worker_queue AS w WHERE w.limit_name IS NOT NULL AND w.visible_at = 'infinity'
    ORDER BY w.limit_name LIMIT p_limit
  ) AS limited;

  SELECT count(*)
  INTO out_limited_instances
  FROM (
    SELECT
    FROM (
      SELECT waiting.limit_place FROM dx_parked_instance_routes() AS present
      CROSS JOIN LATERAL (
        SELECT i.limit_place FROM instances AS i
        WHERE (i.status = 'Running') IS TRUE AND i.limit_name = present.limit_name AND i.limit_route = present.route
        LIMIT 10 * p_limit::bigint
      ) AS waiting
      LIMIT 10 * p_limit::bigint
    ) AS parked
    WHERE parked.limit_place >> 20 <= v_now_ms
    LIMIT p_limit
  ) AS limited;

  RETURN NEXT;
END
$$;

-- Returns where streams of instances are, and chunks of them from an offset on: one row for each item, in order. All of
-- it is read at one moment: after has_ended, no chunk follows.
--
-- An item gets as many chunks as fit into its max_bytes, at least one if there is one and max_bytes is not 0.
-- Bound: four index lookups per item, and the chunks returned, at most 10,000 of each item. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_chunks(
  p_items jsonb                    -- [{instance_id, stream, from, max_bytes}]; without from: from the oldest
) RETURNS TABLE (
  out_stream_id bigint,            -- null without a stream, and the next two are 0
  out_first_offset bigint, out_next_offset bigint,
  out_is_known boolean,            -- whether there is such an instance
  out_has_ended boolean,
  out_chunks json                  -- [[offset, writer, number, appended at (ms), chunk]]; null without any
) LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
  SELECT
    s.id, COALESCE(s.first_offset, 0), COALESCE(s.next_offset, 0), i.instance_id IS NOT NULL,
    COALESCE((
      SELECT e.status IN ('Completed', 'Failed') FROM executions AS e
      WHERE e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
    ), false),
    CASE WHEN s.id IS NOT NULL AND item.max_bytes > 0 THEN (
      SELECT json_agg(
        json_build_array(
          c.chunk_offset, c.writer, c.number, floor(extract(epoch FROM c.appended_at) * 1000)::bigint, c.chunk
        )
        ORDER BY c.chunk_offset
      )
      FROM progress_chunks AS c
      WHERE c.stream_id = s.id
        AND c.chunk_offset >= COALESCE(item."from", s.first_offset)
        AND c.chunk_offset < COALESCE(item."from", s.first_offset) + 10000
        AND c.bytes_before < item.max_bytes + (
          SELECT first.bytes_before FROM progress_chunks AS first
          WHERE first.stream_id = s.id AND first.chunk_offset = COALESCE(item."from", s.first_offset)
        )
    ) END
  FROM ROWS FROM (
    jsonb_to_recordset(p_items) AS (instance_id text, stream text, "from" bigint, max_bytes bigint)
  ) WITH ORDINALITY AS item (instance_id, stream, "from", max_bytes, position)
  LEFT JOIN LATERAL (
    SELECT i.instance_id, i.current_execution_id FROM instances AS i WHERE i.instance_id = item.instance_id
    OFFSET 0
  ) AS i ON true
  LEFT JOIN LATERAL (
    SELECT s.id, s.first_offset, s.next_offset FROM progress_streams AS s
    WHERE s.instance_id = item.instance_id AND s.name = item.stream
    OFFSET 0
  ) AS s ON true
  ORDER BY item.position
$$;

-- Returns those of the given instances that have ended, with their outcomes, one row each, by id.
--
-- The rows have about p_max_bytes of outcomes, at least one row if an instance has ended. If all of them have
-- out_is_last, no other of the instances has ended. out_failure is as in dx_read_instances.
--
-- Bound: two index lookups per id, whatever the instance has stored; for failed ones also what dx_failure_of reads.
-- Locks: none.
CREATE OR REPLACE FUNCTION dx_read_ends(p_instance_ids text[], p_max_bytes bigint) RETURNS TABLE (
  out_instance_id text,
  out_status text,                 -- Completed or Failed
  out_output text, out_failure text, out_is_last boolean
) LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
  RETURN QUERY
  SELECT part.instance_id, part.status, part.output, part.failure, part.is_last
  FROM (
    SELECT sized.*, max(sized.before) OVER () < p_max_bytes AS is_last
    FROM (
      SELECT ended.*, sum(ended.bytes) OVER (ORDER BY ended.instance_id) - ended.bytes AS before
      FROM (
        SELECT
          i.instance_id, e.status, e.output, e.failure,
          COALESCE(octet_length(e.output), 0) + COALESCE(octet_length(e.failure), 0) AS bytes
        FROM instances AS i
        CROSS JOIN LATERAL (
          SELECT
            e.status, e.output,
            CASE WHEN e.status = 'Failed' THEN dx_failure_of(e.instance_id, e.execution_id) END AS failure
          FROM executions AS e
          WHERE e.instance_id = i.instance_id
            AND e.execution_id = i.current_execution_id
            AND e.status IN ('Completed', 'Failed')
          OFFSET 0 -- a lookup per instance in any plan, and one failure per row, although it is used twice
        ) AS e
        WHERE i.instance_id = ANY (p_instance_ids)
      ) AS ended
    ) AS sized
  ) AS part
  WHERE part.before < p_max_bytes
  ORDER BY part.instance_id;
END
$$;

-- Returns a page of the events of one execution, by event id.
--
-- The page has the events after p_after, about p_max_bytes of them but at least one if there is any; no rows if the
-- execution is unknown. Every row of the last page has out_is_last.
--
-- Bound: looks at the events after p_after, and reads those of the page. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_history(
  p_instance_id text,
  p_execution_id bigint,           -- null means the highest execution
  p_after bigint,                  -- event id; 0: from the beginning
  p_max_bytes bigint
) RETURNS TABLE (out_execution_id bigint, out_event_id bigint, out_event_data text, out_is_last boolean)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET jit = off
AS $$
  SELECT page.execution_id, page.event_id, page.event_data, page.is_last
  FROM (
    SELECT sized.*, max(sized.before) OVER () < p_max_bytes AS is_last
    FROM (
      SELECT
        h.execution_id, h.event_id, h.event_data,
        sum(octet_length(h.event_data)) OVER (ORDER BY h.event_id) - octet_length(h.event_data) AS before
      FROM history AS h
      WHERE h.instance_id = p_instance_id
        AND h.execution_id = COALESCE(
          p_execution_id, (SELECT max(e.execution_id) FROM executions AS e WHERE e.instance_id = p_instance_id), 1
        )
        AND h.event_id > p_after
    ) AS sized
  ) AS page
  WHERE page.before < p_max_bytes
  ORDER BY page.event_id
$$;

-- Returns what keeps dead rows the longest in this database, and how many dead rows the queues and instance_locks have
-- by their statistics; no row when nothing does. Vacuum can remove no row that died after out_xid.
--
-- A transaction keeps dead rows from its first snapshot or write on, so does a prepared one. A replication slot, and a
-- standby with hot_standby_feedback, keep what a query of the standby may read.
--
-- Bound: one pass over the sessions, prepared transactions and slots of the server. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_horizon() RETURNS TABLE (
  out_kind text,                   -- transaction, prepared transaction, replication slot, standby
  out_id text,                     -- process id, name of the prepared transaction or of the slot
  out_application_name text,       -- null without one
  out_since timestamptz,           -- its beginning; null for a slot or a standby, or without the right to see it
  out_transactions integer,        -- that began after it
  out_dead_rows bigint
) LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET jit = off
AS $$
  SELECT
    holder.kind, holder.id, holder.application_name, holder.since, holder.transactions,
    (
      SELECT sum(pg_stat_get_dead_tuples(kept.name::regclass))::bigint
      FROM (VALUES ('orchestrator_queue'), ('worker_queue'), ('instance_locks')) AS kept (name)
    )
  FROM (
    SELECT
      CASE WHEN a.backend_type = 'walsender' THEN 'standby' ELSE 'transaction' END AS kind, a.pid::text AS id,
      NULLIF(a.application_name, '') AS application_name, a.xact_start AS since,
      greatest(age(a.backend_xid), age(a.backend_xmin)) AS transactions
    FROM pg_stat_activity AS a
    WHERE a.pid <> pg_backend_pid()
      AND COALESCE(a.datname, current_database()) = current_database()
      -- Vacuum does not keep rows for itself, and its launcher, which belongs to no database, for a moment only.
      AND COALESCE(a.backend_type, '') NOT IN ('autovacuum worker', 'autovacuum launcher')
    UNION ALL
    SELECT 'prepared transaction', p.gid, NULL, p.prepared, age(p.transaction)
    FROM pg_prepared_xacts AS p WHERE p.database = current_database()
    UNION ALL
    SELECT 'replication slot', s.slot_name, NULL, NULL, age(s.xmin) FROM pg_replication_slots AS s
  ) AS holder
  WHERE holder.transactions IS NOT NULL
  ORDER BY holder.transactions DESC, holder.since LIMIT 1
$$;

-- Returns the size of a value of an instance as its limit counts it, in UTF-8 bytes: a string without the quotes and
-- escapes of JSON, because Duroxide's typed API stores strings bare.
CREATE OR REPLACE FUNCTION dx_value_bytes(p_value text) RETURNS integer LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_text text := p_value;
BEGIN
  IF starts_with(p_value, '"') THEN
    BEGIN
      v_text := p_value::json #>> '{}';
    EXCEPTION
      -- The text is not JSON, or has an escape that PostgreSQL cannot store.
      WHEN data_exception THEN
        NULL;
    END;
  END IF;
  RETURN octet_length(convert_to(v_text, 'UTF8'));
END
$$;

-- Returns the sizes of an instance: of the history of its current execution, and of its key-values as readers see them.
--
-- Returns one row, or none if the instance is unknown.
-- Bound: the events of the execution and the key-values of the instance. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_instance_stats(p_instance_id text) RETURNS TABLE (
  out_event_count bigint,
  out_history_bytes bigint,        -- UTF-8 bytes of the event texts
  out_first_event text,            -- null without a history
  out_key_count bigint,
  out_value_bytes bigint           -- of the values, as dx_value_bytes counts them
) LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET jit = off
AS $$
  SELECT
    event.count, event.bytes,
    (
      SELECT h.event_data FROM history AS h
      WHERE h.instance_id = i.instance_id AND h.execution_id = i.current_execution_id
      ORDER BY h.event_id LIMIT 1
    ),
    entry.count, entry.bytes
  FROM instances AS i
  CROSS JOIN LATERAL (
    SELECT
      count(*) AS count, COALESCE(sum(octet_length(convert_to(h.event_data, 'UTF8'))), 0)::bigint AS bytes
    FROM history AS h
    WHERE h.instance_id = i.instance_id AND h.execution_id = i.current_execution_id
  ) AS event
  CROSS JOIN LATERAL (
    SELECT count(*) AS count, COALESCE(sum(dx_value_bytes(visible.value)), 0)::bigint AS bytes
    FROM (
      SELECT d.value FROM kv_delta AS d
      WHERE d.instance_id = i.instance_id AND d.value IS NOT NULL
      UNION ALL
      SELECT s.value FROM kv_store AS s
      WHERE s.instance_id = i.instance_id
        AND NOT EXISTS (SELECT FROM kv_delta AS d WHERE d.instance_id = s.instance_id AND d.key = s.key)
    ) AS visible
  ) AS entry
  WHERE i.instance_id = p_instance_id
$$;

-- Returns the state of instances and of their current executions, one row per known id, unordered.
--
-- out_failure is the OrchestrationFailed event that ended a Failed execution.
--
-- Bound: the ids given; for failed ones also what dx_failure_of reads, for those that have not begun their messages.
-- Locks: none.
CREATE OR REPLACE FUNCTION dx_read_instances(p_instance_ids text[], p_now_ms bigint DEFAULT NULL) RETURNS TABLE (
  out_instance_id text, out_orchestration_name text, out_orchestration_version text,
  out_parent_instance_id text, out_execution_id bigint, out_status text, out_output text, out_failure text,
  out_custom_status text, out_custom_status_version integer,
  out_block jsonb,                 -- fields as in Block; null unless the instance is blocked
  out_pause jsonb,                 -- of dx_pause_of; null unless the instance is paused
  out_starts_at_ms bigint,         -- null unless its start is to wait
  out_created_at_ms bigint,
  out_updated_at_ms bigint
) LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
  RETURN QUERY
  SELECT
    i.instance_id, i.orchestration_name, i.orchestration_version, i.parent_instance_id, i.current_execution_id,
    COALESCE(e.status, 'Running'), e.output,
    CASE WHEN e.status = 'Failed' THEN dx_failure_of(i.instance_id, i.current_execution_id) END,
    i.custom_status, i.custom_status_version,
    (
      SELECT jsonb_build_object(
        'reason', b.reason, 'problem', b.problem, 'eventId', b.event_id, 'build', b.build, 'tries', b.tries,
        'sinceMs', floor(extract(epoch FROM b.since) * 1000)::bigint,
        'triedAtMs', floor(extract(epoch FROM b.tried_at) * 1000)::bigint
      )
      FROM blocked_instances AS b
      WHERE b.instance_id = i.instance_id AND dx_is_blocked(b, i.current_execution_id, i.created_at)
    ),
    CASE WHEN COALESCE(e.status, 'Running') NOT IN ('Completed', 'Failed') THEN dx_pause_of(i) END,
    -- The first turn writes the version.
    CASE WHEN i.orchestration_version IS NULL AND COALESCE(e.status, 'Running') = 'Running' THEN (
      SELECT
        CASE
          WHEN min(q.visible_at) > COALESCE(to_timestamp(p_now_ms::float8 / 1000), clock_timestamp())
            THEN floor(extract(epoch FROM min(q.visible_at)) * 1000)::bigint
        END
      FROM orchestrator_queue AS q
      WHERE q.instance_id = i.instance_id AND q.work_item LIKE '{"StartOrchestration"%'
    ) END,
    floor(extract(epoch FROM i.created_at) * 1000)::bigint,
    floor(extract(epoch FROM i.updated_at) * 1000)::bigint
  FROM instances AS i
  LEFT JOIN executions AS e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
  WHERE i.instance_id = ANY (p_instance_ids);
END
$$;

-- Returns the key-values of an instance as readers see them: for each key the change of the current execution, or else
-- the value that ended executions left.
--
-- Returns one row per key that has a value, by key.
-- Bound: the key-values of the instance, or the one key. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_key_values(
  p_instance_id text,
  p_key text                       -- null means every key
) RETURNS TABLE (out_key text, out_value text) LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET jit = off
AS $$
  SELECT d.key, d.value FROM kv_delta AS d
  WHERE d.instance_id = p_instance_id AND (p_key IS NULL OR d.key = p_key) AND d.value IS NOT NULL
  UNION ALL
  SELECT s.key, s.value FROM kv_store AS s
  WHERE s.instance_id = p_instance_id
    AND (p_key IS NULL OR s.key = p_key)
    AND NOT EXISTS (SELECT FROM kv_delta AS d WHERE d.instance_id = s.instance_id AND d.key = s.key)
  ORDER BY 1
$$;

-- Returns the limits and how they are used, by kind and name, as an array: [{kind, name, sinceMs, total, eachKey,
-- inUse, waiting, oldestMs, keyCount, keys: [{key, own, inUse, waiting, oldestMs}]}], each bound {concurrency, rate,
-- rateMs, burst} or null. oldestMs is when the oldest one that waits was stored; of a task, when it could have begun.
--
-- keyCount is the number of keys that have some that wait or have slots. keys are those with limits of their own, and
-- of the others the p_most_keys with the most that wait or have slots. Bound: what waits for these limits or has a slot
-- of them. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_limits(
  p_kind text, p_name text,        -- null: all
  p_key text,                      -- null: as above; else only this key
  p_most_keys integer,
  p_now_ms bigint DEFAULT NULL
) RETURNS json LANGUAGE plpgsql STABLE
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
BEGIN
  RETURN (
    SELECT COALESCE(
      json_agg(
        json_build_object(
          'kind', l.kind, 'name', l.name, 'sinceMs', floor(extract(epoch FROM l.since) * 1000)::bigint,
          'total', CASE WHEN num_nonnulls(l.concurrency, l.rate) > 0 THEN json_build_object(
            'concurrency', l.concurrency, 'rate', l.rate, 'rateMs', l.rate_ms, 'burst', l.burst
          ) END,
          'eachKey', CASE WHEN num_nonnulls(l.key_concurrency, l.key_rate) > 0 THEN json_build_object(
            'concurrency', l.key_concurrency, 'rate', l.key_rate, 'rateMs', l.key_rate_ms, 'burst', l.key_burst
          ) END,
          'inUse', used.in_use, 'waiting', used.waiting, 'oldestMs', used.oldest_ms, 'keyCount', used.key_count,
          'keys', used.keys
        )
        ORDER BY l.kind COLLATE "C", l.name COLLATE "C"
      ),
      '[]'
    )
    FROM limits AS l
    CROSS JOIN LATERAL (
      SELECT
        COALESCE(sum(key.in_use), 0)::bigint AS in_use, COALESCE(sum(key.waiting), 0)::bigint AS waiting,
        min(key.oldest_ms) AS oldest_ms, count(*) FILTER (WHERE key.in_use + key.waiting > 0) AS key_count,
        COALESCE(
          json_agg(
            json_build_object(
              'key', key.key, 'own', key.own, 'inUse', key.in_use, 'waiting', key.waiting, 'oldestMs', key.oldest_ms
            )
            ORDER BY key.waiting DESC, key.in_use DESC, key.key COLLATE "C"
          ) FILTER (
            WHERE CASE WHEN p_key IS NOT NULL THEN key.key = p_key ELSE key.own IS NOT NULL OR key.place <= p_most_keys END
          ),
          '[]'
        ) AS keys
      FROM (
        SELECT
          queued.*, own.own,
          row_number() OVER (ORDER BY queued.waiting DESC, queued.in_use DESC, queued.key COLLATE "C") AS place
        FROM (
          SELECT
            each.key, count(*) FILTER (WHERE each.is_parked) AS waiting,
            count(*) FILTER (WHERE NOT each.is_parked) AS in_use,
            floor(extract(epoch FROM min(each.created_at) FILTER (WHERE each.is_parked)) * 1000)::bigint AS oldest_ms
          FROM (
            SELECT w.limit_key AS key, true AS is_parked, w.created_at FROM worker_queue AS w
            WHERE l.kind = 'activity' AND w.limit_name IS NOT NULL AND w.visible_at = 'infinity' AND w.limit_name = l.name
            UNION ALL
            SELECT w.limit_key, false, w.created_at FROM worker_queue AS w
            WHERE l.kind = 'activity' AND w.limit_name IS NOT NULL AND w.visible_at < 'infinity' AND w.limit_name = l.name
            UNION ALL
            SELECT t.limit_key, NOT t.has_slot, greatest(t.run_at, t.created_at) FROM queue_tasks AS t
            WHERE l.kind = 'task' AND t.has_slot IS NOT NULL AND t.name = l.name
              AND (t.has_slot OR t.run_at <= to_timestamp(v_now_ms::float8 / 1000))
            UNION ALL
            -- Those that start later do not wait yet.
            SELECT i.limit_key, true, to_timestamp((i.limit_place >> 20)::float8 / 1000) FROM instances AS i
            WHERE l.kind = 'orchestration' AND i.limit_route IS NOT NULL
              AND (i.status = 'Running') IS TRUE AND i.limit_name = l.name AND i.limit_place >> 20 <= v_now_ms
            UNION ALL
            SELECT i.limit_key, false, i.created_at FROM instances AS i
            WHERE l.kind = 'orchestration' AND i.limit_route IS NULL
              AND (i.status = 'Running') IS TRUE AND i.limit_name = l.name
            UNION ALL
            SELECT k.key, NULL, NULL FROM limit_keys AS k WHERE k.kind = l.kind AND k.name = l.name AND k.is_own
          ) AS each
          GROUP BY each.key
        ) AS queued
        LEFT JOIN LATERAL (
          SELECT json_build_object(
            'concurrency', k.concurrency, 'rate', k.rate, 'rateMs', k.rate_ms, 'burst', k.burst
          ) AS own
          FROM limit_keys AS k WHERE k.kind = l.kind AND k.name = l.name AND k.key = queued.key AND k.is_own
        ) AS own ON true
      ) AS key
    ) AS used
    WHERE (p_kind IS NULL OR l.kind = p_kind) AND (p_name IS NULL OR l.name = p_name)
  );
END
$$;

-- Returns when live locks that keep visible work from being claimed run out, the first and the last of each queue; null
-- without one. A process that has just begun looks at these times: their holders may have died before it could learn of
-- them.
--
-- An activity with a session is claimable when its own lock and that of its session have run out. Pauses of instances
-- are left out: dx_read_next_due has them.
--
-- Bound: the 1,000 oldest visible rows of each route, 10,000 of each queue, and a look at the lock of the instance or
-- session of each: 30 ms at most. Claims take the oldest rows, so these are the locked ones. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_locks(p_now_ms bigint DEFAULT NULL) RETURNS TABLE (
  out_now_ms bigint,
  out_orchestrator_first_ms bigint, out_orchestrator_last_ms bigint, out_worker_first_ms bigint,
  out_worker_last_ms bigint
) LANGUAGE plpgsql STABLE
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
BEGIN
  out_now_ms := v_now_ms;

  WITH held AS (
    SELECT greatest(
      head.locked_until,
      (
        SELECT l.locked_until FROM instance_locks AS l
        WHERE l.instance_id = head.instance_id AND l.lock_token <> ''
      )
    ) AS until_ms
    FROM (
      SELECT message.* FROM dx_routes_of_messages() AS present
      CROSS JOIN LATERAL (
        SELECT q.instance_id, q.locked_until FROM orchestrator_queue AS q
        WHERE q.route = present.route AND q.visible_at <= v_now
        ORDER BY q.visible_at, q.id LIMIT 1000
      ) AS message
      LIMIT 10000
    ) AS head
  )
  SELECT min(held.until_ms), max(held.until_ms)
  INTO out_orchestrator_first_ms, out_orchestrator_last_ms
  FROM held WHERE held.until_ms > v_now_ms;

  -- Each condition on the session fits one index only.
  WITH held AS (
    (
      SELECT activity.locked_until AS until_ms FROM dx_routes_of_activities() AS present
      CROSS JOIN LATERAL (
        SELECT w.locked_until FROM worker_queue AS w
        WHERE w.session_id IS NULL AND w.route = present.route AND w.visible_at <= v_now
        ORDER BY w.visible_at, w.id LIMIT 1000
      ) AS activity
      LIMIT 10000
    )
    UNION ALL
    SELECT greatest(
      head.locked_until, (SELECT s.locked_until FROM sessions AS s WHERE s.session_id = head.session_id)
    )
    FROM (
      SELECT activity.* FROM dx_routes_of_sessions() AS present
      CROSS JOIN LATERAL (
        SELECT w.session_id, w.locked_until FROM worker_queue AS w
        WHERE num_nulls(w.session_id) = 0 AND w.route = present.route AND w.visible_at <= v_now
        ORDER BY w.visible_at, w.id LIMIT 1000
      ) AS activity
      LIMIT 10000
    ) AS head
  )
  SELECT min(held.until_ms), max(held.until_ms) INTO out_worker_first_ms, out_worker_last_ms
  FROM held WHERE held.until_ms > v_now_ms;

  RETURN NEXT;
END
$$;

-- Returns what is paused besides single instances, as an array: [{target, name, version, reason, sinceMs}].
--
-- Bound: the rows of these targets. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_paused(
  p_targets text[] DEFAULT '{orchestration,activity,tag,everything}'
) RETURNS json LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
  SELECT COALESCE(
    json_agg(
      json_build_object(
        'target', p.target, 'name', p.name, 'version', p.version, 'reason', p.reason,
        'sinceMs', floor(extract(epoch FROM p.since) * 1000)::bigint
      )
      ORDER BY p.since, p.target, p.name, p.version
    ),
    '[]'
  )
  FROM paused AS p WHERE p.target = ANY (p_targets)
$$;

-- Returns when something happens next in each queue by the passing of time alone: the first moment, later than now, at
-- which a row becomes visible or a pause ends. Null: nothing is due.
--
-- Locks that processes hold are left out, as finding the first to run out would read the whole queue: other processes
-- learn from their holders when they run out. Messages to instances that Duroxide runs are left out, too.
--
-- Bound: two looks per route that has rows, however many rows wait or are visible; one look at the pauses, and the rows
-- of limits. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_next_due(p_now_ms bigint DEFAULT NULL) RETURNS TABLE (
  out_now_ms bigint, out_orchestrator_ms bigint, out_worker_ms bigint,
  out_paused json                  -- of dx_read_paused: so that a process that lost a notification learns of it
) LANGUAGE plpgsql STABLE
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
BEGIN
  SELECT ceil(extract(epoch FROM min(
    (
      SELECT q.visible_at FROM orchestrator_queue AS q
      WHERE q.route = present.route AND q.visible_at > v_now AND q.visible_at < 'infinity'
      ORDER BY q.visible_at, q.id LIMIT 1
    )
  )) * 1000)
  INTO out_orchestrator_ms
  FROM dx_routes_of_messages() AS present WHERE NOT starts_with(present.route, '0.');

  out_orchestrator_ms := least(
    out_orchestrator_ms,
    (
      SELECT l.locked_until FROM instance_locks AS l
      WHERE l.lock_token = '' AND l.locked_until > v_now_ms AND l.locked_until < dx_no_end()
      ORDER BY l.locked_until LIMIT 1
    )
  );

  -- A token of a limit is back.
  out_orchestrator_ms := least(
    out_orchestrator_ms,
    (SELECT min(l.next_ms) FROM limits AS l WHERE l.kind = 'orchestration' AND l.next_ms > v_now_ms)
  );

  -- Each condition on the session fits one index only.
  -- WITH, because over a subquery the planner also plans min as the first row of an index: 10 microseconds for nothing.
  WITH due AS (
    SELECT (
      SELECT w.visible_at FROM worker_queue AS w
      WHERE w.session_id IS NULL
        AND w.route = present.route
        AND w.visible_at > v_now
        AND w.visible_at < 'infinity'
      ORDER BY w.visible_at, w.id LIMIT 1
    ) AS visible_at
    FROM dx_routes_of_activities() AS present
    UNION ALL
    SELECT (
      SELECT w.visible_at FROM worker_queue AS w
      WHERE num_nulls(w.session_id) = 0
        AND w.route = present.route
        AND w.visible_at > v_now
        AND w.visible_at < 'infinity'
      ORDER BY w.visible_at, w.id LIMIT 1
    )
    FROM dx_routes_of_sessions() AS present
  )
  SELECT ceil(extract(epoch FROM min(due.visible_at)) * 1000) INTO out_worker_ms FROM due;
  -- A token of a limit is back.
  out_worker_ms := least(
    out_worker_ms,
    (SELECT min(l.next_ms) FROM limits AS l WHERE l.kind = 'activity' AND l.next_ms > v_now_ms)
  );
  out_paused := dx_read_paused();
  out_now_ms := v_now_ms;
  RETURN NEXT;
END
$$;

-- Returns one row: the messages of the outbox that were not sent, of each queue the p_limit that are due first.
-- Bound: p_limit rows of each of up to 1,000 queues. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_outbox(
  p_limit integer,                 -- rows, >= 1
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_waiting bigint,              -- due, and not failed so far
  out_delayed bigint,              -- due later
  out_failing bigint,              -- the last try failed
  out_oldest_age_ms bigint         -- since the oldest that waits was due, or one that fails was written; 0 without any
) LANGUAGE plpgsql STABLE
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
  v_queue text := '';
  v_oldest timestamptz := v_now;
  v_row record;
BEGIN
  out_waiting := 0;
  out_delayed := 0;
  out_failing := 0;
  FOR i IN 1..1000 LOOP
    SELECT o.queue INTO v_row FROM queue_outbox AS o
    WHERE o.sent_at IS NULL AND o.queue > v_queue
    ORDER BY o.queue, o.deliver_at, o.id LIMIT 1;
    EXIT WHEN NOT FOUND;
    v_queue := v_row.queue;
    SELECT
      count(*) FILTER (WHERE waiting.last_error IS NULL AND waiting.deliver_at <= v_now) AS waiting,
      count(*) FILTER (WHERE waiting.last_error IS NULL AND waiting.deliver_at > v_now) AS delayed,
      count(*) FILTER (WHERE waiting.last_error IS NOT NULL) AS failing,
      min(
        CASE
          WHEN waiting.last_error IS NOT NULL THEN waiting.created_at
          WHEN waiting.deliver_at <= v_now THEN greatest(waiting.deliver_at, 'epoch')
        END
      ) AS oldest
    INTO v_row
    FROM (
      SELECT o.deliver_at, o.created_at, o.last_error FROM queue_outbox AS o
      WHERE o.sent_at IS NULL AND o.queue = v_queue
      ORDER BY o.deliver_at, o.id LIMIT p_limit
    ) AS waiting;
    out_waiting := out_waiting + v_row.waiting;
    out_delayed := out_delayed + v_row.delayed;
    out_failing := out_failing + v_row.failing;
    v_oldest := least(v_oldest, v_row.oldest);
  END LOOP;
  out_oldest_age_ms := v_now_ms - floor(extract(epoch FROM v_oldest) * 1000)::bigint;
  RETURN NEXT;
END
$$;

-- Lists the processes that have a row, and whether they live: their session that listens holds the advisory lock of the
-- row or, for those that do not listen, they have written it within three minutes (dx_register_process).
--
-- A standby does not know the locks of its primary: there, a process that listens lives until it is found dead.
--
-- The slots in use of a process that listens are in the text of its heartbeats, which this role may see of its own
-- sessions or as a member of pg_read_all_stats. Else they are those of the last write, in the last three minutes.
-- Bound: the rows of processes, and one look at the locks and the sessions of the server. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_processes(p_now_ms bigint DEFAULT NULL) RETURNS TABLE (
  out_id uuid, out_build text, out_host text, out_pid integer,
  out_orchestrations text[],       -- name@version
  out_activities text[],
  out_untagged boolean,            -- whether it takes activities without a tag
  out_tags text[],                 -- and with these; null: with any
  out_orchestration_slots integer, -- this and the next: null without a limit
  out_activity_slots integer, out_since_ms bigint, out_seen_ms bigint, out_listens boolean, out_is_alive boolean,
  out_orchestrations_in_use integer, out_activities_in_use integer,
  out_in_use_ms bigint             -- when it said these two; null where that is not known
) LANGUAGE plpgsql STABLE
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
  v_is_standby boolean := pg_is_in_recovery();
BEGIN
  RETURN QUERY
  WITH held AS MATERIALIZED (
    SELECT (l.classid::bigint << 32) | l.objid::bigint AS key, l.pid
    FROM pg_locks AS l
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
      AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
  ),
  seen AS (
    SELECT
      p.*,
      CASE
        WHEN NOT p.listens THEN p.seen_at > v_now - interval '3 minutes'
        WHEN v_is_standby THEN p.found_dead_at IS NULL
        ELSE dx_process_key(p.id) IN (SELECT held.key FROM held)
      END AS is_alive
    FROM processes AS p
  ),
  said AS (
    SELECT DISTINCT ON (a.id) a.id, a.words[1]::integer AS orchestrations, a.words[2]::integer AS activities, a.said_at
    FROM (
      SELECT s.id, b.query_start AS said_at, regexp_match(b.query, ' ' || held.key || '=([0-9]+)/([0-9]+)') AS words
      FROM seen AS s
      JOIN held ON held.key = dx_process_key(s.id)
      JOIN pg_stat_activity AS b ON b.pid = held.pid
      WHERE s.listens
    ) AS a
    WHERE a.words IS NOT NULL
    ORDER BY a.id, a.said_at DESC
  ),
  used AS (
    SELECT
      s.id, COALESCE(d.orchestrations, s.orchestrations_in_use) AS orchestrations,
      COALESCE(d.activities, s.activities_in_use) AS activities, COALESCE(d.said_at, s.seen_at) AS said_at
    FROM seen AS s
    LEFT JOIN said AS d ON d.id = s.id
    WHERE s.is_alive AND (d.id IS NOT NULL OR s.orchestrations_in_use IS NOT NULL)
      AND COALESCE(d.said_at, s.seen_at) > v_now - interval '3 minutes'
  )
  SELECT
    s.id, s.build, s.host, s.pid, s.orchestrations, s.activities, s.untagged, s.tags, s.orchestration_slots,
    s.activity_slots, floor(extract(epoch FROM s.since) * 1000)::bigint,
    floor(extract(epoch FROM CASE WHEN s.listens AND s.is_alive THEN v_now ELSE s.seen_at END) * 1000)::bigint,
    s.listens, s.is_alive, u.orchestrations, u.activities, floor(extract(epoch FROM u.said_at) * 1000)::bigint
  FROM seen AS s
  LEFT JOIN used AS u ON u.id = s.id
  ORDER BY s.since, s.id;
END
$$;

-- Returns the custom status, its version and the value of one key of each item whose instance has ended, or is
-- elsewhere than the caller knows it to be: in another execution, or with another last event.
--
-- Returns one row per such item, in order. The rows have about p_max_bytes of texts, at least one row if there is such
-- an item. If all of them have out_is_last, no later item has anything new.
-- Bound: three index lookups per item; for those that are returned also that of the value. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_progress(
  p_items jsonb,                   -- [{instance_id, key, execution_id, last_event_id}]; a key of null reads no value
  p_max_bytes bigint
) RETURNS TABLE (
  out_index integer,               -- among the items, from 1
  out_execution_id bigint,
  out_last_event_id bigint,        -- of the current execution; 0 without a history
  out_custom_status text, out_custom_status_version integer, out_value text, out_has_ended boolean,
  out_is_of_rust boolean,          -- the current execution is not pinned, or to a version of Duroxide in Rust
  out_is_last boolean
) LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
  RETURN QUERY
  SELECT
    part.position::integer, part.current_execution_id, part.event_id, part.custom_status, part.custom_status_version,
    part.value, part.has_ended, part.is_of_rust, part.is_last
  FROM (
    SELECT sized.*, max(sized.before) OVER () < p_max_bytes AS is_last
    FROM (
      SELECT moved.*, value.value, sum(text.bytes) OVER (ORDER BY moved.position) - text.bytes AS before
      FROM (
        SELECT item.position, item.instance_id, item.key, i.*, e.*, h.*
        FROM ROWS FROM (
          jsonb_to_recordset(p_items) AS (instance_id text, key text, execution_id bigint, last_event_id bigint)
        ) WITH ORDINALITY AS item (instance_id, key, execution_id, last_event_id, position)
        CROSS JOIN LATERAL (
          SELECT i.current_execution_id, i.custom_status, i.custom_status_version
          FROM instances AS i WHERE i.instance_id = item.instance_id
          OFFSET 0
        ) AS i
        CROSS JOIN LATERAL (
          SELECT
            COALESCE(bool_or(e.status IN ('Completed', 'Failed')), false) AS has_ended,
            COALESCE(max(e.duroxide_version_major) < 1000, count(*) > 0) AS is_of_rust
          FROM executions AS e
          WHERE e.instance_id = item.instance_id AND e.execution_id = i.current_execution_id
        ) AS e
        CROSS JOIN LATERAL (
          SELECT COALESCE(max(h.event_id), 0) AS event_id FROM history AS h
          WHERE h.instance_id = item.instance_id AND h.execution_id = i.current_execution_id
        ) AS h
        WHERE e.has_ended OR i.current_execution_id <> item.execution_id OR h.event_id <> item.last_event_id
        OFFSET 0 -- values are read only of those that are returned
      ) AS moved
      CROSS JOIN LATERAL (
        -- As in dx_read_key_values, which would read all keys of the instance for one.
        SELECT (
          SELECT v.value
          FROM (
            SELECT 1 AS rank, d.value FROM kv_delta AS d
            WHERE d.instance_id = moved.instance_id AND d.key = moved.key
            UNION ALL
            SELECT 2, s.value FROM kv_store AS s
            WHERE s.instance_id = moved.instance_id AND s.key = moved.key
          ) AS v
          ORDER BY v.rank LIMIT 1
        ) AS value
        OFFSET 0
      ) AS value
      CROSS JOIN LATERAL (
        SELECT COALESCE(octet_length(moved.custom_status), 0) + COALESCE(octet_length(value.value), 0) AS bytes
      ) AS text
    ) AS sized
  ) AS part
  WHERE part.before < p_max_bytes
  ORDER BY part.position;
END
$$;

-- Counts the messages of a queue: all, or the first p_limit in the order of their visibility, and as many dead letters.
--
-- Returns one row; out_oldest_ms is how long the oldest visible message has been visible, null without one.
-- Bound: p_limit messages and dead letters of the queue; null: all. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_queue_depth(
  p_queue text,
  p_limit integer DEFAULT NULL,    -- rows, >= 1; null: all
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_visible bigint, out_delayed bigint, out_in_flight bigint, out_dead bigint, out_oldest_ms bigint
) LANGUAGE plpgsql STABLE
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
BEGIN
  RETURN QUERY
  SELECT
    count(*) FILTER (WHERE m.visible_at <= v_now),
    count(*) FILTER (WHERE m.visible_at > v_now AND m.lease_token IS NULL),
    count(*) FILTER (WHERE m.visible_at > v_now AND m.lease_token IS NOT NULL),
    (SELECT count(*) FROM (SELECT FROM queue_dead AS d WHERE d.queue = p_queue LIMIT p_limit) AS dead),
    floor(extract(epoch FROM v_now - min(m.visible_at) FILTER (WHERE m.visible_at <= v_now)) * 1000)::bigint
  FROM (
    SELECT message.visible_at, message.lease_token FROM queue_messages AS message
    WHERE message.queue = p_queue
    ORDER BY message.visible_at LIMIT p_limit
  ) AS m;
END
$$;

-- Reads what became of the last occurrences of a schedule, the newest first.
--
-- Bound: p_limit rows. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_schedule_runs(p_name text, p_limit integer) RETURNS json LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
  SELECT COALESCE(json_agg(json_build_object(
    'number', r.number, 'kind', r.kind, 'occurrenceMs', floor(extract(epoch FROM r.occurrence_at) * 1000)::bigint,
    'missedSinceMs', floor(extract(epoch FROM r.missed_since) * 1000)::bigint, 'outcome', r.outcome,
    'note', r.note, 'instanceId', r.instance_id, 'taskId', r.task_id,
    'settledMs', floor(extract(epoch FROM r.settled_at) * 1000)::bigint
  ) ORDER BY r.number DESC), '[]')
  FROM (
    SELECT r.* FROM schedule_runs AS r WHERE r.schedule_name = p_name ORDER BY r.number DESC LIMIT p_limit
  ) AS r
$$;

-- Reads schedules by name in order, with their last run that is known. Only that of one name has its payload.
--
-- Returns {nowMs, schedules: [...]}. Bound: p_limit schedules. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_schedules(
  p_name text,                     -- null: all
  p_after text,                    -- those after this name; null: from the first
  p_limit integer, p_now_ms bigint DEFAULT NULL
) RETURNS json LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
  SELECT json_build_object(
    'nowMs', COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint),
    'schedules', COALESCE(json_agg(json_build_object(
      'name', s.name, 'definition', s.definition, 'hasPayload', s.payload IS NOT NULL,
      'payload', CASE WHEN p_name IS NOT NULL THEN s.payload END,
      'createdMs', floor(extract(epoch FROM s.created_at) * 1000)::bigint,
      'updatedMs', floor(extract(epoch FROM s.updated_at) * 1000)::bigint,
      'firedUntilMs', floor(extract(epoch FROM s.fired_until) * 1000)::bigint,
      'lookMs', floor(extract(epoch FROM s.look_at) * 1000)::bigint,
      'pausedMs', floor(extract(epoch FROM s.paused_at) * 1000)::bigint, 'pauseReason', s.pause_reason,
      'queued', s.queued, 'requests', jsonb_array_length(s.requests),
      'isRunning', dx_is_schedule_running(s.last_instance_id, s.last_task_id), 'lastRun', s.last_run
    ) ORDER BY s.name), '[]')
  )
  FROM (
    SELECT s.*, (
      SELECT json_build_object(
        'number', r.number, 'kind', r.kind, 'occurrenceMs', floor(extract(epoch FROM r.occurrence_at) * 1000)::bigint,
        'missedSinceMs', floor(extract(epoch FROM r.missed_since) * 1000)::bigint, 'outcome', r.outcome,
        'note', r.note, 'instanceId', r.instance_id, 'taskId', r.task_id,
        'settledMs', floor(extract(epoch FROM r.settled_at) * 1000)::bigint
      )
      FROM schedule_runs AS r
      WHERE r.schedule_name = s.name
      ORDER BY r.number DESC
      LIMIT 1
    ) AS last_run
    FROM schedules AS s
    WHERE (p_name IS NULL OR s.name = p_name) AND (p_after IS NULL OR s.name > p_after)
    ORDER BY s.name
    LIMIT p_limit
  ) AS s
$$;

-- Returns the streams of an instance, by name.
-- Bound: the streams of the instance. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_streams(p_instance_id text) RETURNS TABLE (
  out_name text, out_first_offset bigint, out_next_offset bigint,
  out_bytes bigint,                -- of the chunks that are kept
  out_appended_at_ms bigint        -- when the last one was appended
) LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
  SELECT
    s.name, s.first_offset, s.next_offset, s.next_bytes - s.first_bytes,
    floor(extract(epoch FROM s.appended_at) * 1000)::bigint
  FROM progress_streams AS s WHERE s.instance_id = p_instance_id
  ORDER BY s.name COLLATE "C"
$$;

-- Returns the newest versions of a data set, the newest first: [{version, status, isActive, recordCount, batchCount,
-- committedBatchCount, createdMs, committedMs}]; null without the data set. recordCount and committedMs are null until
-- the version is committed.
-- Bound: p_limit versions and their batches. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_versions(
  p_dataset_uuid uuid,
  p_limit integer                  -- versions, >= 1
) RETURNS jsonb LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
  RETURN (
    SELECT COALESCE(
      (
        SELECT jsonb_agg(
          jsonb_build_object(
            'version', version.dataset_version, 'status', version.status,
            'isActive', version.dataset_version IS NOT DISTINCT FROM d.active_version,
            'recordCount', version.record_count, 'batchCount', counted.batches,
            'committedBatchCount', counted.committed,
            'createdMs', floor(extract(epoch FROM version.created_at) * 1000)::bigint,
            'committedMs', floor(extract(epoch FROM version.committed_at) * 1000)::bigint
          )
          ORDER BY version.dataset_version DESC
        )
        FROM (
          SELECT v.* FROM queue_dataset_versions AS v
          WHERE v.dataset_uuid = d.dataset_uuid
          ORDER BY v.dataset_version DESC LIMIT p_limit
        ) AS version
        CROSS JOIN LATERAL (
          SELECT count(*) AS batches, count(*) FILTER (WHERE b.status = 'Committed') AS committed
          FROM queue_dataset_batches AS b
          WHERE b.dataset_uuid = version.dataset_uuid AND b.dataset_version = version.dataset_version
        ) AS counted
      ),
      '[]'
    )
    FROM queue_datasets AS d WHERE d.dataset_uuid = p_dataset_uuid
  );
END
$$;

-- Leases up to p_limit visible messages of a queue, those that have been visible longest first. A message that was
-- delivered max_attempts times already moves to the dead letters instead.
--
-- Returns one row: arrays with one element per message, how many died, the time of the statement, and the time of the
-- message that becomes visible next, null without one. If that time has passed, another transaction holds the message,
-- or the limit was reached.
-- Bound: p_limit rows that are leased, p_limit + 100 that die, and the visible ones that other transactions hold.
-- Messages under a lease or a delay are not read. Locks: messages, without waiting.
CREATE OR REPLACE FUNCTION dx_receive_messages(
  p_limit integer, p_queue text,
  p_token text,                    -- of the lease; its receipts are `<id>.<token>`
  p_lease_ms bigint, p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_ids bigint[], out_payloads text[], out_attempts integer[], out_died integer, out_now_ms bigint,
  out_next_ms bigint
) LANGUAGE plpgsql
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
  v_locked bigint[];
  v_dead bigint[];
BEGIN
  out_died := 0;
  LOOP
    SELECT
      array_agg(locked.id) FILTER (WHERE NOT locked.is_dead),
      array_agg(locked.id) FILTER (WHERE locked.is_dead)
    INTO v_locked, v_dead
    FROM (
      SELECT m.id, m.attempts >= m.max_attempts AS is_dead FROM queue_messages AS m
      WHERE m.queue = p_queue AND m.visible_at <= v_now
      ORDER BY m.visible_at, m.id LIMIT p_limit FOR UPDATE SKIP LOCKED
    ) AS locked;
    EXIT WHEN v_dead IS NULL;
    PERFORM dx_bury_messages(v_dead, NULL, v_now);
    out_died := out_died + cardinality(v_dead);
    -- Others stand behind the dead ones.
    EXIT WHEN v_locked IS NOT NULL OR out_died >= 100;
  END LOOP;

  WITH leased AS (
    UPDATE queue_messages AS m
    SET lease_token = p_token, visible_at = to_timestamp((v_now_ms + p_lease_ms)::float8 / 1000),
        attempts = m.attempts + 1
    WHERE m.id = ANY (v_locked)
    RETURNING m.id, m.payload, m.attempts
  )
  SELECT
    array_agg(leased.id ORDER BY leased.id), array_agg(leased.payload::text ORDER BY leased.id),
    array_agg(leased.attempts ORDER BY leased.id)
  INTO out_ids, out_payloads, out_attempts
  FROM leased;

  out_now_ms := v_now_ms;
  -- A full receive is followed by another one at once.
  out_next_ms := v_now_ms;
  IF COALESCE(cardinality(v_locked), 0) < p_limit THEN
    out_next_ms := (
      SELECT ceil(extract(epoch FROM m.visible_at) * 1000)::bigint FROM queue_messages AS m
      WHERE m.queue = p_queue
        AND m.visible_at < 'infinity' -- never
      ORDER BY m.visible_at, m.id LIMIT 1
    );
  END IF;
  RETURN NEXT;
END
$$;

-- Moves dead messages back into their queue, the oldest first: visible at once, with no delivery counted. Their
-- last_error stays.
--
-- Returns the number of messages. Bound: p_limit rows and those that other transactions hold. Locks: dead messages,
-- without waiting.
CREATE OR REPLACE FUNCTION dx_redrive_messages(p_queue text, p_limit integer, p_now_ms bigint DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql
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
  v_ids bigint[];
  v_count bigint;
BEGIN
  SELECT array_agg(locked.id) INTO v_ids
  FROM (
    SELECT d.id FROM queue_dead AS d
    WHERE d.queue = p_queue
    ORDER BY d.died_at, d.id LIMIT p_limit FOR UPDATE SKIP LOCKED
  ) AS locked;

  WITH revived AS (DELETE FROM queue_dead AS d WHERE d.id = ANY (v_ids) RETURNING d.*)
  INSERT INTO queue_messages (id, queue, payload, created_at, visible_at, max_attempts, last_error)
  SELECT revived.id, revived.queue, revived.payload, revived.created_at, v_now, revived.max_attempts, revived.last_error
  FROM revived
  ORDER BY revived.id;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  IF v_count > 0 AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
    PERFORM dx_hint('m ' || p_queue);
  END IF;
  RETURN v_count;
END
$$;

-- Gives dead tasks their attempts again: each waits for its next attempt, with a row of the outbox that wakes it. The
-- execution that waited for such a task knows that it is dead, and receives nothing more.
--
-- Returns the ids of the redriven tasks, the ones that died first. Bound: p_limit tasks. Locks: the tasks; those that
-- are locked are skipped.
CREATE OR REPLACE FUNCTION dx_redrive_tasks(
  p_ids text[],                    -- null: all
  p_name text,                     -- only tasks of this name; null: of every name
  p_limit integer,                 -- tasks, >= 1
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
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
  v_ids uuid[];
BEGIN
  IF p_ids IS NULL THEN
    v_ids := ARRAY(
      SELECT t.id FROM queue_tasks AS t
      WHERE t.dead_at IS NOT NULL AND (p_name IS NULL OR t.name = p_name)
      ORDER BY t.dead_at, t.id LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED
    );
  ELSE
    -- dead_at IS NOT NULL would lead to the index of all that are dead.
    v_ids := ARRAY(
      SELECT t.id FROM queue_tasks AS t
      WHERE t.id = ANY (ARRAY(SELECT dx_task_id(given.id) FROM unnest(p_ids) AS given (id)))
        AND num_nulls(t.dead_at) = 0
        AND (p_name IS NULL OR t.name = p_name)
      ORDER BY t.id LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED
    );
  END IF;

  PERFORM dx_run_tasks_again(v_ids, v_now_ms);
  RETURN v_ids::text[];
END
$$;

-- Writes the row of a process, or that it still lives. Returns for how many milliseconds it counts as alive without
-- another call; null for one whose session that listens holds the lock of dx_process_key, as long as that is held.
--
-- With a new row, it notes which processes are dead, and deletes those that were found dead more than a day ago.
-- Bound: the row; with a new one, what dx_read_processes reads. Locks: the row; rows of dead processes (skip locked).
CREATE OR REPLACE FUNCTION dx_register_process(
  -- {id, build, host, pid, orchestrations, activities, untagged, tags, orchestration_slots, activity_slots, listens,
  --  slots_in_use: {orchestrations, activities}}
  p_process jsonb, p_now_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql
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
  v_id uuid := (p_process ->> 'id')::uuid;
  v_listens boolean := (p_process ->> 'listens')::boolean;
BEGIN
  UPDATE processes AS p
  SET seen_at = v_now, listens = v_listens, found_dead_at = NULL,
      orchestrations_in_use = (p_process #>> '{slots_in_use,orchestrations}')::integer,
      activities_in_use = (p_process #>> '{slots_in_use,activities}')::integer
  WHERE p.id = v_id;
  IF NOT FOUND THEN
    INSERT INTO processes (
      id, build, host, pid, orchestrations, activities, untagged, tags, orchestration_slots, activity_slots, since,
      seen_at, listens, orchestrations_in_use, activities_in_use
    )
    VALUES (
      v_id, p_process ->> 'build', p_process ->> 'host', (p_process ->> 'pid')::integer,
      ARRAY(SELECT jsonb_array_elements_text(p_process -> 'orchestrations')),
      ARRAY(SELECT jsonb_array_elements_text(p_process -> 'activities')),
      (p_process ->> 'untagged')::boolean,
      CASE
        WHEN jsonb_typeof(p_process -> 'tags') = 'array'
        THEN ARRAY(SELECT jsonb_array_elements_text(p_process -> 'tags'))
      END,
      (p_process ->> 'orchestration_slots')::integer, (p_process ->> 'activity_slots')::integer, v_now, v_now, v_listens,
      (p_process #>> '{slots_in_use,orchestrations}')::integer, (p_process #>> '{slots_in_use,activities}')::integer
    )
    ON CONFLICT DO NOTHING;

    WITH dead AS (
      SELECT p.id
      FROM processes AS p
      WHERE p.id IN (SELECT r.out_id FROM dx_read_processes(v_now_ms) AS r WHERE NOT r.out_is_alive) AND p.id <> v_id
      ORDER BY p.id
      FOR UPDATE SKIP LOCKED
    ),
    passed AS (
      DELETE FROM processes AS p USING dead
      WHERE p.id = dead.id AND p.found_dead_at < v_now - interval '1 day'
    )
    UPDATE processes AS p SET found_dead_at = v_now FROM dead WHERE p.id = dead.id AND p.found_dead_at IS NULL;
  END IF;
  RETURN CASE WHEN NOT v_listens THEN 180000 END;
END
$$;

-- Releases the activities that wait for a slot of a limit which was removed. A part of dx_remove_limit. Announces it to
-- all processes.
--
-- Bound: the queued activities of the name. Locks: worker rows by id.
CREATE OR REPLACE FUNCTION dx_release_activities(p_name text, p_now timestamptz) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  UPDATE worker_queue AS w SET visible_at = least(w.created_at, p_now), limit_name = NULL
  WHERE w.id = ANY (ARRAY(
    SELECT parked.id FROM worker_queue AS parked
    WHERE parked.limit_name IS NOT NULL AND parked.visible_at = 'infinity' AND parked.limit_name = p_name
    ORDER BY parked.id
  ));
  PERFORM dx_notify('worker_work', ARRAY[p_now]);
END
$$;

-- Lets the instances begin that wait for a slot of a limit which was removed. A part of dx_remove_limit. Announces it
-- to all processes. Those that run keep its name: where it is set again, they count again.
--
-- Bound: the instances that wait, and their messages. Locks: these instances (skip locked; claims release the others),
-- then their messages.
CREATE OR REPLACE FUNCTION dx_release_limited_instances(p_name text, p_now timestamptz) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  PERFORM dx_unpark_instances(
    ARRAY(
      SELECT i.instance_id FROM instances AS i
      WHERE (i.status = 'Running') IS TRUE AND i.limit_route IS NOT NULL AND i.limit_name = p_name
      FOR UPDATE SKIP LOCKED
    ),
    false
  );
  PERFORM dx_notify('orch_work', ARRAY[p_now]);
END
$$;

-- Wakes the tasks that wait for a slot of a limit, which was removed: from now on they have none. A part of
-- dx_remove_limit.
--
-- One that another transaction has locked stays as it is; its wake-up finds that it has no limit.
-- Bound: the tasks of the name that have not ended. Locks: these tasks (skip locked).
CREATE OR REPLACE FUNCTION dx_release_tasks(p_name text, p_now_ms bigint) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
BEGIN
  INSERT INTO queue_outbox (queue, payload, created_at, deliver_at)
  SELECT t.queue, dx_wakeup_of(t.id, t.wakeup), v_now, v_now FROM queue_tasks AS t
  WHERE t.has_slot IS NOT NULL AND t.name = p_name AND NOT t.has_slot AND t.run_at <= v_now
  ORDER BY t.run_at, t.id;
  UPDATE queue_tasks AS t SET has_slot = NULL
  WHERE t.id = ANY (ARRAY(
    SELECT limited.id FROM queue_tasks AS limited
    WHERE limited.has_slot IS NOT NULL AND limited.name = p_name
    FOR NO KEY UPDATE SKIP LOCKED
  ));
END
$$;

-- Removes the limits of a definition, with those of its keys, and releases all that wait for a slot. What a statement
-- under way stores for one, the next claims release.
--
-- Returns whether there was a limit. That of an activity or orchestration is announced to all processes.
-- Bound, locks: as dx_set_limit.
CREATE OR REPLACE FUNCTION dx_remove_limit(
  p_kind text,                     -- as in dx_set_limit
  p_name text, p_now_ms bigint DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql
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
BEGIN
  PERFORM pg_advisory_xact_lock(dx_limit_lock(p_kind, p_name));
  DELETE FROM limits AS l WHERE l.kind = p_kind AND l.name = p_name;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  DELETE FROM limit_keys AS k WHERE k.kind = p_kind AND k.name = p_name;
  IF p_kind = 'activity' THEN
    PERFORM dx_release_activities(p_name, v_now);
  ELSIF p_kind = 'task' THEN
    PERFORM dx_release_tasks(p_name, v_now_ms);
  ELSIF p_kind = 'orchestration' THEN
    PERFORM dx_release_limited_instances(p_name, v_now);
  END IF;
  RETURN true;
END
$$;

-- Deletes the row of a process that closes. Returns whether there was one.
-- Bound: the row. Locks: the row.
CREATE OR REPLACE FUNCTION dx_remove_process(p_id uuid) RETURNS boolean LANGUAGE sql
SET search_path FROM CURRENT
AS $$
  WITH removed AS (DELETE FROM processes AS p WHERE p.id = p_id RETURNING p.id)
  SELECT EXISTS (SELECT FROM removed)
$$;

-- Extends locks, and those of their messages, to now + extend_for_ms. An expired lock becomes live again if no other
-- process has taken over, so that an outage of the database alone costs no process its work.
--
-- Returns one outcome per item, in order: Done, or LockLost if the token is unknown, superseded or settled.
-- Bound: the batches of these locks. Locks: instance locks by instance; queue rows of the batches.
CREATE OR REPLACE FUNCTION dx_renew_orchestration_item_locks(
  p_items jsonb,                   -- [{token, extend_for_ms}]
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
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
  v_outcomes text[] := array_fill('LockLost'::text, ARRAY[jsonb_array_length(p_items)]);
  v_instances text[] := '{}';
  v_secrets text[] := '{}';
  v_claimed_ms bigint[] := '{}';
  v_until_ms bigint[] := '{}';
  v_end_ms bigint;
  v_lock record;
  v_previous text;
BEGIN
  FOR v_lock IN
    SELECT a.position, v_now_ms + a.extend_for_ms AS until_ms, l.instance_id, l.lock_token, l.locked_at
    FROM ROWS FROM (jsonb_to_recordset(p_items) AS (token text, extend_for_ms bigint))
      WITH ORDINALITY AS a (token, extend_for_ms, position)
    JOIN instance_locks AS l ON l.instance_id = substr(a.token, 38)
    WHERE l.lock_token = left(a.token, 36)
    ORDER BY l.instance_id COLLATE "C", a.position DESC -- of two renewals of one lock the last counts
    FOR UPDATE OF l
  LOOP
    v_outcomes[v_lock.position] := 'Done';
    CONTINUE WHEN v_lock.instance_id = v_previous;
    v_previous := v_lock.instance_id;
    v_instances := v_instances || v_lock.instance_id;
    v_secrets := v_secrets || v_lock.lock_token;
    v_claimed_ms := v_claimed_ms || v_lock.locked_at;
    v_until_ms := v_until_ms || v_lock.until_ms;
  END LOOP;

  UPDATE instance_locks AS l SET locked_until = a.until_ms
  FROM unnest(v_instances, v_until_ms) AS a (instance_id, until_ms)
  WHERE l.instance_id = a.instance_id;

  -- As a rule one round: all locks of a process are extended by the same time. Not a plain join: planned while
  -- statistics call the queue empty, it would read all of it.
  FOR v_end_ms IN SELECT DISTINCT item.until_ms FROM unnest(v_until_ms) AS item (until_ms) LOOP
    UPDATE orchestrator_queue AS q SET locked_until = v_end_ms
    WHERE q.id = ANY (ARRAY(
      SELECT message.id
      FROM unnest(v_instances, v_secrets, v_claimed_ms, v_until_ms)
        AS claimed (instance_id, lock_token, locked_at, until_ms)
      CROSS JOIN LATERAL (
        SELECT m.id FROM orchestrator_queue AS m
        WHERE m.instance_id = claimed.instance_id
          AND m.due_at <= to_timestamp(claimed.locked_at::float8 / 1000)
          AND m.lock_token = claimed.lock_token
        OFFSET 0
      ) AS message
      WHERE claimed.until_ms = v_end_ms
    ));
  END LOOP;
  RETURN v_outcomes;
END
$$;

-- Extends the live session locks of these workers to now + p_extend_for_ms, if the session was active within
-- p_idle_timeout_ms.
--
-- Returns the number of extended locks. An expired lock is never extended; an idle timeout of 0 extends none. A session
-- that another transaction has locked is passed over: a wait for it would let the locks of the others run out.
-- Bound: the sessions of the workers. Locks: session rows by id (skip locked).
CREATE OR REPLACE FUNCTION dx_renew_session_locks(
  p_worker_ids text[],
  p_extend_for_ms bigint,          -- milliseconds, > 0
  p_idle_timeout_ms bigint,        -- milliseconds since the last activity, >= 0
  p_now_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_renewed bigint;
BEGIN
  UPDATE sessions AS s SET locked_until = v_now_ms + p_extend_for_ms
  FROM (
    SELECT active.session_id FROM sessions AS active
    WHERE active.worker_id = ANY (p_worker_ids)
      AND active.locked_until > v_now_ms
      AND active.last_activity_at > v_now_ms - p_idle_timeout_ms
    ORDER BY active.session_id COLLATE "C" FOR NO KEY UPDATE SKIP LOCKED
  ) AS live
  WHERE s.session_id = live.session_id;
  GET DIAGNOSTICS v_renewed = ROW_COUNT;
  RETURN v_renewed;
END
$$;

-- Extends leases of running attempts to now + lease_ms: their heartbeat. A lease that has ended is valid again if no
-- other attempt has begun.
--
-- Returns one outcome per item, in order: Done, or Lost if the attempt is not the task's newest one or no longer runs,
-- because the task has ended, was cancelled, or its execution has ended. Locked if another transaction has locked the
-- task, as that of its handler may have: its lease is as before, but no other attempt can begin while it is locked.
-- Bound: the rows given. Locks: the tasks, by id (skip locked).
CREATE OR REPLACE FUNCTION dx_renew_tasks(
  p_items jsonb,                   -- [{task_id, attempt, lease_ms}]
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
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
  v_outcomes text[] := array_fill('Lost'::text, ARRAY[jsonb_array_length(p_items)]);
  v_ids uuid[] := '{}';
  v_until_ms bigint[] := '{}';
  v_cancelled uuid[] := '{}';
  v_row record;
BEGIN
  -- Read without a lock first: a row that another transaction has locked is not lost.
  FOR v_row IN
    SELECT item.position
    FROM ROWS FROM (jsonb_to_recordset(p_items) AS (task_id uuid, attempt integer))
      WITH ORDINALITY AS item (task_id, attempt, position)
    CROSS JOIN LATERAL (
      SELECT FROM queue_tasks AS t
      WHERE t.id = item.task_id AND t.attempt = item.attempt AND t.status = 'Running'
      OFFSET 0
    ) AS task
  LOOP
    v_outcomes[v_row.position] := 'Locked';
  END LOOP;

  FOR v_row IN
    SELECT item.position, item.attempt AS expected, v_now_ms + item.lease_ms AS until_ms, task.*
    FROM (
      SELECT i.*
      FROM ROWS FROM (jsonb_to_recordset(p_items) AS (task_id uuid, attempt integer, lease_ms bigint))
        WITH ORDINALITY AS i (task_id, attempt, lease_ms, position)
      WHERE v_outcomes[i.position] = 'Locked'
      ORDER BY i.task_id
    ) AS item
    CROSS JOIN LATERAL (
      SELECT t.id, t.status, t.attempt, t.reply_instance_id, t.reply_execution_id
      FROM queue_tasks AS t WHERE t.id = item.task_id
      FOR NO KEY UPDATE SKIP LOCKED
    ) AS task
  LOOP
    IF v_row.status <> 'Running' OR v_row.attempt <> v_row.expected THEN
      v_outcomes[v_row.position] := 'Lost';
    ELSIF v_row.reply_instance_id IS NOT NULL
      AND NOT dx_is_execution_running(v_row.reply_instance_id, v_row.reply_execution_id)
    THEN
      v_outcomes[v_row.position] := 'Lost';
      v_cancelled := v_cancelled || v_row.id;
    ELSE
      v_outcomes[v_row.position] := 'Done';
      v_ids := v_ids || v_row.id;
      v_until_ms := v_until_ms || v_row.until_ms;
    END IF;
  END LOOP;

  UPDATE queue_tasks AS t
  SET lease_until = renewed.until_ms, heartbeat_at = to_timestamp(v_now_ms::float8 / 1000)
  FROM unnest(v_ids, v_until_ms) AS renewed (id, until_ms) WHERE t.id = renewed.id;
  IF v_cancelled <> '{}' THEN
    PERFORM dx_cancel_tasks(v_cancelled::text[], 'its orchestration has ended', false, v_now_ms);
  END IF;
  RETURN v_outcomes;
END
$$;

-- Extends locks of activities to now + extend_for_ms. An expired lock becomes live again if no other worker has taken
-- over, so that an outage of the database alone costs no worker its activity. The lock of the session is not extended,
-- but the session counts as active now.
--
-- Returns one outcome per item, in order: Done; LockLost if the token is unknown, superseded or settled, or if the
-- activity was cancelled; Locked if another transaction has locked or just changed the row, which is to be asked again.
-- A wait for it would let the locks of the others run out.
--
-- A worker calls this more often than its lock needs, to learn of a cancellation. A lock that is live for sufficient_ms
-- or longer is only read: with one call a second, 14 of 15 write nothing. The lock of an activity with a session is
-- always extended.
--
-- Bound: the rows given. Locks, without waiting: worker rows by id; then session rows by id (both skip locked).
CREATE OR REPLACE FUNCTION dx_renew_work_item_locks(
  p_items jsonb,                   -- [{token, extend_for_ms, sufficient_ms}]
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
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
  v_outcomes text[] := array_fill('LockLost'::text, ARRAY[jsonb_array_length(p_items)]);
  v_ids bigint[] := '{}';
  v_until_ms bigint[] := '{}';
  v_end_ms bigint;
  v_sessions text[] := '{}';
  v_row record;
  v_previous bigint;
BEGIN
  FOR v_row IN
    SELECT a.position
    FROM ROWS FROM (jsonb_to_recordset(p_items) AS (token text, sufficient_ms bigint))
      WITH ORDINALITY AS a (token, sufficient_ms, position)
    CROSS JOIN LATERAL (
      SELECT FROM worker_queue AS w
      WHERE w.id = dx_row_id(a.token)
        AND w.lock_token = split_part(a.token, '.', 2)
        -- CASE leaves the planner no index but that of the ids.
        AND CASE WHEN w.session_id IS NULL THEN w.locked_until - v_now_ms >= a.sufficient_ms ELSE false END
      OFFSET 0
    ) AS activity
  LOOP
    v_outcomes[v_row.position] := 'Done';
  END LOOP;

  FOR v_row IN
    SELECT item.position, v_now_ms + item.extend_for_ms AS until_ms, activity.id, activity.session_id
    FROM (
      SELECT a.*, dx_row_id(a.token) AS id
      FROM ROWS FROM (jsonb_to_recordset(p_items) AS (token text, extend_for_ms bigint))
        WITH ORDINALITY AS a (token, extend_for_ms, position)
      WHERE v_outcomes[a.position] = 'LockLost'
      ORDER BY id, a.position DESC -- of two renewals of one lock the last counts
    ) AS item
    CROSS JOIN LATERAL (
      SELECT FROM worker_queue AS w
      WHERE w.id = item.id AND w.lock_token = split_part(item.token, '.', 2)
      OFFSET 0
    ) AS found
    LEFT JOIN LATERAL (
      SELECT w.id, w.session_id FROM worker_queue AS w
      WHERE w.id = item.id AND w.lock_token = split_part(item.token, '.', 2)
      FOR UPDATE SKIP LOCKED
    ) AS activity ON true
  LOOP
    v_outcomes[v_row.position] := CASE WHEN v_row.id IS NULL THEN 'Locked' ELSE 'Done' END;
    CONTINUE WHEN v_row.id IS NULL;
    CONTINUE WHEN v_row.id = v_previous;
    v_previous := v_row.id;
    v_ids := v_ids || v_row.id;
    v_until_ms := v_until_ms || v_row.until_ms;
    IF v_row.session_id IS NOT NULL THEN
      v_sessions := v_sessions || v_row.session_id;
    END IF;
  END LOOP;

  -- As a rule one round: all locks of a process are extended by the same time. Not a plain join: planned while
  -- statistics call the queue empty, it would read all of it.
  FOR v_end_ms IN SELECT DISTINCT item.until_ms FROM unnest(v_until_ms) AS item (until_ms) LOOP
    UPDATE worker_queue AS w SET locked_until = v_end_ms
    WHERE w.id = ANY (ARRAY(
      SELECT item.id FROM unnest(v_ids, v_until_ms) AS item (id, until_ms) WHERE item.until_ms = v_end_ms
    ));
  END LOOP;

  IF v_sessions <> '{}' THEN
    UPDATE sessions AS s SET last_activity_at = v_now_ms
    FROM (
      SELECT active.session_id FROM sessions AS active
      WHERE active.session_id = ANY (v_sessions) AND active.locked_until > v_now_ms
      ORDER BY active.session_id COLLATE "C" FOR NO KEY UPDATE SKIP LOCKED
    ) AS locked
    WHERE s.session_id = locked.session_id;
  END IF;
  RETURN v_outcomes;
END
$$;

-- Asks for runs of a schedule: one now, or those of earlier occurrences. A scheduler starts them. A run by hand that
-- waits already, or has started, is not asked for again: the answer to the first call was lost.
--
-- Returns Done, Full if 100 requests wait already, or Missing. Bound: one row and its runs. Locks: that row.
CREATE OR REPLACE FUNCTION dx_request_runs(
  p_name text,
  p_request jsonb,                 -- {kind: Manual, id} or {kind: Backfill, afterMs, untilMs}; Manual gets the time as atMs
  p_now_ms bigint DEFAULT NULL
) RETURNS text LANGUAGE plpgsql
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
  v_most CONSTANT integer := 100;
  v_id text := p_request ->> 'id';
  v_waiting integer;
  v_is_known boolean;
BEGIN
  SELECT jsonb_array_length(s.requests),
    s.requests @> jsonb_build_array(jsonb_build_object('id', v_id)) OR s.queued ->> 'id' = v_id
  INTO v_waiting, v_is_known
  FROM schedules AS s WHERE s.name = p_name FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN 'Missing';
  ELSIF v_is_known OR EXISTS (
    SELECT FROM schedule_runs AS r LEFT JOIN queue_tasks AS t ON t.id = r.task_id
    WHERE r.schedule_name = p_name AND v_id IN (r.instance_id, t.key)
  ) THEN
    RETURN 'Done';
  ELSIF v_waiting >= v_most THEN
    RETURN 'Full';
  END IF;
  UPDATE schedules AS s
  SET requests = s.requests || jsonb_build_array(p_request || jsonb_build_object('atMs', v_now_ms)),
      look_at = dx_time_of(v_now_ms), revision = s.revision + 1
  WHERE s.name = p_name;
  RETURN 'Done';
END
$$;

-- Ends what dx_pause has begun: exactly this target, no wider or narrower one.
--
-- Returns whether it was paused. Announces it to all processes.
-- Bound: one row, and the lock of an instance. Locks: advisory lock of the instance (waits for a claim), its lock row,
-- the row of paused.
CREATE OR REPLACE FUNCTION dx_resume(
  p_target text,                   -- as in the table, and so are the following
  p_name text, p_version text
) RETURNS boolean LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
  IF p_target = 'instance' THEN
    PERFORM pg_advisory_xact_lock(hashtext(p_name));
    DELETE FROM instance_locks AS l
    WHERE l.instance_id = p_name AND l.lock_token = '' AND l.locked_until >= dx_no_end();
  END IF;
  DELETE FROM paused AS p WHERE p.target = p_target AND p.name = p_name AND p.version = p_version;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM dx_announce_pauses();
  IF p_target = 'instance' THEN
    -- Duroxide knows this channel alone.
    PERFORM dx_notify('orch_work', ARRAY[now()]);
  END IF;
  RETURN true;
END
$$;

-- Returns what the tries of a call have appended to a stream since the last of them began anew: how many chunks, and
-- those of them that are kept. One row, without a stream as well.
--
-- It waits for an append of an earlier delivery that is under way. A later one finds its lock lost.
--
-- Bound: the chunks of the stream. Locks: the row of the stream (share).
CREATE OR REPLACE FUNCTION dx_resume_chunks(
  p_instance_id text, p_stream text,
  p_call text                      -- <execution>/<first try>/, the beginning of its writers
) RETURNS TABLE (out_count bigint, out_chunks text[]) LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
  v_stream_id bigint;
BEGIN
  SELECT s.id INTO v_stream_id FROM progress_streams AS s
  WHERE s.instance_id = p_instance_id AND s.name = p_stream
  FOR SHARE;
  RETURN QUERY
  WITH of_call AS (
    SELECT c.chunk_offset, c.number, c.chunk FROM progress_chunks AS c
    WHERE c.stream_id = v_stream_id AND starts_with(c.writer, p_call)
  )
  SELECT COALESCE(max(c.number), 0), COALESCE(array_agg(c.chunk ORDER BY c.chunk_offset), '{}')
  FROM of_call AS c
  WHERE c.chunk_offset >= COALESCE((SELECT max(first.chunk_offset) FROM of_call AS first WHERE first.number = 1), 0);
END
$$;

-- Gives back the tasks of claims whose answers their worker did not get, and which therefore do not run: the attempts
-- do not count.
--
-- Returns the claims that had taken some and now hold none. A task that another transaction has locked is passed over:
-- its worker asks again for its claim.
-- Bound: the tasks that have not ended, since no index leads from a claim to its tasks: only a worker that lost a
-- connection asks. Locks: the tasks (skip locked), then as dx_fail_tasks.
CREATE OR REPLACE FUNCTION dx_return_tasks(
  p_worker_id text, p_claim_ids integer[], p_now_ms bigint DEFAULT NULL
) RETURNS integer[] LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
  v_items jsonb;
  v_claims integer[];
BEGIN
  SELECT
    jsonb_agg(jsonb_build_object(
      'task_id', task.id, 'attempt', task.attempt, 'outcome', 'GivenBack', 'delay_ms', 0, 'counts', false
    )),
    array_agg(DISTINCT task.claim_id)
  INTO v_items, v_claims
  FROM (
    SELECT t.id, t.attempt, t.claim_id FROM queue_tasks AS t
    WHERE t.look_at IS NOT NULL
      AND t.status = 'Running'
      AND t.worker_id = p_worker_id
      AND t.claim_id = ANY (p_claim_ids)
    FOR NO KEY UPDATE SKIP LOCKED
  ) AS task;
  IF v_items IS NULL THEN
    RETURN '{}';
  END IF;
  PERFORM dx_fail_tasks(v_items, p_now_ms);
  RETURN ARRAY(
    SELECT claim.id FROM unnest(v_claims) AS claim (id)
    WHERE NOT EXISTS (
      SELECT FROM queue_tasks AS t
      WHERE t.look_at IS NOT NULL
        AND t.status = 'Running'
        AND t.worker_id = p_worker_id
        AND t.claim_id = claim.id
    )
  );
END
$$;

-- Trigger: sets the route (name and tag) of an activity that was inserted without one, and notifies listeners; see
-- dx_route_message.
CREATE OR REPLACE FUNCTION dx_route_activity() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  NEW.route := dx_activity_route(NEW.work_item, NEW.tag, NEW.session_id);
  IF NEW.lock_token IS NULL AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
    PERFORM dx_notify('worker_work', ARRAY[NEW.visible_at]);
  END IF;
  RETURN NEW;
END
$$;

-- Trigger: sets the route of a message that was inserted without one, makes it wait for a start that is not due yet,
-- and notifies listeners. A termination or an interruption does not wait: the start comes with it, and ends at once.
-- Messages to instances that Duroxide runs, which only its processes take, make no notification.
--
-- That it notifies here, for each row, costs our own inserts nothing: their rows have a route. A trigger for each
-- statement cost them 5 microseconds, and more for large rows (scripts/bench/measured.md).
--
-- Bound: as dx_message_route; before the first turn also the messages of the instance that are not due yet. Locks:
-- none; those of a start that is brought forward.
CREATE OR REPLACE FUNCTION dx_route_message() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
  v_begins_at timestamptz;
BEGIN
  NEW.route := dx_message_route(NEW.instance_id, NEW.work_item);
  IF NEW.work_item LIKE '{"StartOrchestration"%' OR NEW.work_item LIKE '{"ContinueAsNew"%' THEN
    IF NEW.visible_at <= NEW.created_at
      AND (
        SELECT q.id FROM orchestrator_queue AS q
        WHERE q.instance_id = NEW.instance_id AND q.due_at <= NEW.visible_at
        LIMIT 1
      ) IS NOT NULL
    THEN
      -- The message that begins an execution must be in its first batch, however many messages wait.
      NEW.id := -abs(NEW.id);
    END IF;
  ELSIF NEW.route <> ''
    AND (SELECT h.event_id FROM history AS h WHERE h.instance_id = NEW.instance_id LIMIT 1) IS NULL
  THEN
    v_begins_at := (
      SELECT max(q.due_at) FROM orchestrator_queue AS q
      WHERE q.instance_id = NEW.instance_id
        AND q.due_at > NEW.visible_at
        AND q.work_item LIKE '{"StartOrchestration"%'
    );
    IF v_begins_at IS NOT NULL
      AND (
        NEW.work_item LIKE '{"CancelInstance"%'
        OR NEW.work_item LIKE '{"QueueMessage"%"name":"duroxide-prisma/interrupt"%'
      )
    THEN
      UPDATE orchestrator_queue AS q SET visible_at = NEW.visible_at, created_at = NEW.visible_at
      WHERE q.instance_id = NEW.instance_id
        AND q.due_at > NEW.visible_at
        AND q.work_item LIKE '{"StartOrchestration"%';
    ELSIF v_begins_at IS NOT NULL THEN
      -- It arrives with the start, and does not wait from then on.
      NEW.visible_at := v_begins_at + interval '1 millisecond';
      NEW.created_at := NEW.visible_at;
    END IF;
  END IF;
  IF NEW.lock_token IS NULL
    AND NOT starts_with(NEW.route, '0.')
    AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on'
  THEN
    PERFORM dx_notify('orch_work', ARRAY[NEW.visible_at]);
  END IF;
  RETURN NEW;
END
$$;

-- Trigger: sets the status of an instance whose execution was written by a statement that is not quiet. If the
-- execution has ended, notifies those who wait for the end. Quiet statements set the status themselves, and their
-- process announces the end after the commit.
--
-- An earlier execution does not change the status. The payload names the instance by its fingerprint: the first 8
-- hexadecimal digits of the SHA-256 of its id in UTF-8. The other conditions of the notification are those of
-- dx_notify.
CREATE OR REPLACE FUNCTION dx_set_status() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  -- Asked here for the trigger on inserts, whose condition does not ask.
  IF current_setting('duroxide.quiet', true) = 'on' THEN
    RETURN NULL;
  END IF;
  UPDATE instances AS i SET status = dx_status(NEW.status, NEW.output)
  WHERE i.instance_id = NEW.instance_id
    AND i.current_execution_id <= NEW.execution_id
    AND i.status <> dx_status(NEW.status, NEW.output);
  IF NEW.status IN ('Completed', 'Failed') AND dx_may_notify() THEN
    PERFORM pg_notify(
      dx_channel('changes'), '- changed ' || left(encode(sha256(convert_to(NEW.instance_id, 'UTF8')), 'hex'), 8)
    );
  END IF;
  RETURN NULL;
END
$$;

-- Sets the statuses of instances whose executions were written without the trigger dx_set_status: before it was there,
-- or by an import.
--
-- Bound: the ids given. Locks: their instance rows where the status changes, by id.
CREATE OR REPLACE FUNCTION dx_set_statuses(p_instance_ids text[]) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
  UPDATE instances AS i SET status = wrong.status
  FROM (
    SELECT given.instance_id, dx_status(e.status, e.output) AS status
    FROM unnest(p_instance_ids) AS given (instance_id)
    JOIN instances AS old ON old.instance_id = given.instance_id
    JOIN executions AS e ON e.instance_id = old.instance_id AND e.execution_id = old.current_execution_id
    WHERE old.status <> dx_status(e.status, e.output)
    ORDER BY given.instance_id COLLATE "C"
  ) AS wrong
  WHERE i.instance_id = wrong.instance_id;
END
$$;

-- Deletes leased messages, or with p_reasons moves them to the dead letters.
--
-- Returns one outcome per receipt, in order: Done, or Expired if the lease is unknown, has ended, or was settled (of
-- two equal receipts, the second). Bound: the rows given. Locks: messages by id.
CREATE OR REPLACE FUNCTION dx_settle_messages(
  p_ids bigint[], p_tokens text[],
  p_reasons text[],                -- null: deletes them
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
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
  v_outcomes text[] := array_fill('Expired'::text, ARRAY[cardinality(p_ids)]);
  v_ids bigint[] := '{}';
  v_reasons text[] := '{}';
  v_row record;
BEGIN
  FOR v_row IN
    SELECT item.position, message.id
    FROM (
      SELECT a.* FROM unnest(p_ids, p_tokens) WITH ORDINALITY AS a (id, token, position)
      ORDER BY a.id, a.position
    ) AS item
    CROSS JOIN LATERAL (
      SELECT m.id FROM queue_messages AS m
      WHERE m.id = item.id AND m.lease_token = item.token AND m.visible_at > v_now
      FOR UPDATE
    ) AS message
  LOOP
    CONTINUE WHEN v_row.id = v_ids[cardinality(v_ids)];
    v_outcomes[v_row.position] := 'Done';
    v_ids := v_ids || v_row.id;
    IF p_reasons IS NOT NULL THEN
      v_reasons := v_reasons || p_reasons[v_row.position];
    END IF;
  END LOOP;

  IF p_reasons IS NULL THEN
    DELETE FROM queue_messages AS m WHERE m.id = ANY (v_ids);
  ELSE
    PERFORM dx_bury_messages(v_ids, v_reasons, v_now);
  END IF;
  RETURN v_outcomes;
END
$$;

-- Stores the definitions of schedules. A new timing counts from now on: its earlier occurrences do not fire. All else
-- of a schedule that is replaced stays: its pause, its last run, the occurrence that waits.
--
-- Returns one outcome per schedule, in order: Created, Replaced, Unchanged, or Exists, which leaves it as it is.
-- Bound: the schedules given. Locks: the rows that it writes, by name.
CREATE OR REPLACE FUNCTION dx_store_schedules(
  p_schedules jsonb,               -- [{name, definition, payload or text_at, code}], each name once
  p_texts text[],                  -- as in dx_store_turns
  p_replaces boolean,              -- whether a schedule of the name is replaced
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
  v_now timestamptz := dx_time_of(COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint));
  v_outcomes text[] := array_fill('Exists'::text, ARRAY[jsonb_array_length(p_schedules)]);
  v_item record;
BEGIN
  FOR v_item IN
    SELECT s.position, s.name, s.definition, COALESCE(s.payload, p_texts[s.text_at]) AS payload, s.code
    FROM ROWS FROM (
      jsonb_to_recordset(p_schedules) AS (name text, definition jsonb, payload text, text_at integer, code text)
    ) WITH ORDINALITY AS s (name, definition, payload, text_at, code, position)
    ORDER BY s.name COLLATE "C"
  LOOP
    -- Revisions begin anywhere: what was decided about an earlier schedule of the name does not fit.
    INSERT INTO schedules (name, definition, payload, code, revision, created_at, updated_at, fired_until, look_at)
    VALUES (
      v_item.name, v_item.definition, v_item.payload, v_item.code, floor(random() * 4503599627370496)::bigint,
      v_now, v_now, v_now, v_now
    )
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
      v_outcomes[v_item.position] := 'Created';
      CONTINUE;
    END IF;
    -- Without a lock: a scheduler may be firing it.
    IF EXISTS (
      SELECT FROM schedules AS s
      WHERE s.name = v_item.name
        AND (s.definition, s.payload, s.code) IS NOT DISTINCT FROM (v_item.definition, v_item.payload, v_item.code)
    ) THEN
      v_outcomes[v_item.position] := 'Unchanged';
    ELSIF p_replaces THEN
      v_outcomes[v_item.position] := 'Replaced';
      UPDATE schedules AS s
      SET definition = v_item.definition, payload = v_item.payload, code = v_item.code, revision = s.revision + 1,
          updated_at = v_now, next_at = NULL, look_at = v_now,
          fired_until = CASE
            WHEN s.definition -> 'timing' = v_item.definition -> 'timing' THEN s.fired_until
            ELSE greatest(s.fired_until, v_now)
          END
      WHERE s.name = v_item.name;
    END IF;
  END LOOP;
  RETURN v_outcomes;
END
$$;

-- Makes one step of a pass over the messages without a route, oldest first: a message whose instance exists by now gets
-- its route; a message that has been visible for longer than p_max_age_ms is deleted.
--
-- It repairs two races: a message and the start of its id that were inserted at the same time did not see each other; a
-- message in an open transaction missed that its instance changed its version or was deleted.
--
-- It notifies listeners if a message got another route: its sender did so before any process could claim it.
--
-- Returns one row: the number of deleted messages, and where the next step of the pass begins, null after the last
-- step.
-- Bound: p_limit rows; the first step of a pass also looks at the newest 1,000 visible rows of each route. Locks: queue
-- rows (skip locked). Nothing waits.
CREATE OR REPLACE FUNCTION dx_sweep_messages(
  p_max_age_ms bigint,             -- milliseconds, >= 0
  p_limit integer,                 -- rows, >= 1
  p_after text,                    -- out_next of the step before; null begins a pass
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_deleted bigint,
  out_next text                    -- <microseconds since the Unix epoch>.<row id>
) LANGUAGE plpgsql
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
  v_oldest timestamptz := to_timestamp((v_now_ms - p_max_age_ms)::float8 / 1000);
  v_after_at timestamptz := '-infinity';
  v_after_id bigint := 0;
  v_seen integer := 0;
  v_row record;
  v_delivers boolean := false;
BEGIN
  out_deleted := 0;
  IF p_after IS NULL THEN
    -- A transaction that sent a message may commit after the instance changed its version or was deleted. Among the
    -- newest messages of each route, this finds those whose instance has another route by now, and updates them.
    FOR v_row IN
      SELECT newest.id, dx_message_route(newest.instance_id, newest.work_item) AS route
      FROM dx_routes_of_messages() AS present
      CROSS JOIN LATERAL (
        SELECT q.id, q.instance_id, q.route, q.work_item, q.lock_token FROM orchestrator_queue AS q
        WHERE q.route = present.route AND q.visible_at <= v_now
        ORDER BY q.visible_at DESC, q.id DESC LIMIT 1000
      ) AS newest
      WHERE present.route <> ''
        AND newest.lock_token IS NULL
        AND newest.route NOT LIKE '- %'
        AND newest.route IS DISTINCT FROM (
          SELECT i.route FROM instances AS i
          WHERE i.instance_id = newest.instance_id AND i.route <> ''
        )
    LOOP
      v_delivers := dx_reroute_message(v_row.id, v_row.route) OR v_delivers;
    END LOOP;
  END IF;
  IF p_after IS NOT NULL THEN
    v_after_at := 'epoch'::timestamptz + split_part(p_after, '.', 1)::bigint * interval '1 microsecond';
    v_after_id := split_part(p_after, '.', 2)::bigint;
  END IF;
  FOR v_row IN
    SELECT q.id, q.instance_id, q.visible_at, dx_message_route(q.instance_id, q.work_item) AS route
    FROM orchestrator_queue AS q
    WHERE q.route = '' AND q.visible_at <= v_now AND (q.visible_at, q.id) > (v_after_at, v_after_id)
    ORDER BY q.visible_at, q.id LIMIT p_limit
  LOOP
    v_seen := v_seen + 1;
    v_after_at := v_row.visible_at;
    v_after_id := v_row.id;
    IF v_row.route <> '' THEN
      v_delivers := dx_reroute_message(v_row.id, v_row.route) OR v_delivers;
    ELSIF v_row.visible_at <= v_oldest THEN
      DELETE FROM orchestrator_queue AS q
      WHERE q.id = (
          SELECT message.id FROM orchestrator_queue AS message WHERE message.id = v_row.id
          FOR UPDATE SKIP LOCKED
        )
        AND (
          SELECT start.id FROM orchestrator_queue AS start
          WHERE start.instance_id = q.instance_id AND start.work_item LIKE '{"StartOrchestration"%'
          LIMIT 1
        ) IS NULL;
      IF FOUND THEN
        out_deleted := out_deleted + 1;
      END IF;
    END IF;
  END LOOP;
  IF v_delivers THEN
    PERFORM dx_notify('orch_work', ARRAY[v_now]);
  END IF;
  IF v_seen >= p_limit THEN
    out_next := (extract(epoch FROM v_after_at) * 1000000)::bigint || '.' || v_after_id;
  END IF;
  RETURN NEXT;
END
$$;

-- Finds what no wake-up announces: attempts whose lease has ended because their worker is gone, and tasks that should
-- have begun and whose wake-up may be lost. Each gets a new row of the outbox.
--
-- A task that waits because all workers are busy is looked at after pauses that grow with its age, and only the first
-- p_wakeups of such tasks get a wake-up from one sweep. The next look at a task moves with this one, so any number of
-- sweeps at the same time write one wake-up for it.
--
-- Tasks that wait for a slot of a limit need no wake-up of their own. A limit whose tasks wait although it has room
-- gets one: the end of an attempt was announced by none, such as that of a worker that has died.
--
-- With p_names, tasks of these names that no worker had served p_served_ms ago count as tasks that wait and need a
-- look. Those that another worker has met since then are taken by dx_take_tasks, or come as they are given back.
--
-- Returns one row: how many attempts were lost, how many waiting tasks were woken, whether there is more to sweep,
-- whether tasks of p_names are left, such as those that another transaction holds, when the next task needs a look
-- (null: none), and counts of the tasks that have not ended, of the p_limit that need a look first.
-- Bound: p_limit rows, three times; of limits whose tasks wait, the tasks that run. Locks: the tasks (skip locked).
CREATE OR REPLACE FUNCTION dx_sweep_tasks(
  p_limit integer,                 -- rows, >= 1
  p_wakeups integer,               -- most tasks that wait and get a wake-up
  p_names text[] DEFAULT NULL,     -- that a worker serves
  p_served_ms bigint DEFAULT 0,    -- since when, milliseconds before now
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_lost integer, out_woken integer, out_is_full boolean, out_has_unserved boolean,
  out_next_ms bigint,              -- milliseconds from now
  out_pending bigint, out_running bigint, out_dead bigint,
  out_oldest_age_ms bigint         -- since the oldest task that waits could have begun; 0 without one
) LANGUAGE plpgsql
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
  v_begin timestamptz := to_timestamp((v_now_ms - p_served_ms)::float8 / 1000);
  v_ids uuid[];
  v_limit record;
  v_limits text[] := ARRAY(
    SELECT l.name FROM limits AS l WHERE l.kind = 'task' AND l.has_waiting
    ORDER BY l.name COLLATE "C"
  );
BEGIN
  IF p_names IS NOT NULL THEN
    v_ids := ARRAY(
      SELECT t.id FROM queue_tasks AS t
      WHERE t.unserved_at <= v_begin AND t.name = ANY (p_names)
      LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED
    );
    UPDATE queue_tasks AS t
    SET unserved_at = NULL, look_at = CASE WHEN t.status = 'Pending' THEN v_now ELSE t.look_at END
    WHERE t.id = ANY (v_ids);
  END IF;
  out_has_unserved := p_names IS NOT NULL AND EXISTS (
    SELECT FROM queue_tasks AS t
    WHERE t.unserved_at <= v_begin AND t.name = ANY (p_names)
  );

  v_ids := ARRAY(
    SELECT t.id FROM queue_tasks AS t
    WHERE t.look_at IS NOT NULL AND t.look_at <= v_now
    ORDER BY t.look_at LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED
  );

  WITH looked AS (
    SELECT
      t.id, t.status = 'Running' AND t.lease_until <= v_now_ms AS is_lost,
      t.status = 'Pending' AND t.run_at <= v_now
        AND (num_nulls(t.has_slot) = 1 OR t.lost >= 2 OR t.name <> ALL (v_limits)) AS is_waiting,
      CASE
        -- Renewals do not move the time of the look.
        WHEN t.status = 'Running' AND t.lease_until > v_now_ms THEN to_timestamp((t.lease_until + 500)::float8 / 1000)
        WHEN t.status = 'Pending' AND t.run_at > v_now THEN t.run_at + interval '30 seconds'
        ELSE v_now
          + least(greatest(interval '30 seconds', v_now - greatest(t.run_at, v_now - interval '1 hour')), interval '1 hour')
      END AS next_look_at,
      t.look_at
    FROM queue_tasks AS t WHERE t.id = ANY (v_ids)
  ),
  placed AS (
    SELECT looked.*, row_number() OVER (PARTITION BY looked.is_waiting ORDER BY looked.look_at) AS place FROM looked
  ),
  moved AS (
    UPDATE queue_tasks AS t SET look_at = placed.next_look_at
    FROM placed WHERE t.id = placed.id
    RETURNING t.id, t.queue, t.wakeup, placed.is_lost, placed.is_waiting, placed.place
  ),
  woken AS (
    INSERT INTO queue_outbox (queue, payload, created_at, deliver_at)
    SELECT moved.queue, dx_wakeup_of(moved.id, moved.wakeup), v_now, v_now
    FROM moved WHERE moved.is_lost OR (moved.is_waiting AND moved.place <= p_wakeups)
  )
  SELECT
    count(*) FILTER (WHERE moved.is_lost),
    count(*) FILTER (WHERE moved.is_waiting AND moved.place <= p_wakeups), cardinality(v_ids) >= p_limit
  INTO out_lost, out_woken, out_is_full
  FROM moved;

  FOR v_limit IN
    SELECT l.name, l.last_key FROM limits AS l
    WHERE l.kind = 'task'
      AND l.name = ANY (v_limits)
      AND COALESCE(l.next_ms, 0) <= v_now_ms
      AND COALESCE(
        l.concurrency > (
          SELECT count(*) FROM queue_tasks AS t
          WHERE t.has_slot IS NOT NULL AND t.name = l.name AND t.has_slot
        ),
        true
      )
    ORDER BY l.name COLLATE "C"
  LOOP
    IF dx_wake_limited_task(v_limit.name, 1, v_limit.last_key, v_now_ms, v_now_ms) THEN
      out_woken := out_woken + 1;
    END IF;
  END LOOP;

  SELECT ceil(extract(epoch FROM t.look_at) * 1000)::bigint - v_now_ms INTO out_next_ms
  FROM queue_tasks AS t
  WHERE t.look_at < 'infinity' -- never
  ORDER BY t.look_at LIMIT 1;

  SELECT
    count(*) FILTER (WHERE open.status = 'Pending'), count(*) FILTER (WHERE open.status = 'Running'),
    COALESCE(
      v_now_ms - floor(extract(epoch FROM
        min(greatest(open.run_at, 'epoch')) FILTER (WHERE open.status = 'Pending' AND open.run_at <= v_now)
      ) * 1000)::bigint,
      0
    )
  INTO out_pending, out_running, out_oldest_age_ms
  FROM (
    SELECT t.status, t.run_at FROM queue_tasks AS t
    WHERE t.look_at IS NOT NULL
    ORDER BY t.look_at LIMIT p_limit
  ) AS open;
  SELECT count(*) INTO out_dead
  FROM (SELECT FROM queue_tasks AS t WHERE t.dead_at IS NOT NULL ORDER BY t.dead_at LIMIT p_limit) AS dead;
  RETURN NEXT;
END
$$;

-- Claims the tasks that the visible messages of a queue name, up to p_limit, those that have been visible longest
-- first. A message whose task is claimed is deleted: from then on the lease of the task is what another worker waits
-- for. All other messages are leased as by dx_receive_messages, and dx_claim_tasks says what to do with them.
--
-- A message of a task with a limit stands for any task of its name: see dx_take_limited_tasks. A task without a limit
-- that another worker does not serve is claimed without its message, which such workers may receive again and again; it
-- is cancelled if its execution has ended.
--
-- Returns rows of claimed tasks, up to 32 in each, so that no value gets too long; then that of dx_receive_messages,
-- unless the tasks have reached the limit. All rows have the time of the statement.
-- Bound: p_limit messages and their tasks; p_limit + 100 unserved tasks of p_names, besides those that cannot begin
-- (suspects, early ones); what dx_receive_messages reads. Locks: messages, then tasks, without waiting; then as
-- dx_cancel_tasks and dx_take_limited_tasks.
CREATE OR REPLACE FUNCTION dx_take_tasks(
  p_limit integer, p_queue text,
  p_token text,                    -- of the leases of messages; receipts are `<id>.<token>`
  p_lease_ms bigint,               -- of messages
  p_names text[],                  -- of the tasks that the caller serves
  p_task_lease_ms bigint[],        -- of each of them, milliseconds, > 0
  p_worker_id text,
  p_claim_id integer DEFAULT NULL, -- the caller gives back by it what it claimed, if it gets no answer
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_tasks json,                  -- [[id, ...], [name, ...], [attempt, ...], [attempts that count, ...], [payload, ...],
                                   --   [trace context, ...], [kind of the message, ...]]
  out_ids bigint[], out_payloads text[], out_attempts integer[], out_died integer, out_now_ms bigint,
  out_next_ms bigint
) LANGUAGE plpgsql
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
  v_messages bigint[];
  v_tasks uuid[];
  v_kinds text[];
  v_unserved uuid[];
  v_unserved_kinds text[];
  v_orphans text[] := '{}'; -- their executions have ended
  v_parts json[];
  v_count integer := 0;
  v_limited record;
BEGIN
  SELECT array_agg(message.id), array_agg(dx_task_id(message.task)), array_agg(message.kind)
  INTO v_messages, v_tasks, v_kinds
  FROM (
    SELECT m.id, m.payload ->> 'kind' AS kind, m.payload ->> 'task_id' AS task
    FROM queue_messages AS m
    WHERE m.queue = p_queue AND m.visible_at <= v_now AND m.attempts < m.max_attempts
    ORDER BY m.visible_at, m.id LIMIT p_limit FOR UPDATE SKIP LOCKED
  ) AS message;

  -- This look takes 7 of the 40 microseconds of a take that finds nothing, 14 with 20 names.
  SELECT array_agg(unserved.id), array_agg(unserved.kind) INTO v_unserved, v_unserved_kinds
  FROM (
    SELECT task.id, COALESCE(task.wakeup ->> 'kind', 'task_wakeup') AS kind FROM unnest(p_names) AS served (name)
    -- Name by name: before PostgreSQL 17, "= ANY" may be planned as a filter, which reads all names.
    CROSS JOIN LATERAL (
      SELECT t.id, t.wakeup FROM queue_tasks AS t
      WHERE t.queue = p_queue
        AND t.name = served.name
        AND t.unserved_at IS NOT NULL
        -- As the CTE free asks again below, under the lock.
        AND t.has_slot IS NULL
        AND t.status = 'Pending'
        AND t.run_at <= v_now
        AND t.attempt - t.uncounted < t.max_attempts
        AND t.lost < 2
      OFFSET 0
    ) AS task
    -- Other workers may have locked the first ones, and some may only be cancelled.
    LIMIT 100 + p_limit - COALESCE(cardinality(v_messages), 0)
  ) AS unserved
  WHERE COALESCE(cardinality(v_messages), 0) < p_limit;
  v_tasks := v_tasks || v_unserved;
  v_kinds := v_kinds || v_unserved_kinds;

  IF v_tasks IS NOT NULL THEN
    WITH free AS MATERIALIZED (
      SELECT
        item.message_id, item.kind, task.id,
        v_now_ms + p_task_lease_ms[array_position(p_names, task.name)] AS until_ms
      FROM (
        SELECT DISTINCT ON (message.task_id) message.task_id, message.message_id, message.kind
        FROM unnest(v_messages, v_tasks, v_kinds) AS message (message_id, task_id, kind)
        WHERE message.kind IS NOT NULL
        ORDER BY message.task_id, message.message_id
      ) AS item
      CROSS JOIN LATERAL (
        SELECT t.id, t.name, t.reply_instance_id, t.reply_execution_id FROM queue_tasks AS t
        WHERE t.id = item.task_id
          AND t.status = 'Pending'
          AND t.run_at <= v_now
          AND t.attempt - t.uncounted < t.max_attempts
          AND t.lost < 2 -- dx_claim_tasks claims suspects
          AND t.name = ANY (p_names)
          AND t.has_slot IS NULL
        FOR NO KEY UPDATE SKIP LOCKED
      ) AS task
      WHERE task.reply_instance_id IS NULL
        OR dx_is_execution_running(task.reply_instance_id, task.reply_execution_id)
      LIMIT p_limit
    ),
    claimed AS (
      UPDATE queue_tasks AS t
      SET status = 'Running', attempt = t.attempt + 1, worker_id = p_worker_id, started_at = v_now,
          claim_id = p_claim_id, lease_until = free.until_ms, heartbeat_at = v_now, unserved_at = NULL,
          look_at = least(t.look_at, to_timestamp((free.until_ms + 500)::float8 / 1000)), updated_at = v_now
      FROM free WHERE t.id = free.id
      RETURNING t.id, t.name, t.attempt, t.attempt - t.uncounted AS counted, t.payload, t.trace_context, free.kind
    ),
    deleted AS (DELETE FROM queue_messages AS m WHERE m.id = ANY (ARRAY(SELECT free.message_id FROM free)))
    SELECT array_agg(part.tasks), COALESCE(sum(part.count), 0) INTO v_parts, v_count
    FROM (
      SELECT
        count(*) AS count,
        json_build_array(
          json_agg(task.id), json_agg(task.name), json_agg(task.attempt), json_agg(task.counted),
          json_agg(task.payload), json_agg(task.trace_context), json_agg(task.kind)
        ) AS tasks
      FROM (SELECT claimed.*, (row_number() OVER () - 1) / 32 AS part FROM claimed) AS task
      GROUP BY task.part
    ) AS part;
    RETURN QUERY
    SELECT part.tasks, NULL::bigint[], NULL::text[], NULL::integer[], 0, v_now_ms, v_now_ms
    FROM unnest(v_parts) AS part (tasks);

    IF v_unserved IS NOT NULL AND v_count < p_limit THEN
      v_orphans := ARRAY(
        SELECT task.id::text FROM unnest(v_unserved) AS one (id)
        CROSS JOIN LATERAL (
          SELECT t.id, t.reply_instance_id, t.reply_execution_id FROM queue_tasks AS t
          WHERE t.id = one.id AND t.status = 'Pending' AND t.reply_instance_id IS NOT NULL
          FOR NO KEY UPDATE SKIP LOCKED
        ) AS task
        WHERE NOT dx_is_execution_running(task.reply_instance_id, task.reply_execution_id)
      );
      IF v_orphans <> '{}' THEN
        PERFORM dx_cancel_tasks(v_orphans, 'its orchestration has ended', false, v_now_ms);
      END IF;
    END IF;

    IF (v_count < cardinality(v_messages) OR (v_unserved IS NOT NULL AND v_count < p_limit))
      AND EXISTS (SELECT FROM limits AS l WHERE l.kind = 'task') THEN
      SELECT * INTO v_limited
      FROM dx_take_limited_tasks(
        p_limit - v_count, p_queue, v_messages, p_names, p_task_lease_ms, p_worker_id, p_claim_id, v_now_ms
      ) AS limited;
      v_count := v_count + cardinality(v_limited.out_ids);
      RETURN QUERY
      SELECT
        json_build_array(
          json_agg(task.id), json_agg(task.name), json_agg(task.attempt), json_agg(task.counted),
          json_agg(task.payload), json_agg(task.trace_context), json_agg(task.kind)
        ),
        NULL::bigint[], NULL::text[], NULL::integer[], 0, v_now_ms, v_now_ms
      FROM (
        SELECT
          t.id, t.name, t.attempt, t.attempt - t.uncounted AS counted, t.payload, t.trace_context,
          COALESCE(t.wakeup ->> 'kind', 'task_wakeup') AS kind, (row_number() OVER () - 1) / 32 AS part
        FROM unnest(v_limited.out_ids) AS admitted (id)
        CROSS JOIN LATERAL (SELECT x.* FROM queue_tasks AS x WHERE x.id = admitted.id OFFSET 0) AS t
      ) AS task
      GROUP BY task.part;
      IF v_limited.out_is_full THEN
        RETURN QUERY SELECT NULL::json, NULL::bigint[], NULL::text[], NULL::integer[], 0, v_now_ms, v_now_ms;
        RETURN;
      END IF;
    END IF;
    IF v_count = p_limit THEN
      RETURN;
    END IF;
  END IF;

  RETURN QUERY
  SELECT
    NULL::json, r.out_ids, r.out_payloads, r.out_attempts, r.out_died, r.out_now_ms,
    -- Behind those that were cancelled there may be others.
    CASE WHEN v_orphans <> '{}' THEN r.out_now_ms ELSE r.out_next_ms END
  FROM dx_receive_messages(p_limit - v_count, p_queue, p_token, p_lease_ms, v_now_ms) AS r;
END
$$;

-- Begins attempts at tasks with limits for messages that name them, and deletes these messages: a part of
-- dx_take_tasks. A message stands for any task of its name (dx_admit_tasks). Once a limit has no slot, further messages
-- of the queue that are of use to none are deleted, too: so those behind them do not wait.
--
-- What else must be known of stays: of tasks that are not due, of lost attempts, of suspects.
-- Bound: the messages given, 1,000 others, and what dx_admit_tasks reads. Locks: messages (skip locked), then those of
-- dx_admit_tasks, by name.
CREATE OR REPLACE FUNCTION dx_take_limited_tasks(
  p_most integer, p_queue text,
  p_messages bigint[],             -- locked by the caller
  p_names text[], p_lease_ms bigint[], p_worker_id text, p_claim_id integer, -- as in dx_take_tasks
  p_now_ms bigint,
  OUT out_ids uuid[],              -- tasks that the caller runs
  OUT out_is_full boolean          -- whether there may be more such messages
) LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_name text;
  v_messages bigint[];
  v_admitted record;
  v_full text[] := '{}';
  v_count integer;
BEGIN
  out_ids := '{}';
  out_is_full := false;
  FOR v_name, v_messages IN
    SELECT message.name, array_agg(message.id ORDER BY message.id)
    FROM dx_limited_messages(p_messages, p_names, p_now_ms) AS message
    GROUP BY message.name
    ORDER BY message.name COLLATE "C"
  LOOP
    EXIT WHEN cardinality(out_ids) >= p_most;
    SELECT admitted.* INTO v_admitted
    FROM dx_admit_tasks(
      v_name, p_most - cardinality(out_ids), p_lease_ms[array_position(p_names, v_name)], p_worker_id, p_claim_id,
      '{}', NULL, p_now_ms
    ) AS admitted;
    out_ids := out_ids || v_admitted.out_ids;
    IF v_admitted.out_may_drop THEN
      v_full := v_full || v_name;
    ELSE
      v_messages := v_messages[:cardinality(v_admitted.out_ids)];
    END IF;
    DELETE FROM queue_messages AS m WHERE m.id = ANY (v_messages);
  END LOOP;

  IF v_full <> '{}' THEN
    v_messages := ARRAY(
      SELECT m.id FROM queue_messages AS m
      WHERE m.queue = p_queue AND m.visible_at <= v_now AND m.attempts < m.max_attempts
      ORDER BY m.visible_at, m.id LIMIT 1000 FOR UPDATE SKIP LOCKED
    );
    DELETE FROM queue_messages AS m
    WHERE m.id = ANY (ARRAY(SELECT message.id FROM dx_limited_messages(v_messages, v_full, p_now_ms) AS message));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    out_is_full := v_count >= 500;
  END IF;
END
$$;

-- Lets blocked instances of these orchestrations, and blocked activities, be claimed at once, and deletes the blocks of
-- instances that have continued, have ended or were deleted.
--
-- Returns how many pauses it ended. Called when a process starts, which may have the code that fits.
-- Bound: the rows of blocked_instances. Locks: pauses by instance, worker rows by id, rows of blocked_instances by
-- instance (all skip locked).
CREATE OR REPLACE FUNCTION dx_wake_blocked(
  p_orchestrations text[], p_activities text[], p_now_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql
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
  v_instances bigint;
  v_activities bigint;
BEGIN
  WITH pause AS (
    SELECT l.instance_id
    FROM dx_present_blocks() AS b
    JOIN instance_locks AS l ON l.instance_id = b.instance_id
    WHERE b.orchestration_name = ANY (p_orchestrations) AND l.lock_token = '' AND l.locked_until > v_now_ms
      AND l.locked_until < dx_no_end() -- an operator has paused it
    ORDER BY l.instance_id COLLATE "C"
    FOR UPDATE OF l SKIP LOCKED
  )
  DELETE FROM instance_locks AS l USING pause WHERE l.instance_id = pause.instance_id;
  GET DIAGNOSTICS v_instances = ROW_COUNT;

  WITH delayed AS (
    SELECT w.id
    FROM dx_present_blocks() AS b
    JOIN worker_queue AS w ON w.instance_id = b.instance_id AND w.activity_id = b.event_id
    WHERE w.execution_id = b.execution_id AND w.visible_at > v_now
      AND w.visible_at < 'infinity' -- it waits for a slot of a limit
      -- The route is the name, and the tag if it has one.
      AND left(w.route, length(w.route) - COALESCE(length(dx_tag(w.tag)) + 2, 0)) = ANY (p_activities)
    ORDER BY w.id
    FOR UPDATE OF w SKIP LOCKED
  )
  UPDATE worker_queue AS w SET visible_at = v_now FROM delayed WHERE w.id = delayed.id;
  GET DIAGNOSTICS v_activities = ROW_COUNT;

  WITH passed AS (
    SELECT b.instance_id
    FROM blocked_instances AS b
    WHERE NOT EXISTS (
      SELECT FROM instances AS i
      WHERE i.instance_id = b.instance_id AND dx_is_blocked(b, i.current_execution_id, i.created_at)
    )
    ORDER BY b.instance_id COLLATE "C"
    FOR UPDATE OF b SKIP LOCKED
  )
  DELETE FROM blocked_instances AS b USING passed WHERE b.instance_id = passed.instance_id;
  RETURN v_instances + v_activities;
END
$$;
