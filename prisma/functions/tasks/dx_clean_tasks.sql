-- Deletes tasks that ended some time ago, the oldest first, with their attempts.
--
-- Returns how many were deleted. Bound: p_limit tasks. Locks: the deleted rows; tasks that are locked are skipped.
CREATE OR REPLACE FUNCTION dx_clean_tasks(
  p_keep_ended_ms bigint,          -- milliseconds since they were completed or cancelled
  p_keep_dead_ms bigint,           -- milliseconds since they died
  p_limit integer,                 -- tasks, >= 1
  p_now_ms bigint DEFAULT NULL
) RETURNS integer LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_ids uuid[];
BEGIN
  v_ids := ARRAY(
    SELECT t.id FROM queue_tasks AS t
    WHERE t.ended_at IS NOT NULL AND t.ended_at <= to_timestamp((v_now_ms - p_keep_ended_ms)::float8 / 1000)
    ORDER BY t.ended_at LIMIT p_limit FOR UPDATE SKIP LOCKED
  );
  v_ids := v_ids || ARRAY(
    SELECT t.id FROM queue_tasks AS t
    WHERE t.dead_at IS NOT NULL AND t.dead_at <= to_timestamp((v_now_ms - p_keep_dead_ms)::float8 / 1000)
    ORDER BY t.dead_at, t.id LIMIT p_limit - cardinality(v_ids) FOR UPDATE SKIP LOCKED
  );
  DELETE FROM queue_task_attempts AS a WHERE a.task_id = ANY (v_ids);
  DELETE FROM queue_tasks AS t WHERE t.id = ANY (v_ids);
  RETURN cardinality(v_ids);
END
$$;
