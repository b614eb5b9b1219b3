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
-- settings of the hot path
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
