-- Begins attempts at tasks of a limit, as far as it has slots and tokens: up to p_most, whichever of them are next. A
-- part of dx_take_tasks and dx_admit_wakeups, for wake-ups of tasks of this name: each stands for any of these tasks,
-- so the order of the queue does not matter, and wake-ups that find no slot can be dropped.
--
-- A task has its slot as long as an attempt at it runs. So slots are counted, not kept: when a process dies, its
-- attempt keeps the slot until its lease has ended and the next attempt begins, which needs no other slot and no token.
--
-- The keys of a limit take turns, one task each, the one that is due longest first; the next call continues with the
-- key behind the last one. So before a task that may begin comes at most one of each other key that waits, after those
-- that run.
--
-- Once wake-ups were dropped, the limit has has_waiting: then each end of an attempt writes a wake-up of a task that
-- waits (dx_free_task_slots). Where tasks wait for a token, a wake-up is written for its time. dx_sweep_tasks looks at
-- what was lost. Where tasks wait and have room after all, this call writes two wake-ups more.
--
-- A task whose limit was removed is claimed as one without a limit.
--
-- Bound: the tasks of this limit that run; 1,000 keys, for each those of its tasks that run, up to its limit. Locks:
-- the advisory lock of the limit (waits for calls of the same limit, and ends of attempts), then tasks (skip locked).
CREATE OR REPLACE FUNCTION dx_admit_tasks(
  p_name text, p_most integer,
  p_lease_ms bigint, p_worker_id text, p_claim_id integer, -- as in dx_claim_tasks
  p_known uuid[],                  -- tasks that a repeated claim knows to be its own
  p_suspect uuid,                  -- only this task, out of turn; null: all but suspects
  p_now_ms bigint,
  OUT out_ids uuid[],
  OUT out_may_drop boolean         -- whether wake-ups of the name beyond these may be dropped: others follow, or no task
                                   -- waits
) LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_last_id CONSTANT uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
  v_limit limits;
  v_has_limit boolean;
  v_key limit_keys;
  v_next record;
  -- The place in the round: behind the task with this key, time and id.
  v_at_key text := '';
  v_at timestamptz := 'infinity';
  v_at_id uuid := v_last_id;
  v_visits integer := 0;
  v_has_begun boolean := true;
  v_is_held boolean := false;      -- whether a later call may begin more although nothing happens before
  v_is_blocked boolean := false;   -- whether some wait for a slot or a token
  v_is_done boolean := false;      -- whether no further task was found
  v_slots bigint;                  -- how many more all keys together may have; null: any number
  v_next_ms bigint;                -- when the first token is free that a task waits for
  v_token_ms double precision;     -- when the next token is free; null without a rate
