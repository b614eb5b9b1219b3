-- Creates one instance with its first turn in the common case: the turn is plain (dx_is_plain) and not the last one.
-- Called by dx_start_orchestrations, which does the same for sets and for all else, at 1.6 times the cost (0.8 instead
-- of 0.5 ms of the server's time on a busy machine).
--
-- Returns its answer, {_tag: Begun, …}. Null: the caller has to do it, and nothing is stored.
-- Bound: as dx_start_orchestrations. Locks: the same.
CREATE OR REPLACE FUNCTION dx_start_with_plain_turn(
  p_start jsonb,                   -- as in dx_start_orchestrations, with appends
  p_turn jsonb,                    -- the same
  p_history jsonb,                 -- this and the following: the same, of this turn
  p_worker_items jsonb, p_workers jsonb, p_texts text[], p_now_ms bigint
) RETURNS jsonb LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_id CONSTANT text := p_start ->> 'instance_id';
  v_is_taken boolean;
  v_has_limits boolean;            -- whether there is any limit of activities
  v_limit text;                    -- name of the orchestration's limit; null without one
  v_admitted boolean[];
BEGIN
  IF (p_turn ->> 'execution_id')::bigint IS DISTINCT FROM 1
    OR NOT dx_is_plain(p_turn, p_worker_items)
    OR p_turn ->> 'status' <> 'Running'
    OR p_turn ->> 'output' IS NOT NULL
    OR p_turn ->> 'text_at' IS NOT NULL
    OR p_turn ->> 'orchestration_name' IS NULL
    OR p_turn ->> 'orchestration_version' IS NULL
    OR p_turn ->> 'major' IS NULL
    OR COALESCE((p_start ->> 'delay_ms')::bigint, 0) <> 0
    OR dx_is_clock_off((p_turn ->> 'clock_ms')::bigint, p_now_ms)
    OR NOT pg_try_advisory_xact_lock(hashtext(v_id))
  THEN
    RETURN NULL;
  END IF;

  -- This sees everything that was committed before we took the advisory lock.
  SELECT
    (SELECT i.instance_id FROM instances AS i WHERE i.instance_id = v_id) IS NOT NULL
      OR (SELECT e.status FROM executions AS e WHERE e.instance_id = v_id LIMIT 1) IS NOT NULL
      OR (SELECT l.instance_id FROM instance_locks AS l WHERE l.instance_id = v_id) IS NOT NULL
      OR (SELECT q.id FROM orchestrator_queue AS q WHERE q.instance_id = v_id LIMIT 1) IS NOT NULL
      OR (SELECT h.event_id FROM history AS h WHERE h.instance_id = v_id LIMIT 1) IS NOT NULL,
    p_worker_items IS NOT NULL AND (SELECT l.name FROM limits AS l WHERE l.kind = 'activity' LIMIT 1) IS NOT NULL,
    (SELECT l.name FROM limits AS l WHERE l.kind = 'orchestration' AND l.name = p_start ->> 'orchestration_name')
  INTO v_is_taken, v_has_limits, v_limit;
  IF v_is_taken THEN
    RETURN NULL;
  END IF;
  IF v_limit IS NOT NULL THEN
    v_admitted := dx_admit_at_once('orchestration', ARRAY[v_limit], ARRAY[p_start ->> 'limit_key'], p_now_ms);
    IF v_admitted[1] IS FALSE THEN
      RETURN NULL;
    END IF;
  END IF;

  INSERT INTO instances (
    instance_id, orchestration_name, orchestration_version, current_execution_id, created_at, updated_at, route,
    limit_name, limit_key
  )
  VALUES (
    v_id, p_turn ->> 'orchestration_name', p_turn ->> 'orchestration_version', 1, v_now, v_now,
    dx_route(
      (p_turn ->> 'major')::integer, (p_turn ->> 'minor')::integer, (p_turn ->> 'patch')::integer,
      p_turn ->> 'orchestration_name', p_turn ->> 'orchestration_version', false
    ),
    v_limit, COALESCE(p_start ->> 'limit_key', CASE WHEN v_limit IS NOT NULL THEN '' END)
  )
  ON CONFLICT (instance_id) DO NOTHING;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  INSERT INTO executions (
    instance_id, execution_id, status, started_at, duroxide_version_major, duroxide_version_minor,
    duroxide_version_patch
  )
  VALUES (
    v_id, 1, 'Running', v_now, (p_turn ->> 'major')::integer, (p_turn ->> 'minor')::integer,
    (p_turn ->> 'patch')::integer
  )
  ON CONFLICT (instance_id, execution_id) DO NOTHING;
  RETURN jsonb_build_object(
    '_tag', 'Begun', 'nowMs', p_now_ms, 'handedOver', dx_store_plain_turn(
      p_turn, v_id, 1, p_history, p_worker_items, p_workers, p_texts, v_has_limits, p_now_ms
    )
  );
END
$$;
