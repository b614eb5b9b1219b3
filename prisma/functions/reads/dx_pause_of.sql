-- Returns why an instance that has not ended is paused: fields as in dx_read_paused; null if it is not. The narrowest
-- of several pauses counts.
--
-- Bound: four rows. Locks: none.
CREATE OR REPLACE FUNCTION dx_pause_of(p_instance instances) RETURNS jsonb LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT jsonb_build_object(
    'target', p.target, 'name', p.name, 'version', p.version, 'reason', p.reason,
    'sinceMs', floor(extract(epoch FROM p.since) * 1000)::bigint
  )
  FROM (
    VALUES
      (1, 'instance', p_instance.instance_id, ''),
      (
        2, 'orchestration', p_instance.orchestration_name,
        -- Before its first turn, its route says which version it asks for.
        COALESCE(p_instance.orchestration_version, substr(split_part(p_instance.route, ' ', 2), 2))
      ),
      (3, 'orchestration', p_instance.orchestration_name, ''),
      (4, 'everything', '', '')
  ) AS wanted (width, target, name, version)
  JOIN paused AS p ON p.target = wanted.target AND p.name = wanted.name AND p.version = wanted.version
  WHERE wanted.width > 1 OR p.since >= p_instance.created_at
  ORDER BY wanted.width LIMIT 1
$$;
