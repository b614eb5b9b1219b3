-- Leaves in the queue what turns have not read: messages of their batches, and messages that events have recorded,
-- which are inserted again. Deletes the remaining timers of ended executions. A part of dx_store_turns, before
-- dx_store_messages, which places the start of the next execution in front of all these.
--
-- Bound: the messages and events given, and the timers of ended executions. Locks: these queue rows.
CREATE OR REPLACE FUNCTION dx_leave_messages(
  p_turns dx_turn[],
  p_ends boolean,                  -- whether any turn ends its execution
  p_leaves boolean,                -- whether any has left_ids
  p_requeues boolean,              -- whether any has requeued
  p_now timestamptz
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  IF p_ends THEN
    -- They would otherwise wake the instance when they are due, only to be dropped.
    DELETE FROM orchestrator_queue AS q
    WHERE q.id = ANY (ARRAY(
      SELECT timer.id FROM unnest(p_turns) AS turn
      CROSS JOIN LATERAL (
        SELECT queued.id FROM orchestrator_queue AS queued
        WHERE queued.instance_id = turn.instance_id
          AND queued.due_at > p_now
          AND queued.work_item LIKE '{"TimerFired"%'
        OFFSET 0
      ) AS timer
      WHERE turn.execution_id IS NOT NULL AND turn.status IN ('Completed', 'Failed', 'ContinuedAsNew')
    ));
  END IF;

  IF p_leaves THEN
    -- The update of the route did not reach these messages, because they carry the lock's token.
    UPDATE orchestrator_queue AS q
    SET lock_token = NULL, locked_until = NULL, attempt_count = 0,
        route = COALESCE((SELECT i.route FROM instances AS i WHERE i.instance_id = q.instance_id), q.route)
    FROM unnest(p_turns) AS turn
    CROSS JOIN LATERAL unnest(turn.left_ids) AS unread (id)
    WHERE q.id = unread.id
      AND q.instance_id IS NOT DISTINCT FROM turn.instance_id -- not "=": found by id, whatever the statistics say
      AND q.lock_token = turn.secret;
  END IF;

  IF p_requeues THEN
    -- Batches are in order of the ids, so these are negative: smaller than the ids of messages that wait, that were
    -- requeued before, or that another transaction is about to commit.
    INSERT INTO orchestrator_queue (id, instance_id, work_item, visible_at, created_at, route)
    SELECT
      -nextval('orchestrator_queue_id_seq'), unread.instance_id, unread.work_item, p_now, p_now, unread.route
    FROM (
      SELECT
        h.instance_id,
        -- As the sender wrote it: -> keeps the text of a value.
        '{"QueueMessage":{"instance":' || to_json(h.instance_id)::text
          || ',"name":' || (event.data -> 'name')::text
          || ',"data":' || (event.data -> 'data')::text || '}}' AS work_item,
        COALESCE(i.route, '') AS route
      FROM unnest(p_turns) WITH ORDINALITY AS turn
      CROSS JOIN LATERAL (SELECT DISTINCT requeued.id FROM unnest(turn.requeued) AS requeued (id)) AS wanted
      JOIN history AS h
        ON h.instance_id = turn.instance_id
        AND h.execution_id = turn.execution_id
        AND h.event_id = wanted.id
      CROSS JOIN LATERAL (SELECT h.event_data::json AS data) AS event
      LEFT JOIN instances AS i ON i.instance_id = h.instance_id
      WHERE turn.status = 'ContinuedAsNew' AND event.data ->> 'type' = 'ExternalEventPersistent'
      ORDER BY turn.ordinality, h.event_id DESC
    ) AS unread;
  END IF;
END
$$;