BEGIN
  PERFORM pg_advisory_xact_lock(dx_limit_lock('task', p_name));
  SELECT l.* INTO v_limit FROM limits AS l WHERE l.kind = 'task' AND l.name = p_name;
  v_has_limit := FOUND;

  SELECT
    v_limit.concurrency - count(*),
    COALESCE(
      array_agg(t.id) FILTER (
        WHERE t.worker_id = p_worker_id AND t.claim_id = p_claim_id AND t.id <> ALL (p_known) AND p_suspect IS NULL
      ),
      '{}'
    )
  INTO v_slots, out_ids
  FROM queue_tasks AS t WHERE t.has_slot IS NOT NULL AND t.name = p_name AND t.has_slot;
  IF out_ids <> '{}' THEN
    out_ids := out_ids[:p_most];
    UPDATE queue_tasks AS t SET lease_until = p_now_ms + p_lease_ms, heartbeat_at = v_now WHERE t.id = ANY (out_ids);
  END IF;

  IF v_has_limit THEN
    v_limit.free_ms := dx_tokens_back_ms(v_limit.free_ms, v_limit.rate, v_limit.rate_ms, v_limit.burst, p_now_ms);
    v_at_key := v_limit.last_key;
  END IF;
  WHILE cardinality(out_ids) < p_most LOOP
    IF v_slots <= 0 THEN
      v_is_blocked := true;
      EXIT;
    ELSIF v_visits = 1000 THEN
      v_is_held := true;
      EXIT;
    END IF;
    SELECT t.limit_key, t.run_at, t.id INTO v_next FROM queue_tasks AS t
    WHERE t.has_slot IS NOT NULL
      AND t.name = p_name
      AND NOT t.has_slot
      AND (t.limit_key, t.run_at, t.id) > (v_at_key, v_at, v_at_id)
      AND CASE WHEN p_suspect IS NULL THEN t.lost < 2 ELSE t.id = p_suspect END
    ORDER BY t.limit_key, t.run_at, t.id LIMIT 1;
    IF NOT FOUND THEN
      -- The round begins again, unless none in it could begin.
      IF NOT v_has_begun THEN
        v_is_done := true;
        EXIT;
      END IF;
      v_has_begun := false;
      v_at_key := '';
      v_at := '-infinity';
      v_at_id := '00000000-0000-0000-0000-000000000000';
      CONTINUE;
    END IF;
    v_visits := v_visits + 1;
    v_at_key := v_next.limit_key;
    v_at := 'infinity';
    v_at_id := v_last_id;
    CONTINUE WHEN v_next.run_at > v_now;

    v_key := dx_limit_key(v_limit, v_at_key);
    v_token_ms := dx_next_token_ms(v_limit.free_ms, v_limit.rate, v_limit.rate_ms, v_limit.burst);
    IF v_token_ms > p_now_ms THEN
      v_next_ms := least(v_next_ms, ceil(v_token_ms)::bigint);
      v_is_blocked := true;
      EXIT;
    END IF;
    -- Its turn: now, or if its own bound holds it back, in the next round.
    v_limit.last_key := v_at_key;
    IF v_key.concurrency <= (
      SELECT count(*)
      FROM (
        SELECT FROM queue_tasks AS t
        WHERE t.has_slot IS NOT NULL AND t.name = p_name AND t.has_slot AND t.limit_key = v_at_key
        LIMIT v_key.concurrency
      ) AS running
    ) THEN
      v_is_blocked := true;
      CONTINUE;
    END IF;
    IF v_key.rate IS NOT NULL THEN
      v_key.free_ms := dx_tokens_back_ms(v_key.free_ms, v_key.rate, v_key.rate_ms, v_key.burst, p_now_ms);
      v_token_ms := dx_next_token_ms(v_key.free_ms, v_key.rate, v_key.rate_ms, v_key.burst);
      IF v_token_ms > p_now_ms THEN
        v_next_ms := least(v_next_ms, ceil(v_token_ms)::bigint);
        v_is_blocked := true;
        CONTINUE;
      END IF;
    END IF;

    SELECT t.id, t.reply_instance_id, t.reply_execution_id INTO v_next FROM queue_tasks AS t
    WHERE t.id = v_next.id AND NOT t.has_slot
    FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
      v_is_held := true;
      CONTINUE;
    END IF;
    v_has_begun := true;
    IF v_next.reply_instance_id IS NOT NULL
      AND NOT dx_is_execution_running(v_next.reply_instance_id, v_next.reply_execution_id)
    THEN
      PERFORM dx_cancel_tasks(ARRAY[v_next.id::text], 'its orchestration has ended', false, p_now_ms);
      CONTINUE;
    END IF;
    UPDATE queue_tasks AS t
    SET status = 'Running', attempt = t.attempt + 1, worker_id = p_worker_id, started_at = v_now, claim_id = p_claim_id,
        lease_until = p_now_ms + p_lease_ms, heartbeat_at = v_now, unserved_at = NULL,
        look_at = least(t.look_at, to_timestamp((p_now_ms + p_lease_ms + 500)::float8 / 1000)),
        has_slot = CASE WHEN v_has_limit THEN true END, updated_at = v_now
    WHERE t.id = v_next.id;
    out_ids := out_ids || v_next.id;
    v_slots := v_slots - 1;
    v_limit.free_ms := v_limit.free_ms + v_limit.rate_ms::float8 / v_limit.rate;
    IF v_key.rate IS NOT NULL THEN
      INSERT INTO limit_keys (kind, name, key, is_own, free_ms)
      VALUES ('task', p_name, v_at_key, false, v_key.free_ms + v_key.rate_ms::float8 / v_key.rate)
      ON CONFLICT (kind, name, key) DO UPDATE SET free_ms = EXCLUDED.free_ms;
    END IF;
  END LOOP;

  out_may_drop := NOT v_is_held AND (v_is_blocked OR v_is_done);
  IF NOT v_has_limit OR p_suspect IS NOT NULL AND out_ids = '{}' THEN
    RETURN;
  END IF;
  IF v_next_ms IS NOT NULL AND (v_limit.next_ms IS NULL OR v_limit.next_ms NOT BETWEEN p_now_ms + 1 AND v_next_ms) THEN
    PERFORM dx_wake_limited_task(p_name, 1, v_limit.last_key, p_now_ms, v_next_ms);
    v_limit.next_ms := v_next_ms;
  END IF;
  IF v_limit.has_waiting AND NOT v_is_blocked AND NOT v_is_done AND COALESCE(v_slots, 1) > 0 THEN
    PERFORM dx_wake_limited_task(p_name, 2, v_limit.last_key, p_now_ms, p_now_ms);
  END IF;
  v_limit.free_ms := COALESCE(v_limit.free_ms, 0);
  v_limit.has_waiting := v_is_blocked OR v_is_held OR (v_limit.has_waiting AND NOT v_is_done);
  UPDATE limits AS l
  SET last_key = v_limit.last_key, free_ms = v_limit.free_ms, next_ms = v_limit.next_ms,
      has_waiting = v_limit.has_waiting
  WHERE l.kind = 'task' AND l.name = p_name
    AND (l.last_key, l.free_ms, l.next_ms, l.has_waiting)
      IS DISTINCT FROM (v_limit.last_key, v_limit.free_ms, v_limit.next_ms, v_limit.has_waiting);
  PERFORM dx_clean_limit_keys(v_limit, p_now_ms);
END
$$;
