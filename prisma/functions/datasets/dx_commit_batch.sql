-- Commits the output of a batch for the attempt that has processed it. The first commit counts: a later one, also of a
-- newer attempt, is answered with what is stored.
--
-- Returns {_tag: Committed, outputUri, recordCount, attempt}, {_tag: BatchNotFound}, {_tag: StaleAttempt} or {_tag:
-- VersionNotBuilding, datasetUuid, version, status}.
-- Bound: one row. Locks: the version (shared), the task, the batch. Waits for a commit or discard of the version.
CREATE OR REPLACE FUNCTION dx_commit_batch(
  p_task_id uuid, p_attempt integer, p_output_uri text, p_record_count bigint, p_now_ms bigint DEFAULT NULL
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_batch queue_dataset_batches%ROWTYPE;
  v_status text;
BEGIN
  SELECT b.* INTO v_batch FROM queue_dataset_batches AS b WHERE b.task_id = p_task_id;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('_tag', 'BatchNotFound');
  END IF;

  SELECT v.status INTO v_status FROM queue_dataset_versions AS v
  WHERE v.dataset_uuid = v_batch.dataset_uuid AND v.dataset_version = v_batch.dataset_version
  FOR SHARE;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('_tag', 'BatchNotFound');
  END IF;

  IF NOT dx_lock_attempt(p_task_id, p_attempt) THEN
    RETURN jsonb_build_object('_tag', 'StaleAttempt');
  END IF;

  -- Read again: another attempt may have committed it before this one had the lock.
  SELECT b.* INTO v_batch FROM queue_dataset_batches AS b WHERE b.task_id = p_task_id FOR UPDATE;
  IF v_batch.status = 'Buffered' THEN
    IF v_status <> 'Building' THEN
      RETURN jsonb_build_object(
        '_tag', 'VersionNotBuilding', 'datasetUuid', v_batch.dataset_uuid, 'version', v_batch.dataset_version,
        'status', v_status
      );
    END IF;
    UPDATE queue_dataset_batches AS b
    SET status = 'Committed', output_uri = p_output_uri, output_record_count = p_record_count,
        attempt = p_attempt, committed_at = to_timestamp(v_now_ms::float8 / 1000)
    WHERE b.task_id = p_task_id
    RETURNING b.* INTO v_batch;
  END IF;
  RETURN jsonb_build_object(
    '_tag', 'Committed', 'outputUri', v_batch.output_uri, 'recordCount', v_batch.output_record_count,
    'attempt', v_batch.attempt
  );
END
$$;
