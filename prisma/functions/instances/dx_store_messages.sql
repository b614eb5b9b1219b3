-- Stores the messages of turns, timers among them; routes the messages that arrived before their start; deletes the
-- timers that turns cancel. A part of dx_store_turns.
--
-- Returns how many messages it has inserted.
-- Bound: the messages given, the queued messages of instances that were started, and the timers of instances that
-- cancel some. Locks: queue rows of started instances (skip locked); timers.
CREATE OR REPLACE FUNCTION dx_store_messages(
  p_turns dx_turn[],
  p_orchestrator_items jsonb,      -- as in dx_store_turns
  p_started text[],                -- instances that were started with these turns; null or empty: none
  p_cancels boolean,               -- whether any turn has cancelled_timers
  p_texts text[], p_now_ms bigint
) RETURNS bigint LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_inserted bigint := 0;
BEGIN
  IF p_orchestrator_items IS NOT NULL THEN
    INSERT INTO orchestrator_queue (id, instance_id, work_item, visible_at, created_at, route)
    SELECT
      nextval('orchestrator_queue_id_seq') * CASE
        -- The message that begins an execution must be in its first batch, however many messages wait.
        WHEN due.at <= v_now
          AND (
            COALESCE(message.work_item, p_texts[message.text_at]) LIKE '{"StartOrchestration"%'
            OR COALESCE(message.work_item, p_texts[message.text_at]) LIKE '{"ContinueAsNew"%'
          )
          AND (
            SELECT q.id FROM orchestrator_queue AS q
            WHERE q.instance_id = message.instance_id AND q.due_at <= v_now
            LIMIT 1
          ) IS NOT NULL THEN -1
        ELSE 1
      END,
      message.instance_id, COALESCE(message.work_item, p_texts[message.text_at]), due.at, v_now,
      COALESCE(
        (
          -- The start waits with its instance; a claim finds out what to do with another message.
          SELECT CASE WHEN message.instance_id = ANY (p_started) THEN i.route ELSE COALESCE(i.limit_route, i.route) END
          FROM instances AS i WHERE i.instance_id = message.instance_id
        ),
        ''
      )
    FROM (
      SELECT m.*
      FROM ROWS FROM (
        jsonb_to_recordset(p_orchestrator_items)
          AS (ack bigint, instance_id text, work_item text, text_at integer, visible_at_ms bigint, delay_ms bigint)
      ) WITH ORDINALITY AS m (ack, instance_id, work_item, text_at, visible_at_ms, delay_ms, position)
      WHERE p_turns[m.ack].execution_id IS NOT NULL
      ORDER BY m.position
    ) AS message
    CROSS JOIN LATERAL (
      SELECT dx_time_of(COALESCE(greatest(message.visible_at_ms, p_now_ms + message.delay_ms), p_now_ms)) AS at
    ) AS due;
    GET DIAGNOSTICS v_inserted = ROW_COUNT;
  END IF;

  IF p_started <> '{}' THEN
    PERFORM dx_route_earlier_messages(p_started, NULL, v_now);
  END IF;

  IF p_cancels THEN
    -- After the insert: one turn may create a timer and cancel it. A timer that is visible by now is left to the next
    -- turn.
    DELETE FROM orchestrator_queue AS q
    WHERE q.id = ANY (ARRAY(
      SELECT timer.id FROM unnest(p_turns) AS turn
      CROSS JOIN LATERAL (
        SELECT queued.id FROM orchestrator_queue AS queued
        WHERE queued.instance_id = turn.instance_id
          AND queued.due_at > v_now
          AND turn.cancelled_timers ? queued.work_item
        OFFSET 0
      ) AS timer
      WHERE turn.execution_id IS NOT NULL
    ));
  END IF;

  IF p_orchestrator_items IS NOT NULL AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
    PERFORM dx_notify(
      'orch_work',
      ARRAY(
        SELECT dx_time_of(COALESCE(greatest(message.visible_at_ms, p_now_ms + message.delay_ms), p_now_ms))
        FROM jsonb_to_recordset(p_orchestrator_items) AS message (ack bigint, visible_at_ms bigint, delay_ms bigint)
        WHERE p_turns[message.ack].execution_id IS NOT NULL
      )
    );
  END IF;
  RETURN v_inserted;
END
$$;
