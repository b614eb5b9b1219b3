-- Returns the payload of the wake-ups of a task.
CREATE OR REPLACE FUNCTION dx_wakeup_of(
  p_id uuid,
  p_wakeup jsonb                   -- that of the task; null without one
) RETURNS jsonb LANGUAGE sql STABLE
-- settings of the caller
AS $$
  SELECT COALESCE(p_wakeup, jsonb_build_object('kind', 'task_wakeup', 'task_id', p_id))
$$;
