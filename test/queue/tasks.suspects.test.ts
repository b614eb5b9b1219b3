/**
 * A task that ends its workers, and claims whose answers are lost: neither costs other tasks an attempt.
 */
import { assert, describe, it } from "@effect/vitest"
import { Database } from "duroxide-prisma/prisma"
import { ProviderError } from "duroxide-prisma/provider"
import { Outbox, PgQueue, Queue, QueueDatabase, Task, TaskWorker } from "duroxide-prisma/queue"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import { Crowd } from "../programs/outputs.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import { makeCalls, open, queues } from "./utils/tasks.ts"

const server = PgQueue.layer({ queues })

const withAttempts = (maxAttempts: number) => Task.make("Work", { retry: { maxAttempts }, lease: "30 seconds" })

interface Claimed {
  readonly out_outcome: string
  readonly out_id: string
  readonly out_attempt: number
}

/** Workers that claim everything that waits, one after the other, as their functions do it. */
const workers = (app: Effect.Success<ReturnType<typeof open>>) => {
  const claim = (worker: string) =>
    app.sql<Claimed>(
      `SELECT * FROM dx_claim_tasks(
         ARRAY(SELECT id FROM queue_tasks WHERE status IN ('Pending', 'Running') ORDER BY id), '[]', '{Work}', '{30000}', $1
       ) WHERE out_outcome = 'Claimed'`,
      [worker]
    )
  return {
    claim,
    die: app.sql("UPDATE queue_tasks SET lease_until = 0 WHERE status = 'Running'"),
    complete: ({ out_attempt, out_id }: Claimed) =>
      app.sql("SELECT dx_complete_tasks(ARRAY[$1::uuid], ARRAY[$2::integer], '{null}', '{false}', false)", [
        out_id,
        out_attempt
      ])
  }
}

describe("Tasks: one that ends its workers", () => {
  for (const [maxAttempts, count] of [[4, 10], [20, 10], [20, 200], [2, 10]] as const) {
    it.live(`is dead after a while, and ${count - 1} others are not, with ${maxAttempts} attempts`, () =>
      Effect.scoped(Effect.gen(function*() {
        const app = yield* open(server)
        const Work = withAttempts(maxAttempts)
        const [guilty] = yield* app.tasks.createMany(Work, Array.from({ length: count }, () => ({})))
        const { claim, complete, die } = workers(app)
        let deaths = 0
        while (true) {
          const claimed = yield* claim(`w${deaths}`)
          if (claimed.some(({ out_id }) => out_id === guilty)) {
            deaths++
            yield* die
          } else if (claimed.length > 0) yield* Effect.forEach(claimed, complete)
          else break
        }
        assert.deepStrictEqual(
          yield* app.sql("SELECT status, count(*)::int FROM queue_tasks GROUP BY 1 ORDER BY 1"),
          [{ status: "Completed", count: count - 1 }, { status: "Dead", count: 1 }]
        )
        // Five beside others, then as many as it may have.
        assert.strictEqual(deaths, 5 + maxAttempts)
      })))
  }

  it.live("does not run again if it may run once", () =>
    Effect.scoped(Effect.gen(function*() {
      const app = yield* open(server)
      const ids = yield* app.tasks.createMany(withAttempts(1), Array.from({ length: 3 }, () => ({})))
      const { claim, die } = workers(app)
      assert.lengthOf(yield* claim("first"), 3)
      yield* die
      assert.lengthOf(yield* claim("second"), 0)
      for (const id of ids) assert.strictEqual((yield* app.tasks.status(id))._tag, "Dead")
    })))

  it.live("dies with its processes until it is dead; nine others complete", () =>
    Effect.scoped(Effect.gen(function*() {
      const app = yield* open(server)
      const ids = yield* app.tasks.createMany(
        Crowd,
        Array.from({ length: 10 }, (_, n) => ({ payload: { isGuilty: n === 4 } }))
      )
      yield* Effect.forkScoped(Effect.forever(Effect.scoped(Effect.gen(function*() {
        const worker = yield* ChildProcess.start("crowdWorker", app.url)
        yield* worker.ended
      }))))
      yield* Effect.forEach(ids, (id) => Effect.exit(app.tasks.wait(Crowd, id)), { concurrency: "unbounded" })
      assert.deepStrictEqual(
        yield* app.sql("SELECT status, count(*)::int FROM queue_tasks GROUP BY 1 ORDER BY 1"),
        [{ status: "Completed", count: 9 }, { status: "Dead", count: 1 }]
      )
    })))
})

