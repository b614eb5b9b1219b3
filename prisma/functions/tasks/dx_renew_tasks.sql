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
-- settings of the hot path
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
