-- Ends attempts without a result: the task waits for its next attempt, with a row of the outbox that wakes it then, or
-- is dead.
--
-- Returns one outcome per item, in order: Retried, Dead, or Stale if the attempt is not the newest one, or the task has
-- ended; then nothing changes. A task is dead if delay_ms is null or its attempts are used up. An attempt that does not
-- count (given back) leaves the task as it was before.
-- Bound: the rows given. Locks: the tasks, by id; then as dx_free_task_slots.
CREATE OR REPLACE FUNCTION dx_fail_tasks(
  p_items jsonb,                   -- [{task_id, attempt, outcome, error, delay_ms, counts}]; counts defaults to true
  p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_latest_ms CONSTANT bigint := 253402300799999; -- the end of the year 9999: clients read no later dates
  v_outcomes text[] := array_fill('Stale'::text, ARRAY[jsonb_array_length(p_items)]);
  v_limited CONSTANT text[] := dx_limited_tasks();
  v_announced uuid[] := '{}';
  v_freed text[] := '{}';
  v_run_at timestamptz;
  v_row record;
  v_previous uuid;
BEGIN
  FOR v_row IN
    SELECT
      item.position, item.attempt AS expected, item.outcome, item.error AS problem, item.delay_ms,
      COALESCE(item.counts, true) AS counts, task.*
    FROM (
      SELECT i.*
      FROM ROWS FROM (
        jsonb_to_recordset(p_items)
          AS (task_id uuid, attempt integer, outcome text, error text, delay_ms bigint, counts boolean)
      ) WITH ORDINALITY AS i (task_id, attempt, outcome, error, delay_ms, counts, position)
      ORDER BY i.task_id, i.position
    ) AS item
    CROSS JOIN LATERAL (
      SELECT
        t.id, t.name, t.has_slot, t.status, t.attempt, t.uncounted, t.max_attempts, t.worker_id, t.started_at, t.queue, t.wakeup,
        t.is_awaited OR t.reply_instance_id IS NOT NULL AS is_announced
      FROM queue_tasks AS t WHERE t.id = item.task_id
      FOR NO KEY UPDATE
    ) AS task
  LOOP
    CONTINUE WHEN v_row.attempt <> v_row.expected OR v_row.status <> 'Running' OR v_row.id = v_previous;
    v_previous := v_row.id;
    IF v_row.has_slot THEN
      v_freed := v_freed || v_row.name;
    END IF;
    INSERT INTO queue_task_attempts (task_id, attempt, worker_id, started_at, ended_at, outcome, error)
    VALUES (v_row.id, v_row.attempt, v_row.worker_id, v_row.started_at, v_now, v_row.outcome, v_row.problem)
    ON CONFLICT DO NOTHING;

    IF v_row.counts AND (v_row.delay_ms IS NULL OR v_row.attempt - v_row.uncounted >= v_row.max_attempts) THEN
      v_outcomes[v_row.position] := 'Dead';
      UPDATE queue_tasks AS t
      SET status = 'Dead', error = v_row.problem, worker_id = NULL, started_at = NULL, lease_until = NULL,
          heartbeat_at = NULL, look_at = NULL, has_slot = NULL, updated_at = v_now, dead_at = v_now
      WHERE t.id = v_row.id;
      IF v_row.is_announced THEN
        v_announced := v_announced || v_row.id;
      END IF;
      CONTINUE;
    END IF;

    v_outcomes[v_row.position] := 'Retried';
    v_run_at := to_timestamp(least(v_now_ms + COALESCE(v_row.delay_ms, 0), v_latest_ms - 86400000)::float8 / 1000);
    UPDATE queue_tasks AS t
    SET status = 'Pending', uncounted = t.uncounted + CASE WHEN v_row.counts THEN 0 ELSE 1 END,
        lost = CASE WHEN v_row.outcome = 'GivenBack' THEN t.lost ELSE 0 END,
        error = COALESCE(v_row.problem, t.error), run_at = v_run_at, worker_id = NULL, started_at = NULL,
        lease_until = NULL, heartbeat_at = NULL, look_at = v_run_at + interval '30 seconds',
        has_slot = CASE WHEN t.name = ANY (v_limited) THEN false END,
        limit_key = CASE WHEN t.name = ANY (v_limited) THEN COALESCE(t.limit_key, '') ELSE t.limit_key END,
        updated_at = v_now
    WHERE t.id = v_row.id;
    INSERT INTO queue_outbox (queue, payload, created_at, deliver_at)
    VALUES (v_row.queue, dx_wakeup_of(v_row.id, v_row.wakeup), v_now, v_run_at);
  END LOOP;

  IF v_announced <> '{}' THEN
    PERFORM dx_announce_task_ends(v_announced, v_now_ms);
  END IF;
  IF v_freed <> '{}' THEN
    PERFORM dx_free_task_slots(v_freed, p_now_ms);
  END IF;
  RETURN v_outcomes;
END
$$;
