-- Deletes instances with all their rows, or deletes nothing. The rows are histories, executions, both queues, locks,
-- key-values, attributes, instances.
--
-- Returns one row. Nothing was deleted if out_still_running or out_child_left_behind is set: the first is an id of
-- p_must_have_ended that has not ended, or was updated since it was read; the second a child outside the set, possibly
-- still a queued start, with its parent inside the set. Unknown ids are no error; their rows in other tables are
-- deleted as well.
--
-- A tree too big for one call is held first (see dx_hold_instances) and deleted in several calls, children before
-- parents.
--
-- Bound: all rows of these instances, their children, and the queued starts of all children.
-- Locks: advisory locks of all ids by key (waits), so that no claim takes an instance; instance locks by id; ids
-- without an instance row by id, so that no start takes one; instance rows by id; then rows of executions, history,
-- key-values, attributes, streams, worker queue, orchestrator queue. The call waits for turns and starts that are being
-- stored. A later turn finds no lock; a later start waits.
CREATE OR REPLACE FUNCTION dx_delete_instances(
  p_instance_ids text[],           -- some thousands at most: each takes a place in the server's table of locks
  p_must_have_ended text[],        -- a part of p_instance_ids
  p_updated_ms bigint[] DEFAULT NULL -- when each of these was updated last, as it was read; null: whenever
) RETURNS TABLE (
  out_still_running text, out_child_left_behind text, out_instances_deleted bigint,
  out_executions_deleted bigint, out_events_deleted bigint, out_queue_messages_deleted bigint
) LANGUAGE plpgsql
-- settings of the hot path
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
  PERFORM pg_advisory_xact_lock(instance.key)
  FROM (
    SELECT DISTINCT hashtext(id) AS key FROM unnest(p_instance_ids) AS given (id)
    ORDER BY key
  ) AS instance;

  PERFORM FROM instance_locks AS l WHERE l.instance_id = ANY (p_instance_ids)
  ORDER BY l.instance_id COLLATE "C" FOR UPDATE;

  -- A start of one of these ids waits until the transaction that inserted the row has ended, even after the row is
  -- deleted.
  WITH reserved AS (
    INSERT INTO instances (instance_id, orchestration_name, current_execution_id, created_at, updated_at)
    SELECT DISTINCT given.id COLLATE "C", '', 1, now(), now()
    FROM unnest(p_instance_ids) AS given (id)
    WHERE NOT EXISTS (SELECT FROM instances AS i WHERE i.instance_id = given.id)
    ORDER BY 1
    ON CONFLICT (instance_id) DO NOTHING RETURNING instance_id
  )
  SELECT array_agg(reserved.instance_id) INTO v_unknown FROM reserved;
  DELETE FROM instances AS i WHERE i.instance_id = ANY (v_unknown);

  -- Excludes first turns of children, which lock the row of their parent.
  PERFORM FROM instances AS i WHERE i.instance_id = ANY (p_instance_ids)
  ORDER BY i.instance_id COLLATE "C" FOR UPDATE;

  SELECT running.id INTO out_still_running
  FROM dx_running_instances(p_must_have_ended) AS running (id)
  LIMIT 1;
  IF out_still_running IS NULL AND p_updated_ms IS NOT NULL THEN
    SELECT read.id INTO out_still_running
    FROM unnest(p_must_have_ended, p_updated_ms) AS read (id, updated_ms)
    JOIN instances AS i ON i.instance_id = read.id
    WHERE floor(extract(epoch FROM i.updated_at) * 1000)::bigint <> read.updated_ms
    LIMIT 1;
  END IF;
  IF out_still_running IS NOT NULL THEN
    RETURN NEXT;
    RETURN;
  END IF;

  SELECT child.id INTO out_child_left_behind FROM dx_children_of(p_instance_ids) AS child (id)
  WHERE child.id <> ALL (p_instance_ids)
  LIMIT 1;
  IF out_child_left_behind IS NOT NULL THEN
    RETURN NEXT;
    RETURN;
  END IF;

  DELETE FROM instance_locks AS l WHERE l.instance_id = ANY (p_instance_ids);
  DELETE FROM instances AS i WHERE i.instance_id = ANY (p_instance_ids);
  GET DIAGNOSTICS out_instances_deleted = ROW_COUNT;
  DELETE FROM executions AS e WHERE e.instance_id = ANY (p_instance_ids);
  GET DIAGNOSTICS out_executions_deleted = ROW_COUNT;
  DELETE FROM history AS h WHERE h.instance_id = ANY (p_instance_ids);
  GET DIAGNOSTICS out_events_deleted = ROW_COUNT;
  DELETE FROM removed_events AS r WHERE r.instance_id = ANY (p_instance_ids);
  DELETE FROM paused AS p WHERE p.target = 'instance' AND p.name = ANY (p_instance_ids);
  DELETE FROM kv_store AS s WHERE s.instance_id = ANY (p_instance_ids);
  DELETE FROM kv_delta AS d WHERE d.instance_id = ANY (p_instance_ids);
  DELETE FROM attributes AS a WHERE a.instance_id = ANY (p_instance_ids);
  PERFORM dx_delete_streams_of(p_instance_ids);
  DELETE FROM worker_queue AS w
  -- Not a plain join: planned while statistics call the queue empty, it would read all of it.
  WHERE w.id = ANY (ARRAY(
    SELECT locked.id FROM worker_queue AS locked
    WHERE locked.instance_id = ANY (p_instance_ids)
    ORDER BY locked.id + 0 -- not in the order of the primary key: found by the instance, whatever the statistics say
    FOR UPDATE
  ));
  GET DIAGNOSTICS v_activities = ROW_COUNT;
  DELETE FROM orchestrator_queue AS q WHERE q.instance_id = ANY (p_instance_ids);
  GET DIAGNOSTICS out_queue_messages_deleted = ROW_COUNT;
  out_queue_messages_deleted := out_queue_messages_deleted + v_activities;
  DELETE FROM blocked_instances AS b WHERE b.instance_id = ANY (p_instance_ids);
  RETURN NEXT;
END
$$;
