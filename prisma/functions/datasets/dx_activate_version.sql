-- Makes a committed version the active one. Readers have the version before, or this one.
--
-- Returns {_tag: Activated, previous}, {_tag: ActiveVersionChanged, actual}, {_tag: DatasetNotFound}, {_tag:
-- VersionNotFound} or {_tag: VersionNotCommitted, status}; previous and actual are null without an active version.
-- Bound: one row. Locks: the data set, the version (shared).
CREATE OR REPLACE FUNCTION dx_activate_version(
  p_dataset_uuid uuid, p_version bigint,
  p_compares boolean,              -- whether the active version must be p_expected
  p_expected bigint,               -- null for none
  p_now_ms bigint DEFAULT NULL
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_active bigint;
  v_status text;
BEGIN
  SELECT d.active_version INTO v_active FROM queue_datasets AS d
  WHERE d.dataset_uuid = p_dataset_uuid
  FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('_tag', 'DatasetNotFound');
  END IF;

  SELECT v.status INTO v_status FROM queue_dataset_versions AS v
  WHERE v.dataset_uuid = p_dataset_uuid AND v.dataset_version = p_version
  FOR SHARE;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('_tag', 'VersionNotFound');
  END IF;
  IF v_status <> 'Committed' THEN
    RETURN jsonb_build_object('_tag', 'VersionNotCommitted', 'status', v_status);
  END IF;
  IF p_compares AND v_active IS DISTINCT FROM p_expected THEN
    RETURN jsonb_build_object('_tag', 'ActiveVersionChanged', 'actual', v_active);
  END IF;

  UPDATE queue_datasets AS d
  SET active_version = p_version, updated_at = to_timestamp(v_now_ms::float8 / 1000)
  WHERE d.dataset_uuid = p_dataset_uuid AND v_active IS DISTINCT FROM p_version;
  RETURN jsonb_build_object('_tag', 'Activated', 'previous', v_active);
END
$$;
