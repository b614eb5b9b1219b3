-- Stores the messages of starts that are stored without their first turn, and makes earlier messages of their instances
-- arrive with them. A part of dx_start_orchestrations.
--
-- Bound: the starts given, and the queued messages of their ids. Locks: earlier messages (skip locked).
CREATE OR REPLACE FUNCTION dx_store_starts(
  p_starts dx_start[],
  p_started bigint[],              -- positions of those whose instances were created
  p_turns dx_turn[],               -- by position; without an execution: the start is stored without it
  p_texts text[],                  -- as in dx_store_turns
  p_now_ms bigint
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
BEGIN
  INSERT INTO orchestrator_queue (id, instance_id, work_item, visible_at, created_at, route)
  SELECT
    -- The start must be in the first batch, however many messages wait.
    nextval('orchestrator_queue_id_seq') * CASE
      WHEN s.delay_ms > 0 THEN 1
      WHEN (
        SELECT q.id FROM orchestrator_queue AS q
        WHERE q.instance_id = s.instance_id AND q.due_at <= v_now
        LIMIT 1
      ) IS NULL THEN 1
      ELSE -1
    END,
    s.instance_id, COALESCE(s.work_item, p_texts[s.text_at]),
    dx_time_of(p_now_ms + greatest(s.delay_ms, 0)), v_now,
    (SELECT i.route FROM instances AS i WHERE i.instance_id = s.instance_id)
  FROM (
    SELECT start.* FROM unnest(p_starts) WITH ORDINALITY AS start
    WHERE start.ordinality = ANY (p_started) AND p_turns[start.ordinality].execution_id IS NULL
    ORDER BY start.ordinality
  ) AS s;

  PERFORM dx_route_earlier_messages(
    array_agg(start.instance_id), array_agg(dx_time_of(p_now_ms + greatest(start.delay_ms, 0))), v_now
  )
  FROM unnest(p_starts) WITH ORDINALITY AS start
  WHERE start.ordinality = ANY (p_started) AND p_turns[start.ordinality].execution_id IS NULL;

  IF current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
    PERFORM dx_notify(
      'orch_work',
      ARRAY(
        SELECT dx_time_of(p_now_ms + COALESCE(start.delay_ms, 0))
        FROM unnest(p_starts) WITH ORDINALITY AS start
        WHERE start.ordinality = ANY (p_started) AND p_turns[start.ordinality].execution_id IS NULL
      )
    );
  END IF;
END
$$;
