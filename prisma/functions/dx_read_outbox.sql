-- Returns one row: the messages of the outbox that were not sent, of the p_limit that are due first.
--
-- Bound: p_limit rows. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_outbox(
  p_limit integer,                 -- rows, >= 1
  p_now_ms bigint DEFAULT NULL     -- milliseconds since the Unix epoch; null means the database's clock
)
RETURNS TABLE (
  out_waiting bigint,              -- due, and not failed so far
  out_delayed bigint,              -- due later
  out_failing bigint,              -- the last try failed
  out_oldest_age_ms bigint         -- since the oldest one that waits was due, or one that fails was written; 0 without any
)
LANGUAGE plpgsql
STABLE
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
BEGIN
  SELECT
    count(*) FILTER (WHERE one.last_error IS NULL AND one.deliver_at <= v_now),
    count(*) FILTER (WHERE one.last_error IS NULL AND one.deliver_at > v_now),
    count(*) FILTER (WHERE one.last_error IS NOT NULL),
    v_now_ms - COALESCE(
      floor(extract(epoch FROM min(
        CASE
          WHEN one.last_error IS NOT NULL THEN one.created_at
          WHEN one.deliver_at <= v_now THEN greatest(one.deliver_at, 'epoch')
        END
      )) * 1000)::bigint,
      v_now_ms
    )
  INTO out_waiting, out_delayed, out_failing, out_oldest_age_ms
  FROM (
    SELECT o.deliver_at, o.created_at, o.last_error
    FROM queue_outbox AS o
    WHERE o.sent_at IS NULL
    ORDER BY o.deliver_at, o.id
    LIMIT p_limit
  ) AS one;
  RETURN NEXT;
END
$$;
