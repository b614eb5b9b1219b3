-- Inserts activities in the given order, visible at once. One with a limit waits for a slot of it.
--
-- Returns the number of activities. Bound: the rows given. Locks: none.
CREATE OR REPLACE FUNCTION dx_enqueue_for_worker(
  p_activities jsonb,              -- [{work_item or text_at, name, instance_id, execution_id, activity_id, session_id, tag,
                                   --   served_by, limit_key}]
  p_texts text[] DEFAULT NULL,     -- as in dx_store_turns
  p_now_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_no_tag text := dx_no_tag();
  v_limited text[] := ARRAY(SELECT l.name FROM limits AS l WHERE l.kind = 'activity');
  v_count bigint;
BEGIN
  INSERT INTO worker_queue (
    work_item, visible_at, created_at, instance_id, execution_id, activity_id, session_id, tag, route,
    limit_name, limit_key
  )
  SELECT
    COALESCE(w.work_item, p_texts[w.text_at]), CASE WHEN limited.name IS NULL THEN v_now ELSE 'infinity' END, v_now,
    w.instance_id, w.execution_id, w.activity_id, w.session_id,
    COALESCE(w.tag, CASE WHEN w.served_by IS NULL THEN v_no_tag END), w.name || COALESCE(' #' || w.tag, ''),
    limited.name, CASE WHEN limited.name IS NULL THEN w.limit_key ELSE COALESCE(w.limit_key, '') END
  FROM ROWS FROM (
    jsonb_to_recordset(p_activities) AS (
      work_item text, text_at integer, name text, instance_id text, execution_id bigint, activity_id bigint,
      session_id text, tag text, served_by text, limit_key text
    )
  ) WITH ORDINALITY
    AS w (
      work_item, text_at, name, instance_id, execution_id, activity_id, session_id, tag, served_by, limit_key, position
    )
  CROSS JOIN LATERAL (
    SELECT CASE WHEN w.served_by IS NULL AND w.name = ANY (v_limited) THEN w.name END AS name
  ) AS limited
  ORDER BY w.position;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  IF current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
    PERFORM dx_notify('worker_work', ARRAY[v_now]);
  END IF;
  RETURN v_count;
END
$$;
