-- Trigger: sets the route of a message that was inserted without one, makes it wait for a start that is not due yet, and
-- notifies listeners. Messages to instances that Duroxide runs, which only its processes take, make no notification.
--
-- That it notifies here, for each row, costs our own inserts nothing: their rows have a route. A trigger for each statement
-- cost them 5 microseconds, and more for large rows (scripts/bench/measured.md).
--
-- Bound: as dx_message_route; before the first turn also the messages of the instance that are not due yet. Locks:
-- none.
CREATE OR REPLACE FUNCTION dx_route_message()
RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
BEGIN
  NEW.route := dx_message_route(NEW.instance_id, NEW.work_item);
  IF NEW.work_item LIKE '{"StartOrchestration"%' OR NEW.work_item LIKE '{"ContinueAsNew"%' THEN
    IF NEW.visible_at <= NEW.created_at THEN
      -- The message that begins an execution must be in its first batch, however many messages wait.
      NEW.visible_at := least(
        NEW.visible_at,
        (
          SELECT min(q.visible_at)
          FROM orchestrator_queue AS q
          WHERE q.instance_id = NEW.instance_id
            AND q.lock_token IS NULL
        ) - interval '1 millisecond'
      );
    END IF;
  ELSIF NEW.route <> ''
    AND (SELECT h.event_id FROM history AS h WHERE h.instance_id = NEW.instance_id LIMIT 1) IS NULL
  THEN
    NEW.visible_at := COALESCE(
      (
        SELECT max(q.visible_at) + interval '1 millisecond'
        FROM orchestrator_queue AS q
        WHERE q.instance_id = NEW.instance_id
          AND q.visible_at > NEW.visible_at
          AND q.visible_at > q.created_at -- one that is not to wait may be of the future: the clock was set back
          AND q.work_item LIKE '{"StartOrchestration"%'
      ),
      NEW.visible_at
    );
  END IF;
  IF NEW.lock_token IS NULL
    AND NOT starts_with(NEW.route, '0.')
    AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on'
  THEN
    PERFORM dx_notify('orch_work', ARRAY[NEW.visible_at]);
  END IF;
  RETURN NEW;
END
$$;
