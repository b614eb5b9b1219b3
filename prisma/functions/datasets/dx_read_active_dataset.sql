-- Returns the active version of a data set with the outputs of its batches, as they were at one moment: {_tag: Active,
-- datasetUuid, version, recordCount, committedMs, outputs: [{outputUri, recordCount}]}, by the URI of the batch; {_tag:
-- Inactive} without an active version, {_tag: DatasetNotFound} without a data set of this name.
-- Bound: the batches of the version. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_active_dataset(p_name text) RETURNS jsonb LANGUAGE plpgsql STABLE
-- settings of the hot path
AS $$
BEGIN
  -- One statement, and STABLE: both read what was committed when the call began.
  RETURN COALESCE(
    (
      SELECT CASE
        WHEN d.active_version IS NULL THEN jsonb_build_object('_tag', 'Inactive')
        ELSE jsonb_build_object(
          '_tag', 'Active', 'datasetUuid', d.dataset_uuid, 'version', v.dataset_version,
          'recordCount', v.record_count,
          'committedMs', floor(extract(epoch FROM v.committed_at) * 1000)::bigint,
          'outputs', COALESCE(
            (
              SELECT jsonb_agg(
                jsonb_build_object('outputUri', b.output_uri, 'recordCount', b.output_record_count)
                ORDER BY b.batch_uri
              )
              FROM queue_dataset_batches AS b
              WHERE b.dataset_uuid = v.dataset_uuid AND b.dataset_version = v.dataset_version
            ),
            '[]'
          )
        )
      END
      FROM queue_datasets AS d
      LEFT JOIN queue_dataset_versions AS v
        ON v.dataset_uuid = d.dataset_uuid
        AND v.dataset_version = d.active_version
      WHERE d.name = p_name
    ),
    jsonb_build_object('_tag', 'DatasetNotFound')
  );
END
$$;
