-- Commits a version if all its batches are committed, and at least p_batch_count of them. A committed version is
-- answered like the commit itself.
--
-- Returns {_tag: Committed, batchCount, recordCount}, {_tag: BatchesMissing, missing, published}, {_tag:
-- VersionNotFound}, {_tag: VersionNotBuilding, status}, {_tag: StaleAttempt} or {_tag: IsolationUnfit, level}.
-- Bound: the batches of the version. Locks: the version, the task. Waits for transactions that publish or commit
-- batches of the version; a batch that comes later finds it committed.
CREATE OR REPLACE FUNCTION dx_commit_version(
  p_dataset_uuid uuid, p_version bigint,
  p_batch_count bigint,            -- fewest batches; null for those that were published
  p_task_id uuid,                  -- the attempt that commits; null for a commit outside of a task
  p_attempt integer, p_now_ms bigint DEFAULT NULL
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_status text;
  v_published bigint;
  v_committed bigint;
  v_records bigint;
BEGIN
  -- Other levels do not show the batches of transactions that ended while this one waited for the lock.
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RETURN jsonb_build_object('_tag', 'IsolationUnfit', 'level', current_setting('transaction_isolation'));
  END IF;

  SELECT v.status INTO v_status FROM queue_dataset_versions AS v
  WHERE v.dataset_uuid = p_dataset_uuid AND v.dataset_version = p_version
  FOR UPDATE;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('_tag', 'VersionNotFound');
  END IF;
  IF p_task_id IS NOT NULL AND NOT dx_lock_attempt(p_task_id, p_attempt) THEN
    RETURN jsonb_build_object('_tag', 'StaleAttempt');
  END IF;
  IF v_status = 'Discarded' THEN
    RETURN jsonb_build_object('_tag', 'VersionNotBuilding', 'status', v_status);
  END IF;

  SELECT count(*), count(*) FILTER (WHERE b.status = 'Committed'), COALESCE(sum(b.output_record_count), 0)
  INTO v_published, v_committed, v_records
  FROM queue_dataset_batches AS b
  WHERE b.dataset_uuid = p_dataset_uuid AND b.dataset_version = p_version;
  IF v_committed < greatest(v_published, p_batch_count) THEN
    RETURN jsonb_build_object(
      '_tag', 'BatchesMissing', 'missing', greatest(v_published, p_batch_count) - v_committed,
      'published', v_published
    );
  END IF;

  IF v_status = 'Building' THEN
    UPDATE queue_dataset_versions AS v
    SET status = 'Committed', record_count = v_records, task_id = p_task_id, attempt = p_attempt,
        committed_at = to_timestamp(v_now_ms::float8 / 1000)
    WHERE v.dataset_uuid = p_dataset_uuid AND v.dataset_version = p_version;
  END IF;
  RETURN jsonb_build_object('_tag', 'Committed', 'batchCount', v_committed, 'recordCount', v_records);
END
$$;
