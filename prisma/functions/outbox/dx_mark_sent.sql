-- Marks messages of the outbox as sent, also those that another publisher has claimed since: a queue has accepted them.
-- Deletes those that expire.
--
-- Returns the ids of those that another transaction has locked, so that one of them does not keep the others from being
-- marked; call again with these. Bound: the ids given. Locks: their rows; rows that are locked are skipped.
CREATE OR REPLACE FUNCTION dx_mark_sent(p_ids bigint[], p_now_ms bigint DEFAULT NULL) RETURNS text[]
LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_ids bigint[];
BEGIN
  -- sent_at IS NULL would lead to the index of all that are not sent.
  v_ids := ARRAY(
    SELECT o.id FROM queue_outbox AS o
    WHERE o.id = ANY (p_ids) AND num_nulls(o.sent_at) = 1
    ORDER BY o.id FOR UPDATE SKIP LOCKED
  );
  DELETE FROM queue_outbox AS o WHERE o.id = ANY (v_ids) AND o.expires_at IS NOT NULL;
  UPDATE queue_outbox AS o
  SET sent_at = to_timestamp(v_now_ms::float8 / 1000), lease_token = NULL, lease_until = NULL,
      last_error = NULL
  WHERE o.id = ANY (v_ids);
  RETURN ARRAY(
    SELECT o.id::text FROM queue_outbox AS o
    WHERE o.id = ANY (p_ids) AND num_nulls(o.sent_at) = 1
    ORDER BY o.id
  );
END
$$;
