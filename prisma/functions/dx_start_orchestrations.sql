-- Creates instances whose id is free, each with execution 1 (Running, pinned) and its start message.
--
-- Returns one outcome per start, in order: Started, or AlreadyExists if the id has a row in instances or executions or
-- a queued start (of two starts of one id, the second). Of concurrent starts of one id exactly one is Started.
--
-- Messages that arrived before the start become claimable with it, not earlier.
--
-- Bound: the starts given, and the queued messages of their ids. Locks: instances by id (the new ones), then their
-- executions, then earlier messages (skip locked). A start waits only for another start, a first turn or a deletion of
-- the same id. If lock_timeout ends that wait, all starts of the call fail with 55P03.
CREATE OR REPLACE FUNCTION dx_start_orchestrations(
  p_starts jsonb,                  -- [{instance_id, orchestration_name, orchestration_version, work_item, major, minor, patch,
                                   --   delay_ms}]
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
  v_outcomes text[] := array_fill('AlreadyExists'::text, ARRAY[jsonb_array_length(p_starts)]);
  v_started text[];
  v_positions bigint[];
  v_position bigint;
BEGIN
  WITH free AS (
    SELECT DISTINCT ON (s.instance_id COLLATE "C")
      s.instance_id,
      s.orchestration_name,
      dx_route(s.major, s.minor, s.patch, s.orchestration_name, s.orchestration_version, false) AS route
    FROM ROWS FROM (
      jsonb_to_recordset(p_starts) AS (
        instance_id text,
        orchestration_name text,
        orchestration_version text,
        major integer,
        minor integer,
        patch integer
      )
    ) WITH ORDINALITY AS s (instance_id, orchestration_name, orchestration_version, major, minor, patch, position)
    WHERE NOT EXISTS (
        SELECT FROM instances AS i
        WHERE i.instance_id = s.instance_id
      )
      AND NOT EXISTS (
        SELECT FROM executions AS e
        WHERE e.instance_id = s.instance_id
      )
      AND NOT EXISTS (
        SELECT FROM orchestrator_queue AS q
        WHERE q.instance_id = s.instance_id
          AND q.work_item LIKE '{"StartOrchestration"%'
      )
    ORDER BY s.instance_id COLLATE "C", s.position
  ),
  created AS (
    INSERT INTO instances (instance_id, orchestration_name, current_execution_id, created_at, updated_at, route)
    SELECT free.instance_id, free.orchestration_name, 1, v_now, v_now, free.route
    FROM free
    ORDER BY free.instance_id COLLATE "C"
    ON CONFLICT (instance_id) DO NOTHING
    RETURNING instance_id
  )
  SELECT array_agg(created.instance_id)
  INTO v_started
  FROM created;
  IF v_started IS NULL THEN
    RETURN v_outcomes;
  END IF;

  SELECT array_agg(first.position ORDER BY first.position)
  INTO v_positions
  FROM (
    SELECT min(s.position) AS position
    FROM ROWS FROM (jsonb_to_recordset(p_starts) AS (instance_id text)) WITH ORDINALITY AS s (instance_id, position)
    WHERE s.instance_id = ANY (v_started)
    GROUP BY s.instance_id
  ) AS first;

  INSERT INTO executions (
    instance_id,
    execution_id,
    status,
    started_at,
    duroxide_version_major,
    duroxide_version_minor,
    duroxide_version_patch
  )
  SELECT s.instance_id, 1, 'Running', v_now, s.major, s.minor, s.patch
  FROM ROWS FROM (
    jsonb_to_recordset(p_starts) AS (instance_id text, major integer, minor integer, patch integer)
  ) WITH ORDINALITY AS s (instance_id, major, minor, patch, position)
  WHERE s.position = ANY (v_positions)
  ORDER BY s.instance_id COLLATE "C"
  ON CONFLICT (instance_id, execution_id) DO NOTHING;

  WITH start AS (
    INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
    SELECT
      s.instance_id,
      s.work_item,
      CASE
        WHEN s.delay_ms > 0 THEN to_timestamp(least(v_now_ms + s.delay_ms, v_latest_ms)::float8 / 1000)
        -- The start must be in the first batch, however many messages wait.
        ELSE least(
          v_now,
          (
            SELECT min(q.visible_at)
            FROM orchestrator_queue AS q
            WHERE q.instance_id = s.instance_id
              AND q.lock_token IS NULL
          ) - interval '1 millisecond'
        )
      END,
      v_now,
      (SELECT i.route FROM instances AS i WHERE i.instance_id = s.instance_id)
    FROM ROWS FROM (jsonb_to_recordset(p_starts) AS (instance_id text, work_item text, delay_ms bigint))
      WITH ORDINALITY AS s (instance_id, work_item, delay_ms, position)
    WHERE s.position = ANY (v_positions)
    ORDER BY s.position
    RETURNING instance_id, visible_at, route
  )
  UPDATE orchestrator_queue AS q
  SET route = earlier.route,
      visible_at = earlier.visible_at
  FROM (
    SELECT
      one.id,
      start.route,
      -- An ack finds the rows of a claimed batch by their times, so these must not change.
      CASE
        WHEN one.lock_token IS NOT NULL THEN one.visible_at
        ELSE greatest(one.visible_at, start.visible_at + interval '1 millisecond')
      END AS visible_at
    FROM start
    JOIN orchestrator_queue AS one ON one.instance_id = start.instance_id
    WHERE one.route <> start.route
    FOR UPDATE OF one SKIP LOCKED
  ) AS earlier
  WHERE q.id = earlier.id;

  FOREACH v_position IN ARRAY v_positions LOOP
    v_outcomes[v_position] := 'Started';
  END LOOP;
  RETURN v_outcomes;
END
$$;
