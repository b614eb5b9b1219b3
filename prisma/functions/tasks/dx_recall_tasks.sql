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
-- settings of the hot path
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
