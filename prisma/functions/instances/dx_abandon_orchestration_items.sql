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
-- settings of the hot path
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
