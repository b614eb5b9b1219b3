-- The route of a message: the one of its instance; of a start or a continue-as-new without an instance, what it asks for.
-- Empty when nothing is known of the id: the message waits for its start.
--
-- Bound: one row of instances and executions; the text of a start. Locks: none.
CREATE OR REPLACE FUNCTION dx_message_route(
  p_instance_id text,
  p_work_item text
)
RETURNS text
LANGUAGE plpgsql
STABLE
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
  v_route text;
  v_item jsonb;
BEGIN
  SELECT COALESCE(
    NULLIF(i.route, ''),
    -- A row of Duroxide.
    (
      SELECT dx_route(
        e.duroxide_version_major,
        e.duroxide_version_minor,
        e.duroxide_version_patch,
        i.orchestration_name,
        i.orchestration_version,
        false
      )
      FROM executions AS e
      WHERE e.instance_id = i.instance_id
        AND e.execution_id = i.current_execution_id
    ),
    dx_route(NULL, NULL, NULL, i.orchestration_name, i.orchestration_version, false)
  )
  INTO v_route
  FROM instances AS i
  WHERE i.instance_id = p_instance_id;
  IF v_route IS NOT NULL THEN
    RETURN CASE WHEN octet_length(v_route) <= 2400 THEN v_route ELSE '' END;
  END IF;
  IF p_work_item LIKE '{"StartOrchestration"%' OR p_work_item LIKE '{"ContinueAsNew"%' THEN
    BEGIN
      v_item := p_work_item::jsonb;
      v_item := COALESCE(v_item -> 'StartOrchestration', v_item -> 'ContinueAsNew');
      v_route := dx_route(NULL, NULL, NULL, v_item ->> 'orchestration', v_item ->> 'version', false);
    EXCEPTION
      -- Text that is not JSON: an insert never fails for it.
      WHEN data_exception THEN
        v_route := NULL;
    END;
    -- An index entry takes 2,704 bytes: no insert of others fails for it, and no process of ours serves such names.
    IF octet_length(v_route) <= 2400 THEN
      RETURN v_route;
    END IF;
  END IF;
  -- A history that tools wrote, or a turn that named nothing: claims of every definition take it.
  IF EXISTS (SELECT FROM history AS h WHERE h.instance_id = p_instance_id) THEN
    RETURN '- ?';
  END IF;
  RETURN '';
END
$$;
