-- Gives back messages of the outbox that were not sent: each is due again after its pause. Messages that were sent, or
-- that another publisher has claimed since, stay as they are; so do messages that another transaction has locked, until
-- their lease ends.
--
-- Returns how many were given back. Bound: the rows given. Locks: their rows; rows that are locked are skipped.
CREATE OR REPLACE FUNCTION dx_defer_outbox(
  p_rows jsonb,                    -- [{id, pause_ms, error}]; without error: not tried, due as before
  p_token text,                    -- of the claim
  p_now_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_row record;
  v_count bigint := 0;
BEGIN
  FOR v_row IN
    SELECT m.id, m.pause_ms, m.error
    FROM jsonb_to_recordset(p_rows) AS m (id bigint, pause_ms bigint, error text)
    -- A join may be planned as one read of the whole table; sent_at IS NULL would lead to the index of all not sent.
    CROSS JOIN LATERAL (
      SELECT o.id FROM queue_outbox AS o
      WHERE o.id = m.id AND num_nulls(o.sent_at) = 1 AND o.lease_token = p_token
      FOR UPDATE SKIP LOCKED
    ) AS claimed
  LOOP
    UPDATE queue_outbox AS o
    SET deliver_at = CASE
          WHEN v_row.error IS NULL THEN o.deliver_at
          ELSE to_timestamp((v_now_ms + v_row.pause_ms)::float8 / 1000)
        END,
        last_error = COALESCE(v_row.error, o.last_error), lease_token = NULL, lease_until = NULL
    WHERE o.id = v_row.id;
    v_count := v_count + 1;
  END LOOP;
  RETURN v_count;
END
$$;
