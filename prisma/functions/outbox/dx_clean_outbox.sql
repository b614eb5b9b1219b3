-- Deletes messages of the outbox that were sent some time ago, the oldest first.
--
-- Returns one row: how many were deleted, and when the next one is to be. Null: no sent message is left.
-- Bound: p_limit rows. Locks: the deleted rows (skip locked).
CREATE OR REPLACE FUNCTION dx_clean_outbox(
  p_keep_ms bigint,                -- milliseconds since they were sent
  p_limit integer,                 -- rows, >= 1
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (out_deleted integer, out_next_ms bigint, out_now_ms bigint) LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_ids bigint[];
BEGIN
  v_ids := ARRAY(
    SELECT o.id FROM queue_outbox AS o
    WHERE o.sent_at IS NOT NULL AND o.sent_at <= to_timestamp((v_now_ms - p_keep_ms)::float8 / 1000)
    ORDER BY o.sent_at LIMIT p_limit FOR UPDATE SKIP LOCKED
  );
  DELETE FROM queue_outbox AS o WHERE o.id = ANY (v_ids);
  out_deleted := cardinality(v_ids);
  SELECT ceil(extract(epoch FROM o.sent_at) * 1000)::bigint + p_keep_ms INTO out_next_ms
  FROM queue_outbox AS o WHERE o.sent_at IS NOT NULL
  ORDER BY o.sent_at LIMIT 1;
  out_now_ms := v_now_ms;
  RETURN NEXT;
END
$$;
