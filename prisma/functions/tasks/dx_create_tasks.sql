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
-- settings of the hot path
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
