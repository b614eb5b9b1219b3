-- Discards a version that is building or committed, unless it is the active one. Its tasks that have not ended are
-- cancelled.
--
-- Returns {_tag: Discarded}, {_tag: VersionNotFound} or {_tag: VersionIsActive}. Bound: the batches of the version.
-- Locks: the data set (shared), the version, its tasks. Waits for transactions that publish or commit batches of the
-- version.
CREATE OR REPLACE FUNCTION dx_discard_version(
  p_dataset_uuid uuid, p_version bigint, p_now_ms bigint DEFAULT NULL
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_active bigint;
BEGIN
  SELECT d.active_version INTO v_active FROM queue_datasets AS d
  WHERE d.dataset_uuid = p_dataset_uuid
  FOR SHARE;
  IF v_active = p_version THEN
    RETURN jsonb_build_object('_tag', 'VersionIsActive');
  END IF;

  UPDATE queue_dataset_versions AS v SET status = 'Discarded'
  WHERE v.dataset_uuid = p_dataset_uuid AND v.dataset_version = p_version;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('_tag', 'VersionNotFound');
  END IF;
  PERFORM dx_cancel_tasks(
    ARRAY(
      SELECT b.task_id::text FROM queue_dataset_batches AS b
      WHERE b.dataset_uuid = p_dataset_uuid AND b.dataset_version = p_version AND b.status = 'Buffered'
    ),
    'the version of its batch was discarded', true, p_now_ms
  );
  RETURN jsonb_build_object('_tag', 'Discarded');
END
$$;
