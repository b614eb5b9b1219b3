-- Pauses or resumes a schedule. Occurrences during a pause do not fire, also not after it; runs by hand still do.
--
-- Returns Done, Unchanged if it was so already, or Missing. Bound: one row. Locks: that row.
CREATE OR REPLACE FUNCTION dx_pause_schedule(
  p_name text,
  p_is_paused boolean, p_reason text, -- the reason of a pause, null: none given
  p_now_ms bigint DEFAULT NULL
) RETURNS text LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now timestamptz := dx_time_of(COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint));
  v_was_paused boolean;
BEGIN
  SELECT s.paused_at IS NOT NULL INTO v_was_paused FROM schedules AS s WHERE s.name = p_name FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN 'Missing';
  ELSIF v_was_paused = p_is_paused THEN
    RETURN 'Unchanged';
  ELSIF p_is_paused THEN
    UPDATE schedules AS s
    SET paused_at = v_now, pause_reason = p_reason, next_at = NULL, revision = s.revision + 1,
        look_at = CASE WHEN s.requests <> '[]' THEN v_now END
    WHERE s.name = p_name;
  ELSE
    UPDATE schedules AS s
    SET paused_at = NULL, pause_reason = NULL, revision = s.revision + 1,
        fired_until = greatest(s.fired_until, v_now), look_at = v_now
    WHERE s.name = p_name;
  END IF;
  RETURN 'Done';
END
$$;
