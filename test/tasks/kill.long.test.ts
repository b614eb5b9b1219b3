/**
 * Workers that are killed at every boundary, and zombies that are stopped and come back.
 */
import { assert, describe, it } from "@effect/vitest"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Tasks } from "duroxide-prisma/tasks"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { Output } from "../programs/outputs.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const open = Effect.gen(function*() {
  const test = yield* PgServer.database
  yield* test.sql("CREATE TABLE outputs (task_id uuid, attempt integer)")
  const services = yield* Layer.build(
    Tasks.layer.pipe(
      Layer.provideMerge(PrismaProvider.layerDatabase({ url: test.url, migrate: "none" })),
      Layer.provide(Logger.layer([]))
    )
  )
  return { ...test, tasks: Context.get(services, Tasks.Tasks) }
})

/**
 * Each task was completed once, by its newest attempt; no message of the outbox is unsent, and outputs are those
 * results.
 */
const assertOnce = Effect.fnUntraced(function*({ sql }: PgServer.TestDatabase, count: number) {
  assert.deepStrictEqual(
    yield* sql("SELECT status, count(*)::int AS count FROM queue_tasks GROUP BY 1"),
    [{ status: "Completed", count }]
  )
  // The row has the attempt that completed it; each former one has a record of how it ended.
  assert.deepStrictEqual(
    yield* sql(`SELECT FROM queue_tasks AS t
      WHERE t.result <> t.attempt::text
        OR ARRAY(
          SELECT a.attempt FROM queue_task_attempts AS a WHERE a.task_id = t.id AND a.outcome <> 'Completed' ORDER BY 1
        ) <> ARRAY(SELECT generate_series(1, t.attempt - 1))`),
    []
  )
  assert.deepStrictEqual(
    yield* sql(`SELECT FROM queue_tasks AS t
      WHERE t.payload::json ->> 'isTransaction' = 'true'
        AND ARRAY(SELECT o.attempt FROM outputs AS o WHERE o.task_id = t.id) <> ARRAY[t.attempt]`),
    []
  )
  yield* waitUntil(Effect.map(
    sql("SELECT FROM queue_outbox WHERE sent_at IS NULL AND deliver_at <= now()"),
    ({ length }) => length === 0
  ))
})

const boundaries = [
  { boundary: "received", isTransaction: false, attempt: 1 },
  { boundary: "claimed", isTransaction: false, attempt: 2 },
  { boundary: "handler", isTransaction: false, attempt: 2 },
  { boundary: "settling", isTransaction: false, attempt: 2 },
  { boundary: "settled", isTransaction: false, attempt: 1 },
  { boundary: "transaction", isTransaction: true, attempt: 2 },
  { boundary: "committed", isTransaction: true, attempt: 1 }
]

describe.concurrent("Tasks: a worker killed", () => {
  for (const { attempt, boundary, isTransaction } of boundaries) {
    it.live(`at the boundary "${boundary}": the task is completed once`, () =>
      Effect.scoped(Effect.gen(function*() {
        const app = yield* open
        const victim = yield* ChildProcess.start("taskWorker", app.url, boundary)
        yield* victim.printed("ready")
        const id = yield* app.tasks.create(Output, { payload: { isTransaction } })
        yield* victim.printed(`reached ${boundary}`)
        const survivor = yield* ChildProcess.start("taskWorker", app.url)
        yield* survivor.printed("ready")
        yield* victim.kill
        const result = yield* app.tasks.wait(Output, id)
        // The victim may have lost several before the survivor was ready.
        if (attempt === 1) assert.strictEqual(result, 1)
        else assert.isAtLeast(result, attempt)
        yield* assertOnce(app, 1)
        // The wake-up is not left behind either.
        yield* waitUntil(Effect.map(app.sql("SELECT FROM queue_messages"), ({ length }) => length === 0))
        assert.strictEqual(yield* survivor.stop, 0)
      })))
  }
})

describe("Tasks: workers stopped and killed", () => {
  it.live(
    "a process that is stopped past its leases and continued commits nothing",
    () =>
      Effect.scoped(Effect.gen(function*() {
        const app = yield* open
        const zombie = yield* ChildProcess.start("taskWorker", app.url, "none")
        yield* zombie.printed("ready")
        process.kill(zombie.pid, "SIGSTOP")
        const ids = yield* app.tasks.createMany(
          Output,
          Array.from({ length: 40 }, (_, i) => ({ payload: { isTransaction: i % 2 === 0 } }))
        )
        // What it would have claimed before it was stopped.
        yield* app.sql(`SELECT FROM dx_claim_tasks(
        (SELECT array_agg((payload ->> 'task_id')::uuid) FROM queue_outbox), '{Output}', '{1000}', 'the stopped process'
      )`)
        const survivor = yield* ChildProcess.start("taskWorker", app.url, "none")
        yield* survivor.printed("ready")
        yield* Effect.forEach(ids, (id) => app.tasks.wait(Output, id), { concurrency: "unbounded" })
        process.kill(zombie.pid, "SIGCONT")
        const refused = yield* app.sql<{ outcomes: ReadonlyArray<string> }>(
          `SELECT dx_complete_tasks(
             array_agg(id), array_agg(1), array_agg('null'::text), array_agg(false), false
           ) AS outcomes FROM queue_tasks`
        )
        assert.deepStrictEqual([...new Set(refused[0]!.outcomes)], ["Stale"])
        yield* assertOnce(app, 40)
      }))
  )

  it.live(
    "four workers, killed one after another, complete each of 2,000 tasks once",
    () =>
      Effect.scoped(Effect.gen(function*() {
        const count = 2000
        const app = yield* open
        const spawn = ChildProcess.start("taskWorker", app.url, "none", "25")
        const workers = yield* Effect.all([spawn, spawn, spawn, spawn], { concurrency: "unbounded" })
        yield* Effect.forEach(workers, (worker) => worker.printed("ready"))
        yield* app.tasks.createMany(
          Output,
          Array.from({ length: count }, (_, i) => ({ payload: { isTransaction: i % 20 === 0 } }))
        )
        const completed = Effect.map(
          app.sql<{ count: number }>("SELECT count(*)::int AS count FROM queue_tasks WHERE status = 'Completed'"),
          ([row]) => row!.count
        )
        for (const [i, part] of [0.2, 0.4, 0.6].entries()) {
          yield* waitUntil(Effect.map(completed, (done) => done >= count * part))
          yield* workers[i]!.kill
        }
        yield* waitUntil(Effect.map(completed, (done) => done === count))
        yield* assertOnce(app, count)
        const [lost] = yield* app.sql<{ count: number }>(
          "SELECT count(*)::int AS count FROM queue_task_attempts WHERE outcome = 'Lost'"
        )
        assert.isAbove(lost!.count, 0, "no kill interrupted anything: the test showed nothing")
      }))
  )
})
