-- Creates instances whose id is free, each with execution 1 (Running, pinned) and its start message, or with its first
-- turn.
--
-- Returns one outcome per start, in order: Started; {_tag: Begun, nowMs, handedOver: [{index, lockToken}]} if the first
-- turn was stored instead of the message; {_tag: Started, nowMs} if its clock_ms differs from nowMs by more than 2 seconds,
-- and so the start was stored without it; or AlreadyExists if the id has a row in instances or executions or a queued
-- start (of two starts of one id, the second). Of concurrent starts of one id exactly one creates it. A first turn is
-- stored if nothing else is stored under the id, no message, lock or event, and no other transaction claims or deletes it.
-- Otherwise its start is stored as one without a first turn.
--
-- Messages that arrived before the start become claimable with it, not earlier.
--
-- Bound: the starts given, and the queued messages of their ids; for first turns as dx_store_turns.
--
-- Locks: advisory locks of ids with a first turn (try); instances by id (the new ones, children of first turns
-- included), then their executions, then earlier messages (skip locked); for first turns then as dx_store_turns. A start
-- waits only for another start, a first turn or a deletion of the same id. If lock_timeout ends that wait, all starts of
-- the call fail with 55P03.
CREATE OR REPLACE FUNCTION dx_start_orchestrations(
  p_starts jsonb,                  -- [{instance_id, orchestration_name, orchestration_version, work_item or text_at, major,
                                   --   minor, patch, delay_ms}]
  p_turns jsonb DEFAULT NULL,      -- first turns, as in dx_store_turns and with {execution_id, appends: whether its event
                                   --   ids are 1, 2, …; clock_ms: what the caller takes for the database's clock, null if
                                   --   unknown}: one for each start, {} for one without; null if none has one
  p_history jsonb DEFAULT NULL,    -- this and the following: as in dx_store_turns, of the first turns
  p_key_values jsonb DEFAULT NULL,
  p_worker_items jsonb DEFAULT NULL,
  p_cancelled_activities jsonb DEFAULT NULL,
  p_orchestrator_items jsonb DEFAULT NULL,
  p_workers jsonb DEFAULT NULL,
  p_texts text[] DEFAULT NULL,
  p_now_ms bigint DEFAULT NULL     -- milliseconds since the Unix epoch; null means the database's clock
)
RETURNS jsonb
LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_latest_ms CONSTANT bigint := 253402300799999; -- the end of the year 9999: clients read no later dates
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_count integer := jsonb_array_length(p_starts);
  v_ours text[];
  -- By position: the instances that begin with their first turn; null for others.
  v_begun text[] := array_fill(NULL::text, ARRAY[v_count]);
  -- By position: whether the caller mistakes the time of a first turn; null if no start has one.
  v_mistimed boolean[];
  v_children text[];
  v_parents bigint[];
  v_positions bigint[];
  v_position bigint;
  v_handed_over jsonb;
  v_answer jsonb;
