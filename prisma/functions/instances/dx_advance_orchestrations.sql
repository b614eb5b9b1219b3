-- Stores optimistic turns: the results of activities, and the turns that these lead to, which were run without a claim.
-- A turn that cannot be stored leaves its results as messages, as dx_ack_work_items does.
--
-- Returns one answer per turn, in order: {_tag: Advanced, nowMs, handedOver: [{index, lockToken}]}, or {_tag: Queued,
-- results: [Done or LockLost]}, with nowMs if clock_ms differs from it by more than 2 seconds. A turn is stored if its
-- clock_ms does not and, at the moment of the call, no other transaction works on its instance, which has no row in
-- instance_locks and no visible message; its execution is the current one, is running, and ends with the event that has
-- last_event_id and last_event_hash (after a failover that lost turns, another one may have its id); its own event ids
-- are free; its activities have their live locks; and none of these or of those it cancels is locked by another
-- transaction. Of two turns of one instance the first is stored.
--
-- Raises 55P03 if a result must become a message while another transaction has locked its activity and this one has
-- turns to store: it would wait with locks of theirs.
--
-- Bound: the rows given; otherwise as dx_store_turns and dx_ack_work_items.
-- Locks: advisory locks of the instances (try); worker rows of the turns to be stored (skip locked); then as
-- dx_store_turns; then the other worker rows (skip locked), sessions by id. A transaction with the advisory lock of an
-- instance that has no row in instance_locks is the only one to store its turns, so no transaction that waits for these
-- worker rows holds what dx_store_turns waits for. Without a turn to store: as dx_ack_work_items.
CREATE OR REPLACE FUNCTION dx_advance_orchestrations(
  p_turns jsonb,                   -- [{fields of dx_turn}]
  p_results jsonb,                 -- [{ack, token, instance_id, work_item or text_at}], by turn; at least one for each
  p_history jsonb,                 -- this and the following: as in dx_store_turns
  p_key_values jsonb, p_worker_items jsonb, p_cancelled_activities jsonb, p_orchestrator_items jsonb,
  p_workers jsonb, p_texts text[] DEFAULT NULL, p_now_ms bigint DEFAULT NULL
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  -- Without an execution where the turn is not stored.
  v_turns dx_turn[];
  -- The locked activities: those that ended, then those that are cancelled as well.
  v_ended bigint[];
  v_held bigint[];
  v_sessions text[];
  v_stored bigint;
  v_stores_all boolean;
  v_handed_over jsonb;
  v_settled text[];
  v_answer jsonb;
BEGIN
  IF jsonb_array_length(p_turns) = 1
    AND jsonb_array_length(p_results) = 1
    AND num_nonnulls(p_key_values, p_cancelled_activities, p_orchestrator_items) = 0
  THEN
    v_answer := dx_advance_with_plain_turn(
      p_turns -> 0, p_results -> 0 ->> 'token', p_history, p_worker_items, p_workers, p_texts, v_now_ms
    );
    IF v_answer IS NOT NULL THEN
      RETURN jsonb_build_array(v_answer);
    END IF;
  END IF;

  v_turns := dx_check_turns(
    ARRAY(SELECT turn FROM jsonb_populate_recordset(NULL::dx_turn, p_turns) AS turn), p_history, v_now_ms
  );
  SELECT held.out_turns, held.out_ended, held.out_held INTO v_turns, v_ended, v_held
  FROM dx_hold_activities(v_turns, p_results, p_cancelled_activities, v_now_ms) AS held;
  SELECT count(turn.execution_id), count(*) = count(turn.execution_id) INTO v_stored, v_stores_all
  FROM unnest(v_turns) AS turn;

  IF v_stores_all THEN
    -- Before new activities are stored: where these were the last ones, none waits, and those are handed over.
    WITH gone AS (DELETE FROM worker_queue AS w WHERE w.id = ANY (v_ended) RETURNING w.session_id)
    SELECT array_agg(gone.session_id) FILTER (WHERE gone.session_id IS NOT NULL) INTO v_sessions
    FROM gone;
  END IF;

  IF v_stored > 0 THEN
    v_handed_over := dx_store_turns(
      v_turns, NULL, p_history, p_key_values, p_worker_items, p_cancelled_activities, p_orchestrator_items, p_workers,
      p_texts, v_now_ms
    );
  END IF;

  IF v_held <> '{}' AND NOT v_stores_all THEN
    v_held := v_held || ARRAY(
      SELECT activity.id FROM jsonb_to_recordset(p_results) AS r (ack bigint, token text)
      CROSS JOIN LATERAL (
        SELECT w.id FROM worker_queue AS w
        WHERE w.id = dx_row_id(r.token)
          AND w.lock_token = split_part(r.token, '.', 2)
          AND w.locked_until > v_now_ms
        FOR UPDATE SKIP LOCKED
      ) AS activity
      WHERE v_turns[r.ack].execution_id IS NULL
    );
    IF EXISTS (
      SELECT FROM jsonb_to_recordset(p_results) AS r (ack bigint, token text)
      CROSS JOIN LATERAL (
        SELECT w.id FROM worker_queue AS w
        WHERE w.id = dx_row_id(r.token)
          AND w.lock_token = split_part(r.token, '.', 2)
          AND w.locked_until > v_now_ms
        OFFSET 0
      ) AS activity
      WHERE v_turns[r.ack].execution_id IS NULL AND activity.id <> ALL (v_held)
    ) THEN
      RAISE EXCEPTION 'another transaction has locked an activity that ended'
        USING ERRCODE = 'lock_not_available';
    END IF;
  END IF;

  IF v_stores_all THEN
    IF v_sessions IS NOT NULL THEN
      PERFORM dx_touch_sessions(v_sessions, v_now_ms);
    END IF;
  ELSE
    -- The results of turns that are stored are part of their histories.
    v_settled := dx_ack_work_items(
      p_results, p_texts, v_now_ms,
      ARRAY(SELECT v_turns[r.ack].execution_id IS NULL FROM jsonb_to_recordset(p_results) AS r (ack bigint))
    );
  END IF;

  RETURN (
    SELECT jsonb_agg(
      CASE
        WHEN turn.execution_id IS NULL THEN jsonb_build_object(
          '_tag', 'Queued',
          'results', (
            SELECT jsonb_agg(v_settled[r.position] ORDER BY r.position)
            FROM ROWS FROM (jsonb_to_recordset(p_results) AS (ack bigint)) WITH ORDINALITY AS r (ack, position)
            WHERE r.ack = turn.ordinality
          )
        ) || CASE WHEN dx_is_clock_off(turn.clock_ms, v_now_ms) THEN jsonb_build_object('nowMs', v_now_ms) ELSE '{}' END
        ELSE jsonb_build_object(
          '_tag', 'Advanced', 'nowMs', v_now_ms,
          'handedOver', COALESCE(v_handed_over -> turn.ordinality::text, '[]')
        )
      END
      ORDER BY turn.ordinality
    )
    FROM unnest(v_turns) WITH ORDINALITY AS turn
  );
END
$$;
