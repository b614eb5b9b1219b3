-- Discards committed versions that are older than the active one, except the newest p_keep of them, and returns the
-- oldest discarded versions of the data set with the outputs that were committed to them: [{version, outputUris}]; null
-- without the data set.
--
-- Bound: p_limit versions and their batches. Locks: the data set (shared), the versions by number.
CREATE OR REPLACE FUNCTION dx_prune_versions(
  p_dataset_uuid uuid,
  p_keep bigint,                   -- versions, >= 0
  p_limit integer                  -- versions, >= 1
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_active bigint;
BEGIN
  SELECT d.active_version INTO v_active FROM queue_datasets AS d
  WHERE d.dataset_uuid = p_dataset_uuid
  FOR SHARE;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;

  WITH older AS (
    SELECT v.dataset_version FROM queue_dataset_versions AS v
    WHERE v.dataset_uuid = p_dataset_uuid AND v.dataset_version < v_active AND v.status = 'Committed'
    ORDER BY v.dataset_version DESC
    OFFSET p_keep
  ),
  locked AS (
    SELECT v.dataset_version FROM queue_dataset_versions AS v
    WHERE v.dataset_uuid = p_dataset_uuid
      AND v.dataset_version = ANY (ARRAY(SELECT older.dataset_version FROM older))
    ORDER BY v.dataset_version LIMIT p_limit FOR NO KEY UPDATE
  )
  UPDATE queue_dataset_versions AS v SET status = 'Discarded'
  FROM locked WHERE v.dataset_uuid = p_dataset_uuid AND v.dataset_version = locked.dataset_version;

  RETURN (
    SELECT COALESCE(
      jsonb_agg(
        jsonb_build_object('version', discarded.dataset_version, 'outputUris', discarded.outputs)
        ORDER BY discarded.dataset_version
      ),
      '[]'
    )
    FROM (
      SELECT
        v.dataset_version,
        ARRAY(
          SELECT b.output_uri FROM queue_dataset_batches AS b
          WHERE b.dataset_uuid = p_dataset_uuid
            AND b.dataset_version = v.dataset_version
            AND b.status = 'Committed'
          ORDER BY b.batch_uri
        ) AS outputs
      FROM queue_dataset_versions AS v
      WHERE v.dataset_uuid = p_dataset_uuid AND v.status = 'Discarded'
      ORDER BY v.dataset_version LIMIT p_limit
    ) AS discarded
  );
END
$$;
