-- Opens the next version of a data set, with status Building. No number is used twice, not even after a deletion.
--
-- Returns {_tag: Opened, version} or {_tag: DatasetNotFound}. Bound: one row. Locks: the data set.
CREATE OR REPLACE FUNCTION dx_open_version(p_dataset_uuid uuid, p_now_ms bigint DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_version bigint;
BEGIN
  UPDATE queue_datasets AS d SET last_version = d.last_version + 1, updated_at = v_now
  WHERE d.dataset_uuid = p_dataset_uuid
  RETURNING d.last_version INTO v_version;
  IF v_version IS NULL THEN
    RETURN jsonb_build_object('_tag', 'DatasetNotFound');
  END IF;
  INSERT INTO queue_dataset_versions (dataset_uuid, dataset_version, status, created_at)
  VALUES (p_dataset_uuid, v_version, 'Building', v_now);
  RETURN jsonb_build_object('_tag', 'Opened', 'version', v_version);
END
$$;
