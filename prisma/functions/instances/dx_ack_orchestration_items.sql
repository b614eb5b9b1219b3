-- Stores turns: history, status, key-value changes, new work, cancellations. Deletes their locks and their batches. The
-- messages in left_ids are not deleted: they keep their places in the queue as if they had not been delivered. The
-- messages that the events in requeued have recorded are inserted again, in front of all others.
--
-- Returns one outcome per ack, in order: Done; LockLost if the lock of the token is unknown, expired, superseded or
-- already settled (of several acks with one token, all but the first that can be stored); DuplicateEvent if an event id
-- exists already or is given twice. An ack that is not Done has changed nothing, and does not affect the others.
-- Bound: the rows given, the batches of these locks, and the key-value rows of instances that change them.
-- Locks: instance locks by instance; then as dx_store_turns; then queue rows of the batches. The row in instance_locks
-- stays locked until the transaction ends: two acks of one token exclude each other whatever they store, and so do an
-- ack and a takeover.
CREATE OR REPLACE FUNCTION dx_ack_orchestration_items(
  p_acks jsonb,                    -- [{token and other fields of dx_turn}]
  p_history jsonb,                 -- this and the following: as in dx_store_turns
  p_key_values jsonb, p_worker_items jsonb, p_cancelled_activities jsonb, p_orchestrator_items jsonb,
  p_texts text[] DEFAULT NULL, p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_count integer := jsonb_array_length(p_acks);
  v_outcomes text[] := array_fill('LockLost'::text, ARRAY[v_count]);
  -- Without an instance where it was refused, without an execution also where only the batch is consumed.
  v_turns dx_turn[] := ARRAY(SELECT turn FROM jsonb_populate_recordset(NULL::dx_turn, p_acks) AS turn);
  -- Of the locks that end, by position.
  v_instances text[] := array_fill(NULL::text, ARRAY[v_count]);
  v_secrets text[] := array_fill(NULL::text, ARRAY[v_count]);
  v_claimed_ms bigint[] := array_fill(NULL::bigint, ARRAY[v_count]);
  v_lock record;
  v_previous text;
  v_repeated boolean := false;
  v_locked integer := 0;
  v_duplicate bigint;
BEGIN
  FOR v_lock IN
    SELECT ack.position, l.instance_id, l.lock_token, l.locked_at
    FROM ROWS FROM (jsonb_to_recordset(p_acks) AS (token text)) WITH ORDINALITY AS ack (token, position)
    JOIN instance_locks AS l ON l.instance_id = substr(ack.token, 38)
    WHERE l.lock_token = left(ack.token, 36) AND l.locked_until > v_now_ms
    ORDER BY l.instance_id COLLATE "C", ack.position FOR UPDATE OF l
  LOOP
    v_repeated := v_repeated OR v_lock.instance_id IS NOT DISTINCT FROM v_previous;
    v_previous := v_lock.instance_id;
    v_locked := v_locked + 1;
    v_outcomes[v_lock.position] := 'Done';
    v_turns[v_lock.position].instance_id := v_lock.instance_id;
    v_turns[v_lock.position].secret := v_lock.lock_token;
    v_instances[v_lock.position] := v_lock.instance_id;
    v_secrets[v_lock.position] := v_lock.lock_token;
    v_claimed_ms[v_lock.position] := v_lock.locked_at;
  END LOOP;
  IF v_locked < v_count THEN
    FOR v_position IN 1 .. v_count LOOP
      IF v_outcomes[v_position] = 'LockLost' THEN
        v_turns[v_position].execution_id := NULL;
      END IF;
    END LOOP;
  END IF;

  IF p_history IS NOT NULL THEN
    -- While we hold the locks, no other transaction writes these histories: an event id that is free now stays free.
    FOR v_duplicate IN
      SELECT event.ack FROM jsonb_to_recordset(p_history) AS event (ack bigint, event_id bigint)
      WHERE v_turns[event.ack].execution_id IS NOT NULL
      GROUP BY event.ack, event.event_id
      -- Not EXISTS: below OR it may be planned as one read of the whole table.
      HAVING count(*) > 1
        OR (
          SELECT h.event_id FROM history AS h
          WHERE h.instance_id = v_turns[event.ack].instance_id
            AND h.execution_id = v_turns[event.ack].execution_id
            AND h.event_id = event.event_id
        ) IS NOT NULL
    LOOP
      v_outcomes[v_duplicate] := 'DuplicateEvent';
      v_instances[v_duplicate] := NULL;
      v_turns[v_duplicate].instance_id := NULL;
      v_turns[v_duplicate].execution_id := NULL;
    END LOOP;
  END IF;

  IF v_repeated THEN
    -- Of several acks with one token, the first that can be stored ends the lock. A refused ack leaves it as it is.
    v_previous := NULL;
    FOR v_lock IN
      SELECT ack.position, substr(ack.token, 38) AS instance_id
      FROM ROWS FROM (jsonb_to_recordset(p_acks) AS (token text)) WITH ORDINALITY AS ack (token, position)
      WHERE v_outcomes[ack.position] <> 'LockLost'
      ORDER BY substr(ack.token, 38) COLLATE "C", ack.position
    LOOP
      IF v_lock.instance_id = v_previous THEN
        v_outcomes[v_lock.position] := 'LockLost';
        v_instances[v_lock.position] := NULL;
        v_turns[v_lock.position].instance_id := NULL;
        v_turns[v_lock.position].execution_id := NULL;
      ELSIF v_outcomes[v_lock.position] = 'Done' THEN
        v_previous := v_lock.instance_id;
      END IF;
    END LOOP;
  END IF;

  PERFORM dx_store_turns(
    v_turns, NULL, p_history, p_key_values, p_worker_items, p_cancelled_activities, p_orchestrator_items, NULL, p_texts,
    v_now_ms
  );

  -- Every message of a batch was due when its lock was taken; messages that fell due later are not looked at.
  -- Not a join: planned while the queue was empty, it would read the whole of it.
  DELETE FROM orchestrator_queue AS q
  WHERE q.id = ANY (ARRAY(
    SELECT message.id
    FROM unnest(v_instances, v_secrets, v_claimed_ms) AS ended (instance_id, lock_token, locked_at)
    CROSS JOIN LATERAL (
      SELECT queued.id FROM orchestrator_queue AS queued
      WHERE queued.instance_id = ended.instance_id
        AND queued.due_at <= to_timestamp(ended.locked_at::float8 / 1000)
        AND queued.lock_token = ended.lock_token
      OFFSET 0
    ) AS message
  ));

  DELETE FROM instance_locks AS l WHERE l.instance_id = ANY (v_instances);

  RETURN v_outcomes;
END
$$;
