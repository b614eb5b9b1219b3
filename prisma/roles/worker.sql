-- The role of processes that run orchestrations, activities, queues and tasks, and of `Admin`: it reads and writes
-- rows, and changes no table, function or role. Histories and outcomes of attempts are written once and deleted, never
-- changed.
--
-- Run it as the owner of the tables or an administrator, after every migration. The one who runs it must be allowed to
-- create roles, or the role must exist.
--
-- "duroxide" is the schema; replace it and the name of the role by yours. Running the file again changes nothing.

DO $create$
BEGIN
  IF to_regrole('"duroxide_worker"') IS NULL THEN
    CREATE ROLE "duroxide_worker" NOLOGIN;
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
FROM "duroxide_worker";
GRANT USAGE ON SCHEMA "duroxide" TO "duroxide_worker";
GRANT SELECT, INSERT, UPDATE, DELETE ON
  "duroxide".instances,
  "duroxide".executions,
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
  "duroxide".kv_store,
  "duroxide".kv_delta,
  "duroxide".attributes,
  "duroxide".queue_messages,
  "duroxide".queue_dead,
  "duroxide".queue_outbox,
  "duroxide".queue_tasks,
  "duroxide".queue_dataset_versions,
  "duroxide".queue_dataset_batches,
  "duroxide".queue_listeners,
  "duroxide".schedules,
  "duroxide".schedule_runs
TO "duroxide_worker";
GRANT SELECT, INSERT, DELETE ON
  "duroxide".history,
  "duroxide".queue_task_attempts,
  "duroxide".queue_task_callers
TO "duroxide_worker";
GRANT SELECT, INSERT, UPDATE ON
  "duroxide".queue_datasets
TO "duroxide_worker";
-- What operators did can be added to, not changed.
GRANT SELECT, INSERT ON "duroxide".operator_actions TO "duroxide_worker";
-- The migrate mode verify looks whether the schema has the version of the code. Imports of SQLite files are the
-- owner's.
GRANT SELECT ON "duroxide"._prisma_migrations, "duroxide".sqlite_imports TO "duroxide_worker";
GRANT USAGE ON SEQUENCE
  "duroxide".orchestrator_queue_id_seq,
  "duroxide".worker_queue_id_seq,
  "duroxide".progress_streams_id_seq,
  "duroxide".queue_messages_id_seq,
  "duroxide".queue_outbox_id_seq,
  "duroxide".operator_actions_id_seq
TO "duroxide_worker";

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
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO "duroxide_worker"', v_name);
  END LOOP;
END
$grant$;

-- A grant by a role that may not pass a right on is only a warning.
DO $check$
BEGIN
  IF NOT has_schema_privilege(to_regrole('"duroxide_worker"'), '"duroxide"'::regnamespace, 'USAGE')
    OR NOT has_table_privilege(to_regrole('"duroxide_worker"'), '"duroxide".instances'::regclass, 'SELECT')
  THEN
    RAISE EXCEPTION 'role % may not grant rights on the schema and its tables', CURRENT_USER
      USING ERRCODE = 'insufficient_privilege', HINT = 'Run this as the owner of the tables, or as an administrator.';
  END IF;
END
$check$;
