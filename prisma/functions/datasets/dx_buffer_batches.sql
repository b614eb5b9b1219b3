-- Publishes batches of buffered records: each with its row, the task that will process it, and the outbox row of the
-- task's first wake-up.
--
-- Returns one outcome per batch, in order: {_tag: Published, taskId}; {_tag: Known, taskId} if the version has the
-- batch already; {_tag: BatchDiffers} if it has it with another number of records; {_tag: VersionNotFound}; or {_tag:
-- VersionNotBuilding, status} for a new batch of a version that was committed or discarded. If one of them is refused,
-- none is published, and new ones are {_tag: Unpublished}.
-- Bound: the batches given. Locks: their versions in order (shared), the new batches, then as dx_create_tasks. Waits
-- for a transaction that publishes the same batch, commits the version or discards it.
CREATE OR REPLACE FUNCTION dx_buffer_batches(
  p_batches jsonb,                 -- [{dataset_uuid, dataset_version, batch_uri, record_count, task}]; task as in
                                   --   dx_create_tasks
  p_now_ms bigint DEFAULT NULL
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_is_accepted boolean;
  v_published bigint[];
  v_tasks jsonb;
BEGIN
  PERFORM v.status FROM queue_dataset_versions AS v
  WHERE (v.dataset_uuid, v.dataset_version) IN (
    SELECT b.dataset_uuid, b.dataset_version
    FROM jsonb_to_recordset(p_batches) AS b (dataset_uuid uuid, dataset_version bigint)
  )
  ORDER BY v.dataset_uuid, v.dataset_version FOR SHARE;

  SELECT bool_and(
    CASE
      WHEN stored.task_id IS NOT NULL THEN stored.record_count = b.record_count
      ELSE COALESCE(version.status = 'Building', false)
    END
  )
  INTO v_is_accepted
  FROM jsonb_to_recordset(p_batches) AS b (
    dataset_uuid uuid, dataset_version bigint, batch_uri text, record_count bigint
  )
  LEFT JOIN LATERAL (
    SELECT batch.task_id, batch.record_count FROM queue_dataset_batches AS batch
    WHERE batch.dataset_uuid = b.dataset_uuid
      AND batch.dataset_version = b.dataset_version
      AND batch.batch_uri = b.batch_uri
    OFFSET 0
  ) AS stored ON true
  LEFT JOIN LATERAL (
    SELECT v.status FROM queue_dataset_versions AS v
    WHERE v.dataset_uuid = b.dataset_uuid AND v.dataset_version = b.dataset_version
    OFFSET 0
  ) AS version ON true;

  -- The row of a batch decides who publishes it: its task is created by the same statement or by none.
  WITH given AS (
    SELECT DISTINCT ON (b.dataset_uuid, b.dataset_version, b.batch_uri) b.*
    FROM ROWS FROM (
      jsonb_to_recordset(p_batches) AS (
        dataset_uuid uuid, dataset_version bigint, batch_uri text, record_count bigint, task jsonb
      )
    ) WITH ORDINALITY AS b (dataset_uuid, dataset_version, batch_uri, record_count, task, position)
    WHERE v_is_accepted
    ORDER BY b.dataset_uuid, b.dataset_version, b.batch_uri, b.position
  ),
  published AS (
    INSERT INTO queue_dataset_batches (
      dataset_uuid, dataset_version, batch_uri, record_count, status, task_id, created_at
    )
    SELECT
      given.dataset_uuid, given.dataset_version, given.batch_uri, given.record_count, 'Buffered',
      (given.task ->> 'id')::uuid, to_timestamp(v_now_ms::float8 / 1000)
    FROM given
    CROSS JOIN LATERAL (
      SELECT v.status FROM queue_dataset_versions AS v
      WHERE v.dataset_uuid = given.dataset_uuid AND v.dataset_version = given.dataset_version
      OFFSET 0
    ) AS version
    WHERE version.status = 'Building'
    ORDER BY given.dataset_uuid, given.dataset_version, given.batch_uri
    ON CONFLICT (dataset_uuid, dataset_version, batch_uri) DO NOTHING
    RETURNING dataset_uuid, dataset_version, batch_uri
  )
  SELECT array_agg(given.position ORDER BY given.position), jsonb_agg(given.task ORDER BY given.position)
  INTO v_published, v_tasks
  FROM published
  JOIN given
    ON given.dataset_uuid = published.dataset_uuid
    AND given.dataset_version = published.dataset_version
    AND given.batch_uri = published.batch_uri;
  IF v_tasks IS NOT NULL THEN
    PERFORM dx_create_tasks(v_tasks, p_now_ms => p_now_ms);
  END IF;

  RETURN (
    SELECT jsonb_agg(
      CASE
        WHEN b.position = ANY (v_published) THEN jsonb_build_object('_tag', 'Published', 'taskId', stored.task_id)
        WHEN stored.record_count = b.record_count THEN jsonb_build_object('_tag', 'Known', 'taskId', stored.task_id)
        WHEN stored.task_id IS NOT NULL THEN jsonb_build_object('_tag', 'BatchDiffers')
        WHEN version.status IS NULL THEN jsonb_build_object('_tag', 'VersionNotFound')
        WHEN version.status = 'Building' THEN jsonb_build_object('_tag', 'Unpublished')
        ELSE jsonb_build_object('_tag', 'VersionNotBuilding', 'status', version.status)
      END
      ORDER BY b.position
    )
    FROM ROWS FROM (
      jsonb_to_recordset(p_batches) AS (dataset_uuid uuid, dataset_version bigint, batch_uri text, record_count bigint)
    ) WITH ORDINALITY AS b (dataset_uuid, dataset_version, batch_uri, record_count, position)
    LEFT JOIN LATERAL (
      SELECT batch.task_id, batch.record_count FROM queue_dataset_batches AS batch
      WHERE batch.dataset_uuid = b.dataset_uuid
        AND batch.dataset_version = b.dataset_version
        AND batch.batch_uri = b.batch_uri
      OFFSET 0
    ) AS stored ON true
    LEFT JOIN LATERAL (
      SELECT v.status FROM queue_dataset_versions AS v
      WHERE v.dataset_uuid = b.dataset_uuid AND v.dataset_version = b.dataset_version
      OFFSET 0
    ) AS version ON true
  );
END
$$;
