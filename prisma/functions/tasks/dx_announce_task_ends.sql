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
-- settings of the hot path
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
