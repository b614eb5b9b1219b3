-- Completes tasks with the results of their attempts.
--
-- Returns one outcome per item, in order. Done: it is completed by this attempt, now or before. Stale: the attempt is not the
-- newest one, or the task has ended otherwise; nothing changes. Uncommitted, only under is_committed: the task still runs, so
-- the transaction that completed it was rolled back. Under is_first a task that is completed is Stale: its rows were committed
-- with it, and must not be committed again.
--
-- Bound: the rows given. Locks: the tasks, by id.
CREATE OR REPLACE FUNCTION dx_complete_tasks(
  p_items jsonb,                   -- [{task_id, attempt, result, is_committed, is_first}]; is_committed: checks, completes nothing
  p_now_ms bigint DEFAULT NULL     -- milliseconds since the Unix epoch; null means the database's clock
)
RETURNS text[]
LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_outcomes text[] := array_fill('Stale'::text, ARRAY[jsonb_array_length(p_items)]);
  v_ids uuid[] := '{}';
  v_results text[] := '{}';
  v_announced uuid[] := '{}';
  v_row record;
  v_previous uuid;
BEGIN
  FOR v_row IN
    SELECT item.position, item.attempt AS expected, item.result, item.is_committed, item.is_first, task.*
    FROM (
      SELECT i.*
      FROM ROWS FROM (
        jsonb_to_recordset(p_items) AS (task_id uuid, attempt integer, result text, is_committed boolean, is_first boolean)
      ) WITH ORDINALITY AS i (task_id, attempt, result, is_committed, is_first, position)
      ORDER BY i.task_id, i.position
    ) AS item
    CROSS JOIN LATERAL (
      SELECT t.id, t.status, t.attempt, t.is_awaited OR t.reply_instance_id IS NOT NULL AS is_announced
      FROM queue_tasks AS t
      WHERE t.id = item.task_id
      FOR NO KEY UPDATE
    ) AS task
  LOOP
    CONTINUE WHEN v_row.attempt <> v_row.expected;
    IF v_row.status = 'Completed' THEN
      IF v_row.is_first IS NOT TRUE THEN
        v_outcomes[v_row.position] := 'Done';
      END IF;
    ELSIF v_row.status = 'Running' AND v_row.is_committed THEN
      v_outcomes[v_row.position] := 'Uncommitted';
    ELSIF v_row.status = 'Running' THEN
      v_outcomes[v_row.position] := 'Done';
      CONTINUE WHEN v_row.id = v_previous;
      v_previous := v_row.id;
      v_ids := v_ids || v_row.id;
      v_results := v_results || v_row.result;
      IF v_row.is_announced THEN
        v_announced := v_announced || v_row.id;
      END IF;
    END IF;
  END LOOP;

  WITH running AS (
    SELECT t.id, t.attempt, t.worker_id, t.started_at
    FROM queue_tasks AS t
    WHERE t.id = ANY (v_ids)
  ),
  completed AS (
    UPDATE queue_tasks AS t
    SET status = 'Completed',
        result = one.result,
        error = NULL,
        worker_id = NULL,
        started_at = NULL,
        lease_until = NULL,
        heartbeat_at = NULL,
        look_at = NULL,
        updated_at = v_now,
        ended_at = v_now
    FROM unnest(v_ids, v_results) AS one (id, result)
    WHERE t.id = one.id
  )
  INSERT INTO queue_task_attempts (task_id, attempt, worker_id, started_at, ended_at, outcome)
  SELECT running.id, running.attempt, running.worker_id, running.started_at, v_now, 'Completed'
  FROM running
  ON CONFLICT DO NOTHING;

  IF v_announced <> '{}' THEN
    PERFORM dx_announce_task_ends(v_announced, v_now_ms);
  END IF;
  RETURN v_outcomes;
END
$$;
