-- Stores turns: history, status, key-value changes, new work, cancellations. Deletes their locks and their batches. The
-- messages in left_ids are not deleted: they keep their places in the queue as if they had not been delivered. The
-- messages that the events in requeued have recorded are inserted again, in front of all others.
--
-- Returns one outcome per ack, in order: Done; LockLost if the lock of the token is unknown, expired, superseded or
-- already settled (of several acks with one token, all but the first that can be stored); DuplicateEvent if an event id
-- exists already or is given twice. An ack that is not Done has changed nothing, and does not affect the others.
--
-- The other arguments hold the parts of all acks. Each part names its ack by position, from 1. An argument without
-- parts is null.
--
-- Bound: the rows given, the batches of these locks, and the key-value rows of instances that change them.
--
-- Locks: instance locks by instance; parent rows (key share), then instance rows by id, then the rows of starts by id;
-- executions, history, key-values; worker rows by id; queue rows of the batches, and of instances whose route changes.
-- The row in instance_locks stays locked until the transaction ends: two acks of one token exclude each other whatever
-- they store, and so do an ack and a takeover.
CREATE OR REPLACE FUNCTION dx_ack_orchestration_items(
  p_acks jsonb,                    -- [{token, execution_id, orchestration_name, orchestration_version, status, output,
                                   --   next_version, parent_instance_id, major, minor, patch, sets_custom_status,
                                   --   custom_status, cancelled_timers: {work_item: null}, left_ids: [row id],
                                   --   requeued: [event id]}]
  p_history jsonb,                 -- [{ack, event_id, event_type, event_data}]
  p_key_values jsonb,              -- [{ack, action, key, value, last_updated_at_ms}], in the order they apply
  p_worker_items jsonb,            -- [{ack, work_item, name, instance_id, execution_id, activity_id, session_id, tag,
                                   --   served_by}]
  p_cancelled_activities jsonb,    -- [{ack, instance_id, execution_id, activity_id}]
  p_orchestrator_items jsonb,      -- [{ack, instance_id, work_item, visible_at_ms, delay_ms, start: {orchestration_name,
                                   --   orchestration_version, parent_instance_id, major, minor, patch}}]; a start
                                   --   creates its instance where the id is free
  p_now_ms bigint DEFAULT NULL     -- milliseconds since the Unix epoch; null means the database's clock
)
RETURNS text[]
LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_latest_ms CONSTANT bigint := 253402300799999; -- the end of the year 9999: clients read no later dates
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_count integer := jsonb_array_length(p_acks);
  v_outcomes text[] := array_fill('LockLost'::text, ARRAY[v_count]);
  -- By position of the ack; null where it was refused. v_executions is null, too, where only the batch is consumed.
  v_instances text[] := array_fill(NULL::text, ARRAY[v_count]);
  v_secrets text[] := array_fill(NULL::text, ARRAY[v_count]);
  v_claimed_ms bigint[] := array_fill(NULL::bigint, ARRAY[v_count]);
  v_executions bigint[] := array_fill(NULL::bigint, ARRAY[v_count]);
  v_lock record;
  v_previous text;
  v_repeated boolean := false;
  v_duplicate bigint;
  v_creates boolean;
  v_parents text[];
  v_created text[] := '{}';
  v_describes boolean;
  v_ends boolean;
  v_cancels boolean;
  v_reroutes boolean;
  v_started text[];
  v_no_tag text;
