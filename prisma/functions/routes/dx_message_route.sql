-- Returns the route of a message: the route of its instance or, for a start or a continue-as-new without an instance,
-- the version and name it asks for. Empty if the id is unknown: the message waits for its start.
-- Bound: one row of instances and executions; the text of a start. Locks: none.
CREATE OR REPLACE FUNCTION dx_message_route(p_instance_id text, p_work_item text) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
  v_route text;
  v_item jsonb;
BEGIN
  SELECT COALESCE(
    -- Of one that waits for a limit, the route it will have: a claim finds out what to do with the message.
    NULLIF(COALESCE(i.limit_route, i.route), ''),
    -- Duroxide wrote this row.
    (
      SELECT dx_route(
        e.duroxide_version_major, e.duroxide_version_minor, e.duroxide_version_patch, i.orchestration_name,
        i.orchestration_version, false
      )
      FROM executions AS e
      WHERE e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
    ),
    dx_route(NULL, NULL, NULL, i.orchestration_name, i.orchestration_version, false)
  )
  INTO v_route
  FROM instances AS i WHERE i.instance_id = p_instance_id;
  IF v_route IS NOT NULL THEN
    RETURN CASE WHEN octet_length(v_route) <= 2400 THEN v_route ELSE '' END;
  END IF;
  IF p_work_item LIKE '{"StartOrchestration"%' OR p_work_item LIKE '{"ContinueAsNew"%' THEN
    BEGIN
      v_item := p_work_item::jsonb;
      v_item := COALESCE(v_item -> 'StartOrchestration', v_item -> 'ContinueAsNew');
      v_route := dx_route(NULL, NULL, NULL, v_item ->> 'orchestration', v_item ->> 'version', false);
    EXCEPTION
      -- The text is not JSON, or too deep. An insert must not fail for that.
      WHEN data_exception OR program_limit_exceeded THEN
        v_route := NULL;
    END;
    -- An index entry holds at most 2,704 bytes. An insert by another program must not fail for that, and no TypeScript
    -- process serves names this long.
    IF octet_length(v_route) <= 2400 THEN
      RETURN v_route;
    END IF;
  END IF;
  -- A tool wrote the history, or the turn named no orchestration: any claim takes the message.
  IF EXISTS (SELECT FROM history AS h WHERE h.instance_id = p_instance_id) THEN
    RETURN '- ?';
  END IF;
  RETURN '';
END
$$;
