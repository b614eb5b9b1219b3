-- Gives dead tasks their attempts again: each waits for its next attempt, with a row of the outbox that wakes it. The
-- execution that waited for such a task knows that it is dead, and receives nothing more.
--
-- Returns the ids of the redriven tasks, the ones that died first. Bound: p_limit tasks. Locks: the tasks; those that
-- are locked are skipped.
CREATE OR REPLACE FUNCTION dx_redrive_tasks(
  p_ids text[],                    -- null: all
  p_name text,                     -- only tasks of this name; null: of every name
  p_limit integer,                 -- tasks, >= 1
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_ids uuid[];
BEGIN
  IF p_ids IS NULL THEN
    v_ids := ARRAY(
      SELECT t.id FROM queue_tasks AS t
      WHERE t.dead_at IS NOT NULL AND (p_name IS NULL OR t.name = p_name)
      ORDER BY t.dead_at, t.id LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED
    );
  ELSE
    -- dead_at IS NOT NULL would lead to the index of all that are dead.
    v_ids := ARRAY(
      SELECT t.id FROM queue_tasks AS t
      WHERE t.id = ANY (ARRAY(SELECT dx_task_id(given.id) FROM unnest(p_ids) AS given (id)))
        AND num_nulls(t.dead_at) = 0
        AND (p_name IS NULL OR t.name = p_name)
      ORDER BY t.id LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED
    );
  END IF;

  PERFORM dx_run_tasks_again(v_ids, v_now_ms);
  RETURN v_ids::text[];
END
$$;
