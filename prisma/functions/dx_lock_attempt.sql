-- The fence for outputs of an attempt: locks the row of its task until the end of the transaction.
--
-- Returns whether it is the task's newest attempt and still runs. While it is locked, no other attempt begins.
--
-- Bound: one row. Locks: the task; waits for another transaction that has locked it.
CREATE OR REPLACE FUNCTION dx_lock_attempt(
  p_task_id uuid,
  p_attempt integer
)
RETURNS boolean
LANGUAGE plpgsql
-- settings of the hot path
AS $$
BEGIN
  RETURN COALESCE(
    (
      SELECT t.status = 'Running' AND t.attempt = p_attempt
      FROM queue_tasks AS t
      WHERE t.id = p_task_id
      FOR NO KEY UPDATE
    ),
    false
  );
END
$$;
