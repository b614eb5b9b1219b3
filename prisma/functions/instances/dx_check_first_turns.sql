-- Finds out which first turns can be stored with their starts, and takes the advisory locks of their instances. A part
-- of dx_start_orchestrations, which says when a turn can be stored.
--
-- Returns the turns with their instances, without an execution where a turn cannot be stored.
-- Bound: one row of each table per turn; the events given where ids may be given twice. Locks: advisory locks of the
-- instances (try), the same as claims take.
CREATE OR REPLACE FUNCTION dx_check_first_turns(
  p_turns dx_turn[],
  p_starts dx_start[],             -- by the same positions
  p_history jsonb,                 -- as in dx_store_turns
  p_now_ms bigint
) RETURNS dx_turn[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_turns dx_turn[] := p_turns;
  v_ours text[];
  v_start record;
  v_position bigint;
BEGIN
  SELECT array_agg(start.instance_id) INTO v_ours
  FROM (
    SELECT DISTINCT start.instance_id FROM unnest(p_starts) WITH ORDINALITY AS start
    WHERE p_turns[start.ordinality].execution_id = 1
  ) AS start
  WHERE pg_try_advisory_xact_lock(hashtext(start.instance_id));

  -- This and what follows sees everything that was committed before we took the advisory locks. Of two starts of one id
  -- the first counts.
  FOR v_start IN
    SELECT
      start.ordinality AS position, start.instance_id,
      start.is_first
        AND turn.execution_id = 1
        AND dx_is_clock_off(turn.clock_ms, p_now_ms) IS NOT TRUE
        AND COALESCE(start.delay_ms, 0) = 0
        AND start.instance_id = ANY (v_ours)
        AND (SELECT i.instance_id FROM instances AS i WHERE i.instance_id = start.instance_id) IS NULL
        AND (SELECT e.status FROM executions AS e WHERE e.instance_id = start.instance_id LIMIT 1) IS NULL
        AND (SELECT l.instance_id FROM instance_locks AS l WHERE l.instance_id = start.instance_id) IS NULL
        AND (SELECT q.id FROM orchestrator_queue AS q WHERE q.instance_id = start.instance_id LIMIT 1) IS NULL
        AND (SELECT h.event_id FROM history AS h WHERE h.instance_id = start.instance_id LIMIT 1) IS NULL AS begins
    FROM (
      SELECT
        start.*, row_number() OVER (PARTITION BY start.instance_id ORDER BY start.ordinality) = 1 AS is_first
      FROM unnest(p_starts) WITH ORDINALITY AS start
    ) AS start
    CROSS JOIN LATERAL (
      SELECT p_turns[start.ordinality].execution_id AS execution_id, p_turns[start.ordinality].clock_ms AS clock_ms
    ) AS turn
  LOOP
    IF v_start.begins THEN
      v_turns[v_start.position].instance_id := v_start.instance_id;
    ELSE
      v_turns[v_start.position].execution_id := NULL;
    END IF;
  END LOOP;

  IF EXISTS (SELECT FROM unnest(v_turns) AS turn WHERE turn.execution_id IS NOT NULL AND turn.appends IS NOT TRUE) THEN
    FOR v_position IN
      SELECT event.ack FROM jsonb_to_recordset(p_history) AS event (ack bigint, event_id bigint)
      GROUP BY event.ack, event.event_id HAVING count(*) > 1
    LOOP
      v_turns[v_position].execution_id := NULL;
    END LOOP;
  END IF;
  RETURN v_turns;
END
$$;
