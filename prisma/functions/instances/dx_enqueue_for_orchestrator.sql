-- Inserts messages in the given order. The instance need not exist and is not created; duplicates are allowed. The
-- trigger dx_route_message sets which processes take a message, and makes it wait for a start that is not due yet.
--
-- A message with bounds is refused if as many messages wait for its instance, or the current history has as many
-- events. Concurrent calls may exceed a bound by what they send.
--
-- Returns the positions of the messages that were refused, from 1. Bound: the rows given, and for those with bounds the
-- messages that wait for their instances. Locks: none.
CREATE OR REPLACE FUNCTION dx_enqueue_for_orchestrator(
  p_messages jsonb,                -- [{instance_id, work_item or text_at, visible_at_ms, delay_ms, most_waiting,
                                   --   most_events}]: visible at the later of both; null: no bound
  p_texts text[] DEFAULT NULL,     -- as in dx_store_turns
  p_now_ms bigint DEFAULT NULL
) RETURNS bigint[] LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_refused bigint[] := '{}';
BEGIN
  IF p_messages @? '$[*].most_waiting' THEN
    v_refused := ARRAY(
      SELECT m.position
      FROM ROWS FROM (
        jsonb_to_recordset(p_messages) AS (instance_id text, most_waiting bigint, most_events bigint)
      ) WITH ORDINALITY AS m (instance_id, most_waiting, most_events, position)
      WHERE m.most_waiting IS NOT NULL
        AND (
          EXISTS (SELECT FROM orchestrator_queue AS q WHERE q.instance_id = m.instance_id OFFSET m.most_waiting - 1)
          OR m.most_events <= (
            SELECT max(h.event_id)
            FROM instances AS i
            JOIN history AS h ON h.instance_id = i.instance_id AND h.execution_id = i.current_execution_id
            WHERE i.instance_id = m.instance_id
          )
        )
    );
  END IF;
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
  SELECT
    m.instance_id, COALESCE(m.work_item, p_texts[m.text_at]),
    dx_time_of(greatest(m.visible_at_ms, v_now_ms + COALESCE(m.delay_ms, 0))),
    to_timestamp(v_now_ms::float8 / 1000)
  FROM ROWS FROM (
    jsonb_to_recordset(p_messages)
      AS (instance_id text, work_item text, text_at integer, visible_at_ms bigint, delay_ms bigint)
  ) WITH ORDINALITY AS m (instance_id, work_item, text_at, visible_at_ms, delay_ms, position)
  WHERE m.position <> ALL (v_refused)
  ORDER BY m.position;
  RETURN v_refused;
END
$$;
