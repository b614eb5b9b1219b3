-- Deletes leased messages, or with p_reasons moves them to the dead letters.
--
-- Returns one outcome per receipt, in order: Done, or Expired if the lease is unknown, has ended, or was settled (of
-- two equal receipts, the second). Bound: the rows given. Locks: messages by id.
CREATE OR REPLACE FUNCTION dx_settle_messages(
  p_ids bigint[], p_tokens text[],
  p_reasons text[],                -- null: deletes them
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_outcomes text[] := array_fill('Expired'::text, ARRAY[cardinality(p_ids)]);
  v_ids bigint[] := '{}';
  v_reasons text[] := '{}';
  v_row record;
BEGIN
  FOR v_row IN
    SELECT item.position, message.id
    FROM (
      SELECT a.* FROM unnest(p_ids, p_tokens) WITH ORDINALITY AS a (id, token, position)
      ORDER BY a.id, a.position
    ) AS item
    CROSS JOIN LATERAL (
      SELECT m.id FROM queue_messages AS m
      WHERE m.id = item.id AND m.lease_token = item.token AND m.visible_at > v_now
      FOR UPDATE
    ) AS message
  LOOP
    CONTINUE WHEN v_row.id = v_ids[cardinality(v_ids)];
    v_outcomes[v_row.position] := 'Done';
    v_ids := v_ids || v_row.id;
    IF p_reasons IS NOT NULL THEN
      v_reasons := v_reasons || p_reasons[v_row.position];
    END IF;
  END LOOP;

  IF p_reasons IS NULL THEN
    DELETE FROM queue_messages AS m WHERE m.id = ANY (v_ids);
  ELSE
    PERFORM dx_bury_messages(v_ids, v_reasons, v_now);
  END IF;
  RETURN v_outcomes;
END
$$;
