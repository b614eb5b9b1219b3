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
  -- Not a join: planned while the queue was empty, it would read the whole of it for each activity.
  DELETE FROM worker_queue AS w
  WHERE w.id = ANY (ARRAY(
    SELECT locked.id FROM worker_queue AS locked
    WHERE locked.id = ANY (ARRAY(
      SELECT found.id
      FROM jsonb_to_recordset(p_cancelled_activities)
        AS activity (ack bigint, instance_id text, execution_id bigint, activity_id bigint)
      CROSS JOIN LATERAL (
        SELECT queued.id FROM worker_queue AS queued
        WHERE queued.instance_id = activity.instance_id
          AND queued.execution_id = activity.execution_id
          AND queued.activity_id = activity.activity_id
        OFFSET 0
      ) AS found
      WHERE p_turns[activity.ack].execution_id IS NOT NULL
    ))
    ORDER BY locked.id FOR UPDATE
  ));
END
$$;
