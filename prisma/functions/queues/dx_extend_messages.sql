-- Moves the ends of leases. A lease that ends at once is over, and its message can be delivered again.
--
-- Returns one outcome per receipt, in order: Done; Sooner if the message now becomes visible earlier than before;
-- Expired if the lease is unknown, has ended, or was moved before in the same call. Bound: the rows given. Locks:
-- messages by id.
CREATE OR REPLACE FUNCTION dx_extend_messages(
  p_ids bigint[], p_tokens text[],
  p_lease_ms bigint[],             -- from now on; 0 ends the lease
  p_uncounted boolean[],           -- whether the delivery does not count, since no receiver saw it
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_outcomes text[] := array_fill('Expired'::text, ARRAY[cardinality(p_ids)]);
  v_ids bigint[] := '{}';
  v_at timestamptz;
  v_row record;
BEGIN
  FOR v_row IN
    SELECT item.position, item.lease_ms, item.uncounted, message.id, message.queue, message.visible_at
    FROM (
      SELECT a.*
      FROM unnest(p_ids, p_tokens, p_lease_ms, p_uncounted) WITH ORDINALITY
        AS a (id, token, lease_ms, uncounted, position)
      ORDER BY a.id, a.position
    ) AS item
    CROSS JOIN LATERAL (
      SELECT m.id, m.queue, m.visible_at FROM queue_messages AS m
      WHERE m.id = item.id AND m.lease_token = item.token AND m.visible_at > v_now
      FOR UPDATE
    ) AS message
  LOOP
    CONTINUE WHEN v_row.id = v_ids[cardinality(v_ids)];
    v_ids := v_ids || v_row.id;
    v_at := to_timestamp((v_now_ms + v_row.lease_ms)::float8 / 1000);
    UPDATE queue_messages AS m
    SET visible_at = v_at, lease_token = CASE WHEN v_row.lease_ms > 0 THEN m.lease_token END,
        attempts = m.attempts - CASE WHEN v_row.uncounted THEN 1 ELSE 0 END
    WHERE m.id = v_row.id;
    v_outcomes[v_row.position] := CASE WHEN v_at < v_row.visible_at THEN 'Sooner' ELSE 'Done' END;
    IF v_at < v_row.visible_at AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
      PERFORM dx_hint('m ' || v_row.queue, v_at);
    END IF;
  END LOOP;
  RETURN v_outcomes;
END
$$;
