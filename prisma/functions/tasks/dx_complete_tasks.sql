-- Completes tasks with the results of their attempts.
--
-- Returns one outcome per item, in order; null if all are Done. Done: the task is completed by this attempt, now or
-- before. Stale: the attempt is not the newest one, or the task has ended otherwise; nothing changes. Uncommitted, only
-- of p_committed: the task still runs, so the transaction that completed it was rolled back. Under p_is_first a task
-- that is completed is Stale: its rows were committed with it, and must not be committed again.
--
-- The attempt of a completed task stays in the row of the task: its number, worker and times.
--
-- Bound: the rows given. Locks: the tasks, by id; then as dx_free_task_slots, but not in a transaction of a handler,
-- whose commit is followed by a call with p_committed.
CREATE OR REPLACE FUNCTION dx_complete_tasks(
  p_ids uuid[], p_attempts integer[], p_results text[],
  p_committed boolean[],           -- checks that its own transaction has completed the task, and completes nothing
  p_is_first boolean, p_now_ms bigint DEFAULT NULL
) RETURNS text[] LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_outcomes text[];
  v_announced uuid[];
  v_freed text[];
BEGIN
  WITH item AS MATERIALIZED (
    SELECT
      given.position, given.result, given.is_committed, task.id, task.name, task.has_slot, task.is_announced,
      CASE
        WHEN task.attempt IS DISTINCT FROM given.attempt THEN 'Stale'
        WHEN task.status = 'Completed' AND NOT p_is_first THEN 'Done'
        WHEN task.status <> 'Running' THEN 'Stale'
        WHEN given.is_committed THEN 'Uncommitted'
        ELSE 'Complete'
      END AS outcome
    FROM (
      SELECT i.*
      FROM unnest(p_ids, p_attempts, p_results, p_committed) WITH ORDINALITY
        AS i (id, attempt, result, is_committed, position)
      ORDER BY i.id, i.position
    ) AS given
    LEFT JOIN LATERAL (
      SELECT t.id, t.name, t.status, t.attempt, t.has_slot, t.is_awaited OR t.reply_instance_id IS NOT NULL AS is_announced
      FROM queue_tasks AS t WHERE t.id = given.id
      FOR NO KEY UPDATE
    ) AS task ON true
  ),
  completed AS (
    UPDATE queue_tasks AS t
    SET status = 'Completed', result = item.result, error = NULL, lease_until = NULL, heartbeat_at = NULL,
        look_at = NULL, has_slot = NULL, updated_at = v_now, ended_at = v_now
    FROM item WHERE t.id = item.id AND item.outcome = 'Complete'
  )
  SELECT
    CASE
      WHEN bool_or(item.outcome <> 'Complete')
      THEN array_replace(array_agg(item.outcome ORDER BY item.position), 'Complete', 'Done')
    END,
    array_agg(item.id) FILTER (WHERE item.outcome = 'Complete' AND item.is_announced),
    array_agg(item.name) FILTER (
      WHERE CASE item.outcome WHEN 'Complete' THEN item.has_slot WHEN 'Done' THEN item.is_committed END
    )
  INTO v_outcomes, v_announced, v_freed
  FROM item;

  IF v_announced IS NOT NULL THEN
    PERFORM dx_announce_task_ends(v_announced, v_now_ms);
  END IF;
  IF v_freed IS NOT NULL AND NOT p_is_first THEN
    PERFORM dx_free_task_slots(v_freed, p_now_ms);
  END IF;
  RETURN v_outcomes;
END
$$;
