-- Trigger: sets the route of a message that was inserted without one, makes it wait for a start that is not due yet,
-- and notifies listeners. A termination or an interruption does not wait: the start comes with it, and ends at once.
-- Messages to instances that Duroxide runs, which only its processes take, make no notification.
--
-- That it notifies here, for each row, costs our own inserts nothing: their rows have a route. A trigger for each
-- statement cost them 5 microseconds, and more for large rows (scripts/bench/measured.md).
--
-- Bound: as dx_message_route; before the first turn also the messages of the instance that are not due yet. Locks:
-- none; those of a start that is brought forward.
CREATE OR REPLACE FUNCTION dx_route_message() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
  v_begins_at timestamptz;
BEGIN
  NEW.route := dx_message_route(NEW.instance_id, NEW.work_item);
  IF NEW.work_item LIKE '{"StartOrchestration"%' OR NEW.work_item LIKE '{"ContinueAsNew"%' THEN
    IF NEW.visible_at <= NEW.created_at
      AND (
        SELECT q.id FROM orchestrator_queue AS q
        WHERE q.instance_id = NEW.instance_id AND q.due_at <= NEW.visible_at
        LIMIT 1
      ) IS NOT NULL
    THEN
      -- The message that begins an execution must be in its first batch, however many messages wait.
      NEW.id := -abs(NEW.id);
    END IF;
  ELSIF NEW.route <> ''
    AND (SELECT h.event_id FROM history AS h WHERE h.instance_id = NEW.instance_id LIMIT 1) IS NULL
  THEN
    v_begins_at := (
      SELECT max(q.due_at) FROM orchestrator_queue AS q
      WHERE q.instance_id = NEW.instance_id
        AND q.due_at > NEW.visible_at
        AND q.work_item LIKE '{"StartOrchestration"%'
    );
    IF v_begins_at IS NOT NULL
      AND (
        NEW.work_item LIKE '{"CancelInstance"%'
        OR NEW.work_item LIKE '{"QueueMessage"%"name":"duroxide-prisma/interrupt"%'
      )
    THEN
      UPDATE orchestrator_queue AS q SET visible_at = NEW.visible_at, created_at = NEW.visible_at
      WHERE q.instance_id = NEW.instance_id
        AND q.due_at > NEW.visible_at
        AND q.work_item LIKE '{"StartOrchestration"%';
    ELSIF v_begins_at IS NOT NULL THEN
      -- It arrives with the start, and does not wait from then on.
      NEW.visible_at := v_begins_at + interval '1 millisecond';
      NEW.created_at := NEW.visible_at;
    END IF;
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
