-- Claims schedules that have something to do: an occurrence is due, an operator asks for runs, or what keeps an
-- occurrence waiting has ended. A claim only keeps other schedulers away for p_hold_ms, after which they try as well;
-- which of them fires, dx_fire_schedules decides.
--
-- Returns {nowMs, nextMs, isFull, schedules: [...], waiting: [{name, instanceId, taskId}]}: nextMs is when to look
-- again, null for never; waiting are the runs whose end lets an occurrence start.
-- Bound: p_limit schedules, 16 MiB of payloads, and the schedules with an occurrence that waits. Locks: the rows it
-- claims (skip locked).
CREATE OR REPLACE FUNCTION dx_claim_schedules(
  p_codes text[],                  -- what this process can make payloads of
  p_limit integer, p_hold_ms bigint, p_now_ms bigint DEFAULT NULL
) RETURNS json LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := dx_time_of(v_now_ms);
  v_until timestamptz := dx_time_of(v_now_ms + p_hold_ms);
  v_most_bytes CONSTANT bigint := 16777216;
  v_found text[];
  v_names text[];
  v_next timestamptz;
  v_is_full boolean;
BEGIN
  WITH due AS MATERIALIZED (
    SELECT s.name, s.look_at, COALESCE(octet_length(s.payload), 0) AS bytes
    FROM schedules AS s
    WHERE s.look_at <= v_now AND (s.code IS NULL OR s.code = ANY (p_codes))
    ORDER BY s.look_at
    LIMIT p_limit
    FOR NO KEY UPDATE SKIP LOCKED
  ),
  freed AS MATERIALIZED (
    SELECT s.name, s.look_at, COALESCE(octet_length(s.payload), 0) AS bytes
    FROM schedules AS s
    -- A run by hand starts also during a pause.
    WHERE s.queued IS NOT NULL AND (s.paused_at IS NULL OR s.queued ->> 'kind' = 'Manual')
      AND (s.look_at <= v_now) IS NOT TRUE
      AND (s.code IS NULL OR s.code = ANY (p_codes))
      AND NOT dx_is_schedule_running(s.last_instance_id, s.last_task_id)
    LIMIT p_limit
    FOR NO KEY UPDATE SKIP LOCKED
  ),
  found AS (
    SELECT one.name, sum(one.bytes) OVER (ORDER BY one.look_at, one.name) - one.bytes AS before
    FROM (SELECT * FROM due UNION ALL SELECT * FROM freed) AS one
  )
  SELECT array_agg(found.name), array_agg(found.name) FILTER (WHERE found.before < v_most_bytes)
  INTO v_found, v_names FROM found;
  v_is_full := cardinality(v_found) >= p_limit OR cardinality(v_found) > cardinality(v_names);

  UPDATE schedules AS s SET look_at = v_until WHERE s.name = ANY (v_names);

  -- What another scheduler is about to fire may be left to us.
  v_next := least(
    (
      SELECT s.look_at FROM schedules AS s
      WHERE s.look_at > v_now AND (s.code IS NULL OR s.code = ANY (p_codes)) AND s.name <> ALL (COALESCE(v_names, '{}'))
      ORDER BY s.look_at
      LIMIT 1
    ),
    CASE WHEN EXISTS (
      SELECT FROM schedules AS s WHERE s.look_at <= v_now AND (s.code IS NULL OR s.code = ANY (p_codes))
    ) THEN v_until END
  );

  RETURN json_build_object(
    'nowMs', v_now_ms,
    'nextMs', ceil(extract(epoch FROM v_next) * 1000)::bigint,
    'isFull', COALESCE(v_is_full, false),
    'schedules', COALESCE(
      (
        SELECT json_agg(json_build_object(
          'name', s.name, 'definition', s.definition, 'payload', s.payload, 'code', s.code, 'revision', s.revision,
          'firedUntilMs', floor(extract(epoch FROM s.fired_until) * 1000)::bigint,
          'isPaused', s.paused_at IS NOT NULL, 'queued', s.queued, 'requests', s.requests, 'runCount', s.run_count,
          'lastInstanceId', s.last_instance_id, 'lastTaskId', s.last_task_id,
          'isRunning', dx_is_schedule_running(s.last_instance_id, s.last_task_id)
        ))
        FROM unnest(v_names) AS claimed (name)
        CROSS JOIN LATERAL (SELECT s.* FROM schedules AS s WHERE s.name = claimed.name OFFSET 0) AS s
      ),
      '[]'
    ),
    'waiting', COALESCE(
      (
        SELECT json_agg(json_build_object(
          'name', s.name, 'instanceId', s.last_instance_id, 'taskId', s.last_task_id
        ))
        FROM schedules AS s
        WHERE s.queued IS NOT NULL AND (s.paused_at IS NULL OR s.queued ->> 'kind' = 'Manual')
          AND (s.code IS NULL OR s.code = ANY (p_codes))
          AND dx_is_schedule_running(s.last_instance_id, s.last_task_id)
      ),
      '[]'
    )
  );
END
$$;
