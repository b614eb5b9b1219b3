-- Puts the instances of an orchestration under its limit, which was set: those that run have a slot, and count; starts
-- that are queued and have not begun wait for a slot. A part of dx_set_limit. Announces it to all processes.
--
-- An instance whose turn or claim is stored at that moment is left out: another call puts it under the limit.
-- Bound: the running instances of the name, and the messages of its routes. Locks: instances, and the messages of those
-- that have not begun (skip locked).
CREATE OR REPLACE FUNCTION dx_limit_instances(p_name text, p_now timestamptz) RETURNS void LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_ids text[];
BEGIN
  UPDATE instances AS i SET limit_name = p_name, limit_key = COALESCE(i.limit_key, '')
  WHERE i.instance_id = ANY (ARRAY(
    SELECT running.instance_id FROM instances AS running
    WHERE running.status = 'Running'
      AND running.orchestration_name = p_name
      AND running.limit_name IS NULL
      AND running.route <> '' AND NOT starts_with(running.route, '0.') -- Duroxide runs those
    FOR UPDATE SKIP LOCKED
  ));

  v_ids := ARRAY(
    SELECT i.instance_id FROM dx_routes_of_messages() AS present
    CROSS JOIN LATERAL (
      SELECT message.id, message.instance_id FROM orchestrator_queue AS message
      WHERE message.route = present.route
        AND message.lock_token IS NULL
        AND message.work_item LIKE '{"StartOrchestration"%'
      OFFSET 0
    ) AS q
    JOIN instances AS i ON i.instance_id = q.instance_id
    JOIN orchestrator_queue AS start ON start.id = q.id
    WHERE regexp_replace(present.route, '^\S+ \S+ ', '') = p_name
      AND i.limit_name = p_name
      AND i.limit_route IS NULL
      AND i.status = 'Running'
      AND start.lock_token IS NULL
      AND (SELECT h.event_id FROM history AS h WHERE h.instance_id = i.instance_id LIMIT 1) IS NULL
    FOR UPDATE OF start, i SKIP LOCKED
  );
  IF v_ids <> '{}' THEN
    UPDATE instances AS i
    SET limit_route = i.route, route = '~' || i.route,
        limit_place = COALESCE(
          i.limit_place,
          (
            SELECT dx_limit_place(
              floor(extract(epoch FROM greatest(q.visible_at, q.created_at)) * 1000)::bigint, abs(q.id)
            )
            FROM orchestrator_queue AS q
            WHERE q.instance_id = i.instance_id AND q.work_item LIKE '{"StartOrchestration"%'
            LIMIT 1
          )
        )
    WHERE i.instance_id = ANY (v_ids);
    -- A claim moves those that another transaction has locked.
    UPDATE orchestrator_queue AS q SET route = '~' || q.route
    WHERE q.id = ANY (ARRAY(
      SELECT message.id FROM orchestrator_queue AS message
      WHERE message.instance_id = ANY (v_ids) AND message.lock_token IS NULL AND NOT starts_with(message.route, '~')
      FOR UPDATE SKIP LOCKED
    ));
  END IF;
  PERFORM dx_notify('orch_work', ARRAY[p_now]);
END
$$;
