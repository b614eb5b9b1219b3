-- Claims the tasks that wake-ups name, each for the length of its lease: begins the next attempt.
--
-- Returns one row per wake-up, in order, whose outcome says what to do with it. Claimed: the caller runs this attempt.
-- Busy: another attempt runs, also one that another wake-up of the same call has begun. Locked: another transaction
-- has locked the task, so its state is unknown: ask again. NotDue: it may run after out_due_ms. Ended, Missing: there
-- is nothing to run. Exhausted: it is dead now, its last attempt was lost. Unserved: the caller does not serve its
-- name, which the task notes if it waits: a worker that serves it takes it (dx_take_tasks), or wakes it at its start.
-- Suspect: its last attempts were lost, and the caller may hold no further task of its kind now (dx_group_of): ask
-- again later. Limited: it waits for a slot of its limit, and another wake-up follows. A wake-up of a task with a
-- limit stands for any task of its name, so the claimed one may be another (dx_admit_tasks).
--
-- An attempt whose lease has ended is lost, and the next one begins. A lost attempt counts against the maximum only if
-- five were lost before it, or if the task has a single attempt: until then, another suspect may have ended the worker.
-- Such a task was claimed as the only suspect; others join it only once it has proved itself, after 5 minutes or more.
-- A task whose execution has ended is cancelled. A claim that is repeated with its id is answered again.
--
-- Bound: the wake-ups given, and what dx_admit_tasks reads. Locks: the tasks, by id (skip locked); then those of
-- dx_admit_tasks, by name.
CREATE OR REPLACE FUNCTION dx_claim_tasks(
  p_ids uuid[],                    -- of the task that each wake-up names; null: it names none
  p_names text[],                  -- of the tasks that the caller serves
  p_lease_ms bigint[],             -- of each of them, milliseconds, > 0
  p_worker_id text,
  p_claim_id integer DEFAULT NULL, -- chosen by the caller
  p_suspects integer[] DEFAULT '{64,16,4,1}', -- suspects that may be claimed together, see dx_group_of
  p_now_ms bigint DEFAULT NULL
) RETURNS TABLE (
  out_outcome text, out_id text, out_name text, out_attempt integer,
  out_counted integer,             -- the attempts that count against the maximum, this one included
  out_lost integer,                -- attempts lost one after another before this one; of a suspect, before the next
  out_payload text,
  out_due_ms bigint,               -- milliseconds from now
  out_trace_context text
) LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_outcomes text[] := array_fill('Missing'::text, ARRAY[cardinality(p_ids)]);
  v_row record;
  v_previous uuid;
  v_name integer;
  v_claimed uuid[] := '{}';
  v_until_ms bigint[] := '{}';
  v_losses integer[] := '{}';
  v_uncounted integer[] := '{}';
  v_again uuid[] := '{}';
  v_is_lost boolean;
  v_row_losses integer;
  v_row_uncounted integer;
  v_suspects integer := 0;
  v_most integer := 2147483647;
  v_lost uuid[] := '{}';
  v_dead uuid[] := '{}';
  v_cancelled uuid[] := '{}';
  v_unserved uuid[] := '{}';
  v_limited CONSTANT text[] := dx_limited_tasks();
  v_stands_for text[] := array_fill(NULL::text, ARRAY[cardinality(p_ids)]); -- the name of whose tasks one may begin
  v_answers uuid[] := p_ids;
  v_waiting_suspects bigint[] := '{}'; -- their positions
  v_freed text[] := '{}';
