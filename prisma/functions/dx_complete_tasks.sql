-- Completes tasks with the results of their attempts, and deletes the messages that woke them.
--
-- Returns one row: one outcome per item, in order, and how many messages were deleted. Done: the task is completed by this
-- attempt, now or before. Stale: the attempt is not the newest one, or the task has ended otherwise; nothing changes. Uncommitted,
-- only under is_committed: the task still runs, so the transaction that completed it was rolled back. Under is_first a task that
-- is completed is Stale: its rows were committed with it, and must not be committed again.
-- The message of an item is deleted, unless the item is Uncommitted or the lease of the message has ended.
--
-- Bound: the rows given. Locks: the tasks, by id; then the messages, by id.
CREATE OR REPLACE FUNCTION dx_complete_tasks(
  p_items jsonb,                   -- [{task_id, attempt, result, is_committed, is_first}]; is_committed: checks, completes nothing
  p_message_ids bigint[] DEFAULT NULL, -- of each item; null: it has none here
  p_message_tokens text[] DEFAULT NULL, -- their leases
  p_now_ms bigint DEFAULT NULL     -- milliseconds since the Unix epoch; null means the database's clock
)
RETURNS TABLE (
  out_outcomes text[],
  out_acked integer
)
LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_ids uuid[];
  v_attempts integer[];
  v_results text[];
  v_workers text[];
  v_starts timestamptz[];
  v_announced uuid[];
  v_messages bigint[];
BEGIN
  SELECT
    array_agg(one.outcome ORDER BY one.position),
    array_agg(one.id) FILTER (WHERE one.outcome = 'Complete'),
    array_agg(one.attempt) FILTER (WHERE one.outcome = 'Complete'),
    array_agg(one.result) FILTER (WHERE one.outcome = 'Complete'),
    array_agg(one.worker_id) FILTER (WHERE one.outcome = 'Complete'),
    array_agg(one.started_at) FILTER (WHERE one.outcome = 'Complete'),
    array_agg(one.id) FILTER (WHERE one.outcome = 'Complete' AND one.is_announced)
  INTO out_outcomes, v_ids, v_attempts, v_results, v_workers, v_starts, v_announced
  FROM (
    SELECT
      item.position, item.result, task.id, task.attempt, task.worker_id, task.started_at, task.is_announced,
      CASE
        WHEN task.attempt IS DISTINCT FROM item.attempt THEN 'Stale'
        WHEN task.status = 'Completed' AND item.is_first IS NOT TRUE THEN 'Done'
        WHEN task.status <> 'Running' THEN 'Stale'
        WHEN item.is_committed THEN 'Uncommitted'
        ELSE 'Complete'
      END AS outcome
    FROM (
      SELECT i.*
      FROM ROWS FROM (
        jsonb_to_recordset(p_items) AS (task_id uuid, attempt integer, result text, is_committed boolean, is_first boolean)
      ) WITH ORDINALITY AS i (task_id, attempt, result, is_committed, is_first, position)
      ORDER BY i.task_id, i.position
    ) AS item
    LEFT JOIN LATERAL (
      SELECT
        t.id, t.status, t.attempt, t.worker_id, t.started_at, t.is_awaited OR t.reply_instance_id IS NOT NULL AS is_announced
      FROM queue_tasks AS t
      WHERE t.id = item.task_id
      FOR NO KEY UPDATE
    ) AS task ON true
  ) AS one;
  out_outcomes := array_replace(COALESCE(out_outcomes, '{}'), 'Complete', 'Done');

  IF v_ids IS NOT NULL THEN
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
    WHERE t.id = one.id;

    INSERT INTO queue_task_attempts (task_id, attempt, worker_id, started_at, ended_at, outcome)
    SELECT one.id, one.attempt, one.worker_id, one.started_at, v_now, 'Completed'
    FROM unnest(v_ids, v_attempts, v_workers, v_starts) AS one (id, attempt, worker_id, started_at)
    ON CONFLICT DO NOTHING;

    IF v_announced IS NOT NULL THEN
      PERFORM dx_announce_task_ends(v_announced, v_now_ms);
    END IF;
  END IF;

  out_acked := 0;
  IF p_message_ids IS NOT NULL THEN
    v_messages := ARRAY(
      SELECT one.id
      FROM unnest(p_message_ids, out_outcomes) AS one (id, outcome)
      WHERE one.outcome <> 'Uncommitted'
    );
    -- The index is read, and rows are locked, in the order of the ids. Tokens are unique: one of another item of the set has
    -- leased the same message, which then is not needed either. Plain comparisons would fit another index as well.
    DELETE FROM queue_messages AS m
    WHERE m.id = ANY (v_messages)
      AND (m.lease_token = ANY (p_message_tokens)) IS TRUE
      AND (m.visible_at > v_now) IS TRUE;
    GET DIAGNOSTICS out_acked = ROW_COUNT;
  END IF;
  RETURN NEXT;
END
$$;
