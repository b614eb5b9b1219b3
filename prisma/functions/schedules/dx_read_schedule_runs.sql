-- Reads what became of the last occurrences of a schedule, the newest first.
--
-- Bound: p_limit rows. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_schedule_runs(p_name text, p_limit integer) RETURNS json LANGUAGE sql STABLE
-- settings of the hot path
AS $$
  SELECT COALESCE(json_agg(json_build_object(
    'number', r.number, 'kind', r.kind, 'occurrenceMs', floor(extract(epoch FROM r.occurrence_at) * 1000)::bigint,
    'missedSinceMs', floor(extract(epoch FROM r.missed_since) * 1000)::bigint, 'outcome', r.outcome,
    'note', r.note, 'instanceId', r.instance_id, 'taskId', r.task_id,
    'settledMs', floor(extract(epoch FROM r.settled_at) * 1000)::bigint
  ) ORDER BY r.number DESC), '[]')
  FROM (
    SELECT r.* FROM schedule_runs AS r WHERE r.schedule_name = p_name ORDER BY r.number DESC LIMIT p_limit
  ) AS r
$$;
