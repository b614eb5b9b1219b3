-- Creates instances whose id is free, each with execution 1 (Running, pinned) and its start message, or with its first
-- turn.
--
-- Returns one outcome per start, in order: Started; {_tag: Begun, nowMs, handedOver: [{index, lockToken}]} if the first
-- turn was stored instead of the message; {_tag: Started, nowMs} if its clock_ms differs from nowMs by more than 2
-- seconds, and so the start was stored without it; or AlreadyExists if the id has a row in instances or executions or a
-- queued start (of two starts of one id, the second); of starts with more, also Ended or Full. Of concurrent starts of
-- one id exactly one creates it. A first turn is stored if its limit, if it has one, has a slot at once
-- (dx_admit_at_once), and nothing else is stored under the id, no message, lock or event, and no other transaction
-- claims or deletes it. Otherwise its start is stored as one without a first turn.
--
-- A start with a limit that has no slot waits for one; dx_admit_instances gives it. Messages that arrived before the
-- start become claimable with it, not earlier.
--
-- Bound: the starts given, and the queued messages of their ids; for first turns as dx_store_turns; with more as
-- dx_start_with_more.
-- Locks: advisory locks of ids with a first turn (try); instances by id (the new ones, children of first turns
-- included), then their executions, then earlier messages (skip locked); for first turns then as dx_store_turns. A
-- start waits only for another start, a first turn or a deletion of the same id. If lock_timeout ends that wait, all
-- starts of the call fail with 55P03.
CREATE OR REPLACE FUNCTION dx_start_orchestrations(
  p_starts jsonb,                  -- [{fields of dx_start, without a parent; more, as in dx_start_with_more}]
  p_turns jsonb DEFAULT NULL,      -- first turns, with fields of dx_turn: one for each start, {} for one without; null
                                   --   if none has one
  p_history jsonb DEFAULT NULL,    -- this and the following: as in dx_store_turns, of the first turns
  p_key_values jsonb DEFAULT NULL, p_worker_items jsonb DEFAULT NULL,
  p_cancelled_activities jsonb DEFAULT NULL, p_orchestrator_items jsonb DEFAULT NULL,
  p_workers jsonb DEFAULT NULL, p_texts text[] DEFAULT NULL, p_now_ms bigint DEFAULT NULL
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_count integer := jsonb_array_length(p_starts);
  v_starts dx_start[];
  -- The first turns, by position of the start; without an execution where the start is stored without it.
  v_turns dx_turn[];
  v_instances dx_instance[];
  v_has_limits boolean;            -- whether any orchestration has limits
  v_places bigint[];               -- of those that wait for a limit
  v_given_before CONSTANT text := COALESCE(current_setting('duroxide.given_at_once', true), '');
  v_created bigint[];
  v_started bigint[];
  v_children text[];
  v_position bigint;
  v_gone text[];
  v_first_turns bigint;
  v_handed_over jsonb;
  v_answer jsonb;
BEGIN
  IF v_count = 1
    AND p_turns IS NOT NULL
    AND num_nonnulls(p_key_values, p_cancelled_activities, p_orchestrator_items) = 0
  THEN
    v_answer := dx_start_with_plain_turn(
      p_starts -> 0, p_turns -> 0, p_history, p_worker_items, p_workers, p_texts, v_now_ms
    );
    IF v_answer IS NOT NULL THEN
      RETURN jsonb_build_array(v_answer);
    END IF;
  END IF;

  IF p_starts @? '$[*].more' THEN
    RETURN dx_start_with_more(
      p_starts, p_turns, p_history, p_key_values, p_worker_items, p_cancelled_activities, p_orchestrator_items,
      p_workers, p_texts, v_now_ms
    );
  END IF;

  SELECT
    ARRAY(SELECT start FROM jsonb_populate_recordset(NULL::dx_start, p_starts) AS start),
    (SELECT l.name FROM limits AS l WHERE l.kind = 'orchestration' LIMIT 1) IS NOT NULL
  INTO v_starts, v_has_limits;
  IF p_turns IS NOT NULL THEN
    v_turns := dx_check_first_turns(
      ARRAY(SELECT turn FROM jsonb_populate_recordset(NULL::dx_turn, p_turns) AS turn),
      v_starts, p_history, v_now_ms
    );
  END IF;

  -- The children of first turns with the starts, because all are inserted in one order.
  LOOP
    v_instances := dx_instances_of_starts(v_starts, v_turns) || dx_instances_of_children(v_turns, p_orchestrator_items);
    EXIT WHEN NOT v_has_limits;
    PERFORM set_config('duroxide.given_at_once', v_given_before, true); -- the last pass gave none
    v_places := dx_park_instances(
      v_instances,
      ARRAY(
        SELECT greatest(COALESCE(start.delay_ms, 0), 0) FROM unnest(v_starts) WITH ORDINALITY AS start
        ORDER BY start.ordinality
      ),
      v_now_ms
    );
    -- Without a slot no first turn; nor are its children created then.
    FOR v_position IN
      SELECT turn.ordinality FROM unnest(v_turns) WITH ORDINALITY AS turn
      WHERE turn.execution_id IS NOT NULL AND v_places[turn.ordinality] > 0
    LOOP
      v_turns[v_position].execution_id := NULL;
    END LOOP;
    EXIT WHEN NOT FOUND;
  END LOOP;
  v_created := dx_create_instances(v_instances, p_texts, v_now, v_places);
  SELECT
    array_agg(instance.turn) FILTER (WHERE NOT instance.is_child),
    array_agg(instance.instance_id) FILTER (WHERE instance.is_child),
    count(v_turns[instance.turn].execution_id) FILTER (WHERE NOT instance.is_child)
  INTO v_started, v_children, v_first_turns
  FROM unnest(v_instances) WITH ORDINALITY AS instance WHERE instance.ordinality = ANY (v_created);
  IF v_turns IS NOT NULL AND COALESCE(cardinality(v_started), 0) < v_count THEN
    FOR v_position IN
      SELECT turn.ordinality FROM unnest(v_turns) WITH ORDINALITY AS turn
      WHERE turn.execution_id IS NOT NULL AND (turn.ordinality = ANY (v_started)) IS NOT TRUE
    LOOP
      v_turns[v_position].execution_id := NULL;
    END LOOP;
    IF FOUND AND v_children IS NOT NULL THEN
      -- Their parents were started by a transaction that we waited for.
      v_gone := ARRAY(
        SELECT child.instance_id FROM unnest(v_instances) WITH ORDINALITY AS child
        WHERE child.is_child
          AND child.ordinality = ANY (v_created)
          AND v_turns[child.turn].execution_id IS NULL
      );
      DELETE FROM attributes AS a WHERE a.instance_id = ANY (v_gone);
      DELETE FROM executions AS e WHERE e.instance_id = ANY (v_gone);
      DELETE FROM instances AS i WHERE i.instance_id = ANY (v_gone);
      v_children := ARRAY(
        SELECT child.instance_id FROM unnest(v_children) AS child (instance_id)
        WHERE child.instance_id <> ALL (v_gone)
      );
    END IF;
  END IF;
  IF v_started IS NULL THEN
    RETURN to_jsonb(array_fill('AlreadyExists'::text, ARRAY[v_count]));
  END IF;

  IF v_first_turns < v_count THEN
    PERFORM dx_store_starts(v_starts, v_started, v_turns, p_texts, v_now_ms);
  END IF;
  IF v_first_turns > 0 THEN
    v_handed_over := dx_store_turns(
      v_turns, COALESCE(v_children, '{}'), p_history, p_key_values, p_worker_items, p_cancelled_activities,
      p_orchestrator_items, p_workers, p_texts, v_now_ms
    );
  END IF;

  RETURN (
    SELECT jsonb_agg(
      CASE
        WHEN v_turns[start.position].execution_id IS NOT NULL THEN jsonb_build_object(
          '_tag', 'Begun', 'nowMs', v_now_ms,
          'handedOver', COALESCE(v_handed_over -> start.position::text, '[]')
        )
        WHEN start.position <> ALL (v_started) THEN to_jsonb('AlreadyExists'::text)
        WHEN dx_is_clock_off(v_turns[start.position].clock_ms, v_now_ms)
          THEN jsonb_build_object('_tag', 'Started', 'nowMs', v_now_ms)
        ELSE to_jsonb('Started'::text)
      END
      ORDER BY start.position
    )
    FROM generate_series(1, v_count) AS start (position)
  );
END
$$;