BEGIN
  FOR v_row IN
    SELECT item.position, item.id, task.*
    FROM (
      SELECT wakeup.id, wakeup.position FROM unnest(p_ids) WITH ORDINALITY AS wakeup (id, position)
      ORDER BY wakeup.id, wakeup.position
    ) AS item
    CROSS JOIN LATERAL (
      SELECT
        t.name, t.status, t.attempt, t.uncounted, t.lost, t.max_attempts, t.lease_until, t.run_at, t.reply_instance_id,
        t.reply_execution_id, t.unserved_at, t.has_slot, t.worker_id = p_worker_id AND t.claim_id = p_claim_id AS is_ours
      FROM queue_tasks AS t
      WHERE t.id = item.id
        -- Those that wait for a slot are locked in the order of their limit.
        AND (num_nulls(t.has_slot) = 1 OR t.has_slot OR t.lost >= 2 OR t.name <> ALL (p_names))
      FOR NO KEY UPDATE SKIP LOCKED
    ) AS task
  LOOP
    IF v_row.id = v_previous THEN
      v_outcomes[v_row.position] := 'Busy';
      IF v_row.name = ANY (v_limited) AND v_name IS NOT NULL THEN
        v_stands_for[v_row.position] := v_row.name;
      END IF;
      CONTINUE;
    END IF;
    v_previous := v_row.id;
    v_name := array_position(p_names, v_row.name);
    IF v_row.status = 'Running' AND v_row.is_ours THEN
      v_outcomes[v_row.position] := 'Claimed';
      v_again := v_again || v_row.id;
      IF v_row.lost >= 2 THEN
        v_most := least(v_most, dx_group_of(v_row.lost, p_suspects));
        v_suspects := v_suspects + 1;
      END IF;
      CONTINUE;
    END IF;
    v_is_lost := v_row.status = 'Running' AND v_row.lease_until <= v_now_ms;
    v_row_losses := v_row.lost + v_is_lost::integer;
    v_row_uncounted := v_row.uncounted
      + (v_is_lost AND v_row.max_attempts > 1 AND v_row.lost <= cardinality(p_suspects))::integer;
    v_outcomes[v_row.position] := CASE
      WHEN v_row.status NOT IN ('Pending', 'Running') THEN 'Ended'
      WHEN v_name IS NULL THEN 'Unserved'
      WHEN v_row.status = 'Running' AND NOT v_is_lost THEN 'Busy'
      WHEN v_row.status = 'Pending' AND v_row.run_at > v_now THEN 'NotDue'
      WHEN v_row.attempt - v_row_uncounted >= v_row.max_attempts THEN 'Exhausted'
      ELSE 'Claimed'
    END;
    IF v_name IS NULL AND v_row.status = 'Pending' AND v_row.unserved_at IS NULL THEN
      v_unserved := v_unserved || v_row.id;
    END IF;
    IF v_outcomes[v_row.position] IN ('Busy', 'Ended') AND v_row.name = ANY (v_limited) AND v_name IS NOT NULL THEN
      v_stands_for[v_row.position] := v_row.name;
    END IF;
    CONTINUE WHEN v_outcomes[v_row.position] NOT IN ('Claimed', 'Exhausted');
    IF v_row.reply_instance_id IS NOT NULL
      AND NOT dx_is_execution_running(v_row.reply_instance_id, v_row.reply_execution_id)
    THEN
      v_cancelled := v_cancelled || v_row.id;
      v_outcomes[v_row.position] := 'Ended';
      IF v_row.has_slot THEN
        v_freed := v_freed || v_row.name;
      END IF;
    ELSIF v_outcomes[v_row.position] = 'Exhausted' THEN
      v_dead := v_dead || v_row.id;
      IF v_row.has_slot THEN
        v_freed := v_freed || v_row.name;
      END IF;
    ELSE
      IF v_row_losses >= 2 THEN
        v_most := least(v_most, dx_group_of(v_row_losses, p_suspects));
        IF v_suspects >= v_most THEN
          v_outcomes[v_row.position] := 'Suspect';
          CONTINUE;
        END IF;
        v_suspects := v_suspects + 1;
      END IF;
      IF NOT v_row.has_slot THEN
        v_outcomes[v_row.position] := 'Suspect';
        v_waiting_suspects := v_waiting_suspects || v_row.position;
        v_freed := v_freed || v_row.name;
        CONTINUE;
      END IF;
      v_claimed := v_claimed || v_row.id;
      v_until_ms := v_until_ms || (v_now_ms + p_lease_ms[v_name]);
      v_losses := v_losses || v_row_losses;
      v_uncounted := v_uncounted || v_row_uncounted;
    END IF;
    IF v_is_lost THEN
      v_lost := v_lost || v_row.id;
    END IF;
  END LOOP;

  IF 'Missing' = ANY (v_outcomes) THEN
    SELECT unlocked.p_outcomes, unlocked.p_stands_for INTO v_outcomes, v_stands_for
    FROM dx_judge_unlocked_tasks(p_ids, p_names, v_limited, v_now_ms, v_outcomes, v_stands_for) AS unlocked;
  END IF;

  v_freed := v_freed || array_remove(v_stands_for, NULL);
  IF v_freed <> '{}' THEN
    FOR v_row IN SELECT DISTINCT freed.name COLLATE "C" AS name FROM unnest(v_freed) AS freed (name) ORDER BY 1 LOOP
      PERFORM pg_advisory_xact_lock(dx_limit_lock('task', v_row.name));
    END LOOP;
  END IF;

  IF v_lost || v_dead || v_cancelled || v_unserved <> '{}' THEN
    PERFORM dx_store_claim_findings(v_lost, v_dead, v_cancelled, v_unserved, v_now_ms);
  END IF;

  UPDATE queue_tasks AS t
  SET status = 'Running', attempt = t.attempt + 1, uncounted = claim.uncounted, lost = claim.losses,
      worker_id = p_worker_id, started_at = v_now, claim_id = p_claim_id, lease_until = claim.until_ms,
      heartbeat_at = v_now, look_at = least(t.look_at, to_timestamp((claim.until_ms + 500)::float8 / 1000)),
      unserved_at = NULL, updated_at = v_now
  FROM unnest(v_claimed, v_until_ms, v_losses, v_uncounted) AS claim (id, until_ms, losses, uncounted)
  WHERE t.id = claim.id;

  IF v_again <> '{}' THEN
    UPDATE queue_tasks AS t
    SET lease_until = v_now_ms + p_lease_ms[array_position(p_names, t.name)], heartbeat_at = v_now
    WHERE t.id = ANY (v_again);
  END IF;

  IF v_freed <> '{}' THEN
    SELECT admitted.p_outcomes, admitted.p_answers INTO v_outcomes, v_answers
    FROM dx_admit_wakeups(
      p_ids, v_stands_for, v_waiting_suspects, p_names, p_lease_ms, p_worker_id, p_claim_id, v_claimed || v_again,
      v_now_ms, v_outcomes, v_answers
    ) AS admitted;
  END IF;

  RETURN QUERY
  SELECT
    answer.outcome, answer.id::text, t.name, t.attempt, t.attempt - t.uncounted,
    t.lost + (answer.outcome = 'Suspect' AND t.status = 'Running')::integer,
    CASE WHEN answer.outcome = 'Claimed' THEN t.payload END,
    CASE
      WHEN answer.outcome = 'NotDue'
      THEN ceil(extract(epoch FROM least(t.run_at, '9999-12-31')) * 1000)::bigint - v_now_ms
    END,
    t.trace_context
  FROM unnest(v_outcomes, v_answers) WITH ORDINALITY AS answer (outcome, id, position)
  LEFT JOIN LATERAL (SELECT x.* FROM queue_tasks AS x WHERE x.id = answer.id OFFSET 0) AS t ON true
  ORDER BY answer.position;
END
$$;
