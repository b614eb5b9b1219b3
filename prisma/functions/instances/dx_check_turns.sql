-- Finds out which optimistic turns continue the histories as they are stored, and takes the advisory locks of their
-- instances. A part of dx_advance_orchestrations, which says when a turn fits.
--
-- Returns the turns, without an execution where one does not fit.
-- Bound: one row of each table per turn; the events given where ids may be taken. Locks: advisory locks of the
-- instances (try), the same as claims take.
CREATE OR REPLACE FUNCTION dx_check_turns(
  p_turns dx_turn[],
  p_history jsonb,                 -- as in dx_store_turns
  p_now_ms bigint
) RETURNS dx_turn[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_turns dx_turn[] := p_turns;
  v_ours text[];
  v_position bigint;
BEGIN
  SELECT array_agg(turn.instance_id) INTO v_ours
  FROM (SELECT DISTINCT turn.instance_id FROM unnest(v_turns) AS turn) AS turn
  WHERE pg_try_advisory_xact_lock(hashtext(turn.instance_id));

  -- This and what follows sees everything that was committed before we took the advisory locks.
  FOR v_position IN
    SELECT turn.ordinality FROM unnest(v_turns) WITH ORDINALITY AS turn
    WHERE (
      turn.instance_id = ANY (v_ours)
      AND dx_is_clock_off(turn.clock_ms, p_now_ms) IS NOT TRUE
      AND (SELECT l.instance_id FROM instance_locks AS l WHERE l.instance_id = turn.instance_id) IS NULL
      AND (
        SELECT q.id FROM orchestrator_queue AS q
        WHERE q.instance_id = turn.instance_id AND q.due_at <= v_now
        LIMIT 1
      ) IS NULL
      AND (SELECT i.current_execution_id FROM instances AS i WHERE i.instance_id = turn.instance_id) = turn.execution_id
      AND (
        SELECT e.status FROM executions AS e
        WHERE e.instance_id = turn.instance_id AND e.execution_id = turn.execution_id
      ) = 'Running'
      AND (
        SELECT h.event_id = turn.last_event_id
          AND encode(sha256(convert_to(h.event_data, 'UTF8')), 'hex') = turn.last_event_hash
        FROM history AS h
        WHERE h.instance_id = turn.instance_id AND h.execution_id = turn.execution_id
        ORDER BY h.event_id DESC LIMIT 1
      )
    ) IS NOT TRUE
  LOOP
    v_turns[v_position].execution_id := NULL;
  END LOOP;

  IF p_history IS NOT NULL AND EXISTS (SELECT FROM unnest(v_turns) AS turn WHERE turn.appends IS NOT TRUE) THEN
    FOR v_position IN
      SELECT event.ack FROM jsonb_to_recordset(p_history) AS event (ack bigint, event_id bigint)
      WHERE v_turns[event.ack].execution_id IS NOT NULL
      GROUP BY event.ack, event.event_id
      HAVING count(*) > 1
        OR CASE
          WHEN event.event_id > v_turns[event.ack].last_event_id THEN false
          ELSE (
            SELECT h.event_id FROM history AS h
            WHERE h.instance_id = v_turns[event.ack].instance_id
              AND h.execution_id = v_turns[event.ack].execution_id
              AND h.event_id = event.event_id
          ) IS NOT NULL
        END
    LOOP
      v_turns[v_position].execution_id := NULL;
    END LOOP;
  END IF;
  RETURN v_turns;
END
$$;
