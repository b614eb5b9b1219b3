-- Removes the limits of a definition, with those of its keys, and releases all that wait for a slot. What a statement
-- under way stores for one, the next claims release.
--
-- Returns whether there was a limit. That of an activity or orchestration is announced to all processes.
-- Bound, locks: as dx_set_limit.
CREATE OR REPLACE FUNCTION dx_remove_limit(
  p_kind text,                     -- as in dx_set_limit
  p_name text, p_now_ms bigint DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
BEGIN
  PERFORM pg_advisory_xact_lock(dx_limit_lock(p_kind, p_name));
  DELETE FROM limits AS l WHERE l.kind = p_kind AND l.name = p_name;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  DELETE FROM limit_keys AS k WHERE k.kind = p_kind AND k.name = p_name;
  IF p_kind = 'activity' THEN
    PERFORM dx_release_activities(p_name, v_now);
  ELSIF p_kind = 'task' THEN
    PERFORM dx_release_tasks(p_name, v_now_ms);
  ELSIF p_kind = 'orchestration' THEN
    PERFORM dx_release_limited_instances(p_name, v_now);
  END IF;
  RETURN true;
END
$$;
