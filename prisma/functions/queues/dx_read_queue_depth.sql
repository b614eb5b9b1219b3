-- Counts the messages of a queue: all, or the first p_limit in the order of their visibility, and as many dead letters.
--
-- Returns one row; out_oldest_ms is how long the oldest visible message has been visible, null without one.
-- Bound: p_limit messages and dead letters of the queue; null: all. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_queue_depth(
  p_queue text,
  p_limit integer DEFAULT NULL,    -- rows, >= 1; null: all
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_visible bigint, out_delayed bigint, out_in_flight bigint, out_dead bigint, out_oldest_ms bigint
) LANGUAGE plpgsql STABLE
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
    (SELECT count(*) FROM (SELECT FROM queue_dead AS d WHERE d.queue = p_queue LIMIT p_limit) AS dead),
    floor(extract(epoch FROM v_now - min(m.visible_at) FILTER (WHERE m.visible_at <= v_now)) * 1000)::bigint
  FROM (
    SELECT message.visible_at, message.lease_token FROM queue_messages AS message
    WHERE message.queue = p_queue
    ORDER BY message.visible_at LIMIT p_limit
  ) AS m;
END
$$;
