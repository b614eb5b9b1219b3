-- Moves locked messages of the outbox to queue_messages, and marks them as sent or deletes them. A part of
-- dx_claim_outbox. What PgQueue would refuse (no kind, too large) stays.
--
-- Returns how many were moved, by queue and together. Bound: the rows given. Locks: none besides the caller's.
CREATE OR REPLACE FUNCTION dx_move_outbox(
  p_ids bigint[],
  p_expiring bigint[],             -- those of them that are deleted in any case
  p_queues text[],                 -- this and the following: as in dx_claim_outbox
  p_max_attempts integer[], p_keeps boolean, p_now timestamptz,
  OUT out_moved jsonb,             -- {queue: count}
  OUT out_count bigint
) LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_most_bytes CONSTANT integer := 262144; -- of a payload in PgQueue, as JSON
BEGIN
  WITH kept AS (
    UPDATE queue_outbox AS o
    SET sent_at = p_now, lease_token = NULL, lease_until = NULL, attempts = o.attempts + 1, last_error = NULL
    WHERE p_keeps
      AND o.id = ANY (p_ids)
      AND o.expires_at IS NULL
      AND jsonb_typeof(o.payload -> 'kind') = 'string'
      AND octet_length(o.payload::text) <= v_most_bytes
    RETURNING o.queue, o.payload
  ),
  deleted AS (
    DELETE FROM queue_outbox AS o
    WHERE o.id = ANY (CASE WHEN p_keeps THEN p_expiring ELSE p_ids END)
      AND jsonb_typeof(o.payload -> 'kind') = 'string'
      AND octet_length(o.payload::text) <= v_most_bytes
    RETURNING o.queue, o.payload
  ),
  moved AS (
    SELECT kept.queue, kept.payload FROM kept
    UNION ALL
    SELECT deleted.queue, deleted.payload FROM deleted
  ),
  sent AS (
    INSERT INTO queue_messages (queue, payload, created_at, visible_at, max_attempts)
    SELECT moved.queue, moved.payload, p_now, p_now, p_max_attempts[array_position(p_queues, moved.queue)]
    FROM moved
  )
  SELECT COALESCE(jsonb_object_agg(total.queue, total.count), '{}'), COALESCE(sum(total.count), 0)
  INTO out_moved, out_count
  FROM (SELECT moved.queue, count(*) AS count FROM moved GROUP BY moved.queue) AS total;
END
$$;
