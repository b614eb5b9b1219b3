-- Stores what one plain turn leaves: its events and its activities. The shared part of dx_start_with_plain_turn and
-- dx_advance_with_plain_turn; dx_store_turns does the same, and all the rest, for sets.
--
-- Returns the activities that were handed over, as dx_store_turns does: [{index, lockToken}].
-- Bound: the rows given, and dx_count_waiting; with limits: dx_admit_at_once. Locks: those of dx_admit_at_once, and new
-- rows.
CREATE OR REPLACE FUNCTION dx_store_plain_turn(
  p_turn jsonb,                    -- {handover_limit, spare}
  p_instance_id text, p_execution_id bigint,
  p_history jsonb,                 -- as in dx_store_turns; null without events
  p_worker_items jsonb,            -- the same; null without activities. None has a session, a tag or served_by
  p_workers jsonb,                 -- the same, one at most
  p_texts text[],                  -- the same
  p_has_limits boolean,            -- whether there is any limit of activities
  p_now_ms bigint
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_no_tag text;
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_waiting bigint[];
  v_names jsonb;
  v_until_ms bigint;
  v_secret text;
  -- How many more may be handed over.
  v_left bigint := 0;
  v_item jsonb;
  v_token text;
  v_id bigint;
  v_handed_over jsonb := '[]';
  -- As in dx_store_activities.
  v_admitted boolean[];
  v_limited text[] := '{}';
  v_is_limited boolean;
BEGIN
  IF p_history IS NOT NULL THEN
    INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
    SELECT p_instance_id, p_execution_id, h.event_id, h.event_type, COALESCE(h.event_data, p_texts[h.text_at]), v_now
    FROM jsonb_to_recordset(p_history) AS h (event_id bigint, event_type text, event_data text, text_at integer);
  END IF;
  IF p_worker_items IS NULL THEN
    RETURN v_handed_over;
  END IF;
  v_no_tag := dx_no_tag();

  IF (p_workers -> 0 ->> 'untagged')::boolean THEN
    v_waiting := dx_count_waiting(p_workers, (p_turn ->> 'spare')::bigint, p_now_ms);
    IF v_waiting IS NULL OR v_waiting[1] <= (p_turn ->> 'spare')::bigint THEN
      v_names := p_workers -> 0 -> 'names';
      v_until_ms := p_now_ms + (p_workers -> 0 ->> 'lock_timeout_ms')::bigint;
      v_secret := gen_random_uuid()::text;
      v_left := (p_turn ->> 'handover_limit')::bigint;
    END IF;
  END IF;
  IF p_has_limits THEN
    v_limited := ARRAY(
      SELECT l.name FROM limits AS l
      WHERE l.kind = 'activity'
        AND l.name = ANY (ARRAY(SELECT a.name FROM jsonb_to_recordset(p_worker_items) AS a (name text)))
    );
    v_admitted := dx_admit_at_once(
      'activity',
      array_agg(a.name ORDER BY a.position), array_agg(a.limit_key ORDER BY a.position),
      p_now_ms
    )
    FROM ROWS FROM (jsonb_to_recordset(p_worker_items) AS (name text, limit_key text)) WITH ORDINALITY
      AS a (name, limit_key, position);
  END IF;
  FOR v_index IN 0 .. jsonb_array_length(p_worker_items) - 1 LOOP
    v_item := p_worker_items -> v_index;
    v_is_limited := v_admitted[v_index + 1] IS FALSE OR v_item ->> 'name' = ANY (v_limited);
    v_token := CASE
      WHEN v_left > 0 AND v_names ? (v_item ->> 'name') AND v_admitted[v_index + 1] IS NOT FALSE THEN v_secret
    END;
    INSERT INTO worker_queue (
      work_item, visible_at, lock_token, locked_until, created_at, attempt_count, instance_id, execution_id,
      activity_id, tag, route, limit_name, limit_key
    )
    VALUES (
      COALESCE(v_item ->> 'work_item', p_texts[(v_item ->> 'text_at')::integer]),
      CASE WHEN v_admitted[v_index + 1] IS FALSE THEN 'infinity' ELSE v_now END, v_token,
      CASE WHEN v_token IS NOT NULL THEN v_until_ms END, v_now, (v_token IS NOT NULL)::integer,
      v_item ->> 'instance_id', (v_item ->> 'execution_id')::bigint, (v_item ->> 'activity_id')::bigint, v_no_tag,
      v_item ->> 'name', CASE WHEN v_is_limited THEN v_item ->> 'name' END,
      CASE WHEN v_is_limited THEN COALESCE(v_item ->> 'limit_key', '') ELSE v_item ->> 'limit_key' END
    )
    RETURNING id INTO v_id;
    IF v_token IS NOT NULL THEN
      v_left := v_left - 1;
      v_handed_over := v_handed_over || CASE
        WHEN v_is_limited
          THEN jsonb_build_object('index', v_index, 'lockToken', v_id || '.' || v_token, 'isLimited', true)
        ELSE jsonb_build_object('index', v_index, 'lockToken', v_id || '.' || v_token)
      END;
    END IF;
  END LOOP;
  IF jsonb_array_length(p_worker_items) > jsonb_array_length(v_handed_over)
    AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on'
  THEN
    PERFORM dx_notify('worker_work', ARRAY[v_now]);
  END IF;
  RETURN v_handed_over;
END
$$;
