-- Announces that attempts at tasks with limits have ended: wakes as many tasks that wait for a slot. The caller has
-- stored the ends.
--
-- It waits for calls of dx_admit_tasks that have not seen these ends, and sees what they have left waiting.
-- Bound: the names given, 1,000 keys of each. Locks: advisory locks of their limits, shared, in the order of names.
CREATE OR REPLACE FUNCTION dx_free_task_slots(
  p_names text[],                  -- of the tasks, one for each slot; those without a limit are left out
  p_now_ms bigint                  -- null: the time after the locks were taken
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_name text;
  v_count bigint;
  v_now_ms bigint;
BEGIN
  FOR v_name, v_count IN
    SELECT free.name, count(*) FROM unnest(p_names) AS free (name)
    WHERE EXISTS (SELECT FROM limits AS l WHERE l.kind = 'task' AND l.name = free.name)
    GROUP BY free.name
    ORDER BY free.name COLLATE "C"
  LOOP
    PERFORM pg_advisory_xact_lock_shared(dx_limit_lock('task', v_name));
    v_now_ms := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    PERFORM dx_wake_limited_task(v_name, v_count, l.last_key, v_now_ms, v_now_ms) FROM limits AS l
    WHERE l.kind = 'task' AND l.name = v_name AND l.has_waiting;
  END LOOP;
END
$$;
