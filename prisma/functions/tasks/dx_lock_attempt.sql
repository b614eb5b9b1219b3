-- The fence for outputs of an attempt: locks the row of its task until the end of the transaction.
--
-- Returns whether it is the task's newest attempt and still runs. While it is locked, no other attempt begins.
-- Bound: one row. Locks: the version of its batch (shared), if it has one, then the task; waits for other transactions
-- that have locked them.
CREATE OR REPLACE FUNCTION dx_lock_attempt(p_task_id uuid, p_attempt integer) RETURNS boolean LANGUAGE plpgsql
-- settings of the hot path
AS $$
BEGIN
  -- The transaction may commit the batch later. A discard locks the version before its tasks.
  PERFORM FROM queue_dataset_batches AS b
  JOIN queue_dataset_versions AS v
    ON v.dataset_uuid = b.dataset_uuid
    AND v.dataset_version = b.dataset_version
  WHERE b.task_id = p_task_id
  FOR SHARE OF v;

  RETURN COALESCE(
    (
      SELECT t.status = 'Running' AND t.attempt = p_attempt FROM queue_tasks AS t
      WHERE t.id = p_task_id
      FOR NO KEY UPDATE
    ),
    false
  );
END
$$;