BEGIN
  IF v_count = 1
    AND p_turns IS NOT NULL
    AND num_nonnulls(p_key_values, p_cancelled_activities, p_orchestrator_items) = 0
  THEN
    v_answer := dx_start_orchestration(
      p_starts -> 0,
      p_turns -> 0,
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

  IF p_turns IS NOT NULL THEN
    -- The same key as claims use. What follows sees everything that was committed before.
    SELECT array_agg(one.instance_id)
    INTO v_ours
    FROM (
      SELECT DISTINCT s.instance_id
      FROM ROWS FROM (
        jsonb_to_recordset(p_starts) AS (instance_id text),
        jsonb_to_recordset(p_turns) AS (execution_id bigint)
      ) AS s (instance_id, execution_id)
      WHERE s.execution_id = 1
    ) AS one
    WHERE pg_try_advisory_xact_lock(hashtext(one.instance_id));

    -- Of two starts of one id the first counts.
    SELECT
      array_agg(
        CASE WHEN start.is_first AND start.begins AND NOT start.is_mistimed THEN start.instance_id END
        ORDER BY start.position
      ),
      array_agg(start.is_mistimed ORDER BY start.position)
    INTO v_begun, v_mistimed
    FROM (
      SELECT
        s.instance_id,
        s.position,
        row_number() OVER (PARTITION BY s.instance_id ORDER BY s.position) = 1 AS is_first,
        COALESCE(abs(s.clock_ms - v_now_ms) > 2000, false) AS is_mistimed,
        s.execution_id = 1
          AND COALESCE(s.delay_ms, 0) = 0
          AND s.instance_id = ANY (v_ours)
          AND (SELECT i.instance_id FROM instances AS i WHERE i.instance_id = s.instance_id) IS NULL
          AND (SELECT e.status FROM executions AS e WHERE e.instance_id = s.instance_id LIMIT 1) IS NULL
          AND (SELECT l.instance_id FROM instance_locks AS l WHERE l.instance_id = s.instance_id) IS NULL
          AND (SELECT q.id FROM orchestrator_queue AS q WHERE q.instance_id = s.instance_id LIMIT 1) IS NULL
          AND (SELECT h.event_id FROM history AS h WHERE h.instance_id = s.instance_id LIMIT 1) IS NULL AS begins
      FROM ROWS FROM (
        jsonb_to_recordset(p_starts) AS (instance_id text, delay_ms bigint),
        jsonb_to_recordset(p_turns) AS (execution_id bigint, clock_ms bigint)
      ) WITH ORDINALITY AS s (instance_id, delay_ms, execution_id, clock_ms, position)
    ) AS start;
    IF jsonb_path_exists(p_turns, '$[*] ? (!(@.appends == true))') THEN
      FOR v_position IN
        SELECT h.ack
        FROM jsonb_to_recordset(p_history) AS h (ack bigint, event_id bigint)
        GROUP BY h.ack, h.event_id
        HAVING count(*) > 1
      LOOP
        v_begun[v_position] := NULL;
      END LOOP;
    END IF;
  END IF;

  -- The children of first turns with the starts, because all are inserted in one order.
  WITH free AS (
    SELECT DISTINCT ON (one.instance_id COLLATE "C") one.*
    FROM (
      SELECT
        s.instance_id,
        s.position AS parent,
        false AS is_child,
        s.position,
        CASE WHEN turn.names THEN s.turn_name ELSE s.orchestration_name END AS orchestration_name,
        CASE WHEN turn.names THEN s.turn_version END AS orchestration_version,
        CASE WHEN turn.names THEN s.parent_instance_id END AS parent_instance_id,
        CASE WHEN turn.is_begun THEN s.custom_status END AS custom_status,
        COALESCE(turn.is_begun AND s.sets_custom_status, false)::integer AS custom_status_version,
        CASE WHEN turn.pins THEN s.turn_major ELSE s.major END AS major,
        CASE WHEN turn.pins THEN s.turn_minor ELSE s.minor END AS minor,
        CASE WHEN turn.pins THEN s.turn_patch ELSE s.patch END AS patch,
        COALESCE(
          CASE WHEN turn.is_begun AND s.status = 'ContinuedAsNew' THEN s.next_version END,
          CASE
            WHEN turn.names THEN s.turn_version
            -- As after an ack that says any of this: the row has no version, so every one serves the instance.
            WHEN turn.pins OR (turn.is_begun AND (s.turn_name IS NOT NULL OR s.status = 'ContinuedAsNew')) THEN NULL
            ELSE s.orchestration_version
          END
        ) AS next_version,
        COALESCE(turn.is_begun AND s.status = 'ContinuedAsNew' AND s.next_version IS NULL, false) AS or_newer
      FROM ROWS FROM (
        jsonb_to_recordset(p_starts) AS (
          instance_id text,
          orchestration_name text,
          orchestration_version text,
          major integer,
          minor integer,
          patch integer
        ),
        jsonb_to_recordset(p_turns) AS (
          orchestration_name text,
          orchestration_version text,
          status text,
          next_version text,
          parent_instance_id text,
          major integer,
          minor integer,
          patch integer,
          sets_custom_status boolean,
          custom_status text
        )
      ) WITH ORDINALITY AS s (
        instance_id,
        orchestration_name,
        orchestration_version,
        major,
        minor,
        patch,
        turn_name,
        turn_version,
        status,
        next_version,
        parent_instance_id,
        turn_major,
        turn_minor,
        turn_patch,
        sets_custom_status,
        custom_status,
        position
      )
      CROSS JOIN LATERAL (
        SELECT
          v_begun[s.position] IS NOT NULL AS is_begun,
          v_begun[s.position] IS NOT NULL AND s.turn_name IS NOT NULL AND s.turn_version IS NOT NULL AS names,
          v_begun[s.position] IS NOT NULL AND s.turn_major IS NOT NULL AS pins
      ) AS turn
      UNION ALL
      SELECT
        m.instance_id,
        m.ack,
        true,
        m.position,
        child.orchestration_name,
        NULL,
        child.parent_instance_id,
        NULL,
        0,
        child.major,
        child.minor,
        child.patch,
        child.orchestration_version,
        false
      FROM ROWS FROM (jsonb_to_recordset(p_orchestrator_items) AS (ack bigint, instance_id text, start jsonb))
        WITH ORDINALITY AS m (ack, instance_id, start, position)
      CROSS JOIN LATERAL jsonb_to_record(m.start) AS child (
        orchestration_name text,
        orchestration_version text,
        parent_instance_id text,
        major integer,
        minor integer,
        patch integer
      )
      WHERE v_begun[m.ack] IS NOT NULL
        AND m.start IS NOT NULL
    ) AS one
    WHERE NOT EXISTS (
        SELECT FROM instances AS i
        WHERE i.instance_id = one.instance_id
      )
      AND NOT EXISTS (
        SELECT FROM executions AS e
        WHERE e.instance_id = one.instance_id
      )
      AND NOT EXISTS (
        SELECT FROM orchestrator_queue AS q
        WHERE q.instance_id = one.instance_id
          AND q.work_item LIKE '{"StartOrchestration"%'
      )
    ORDER BY one.instance_id COLLATE "C", one.is_child, one.position
  ),
  created AS (
    INSERT INTO instances (
      instance_id,
      orchestration_name,
      orchestration_version,
      current_execution_id,
      created_at,
      updated_at,
      parent_instance_id,
      custom_status,
      custom_status_version,
      route
    )
    SELECT
      free.instance_id,
      free.orchestration_name,
      free.orchestration_version,
      1,
      v_now,
      v_now,
      free.parent_instance_id,
      free.custom_status,
      free.custom_status_version,
      -- Columns, so that PostgreSQL can inline the function, which takes it 1 microsecond per row instead of 45.
      dx_route(free.major, free.minor, free.patch, free.orchestration_name, free.next_version, free.or_newer)
    FROM free
    ORDER BY free.instance_id COLLATE "C"
    ON CONFLICT (instance_id) DO NOTHING
    RETURNING instance_id
  )
  SELECT
    array_agg(free.position) FILTER (WHERE NOT free.is_child),
    array_agg(free.instance_id) FILTER (WHERE free.is_child),
    array_agg(free.parent) FILTER (WHERE free.is_child)
  INTO v_positions, v_children, v_parents
  FROM created
  JOIN free ON free.instance_id = created.instance_id;
  IF v_positions IS NULL THEN
    RETURN to_jsonb(array_fill('AlreadyExists'::text, ARRAY[v_count]));
  END IF;
  IF num_nonnulls(VARIADIC v_begun) > 0 THEN
    SELECT array_agg(CASE WHEN one.position = ANY (v_positions) THEN one.instance_id END ORDER BY one.position)
    INTO v_begun
    FROM unnest(v_begun) WITH ORDINALITY AS one (instance_id, position);
    IF v_children IS NOT NULL THEN
      -- Their parents were started by a transaction that we waited for.
      WITH gone AS (
        DELETE FROM instances AS i
        USING unnest(v_children, v_parents) AS child (instance_id, parent)
        WHERE i.instance_id = child.instance_id
          AND v_begun[child.parent] IS NULL
        RETURNING i.instance_id
      )
      SELECT array_agg(one.instance_id)
      INTO v_children
      FROM unnest(v_children) AS one (instance_id)
      WHERE one.instance_id NOT IN (SELECT gone.instance_id FROM gone);
    END IF;
  END IF;

  INSERT INTO executions (
    instance_id,
    execution_id,
    status,
    output,
    started_at,
    completed_at,
    duroxide_version_major,
    duroxide_version_minor,
    duroxide_version_patch
  )
  SELECT
    one.instance_id,
    1,
    one.status,
    COALESCE(one.output, p_texts[one.text_at]),
    v_now,
    CASE WHEN one.status <> 'Running' THEN v_now END,
    one.major,
    one.minor,
    one.patch
  FROM (
    SELECT
      s.instance_id,
      COALESCE(CASE WHEN turn.is_begun THEN s.status END, 'Running') AS status,
      CASE WHEN turn.is_begun AND s.status IS NOT NULL THEN s.output END AS output,
      CASE WHEN turn.is_begun AND s.status IS NOT NULL THEN s.text_at END AS text_at,
      CASE WHEN turn.pins THEN s.turn_major ELSE s.major END AS major,
      CASE WHEN turn.pins THEN s.turn_minor ELSE s.minor END AS minor,
      CASE WHEN turn.pins THEN s.turn_patch ELSE s.patch END AS patch
    FROM ROWS FROM (
      jsonb_to_recordset(p_starts) AS (instance_id text, major integer, minor integer, patch integer),
      jsonb_to_recordset(p_turns)
        AS (status text, output text, text_at integer, major integer, minor integer, patch integer)
    ) WITH ORDINALITY
      AS s (instance_id, major, minor, patch, status, output, text_at, turn_major, turn_minor, turn_patch, position)
    CROSS JOIN LATERAL (
      SELECT
        v_begun[s.position] IS NOT NULL AS is_begun,
        v_begun[s.position] IS NOT NULL AND s.turn_major IS NOT NULL AS pins
    ) AS turn
    WHERE s.position = ANY (v_positions)
    UNION ALL
    SELECT DISTINCT ON (m.instance_id COLLATE "C")
      m.instance_id,
      'Running',
      NULL,
      NULL,
      child.major,
      child.minor,
      child.patch
    FROM ROWS FROM (jsonb_to_recordset(p_orchestrator_items) AS (ack bigint, instance_id text, start jsonb))
      WITH ORDINALITY AS m (ack, instance_id, start, position)
    CROSS JOIN LATERAL jsonb_to_record(m.start) AS child (major integer, minor integer, patch integer)
    WHERE v_begun[m.ack] IS NOT NULL
      AND m.start IS NOT NULL
      AND m.instance_id = ANY (v_children)
  ) AS one
  ORDER BY one.instance_id COLLATE "C"
  ON CONFLICT (instance_id, execution_id) DO NOTHING;

  -- Those without their first turn.
  IF num_nulls(VARIADIC v_begun) > 0 THEN
    WITH start AS (
      INSERT INTO orchestrator_queue (id, instance_id, work_item, visible_at, created_at, route)
      SELECT
        -- The start must be in the first batch, however many messages wait.
        nextval('orchestrator_queue_id_seq') * CASE
          WHEN s.delay_ms > 0 THEN 1
          WHEN (
            SELECT q.id
            FROM orchestrator_queue AS q
            WHERE q.instance_id = s.instance_id
              AND q.due_at <= v_now
            LIMIT 1
          ) IS NULL THEN 1
          ELSE -1
        END,
        s.instance_id,
        COALESCE(s.work_item, p_texts[s.text_at]),
        to_timestamp(least(v_now_ms + greatest(s.delay_ms, 0), v_latest_ms)::float8 / 1000),
        v_now,
        (SELECT i.route FROM instances AS i WHERE i.instance_id = s.instance_id)
      FROM (
        SELECT start.*
        FROM ROWS FROM (
          jsonb_to_recordset(p_starts) AS (instance_id text, work_item text, text_at integer, delay_ms bigint)
        ) WITH ORDINALITY AS start (instance_id, work_item, text_at, delay_ms, position)
        WHERE start.position = ANY (v_positions)
          AND v_begun[start.position] IS NULL
        ORDER BY start.position
      ) AS s
      RETURNING instance_id, visible_at, route
    )
    UPDATE orchestrator_queue AS q
    SET route = earlier.route,
        visible_at = COALESCE(earlier.arrives_at, q.visible_at),
        created_at = COALESCE(earlier.arrives_at, q.created_at)
    FROM (
      SELECT
        one.id,
        start.route,
        -- With a start that is to wait; null: its times stay. An ack finds the rows of a claimed batch by theirs.
        CASE
          WHEN one.lock_token IS NULL AND start.visible_at > greatest(v_now, one.due_at)
            THEN start.visible_at + interval '1 millisecond'
        END AS arrives_at
      FROM start
      JOIN orchestrator_queue AS one ON one.instance_id = start.instance_id
      WHERE one.route <> start.route
      FOR UPDATE OF one SKIP LOCKED
    ) AS earlier
    WHERE q.id = earlier.id;
    IF current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
      PERFORM dx_notify(
        'orch_work',
        ARRAY(
          SELECT to_timestamp(least(v_now_ms + COALESCE(s.delay_ms, 0), v_latest_ms)::float8 / 1000)
          FROM ROWS FROM (jsonb_to_recordset(p_starts) AS (delay_ms bigint)) WITH ORDINALITY AS s (delay_ms, position)
          WHERE s.position = ANY (v_positions)
            AND v_begun[s.position] IS NULL
        )
      );
    END IF;
  END IF;

  IF num_nonnulls(VARIADIC v_begun) > 0 THEN
    v_handed_over := dx_store_turns(
      p_turns,
      v_begun,
      ARRAY(SELECT CASE WHEN one.id IS NOT NULL THEN 1 END FROM unnest(v_begun) WITH ORDINALITY AS one (id, position) ORDER BY one.position),
      NULL,
      COALESCE(v_children, '{}'),
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

  RETURN (
    SELECT jsonb_agg(
      CASE
        WHEN start.instance_id IS NOT NULL THEN jsonb_build_object(
          '_tag', 'Begun',
          'nowMs', v_now_ms,
          'handedOver', COALESCE(v_handed_over -> start.position::text, '[]')
        )
        WHEN start.position <> ALL (v_positions) THEN to_jsonb('AlreadyExists'::text)
        WHEN v_mistimed[start.position] THEN jsonb_build_object('_tag', 'Started', 'nowMs', v_now_ms)
        ELSE to_jsonb('Started'::text)
      END
      ORDER BY start.position
    )
    FROM unnest(v_begun) WITH ORDINALITY AS start (instance_id, position)
  );
END
$$;
