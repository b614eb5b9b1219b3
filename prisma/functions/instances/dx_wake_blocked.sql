-- Lets blocked instances of these orchestrations, and blocked activities, be claimed at once, and deletes the blocks of
-- instances that have continued, have ended or were deleted.
--
-- Returns how many pauses it ended. Called when a process starts, which may have the code that fits.
-- Bound: the rows of blocked_instances. Locks: pauses by instance, worker rows by id, rows of blocked_instances by
-- instance (all skip locked).
CREATE OR REPLACE FUNCTION dx_wake_blocked(
  p_orchestrations text[], p_activities text[], p_now_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_instances bigint;
  v_activities bigint;
BEGIN
  WITH pause AS (
    SELECT l.instance_id
    FROM dx_present_blocks() AS b
    JOIN instance_locks AS l ON l.instance_id = b.instance_id
    WHERE b.orchestration_name = ANY (p_orchestrations) AND l.lock_token = '' AND l.locked_until > v_now_ms
      AND l.locked_until < dx_no_end() -- an operator has paused it
    ORDER BY l.instance_id COLLATE "C"
    FOR UPDATE OF l SKIP LOCKED
  )
  DELETE FROM instance_locks AS l USING pause WHERE l.instance_id = pause.instance_id;
  GET DIAGNOSTICS v_instances = ROW_COUNT;

  WITH delayed AS (
    SELECT w.id
    FROM dx_present_blocks() AS b
    JOIN worker_queue AS w ON w.instance_id = b.instance_id AND w.activity_id = b.event_id
    WHERE w.execution_id = b.execution_id AND w.visible_at > v_now
      AND w.visible_at < 'infinity' -- it waits for a slot of a limit
      -- The route is the name, and the tag if it has one.
      AND left(w.route, length(w.route) - COALESCE(length(dx_tag(w.tag)) + 2, 0)) = ANY (p_activities)
    ORDER BY w.id
    FOR UPDATE OF w SKIP LOCKED
  )
  UPDATE worker_queue AS w SET visible_at = v_now FROM delayed WHERE w.id = delayed.id;
  GET DIAGNOSTICS v_activities = ROW_COUNT;

  WITH passed AS (
    SELECT b.instance_id
    FROM blocked_instances AS b
    WHERE NOT EXISTS (
      SELECT FROM instances AS i
      WHERE i.instance_id = b.instance_id AND dx_is_blocked(b, i.current_execution_id, i.created_at)
    )
    ORDER BY b.instance_id COLLATE "C"
    FOR UPDATE OF b SKIP LOCKED
  )
  DELETE FROM blocked_instances AS b USING passed WHERE b.instance_id = passed.instance_id;
  RETURN v_instances + v_activities;
END
$$;
