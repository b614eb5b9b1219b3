-- Creates instances whose id is free, each with execution 1 and its attributes. A part of dx_start_orchestrations and
-- dx_store_instances.
--
-- Returns the positions of the created ones. An id is free if it has no row in instances or executions and no queued
-- start; of two instances with one id the first is created. Of concurrent transactions exactly one creates it.
-- Bound: the instances given, and the queued messages of their ids. Locks: the new instances by id, then their
-- executions and attributes.
CREATE OR REPLACE FUNCTION dx_create_instances(
  p_instances dx_instance[],
  p_texts text[],                  -- as in dx_store_turns
  p_now timestamptz,
  p_places bigint[] DEFAULT NULL   -- of dx_park_instances; null: none waits for a limit
) RETURNS bigint[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_created bigint[];
  v_attributes boolean;
BEGIN
  WITH free AS (
    SELECT DISTINCT ON (instance.instance_id COLLATE "C") instance.*
    FROM unnest(p_instances) WITH ORDINALITY AS instance
    -- Not NOT EXISTS: a join that was planned while these tables were empty reads the whole of them.
    WHERE (SELECT i.instance_id FROM instances AS i WHERE i.instance_id = instance.instance_id) IS NULL
      AND (SELECT e.status FROM executions AS e WHERE e.instance_id = instance.instance_id LIMIT 1) IS NULL
      AND (
        SELECT q.id FROM orchestrator_queue AS q
        WHERE q.instance_id = instance.instance_id AND q.work_item LIKE '{"StartOrchestration"%'
        LIMIT 1
      ) IS NULL
    ORDER BY instance.instance_id COLLATE "C", instance.ordinality
  ),
  created AS (
    INSERT INTO instances (
      instance_id, orchestration_name, orchestration_version, current_execution_id, created_at, updated_at,
      parent_instance_id, custom_status, custom_status_version, route, status, limit_name, limit_key, limit_route,
      limit_place
    )
    SELECT
      free.instance_id, free.orchestration_name, free.orchestration_version, 1, p_now, p_now, free.parent_instance_id,
      free.custom_status, free.custom_status_version,
      -- Columns, so that PostgreSQL can inline the function, which takes it 1 microsecond per row instead of 45.
      CASE WHEN p_places[free.ordinality] > 0 THEN '~' ELSE '' END
        || dx_route(free.major, free.minor, free.patch, free.orchestration_name, free.served_version, free.or_newer),
      dx_status(free.status, COALESCE(free.output, p_texts[free.text_at])), free.limit_name,
      CASE WHEN free.limit_name IS NULL THEN free.limit_key ELSE COALESCE(free.limit_key, '') END,
      CASE
        WHEN p_places[free.ordinality] > 0
          THEN dx_route(free.major, free.minor, free.patch, free.orchestration_name, free.served_version, free.or_newer)
      END,
      NULLIF(p_places[free.ordinality], 0)
    FROM free
    ORDER BY free.instance_id COLLATE "C"
    ON CONFLICT (instance_id) DO NOTHING RETURNING instance_id
  ),
  pinned AS (
    INSERT INTO executions (
      instance_id, execution_id, status, output, started_at, completed_at, duroxide_version_major,
      duroxide_version_minor, duroxide_version_patch
    )
    SELECT
      free.instance_id, 1, free.status, COALESCE(free.output, p_texts[free.text_at]), p_now,
      CASE WHEN free.status <> 'Running' THEN p_now END, free.major, free.minor, free.patch
    FROM free
    -- IS TRUE: a hash of all, not a loop over them for each. The planner expects one row of both.
    WHERE (free.instance_id IN (SELECT created.instance_id FROM created)) IS TRUE
    ORDER BY free.instance_id COLLATE "C"
    ON CONFLICT (instance_id, execution_id) DO NOTHING
  )
  SELECT array_agg(free.ordinality), bool_or(free.attributes IS NOT NULL) INTO v_created, v_attributes FROM free
  WHERE (free.instance_id IN (SELECT created.instance_id FROM created)) IS TRUE;
  IF v_attributes THEN
    INSERT INTO attributes (instance_id, name, text_value, number_value, time_value, created_at)
    SELECT
      instance.instance_id, attribute.name, attribute.text, attribute.number,
      to_timestamp(attribute.time_ms::float8 / 1000), p_now
    FROM unnest(p_instances) WITH ORDINALITY AS instance
    CROSS JOIN LATERAL jsonb_to_recordset(instance.attributes)
      AS attribute (name text, text text, number double precision, time_ms bigint)
    WHERE instance.ordinality = ANY (v_created)
    -- Of an instance of this id that Duroxide has deleted.
    ON CONFLICT (instance_id, name) DO UPDATE
    SET text_value = excluded.text_value, number_value = excluded.number_value, time_value = excluded.time_value,
        created_at = excluded.created_at;
  END IF;
  RETURN v_created;
END
$$;
