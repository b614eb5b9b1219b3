-- Whether this statement may notify: not under `SET duroxide.notify = off`, nor while more than half of the server's
-- queue of notifications is full. A notification then would fail the statement that stores the work.
--
-- Bound: none. Locks: none. PostgreSQL puts it into the statement that calls it.
CREATE OR REPLACE FUNCTION dx_may_notify() RETURNS boolean LANGUAGE sql VOLATILE
-- settings of the caller
AS $$
  SELECT current_setting('duroxide.notify', true) IS DISTINCT FROM 'off' AND pg_notification_queue_usage() <= 0.5
$$;
