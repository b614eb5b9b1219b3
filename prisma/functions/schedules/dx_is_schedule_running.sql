-- Whether what the last run of a schedule has started still runs. What was deleted does not. Bound: two rows. Locks:
-- none.
CREATE OR REPLACE FUNCTION dx_is_schedule_running(p_instance_id text, p_task_id uuid)
RETURNS boolean LANGUAGE sql STABLE
-- settings of the caller
AS $$
  SELECT EXISTS (SELECT FROM instances AS i WHERE i.instance_id = p_instance_id AND i.status = 'Running')
    OR EXISTS (SELECT FROM queue_tasks AS t WHERE t.id = p_task_id AND t.status IN ('Pending', 'Running'))
$$;
