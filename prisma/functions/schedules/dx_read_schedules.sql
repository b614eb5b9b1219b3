-- Reads schedules by name in order, with their last run that is known. Only that of one name has its payload.
--
-- Returns {nowMs, schedules: [...]}. Bound: p_limit schedules. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_schedules(
  p_name text,                     -- null: all
  p_after text,                    -- those after this name; null: from the first
  p_limit integer, p_now_ms bigint DEFAULT NULL
) RETURNS json LANGUAGE sql STABLE
-- settings of the hot path
AS $$
  SELECT json_build_object(
    'nowMs', COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint),
    'schedules', COALESCE(json_agg(json_build_object(
      'name', s.name, 'definition', s.definition, 'hasPayload', s.payload IS NOT NULL,
      'payload', CASE WHEN p_name IS NOT NULL THEN s.payload END,
      'createdMs', floor(extract(epoch FROM s.created_at) * 1000)::bigint,
      'updatedMs', floor(extract(epoch FROM s.updated_at) * 1000)::bigint,
      'firedUntilMs', floor(extract(epoch FROM s.fired_until) * 1000)::bigint,
      'lookMs', floor(extract(epoch FROM s.look_at) * 1000)::bigint,
      'pausedMs', floor(extract(epoch FROM s.paused_at) * 1000)::bigint, 'pauseReason', s.pause_reason,
      'queued', s.queued, 'requests', jsonb_array_length(s.requests),
      'isRunning', dx_is_schedule_running(s.last_instance_id, s.last_task_id), 'lastRun', s.last_run
    ) ORDER BY s.name), '[]')
  )
  FROM (
    SELECT s.*, (
      SELECT json_build_object(
        'number', r.number, 'kind', r.kind, 'occurrenceMs', floor(extract(epoch FROM r.occurrence_at) * 1000)::bigint,
        'missedSinceMs', floor(extract(epoch FROM r.missed_since) * 1000)::bigint, 'outcome', r.outcome,
        'note', r.note, 'instanceId', r.instance_id, 'taskId', r.task_id,
        'settledMs', floor(extract(epoch FROM r.settled_at) * 1000)::bigint
      )
      FROM schedule_runs AS r
      WHERE r.schedule_name = s.name
      ORDER BY r.number DESC
      LIMIT 1
    ) AS last_run
    FROM schedules AS s
    WHERE (p_name IS NULL OR s.name = p_name) AND (p_after IS NULL OR s.name > p_after)
    ORDER BY s.name
    LIMIT p_limit
  ) AS s
$$;
