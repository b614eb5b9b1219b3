-- Claims the messages of the outbox that are due and belong to queues of the caller, the oldest first, and leases each to it.
--
-- Returns one row: the claimed messages, when to look again, and the time of the look. The next look is due at once if the
-- claim was full; else when the next message is due, or when the lease of another publisher ends, which may have died; a
-- second from now if another claim is under way. Null: there is nothing to wait for.
-- Messages of other queues do not count for that. If the claim was not full, the row also names other queues with messages that
-- have been due for over a minute and are not leased: perhaps no publisher has such a queue.
--
-- Bound: p_limit messages. Messages that others have leased, and those of other queues, are read and passed over, all that are
-- due: a backlog that no publisher takes makes every claim slower. Names come from 1,000 messages at most. Locks: the claimed rows; rows that
-- are locked are skipped.
CREATE OR REPLACE FUNCTION dx_claim_outbox(
  p_limit integer,                 -- rows, >= 1
  p_lease_ms bigint,               -- milliseconds, > 0
  p_token text,                    -- of this claim, unique
  p_queues text[],                 -- of the caller
  p_now_ms bigint DEFAULT NULL     -- milliseconds since the Unix epoch; null means the database's clock
)
RETURNS TABLE (
  out_messages jsonb,              -- [{id, queue, payload, attempts}]; id as text; attempts includes this one
  out_unclaimed_queues jsonb,      -- [name]
  out_next_ms bigint,              -- milliseconds since the Unix epoch
  out_now_ms bigint
)
LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_ids bigint[];
BEGIN
  v_ids := ARRAY(
    SELECT o.id
    FROM queue_outbox AS o
    WHERE o.sent_at IS NULL
      AND o.deliver_at <= v_now
      AND o.queue = ANY (p_queues)
      AND (o.lease_until IS NULL OR o.lease_until <= v_now_ms)
    ORDER BY o.deliver_at, o.id
    LIMIT p_limit
    FOR UPDATE SKIP LOCKED
  );

  WITH claimed AS (
    UPDATE queue_outbox AS o
    SET lease_token = p_token,
        lease_until = v_now_ms + p_lease_ms,
        attempts = o.attempts + 1
    WHERE o.id = ANY (v_ids)
    RETURNING o.id, o.queue, o.payload, o.attempts
  )
  SELECT COALESCE(
    jsonb_agg(
      jsonb_build_object(
        'id', claimed.id::text,
        'queue', claimed.queue,
        'payload', claimed.payload,
        'attempts', claimed.attempts
      )
      ORDER BY array_position(v_ids, claimed.id)
    ),
    '[]'
  )
  INTO out_messages
  FROM claimed;

  out_unclaimed_queues := '[]';
  IF cardinality(v_ids) >= p_limit THEN
    out_next_ms := v_now_ms;
  ELSE
    out_next_ms := least(
      (
        SELECT ceil(extract(epoch FROM o.deliver_at) * 1000)::bigint
        FROM queue_outbox AS o
        WHERE o.sent_at IS NULL
          AND o.deliver_at > v_now
          AND o.deliver_at < 'infinity' -- never
          AND o.queue = ANY (p_queues)
        ORDER BY o.deliver_at, o.id
        LIMIT 1
      ),
      (
        SELECT min(CASE WHEN o.lease_until > v_now_ms THEN o.lease_until ELSE v_now_ms + 1000 END)
        FROM queue_outbox AS o
        WHERE o.sent_at IS NULL
          AND o.deliver_at <= v_now
          AND o.queue = ANY (p_queues)
          AND o.id <> ALL (v_ids)
      )
    );
    SELECT COALESCE(jsonb_agg(DISTINCT other.queue), '[]')
    INTO out_unclaimed_queues
    FROM (
      SELECT o.queue
      FROM queue_outbox AS o
      WHERE o.sent_at IS NULL
        AND o.deliver_at <= v_now - interval '1 minute'
        AND o.queue <> ALL (p_queues)
        AND (o.lease_until IS NULL OR o.lease_until <= v_now_ms)
      ORDER BY o.deliver_at, o.id
      LIMIT 1000
    ) AS other;
  END IF;
  out_now_ms := v_now_ms;
  RETURN NEXT;
END
$$;
