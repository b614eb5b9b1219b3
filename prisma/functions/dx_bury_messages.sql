-- Moves leased messages to the dead letters.
--
-- Returns one outcome per receipt, in order: Done, or Expired as in dx_ack_messages. Bound: the rows given. Locks: messages
-- by id.
CREATE OR REPLACE FUNCTION dx_bury_messages(
  p_ids bigint[],
  p_tokens text[],
  p_reasons text[],
  p_now_ms bigint DEFAULT NULL     -- milliseconds since the Unix epoch; null means the database's clock
)
RETURNS text[]
LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_outcomes text[] := array_fill('Expired'::text, ARRAY[cardinality(p_ids)]);
  v_ids bigint[] := '{}';
  v_row record;
BEGIN
  FOR v_row IN
    SELECT item.position, message.id
    FROM (
      SELECT a.*
      FROM unnest(p_ids, p_tokens) WITH ORDINALITY AS a (id, token, position)
      ORDER BY a.id, a.position
    ) AS item
    CROSS JOIN LATERAL (
      SELECT m.id
      FROM queue_messages AS m
      WHERE m.id = item.id
        AND m.lease_token = item.token
        AND m.visible_at > v_now
      FOR UPDATE
    ) AS message
  LOOP
    CONTINUE WHEN v_row.id = v_ids[cardinality(v_ids)];
    v_outcomes[v_row.position] := 'Done';
    v_ids := v_ids || v_row.id;
  END LOOP;

  WITH buried AS (
    DELETE FROM queue_messages AS m
    WHERE m.id = ANY (v_ids)
    RETURNING m.*
  )
  INSERT INTO queue_dead (id, queue, payload, created_at, died_at, attempts, max_attempts, last_error)
  SELECT
    buried.id,
    buried.queue,
    buried.payload,
    buried.created_at,
    v_now,
    buried.attempts,
    buried.max_attempts,
    one.reason
  FROM unnest(p_ids, p_reasons) WITH ORDINALITY AS one (id, reason, position)
  JOIN buried ON buried.id = one.id
  WHERE v_outcomes[one.position] = 'Done'
  ORDER BY buried.id;
  RETURN v_outcomes;
END
$$;
