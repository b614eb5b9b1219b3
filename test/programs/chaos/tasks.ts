// Tasks and messages of a chaos run. As in `definitions.ts`, results depend only on payloads.
import { Orchestration } from "duroxide-prisma"
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue } from "duroxide-prisma/prisma"
import { Consumer, Message } from "duroxide-prisma/queue"
import { Task, TaskWorker } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as pg from "pg"

/** Writes a line of JSON to the notes of the process. */
type Note = (line: object) => void

export const shortLease = "3 seconds"

/** Much longer than twice an outage of a short run. */
export const longLease = "20 seconds"

const retry = { maxAttempts: 100, schedule: Schedule.spaced("700 millis") }

// ---------------------------------------------------------------------------------------------------------------------
// definitions
// ---------------------------------------------------------------------------------------------------------------------

const fields = {
  /** Label of one creation, by which the audit finds the task. */
  label: Schema.String,
  n: Schema.Int,
  ms: Schema.Int
}

/**
 * Returns n + 1 after the given milliseconds. A job that `fails` does so in its first two attempts; one that is
 * `hopeless` fails and is not retried; one that `commits` writes a row of the application in the transaction that
 * completes it; one that is `raced` may be cancelled by the orchestration that called it.
 */
export const Job = Task.make("Job", {
  payload: { ...fields, kind: Schema.Literals(["plain", "fails", "hopeless", "commits", "raced"]) },
  success: Schema.Int,
  error: Schema.Literals(["not yet", "hopeless"]),
  lease: shortLease,
  retry: { ...retry, while: (failure) => failure !== "hopeless" }
})

/** One attempt, under a lease that no outage of a short run outlasts: n + 1. */
export const Once = Task.make("Once", {
  payload: fields,
  success: Schema.Int,
  lease: longLease,
  retry: { maxAttempts: 1 }
})

/** Runs beside a `TaskPill`, with few attempts: n + 1. */
export const Neighbour = Task.make("Neighbour", {
  payload: fields,
  success: Schema.Int,
  lease: shortLease,
  retry: { ...retry, maxAttempts: 4 }
})

/** Kills every process that runs it. */
export const TaskPill = Task.make("TaskPill", {
  payload: fields,
  lease: shortLease,
  retry: { ...retry, maxAttempts: 4 }
})

/** Asks one process, by its name, whether it still takes tasks. */
export const PingTask = (process: string) =>
  Task.make(`Ping ${process}`, { payload: fields, success: Schema.Int, lease: shortLease, retry })

/**
 * Runs jobs, one for each round and execution: n + rounds. Beside each it starts one that a timeout interrupts at about
 * the time at which it ends.
 */
export const Errand = Orchestration.make("Errand", {
  payload: { n: Schema.Int, rounds: Schema.Int },
  success: Schema.Int
})

/** An order was placed, in the transaction that wrote its row. */
export const OrderPlaced = Message.make("order_placed", { order_id: Schema.String })

// ---------------------------------------------------------------------------------------------------------------------
// handlers
// ---------------------------------------------------------------------------------------------------------------------

/** A pool of the application. */
export const applicationPool = (url: string): pg.Pool => {
  const pool = new pg.Pool({ connectionString: url, max: 4 })
  pool.on("error", () => {}) // an idle connection was cut
  pool.on("connect", (client) => void client.on("error", () => {})) // the statement under way fails
  return pool
}

/** Runs `work` in a transaction of the application. */
export const transaction = (pool: pg.Pool, work: (client: pg.PoolClient) => Promise<void>, end = "COMMIT") =>
  Effect.tryPromise(async () => {
    const client = await pool.connect()
    try {
      await client.query("BEGIN")
      await work(client)
      await client.query(end)
      client.release()
    } catch (error) {
      client.release(true)
      throw error
    }
  })

const raceMs = 300

export const ErrandLive = Errand.toLayer(Effect.fn(function*({ n, rounds }) {
  if (rounds === 0) return n
  const { instanceId } = yield* Orchestration.Instance
  const label = `${instanceId}:${rounds}`
  const key = rounds % 3 === 0 ? { key: label } : {}
  const [next] = yield* Effect.orDie(Effect.all([
    Job.execute({ label, n, ms: 10, kind: rounds % 3 === 1 ? "fails" : "plain" }, key),
    Effect.timeoutOption(
      Job.execute({ label: `${label}:raced`, n, ms: raceMs, kind: "raced" }),
      raceMs + ((n + rounds) % 5) * 20
    )
  ], { concurrency: "unbounded" }))
  return yield* Errand.continueAsNew({ n: next, rounds: rounds - 1 })
}))

export const queues = PgQueue.layer({ queues: { tasks: {}, orders: {} } })

/** Serves the tasks of a process, among them its ping. */
export const worker = (note: Note, pool: pg.Pool, process: string) => {
  const ping = PingTask(process)
  const noted = <A, E>(
    { label, ms }: { readonly label: string; readonly ms: number },
    work: Effect.Effect<A, E, Task.Attempt>
  ) =>
    Effect.gen(function*() {
      const { attempt, taskId, taskName } = yield* Task.Attempt
      const line = { task: taskId, name: taskName, label, attempt }
      note({ event: "taskBegin", ...line })
      yield* Effect.sleep(ms)
      const result = yield* work
      note({ event: "taskEnd", ...line })
      return result
    })
  const addsOne = (payload: { readonly label: string; readonly n: number; readonly ms: number }) =>
    noted(payload, Effect.succeed(payload.n + 1))
  const handlers = Layer.mergeAll(
    Job.toLayer((payload) =>
      noted(
        payload,
        Effect.gen(function*() {
          const attempt = yield* Job.attempt
          const { kind, label, n } = payload
          if (kind === "hopeless") return yield* Effect.fail("hopeless" as const)
          if (kind === "fails" && attempt.attempt <= 2) return yield* Effect.fail("not yet" as const)
          if (kind !== "commits") return n + 1
          yield* Effect.orDie(transaction(pool, async (client) => {
            await client.query("INSERT INTO chaos.paid (label) VALUES ($1)", [label])
            await Effect.runPromise(attempt.commit(client, n + 1))
          }))
          return n + 1
        })
      )
    ),
    Once.toLayer(addsOne),
    Neighbour.toLayer(addsOne),
    ping.toLayer(addsOne),
    TaskPill.toLayer((payload) =>
      noted(payload, Effect.sync(() => void globalThis.process.kill(globalThis.process.pid, "SIGKILL")))
    )
  )
  return TaskWorker.layer({ tasks: [Job, Once, Neighbour, ping, TaskPill] }).pipe(Layer.provide(handlers))
}

/** Ships each order once: the first delivery writes the row, others find it. */
export const consumer = (note: Note, pool: pg.Pool) =>
  Consumer.layer({
    queue: "orders",
    visibilityTimeout: shortLease,
    handlers: [
      Consumer.on(OrderPlaced, ({ order_id }) =>
        Effect.gen(function*() {
          note({ event: "delivered", order: order_id })
          yield* Effect.tryPromise(() =>
            pool.query(
              `WITH first AS (INSERT INTO chaos.shipped (order_id) VALUES ($1) ON CONFLICT DO NOTHING RETURNING order_id)
               INSERT INTO chaos.parcels (order_id) SELECT order_id FROM first`,
              [order_id]
            )
          )
        }))
    ]
  })

export const publisher = Outbox.publisher({ lease: shortLease })
