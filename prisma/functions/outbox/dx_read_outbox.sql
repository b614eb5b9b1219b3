-- Returns one row: the messages of the outbox that were not sent, of each queue the p_limit that are due first.
-- Bound: p_limit rows of each of up to 1,000 queues. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_outbox(
  p_limit integer,                 -- rows, >= 1
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_waiting bigint,              -- due, and not failed so far
  out_delayed bigint,              -- due later
  out_failing bigint,              -- the last try failed
  out_oldest_age_ms bigint         -- since the oldest that waits was due, or one that fails was written; 0 without any
) LANGUAGE plpgsql STABLE
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_queue text := '';
  v_oldest timestamptz := v_now;
  v_row record;
BEGIN
  out_waiting := 0;
  out_delayed := 0;
  out_failing := 0;
  FOR i IN 1..1000 LOOP
    SELECT o.queue INTO v_row FROM queue_outbox AS o
    WHERE o.sent_at IS NULL AND o.queue > v_queue
    ORDER BY o.queue, o.deliver_at, o.id LIMIT 1;
    EXIT WHEN NOT FOUND;
    v_queue := v_row.queue;
    SELECT
      count(*) FILTER (WHERE waiting.last_error IS NULL AND waiting.deliver_at <= v_now) AS waiting,
      count(*) FILTER (WHERE waiting.last_error IS NULL AND waiting.deliver_at > v_now) AS delayed,
      count(*) FILTER (WHERE waiting.last_error IS NOT NULL) AS failing,
      min(
        CASE
          WHEN waiting.last_error IS NOT NULL THEN waiting.created_at
          WHEN waiting.deliver_at <= v_now THEN greatest(waiting.deliver_at, 'epoch')
        END
      ) AS oldest
    INTO v_row
    FROM (
      SELECT o.deliver_at, o.created_at, o.last_error FROM queue_outbox AS o
      WHERE o.sent_at IS NULL AND o.queue = v_queue
      ORDER BY o.deliver_at, o.id LIMIT p_limit
    ) AS waiting;
    out_waiting := out_waiting + v_row.waiting;
    out_delayed := out_delayed + v_row.delayed;
    out_failing := out_failing + v_row.failing;
    v_oldest := least(v_oldest, v_row.oldest);
  END LOOP;
  out_oldest_age_ms := v_now_ms - floor(extract(epoch FROM v_oldest) * 1000)::bigint;
  RETURN NEXT;
END
$$;
