-- Returns the instances that messages of stored turns start: children and detached starts. Null without any.
-- Bound: the messages given. Locks: none.
CREATE OR REPLACE FUNCTION dx_instances_of_children(
  p_turns dx_turn[],
  p_orchestrator_items jsonb       -- as in dx_store_turns
) RETURNS dx_instance[] LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  IF jsonb_path_exists(p_orchestrator_items, '$[*].start') IS NOT TRUE THEN
    RETURN NULL;
  END IF;
  RETURN (
    SELECT array_agg(
      ROW(
        message.instance_id, child.orchestration_name, NULL, child.parent_instance_id, NULL, 0, 'Running', NULL, NULL,
        child.major, child.minor, child.patch, child.orchestration_version, false, message.ack, true,
        child.attributes,
        CASE
          WHEN child.major > 0 THEN (
            SELECT l.name FROM limits AS l WHERE l.kind = 'orchestration' AND l.name = child.orchestration_name
          )
        END,
        child.limit_key
      )::dx_instance
      ORDER BY message.position
    )
    FROM ROWS FROM (jsonb_to_recordset(p_orchestrator_items) AS (ack bigint, instance_id text, start jsonb))
      WITH ORDINALITY AS message (ack, instance_id, start, position)
    CROSS JOIN LATERAL jsonb_populate_record(NULL::dx_start, message.start) AS child
    WHERE p_turns[message.ack].execution_id IS NOT NULL AND message.start IS NOT NULL
  );
END
$$;
