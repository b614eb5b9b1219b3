-- Deletes a discarded version and its batches.
--
-- Returns {_tag: Deleted}, also if it does not exist, or {_tag: VersionNotDiscarded, status}. Bound: the batches of the
-- version. Locks: the version, its batches.
CREATE OR REPLACE FUNCTION dx_delete_version(p_dataset_uuid uuid, p_version bigint) RETURNS jsonb
LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_status text;
BEGIN
  SELECT v.status INTO v_status FROM queue_dataset_versions AS v
  WHERE v.dataset_uuid = p_dataset_uuid AND v.dataset_version = p_version
  FOR UPDATE;
  IF v_status <> 'Discarded' THEN
    RETURN jsonb_build_object('_tag', 'VersionNotDiscarded', 'status', v_status);
  END IF;
  DELETE FROM queue_dataset_batches AS b
  WHERE b.dataset_uuid = p_dataset_uuid AND b.dataset_version = p_version;
  DELETE FROM queue_dataset_versions AS v
  WHERE v.dataset_uuid = p_dataset_uuid AND v.dataset_version = p_version;
  RETURN jsonb_build_object('_tag', 'Deleted');
END
$$;
