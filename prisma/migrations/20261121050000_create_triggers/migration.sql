-- Purpose: sets the route of rows that were inserted without one: by clients, by Duroxide, by hand; and notifies listeners
-- of work and ends that are stored by programs which do not announce them.
-- Effect on running workers: none; rows of our own turns and results have their route, and our own statements are quiet.
CREATE TRIGGER dx_route_message BEFORE INSERT ON orchestrator_queue
  FOR EACH ROW WHEN (NEW.route = '') EXECUTE FUNCTION dx_route_message();

CREATE TRIGGER dx_route_activity BEFORE INSERT ON worker_queue
  FOR EACH ROW WHEN (NEW.route = '') EXECUTE FUNCTION dx_route_activity();

-- A quiet statement pays for the look at its setting and for the copies of its rows, whose cost was measured
-- (scripts/bench/README.md).
CREATE TRIGGER dx_notify_messages AFTER INSERT ON orchestrator_queue REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT WHEN (current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on')
  EXECUTE FUNCTION dx_notify_work('orch_work');

CREATE TRIGGER dx_notify_activities AFTER INSERT ON worker_queue REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT WHEN (current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on')
  EXECUTE FUNCTION dx_notify_work('worker_work');

-- For each row, because a trigger with a list of columns cannot have a table of the new rows, and without the list it would
-- fire for every claim.
CREATE TRIGGER dx_notify_moved_message AFTER UPDATE OF visible_at ON orchestrator_queue
  FOR EACH ROW WHEN (
    NEW.lock_token IS NULL
    AND NEW.visible_at <> OLD.visible_at
    AND NEW.visible_at < 'infinity'
    AND NOT starts_with(NEW.route, '0.')
    AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on'
  )
  EXECUTE FUNCTION dx_notify_work('orch_work');

CREATE TRIGGER dx_notify_moved_activity AFTER UPDATE OF visible_at ON worker_queue
  FOR EACH ROW WHEN (
    NEW.lock_token IS NULL
    AND NEW.visible_at <> OLD.visible_at
    AND NEW.visible_at < 'infinity'
    AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on'
  )
  EXECUTE FUNCTION dx_notify_work('worker_work');

CREATE TRIGGER dx_notify_end AFTER UPDATE OF status ON executions
  FOR EACH ROW WHEN (
    NEW.status IN ('Completed', 'Failed')
    AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on'
  )
  EXECUTE FUNCTION dx_notify_end();
