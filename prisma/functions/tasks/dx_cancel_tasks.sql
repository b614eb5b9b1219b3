-- Cancels tasks: one that waits never runs; the attempt that runs can no longer commit, and its worker is notified.
--
-- Returns one outcome per task, in order: Cancelled, Ended if it was already, or Missing.
-- Bound: the tasks given. Locks: the tasks, by id; waits for an attempt that commits; then as dx_free_task_slots.
CREATE OR REPLACE FUNCTION dx_cancel_tasks(
  p_ids text[], p_reason text,
  p_replies boolean DEFAULT true,  -- whether an execution that waits for the task receives its end
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_outcomes text[] := array_fill('Missing'::text, ARRAY[COALESCE(cardinality(p_ids), 0)]);
  v_cancelled uuid[] := '{}';
  v_freed text[] := '{}';
  v_row record;
BEGIN
  FOR v_row IN
    SELECT item.position, task.*
    FROM (
      SELECT i.position, dx_task_id(i.id) AS id
      FROM unnest(p_ids) WITH ORDINALITY AS i (id, position)
      ORDER BY 2
    ) AS item
    CROSS JOIN LATERAL (
      SELECT t.id, t.name, t.has_slot, t.status, t.attempt, t.worker_id, t.started_at FROM queue_tasks AS t
      WHERE t.id = item.id
      FOR NO KEY UPDATE
    ) AS task
  LOOP
    IF v_row.id = ANY (v_cancelled) THEN
      v_outcomes[v_row.position] := 'Cancelled';
      CONTINUE;
    ELSIF v_row.status NOT IN ('Pending', 'Running') THEN
      v_outcomes[v_row.position] := 'Ended';
      CONTINUE;
    END IF;
    v_outcomes[v_row.position] := 'Cancelled';
    v_cancelled := v_cancelled || v_row.id;
    IF v_row.has_slot THEN
      v_freed := v_freed || v_row.name;
    END IF;
    IF v_row.status = 'Running' THEN
      INSERT INTO queue_task_attempts (task_id, attempt, worker_id, started_at, ended_at, outcome)
      VALUES (v_row.id, v_row.attempt, v_row.worker_id, v_row.started_at, v_now, 'Cancelled')
      ON CONFLICT DO NOTHING;
    END IF;
    UPDATE queue_tasks AS t
    SET status = 'Cancelled', error = json_build_object('_tag', 'Cancelled', 'reason', p_reason)::text,
        worker_id = NULL, started_at = NULL, lease_until = NULL, heartbeat_at = NULL, look_at = NULL, has_slot = NULL,
        unserved_at = NULL,
        reply_instance_id = CASE WHEN p_replies THEN t.reply_instance_id END,
        -- The worker of the attempt waits for hints of the task.
        is_awaited = t.is_awaited OR v_row.status = 'Running', updated_at = v_now, ended_at = v_now
    WHERE t.id = v_row.id;
  END LOOP;

  IF v_cancelled <> '{}' THEN
    PERFORM dx_announce_task_ends(v_cancelled, v_now_ms);
  END IF;
  IF v_freed <> '{}' THEN
    PERFORM dx_free_task_slots(v_freed, p_now_ms);
  END IF;
  RETURN v_outcomes;
END
$$;
