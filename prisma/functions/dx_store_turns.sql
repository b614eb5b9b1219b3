-- Stores turns: history, status, key-value changes, new work, cancellations. The shared part of the functions that ack
-- claimed turns (dx_ack_orchestration_items), store optimistic turns (dx_advance_orchestrations) and start instances with
-- their first turns (dx_start_orchestrations). The caller has checked that they may be stored, and excludes every other
-- turn of these instances until its transaction ends.
--
-- Returns the activities that were handed over: an object with the position of a turn as the key, and as its value
-- [{index, lockToken}], sorted, with the index of each among the activities of its turn, from 0. Null if there are none.
--
-- Handed over are the first activities of a turn that its worker serves, without a session, at most handover_limit. They
-- are stored claimed. If more activities that the worker serves were visible and free before than spare, the slots that it
-- keeps for them, or if that is unknown (dx_count_waiting), none is: no activity overtakes another.
--
-- Each part names its turn by position, from 1, in ack. An argument without parts is null. event_data, work_item and
-- output may be given in p_texts, text_at being the position there: a large text is then neither parsed nor copied with
-- its row. So rows are sorted before their texts are read.
--
-- Bound: the rows given, and the key-value rows of instances that change them. To hand over: dx_count_waiting.
--
-- Locks: parent rows (key share), then instance rows by id, then the rows of starts by id; executions, history,
-- key-values; worker rows by id; queue rows of instances whose route changes.
CREATE OR REPLACE FUNCTION dx_store_turns(
  p_turns jsonb,                   -- [{orchestration_name, orchestration_version, status, output, next_version,
                                   --   parent_instance_id, major, minor, patch, sets_custom_status, custom_status,
                                   --   cancelled_timers: {work_item: null}, left_ids: [row id], requeued: [event id],
                                   --   worker: position in p_workers, handover_limit, spare}]
  p_instances text[],              -- by position of the turn; null: it is not stored
  p_executions bigint[],           -- by position; null: nothing but its left_ids is stored
  p_secrets text[],                -- by position, the secrets of the claims; null: these are turns without a claim, of
                                   --   executions that have their rows
  p_children text[],               -- null, unless these are first turns, whose instances and executions the caller has
                                   --   created with their final values: the children that it has created with them
  p_history jsonb,                 -- [{ack, event_id, event_type, event_data}]
  p_key_values jsonb,              -- [{ack, action, key, value, last_updated_at_ms}], in the order they apply
  p_worker_items jsonb,            -- [{ack, work_item, name, instance_id, execution_id, activity_id, session_id, tag,
                                   --   served_by}]
  p_cancelled_activities jsonb,    -- [{ack, instance_id, execution_id, activity_id}]
  p_orchestrator_items jsonb,      -- [{ack, instance_id, work_item, visible_at_ms, delay_ms, start: {orchestration_name,
                                   --   orchestration_version, parent_instance_id, major, minor, patch}}]; a start
                                   --   creates its instance where the id is free
  p_workers jsonb,                 -- [{lock_timeout_ms, names, untagged, tags}], with tags as in dx_fetch_work_items
  p_texts text[],                  -- null if no part has a text_at
  p_now_ms bigint                  -- milliseconds since the Unix epoch
)
RETURNS jsonb
LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms CONSTANT bigint := p_now_ms;
  v_latest_ms CONSTANT bigint := 253402300799999; -- the end of the year 9999: clients read no later dates
  v_now CONSTANT timestamptz := to_timestamp(p_now_ms::float8 / 1000);
  v_creates boolean;
  v_parents text[];
  v_created text[] := '{}';
  v_describes boolean;
  v_ends boolean;
  v_cancels boolean;
  v_reroutes boolean;
  v_started text[] := p_children;
  v_no_tag text;
  v_secret text;
  -- By position of the worker; null: none waits.
  v_waiting bigint[];
  -- By position of the turn.
  v_worker_of bigint[];
  v_limits bigint[];
  v_spares bigint[];
  v_most_spare bigint;
  v_handed_over bigint[];
  v_handed_over_by bigint[];
  v_indexes bigint[];
  v_cancelled bigint[];
