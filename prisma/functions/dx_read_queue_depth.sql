-- Counts the messages of a queue.
--
-- Returns one row; out_oldest_ms is how long the oldest visible message has been visible, null without one.
-- Bound: all messages of the queue and its dead letters. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_queue_depth(
  p_queue text,
  p_now_ms bigint DEFAULT NULL     -- milliseconds since the Unix epoch; null means the database's clock
)
RETURNS TABLE (
  out_visible bigint,
  out_delayed bigint,
  out_in_flight bigint,
  out_dead bigint,
  out_oldest_ms bigint
)
LANGUAGE plpgsql
STABLE
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
BEGIN
  RETURN QUERY
  SELECT
    count(*) FILTER (WHERE m.visible_at <= v_now),
    count(*) FILTER (WHERE m.visible_at > v_now AND m.lease_token IS NULL),
    count(*) FILTER (WHERE m.visible_at > v_now AND m.lease_token IS NOT NULL),
    (SELECT count(*) FROM queue_dead AS d WHERE d.queue = p_queue),
    floor(extract(epoch FROM v_now - min(m.visible_at) FILTER (WHERE m.visible_at <= v_now)) * 1000)::bigint
  FROM queue_messages AS m
  WHERE m.queue = p_queue;
END
$$;
