-- Claims the messages of the outbox that are due and belong to queues of the caller, of each queue the oldest first.
-- Each is leased to the caller, which sends it; or, under p_max_attempts, moved to queue_messages and marked as sent,
-- or deleted, in this transaction. What PgQueue would refuse (no kind, too large) is leased in any case: the caller
-- learns why. Messages that have expired are deleted.
--
-- Queues with messages that are due share a claim equally, so that a backlog of one does not delay the others.
--
-- Returns one row: the leased messages, how many of each queue were moved, whether there may be more, when to look
-- again, and the time of the look. The next look is due when the next message is, or when the lease of another
-- publisher ends, which may have died; a second from now if another claim is under way. Null: nothing to wait for. If
-- there is no more, the row also names other queues whose oldest message has been due for over a minute and is not
-- leased: perhaps no publisher has such a queue.
-- Bound: p_limit messages, deleted ones included. In the queues of the caller, messages that others have leased are
-- read and passed over; in up to 100 other queues the oldest message is read. Locks: the claimed rows (skip locked).
CREATE OR REPLACE FUNCTION dx_claim_outbox(
  p_limit integer,                 -- rows, >= 1
  p_lease_ms bigint,               -- milliseconds, > 0
  p_token text,                    -- of this claim, unique
  p_queues text[],                 -- of the caller
  p_max_attempts integer[] DEFAULT NULL, -- of each of these queues, all in this schema; null: lease all
  p_keeps boolean DEFAULT true,    -- whether moved messages that do not expire stay, marked as sent, or are deleted
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_messages jsonb,              -- [{id, queue, payload, attempts}]; id as text; attempts includes this one
  out_moved jsonb,                 -- {queue: count}
  out_is_full boolean,
  out_unclaimed_queues jsonb,      -- [name]
  out_next_ms bigint, out_now_ms bigint
) LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_queues text[] := p_queues;
  v_queue text := '';
  v_share integer;
  v_some bigint[];
  v_ids bigint[] := '{}';
  v_expiring bigint[] := '{}'; -- of these
  v_moved bigint := 0;
  v_first record;
BEGIN
  IF cardinality(p_queues) > 1 THEN
    v_queues := ARRAY(
      SELECT given.queue FROM (SELECT DISTINCT q.queue FROM unnest(p_queues) AS q (queue)) AS given
      CROSS JOIN LATERAL (
        SELECT o.deliver_at, o.id FROM queue_outbox AS o
        WHERE o.sent_at IS NULL
          AND o.queue = given.queue
          AND o.deliver_at <= v_now
          AND (o.lease_until IS NULL OR o.lease_until <= v_now_ms)
        ORDER BY o.deliver_at, o.id LIMIT 1
      ) AS oldest
      ORDER BY oldest.deliver_at, oldest.id LIMIT p_limit
    );
  END IF;

  out_is_full := false;
  v_share := p_limit / greatest(cardinality(v_queues), 1);
  FOREACH v_queue IN ARRAY v_queues LOOP
    SELECT
      COALESCE(array_agg(due.id), '{}'),
      v_expiring || COALESCE(array_agg(due.id) FILTER (WHERE due.expires_at IS NOT NULL), '{}')
    INTO v_some, v_expiring
    FROM (
      SELECT o.id, o.expires_at FROM queue_outbox AS o
      WHERE o.sent_at IS NULL
        AND o.queue = v_queue
        AND o.deliver_at <= v_now
        AND (o.lease_until IS NULL OR o.lease_until <= v_now_ms)
      ORDER BY o.deliver_at, o.id LIMIT v_share FOR UPDATE SKIP LOCKED
    ) AS due;
    out_is_full := out_is_full OR cardinality(v_some) >= v_share;
    v_ids := v_ids || v_some;
  END LOOP;

  IF v_expiring <> '{}' THEN
    DELETE FROM queue_outbox AS o WHERE o.id = ANY (v_expiring) AND o.expires_at <= v_now;
  END IF;

  out_moved := '{}';
  IF p_max_attempts IS NOT NULL AND v_ids <> '{}' THEN
    SELECT sent.out_moved, sent.out_count INTO out_moved, v_moved
    FROM dx_move_outbox(v_ids, v_expiring, p_queues, p_max_attempts, p_keeps, v_now) AS sent;
  END IF;

  out_messages := '[]';
  IF cardinality(v_ids) > v_moved THEN
    WITH claimed AS (
      UPDATE queue_outbox AS o
      SET lease_token = p_token, lease_until = v_now_ms + p_lease_ms, attempts = o.attempts + 1
      -- sent_at IS NULL would lead to the index of all that are not sent.
      WHERE o.id = ANY (v_ids) AND num_nulls(o.sent_at) = 1
      RETURNING o.id, o.queue, o.payload, o.attempts, o.deliver_at
    )
    SELECT COALESCE(
      jsonb_agg(
        jsonb_build_object(
          'id', claimed.id::text, 'queue', claimed.queue, 'payload', claimed.payload,
          'attempts', claimed.attempts
        )
        ORDER BY claimed.deliver_at, claimed.id
      ),
      '[]'
    )
    INTO out_messages
    FROM claimed;
  END IF;

  out_unclaimed_queues := '[]';
  IF out_is_full THEN
    out_next_ms := v_now_ms;
  ELSE
    out_next_ms := (
      SELECT least(min(later.at_ms), min(held.at_ms)) FROM unnest(p_queues) AS given (queue)
      LEFT JOIN LATERAL (
        SELECT ceil(extract(epoch FROM o.deliver_at) * 1000)::bigint AS at_ms FROM queue_outbox AS o
        WHERE o.sent_at IS NULL
          AND o.queue = given.queue
          AND o.deliver_at > v_now
          AND o.deliver_at < 'infinity' -- never
        ORDER BY o.deliver_at, o.id LIMIT 1
      ) AS later ON true
      LEFT JOIN LATERAL (
        SELECT min(CASE WHEN o.lease_until > v_now_ms THEN o.lease_until ELSE v_now_ms + 1000 END) AS at_ms
        FROM queue_outbox AS o
        WHERE o.sent_at IS NULL
          AND o.queue = given.queue
          AND o.deliver_at <= v_now
          AND o.lease_token IS DISTINCT FROM p_token
      ) AS held ON true
    );
    v_queue := '';
    FOR i IN 1..100 LOOP
      SELECT o.queue, o.deliver_at, o.lease_until INTO v_first FROM queue_outbox AS o
      WHERE o.sent_at IS NULL AND o.queue > v_queue
      ORDER BY o.queue, o.deliver_at, o.id LIMIT 1;
      EXIT WHEN NOT FOUND;
      v_queue := v_first.queue;
      IF v_queue <> ALL (p_queues)
        AND v_first.deliver_at <= v_now - interval '1 minute'
        AND (v_first.lease_until IS NULL OR v_first.lease_until <= v_now_ms)
      THEN
        out_unclaimed_queues := out_unclaimed_queues || to_jsonb(v_queue);
      END IF;
    END LOOP;
  END IF;
  out_now_ms := v_now_ms;
  RETURN NEXT;
END
$$;
