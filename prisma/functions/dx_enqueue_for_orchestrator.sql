-- Inserts messages in the given order. The instance need not exist and is not created; duplicates are allowed. The
-- trigger dx_route_message sets which processes take a message, and makes it wait for a start that is not due yet.
--
-- Returns the number of messages. Bound: the rows given. Locks: none.
CREATE OR REPLACE FUNCTION dx_enqueue_for_orchestrator(
  p_messages jsonb,                -- [{instance_id, work_item or text_at, visible_at_ms, delay_ms}]: visible at the
                                   --   later of both
  p_texts text[] DEFAULT NULL,     -- as in dx_store_turns
  p_now_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_count bigint;
BEGIN
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
  SELECT
    m.instance_id, COALESCE(m.work_item, p_texts[m.text_at]),
    dx_time_of(greatest(m.visible_at_ms, v_now_ms + COALESCE(m.delay_ms, 0))),
    to_timestamp(v_now_ms::float8 / 1000)
  FROM ROWS FROM (
    jsonb_to_recordset(p_messages)
      AS (instance_id text, work_item text, text_at integer, visible_at_ms bigint, delay_ms bigint)
  ) WITH ORDINALITY AS m (instance_id, work_item, text_at, visible_at_ms, delay_ms, position)
  ORDER BY m.position;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END
$$;
