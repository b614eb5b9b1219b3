-- Begins attempts at tasks with limits for messages that name them, and deletes these messages: a part of
-- dx_take_tasks. A message stands for any task of its name (dx_admit_tasks). Once a limit has no slot, further messages
-- of the queue that are of use to none are deleted, too: so those behind them do not wait.
--
-- What else must be known of stays: of tasks that are not due, of lost attempts, of suspects.
-- Bound: the messages given, 1,000 others, and what dx_admit_tasks reads. Locks: messages (skip locked), then those of
-- dx_admit_tasks, by name.
CREATE OR REPLACE FUNCTION dx_take_limited_tasks(
  p_most integer, p_queue text,
  p_messages bigint[],             -- locked by the caller
  p_names text[], p_lease_ms bigint[], p_worker_id text, p_claim_id integer, -- as in dx_take_tasks
  p_now_ms bigint,
  OUT out_ids uuid[],              -- tasks that the caller runs
  OUT out_is_full boolean          -- whether there may be more such messages
) LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_name text;
  v_messages bigint[];
  v_admitted record;
  v_full text[] := '{}';
  v_count integer;
BEGIN
  out_ids := '{}';
  out_is_full := false;
  FOR v_name, v_messages IN
    SELECT message.name, array_agg(message.id ORDER BY message.id)
    FROM dx_limited_messages(p_messages, p_names, p_now_ms) AS message
    GROUP BY message.name
    ORDER BY message.name COLLATE "C"
  LOOP
    EXIT WHEN cardinality(out_ids) >= p_most;
    SELECT admitted.* INTO v_admitted
    FROM dx_admit_tasks(
      v_name, p_most - cardinality(out_ids), p_lease_ms[array_position(p_names, v_name)], p_worker_id, p_claim_id,
      '{}', NULL, p_now_ms
    ) AS admitted;
    out_ids := out_ids || v_admitted.out_ids;
    IF v_admitted.out_may_drop THEN
      v_full := v_full || v_name;
    ELSE
      v_messages := v_messages[:cardinality(v_admitted.out_ids)];
    END IF;
    DELETE FROM queue_messages AS m WHERE m.id = ANY (v_messages);
  END LOOP;

  IF v_full <> '{}' THEN
    v_messages := ARRAY(
      SELECT m.id FROM queue_messages AS m
      WHERE m.queue = p_queue AND m.visible_at <= v_now AND m.attempts < m.max_attempts
      ORDER BY m.visible_at, m.id LIMIT 1000 FOR UPDATE SKIP LOCKED
    );
    DELETE FROM queue_messages AS m
    WHERE m.id = ANY (ARRAY(SELECT message.id FROM dx_limited_messages(v_messages, v_full, p_now_ms) AS message));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    out_is_full := v_count >= 500;
  END IF;
END
$$;
