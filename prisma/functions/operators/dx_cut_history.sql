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
-- settings of the hot path
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