describe("Tasks: a claim whose answer is lost", () => {
  const away = (operation: string) =>
    Effect.fail(
      new ProviderError.ProviderError({ operation, reason: new ProviderError.ConnectionLost({ problem: "away" }) })
    )

  /** A worker that loses the first answers of an operation, after the database has done it. */
  const losing = (url: string, operation: string, answers: number, layers: {
    readonly queue: Layer.Layer<Queue.Queue, unknown, QueueDatabase.Services>
    readonly handlers: Layer.Layer<any>
    readonly task: Task.Any
  }) => {
    let left = answers
    const database = Layer.effect(
      Database.Database,
      Effect.map(Database.Database, (database) => ({
        ...database,
        query: <Row>(name: string, sql: Parameters<typeof database.query>[1]) =>
          Effect.flatMap(database.query<Row>(name, sql), (rows) => {
            const hasTasks = JSON.stringify(rows, (_, value) => typeof value === "bigint" ? 0 : value).includes("Work")
            if (name !== operation || !hasTasks || left === 0) return Effect.succeed(rows)
            left--
            return away(name)
          })
      }))
    )
    return Layer.build(
      (TaskWorker.layer({ tasks: [layers.task] }) as Layer.Layer<
        never,
        unknown,
        Queue.Queue | QueueDatabase.Services
      >).pipe(
        Layer.provide(layers.handlers),
        Layer.merge(Outbox.publisher()),
        Layer.provide(layers.queue),
        Layer.provide(database),
        Layer.provide(QueueDatabase.layer({ url, migrate: "none" })),
        Layer.provide(Logger.layer([]))
      )
    )
  }

  const Work = Task.make("Work", { payload: { n: Schema.Number }, retry: { maxAttempts: 1 } })

  /** A queue that is not known to be in the same database. */
  const elsewhere = Layer.effect(
    Queue.Queue,
    Effect.map(Queue.Queue, (queue) => ({
      ...queue,
      receive: (...args: Parameters<typeof queue.receive>) => queue.receive(...args)
    }))
  ).pipe(Layer.provide(server))

  const cases = [
    {
      title: "of tasks with their messages",
      operation: "takeTasks",
      queue: server,
      answers: 1,
      outcomes: ["GivenBack"]
    },
    { title: "of tasks, once", operation: "claimTasks", queue: elsewhere, answers: 1, outcomes: [] },
    { title: "of tasks, each time", operation: "claimTasks", queue: elsewhere, answers: 4, outcomes: ["GivenBack"] }
  ]
  for (const { answers, operation, outcomes, queue, title } of cases) {
    it.live(`${title}: costs no attempt, and all run once`, () =>
      Effect.scoped(Effect.gen(function*(): Effect.fn.Return<void, unknown, any> {
        const app = yield* open(server)
        const runs = makeCalls<number>()
        const ids = yield* app.tasks.createMany(Work, Array.from({ length: 5 }, (_, n) => ({ payload: { n } })))
        yield* losing(app.url, operation, answers, {
          queue,
          task: Work,
          handlers: Work.toLayer(({ n }) => runs.add(n))
        })
        yield* Effect.forEach(ids, (id) => app.tasks.wait(Work, id), { concurrency: "unbounded" })
        assert.deepStrictEqual([...runs.calls].sort((a, b) => a - b), [0, 1, 2, 3, 4])
        const all = yield* Effect.forEach(ids, app.outcomes)
        assert.isTrue(all.some((one) => one.length === outcomes.length + 1))
        for (const one of all) assert.notInclude(one, "Lost")
      })) as Effect.Effect<void, unknown>)
  }
})
