-- Stores turns: history, status, key-value changes, new work, cancellations. The shared part of the functions that ack
-- claimed turns (dx_ack_orchestration_items), store optimistic turns (dx_advance_orchestrations) and start instances
-- with their first turns (dx_start_orchestrations). The caller has checked that they may be stored, and excludes every
-- other turn of these instances until its transaction ends.
--
-- Returns the activities that were handed over: an object with the position of a turn as the key, and as its value
-- [{index, lockToken}], sorted, with the index of each among the activities of its turn, from 0. Null without any.
--
-- Handed over are the first activities of a turn that its worker serves, without a session, at most handover_limit.
-- They are stored claimed. If more activities that the worker serves were visible and free before than spare, the slots
-- that it keeps for them, or if that is unknown (dx_count_waiting), none is: no activity overtakes another.
--
-- Each part names its turn by position, from 1, in ack. An argument without parts is null. event_data, work_item and
-- output may be given in p_texts, text_at being the position there: a large text is then neither parsed nor copied with
-- its row. So rows are sorted before their texts are read.
--
-- The caller decodes the turns once, which takes 5 microseconds each; a step that reads them again from JSON took 1 to
-- 2 for each. The functions of the steps run under the settings of the caller: settings of their own take 0.8
-- microseconds per call, up to 7 on a loaded machine.
--
-- Bound: the rows given, and the key-value rows of instances that change them. To hand over: dx_count_waiting.
--
-- Locks, in the order of the steps below: parent rows (key share), then instance rows by id, then the rows of starts by
-- id; executions, history, key-values, attributes, streams; worker rows by id; queue rows.
CREATE OR REPLACE FUNCTION dx_store_turns(
  p_turns dx_turn[],
  p_children text[],               -- of first turns, whose instances and executions the caller has created with their
                                   --   final values: the children that it has created, too. Null for all other turns
  p_history jsonb,                 -- [{ack, event_id, event_type, event_data}]
  p_key_values jsonb,              -- [{ack, action, key, value, last_updated_at_ms}], in the order they apply;
                                   --   and changes of attributes, for dx_store_attributes, and
                                   --   chunks of streams, for dx_store_chunks
  p_worker_items jsonb,            -- [{ack, work_item, name, instance_id, execution_id, activity_id, session_id, tag,
                                   --   served_by, limit_key}]
  p_cancelled_activities jsonb,    -- [{ack, instance_id, execution_id, activity_id}]
  p_orchestrator_items jsonb,      -- [{ack, instance_id, work_item, visible_at_ms, delay_ms, start: {orchestration_name,
                                   --   orchestration_version, parent_instance_id, major, minor, patch}}]; a start
                                   --   creates its instance where the id is free
  p_workers jsonb,                 -- [{lock_timeout_ms, names, untagged, tags}], with tags as in dx_fetch_work_items
  p_texts text[],                  -- null if no part has a text_at
  p_now_ms bigint
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_started text[] := p_children;
  -- Which of the rare steps are needed.
  v_claimed boolean;
  v_leaves boolean;
  v_names boolean;
  v_parents text[];
  v_describes boolean;
  v_reroutes boolean;
  v_ended text[];
  v_ends boolean;
  v_requeues boolean;
  v_cancels boolean;
  v_handed_over jsonb;
  -- Of a step that most acks take: an assignment starts no statement, as PERFORM does.
  v_rows bigint;
BEGIN
  SELECT
    bool_or(turn.secret IS NOT NULL), bool_or(turn.left_ids IS NOT NULL),
    bool_or(turn.orchestration_name IS NOT NULL AND turn.orchestration_version IS NOT NULL) FILTER (WHERE stored.yes),
    array_agg(turn.parent_instance_id) FILTER (WHERE stored.yes AND turn.parent_instance_id IS NOT NULL),
    bool_or(turn.status IS NOT NULL OR turn.major IS NOT NULL) FILTER (WHERE stored.yes),
    bool_or(turn.orchestration_name IS NOT NULL OR turn.major IS NOT NULL OR turn.status = 'ContinuedAsNew')
      FILTER (WHERE stored.yes),
    array_agg(turn.instance_id)
      FILTER (WHERE stored.yes AND turn.status IN ('Completed', 'Failed', 'ContinuedAsNew')),
    bool_or(turn.requeued IS NOT NULL) FILTER (WHERE stored.yes),
    bool_or(turn.cancelled_timers IS NOT NULL) FILTER (WHERE stored.yes)
  INTO v_claimed, v_leaves, v_names, v_parents, v_describes, v_reroutes, v_ended, v_requeues, v_cancels
  FROM unnest(p_turns) AS turn
  CROSS JOIN LATERAL (SELECT turn.execution_id IS NOT NULL AS yes) AS stored;
  v_ends := v_ended IS NOT NULL;

  IF v_parents IS NOT NULL THEN
    -- A deletion of the parent with its children must not miss this child.
    PERFORM FROM instances AS i WHERE i.instance_id = ANY (v_parents)
    ORDER BY i.instance_id COLLATE "C"
    FOR KEY SHARE;
  END IF;

  IF p_children IS NULL THEN
    v_started := dx_store_instances(p_turns, v_claimed AND v_names, p_orchestrator_items, p_texts, v_now);
    IF v_claimed OR v_describes THEN
      v_reroutes := dx_store_executions(p_turns, v_claimed, v_describes, p_texts, v_now) OR v_reroutes;
    END IF;
  END IF;

  IF p_history IS NOT NULL THEN
    INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
    SELECT
      p_turns[event.ack].instance_id, p_turns[event.ack].execution_id, event.event_id, event.event_type,
      COALESCE(event.event_data, p_texts[event.text_at]), v_now
    FROM jsonb_to_recordset(p_history)
      AS event (ack bigint, event_id bigint, event_type text, event_data text, text_at integer)
    WHERE p_turns[event.ack].execution_id IS NOT NULL;
  END IF;

  IF p_key_values IS NOT NULL
    OR (v_ends AND EXISTS (SELECT FROM kv_delta AS d WHERE d.instance_id = ANY (v_ended)))
  THEN
    PERFORM dx_store_key_values(p_turns, p_key_values, v_ends, p_now_ms);
    IF p_key_values @? '$[*] ? (@.action == "attribute")' THEN
      PERFORM dx_store_attributes(p_turns, p_key_values);
    END IF;
    IF p_key_values @? '$[*] ? (@.action == "chunk")' THEN
      PERFORM dx_store_chunks(p_turns, p_key_values, v_now);
    END IF;
  END IF;

  IF p_worker_items IS NOT NULL THEN
    v_handed_over := dx_store_activities(p_turns, p_worker_items, p_cancelled_activities, p_workers, p_texts, p_now_ms);
  END IF;
  IF p_cancelled_activities IS NOT NULL THEN
    PERFORM dx_cancel_activities(p_turns, p_cancelled_activities);
  END IF;

  IF p_children IS NULL AND v_reroutes THEN
    v_rows := dx_reroute_instances(p_turns);
  END IF;
  IF v_ends OR v_leaves THEN
    PERFORM dx_leave_messages(p_turns, v_ends, v_leaves, v_ends AND v_requeues, v_now);
  END IF;
  IF p_orchestrator_items IS NOT NULL OR v_cancels OR v_started <> '{}' THEN
    v_rows := dx_store_messages(p_turns, p_orchestrator_items, v_started, v_cancels, p_texts, p_now_ms);
  END IF;
  RETURN v_handed_over;
END
$$;
