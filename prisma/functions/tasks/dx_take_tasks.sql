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
-- settings of the hot path
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
