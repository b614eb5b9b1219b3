/**
 * What happens to services at the worst moment: while a worker has a task.
 */
import { Data, Effect, Schedule } from "effect"
import type { Connections } from "../shared/databases.ts"
import type { Process } from "./processes.ts"

export class NothingShown extends Data.TaggedError("NothingShown")<{ readonly message: string }> {}

export interface Options {
  readonly state: Connections
  readonly data: Connections
  readonly workers: ReadonlyArray<Process>
  readonly say: (text: string) => Effect.Effect<void>
}

interface Running {
  readonly id: string
  readonly attempt: number
  readonly worker: string
}

/** Batches that one of the workers converts now. */
const tasksOf = (state: Connections, workers: ReadonlyArray<Process>) =>
  state.query<Running>(
    `SELECT id::text AS id, attempt, worker_id AS worker FROM queue_tasks
     WHERE status = 'Running' AND worker_id = ANY($1::text[]) AND name = 'ConvertBatch'`,
    [workers.map(({ pid }) => `platform_worker ${pid}`)]
  )

/** Waits until one of the workers has a task. */
const waitForTask = Effect.fnUntraced(function*({ state, workers }: Options) {
  const [task] = yield* appears(tasksOf(state, workers), "no worker has a task")
  return { task: task!, worker: workers.find(({ pid }) => task!.worker.endsWith(` ${pid}`))! }
})

/** SIGSTOP for a worker while it has a task: one that it would have ended meanwhile does not count. */
const pause = Effect.fnUntraced(function*(options: Options) {
  const { state } = options
  const paused = yield* Effect.gen(function*() {
    const { task, worker } = yield* waitForTask(options)
    yield* worker.pause
    // What it had sent may still be carried out; and a transaction that is open would keep the task locked.
    yield* Effect.sleep("100 millis")
    const held = yield* tasksOf(state, [worker])
    const open = yield* state.query(
      "SELECT FROM pg_stat_activity WHERE application_name = $1 AND xact_start IS NOT NULL",
      [`lite ${worker.pid}`]
    )
    if (open.length === 0 && held.some(({ attempt, id }) => id === task.id && attempt === task.attempt)) {
      return { task, worker }
    }
    yield* worker.resume
    return undefined
  }).pipe(Effect.repeat({ until: (paused) => paused !== undefined, times: 100 }))
  return paused ?? (yield* nothing("no worker could be paused while it had a task"))
})

/** SIGKILL for a worker while it has a task, and for the dispatcher; returns the worker. */
export const kill = Effect.fnUntraced(function*(options: Options, dispatcher: Process) {
  const { worker } = yield* pause(options)
  yield* Effect.all([worker.kill, dispatcher.kill], { concurrency: 2 })
  yield* options.say(`SIGKILL for the worker ${worker.pid}, which has a task, and for the dispatcher`)
  return worker
})

/**
 * SIGSTOP for a worker while it has a task, until another worker has completed the next attempt; then SIGCONT. The
 * worker now comes to the end of an attempt that is stale, and its commit is rejected.
 */
export const delay = Effect.fnUntraced(function*(options: Options) {
  const { data, say, state } = options
  const { task, worker } = yield* pause(options)
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
    Effect.repeat({ until: (rows) => rows.length > 0, schedule: Schedule.spaced("5 millis") }),
    Effect.timeoutOrElse({ duration: "30 seconds", orElse: () => nothing(problem) })
  )
