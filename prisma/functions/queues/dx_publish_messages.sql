-- Inserts messages into their queues.
--
-- Returns the time of the statement, from which delays count. Bound: the rows given. Locks: none.
CREATE OR REPLACE FUNCTION dx_publish_messages(
  p_messages jsonb,                -- [{queue, payload, delay_ms, max_attempts}]
  p_now_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
BEGIN
  INSERT INTO queue_messages (queue, payload, created_at, visible_at, max_attempts)
  SELECT m.queue, m.payload, v_now, to_timestamp((v_now_ms + m.delay_ms)::float8 / 1000), m.max_attempts
  FROM ROWS FROM (
    jsonb_to_recordset(p_messages) AS (queue text, payload jsonb, delay_ms bigint, max_attempts integer)
  ) WITH ORDINALITY AS m (queue, payload, delay_ms, max_attempts, position)
  ORDER BY m.position;
  IF current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
    -- The first time of each queue: a receiver that looks then finds out about the next one.
    PERFORM dx_hint('m ' || message.queue, to_timestamp((v_now_ms + message.delay_ms)::float8 / 1000))
    FROM (
      SELECT m.queue, min(m.delay_ms) AS delay_ms
      FROM jsonb_to_recordset(p_messages) AS m (queue text, delay_ms bigint)
      GROUP BY m.queue
    ) AS message;
  END IF;
  RETURN v_now_ms;
END
$$;
