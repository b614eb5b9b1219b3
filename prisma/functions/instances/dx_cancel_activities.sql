-- Deletes the activities that turns cancel. A part of dx_store_turns, after dx_store_activities: an activity that one
-- turn both schedules and cancels never runs.
--
-- Bound: the activities given. Locks: worker rows by id.
CREATE OR REPLACE FUNCTION dx_cancel_activities(
  p_turns dx_turn[],
  p_cancelled_activities jsonb     -- as in dx_store_turns
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  DELETE FROM worker_queue AS w
  USING (
    SELECT locked.id
    FROM jsonb_to_recordset(p_cancelled_activities)
      AS activity (ack bigint, instance_id text, execution_id bigint, activity_id bigint)
    JOIN worker_queue AS locked
      ON locked.instance_id = activity.instance_id
      AND locked.execution_id = activity.execution_id
      AND locked.activity_id = activity.activity_id
    WHERE p_turns[activity.ack].execution_id IS NOT NULL
    ORDER BY locked.id FOR UPDATE OF locked
  ) AS cancelled
  WHERE w.id = cancelled.id;
END
$$;
