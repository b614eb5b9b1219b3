-- Creates a running instance with a history, which continues from its last event. Its execution has the number that it
-- had in the instance it was made from.
--
-- Returns whether the id was free: no execution, event, value, lock or message is stored under it. Bound: the events
-- and values given. Locks: the new instance.
CREATE OR REPLACE FUNCTION dx_fork_instance(
  p_instance_id text,
  p_of text,                       -- the instance it is made from
  p_orchestration_name text,
  p_orchestration_version text,
  p_execution_id bigint,
  p_major integer,                 -- pinned version
  p_minor integer,
  p_patch integer,
  p_history jsonb,                 -- [{event_id, event_type, event_data}]
  p_custom_status text,            -- that of these events
  p_stored jsonb,                  -- as in dx_cut_history, not null
  p_changed jsonb,
  p_messages text[],
  p_attributes jsonb,              -- as in dx_cut_history
  p_now_ms bigint DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
BEGIN
  IF EXISTS (SELECT FROM executions AS e WHERE e.instance_id = p_instance_id)
    OR EXISTS (SELECT FROM history AS h WHERE h.instance_id = p_instance_id)
    OR EXISTS (SELECT FROM instance_locks AS l WHERE l.instance_id = p_instance_id)
    OR EXISTS (SELECT FROM orchestrator_queue AS q WHERE q.instance_id = p_instance_id)
    OR EXISTS (SELECT FROM kv_store AS s WHERE s.instance_id = p_instance_id)
    OR EXISTS (SELECT FROM kv_delta AS d WHERE d.instance_id = p_instance_id)
  THEN
    RETURN false;
  END IF;
  INSERT INTO instances (
    instance_id, orchestration_name, orchestration_version, current_execution_id, created_at, updated_at,
    custom_status, custom_status_version, route, limit_name, limit_key
  )
  VALUES (
    p_instance_id, p_orchestration_name, p_orchestration_version, p_execution_id, v_now, v_now,
    p_custom_status, (p_custom_status IS NOT NULL)::integer,
    dx_route(p_major, p_minor, p_patch, p_orchestration_name, p_orchestration_version, false),
    -- It does not wait for a slot, and counts.
    (SELECT l.name FROM limits AS l WHERE l.kind = 'orchestration' AND l.name = p_orchestration_name),
    COALESCE((SELECT i.limit_key FROM instances AS i WHERE i.instance_id = p_of), '')
  )
  ON CONFLICT (instance_id) DO NOTHING;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  INSERT INTO executions (
    instance_id, execution_id, status, started_at, duroxide_version_major, duroxide_version_minor,
    duroxide_version_patch
  )
  VALUES (
    p_instance_id, p_execution_id, 'Running', v_now, p_major, p_minor, p_patch
  );
  INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
  SELECT p_instance_id, p_execution_id, e.event_id, e.event_type, e.event_data, v_now
  FROM jsonb_to_recordset(p_history) AS e (event_id bigint, event_type text, event_data text);
  INSERT INTO kv_store (instance_id, key, value, execution_id, last_updated_at_ms)
  SELECT p_instance_id, v.key, v.value, v.execution_id, v.last_updated_at_ms
  FROM jsonb_to_recordset(p_stored) AS v (key text, value text, execution_id bigint, last_updated_at_ms bigint);
  INSERT INTO kv_delta (instance_id, key, value, last_updated_at_ms)
  SELECT p_instance_id, v.key, v.value, v.last_updated_at_ms
  FROM jsonb_to_recordset(p_changed) AS v (key text, value text, last_updated_at_ms bigint);
  DELETE FROM attributes AS a WHERE a.instance_id = p_instance_id; -- of an instance that Duroxide has deleted
  INSERT INTO attributes (instance_id, name, text_value, number_value, time_value, created_at)
  SELECT
    p_instance_id, attribute.name, attribute.text, attribute.number,
    to_timestamp(attribute.time_ms::float8 / 1000), v_now
  FROM jsonb_to_recordset(p_attributes)
    AS attribute (name text, text text, number double precision, time_ms bigint);
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
  SELECT p_instance_id, m.work_item, v_now, v_now
  FROM unnest(p_messages) WITH ORDINALITY AS m (work_item, position)
  ORDER BY m.position;
  RETURN true;
END
$$;
