/**
 * What happens to services at the worst moment: while a worker has a task.
 */
import { Data, Effect, Schedule } from "effect"
import type { Connections } from "../shared/databases.ts"
import type { Process } from "./processes.ts"

export class NothingShown extends Data.TaggedError("NothingShown")<{ readonly message: string }> {}

interface Running {
  readonly id: string
  readonly attempt: number
}

/** The task that the worker has now, if any. */
const taskOf = (state: Connections, worker: Process) =>
  Effect.map(
    state.query<Running>(
      `SELECT id::text AS id, attempt FROM queue_tasks
       WHERE ended_at IS NULL AND status = 'Running' AND worker_id LIKE $1 AND name = 'ConvertBatch' LIMIT 1`,
      [`%${worker.pid}`]
    ),
    ([task]) => task
  )

const waitForTask = (state: Connections, worker: Process) =>
  taskOf(state, worker).pipe(
    Effect.repeat({ until: (task) => task !== undefined, schedule: Schedule.spaced("5 millis") }),
    Effect.timeoutOrElse({ duration: "30 seconds", orElse: () => nothing(`process ${worker.pid} receives no task`) }),
    Effect.map((task) => task!)
  )

/** SIGKILL for the worker as soon as it has a task, and for the dispatcher. */
export const kill = Effect.fnUntraced(function*(options: {
  readonly state: Connections
  readonly dispatcher: Process
  readonly worker: Process
  readonly say: (text: string) => Effect.Effect<void>
}) {
  const { dispatcher, say, state, worker } = options
  yield* waitForTask(state, worker)
  yield* Effect.all([worker.kill, dispatcher.kill], { concurrency: 2 })
  yield* say(`SIGKILL for the worker ${worker.pid}, which has a task, and for the dispatcher`)
})

/**
 * SIGSTOP for the worker while it has a task, until another worker has completed the next attempt; then SIGCONT. The worker
 * now comes to the end of an attempt that is stale, and its commit is rejected.
 */
export const delay = Effect.fnUntraced(function*(options: {
  readonly state: Connections
  readonly data: Connections
  readonly worker: Process
  readonly say: (text: string) => Effect.Effect<void>
}) {
  const { data, say, state, worker } = options
  const task = yield* Effect.gen(function*() {
    const { attempt, id } = yield* waitForTask(state, worker)
    yield* worker.pause
    // What it had sent may still be carried out; and a transaction that is open would keep the task locked.
    yield* Effect.sleep("100 millis")
    const now = yield* taskOf(state, worker)
    const open = yield* state.query(
      "SELECT FROM pg_stat_activity WHERE application_name LIKE $1 AND xact_start IS NOT NULL",
      [`%${worker.pid}`]
    )
    if (now?.id === id && now.attempt === attempt && open.length === 0) return now
    yield* worker.resume
    return undefined
  }).pipe(Effect.repeat({ until: (task) => task !== undefined, times: 100 }))
  if (task === undefined) return yield* nothing(`process ${worker.pid} could not be paused while it had a task`)
  yield* say(`SIGSTOP for the worker ${worker.pid}, which has attempt ${task.attempt} of a task`)
  yield* appears(
    state.query("SELECT FROM queue_tasks WHERE id = $1::uuid AND status = 'Completed'", [task.id]),
    "no other worker has completed the task of the one that is paused"
  )
  yield* worker.resume
  yield* appears(
    data.query("SELECT FROM stale_commits WHERE task_id = $1 AND attempt = $2", [task.id, task.attempt]),
    "the worker that was paused has not tried to commit"
  )
  yield* say(
    `SIGCONT after attempt ${task.attempt + 1} has completed: the commit of attempt ${task.attempt} is rejected`
  )
})

const nothing = (message: string) => Effect.fail(new NothingShown({ message }))

/** Waits for a row. */
const appears = <Row, E>(query: Effect.Effect<ReadonlyArray<Row>, E>, problem: string) =>
  query.pipe(
    Effect.repeat({ until: (rows) => rows.length > 0, schedule: Schedule.spaced("10 millis") }),
    Effect.timeoutOrElse({ duration: "30 seconds", orElse: () => nothing(problem) })
  )
