-- Purpose: sets the route of rows that were inserted without one, by clients, by Duroxide, by hand, now and before;
-- notifies listeners of them and of rows that get a new time; deletes the streams of deleted instances.
-- Effect on running workers: rows of our own turns and results have their route, and our own statements are quiet. Those of
-- duroxide-pg wait until what is queued has its route, renewals as well: an adoption routes all but the newest rows before.

-- Excludes row locks, too: a claim of duroxide-pg that held one would wait for this transaction, and this one for it.
LOCK TABLE orchestrator_queue, worker_queue IN EXCLUSIVE MODE;

CREATE TRIGGER dx_route_message BEFORE INSERT ON orchestrator_queue
  FOR EACH ROW WHEN (NEW.route = '') EXECUTE FUNCTION dx_route_message();

CREATE TRIGGER dx_route_activity BEFORE INSERT ON worker_queue
  FOR EACH ROW WHEN (NEW.route = '') EXECUTE FUNCTION dx_route_activity();

-- Claims set visible_at only of rows that a step back of the clock has left in the future, which these announce.
CREATE TRIGGER dx_notify_moved_message AFTER UPDATE OF visible_at ON orchestrator_queue
  FOR EACH ROW WHEN (
    NEW.lock_token IS NULL
    AND NEW.visible_at <> OLD.visible_at
    AND NOT starts_with(NEW.route, '0.')
    AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on'
  )
  EXECUTE FUNCTION dx_notify_moved('orch_work');

-- Nor do they announce the activities to which they give a slot of a limit: they claim them.
CREATE TRIGGER dx_notify_moved_activity AFTER UPDATE OF visible_at ON worker_queue
  FOR EACH ROW WHEN (
    NEW.lock_token IS NULL
    AND NEW.visible_at <> OLD.visible_at
    AND (OLD.limit_name IS NULL OR OLD.visible_at < 'infinity')
    AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on'
  )
  EXECUTE FUNCTION dx_notify_moved('worker_work');

-- PostgreSQL parses a condition in each statement that reaches its trigger, which costs 1 microsecond for one comparison
-- and 3 for three, five times that where statements are rare. So a trigger that every turn reaches has one comparison as
-- its condition; its function makes the others.
CREATE TRIGGER dx_notify_free_slot AFTER DELETE ON worker_queue
  FOR EACH ROW WHEN (OLD.limit_name IS NOT NULL) EXECUTE FUNCTION dx_notify_free_slot();

CREATE TRIGGER dx_notify_free_instance_slot AFTER UPDATE OF status ON instances
  FOR EACH ROW WHEN (OLD.limit_name IS NOT NULL) EXECUTE FUNCTION dx_notify_free_instance_slot();
CREATE TRIGGER dx_notify_deleted_instance_slot AFTER DELETE ON instances
  FOR EACH ROW WHEN (OLD.limit_name IS NOT NULL) EXECUTE FUNCTION dx_notify_free_instance_slot();

-- Deletes the streams of a deleted instance, also if Duroxide deletes it: they are too big to be left behind.
CREATE TRIGGER dx_delete_streams AFTER DELETE ON instances REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION dx_delete_streams();

CREATE TRIGGER dx_notify_outbox AFTER INSERT ON queue_outbox
  FOR EACH STATEMENT WHEN (current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on')
  EXECUTE FUNCTION dx_notify_outbox();

-- What was queued before: by duroxide-pg, or by this package before a reset. No trigger has seen these rows, and no other
-- transaction writes any until this one ends. A message without an instance keeps its empty route: it waits for its start.
UPDATE worker_queue
SET route = dx_activity_route(work_item, tag, session_id)
WHERE route = '';

UPDATE orchestrator_queue
SET route = dx_message_route(instance_id, work_item)
WHERE route = '';
