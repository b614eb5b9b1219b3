-- Returns what is paused besides single instances, as an array: [{target, name, version, reason, sinceMs}].
--
-- Bound: the rows of these targets. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_paused(
  p_targets text[] DEFAULT '{orchestration,activity,tag,everything}'
) RETURNS json LANGUAGE sql STABLE
-- settings of the hot path
AS $$
  SELECT COALESCE(
    json_agg(
      json_build_object(
        'target', p.target, 'name', p.name, 'version', p.version, 'reason', p.reason,
        'sinceMs', floor(extract(epoch FROM p.since) * 1000)::bigint
      )
      ORDER BY p.since, p.target, p.name, p.version
    ),
    '[]'
  )
  FROM paused AS p WHERE p.target = ANY (p_targets)
$$;
