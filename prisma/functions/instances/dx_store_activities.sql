-- Stores the activities that turns schedule, and hands some of them over to the caller. A part of dx_store_turns, which
-- says which ones.
--
-- An activity with a limit waits for a slot of it, unless dx_admit_at_once gives it one.
--
-- Returns those that were handed over, as dx_store_turns.
-- Bound: the activities given; to hand over: dx_count_waiting; with limits: dx_admit_at_once. Locks: those of
-- dx_admit_at_once, and new rows.
CREATE OR REPLACE FUNCTION dx_store_activities(
  p_turns dx_turn[],
  p_worker_items jsonb,            -- this and the following: as in dx_store_turns
  p_cancelled_activities jsonb, p_workers jsonb, p_texts text[], p_now_ms bigint
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_no_tag CONSTANT text := dx_no_tag();
  v_secret CONSTANT text := gen_random_uuid();
  -- By position of the worker; null: none waits.
  v_waiting bigint[];
  -- By position of the activity: whether it has a slot; null: none has a limit.
  v_admitted boolean[];
  v_limited text[] := '{}';
  v_handed_over jsonb;
  v_count bigint;
BEGIN
  IF p_workers IS NOT NULL THEN
    v_waiting := dx_count_waiting(
      p_workers, (SELECT max(COALESCE(turn.spare, 0)) FROM unnest(p_turns) AS turn), p_now_ms
    );
  END IF;

  IF (SELECT l.name FROM limits AS l WHERE l.kind = 'activity' LIMIT 1) IS NOT NULL THEN
    -- Read first: if a limit is set after this, these activities are neither admitted nor counted by it.
    v_limited := ARRAY(
      SELECT l.name FROM limits AS l
      WHERE l.kind = 'activity'
        AND l.name = ANY (ARRAY(SELECT a.name FROM jsonb_to_recordset(p_worker_items) AS a (name text)))
    );
    v_admitted := dx_admit_at_once(
      'activity',
      array_agg(CASE WHEN a.served_by IS NULL THEN a.name END ORDER BY a.position),
      array_agg(a.limit_key ORDER BY a.position),
      p_now_ms
    )
    FROM ROWS FROM (jsonb_to_recordset(p_worker_items) AS (name text, limit_key text, served_by text)) WITH ORDINALITY
      AS a (name, limit_key, served_by, position);
  END IF;

  WITH item AS (
    SELECT
      activity.*, v_admitted[activity.position] IS FALSE AS is_parked,
      v_admitted[activity.position] IS FALSE OR activity.served_by IS NULL AND activity.name = ANY (v_limited)
        AS is_limited,
      row_number() OVER (PARTITION BY activity.ack ORDER BY activity.position) - 1 AS index,
      worker.lock_timeout_ms,
      worker.position IS NOT NULL
        AND activity.session_id IS NULL
        AND activity.served_by IS NULL
        AND v_admitted[activity.position] IS NOT FALSE
        AND activity.name = ANY (worker.names)
        AND CASE
          WHEN activity.tag IS NULL THEN worker.untagged
          ELSE worker.tags IS NULL OR activity.tag = ANY (worker.tags)
        END
        -- Otherwise it never runs.
        AND (
          p_cancelled_activities IS NULL
          OR NOT p_cancelled_activities @> jsonb_build_array(
            jsonb_build_object(
              'instance_id', activity.instance_id, 'execution_id', activity.execution_id,
              'activity_id', activity.activity_id
            )
          )
        ) AS is_served
    FROM ROWS FROM (
      jsonb_to_recordset(p_worker_items) AS (
        ack bigint, work_item text, text_at integer, name text, instance_id text, execution_id bigint,
        activity_id bigint, session_id text, tag text, served_by text, limit_key text
      )
    ) WITH ORDINALITY AS activity (
      ack, work_item, text_at, name, instance_id, execution_id, activity_id, session_id, tag, served_by, limit_key,
      position
    )
    LEFT JOIN ROWS FROM (
      jsonb_to_recordset(p_workers) AS (lock_timeout_ms bigint, names text[], untagged boolean, tags text[])
    ) WITH ORDINALITY AS worker (lock_timeout_ms, names, untagged, tags, position)
      ON worker.position = p_turns[activity.ack].worker
      AND (v_waiting IS NULL OR v_waiting[worker.position] <= COALESCE(p_turns[activity.ack].spare, 0))
    WHERE p_turns[activity.ack].execution_id IS NOT NULL
  ),
  numbered AS MATERIALIZED (
    SELECT nextval('worker_queue_id_seq') AS id, ordered.*
    FROM (
      SELECT
        item.*,
        item.is_served
          AND count(*) FILTER (WHERE item.is_served) OVER (PARTITION BY item.ack ORDER BY item.position)
            <= p_turns[item.ack].handover_limit AS is_handed_over
      FROM item
      ORDER BY item.position
    ) AS ordered
  ),
  stored AS (
    INSERT INTO worker_queue (
      id, work_item, visible_at, lock_token, locked_until, created_at, attempt_count, instance_id, execution_id,
      activity_id, session_id, tag, route, limit_name, limit_key
    )
    SELECT
      activity.id, COALESCE(activity.work_item, p_texts[activity.text_at]),
      CASE WHEN activity.is_parked THEN 'infinity' ELSE v_now END,
      CASE WHEN activity.is_handed_over THEN v_secret END,
      CASE WHEN activity.is_handed_over THEN p_now_ms + activity.lock_timeout_ms END,
      v_now, activity.is_handed_over::integer, activity.instance_id, activity.execution_id, activity.activity_id,
      activity.session_id, COALESCE(activity.tag, CASE WHEN activity.served_by IS NULL THEN v_no_tag END),
      activity.name || COALESCE(' #' || activity.tag, ''),
      CASE WHEN activity.is_limited THEN activity.name END,
      CASE WHEN activity.is_limited THEN COALESCE(activity.limit_key, '') ELSE activity.limit_key END
    FROM (SELECT numbered.* FROM numbered ORDER BY numbered.id) AS activity
  )
  SELECT jsonb_object_agg(turn.ack, turn.activities), sum(jsonb_array_length(turn.activities))
  INTO v_handed_over, v_count
  FROM (
    SELECT
      activity.ack,
      jsonb_agg(
        CASE
          WHEN activity.is_limited
            THEN jsonb_build_object('index', activity.index, 'lockToken', activity.id || '.' || v_secret, 'isLimited', true)
          ELSE jsonb_build_object('index', activity.index, 'lockToken', activity.id || '.' || v_secret)
        END
        ORDER BY activity.index
      ) AS activities
    FROM numbered AS activity WHERE activity.is_handed_over
    GROUP BY activity.ack
  ) AS turn;

  IF jsonb_array_length(p_worker_items) > COALESCE(v_count, 0)
    AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on'
  THEN
    PERFORM dx_notify('worker_work', ARRAY[v_now]);
  END IF;
  RETURN v_handed_over;
END
$$;
