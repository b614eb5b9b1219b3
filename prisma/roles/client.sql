-- The role of processes that start instances and tasks, send messages to them, cancel them and wait for them. It claims
-- and runs nothing, deletes no work, and has no right to write histories or locks. By SQL it can send any message,
-- though: also the completion of an activity, which a worker then stores as its result.
--
-- Run it as the owner of the tables or an administrator, after every migration. The one who runs it must be allowed to
-- create roles, or the role must exist.
--
-- "duroxide" is the schema; replace it and the name of the role by yours. Running the file again changes nothing.

DO $create$
BEGIN
  IF to_regrole('"duroxide_client"') IS NULL THEN
    CREATE ROLE "duroxide_client" NOLOGIN;
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
FROM "duroxide_client";
GRANT USAGE ON SCHEMA "duroxide" TO "duroxide_client";
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
TO "duroxide_client";

-- Starting instances, sending signals and cancellations.
GRANT INSERT ON
  "duroxide".instances,
  "duroxide".executions,
  "duroxide".attributes,
  "duroxide".orchestrator_queue
TO "duroxide_client";
-- Of an id that Duroxide has deleted, attributes are left.
GRANT UPDATE (text_value, number_value, time_value, created_at) ON "duroxide".attributes TO "duroxide_client";
-- A start comes before the messages that its id has already received. Claims need other columns.
GRANT UPDATE (route, visible_at, created_at) ON "duroxide".orchestrator_queue TO "duroxide_client";

-- Creating tasks, the outbox, publishing messages.
GRANT INSERT ON "duroxide".queue_tasks, "duroxide".queue_outbox, "duroxide".queue_messages TO "duroxide_client";
-- Waiting for tasks and cancelling them. An attempt, which has a number, cannot begin without another column.
GRANT UPDATE (
  status, error, worker_id, started_at, lease_until, heartbeat_at, look_at, unserved_at, has_slot, reply_instance_id,
  is_awaited, updated_at, ended_at
) ON "duroxide".queue_tasks TO "duroxide_client";
GRANT INSERT ON "duroxide".queue_task_attempts TO "duroxide_client";
GRANT DELETE ON "duroxide".queue_task_callers TO "duroxide_client";

-- Schedules: changing them, and starting what is due.
GRANT INSERT, UPDATE, DELETE ON "duroxide".schedules, "duroxide".schedule_runs TO "duroxide_client";

-- What operators did with a page that sends signals and interruptions.
GRANT INSERT ON "duroxide".operator_actions TO "duroxide_client";

GRANT USAGE ON SEQUENCE
  "duroxide".orchestrator_queue_id_seq,
  "duroxide".queue_messages_id_seq,
  "duroxide".queue_outbox_id_seq,
  "duroxide".operator_actions_id_seq
TO "duroxide_client";

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
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO "duroxide_client"', v_name);
  END LOOP;
END
$grant$;

-- A grant by a role that may not pass a right on is only a warning.
DO $check$
BEGIN
  IF NOT has_schema_privilege(to_regrole('"duroxide_client"'), '"duroxide"'::regnamespace, 'USAGE')
    OR NOT has_table_privilege(to_regrole('"duroxide_client"'), '"duroxide".instances'::regclass, 'SELECT')
  THEN
    RAISE EXCEPTION 'role % may not grant rights on the schema and its tables', CURRENT_USER
      USING ERRCODE = 'insufficient_privilege', HINT = 'Run this as the owner of the tables, or as an administrator.';
  END IF;
END
$check$;
