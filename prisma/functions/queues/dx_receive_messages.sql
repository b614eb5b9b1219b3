-- Leases up to p_limit visible messages of a queue, those that have been visible longest first. A message that was
-- delivered max_attempts times already moves to the dead letters instead.
--
-- Returns one row: arrays with one element per message, how many died, the time of the statement, and the time of the
-- message that becomes visible next, null without one. If that time has passed, another transaction holds the message,
-- or the limit was reached.
-- Bound: p_limit rows that are leased, p_limit + 100 that die, and the visible ones that other transactions hold.
-- Messages under a lease or a delay are not read. Locks: messages, without waiting.
CREATE OR REPLACE FUNCTION dx_receive_messages(
  p_limit integer, p_queue text,
  p_token text,                    -- of the lease; its receipts are `<id>.<token>`
  p_lease_ms bigint, p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_ids bigint[], out_payloads text[], out_attempts integer[], out_died integer, out_now_ms bigint,
  out_next_ms bigint
) LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_locked bigint[];
  v_dead bigint[];
BEGIN
  out_died := 0;
  LOOP
    SELECT
      array_agg(locked.id) FILTER (WHERE NOT locked.is_dead),
      array_agg(locked.id) FILTER (WHERE locked.is_dead)
    INTO v_locked, v_dead
    FROM (
      SELECT m.id, m.attempts >= m.max_attempts AS is_dead FROM queue_messages AS m
      WHERE m.queue = p_queue AND m.visible_at <= v_now
      ORDER BY m.visible_at, m.id LIMIT p_limit FOR UPDATE SKIP LOCKED
    ) AS locked;
    EXIT WHEN v_dead IS NULL;
    PERFORM dx_bury_messages(v_dead, NULL, v_now);
    out_died := out_died + cardinality(v_dead);
    -- Others stand behind the dead ones.
    EXIT WHEN v_locked IS NOT NULL OR out_died >= 100;
  END LOOP;

  WITH leased AS (
    UPDATE queue_messages AS m
    SET lease_token = p_token, visible_at = to_timestamp((v_now_ms + p_lease_ms)::float8 / 1000),
        attempts = m.attempts + 1
    WHERE m.id = ANY (v_locked)
    RETURNING m.id, m.payload, m.attempts
  )
  SELECT
    array_agg(leased.id ORDER BY leased.id), array_agg(leased.payload::text ORDER BY leased.id),
    array_agg(leased.attempts ORDER BY leased.id)
  INTO out_ids, out_payloads, out_attempts
  FROM leased;

  out_now_ms := v_now_ms;
  -- A full receive is followed by another one at once.
  out_next_ms := v_now_ms;
  IF COALESCE(cardinality(v_locked), 0) < p_limit THEN
    out_next_ms := (
      SELECT ceil(extract(epoch FROM m.visible_at) * 1000)::bigint FROM queue_messages AS m
      WHERE m.queue = p_queue
        AND m.visible_at < 'infinity' -- never
      ORDER BY m.visible_at, m.id LIMIT 1
    );
  END IF;
  RETURN NEXT;
END
$$;
