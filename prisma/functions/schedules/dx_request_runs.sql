-- Asks for runs of a schedule: one now, or those of earlier occurrences. A scheduler starts them. A run by hand that
-- waits already, or has started, is not asked for again: the answer to the first call was lost.
--
-- Returns Done, Full if 100 requests wait already, or Missing. Bound: one row and its runs. Locks: that row.
CREATE OR REPLACE FUNCTION dx_request_runs(
  p_name text,
  p_request jsonb,                 -- {kind: Manual, id} or {kind: Backfill, afterMs, untilMs}; Manual gets the time as atMs
  p_now_ms bigint DEFAULT NULL
) RETURNS text LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_most CONSTANT integer := 100;
  v_id text := p_request ->> 'id';
  v_waiting integer;
  v_is_known boolean;
BEGIN
  SELECT jsonb_array_length(s.requests),
    s.requests @> jsonb_build_array(jsonb_build_object('id', v_id)) OR s.queued ->> 'id' = v_id
  INTO v_waiting, v_is_known
  FROM schedules AS s WHERE s.name = p_name FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN 'Missing';
  ELSIF v_is_known OR EXISTS (
    SELECT FROM schedule_runs AS r LEFT JOIN queue_tasks AS t ON t.id = r.task_id
    WHERE r.schedule_name = p_name AND v_id IN (r.instance_id, t.key)
  ) THEN
    RETURN 'Done';
  ELSIF v_waiting >= v_most THEN
    RETURN 'Full';
  END IF;
  UPDATE schedules AS s
  SET requests = s.requests || jsonb_build_array(p_request || jsonb_build_object('atMs', v_now_ms)),
      look_at = dx_time_of(v_now_ms), revision = s.revision + 1
  WHERE s.name = p_name;
  RETURN 'Done';
END
$$;