BEGIN
  -- Which of the rare steps are needed.
  SELECT
    p_secrets IS NOT NULL AND bool_or(ack.orchestration_name IS NOT NULL AND ack.orchestration_version IS NOT NULL),
    array_agg(ack.parent_instance_id) FILTER (WHERE ack.parent_instance_id IS NOT NULL),
    p_children IS NULL AND bool_or(ack.status IS NOT NULL OR ack.major IS NOT NULL),
    bool_or(ack.status IN ('Completed', 'Failed', 'ContinuedAsNew')),
    bool_or(ack.cancelled_timers IS NOT NULL),
    p_children IS NULL
      AND bool_or(ack.orchestration_name IS NOT NULL OR ack.major IS NOT NULL OR ack.status = 'ContinuedAsNew')
  INTO v_creates, v_parents, v_describes, v_ends, v_cancels, v_reroutes
  FROM ROWS FROM (
    jsonb_to_recordset(p_turns) AS (
      orchestration_name text,
      orchestration_version text,
      parent_instance_id text,
      status text,
      major integer,
      cancelled_timers jsonb
    )
  ) WITH ORDINALITY AS ack (
    orchestration_name,
    orchestration_version,
    parent_instance_id,
    status,
    major,
    cancelled_timers,
    position
  )
  WHERE p_executions[ack.position] IS NOT NULL;

  IF v_parents IS NOT NULL THEN
    -- A deletion of the parent with its children must not miss this child.
    PERFORM
    FROM instances AS i
    WHERE i.instance_id = ANY (v_parents)
    ORDER BY i.instance_id COLLATE "C"
    FOR KEY SHARE;
  END IF;

  IF v_creates THEN
    -- Before the update below: a transaction that waits for a concurrent start of the same id must not hold an instance
    -- row.
    WITH created AS (
      INSERT INTO instances AS i (
        instance_id,
        orchestration_name,
        orchestration_version,
        current_execution_id,
        created_at,
        updated_at,
        parent_instance_id,
        custom_status,
        custom_status_version
      )
      SELECT
        p_instances[ack.position],
        ack.orchestration_name,
        ack.orchestration_version,
        p_executions[ack.position],
        v_now,
        v_now,
        ack.parent_instance_id,
        ack.custom_status,
        COALESCE(ack.sets_custom_status, false)::integer
      FROM ROWS FROM (
        jsonb_to_recordset(p_turns) AS (
          orchestration_name text,
          orchestration_version text,
          parent_instance_id text,
          sets_custom_status boolean,
          custom_status text
        )
      ) WITH ORDINALITY AS ack (
        orchestration_name,
        orchestration_version,
        parent_instance_id,
        sets_custom_status,
        custom_status,
        position
      )
      WHERE p_executions[ack.position] IS NOT NULL
        AND ack.orchestration_name IS NOT NULL
        AND ack.orchestration_version IS NOT NULL
        AND NOT EXISTS (
          SELECT FROM instances AS x
          WHERE x.instance_id = p_instances[ack.position]
        )
      ORDER BY p_instances[ack.position] COLLATE "C"
      ON CONFLICT (instance_id) DO UPDATE
      SET orchestration_name = excluded.orchestration_name,
          orchestration_version = excluded.orchestration_version,
          current_execution_id = greatest(i.current_execution_id, excluded.current_execution_id),
          updated_at = v_now,
          parent_instance_id = COALESCE(i.parent_instance_id, excluded.parent_instance_id),
          custom_status = CASE
            WHEN excluded.custom_status_version > 0 THEN excluded.custom_status
            ELSE i.custom_status
          END,
          custom_status_version = i.custom_status_version + excluded.custom_status_version
      RETURNING i.instance_id
    )
    SELECT COALESCE(array_agg(created.instance_id), '{}')
    INTO v_created
    FROM created;
  END IF;

  IF p_orchestrator_items IS NOT NULL AND p_children IS NULL THEN
    -- Creates the instances of children and detached starts, in the same way as dx_start_orchestrations.
    WITH wanted AS (
      SELECT DISTINCT ON (m.instance_id COLLATE "C") m.instance_id, s.*
      FROM ROWS FROM (jsonb_to_recordset(p_orchestrator_items) AS (ack bigint, instance_id text, start jsonb))
        WITH ORDINALITY AS m (ack, instance_id, start, position)
      CROSS JOIN LATERAL jsonb_to_record(m.start) AS s (
        orchestration_name text,
        orchestration_version text,
        parent_instance_id text,
        major integer,
        minor integer,
        patch integer
      )
      WHERE p_executions[m.ack] IS NOT NULL
        AND m.start IS NOT NULL
        AND NOT EXISTS (
          SELECT FROM instances AS i
          WHERE i.instance_id = m.instance_id
        )
        AND NOT EXISTS (
          SELECT FROM executions AS e
          WHERE e.instance_id = m.instance_id
        )
        AND NOT EXISTS (
          SELECT FROM orchestrator_queue AS q
          WHERE q.instance_id = m.instance_id
            AND q.work_item LIKE '{"StartOrchestration"%'
        )
      ORDER BY m.instance_id COLLATE "C", m.position
    ),
    created AS (
      INSERT INTO instances (
        instance_id,
        orchestration_name,
        current_execution_id,
        created_at,
        updated_at,
        parent_instance_id,
        route
      )
      SELECT
        wanted.instance_id,
        wanted.orchestration_name,
        1,
        v_now,
        v_now,
        wanted.parent_instance_id,
        dx_route(
          wanted.major,
          wanted.minor,
          wanted.patch,
          wanted.orchestration_name,
          wanted.orchestration_version,
          false
        )
      FROM wanted
      ORDER BY wanted.instance_id COLLATE "C"
      ON CONFLICT (instance_id) DO NOTHING
      RETURNING instance_id
    ),
    pinned AS (
      INSERT INTO executions (
        instance_id,
        execution_id,
        status,
        started_at,
        duroxide_version_major,
        duroxide_version_minor,
        duroxide_version_patch
      )
      SELECT wanted.instance_id, 1, 'Running', v_now, wanted.major, wanted.minor, wanted.patch
      FROM created
      JOIN wanted ON wanted.instance_id = created.instance_id
      ORDER BY wanted.instance_id COLLATE "C"
      ON CONFLICT (instance_id, execution_id) DO NOTHING
    )
    SELECT array_agg(created.instance_id)
    INTO v_started
    FROM created;
  END IF;

  IF p_secrets IS NOT NULL THEN
    -- Whether or not the instance has a row.
    INSERT INTO executions (instance_id, execution_id, status, started_at)
    SELECT a.instance_id, a.execution_id, 'Running', v_now
    FROM unnest(p_instances, p_executions) AS a (instance_id, execution_id)
    WHERE a.execution_id IS NOT NULL
      AND NOT EXISTS (
        SELECT FROM executions AS e
        WHERE e.instance_id = a.instance_id
          AND e.execution_id = a.execution_id
      )
    ORDER BY a.instance_id COLLATE "C"
    ON CONFLICT (instance_id, execution_id) DO NOTHING;
    v_reroutes := v_reroutes OR FOUND;
  END IF;

  IF p_children IS NULL THEN
    -- In any order: of all transactions only the one that stores the turn of an instance updates its row.
    UPDATE instances AS i
    SET orchestration_name = CASE WHEN turn.names THEN turn.orchestration_name ELSE i.orchestration_name END,
        orchestration_version = CASE WHEN turn.names THEN turn.orchestration_version ELSE i.orchestration_version END,
        parent_instance_id = CASE
          WHEN turn.names THEN COALESCE(i.parent_instance_id, turn.parent_instance_id)
          ELSE i.parent_instance_id
        END,
        current_execution_id = greatest(i.current_execution_id, turn.execution_id),
        updated_at = v_now,
        custom_status = CASE WHEN turn.sets_custom_status THEN turn.custom_status ELSE i.custom_status END,
        custom_status_version = i.custom_status_version + turn.sets_custom_status::integer
    FROM (
      SELECT
        p_instances[a.position] AS instance_id,
        p_executions[a.position] AS execution_id,
        a.orchestration_name IS NOT NULL AND a.orchestration_version IS NOT NULL AS names,
        a.orchestration_name,
        a.orchestration_version,
        a.parent_instance_id,
        COALESCE(a.sets_custom_status, false) AS sets_custom_status,
        a.custom_status
      FROM ROWS FROM (
        jsonb_to_recordset(p_turns) AS (
          orchestration_name text,
          orchestration_version text,
          parent_instance_id text,
          sets_custom_status boolean,
          custom_status text
        )
      ) WITH ORDINALITY AS a (
        orchestration_name,
        orchestration_version,
        parent_instance_id,
        sets_custom_status,
        custom_status,
        position
      )
      WHERE p_executions[a.position] IS NOT NULL
    ) AS turn
    WHERE i.instance_id = turn.instance_id
      AND i.instance_id <> ALL (v_created);
  END IF;

  IF p_history IS NOT NULL THEN
    INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
    SELECT p_instances[h.ack], p_executions[h.ack], h.event_id, h.event_type, COALESCE(h.event_data, p_texts[h.text_at]), v_now
    FROM jsonb_to_recordset(p_history)
      AS h (ack bigint, event_id bigint, event_type text, event_data text, text_at integer)
    WHERE p_executions[h.ack] IS NOT NULL;
  END IF;

  IF v_describes THEN
    UPDATE executions AS e
    SET status = COALESCE(ack.status, e.status),
        output = CASE WHEN ack.status IS NULL THEN e.output ELSE COALESCE(ack.output, p_texts[ack.text_at]) END,
        completed_at = CASE
          WHEN ack.status IS NULL THEN e.completed_at
          WHEN ack.status IN ('Completed', 'Failed', 'ContinuedAsNew') THEN v_now
        END,
        duroxide_version_major = COALESCE(ack.major, e.duroxide_version_major),
        duroxide_version_minor = COALESCE(ack.minor, e.duroxide_version_minor),
        duroxide_version_patch = COALESCE(ack.patch, e.duroxide_version_patch)
    FROM ROWS FROM (
      jsonb_to_recordset(p_turns)
        AS (status text, output text, text_at integer, major integer, minor integer, patch integer)
    ) WITH ORDINALITY AS ack (status, output, text_at, major, minor, patch, position)
    WHERE e.instance_id = p_instances[ack.position]
      AND e.execution_id = p_executions[ack.position]
      AND (ack.status IS NOT NULL OR ack.major IS NOT NULL);
  END IF;

  IF v_reroutes THEN
    -- Which processes take the next turn. They also take the messages that arrived during this one.
    WITH wanted AS (
      SELECT
        i.instance_id,
        p_secrets[ack.position] AS secret,
        dx_route(
          e.duroxide_version_major,
          e.duroxide_version_minor,
          e.duroxide_version_patch,
          i.orchestration_name,
          CASE
            WHEN ack.status = 'ContinuedAsNew' THEN COALESCE(ack.next_version, i.orchestration_version)
            ELSE i.orchestration_version
          END,
          ack.status IS NOT DISTINCT FROM 'ContinuedAsNew' AND ack.next_version IS NULL
        ) AS route
      FROM ROWS FROM (jsonb_to_recordset(p_turns) AS (status text, next_version text)) WITH ORDINALITY
        AS ack (status, next_version, position)
      JOIN instances AS i ON i.instance_id = p_instances[ack.position]
      JOIN executions AS e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
      WHERE p_executions[ack.position] IS NOT NULL
    ),
    changed AS (
      UPDATE instances AS i
      SET route = wanted.route
      FROM wanted
      WHERE i.instance_id = wanted.instance_id
        AND i.route <> wanted.route
      RETURNING i.instance_id, i.route, wanted.secret
    )
    UPDATE orchestrator_queue AS q
    SET route = changed.route
    FROM changed
    WHERE q.instance_id = changed.instance_id
      AND q.route <> changed.route
      AND (q.lock_token = changed.secret) IS NOT TRUE;
  END IF;

  IF p_key_values IS NOT NULL THEN
    -- The last change of a key counts. clear_all removes every key that exists at its position.
    INSERT INTO kv_delta (instance_id, key, value, last_updated_at_ms)
    WITH change AS (
      SELECT
        p_instances[c.ack] AS instance_id,
        c.action,
        c.key,
        c.value,
        c.last_updated_at_ms,
        c.position,
        max(c.position) FILTER (WHERE c.action = 'clear_all') OVER (PARTITION BY c.ack) AS cleared_at
      FROM ROWS FROM (
        jsonb_to_recordset(p_key_values)
          AS (ack bigint, action text, key text, value text, last_updated_at_ms bigint)
      ) WITH ORDINALITY AS c (ack, action, key, value, last_updated_at_ms, position)
      WHERE p_executions[c.ack] IS NOT NULL
    ),
    changed_key AS (
      SELECT change.instance_id, change.key, change.position, change.value, change.last_updated_at_ms
      FROM change
      WHERE change.action = 'set'
        AND change.position > COALESCE(change.cleared_at, 0)
      UNION ALL
      SELECT change.instance_id, change.key, change.position, NULL, v_now_ms
      FROM change
      WHERE change.action = 'clear_key'
        OR (change.action = 'set' AND change.position < change.cleared_at)
      UNION ALL
      SELECT change.instance_id, stored.key, 0, NULL, v_now_ms
      FROM change
      CROSS JOIN LATERAL (
        SELECT d.key FROM kv_delta AS d WHERE d.instance_id = change.instance_id
        UNION
        SELECT s.key FROM kv_store AS s WHERE s.instance_id = change.instance_id
      ) AS stored
      WHERE change.position = change.cleared_at
    )
    SELECT DISTINCT ON (changed_key.instance_id COLLATE "C", changed_key.key COLLATE "C")
      changed_key.instance_id,
      changed_key.key,
      changed_key.value,
      changed_key.last_updated_at_ms
    FROM changed_key
    ORDER BY changed_key.instance_id COLLATE "C", changed_key.key COLLATE "C", changed_key.position DESC
    ON CONFLICT (instance_id, key) DO UPDATE
    SET value = excluded.value,
        last_updated_at_ms = excluded.last_updated_at_ms;
  END IF;

  IF v_ends AND EXISTS (SELECT FROM kv_delta AS d WHERE d.instance_id = ANY (p_instances)) THEN
    -- The changes of an ended execution become visible to the next execution and to readers.
    WITH moved AS (
      DELETE FROM kv_delta AS d
      USING ROWS FROM (jsonb_to_recordset(p_turns) AS (status text)) WITH ORDINALITY AS ack (status, position)
      WHERE d.instance_id = p_instances[ack.position]
        AND p_executions[ack.position] IS NOT NULL
        AND ack.status IN ('Completed', 'Failed', 'ContinuedAsNew')
      RETURNING d.instance_id, d.key, d.value, d.last_updated_at_ms, p_executions[ack.position] AS execution_id
    ),
    removed AS (
      DELETE FROM kv_store AS s
      USING moved
      WHERE s.instance_id = moved.instance_id
        AND s.key = moved.key
        AND moved.value IS NULL
    )
    INSERT INTO kv_store (instance_id, key, value, execution_id, last_updated_at_ms)
    SELECT moved.instance_id, moved.key, moved.value, moved.execution_id, moved.last_updated_at_ms
    FROM moved
    WHERE moved.value IS NOT NULL
    ON CONFLICT (instance_id, key) DO UPDATE
    SET value = excluded.value,
        execution_id = excluded.execution_id,
        last_updated_at_ms = excluded.last_updated_at_ms;
  END IF;

  IF p_worker_items IS NOT NULL THEN
    v_no_tag := dx_no_tag();
    v_secret := gen_random_uuid()::text;
    IF p_workers IS NOT NULL THEN
      SELECT
        array_agg(turn.worker ORDER BY turn.position),
        array_agg(turn.handover_limit ORDER BY turn.position),
        array_agg(COALESCE(turn.spare, 0) ORDER BY turn.position),
        max(COALESCE(turn.spare, 0))
      INTO v_worker_of, v_limits, v_spares, v_most_spare
      FROM ROWS FROM (jsonb_to_recordset(p_turns) AS (worker bigint, handover_limit bigint, spare bigint))
        WITH ORDINALITY AS turn (worker, handover_limit, spare, position);
      v_waiting := dx_count_waiting(p_workers, v_most_spare, v_now_ms);
    END IF;

    WITH item AS (
      SELECT
        w.*,
        row_number() OVER (PARTITION BY w.ack ORDER BY w.position) - 1 AS index,
        worker.lock_timeout_ms,
        worker.position IS NOT NULL
          AND w.session_id IS NULL
          AND w.served_by IS NULL
          AND w.name = ANY (worker.names)
          AND CASE WHEN w.tag IS NULL THEN worker.untagged ELSE worker.tags IS NULL OR w.tag = ANY (worker.tags) END
          AS is_served
      FROM ROWS FROM (
        jsonb_to_recordset(p_worker_items) AS (
          ack bigint,
          work_item text,
          text_at integer,
          name text,
          instance_id text,
          execution_id bigint,
          activity_id bigint,
          session_id text,
          tag text,
          served_by text
        )
      ) WITH ORDINALITY
        AS w (ack, work_item, text_at, name, instance_id, execution_id, activity_id, session_id, tag, served_by, position)
      LEFT JOIN ROWS FROM (
        jsonb_to_recordset(p_workers) AS (lock_timeout_ms bigint, names text[], untagged boolean, tags text[])
      ) WITH ORDINALITY AS worker (lock_timeout_ms, names, untagged, tags, position)
        ON worker.position = v_worker_of[w.ack]
        AND (v_waiting IS NULL OR v_waiting[worker.position] <= v_spares[w.ack])
      WHERE p_executions[w.ack] IS NOT NULL
    ),
    numbered AS MATERIALIZED (
      SELECT
        nextval('worker_queue_id_seq') AS id,
        one.*
      FROM (
        SELECT
          item.*,
          item.is_served
            AND count(*) FILTER (WHERE item.is_served) OVER (PARTITION BY item.ack ORDER BY item.position)
              <= v_limits[item.ack] AS is_handed_over
        FROM item
        ORDER BY item.position
      ) AS one
    ),
    stored AS (
      INSERT INTO worker_queue (
        id,
        work_item,
        visible_at,
        lock_token,
        locked_until,
        created_at,
        attempt_count,
        instance_id,
        execution_id,
        activity_id,
        session_id,
        tag,
        route
      )
      SELECT
        w.id,
        COALESCE(w.work_item, p_texts[w.text_at]),
        v_now,
        CASE WHEN w.is_handed_over THEN v_secret END,
        CASE WHEN w.is_handed_over THEN v_now_ms + w.lock_timeout_ms END,
        v_now,
        w.is_handed_over::integer,
        w.instance_id,
        w.execution_id,
        w.activity_id,
        w.session_id,
        COALESCE(w.tag, CASE WHEN w.served_by IS NULL THEN v_no_tag END),
        w.name || COALESCE(' #' || w.tag, '')
      FROM (SELECT numbered.* FROM numbered ORDER BY numbered.id) AS w
    )
    SELECT array_agg(w.id), array_agg(w.ack), array_agg(w.index)
    INTO v_handed_over, v_handed_over_by, v_indexes
    FROM numbered AS w
    WHERE w.is_handed_over;
  END IF;

  IF p_cancelled_activities IS NOT NULL THEN
    -- After the insert: an activity that one turn both schedules and cancels never runs.
    WITH cancelled AS (
      DELETE FROM worker_queue AS w
      USING (
        SELECT locked.id
        FROM jsonb_to_recordset(p_cancelled_activities)
          AS c (ack bigint, instance_id text, execution_id bigint, activity_id bigint)
        JOIN worker_queue AS locked
          ON locked.instance_id = c.instance_id
          AND locked.execution_id = c.execution_id
          AND locked.activity_id = c.activity_id
        WHERE p_executions[c.ack] IS NOT NULL
        ORDER BY locked.id
        FOR UPDATE OF locked
      ) AS one
      WHERE w.id = one.id
      RETURNING w.id
    )
    SELECT array_agg(cancelled.id)
    INTO v_cancelled
    FROM cancelled;
  END IF;

  IF v_ends THEN
    -- The remaining timers of an ended execution would otherwise wake the instance when they are due, only to be
    -- dropped.
    DELETE FROM orchestrator_queue AS q
    USING ROWS FROM (jsonb_to_recordset(p_turns) AS (status text)) WITH ORDINALITY AS ack (status, position)
    WHERE p_executions[ack.position] IS NOT NULL
      AND ack.status IN ('Completed', 'Failed', 'ContinuedAsNew')
      AND q.instance_id = p_instances[ack.position]
      AND q.due_at > v_now
      AND q.work_item LIKE '{"TimerFired"%';
  END IF;

  IF jsonb_path_exists(p_turns, '$[*].left_ids') THEN
    -- Before the insert, which places the start of the next execution in front of them. The update of the route above
    -- did not reach these messages, because they carry the lock's token.
    UPDATE orchestrator_queue AS q
    SET lock_token = NULL,
        locked_until = NULL,
        attempt_count = 0,
        route = COALESCE((SELECT i.route FROM instances AS i WHERE i.instance_id = q.instance_id), q.route)
    FROM ROWS FROM (jsonb_to_recordset(p_turns) AS (left_ids bigint[])) WITH ORDINALITY AS ack (left_ids, position)
    CROSS JOIN LATERAL unnest(ack.left_ids) AS unread (id)
    WHERE q.id = unread.id
      AND q.instance_id IS NOT DISTINCT FROM p_instances[ack.position] -- not "=": found by id, whatever the statistics say
      AND q.lock_token = p_secrets[ack.position];
  END IF;

  IF v_ends AND jsonb_path_exists(p_turns, '$[*].requeued') THEN
    -- Before the insert, for the same reason. Batches are in order of the ids, so these are negative: smaller than those of
    -- messages that wait, of messages that were requeued before, and of those that another transaction is about to commit.
    INSERT INTO orchestrator_queue (id, instance_id, work_item, visible_at, created_at, route)
    SELECT
      -nextval('orchestrator_queue_id_seq'),
      unread.instance_id,
      unread.work_item,
      v_now,
      v_now,
      unread.route
    FROM (
      SELECT
        h.instance_id,
        -- As the sender wrote it: -> keeps the text of a value.
        '{"QueueMessage":{"instance":' || to_json(h.instance_id)::text
          || ',"name":' || (event.data -> 'name')::text
          || ',"data":' || (event.data -> 'data')::text || '}}' AS work_item,
        COALESCE(i.route, '') AS route
      FROM ROWS FROM (jsonb_to_recordset(p_turns) AS (status text, requeued jsonb)) WITH ORDINALITY
        AS ack (status, requeued, position)
      CROSS JOIN LATERAL (
        SELECT DISTINCT one.id::bigint AS id
        FROM jsonb_array_elements_text(ack.requeued) AS one (id)
      ) AS wanted
      JOIN history AS h
        ON h.instance_id = p_instances[ack.position]
        AND h.execution_id = p_executions[ack.position]
        AND h.event_id = wanted.id
      CROSS JOIN LATERAL (SELECT h.event_data::json AS data) AS event
      LEFT JOIN instances AS i ON i.instance_id = h.instance_id
      WHERE ack.status = 'ContinuedAsNew'
        AND event.data ->> 'type' = 'ExternalEventPersistent'
      ORDER BY ack.position, h.event_id DESC
    ) AS unread;
  END IF;

  IF p_orchestrator_items IS NOT NULL THEN
    INSERT INTO orchestrator_queue (id, instance_id, work_item, visible_at, created_at, route)
    SELECT
      nextval('orchestrator_queue_id_seq') * CASE
        -- The message that begins an execution must be in its first batch, however many messages wait.
        WHEN due.at <= v_now
          AND (
            COALESCE(m.work_item, p_texts[m.text_at]) LIKE '{"StartOrchestration"%'
            OR COALESCE(m.work_item, p_texts[m.text_at]) LIKE '{"ContinueAsNew"%'
          )
          AND (
            SELECT q.id
            FROM orchestrator_queue AS q
            WHERE q.instance_id = m.instance_id
              AND q.due_at <= v_now
            LIMIT 1
          ) IS NOT NULL THEN -1
        ELSE 1
      END,
      m.instance_id,
      COALESCE(m.work_item, p_texts[m.text_at]),
      due.at,
      v_now,
      COALESCE((SELECT i.route FROM instances AS i WHERE i.instance_id = m.instance_id), '')
    FROM (
      SELECT one.*
      FROM ROWS FROM (
        jsonb_to_recordset(p_orchestrator_items)
          AS (ack bigint, instance_id text, work_item text, text_at integer, visible_at_ms bigint, delay_ms bigint)
      ) WITH ORDINALITY AS one (ack, instance_id, work_item, text_at, visible_at_ms, delay_ms, position)
      WHERE p_executions[one.ack] IS NOT NULL
      ORDER BY one.position
    ) AS m
    CROSS JOIN LATERAL (
      SELECT to_timestamp(
        least(COALESCE(greatest(m.visible_at_ms, v_now_ms + m.delay_ms), v_now_ms), v_latest_ms)::float8 / 1000
      ) AS at
    ) AS due;
  END IF;

  IF v_started <> '{}' THEN
    -- Messages that arrived before their start.
    UPDATE orchestrator_queue AS q
    SET route = earlier.route
    FROM (
      SELECT one.id, i.route
      FROM unnest(v_started) AS started (instance_id)
      JOIN instances AS i ON i.instance_id = started.instance_id
      JOIN orchestrator_queue AS one ON one.instance_id = started.instance_id
      WHERE one.route <> i.route
      FOR UPDATE OF one SKIP LOCKED
    ) AS earlier
    WHERE q.id = earlier.id;
  END IF;

  IF v_cancels THEN
    -- After the insert: one turn may create a timer and cancel it. A timer that is visible by now is left to the next
    -- turn.
    DELETE FROM orchestrator_queue AS q
    USING ROWS FROM (jsonb_to_recordset(p_turns) AS (cancelled_timers jsonb)) WITH ORDINALITY
      AS ack (cancelled_timers, position)
    WHERE p_executions[ack.position] IS NOT NULL
      AND q.instance_id = p_instances[ack.position]
      AND q.due_at > v_now
      AND ack.cancelled_timers ? q.work_item;
  END IF;

  IF current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
    IF jsonb_array_length(p_worker_items) > COALESCE(cardinality(v_handed_over), 0) THEN
      PERFORM dx_notify('worker_work', ARRAY[v_now]);
    END IF;
    IF p_orchestrator_items IS NOT NULL THEN
      PERFORM dx_notify(
        'orch_work',
        ARRAY(
          SELECT to_timestamp(
            least(COALESCE(greatest(m.visible_at_ms, v_now_ms + m.delay_ms), v_now_ms), v_latest_ms)::float8 / 1000
          )
          FROM jsonb_to_recordset(p_orchestrator_items) AS m (ack bigint, visible_at_ms bigint, delay_ms bigint)
          WHERE p_executions[m.ack] IS NOT NULL
        )
      );
    END IF;
  END IF;

  IF v_handed_over IS NULL THEN
    RETURN NULL;
  END IF;
  RETURN (
    SELECT jsonb_object_agg(turn.ack, turn.handed_over)
    FROM (
      SELECT
        one.ack,
        jsonb_agg(
          jsonb_build_object('index', one.index, 'lockToken', one.id || '.' || v_secret)
          ORDER BY one.index
        ) AS handed_over
      FROM unnest(v_handed_over, v_handed_over_by, v_indexes) AS one (id, ack, index)
      WHERE (one.id = ANY (v_cancelled)) IS NOT TRUE
      GROUP BY one.ack
    ) AS turn
  );
END
$$;
