-- Moves messages that the caller has locked to the dead letters.
--
-- Bound: the rows given. Locks: none besides the caller's.
CREATE OR REPLACE FUNCTION dx_bury_messages(
  p_ids bigint[],
  p_reasons text[],                -- null: they were delivered too often
  p_now timestamptz
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  WITH buried AS (DELETE FROM queue_messages AS m WHERE m.id = ANY (p_ids) RETURNING m.*)
  INSERT INTO queue_dead (id, queue, payload, created_at, died_at, attempts, max_attempts, last_error)
  SELECT
    buried.id, buried.queue, buried.payload, buried.created_at, p_now, buried.attempts, buried.max_attempts,
    COALESCE(p_reasons[array_position(p_ids, buried.id)], 'delivered ' || buried.attempts || ' times without an ack')
  FROM buried
  ORDER BY buried.id;
END
$$;
