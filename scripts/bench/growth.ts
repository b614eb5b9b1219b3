/** What G puts into our tables before it measures. */

/** Instances that wait for a signal: a row each in `instances` and `executions`, and two events. */
export const waiting = (count: number) => [...instances(count, "Running"), ...analyze]

/** Instances that have completed, as above. */
export const ended = (count: number) => [...instances(count, "Completed"), ...analyze]

/** Timers of one day and more, of a tenth as many waiting instances. */
export const timers = (count: number) => [
  ...instances(count / 10, "Running"),
  `INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
   SELECT 'old-' || n % ${count / 10},
     json_build_object('TimerFired', json_build_object('instance', 'old-' || n % ${
    count / 10
  }, 'execution_id', 1, 'id', n,
       'fire_at_ms', 4102444800000))::text,
     now() + interval '1 day' + n * interval '1 second', now()
   FROM generate_series(1, ${count}) AS n`,
  ...analyze
]

// internal

const instances = (count: number, status: "Running" | "Completed") => [
  `INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at)
   SELECT 'old-' || n, 'Flow', '1.0.0', now(), now() FROM generate_series(1, ${count}) AS n`,
  `INSERT INTO executions (instance_id, execution_id, status, started_at, completed_at, duroxide_version_major,
     duroxide_version_minor, duroxide_version_patch)
   SELECT 'old-' || n, 1, '${status}', now(), ${status === "Running" ? "NULL" : "now()"}, 1000, 1, 0
   FROM generate_series(1, ${count}) AS n`,
  `INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
   SELECT 'old-' || n, 1, e, 'ExternalSubscribed', repeat('x', 200), now()
   FROM generate_series(1, ${count}) AS n, generate_series(1, 2) AS e`
]

/** The load itself must not be written to disk during the measurement. */
const analyze = ["VACUUM ANALYZE", "CHECKPOINT"]
