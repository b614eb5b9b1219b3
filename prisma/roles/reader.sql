-- The role of people, dashboards and exporters that look and never write. It reads payloads, results and errors.
--
-- Run it as the owner of the tables or an administrator, after every migration. The one who runs it must be allowed to
-- create roles, or the role must exist.
--
-- "duroxide" is the schema; replace it and the name of the role by yours. Running the file again changes nothing.

DO $create$
BEGIN
  IF to_regrole('"duroxide_reader"') IS NULL THEN
    CREATE ROLE "duroxide_reader" NOLOGIN;
  END IF;
END
$create$;

-- What is not granted below is taken away, also what an earlier release needed.
REVOKE ALL ON
  "duroxide".instances,
  "duroxide".executions,
  "duroxide".history,
  "duroxide".orchestrator_queue,
  "duroxide".worker_queue,
  "duroxide".instance_locks,
  "duroxide".sessions,
  "duroxide".blocked_instances,
  "duroxide".removed_events,
  "duroxide".progress_streams,
  "duroxide".progress_chunks,
  "duroxide".processes,
  "duroxide".paused,
  "duroxide".limits,
  "duroxide".limit_keys,
  "duroxide".operator_actions,
  "duroxide".kv_store,
  "duroxide".kv_delta,
  "duroxide".attributes,
  "duroxide".queue_messages,
  "duroxide".queue_dead,
  "duroxide".queue_outbox,
  "duroxide".queue_tasks,
  "duroxide".queue_task_attempts,
  "duroxide".queue_task_callers,
  "duroxide".queue_datasets,
  "duroxide".queue_dataset_versions,
  "duroxide".queue_dataset_batches,
  "duroxide".queue_listeners,
  "duroxide".schedules,
  "duroxide".schedule_runs,
  "duroxide".sqlite_imports,
  "duroxide"._prisma_migrations
FROM "duroxide_reader";
GRANT USAGE ON SCHEMA "duroxide" TO "duroxide_reader";
GRANT SELECT ON
  "duroxide".instances,
  "duroxide".executions,
  "duroxide".history,
  "duroxide".orchestrator_queue,
  "duroxide".worker_queue,
  "duroxide".instance_locks,
  "duroxide".sessions,
  "duroxide".blocked_instances,
  "duroxide".removed_events,
  "duroxide".progress_streams,
  "duroxide".progress_chunks,
  "duroxide".processes,
  "duroxide".paused,
  "duroxide".limits,
  "duroxide".limit_keys,
  "duroxide".operator_actions,
  "duroxide".kv_store,
  "duroxide".kv_delta,
  "duroxide".attributes,
  "duroxide".queue_messages,
  "duroxide".queue_dead,
  "duroxide".queue_outbox,
  "duroxide".queue_tasks,
  "duroxide".queue_task_attempts,
  "duroxide".queue_task_callers,
  "duroxide".queue_datasets,
  "duroxide".queue_dataset_versions,
  "duroxide".queue_dataset_batches,
  "duroxide".queue_listeners,
  "duroxide".schedules,
  "duroxide".schedule_runs,
  "duroxide".sqlite_imports,
  "duroxide"._prisma_migrations
TO "duroxide_reader";

-- A function has the rights of its caller, so that calling one adds none. PUBLIC may call them unless your server says
-- otherwise.
DO $grant$
DECLARE
  v_name text;
BEGIN
  FOR v_name IN
    SELECT p.oid::regprocedure::text
    FROM pg_proc AS p
    WHERE p.pronamespace = '"duroxide"'::regnamespace
      AND starts_with(p.proname, 'dx_')
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO "duroxide_reader"', v_name);
  END LOOP;
END
$grant$;

-- A grant by a role that may not pass a right on is only a warning.
DO $check$
BEGIN
  IF NOT has_schema_privilege(to_regrole('"duroxide_reader"'), '"duroxide"'::regnamespace, 'USAGE')
    OR NOT has_table_privilege(to_regrole('"duroxide_reader"'), '"duroxide".instances'::regclass, 'SELECT')
  THEN
    RAISE EXCEPTION 'role % may not grant rights on the schema and its tables', CURRENT_USER
      USING ERRCODE = 'insufficient_privilege', HINT = 'Run this as the owner of the tables, or as an administrator.';
  END IF;
END
$check$;
