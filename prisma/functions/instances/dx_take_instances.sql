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
