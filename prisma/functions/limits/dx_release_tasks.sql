-- Wakes the tasks that wait for a slot of a limit, which was removed: from now on they have none. A part of
-- dx_remove_limit.
--
-- One that another transaction has locked stays as it is; its wake-up finds that it has no limit.
-- Bound: the tasks of the name that have not ended. Locks: these tasks (skip locked).
CREATE OR REPLACE FUNCTION dx_release_tasks(p_name text, p_now_ms bigint) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
BEGIN
  INSERT INTO queue_outbox (queue, payload, created_at, deliver_at)
  SELECT t.queue, dx_wakeup_of(t.id, t.wakeup), v_now, v_now FROM queue_tasks AS t
  WHERE t.has_slot IS NOT NULL AND t.name = p_name AND NOT t.has_slot AND t.run_at <= v_now
  ORDER BY t.run_at, t.id;
  UPDATE queue_tasks AS t SET has_slot = NULL
  WHERE t.id = ANY (ARRAY(
    SELECT limited.id FROM queue_tasks AS limited
    WHERE limited.has_slot IS NOT NULL AND limited.name = p_name
    FOR NO KEY UPDATE SKIP LOCKED
  ));
END
$$;
