-- Sets which processes take the next turn of instances whose turns are stored. They also take the messages that arrived
-- during this one. A part of dx_store_turns.
--
-- Returns how many messages it has rerouted.
-- Bound: the turns, and the messages of instances whose route changes. Locks: instance rows; queue rows of these
-- instances.
CREATE OR REPLACE FUNCTION dx_reroute_instances(p_turns dx_turn[]) RETURNS bigint LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_rerouted bigint;
BEGIN
  WITH wanted AS (
    SELECT
      i.instance_id, turn.secret,
      dx_route(
        e.duroxide_version_major, e.duroxide_version_minor, e.duroxide_version_patch, i.orchestration_name,
        CASE
          WHEN turn.status = 'ContinuedAsNew' THEN COALESCE(turn.next_version, i.orchestration_version)
          ELSE i.orchestration_version
        END,
        turn.status IS NOT DISTINCT FROM 'ContinuedAsNew' AND turn.next_version IS NULL
      ) AS route
    FROM unnest(p_turns) AS turn
    JOIN instances AS i ON i.instance_id = turn.instance_id
    JOIN executions AS e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
    WHERE turn.execution_id IS NOT NULL
  ),
  changed AS (
    UPDATE instances AS i SET route = wanted.route
    FROM wanted WHERE i.instance_id = wanted.instance_id AND i.route <> wanted.route
    RETURNING i.instance_id, i.route, wanted.secret
  )
  UPDATE orchestrator_queue AS q
  SET route = (SELECT changed.route FROM changed WHERE changed.instance_id = q.instance_id)
  -- Not a plain join: planned while statistics call the queue empty, it would read all of it.
  WHERE q.id = ANY (ARRAY(
    SELECT message.id FROM changed
    CROSS JOIN LATERAL (
      SELECT m.id FROM orchestrator_queue AS m
      WHERE m.instance_id = changed.instance_id
        AND m.route <> changed.route
        AND (m.lock_token = changed.secret) IS NOT TRUE
      OFFSET 0
    ) AS message
  ));
  GET DIAGNOSTICS v_rerouted = ROW_COUNT;
  RETURN v_rerouted;
END
$$;
