-- Deletes instances completely, or nothing: histories, executions, rows of both queues, leases, key-values, instances.
--
-- Returns one row. When one of p_must_have_ended has not ended, its id stands in out_still_running; when an instance
-- outside the set, or a queued start, has its parent inside, its id stands in out_child_left_behind; then nothing was
-- deleted. An instance has ended when its current execution is Completed or Failed, or ContinuedAsNew without a queued
-- message that continues it. Unknown ids are passed over; what they left in other tables goes all the same.
--
-- Bound: all rows of these instances, their children, and the queued starts of all children, which have an index of
-- their own: 1 ms with 100 of them, whatever else is queued. Without it a deletion took 2, 9 and 130 ms in front of
-- 10,000, 100,000 and 1,000,000 timers, and 40, 300 and 3,500 ms in front of as many starts of 500 bytes. It costs a
-- start less than a microsecond, and one of 100,000 bytes 5 %.
--
-- Locks: advisory locks of all ids by key (waits), so that nobody claims them meanwhile; leases by id; ids without an
-- instance row by id, so that nobody starts them meanwhile; instance rows by id; then rows of executions, history,
-- key-values, worker queue, orchestrator queue. A turn or a start that is being stored is waited for; a turn that comes
-- later finds no lease, a start that comes later waits.
CREATE OR REPLACE FUNCTION dx_delete_instances(
  p_instance_ids text[],
  p_must_have_ended text[]         -- a part of p_instance_ids
)
RETURNS TABLE (
  out_still_running text,
  out_child_left_behind text,
  out_instances_deleted bigint,
  out_executions_deleted bigint,
  out_events_deleted bigint,
  out_queue_messages_deleted bigint
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
  v_unknown text[];
  v_activities bigint;
BEGIN
  out_instances_deleted := 0;
  out_executions_deleted := 0;
  out_events_deleted := 0;
  out_queue_messages_deleted := 0;

  -- In the order of the keys, which two ids may share.
  PERFORM pg_advisory_xact_lock(one.key)
  FROM (
    SELECT DISTINCT hashtext(id) AS key
    FROM unnest(p_instance_ids) AS given (id)
    ORDER BY key
  ) AS one;

  PERFORM
  FROM instance_locks AS l
  WHERE l.instance_id = ANY (p_instance_ids)
  ORDER BY l.instance_id COLLATE "C"
  FOR UPDATE;

  -- Whoever starts one of these ids waits for the end of the transaction that inserted it, also when the row is gone.
  WITH reserved AS (
    INSERT INTO instances (instance_id, orchestration_name, current_execution_id, created_at, updated_at)
    SELECT DISTINCT given.id COLLATE "C", '', 1, now(), now()
    FROM unnest(p_instance_ids) AS given (id)
    WHERE NOT EXISTS (
      SELECT FROM instances AS i
      WHERE i.instance_id = given.id
    )
    ORDER BY 1
    ON CONFLICT (instance_id) DO NOTHING
    RETURNING instance_id
  )
  SELECT array_agg(reserved.instance_id)
  INTO v_unknown
  FROM reserved;
  DELETE FROM instances AS i
  WHERE i.instance_id = ANY (v_unknown);

  -- Excludes first turns of children, which hold their parent's row.
  PERFORM
  FROM instances AS i
  WHERE i.instance_id = ANY (p_instance_ids)
  ORDER BY i.instance_id COLLATE "C"
  FOR UPDATE;

  SELECT i.instance_id
  INTO out_still_running
  FROM instances AS i
  LEFT JOIN executions AS e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
  WHERE i.instance_id = ANY (p_must_have_ended)
    AND (
      COALESCE(e.status, 'Running') NOT IN ('Completed', 'Failed', 'ContinuedAsNew')
      OR (
        e.status = 'ContinuedAsNew'
        -- Not EXISTS: below OR it may be planned as one read of the whole table.
        AND (
          SELECT q.id
          FROM orchestrator_queue AS q
          WHERE q.instance_id = i.instance_id
            AND q.work_item LIKE '{"ContinueAsNew"%'
          LIMIT 1
        ) IS NOT NULL
      )
    )
  LIMIT 1;
  IF out_still_running IS NOT NULL THEN
    RETURN NEXT;
    RETURN;
  END IF;

  SELECT i.instance_id
  INTO out_child_left_behind
  FROM instances AS i
  WHERE i.parent_instance_id = ANY (p_instance_ids)
    AND i.instance_id <> ALL (p_instance_ids)
  LIMIT 1;
  IF out_child_left_behind IS NULL THEN
    SELECT q.instance_id
    INTO out_child_left_behind
    FROM orchestrator_queue AS q
    -- As text: a message nobody can read must not fail this. Inside a payload the quotes would be escaped.
    WHERE q.work_item LIKE '{"StartOrchestration"%'
      AND q.work_item NOT LIKE '%"parent_instance":null%'
      AND substring(q.work_item FROM '"parent_instance": ?("(?:[^"\\]|\\.)*")') = ANY (
        SELECT to_json(parent.id)::text
        FROM unnest(p_instance_ids) AS parent (id)
      )
      AND q.instance_id <> ALL (p_instance_ids)
    LIMIT 1;
  END IF;
  IF out_child_left_behind IS NOT NULL THEN
    RETURN NEXT;
    RETURN;
  END IF;

  DELETE FROM instance_locks AS l
  WHERE l.instance_id = ANY (p_instance_ids);
  DELETE FROM instances AS i
  WHERE i.instance_id = ANY (p_instance_ids);
  GET DIAGNOSTICS out_instances_deleted = ROW_COUNT;
  DELETE FROM executions AS e
  WHERE e.instance_id = ANY (p_instance_ids);
  GET DIAGNOSTICS out_executions_deleted = ROW_COUNT;
  DELETE FROM history AS h
  WHERE h.instance_id = ANY (p_instance_ids);
  GET DIAGNOSTICS out_events_deleted = ROW_COUNT;
  DELETE FROM kv_store AS s
  WHERE s.instance_id = ANY (p_instance_ids);
  DELETE FROM kv_delta AS d
  WHERE d.instance_id = ANY (p_instance_ids);
  DELETE FROM worker_queue AS w
  USING (
    SELECT locked.id
    FROM worker_queue AS locked
    WHERE locked.instance_id = ANY (p_instance_ids)
    ORDER BY locked.id
    FOR UPDATE
  ) AS activity
  WHERE w.id = activity.id;
  GET DIAGNOSTICS v_activities = ROW_COUNT;
  DELETE FROM orchestrator_queue AS q
  WHERE q.instance_id = ANY (p_instance_ids);
  GET DIAGNOSTICS out_queue_messages_deleted = ROW_COUNT;
  out_queue_messages_deleted := out_queue_messages_deleted + v_activities;
  RETURN NEXT;
END
$$;
