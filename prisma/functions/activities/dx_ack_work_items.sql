-- Deletes claimed activities and delivers their completions.
--
-- Returns one outcome per item, in order: Done, or LockLost if the token is unknown, expired, superseded or settled (of
-- two items with one token, the second), or if the activity was cancelled.
-- Bound: the rows given. Locks: worker rows by id; then session rows by id.
CREATE OR REPLACE FUNCTION dx_ack_work_items(
  p_items jsonb,                   -- [{token, instance_id, work_item or text_at}]; neither: nothing is delivered
  p_texts text[] DEFAULT NULL,     -- as in dx_store_turns
  p_now_ms bigint DEFAULT NULL,
  p_delivers boolean[] DEFAULT NULL -- by position, whether the completion is delivered; null: all are
) RETURNS text[] LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_outcomes text[] := array_fill('LockLost'::text, ARRAY[jsonb_array_length(p_items)]);
  v_ids bigint[] := '{}';
  v_sessions text[] := '{}';
  v_row record;
  v_previous bigint;
BEGIN
  FOR v_row IN
    SELECT item.position, activity.id, activity.session_id
    FROM (
      SELECT a.*, dx_row_id(a.token) AS id
      FROM ROWS FROM (jsonb_to_recordset(p_items) AS (token text)) WITH ORDINALITY AS a (token, position)
      ORDER BY id, a.position
    ) AS item
    CROSS JOIN LATERAL (
      SELECT w.id, w.session_id FROM worker_queue AS w
      WHERE w.id = item.id AND w.lock_token = split_part(item.token, '.', 2) AND w.locked_until > v_now_ms
      FOR UPDATE
    ) AS activity
  LOOP
    CONTINUE WHEN v_row.id = v_previous;
    v_previous := v_row.id;
    v_outcomes[v_row.position] := 'Done';
    v_ids := v_ids || v_row.id;
    IF v_row.session_id IS NOT NULL THEN
      v_sessions := v_sessions || v_row.session_id;
    END IF;
  END LOOP;

  DELETE FROM worker_queue AS w WHERE w.id = ANY (v_ids);

  IF v_sessions <> '{}' THEN
    PERFORM dx_touch_sessions(v_sessions, v_now_ms);
  END IF;

  IF p_delivers IS NULL OR true = ANY (p_delivers) THEN
    INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
    SELECT
      a.instance_id, COALESCE(a.work_item, p_texts[a.text_at]), v_now, v_now,
      COALESCE((SELECT i.route FROM instances AS i WHERE i.instance_id = a.instance_id), '')
    FROM (
      SELECT item.*
      FROM ROWS FROM (jsonb_to_recordset(p_items) AS (instance_id text, work_item text, text_at integer))
        WITH ORDINALITY AS item (instance_id, work_item, text_at, position)
      WHERE v_outcomes[item.position] = 'Done'
        AND (item.work_item IS NOT NULL OR item.text_at IS NOT NULL)
        AND (p_delivers IS NULL OR p_delivers[item.position])
      ORDER BY item.position
    ) AS a;
    IF FOUND AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
      PERFORM dx_notify('orch_work', ARRAY[v_now]);
    END IF;
  END IF;
  RETURN v_outcomes;
END
$$;
