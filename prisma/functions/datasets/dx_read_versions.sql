-- Returns the newest versions of a data set, the newest first: [{version, status, isActive, recordCount, batchCount,
-- committedBatchCount, createdMs, committedMs}]; null without the data set. recordCount and committedMs are null until
-- the version is committed.
-- Bound: p_limit versions and their batches. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_versions(
  p_dataset_uuid uuid,
  p_limit integer                  -- versions, >= 1
) RETURNS jsonb LANGUAGE plpgsql STABLE
-- settings of the hot path
AS $$
BEGIN
  RETURN (
    SELECT COALESCE(
      (
        SELECT jsonb_agg(
          jsonb_build_object(
            'version', version.dataset_version, 'status', version.status,
            'isActive', version.dataset_version IS NOT DISTINCT FROM d.active_version,
            'recordCount', version.record_count, 'batchCount', counted.batches,
            'committedBatchCount', counted.committed,
            'createdMs', floor(extract(epoch FROM version.created_at) * 1000)::bigint,
            'committedMs', floor(extract(epoch FROM version.committed_at) * 1000)::bigint
          )
          ORDER BY version.dataset_version DESC
        )
        FROM (
          SELECT v.* FROM queue_dataset_versions AS v
          WHERE v.dataset_uuid = d.dataset_uuid
          ORDER BY v.dataset_version DESC LIMIT p_limit
        ) AS version
        CROSS JOIN LATERAL (
          SELECT count(*) AS batches, count(*) FILTER (WHERE b.status = 'Committed') AS committed
          FROM queue_dataset_batches AS b
          WHERE b.dataset_uuid = version.dataset_uuid AND b.dataset_version = version.dataset_version
        ) AS counted
      ),
      '[]'
    )
    FROM queue_datasets AS d WHERE d.dataset_uuid = p_dataset_uuid
  );
END
$$;
