-- Gives messages of the future that are not to wait (due_at) the present time, among the next 100 of each route: the
-- clock was set back since they were stored. One that arrives with a start that is to wait stays.
--
-- Returns how many there were. Bound: 100 rows per route. Locks: these messages (skip locked).
CREATE OR REPLACE FUNCTION dx_bring_messages_forward(p_routes text[], p_now timestamptz) RETURNS integer
LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_count integer;
BEGIN
  UPDATE orchestrator_queue AS q SET visible_at = p_now
  WHERE q.id = ANY (ARRAY(
    SELECT free.id FROM unnest(p_routes) AS wanted (route)
    CROSS JOIN LATERAL (
      SELECT message.id, message.instance_id, message.due_at FROM orchestrator_queue AS message
      WHERE message.route = wanted.route AND message.visible_at > p_now
      ORDER BY message.visible_at, message.id LIMIT 100
    ) AS next
    CROSS JOIN LATERAL (
      SELECT message.id FROM orchestrator_queue AS message
      WHERE message.id = next.id
      FOR UPDATE SKIP LOCKED
    ) AS free
    WHERE next.due_at = '-infinity'
      -- Unless it arrives with a start that is to wait.
      AND (
        (SELECT h.event_id FROM history AS h WHERE h.instance_id = next.instance_id LIMIT 1) IS NOT NULL
        OR (
          SELECT start.id FROM orchestrator_queue AS start
          WHERE start.instance_id = next.instance_id
            AND start.due_at > p_now
            AND start.work_item LIKE '{"StartOrchestration"%'
          LIMIT 1
        ) IS NULL
      )
  ));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END
$$;
