-- Gives tasks that are dead or were cancelled their attempts again: each waits for its next attempt, with a row of the
-- outbox that wakes it. No execution waits for them then.
--
-- Bound: the tasks given. Locks: the caller has locked them.
CREATE OR REPLACE FUNCTION dx_run_tasks_again(p_ids uuid[], p_now_ms bigint) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_limited CONSTANT text[] := dx_limited_tasks();
BEGIN
  WITH again AS (
    UPDATE queue_tasks AS t
    SET status = 'Pending', uncounted = t.attempt, lost = 0, run_at = v_now,
        look_at = v_now + interval '30 seconds', reply_instance_id = NULL, updated_at = v_now, dead_at = NULL,
        ended_at = NULL, has_slot = CASE WHEN t.name = ANY (v_limited) THEN false END,
        limit_key = CASE WHEN t.name = ANY (v_limited) THEN COALESCE(t.limit_key, '') ELSE t.limit_key END
    WHERE t.id = ANY (p_ids)
    RETURNING t.id, t.queue, t.wakeup
  )
  INSERT INTO queue_outbox (queue, payload, created_at, deliver_at)
  SELECT again.queue, dx_wakeup_of(again.id, again.wakeup), v_now, v_now FROM again;
END
$$;
