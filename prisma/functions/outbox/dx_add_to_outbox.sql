-- Writes messages to the outbox in the given order, in the transaction that gives rise to them.
--
-- Functions that store other rows together with a message insert into queue_outbox themselves, in their own statement,
-- a row of this shape: `queue`; `payload`, a JSON object whose `kind` is a text; `created_at` = now; `deliver_at` = now
-- plus the delay. All other columns keep their defaults. The trigger dx_notify_outbox wakes the publishers with the
-- commit, unless the caller says `duroxide.quiet = on` because it wakes them itself.
--
-- Returns the number of messages. Bound: the rows given. Locks: none.
CREATE OR REPLACE FUNCTION dx_add_to_outbox(
  p_rows jsonb,                    -- [{queue, payload, delay_ms, expires_ms}]; delay_ms defaults to 0, expires_ms to never.
                                   -- A message that expires is not sent after that time, and is deleted once it is sent
  p_now_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_count bigint;
BEGIN
  INSERT INTO queue_outbox (queue, payload, created_at, deliver_at, expires_at)
  SELECT
    m.queue, m.payload, to_timestamp(v_now_ms::float8 / 1000), dx_time_of(v_now_ms + COALESCE(m.delay_ms, 0)),
    to_timestamp((v_now_ms + m.expires_ms)::float8 / 1000)
  FROM ROWS FROM (
    jsonb_to_recordset(p_rows) AS (queue text, payload jsonb, delay_ms bigint, expires_ms bigint)
  ) WITH ORDINALITY AS m (queue, payload, delay_ms, expires_ms, position)
  ORDER BY m.position;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END
$$;