BEGIN
  FOR v_lock IN
    SELECT a.position, a.execution_id, l.instance_id, l.lock_token, l.locked_at
    FROM ROWS FROM (jsonb_to_recordset(p_acks) AS (token text, execution_id bigint))
      WITH ORDINALITY AS a (token, execution_id, position)
    JOIN instance_locks AS l ON l.instance_id = substr(a.token, 38)
    WHERE l.lock_token = left(a.token, 36)
      AND l.locked_until > v_now_ms
    ORDER BY l.instance_id COLLATE "C", a.position
    FOR UPDATE OF l
  LOOP
    v_repeated := v_repeated OR v_lock.instance_id IS NOT DISTINCT FROM v_previous;
    v_previous := v_lock.instance_id;
    v_outcomes[v_lock.position] := 'Done';
    v_instances[v_lock.position] := v_lock.instance_id;
    v_secrets[v_lock.position] := v_lock.lock_token;
    v_claimed_ms[v_lock.position] := v_lock.locked_at;
    v_executions[v_lock.position] := v_lock.execution_id;
  END LOOP;

  IF p_history IS NOT NULL THEN
    -- While we hold the locks, no other transaction writes these histories: an event id that is free now stays free.
    FOR v_duplicate IN
      SELECT h.ack
      FROM jsonb_to_recordset(p_history) AS h (ack bigint, event_id bigint)
      WHERE v_executions[h.ack] IS NOT NULL
      GROUP BY h.ack, h.event_id
      -- Not EXISTS: below OR it may be planned as one read of the whole table.
      HAVING count(*) > 1
        OR (
          SELECT x.event_id
          FROM history AS x
          WHERE x.instance_id = v_instances[h.ack]
            AND x.execution_id = v_executions[h.ack]
            AND x.event_id = h.event_id
        ) IS NOT NULL
    LOOP
      v_outcomes[v_duplicate] := 'DuplicateEvent';
      v_instances[v_duplicate] := NULL;
      v_executions[v_duplicate] := NULL;
    END LOOP;
  END IF;

  IF v_repeated THEN
    -- Of several acks with one token, the first that can be stored ends the lock. A refused ack leaves it as it is.
    v_previous := NULL;
    FOR v_lock IN
      SELECT a.position, substr(a.token, 38) AS instance_id
      FROM ROWS FROM (jsonb_to_recordset(p_acks) AS (token text)) WITH ORDINALITY AS a (token, position)
      WHERE v_outcomes[a.position] <> 'LockLost'
      ORDER BY substr(a.token, 38) COLLATE "C", a.position
    LOOP
      IF v_lock.instance_id = v_previous THEN
        v_outcomes[v_lock.position] := 'LockLost';
        v_instances[v_lock.position] := NULL;
        v_executions[v_lock.position] := NULL;
      ELSIF v_outcomes[v_lock.position] = 'Done' THEN
        v_previous := v_lock.instance_id;
      END IF;
    END LOOP;
  END IF;

  -- Which of the rare steps are needed.
  SELECT
    bool_or(ack.orchestration_name IS NOT NULL AND ack.orchestration_version IS NOT NULL),
    array_agg(ack.parent_instance_id) FILTER (WHERE ack.parent_instance_id IS NOT NULL),
    bool_or(ack.status IS NOT NULL OR ack.major IS NOT NULL),
    bool_or(ack.status IN ('Completed', 'Failed', 'ContinuedAsNew')),
    bool_or(ack.cancelled_timers IS NOT NULL),
    bool_or(ack.orchestration_name IS NOT NULL OR ack.major IS NOT NULL OR ack.status = 'ContinuedAsNew')
  INTO v_creates, v_parents, v_describes, v_ends, v_cancels, v_reroutes
  FROM ROWS FROM (
    jsonb_to_recordset(p_acks) AS (
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
  WHERE v_executions[ack.position] IS NOT NULL;

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
        v_instances[ack.position],
        ack.orchestration_name,
        ack.orchestration_version,
        v_executions[ack.position],
        v_now,
        v_now,
        ack.parent_instance_id,
        ack.custom_status,
        COALESCE(ack.sets_custom_status, false)::integer
      FROM ROWS FROM (
        jsonb_to_recordset(p_acks) AS (
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
      WHERE v_executions[ack.position] IS NOT NULL
        AND ack.orchestration_name IS NOT NULL
        AND ack.orchestration_version IS NOT NULL
        AND NOT EXISTS (
          SELECT FROM instances AS x
          WHERE x.instance_id = v_instances[ack.position]
        )
      ORDER BY v_instances[ack.position] COLLATE "C"
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

  IF p_orchestrator_items IS NOT NULL THEN
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
      WHERE v_executions[m.ack] IS NOT NULL
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

  -- Whether or not the instance has a row.
  INSERT INTO executions (instance_id, execution_id, status, started_at)
  SELECT a.instance_id, a.execution_id, 'Running', v_now
  FROM unnest(v_instances, v_executions) AS a (instance_id, execution_id)
  WHERE a.execution_id IS NOT NULL
    AND NOT EXISTS (
      SELECT FROM executions AS e
      WHERE e.instance_id = a.instance_id
        AND e.execution_id = a.execution_id
    )
  ORDER BY a.instance_id COLLATE "C"
  ON CONFLICT (instance_id, execution_id) DO NOTHING;
  v_reroutes := v_reroutes OR FOUND;

  UPDATE instances AS i
  SET orchestration_name = CASE WHEN ack.names THEN ack.orchestration_name ELSE i.orchestration_name END,
      orchestration_version = CASE WHEN ack.names THEN ack.orchestration_version ELSE i.orchestration_version END,
      parent_instance_id = CASE
        WHEN ack.names THEN COALESCE(i.parent_instance_id, ack.parent_instance_id)
        ELSE i.parent_instance_id
      END,
      current_execution_id = greatest(i.current_execution_id, ack.execution_id),
      updated_at = v_now,
      custom_status = CASE WHEN ack.sets_custom_status THEN ack.custom_status ELSE i.custom_status END,
      custom_status_version = i.custom_status_version + ack.sets_custom_status::integer
  FROM (
    SELECT
      locked.instance_id,
      v_executions[a.position] AS execution_id,
      a.orchestration_name IS NOT NULL AND a.orchestration_version IS NOT NULL AS names,
      a.orchestration_name,
      a.orchestration_version,
      a.parent_instance_id,
      COALESCE(a.sets_custom_status, false) AS sets_custom_status,
      a.custom_status
    FROM ROWS FROM (
      jsonb_to_recordset(p_acks) AS (
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
    JOIN instances AS locked ON locked.instance_id = v_instances[a.position]
    WHERE v_executions[a.position] IS NOT NULL
      AND locked.instance_id <> ALL (v_created)
    ORDER BY locked.instance_id COLLATE "C"
    FOR NO KEY UPDATE OF locked
  ) AS ack
  WHERE i.instance_id = ack.instance_id;

  IF p_history IS NOT NULL THEN
    INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
    SELECT v_instances[h.ack], v_executions[h.ack], h.event_id, h.event_type, h.event_data, v_now
    FROM jsonb_to_recordset(p_history) AS h (ack bigint, event_id bigint, event_type text, event_data text)
    WHERE v_executions[h.ack] IS NOT NULL;
  END IF;

  IF v_describes THEN
    UPDATE executions AS e
    SET status = COALESCE(ack.status, e.status),
        output = CASE WHEN ack.status IS NULL THEN e.output ELSE ack.output END,
        completed_at = CASE
          WHEN ack.status IS NULL THEN e.completed_at
          WHEN ack.status IN ('Completed', 'Failed', 'ContinuedAsNew') THEN v_now
        END,
        duroxide_version_major = COALESCE(ack.major, e.duroxide_version_major),
        duroxide_version_minor = COALESCE(ack.minor, e.duroxide_version_minor),
        duroxide_version_patch = COALESCE(ack.patch, e.duroxide_version_patch)
    FROM ROWS FROM (
      jsonb_to_recordset(p_acks) AS (status text, output text, major integer, minor integer, patch integer)
    ) WITH ORDINALITY AS ack (status, output, major, minor, patch, position)
    WHERE e.instance_id = v_instances[ack.position]
      AND e.execution_id = v_executions[ack.position]
      AND (ack.status IS NOT NULL OR ack.major IS NOT NULL);
  END IF;

  IF v_reroutes THEN
    -- Which processes take the next turn. They also take the messages that arrived during this one.
    WITH wanted AS (
      SELECT
        i.instance_id,
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
      FROM ROWS FROM (jsonb_to_recordset(p_acks) AS (status text, next_version text)) WITH ORDINALITY
        AS ack (status, next_version, position)
      JOIN instances AS i ON i.instance_id = v_instances[ack.position]
      JOIN executions AS e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
      WHERE v_executions[ack.position] IS NOT NULL
    ),
    changed AS (
      UPDATE instances AS i
      SET route = wanted.route
      FROM wanted
      WHERE i.instance_id = wanted.instance_id
        AND i.route <> wanted.route
      RETURNING i.instance_id, i.route
    )
    UPDATE orchestrator_queue AS q
    SET route = changed.route
    FROM changed
    WHERE q.instance_id = changed.instance_id
      AND q.route <> changed.route
      AND q.lock_token IS DISTINCT FROM (
        SELECT l.lock_token
        FROM instance_locks AS l
        WHERE l.instance_id = changed.instance_id
      );
  END IF;

  IF p_key_values IS NOT NULL THEN
    -- The last change of a key counts. clear_all removes every key that exists at its position.
    INSERT INTO kv_delta (instance_id, key, value, last_updated_at_ms)
    WITH change AS (
      SELECT
        v_instances[c.ack] AS instance_id,
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
      WHERE v_executions[c.ack] IS NOT NULL
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

  IF v_ends THEN
    -- The changes of an ended execution become visible to the next execution and to readers.
    WITH moved AS (
      DELETE FROM kv_delta AS d
      USING ROWS FROM (jsonb_to_recordset(p_acks) AS (status text)) WITH ORDINALITY AS ack (status, position)
      WHERE d.instance_id = v_instances[ack.position]
        AND v_executions[ack.position] IS NOT NULL
        AND ack.status IN ('Completed', 'Failed', 'ContinuedAsNew')
      RETURNING d.instance_id, d.key, d.value, d.last_updated_at_ms, v_executions[ack.position] AS execution_id
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
    INSERT INTO worker_queue (
      work_item,
      visible_at,
      created_at,
      instance_id,
      execution_id,
      activity_id,
      session_id,
      tag,
      route
    )
    SELECT
      w.work_item,
      v_now,
      v_now,
      w.instance_id,
      w.execution_id,
      w.activity_id,
      w.session_id,
      COALESCE(w.tag, CASE WHEN w.served_by IS NULL THEN v_no_tag END),
      w.name || COALESCE(' #' || w.tag, '')
    FROM ROWS FROM (
      jsonb_to_recordset(p_worker_items) AS (
        ack bigint,
        work_item text,
        name text,
        instance_id text,
        execution_id bigint,
        activity_id bigint,
        session_id text,
        tag text,
        served_by text
      )
    ) WITH ORDINALITY
      AS w (ack, work_item, name, instance_id, execution_id, activity_id, session_id, tag, served_by, position)
    WHERE v_executions[w.ack] IS NOT NULL
    ORDER BY w.position;
  END IF;

  IF p_cancelled_activities IS NOT NULL THEN
    -- After the insert: an activity that one turn both schedules and cancels never runs.
    DELETE FROM worker_queue AS w
    USING (
      SELECT locked.id
      FROM jsonb_to_recordset(p_cancelled_activities)
        AS c (ack bigint, instance_id text, execution_id bigint, activity_id bigint)
      JOIN worker_queue AS locked
        ON locked.instance_id = c.instance_id
        AND locked.execution_id = c.execution_id
        AND locked.activity_id = c.activity_id
      WHERE v_executions[c.ack] IS NOT NULL
      ORDER BY locked.id
      FOR UPDATE OF locked
    ) AS cancelled
    WHERE w.id = cancelled.id;
  END IF;

  IF v_ends THEN
    -- The remaining timers of an ended execution would otherwise wake the instance when they are due, only to be
    -- dropped.
    DELETE FROM orchestrator_queue AS q
    USING ROWS FROM (jsonb_to_recordset(p_acks) AS (status text)) WITH ORDINALITY AS ack (status, position)
    WHERE v_executions[ack.position] IS NOT NULL
      AND ack.status IN ('Completed', 'Failed', 'ContinuedAsNew')
      AND q.instance_id = v_instances[ack.position]
      AND q.visible_at > v_now
      AND q.work_item LIKE '{"TimerFired"%';
  END IF;

  IF jsonb_path_exists(p_acks, '$[*].left_ids') THEN
    -- Before the insert, which places the start of the next execution in front of them. The update of the route above
    -- did not reach these messages, because they carry the lock's token.
    UPDATE orchestrator_queue AS q
    SET lock_token = NULL,
        locked_until = NULL,
        attempt_count = 0,
        route = COALESCE((SELECT i.route FROM instances AS i WHERE i.instance_id = q.instance_id), q.route)
    FROM ROWS FROM (jsonb_to_recordset(p_acks) AS (left_ids bigint[])) WITH ORDINALITY AS ack (left_ids, position)
    CROSS JOIN LATERAL unnest(ack.left_ids) AS unread (id)
    WHERE q.id = unread.id
      AND q.instance_id IS NOT DISTINCT FROM v_instances[ack.position] -- not "=": found by id, whatever the statistics say
      AND q.lock_token = v_secrets[ack.position];
  END IF;

  IF v_ends AND jsonb_path_exists(p_acks, '$[*].requeued') THEN
    -- Before the insert, for the same reason. An instance is older than its messages: these are in its first batch, also
    -- before a message that another transaction is about to commit. Batches are in order of the ids, so these are
    -- negative: smaller than those of messages that wait, and than those of messages that were requeued before.
    INSERT INTO orchestrator_queue (id, instance_id, work_item, visible_at, created_at, route)
    SELECT
      -nextval('orchestrator_queue_id_seq'),
      unread.instance_id,
      unread.work_item,
      unread.visible_at,
      v_now,
      unread.route
    FROM (
      SELECT
        h.instance_id,
        -- As the sender wrote it: -> keeps the text of a value.
        '{"QueueMessage":{"instance":' || to_json(h.instance_id)::text
          || ',"name":' || (event.data -> 'name')::text
          || ',"data":' || (event.data -> 'data')::text || '}}' AS work_item,
        least(
          COALESCE(i.created_at, v_now),
          (
            SELECT min(q.visible_at)
            FROM orchestrator_queue AS q
            WHERE q.instance_id = h.instance_id
              AND q.lock_token IS NULL
          )
        ) - interval '1 millisecond' AS visible_at,
        COALESCE(i.route, '') AS route
      FROM ROWS FROM (jsonb_to_recordset(p_acks) AS (status text, requeued jsonb)) WITH ORDINALITY
        AS ack (status, requeued, position)
      CROSS JOIN LATERAL (
        SELECT DISTINCT one.id::bigint AS id
        FROM jsonb_array_elements_text(ack.requeued) AS one (id)
      ) AS wanted
      JOIN history AS h
        ON h.instance_id = v_instances[ack.position]
        AND h.execution_id = v_executions[ack.position]
        AND h.event_id = wanted.id
      CROSS JOIN LATERAL (SELECT h.event_data::json AS data) AS event
      LEFT JOIN instances AS i ON i.instance_id = h.instance_id
      WHERE ack.status = 'ContinuedAsNew'
        AND event.data ->> 'type' = 'ExternalEventPersistent'
      ORDER BY ack.position, h.event_id DESC
    ) AS unread;
  END IF;

  IF p_orchestrator_items IS NOT NULL THEN
    INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
    SELECT
      m.instance_id,
      m.work_item,
      CASE
        -- The message that begins an execution must be in its first batch, however many messages wait.
        WHEN due.at <= v_now
          AND (m.work_item LIKE '{"StartOrchestration"%' OR m.work_item LIKE '{"ContinueAsNew"%') THEN
          least(
            due.at,
            (
              SELECT min(q.visible_at)
              FROM orchestrator_queue AS q
              WHERE q.instance_id = m.instance_id
                AND q.lock_token IS NULL
            ) - interval '1 millisecond'
          )
        ELSE due.at
      END,
      v_now,
      COALESCE((SELECT i.route FROM instances AS i WHERE i.instance_id = m.instance_id), '')
    FROM ROWS FROM (
      jsonb_to_recordset(p_orchestrator_items)
        AS (ack bigint, instance_id text, work_item text, visible_at_ms bigint, delay_ms bigint)
    ) WITH ORDINALITY AS m (ack, instance_id, work_item, visible_at_ms, delay_ms, position)
    CROSS JOIN LATERAL (
      SELECT to_timestamp(
        least(COALESCE(greatest(m.visible_at_ms, v_now_ms + m.delay_ms), v_now_ms), v_latest_ms)::float8 / 1000
      ) AS at
    ) AS due
    WHERE v_executions[m.ack] IS NOT NULL
    ORDER BY m.position;
  END IF;

  IF v_started IS NOT NULL THEN
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
    USING ROWS FROM (jsonb_to_recordset(p_acks) AS (cancelled_timers jsonb)) WITH ORDINALITY
      AS ack (cancelled_timers, position)
    WHERE v_executions[ack.position] IS NOT NULL
      AND q.instance_id = v_instances[ack.position]
      AND q.visible_at > v_now
      AND ack.cancelled_timers ? q.work_item;
  END IF;

  -- Every message of a batch was visible when its lock was taken; messages that became visible later are not looked at.
  DELETE FROM orchestrator_queue AS q
  USING unnest(v_instances, v_secrets, v_claimed_ms) AS a (instance_id, lock_token, locked_at)
  WHERE q.instance_id = a.instance_id
    AND q.visible_at <= to_timestamp(a.locked_at::float8 / 1000)
    AND q.lock_token = a.lock_token;

  DELETE FROM instance_locks AS l
  USING unnest(v_instances) AS a (instance_id)
  WHERE l.instance_id = a.instance_id;

  RETURN v_outcomes;
END
$$;
