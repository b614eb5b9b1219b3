-- Stores turns: history, status, key-value changes, new work, cancellations. Deletes their locks and their batches. The
-- messages in left_ids are not deleted: they keep their places in the queue as if they had not been delivered. The
-- messages that the events in requeued have recorded are inserted again, in front of all others.
--
-- Returns one outcome per ack, in order: Done; LockLost if the lock of the token is unknown, expired, superseded or
-- already settled (of several acks with one token, all but the first that can be stored); DuplicateEvent if an event id
-- exists already or is given twice. An ack that is not Done has changed nothing, and does not affect the others.
--
-- The other arguments hold the parts of all acks. Each part names its ack by position, from 1. An argument without
-- parts is null.
--
-- Bound: the rows given, the batches of these locks, and the key-value rows of instances that change them.
--
-- Locks: instance locks by instance; parent rows (key share), then instance rows by id, then the rows of starts by id;
-- executions, history, key-values; worker rows by id; queue rows of the batches, and of instances whose route changes.
-- The row in instance_locks stays locked until the transaction ends: two acks of one token exclude each other whatever
-- they store, and so do an ack and a takeover.
CREATE OR REPLACE FUNCTION dx_ack_orchestration_items(
  p_acks jsonb,                    -- [{token, execution_id, orchestration_name, orchestration_version, status, output,
                                   --   next_version, parent_instance_id, major, minor, patch, sets_custom_status,
                                   --   custom_status, cancelled_timers: {work_item: null}, left_ids: [row id],
                                   --   requeued: [event id]}]
  p_history jsonb,                 -- [{ack, event_id, event_type, event_data}]
  p_key_values jsonb,              -- [{ack, action, key, value, last_updated_at_ms}], in the order they apply
  p_worker_items jsonb,            -- [{ack, work_item, name, instance_id, execution_id, activity_id, session_id, tag,
                                   --   served_by}]
  p_cancelled_activities jsonb,    -- [{ack, instance_id, execution_id, activity_id}]
  p_orchestrator_items jsonb,      -- [{ack, instance_id, work_item, visible_at_ms, delay_ms, start: {orchestration_name,
                                   --   orchestration_version, parent_instance_id, major, minor, patch}}]; a start
                                   --   creates its instance where the id is free
  p_texts text[] DEFAULT NULL,     -- as in dx_store_turns
  p_now_ms bigint DEFAULT NULL     -- milliseconds since the Unix epoch; null means the database's clock
)
RETURNS text[]
LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_count integer := jsonb_array_length(p_acks);
  v_outcomes text[] := array_fill('LockLost'::text, ARRAY[v_count]);
  -- By position of the ack; null where it was refused. v_executions is null, too, where only the batch is consumed.
  v_instances text[] := array_fill(NULL::text, ARRAY[v_count]);
  v_secrets text[] := array_fill(NULL::text, ARRAY[v_count]);
  v_claimed_ms bigint[] := array_fill(NULL::bigint, ARRAY[v_count]);
  v_executions bigint[] := array_fill(NULL::bigint, ARRAY[v_count]);
  v_lock record;
  v_previous text;
  v_repeated boolean := false;
  v_duplicate bigint;
BEGIN
  FOR v_lock IN
    SELECT a.position, a.execution_id, l.instance_id, l.lock_token, l.locked_at
    FROM ROWS FROM (jsonb_to_recordset(p_acks) AS (token text, execution_id bigint))
      WITH ORDINALITY AS a (token, execution_id, position)
    JOIN instance_locks AS l ON l.instance_id = substr(a.token, 38)
    WHERE l.lock_token = left(a.token, 36)
      AND l.locked_until > v_now_ms
    ORDER BY l.instance_id COLLATE "C", a.position
    FOR UPDATE OF l
  LOOP
    v_repeated := v_repeated OR v_lock.instance_id IS NOT DISTINCT FROM v_previous;
    v_previous := v_lock.instance_id;
    v_outcomes[v_lock.position] := 'Done';
    v_instances[v_lock.position] := v_lock.instance_id;
    v_secrets[v_lock.position] := v_lock.lock_token;
    v_claimed_ms[v_lock.position] := v_lock.locked_at;
    v_executions[v_lock.position] := v_lock.execution_id;
  END LOOP;

  IF p_history IS NOT NULL THEN
    -- While we hold the locks, no other transaction writes these histories: an event id that is free now stays free.
    FOR v_duplicate IN
      SELECT h.ack
      FROM jsonb_to_recordset(p_history) AS h (ack bigint, event_id bigint)
      WHERE v_executions[h.ack] IS NOT NULL
      GROUP BY h.ack, h.event_id
      -- Not EXISTS: below OR it may be planned as one read of the whole table.
      HAVING count(*) > 1
        OR (
          SELECT x.event_id
          FROM history AS x
          WHERE x.instance_id = v_instances[h.ack]
            AND x.execution_id = v_executions[h.ack]
            AND x.event_id = h.event_id
        ) IS NOT NULL
    LOOP
      v_outcomes[v_duplicate] := 'DuplicateEvent';
      v_instances[v_duplicate] := NULL;
      v_executions[v_duplicate] := NULL;
    END LOOP;
  END IF;

  IF v_repeated THEN
    -- Of several acks with one token, the first that can be stored ends the lock. A refused ack leaves it as it is.
    v_previous := NULL;
    FOR v_lock IN
      SELECT a.position, substr(a.token, 38) AS instance_id
      FROM ROWS FROM (jsonb_to_recordset(p_acks) AS (token text)) WITH ORDINALITY AS a (token, position)
      WHERE v_outcomes[a.position] <> 'LockLost'
      ORDER BY substr(a.token, 38) COLLATE "C", a.position
    LOOP
      IF v_lock.instance_id = v_previous THEN
        v_outcomes[v_lock.position] := 'LockLost';
        v_instances[v_lock.position] := NULL;
        v_executions[v_lock.position] := NULL;
      ELSIF v_outcomes[v_lock.position] = 'Done' THEN
        v_previous := v_lock.instance_id;
      END IF;
    END LOOP;
  END IF;

  PERFORM dx_store_turns(
    p_acks,
    v_instances,
    v_executions,
    v_secrets,
    NULL,
    p_history,
    p_key_values,
    p_worker_items,
    p_cancelled_activities,
    p_orchestrator_items,
    NULL,
    p_texts,
    v_now_ms
  );

  -- Every message of a batch was due when its lock was taken; messages that fell due later are not looked at.
  DELETE FROM orchestrator_queue AS q
  USING unnest(v_instances, v_secrets, v_claimed_ms) AS a (instance_id, lock_token, locked_at)
  WHERE q.instance_id = a.instance_id
    AND q.due_at <= to_timestamp(a.locked_at::float8 / 1000)
    AND q.lock_token = a.lock_token;

  DELETE FROM instance_locks AS l
  USING unnest(v_instances) AS a (instance_id)
  WHERE l.instance_id = a.instance_id;

  RETURN v_outcomes;
END
$$;
