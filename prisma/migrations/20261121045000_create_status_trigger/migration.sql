-- Purpose: sets the status of instances that others run, when they end and for those that have ended before; notifies
-- listeners of ends.
-- Effect on running workers: those of duroxide-pg store no turn while the statuses are set, but renew their locks; an
-- adoption sets all but the newest statuses before.

CREATE TRIGGER dx_set_status AFTER UPDATE OF status ON executions
  FOR EACH ROW WHEN (current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION dx_set_status();

-- A new execution runs, as its instance does, unless somebody inserts one that has ended. Our own inserts reach this
-- condition, too, so it is one comparison: see the triggers of the next migration.
CREATE TRIGGER dx_set_first_status AFTER INSERT ON executions
  FOR EACH ROW WHEN (NEW.status <> 'Running') EXECUTE FUNCTION dx_set_status();

-- The trigger has waited for the transactions that had written executions, and others wait until this one ends.
UPDATE instances AS i
SET status = dx_status(e.status, e.output)
FROM executions AS e
WHERE e.instance_id = i.instance_id
  AND e.execution_id = i.current_execution_id
  AND dx_status(e.status, e.output) <> i.status;
