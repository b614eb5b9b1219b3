-- Stores optimistic turns: the results of activities, and the turns that these lead to, which were run without a claim.
-- A turn that cannot be stored leaves its results as messages, as dx_ack_work_items does.
--
-- Returns one answer per turn, in order: {_tag: Advanced, nowMs, handedOver: [{index, lockToken}]}, or {_tag: Queued,
-- results: [Done or LockLost]}, with nowMs if clock_ms differs from it by more than 2 seconds. A turn is stored if its
-- clock_ms does not and, at the moment of the call, no other transaction works on its instance, which has no row in
-- instance_locks and no visible message; its execution is the current one, is running, and ends with
-- the event that has last_event_id and last_event_hash (after a failover that lost turns, another one may have its id);
-- its own event ids are free; its activities have their live locks; and none of these or of those it cancels is locked by
-- another transaction. Of two turns of one instance the first is stored.
--
-- Raises 55P03 if a result must become a message while another transaction has locked its activity and this one has
-- turns to store: it would wait with locks of theirs.
--
-- Bound: the rows given; otherwise as dx_store_turns and dx_ack_work_items.
--
-- Locks: advisory locks of the instances (try); worker rows of the turns to be stored (skip locked); then as
-- dx_store_turns; then the other worker rows (skip locked), sessions by id. A transaction with the advisory lock of an
-- instance that has no row in instance_locks is the only one to store its turns, so no transaction that waits for these
-- worker rows holds what dx_store_turns waits for. Without a turn to store: as dx_ack_work_items.
CREATE OR REPLACE FUNCTION dx_advance_orchestrations(
  p_turns jsonb,                   -- as in dx_store_turns, and [{instance_id, execution_id, last_event_id,
                                   --   last_event_hash: SHA-256 of its event_data in UTF-8, lower-case hexadecimal;
                                   --   appends: whether its event ids continue from there without a gap;
                                   --   results: number of its results;
                                   --   clock_ms: what the caller takes for the database's clock, null if unknown}]
  p_results jsonb,                 -- [{ack, token, instance_id, work_item or text_at}], by turn; at least one for each
  p_history jsonb,                 -- this and the following: as in dx_store_turns
  p_key_values jsonb,
  p_worker_items jsonb,
  p_cancelled_activities jsonb,
  p_orchestrator_items jsonb,
  p_workers jsonb,
  p_texts text[] DEFAULT NULL,
  p_now_ms bigint DEFAULT NULL     -- milliseconds since the Unix epoch; null means the database's clock
)
RETURNS jsonb
LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_ours text[];
  -- By position of the turn; null where it is not stored.
  v_instances text[];
  v_executions bigint[];
  -- By position: the last event id, and how many results are not locked yet.
  v_last_event_ids bigint[];
  v_missing bigint[];
  -- The locked activities: those that ended, then those that are cancelled as well.
  v_ended bigint[] := '{}';
  v_held bigint[];
  v_sessions text[];
  -- By position: whether the caller mistakes the time.
  v_mistimed boolean[];
  v_row record;
  v_position bigint;
  v_stores_all boolean;
  v_handed_over jsonb;
  v_settled text[];
  v_answer jsonb;
BEGIN
  IF jsonb_array_length(p_turns) = 1
    AND jsonb_array_length(p_results) = 1
    AND num_nonnulls(p_key_values, p_cancelled_activities, p_orchestrator_items) = 0
  THEN
    v_answer := dx_advance_orchestration(
      p_turns -> 0,
      p_results -> 0 ->> 'token',
      p_history,
      p_worker_items,
      p_workers,
      p_texts,
      v_now_ms
    );
    IF v_answer IS NOT NULL THEN
      RETURN jsonb_build_array(v_answer);
    END IF;
  END IF;

  -- The same key as claims use.
  SELECT array_agg(one.instance_id)
  INTO v_ours
  FROM (
    SELECT DISTINCT t.instance_id
    FROM jsonb_to_recordset(p_turns) AS t (instance_id text)
  ) AS one
  WHERE pg_try_advisory_xact_lock(hashtext(one.instance_id));

  -- This and what follows sees everything that was committed before we took the advisory locks.
  SELECT
    array_agg(CASE WHEN turn.fits THEN turn.instance_id END ORDER BY turn.position),
    array_agg(CASE WHEN turn.fits THEN turn.execution_id END ORDER BY turn.position),
    array_agg(turn.last_event_id ORDER BY turn.position),
    array_agg(turn.results ORDER BY turn.position),
    array_agg(turn.is_mistimed ORDER BY turn.position)
  INTO v_instances, v_executions, v_last_event_ids, v_missing, v_mistimed
  FROM (
    SELECT
      t.*,
      COALESCE(abs(t.clock_ms - v_now_ms) > 2000, false) AS is_mistimed,
      -- Scalar subqueries: PostgreSQL may plan joins as one read of the whole table.
      t.instance_id = ANY (v_ours)
        AND (abs(t.clock_ms - v_now_ms) > 2000) IS NOT TRUE
        AND (SELECT l.instance_id FROM instance_locks AS l WHERE l.instance_id = t.instance_id) IS NULL
        AND (
          SELECT q.id
          FROM orchestrator_queue AS q
          WHERE q.instance_id = t.instance_id
            AND q.due_at <= v_now
          LIMIT 1
        ) IS NULL
        AND (SELECT i.current_execution_id FROM instances AS i WHERE i.instance_id = t.instance_id) = t.execution_id
        AND (
          SELECT e.status
          FROM executions AS e
          WHERE e.instance_id = t.instance_id
            AND e.execution_id = t.execution_id
        ) = 'Running'
        AND (
          SELECT h.event_id = t.last_event_id
            AND encode(sha256(convert_to(h.event_data, 'UTF8')), 'hex') = t.last_event_hash
          FROM history AS h
          WHERE h.instance_id = t.instance_id
            AND h.execution_id = t.execution_id
          ORDER BY h.event_id DESC
          LIMIT 1
        ) AS fits
    FROM ROWS FROM (
      jsonb_to_recordset(p_turns)
        AS (
          instance_id text,
          execution_id bigint,
          last_event_id bigint,
          last_event_hash text,
          results bigint,
          clock_ms bigint
        )
    ) WITH ORDINALITY AS t (instance_id, execution_id, last_event_id, last_event_hash, results, clock_ms, position)
  ) AS turn;

  IF p_history IS NOT NULL AND jsonb_path_exists(p_turns, '$[*] ? (!(@.appends == true))') THEN
    FOR v_position IN
      SELECT h.ack
      FROM jsonb_to_recordset(p_history) AS h (ack bigint, event_id bigint)
      WHERE v_executions[h.ack] IS NOT NULL
      GROUP BY h.ack, h.event_id
      HAVING count(*) > 1
        OR CASE
          WHEN h.event_id > v_last_event_ids[h.ack] THEN false
          ELSE (
            SELECT x.event_id
            FROM history AS x
            WHERE x.instance_id = v_instances[h.ack]
              AND x.execution_id = v_executions[h.ack]
              AND x.event_id = h.event_id
          ) IS NOT NULL
        END
    LOOP
      v_instances[v_position] := NULL;
    END LOOP;
  END IF;

  FOR v_row IN
    SELECT r.ack, activity.id
    FROM jsonb_to_recordset(p_results) AS r (ack bigint, token text)
    -- Below LATERAL, because a join may be planned as one read of the whole table.
    CROSS JOIN LATERAL (
      SELECT w.id
      FROM worker_queue AS w
      WHERE w.id = CASE WHEN r.token ~ '^[0-9]{1,18}[.]' THEN split_part(r.token, '.', 1)::bigint END
        AND w.lock_token = split_part(r.token, '.', 2)
        AND w.locked_until > v_now_ms
        AND w.instance_id IS NOT DISTINCT FROM v_instances[r.ack] -- not "=": found by id, whatever the statistics say
      FOR UPDATE SKIP LOCKED
    ) AS activity
    WHERE v_instances[r.ack] IS NOT NULL
  LOOP
    -- One activity that is given twice: one result stays missing.
    CONTINUE WHEN v_row.id = ANY (v_ended);
    v_ended := v_ended || v_row.id;
    v_missing[v_row.ack] := v_missing[v_row.ack] - 1;
  END LOOP;
  v_held := v_ended;
  IF p_cancelled_activities IS NOT NULL THEN
    v_held := v_held || ARRAY(
      SELECT activity.id
      FROM jsonb_to_recordset(p_cancelled_activities)
        AS c (ack bigint, instance_id text, execution_id bigint, activity_id bigint)
      CROSS JOIN LATERAL (
        SELECT w.id
        FROM worker_queue AS w
        WHERE w.instance_id = c.instance_id
          AND w.execution_id = c.execution_id
          AND w.activity_id = c.activity_id
        FOR UPDATE SKIP LOCKED
      ) AS activity
      WHERE v_instances[c.ack] IS NOT NULL
    );
    FOR v_position IN
      SELECT c.ack
      FROM jsonb_to_recordset(p_cancelled_activities)
        AS c (ack bigint, instance_id text, execution_id bigint, activity_id bigint)
      CROSS JOIN LATERAL (
        SELECT w.id
        FROM worker_queue AS w
        WHERE w.instance_id = c.instance_id
          AND w.execution_id = c.execution_id
          AND w.activity_id = c.activity_id
        OFFSET 0
      ) AS activity
      WHERE activity.id <> ALL (v_held)
    LOOP
      v_instances[v_position] := NULL;
    END LOOP;
  END IF;

  -- Of the turns of one instance the first.
  SELECT
    array_agg(CASE WHEN one.is_stored THEN one.instance_id END ORDER BY one.position),
    array_agg(CASE WHEN one.is_stored THEN v_executions[one.position] END ORDER BY one.position)
  INTO v_instances, v_executions
  FROM (
    SELECT
      fitting.*,
      fitting.fits AND row_number() OVER (PARTITION BY fitting.instance_id, fitting.fits ORDER BY fitting.position) = 1
        AS is_stored
    FROM (
      SELECT t.instance_id, t.position, t.instance_id IS NOT NULL AND v_missing[t.position] = 0 AS fits
      FROM unnest(v_instances) WITH ORDINALITY AS t (instance_id, position)
    ) AS fitting
  ) AS one;

  v_stores_all := num_nulls(VARIADIC v_instances) = 0;
  IF v_stores_all THEN
    -- Before new activities are stored: where these were the last ones, none waits, and those are handed over.
    WITH gone AS (
      DELETE FROM worker_queue AS w
      WHERE w.id = ANY (v_ended)
      RETURNING w.session_id
    )
    SELECT array_agg(gone.session_id) FILTER (WHERE gone.session_id IS NOT NULL)
    INTO v_sessions
    FROM gone;
  END IF;

  IF num_nonnulls(VARIADIC v_instances) > 0 THEN
    v_handed_over := dx_store_turns(
      p_turns,
      v_instances,
      v_executions,
      NULL,
      NULL,
      p_history,
      p_key_values,
      p_worker_items,
      p_cancelled_activities,
      p_orchestrator_items,
      p_workers,
      p_texts,
      v_now_ms
    );
  END IF;

  IF v_held <> '{}' AND NOT v_stores_all THEN
    v_held := v_held || ARRAY(
      SELECT activity.id
      FROM jsonb_to_recordset(p_results) AS r (ack bigint, token text)
      CROSS JOIN LATERAL (
        SELECT w.id
        FROM worker_queue AS w
        WHERE w.id = CASE WHEN r.token ~ '^[0-9]{1,18}[.]' THEN split_part(r.token, '.', 1)::bigint END
          AND w.lock_token = split_part(r.token, '.', 2)
          AND w.locked_until > v_now_ms
        FOR UPDATE SKIP LOCKED
      ) AS activity
      WHERE v_instances[r.ack] IS NULL
    );
    IF EXISTS (
      SELECT
      FROM jsonb_to_recordset(p_results) AS r (ack bigint, token text)
      CROSS JOIN LATERAL (
        SELECT w.id
        FROM worker_queue AS w
        WHERE w.id = CASE WHEN r.token ~ '^[0-9]{1,18}[.]' THEN split_part(r.token, '.', 1)::bigint END
          AND w.lock_token = split_part(r.token, '.', 2)
          AND w.locked_until > v_now_ms
        OFFSET 0
      ) AS activity
      WHERE v_instances[r.ack] IS NULL
        AND activity.id <> ALL (v_held)
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
      p_results,
      p_texts,
      v_now_ms,
      ARRAY(SELECT v_instances[r.ack] IS NULL FROM jsonb_to_recordset(p_results) AS r (ack bigint))
    );
  END IF;

  RETURN (
    SELECT jsonb_agg(
      CASE
        WHEN turn.instance_id IS NULL THEN jsonb_build_object(
          '_tag', 'Queued',
          'results', (
            SELECT jsonb_agg(v_settled[r.position] ORDER BY r.position)
            FROM ROWS FROM (jsonb_to_recordset(p_results) AS (ack bigint)) WITH ORDINALITY AS r (ack, position)
            WHERE r.ack = turn.position
          )
        ) || CASE WHEN v_mistimed[turn.position] THEN jsonb_build_object('nowMs', v_now_ms) ELSE '{}' END
        ELSE jsonb_build_object(
          '_tag', 'Advanced',
          'nowMs', v_now_ms,
          'handedOver', COALESCE(v_handed_over -> turn.position::text, '[]')
        )
      END
      ORDER BY turn.position
    )
    FROM unnest(v_instances) WITH ORDINALITY AS turn (instance_id, position)
  );
END
$$;
