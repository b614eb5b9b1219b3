-- Puts the tasks of a name under their limit, which was set or changed: one that runs has a slot, one that waits waits
-- for one. A part of dx_set_limit.
--
-- A task that another transaction has locked stays as it is until its next attempt.
-- Bound: the tasks that have not ended. Locks: the tasks of the name (skip locked).
CREATE OR REPLACE FUNCTION dx_limit_tasks(p_name text, p_now_ms bigint) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_count bigint;
BEGIN
  UPDATE queue_tasks AS t SET has_slot = t.status = 'Running', limit_key = COALESCE(t.limit_key, '')
  WHERE t.id = ANY (ARRAY(
    SELECT open.id FROM queue_tasks AS open
    WHERE open.look_at IS NOT NULL AND open.name = p_name AND num_nulls(open.has_slot) = 1
    FOR NO KEY UPDATE SKIP LOCKED
  ));
  v_count := (
    SELECT count(*)
    FROM (
      SELECT FROM queue_tasks AS t
      WHERE t.has_slot IS NOT NULL AND t.name = p_name AND NOT t.has_slot AND t.run_at <= v_now
      LIMIT 100
    ) AS waiting
  );
  UPDATE limits AS l SET next_ms = NULL, has_waiting = l.has_waiting OR v_count > 0
  WHERE l.kind = 'task' AND l.name = p_name;
  IF v_count > 0 THEN
    -- What they begin wakes others.
    PERFORM dx_wake_limited_task(p_name, v_count, '', p_now_ms, p_now_ms);
  END IF;
END
$$;
