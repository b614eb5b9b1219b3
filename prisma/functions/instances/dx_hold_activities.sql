-- Locks the activities that led to optimistic turns or that these cancel. A part of dx_advance_orchestrations.
--
-- Returns the turns, without an execution where one lacks a live lock of its caller, or where another transaction has
-- locked one of these activities, or where an earlier turn of its instance is stored.
-- Bound: the activities given. Locks: their rows (skip locked).
CREATE OR REPLACE FUNCTION dx_hold_activities(
  p_turns dx_turn[],               -- as dx_check_turns returns them
  p_results jsonb,                 -- as in dx_advance_orchestrations
  p_cancelled_activities jsonb,    -- as in dx_store_turns
  p_now_ms bigint, OUT out_turns dx_turn[],
  OUT out_ended bigint[],          -- ids of the activities that ended
  OUT out_held bigint[]            -- those, then those that are cancelled as well
) LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_row record;
  v_position bigint;
BEGIN
  out_turns := p_turns;
  out_ended := '{}';
  FOR v_row IN
    SELECT result.ack, activity.id
    FROM jsonb_to_recordset(p_results) AS result (ack bigint, token text)
    CROSS JOIN LATERAL (
      SELECT w.id FROM worker_queue AS w
      WHERE w.id = dx_row_id(result.token)
        AND w.lock_token = split_part(result.token, '.', 2)
        AND w.locked_until > p_now_ms
        -- Not "=": found by id, whatever the statistics say.
        AND w.instance_id IS NOT DISTINCT FROM out_turns[result.ack].instance_id
      FOR UPDATE SKIP LOCKED
    ) AS activity
    WHERE out_turns[result.ack].execution_id IS NOT NULL
  LOOP
    -- One activity that is given twice: one result stays missing.
    CONTINUE WHEN v_row.id = ANY (out_ended);
    out_ended := out_ended || v_row.id;
    out_turns[v_row.ack].results := out_turns[v_row.ack].results - 1;
  END LOOP;
  out_held := out_ended;
  IF p_cancelled_activities IS NOT NULL THEN
    out_held := out_held || ARRAY(
      SELECT activity.id
      FROM jsonb_to_recordset(p_cancelled_activities)
        AS c (ack bigint, instance_id text, execution_id bigint, activity_id bigint)
      CROSS JOIN LATERAL (
        SELECT w.id FROM worker_queue AS w
        WHERE w.instance_id = c.instance_id
          AND w.execution_id = c.execution_id
          AND w.activity_id = c.activity_id
        FOR UPDATE SKIP LOCKED
      ) AS activity
      WHERE out_turns[c.ack].execution_id IS NOT NULL
    );
    FOR v_position IN
      SELECT c.ack
      FROM jsonb_to_recordset(p_cancelled_activities)
        AS c (ack bigint, instance_id text, execution_id bigint, activity_id bigint)
      CROSS JOIN LATERAL (
        SELECT w.id FROM worker_queue AS w
        WHERE w.instance_id = c.instance_id
          AND w.execution_id = c.execution_id
          AND w.activity_id = c.activity_id
        OFFSET 0
      ) AS activity
      WHERE activity.id <> ALL (out_held)
    LOOP
      out_turns[v_position].execution_id := NULL;
    END LOOP;
  END IF;

  -- Of the turns of one instance the first.
  FOR v_position IN
    SELECT turn.ordinality
    FROM (
      SELECT
        turn.ordinality, turn.results,
        row_number() OVER (PARTITION BY turn.instance_id, turn.results = 0 ORDER BY turn.ordinality) AS place
      FROM unnest(out_turns) WITH ORDINALITY AS turn WHERE turn.execution_id IS NOT NULL
    ) AS turn
    WHERE (turn.results = 0) IS NOT TRUE OR turn.place > 1
  LOOP
    out_turns[v_position].execution_id := NULL;
  END LOOP;
END
$$;
