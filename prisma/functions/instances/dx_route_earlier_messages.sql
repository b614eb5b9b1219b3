-- Gives messages that arrived before their start the route of their instance; with a start that is to wait, its time,
-- too. A part of dx_store_starts and dx_store_messages, after the starts are stored.
--
-- Bound: the queued messages of these instances. Locks: those that have another route (skip locked).
CREATE OR REPLACE FUNCTION dx_route_earlier_messages(
  p_instance_ids text[],
  p_visible_at timestamptz[],      -- of their starts; null: none is to wait
  p_now timestamptz
) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_start record;
BEGIN
  -- Start by start, as few have any: a join, planned while the queue was empty, reads the whole queue for each message.
  FOR v_start IN
    SELECT s.instance_id, s.visible_at, s.route
    FROM (
      SELECT start.*, (SELECT i.route FROM instances AS i WHERE i.instance_id = start.instance_id) AS route
      FROM unnest(p_instance_ids, p_visible_at) AS start (instance_id, visible_at)
    ) AS s
    WHERE (
      SELECT q.id FROM orchestrator_queue AS q WHERE q.instance_id = s.instance_id AND q.route <> s.route LIMIT 1
    ) IS NOT NULL
  LOOP
    UPDATE orchestrator_queue AS q
    SET route = v_start.route,
        -- With a start that is to wait. Others keep their times, by which an ack finds the rows of a claimed batch.
        visible_at = CASE
          WHEN q.lock_token IS NULL AND v_start.visible_at > greatest(p_now, q.due_at)
            THEN v_start.visible_at + interval '1 millisecond'
          ELSE q.visible_at
        END,
        created_at = CASE
          WHEN q.lock_token IS NULL AND v_start.visible_at > greatest(p_now, q.due_at)
            THEN v_start.visible_at + interval '1 millisecond'
          ELSE q.created_at
        END
    WHERE q.id = ANY (ARRAY(
      SELECT message.id FROM orchestrator_queue AS message
      WHERE message.instance_id = v_start.instance_id AND message.route <> v_start.route
      FOR UPDATE SKIP LOCKED
    ));
  END LOOP;
END
$$;
