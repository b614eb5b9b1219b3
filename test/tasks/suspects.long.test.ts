/**
 * A task that ends its workers, and claims whose answers are lost: neither costs other tasks an attempt.
 */
import { assert, describe, it } from "@effect/vitest"
import { Outbox } from "duroxide-prisma/outbox"
import { Database, PgQueue, PrismaDriver, PrismaProvider } from "duroxide-prisma/prisma"
import { ProviderError } from "duroxide-prisma/provider"
import { Queue } from "duroxide-prisma/queue"
import { Task, TaskWorker } from "duroxide-prisma/tasks"
import type { TaskDriver } from "duroxide-prisma/tasks"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as claimings from "../../src/tasks/internal/claiming.ts"
import { Crowd } from "../programs/outputs.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import { gate, makeCalls, open, queues } from "./utils/tasks.ts"

const server = PgQueue.layer({ queues })

/** A queue that is not known to be in the same database. */
const elsewhere = Layer.effect(
  Queue.Queue,
  Effect.map(Queue.Queue, (queue) => ({
    ...queue,
    receive: (...args: Parameters<typeof queue.receive>) => queue.receive(...args)
  }))
).pipe(Layer.provide(server))

/** A worker each of whose statements goes through `send`. */
const workerBy = (url: string, options: {
  readonly queue: Layer.Layer<Queue.Queue, unknown, PrismaProvider.DatabaseServices>
  readonly handlers: Layer.Layer<any>
  readonly task: Task.Any
  readonly concurrency?: number
  readonly send?: (
    operation: string,
    statement: Effect.Effect<ReadonlyArray<unknown>, ProviderError.ProviderError>
  ) => Effect.Effect<ReadonlyArray<unknown>, ProviderError.ProviderError>
}): Effect.Effect<unknown, unknown, any> => {
  const { concurrency, handlers, queue, send = (_, statement) => statement, task } = options
  const database = Layer.effect(
    Database.Database,
    Effect.map(Database.Database, (database) => ({
      ...database,
      query: <Row>(name: string, sql: Parameters<typeof database.query>[1]) =>
        send(name, database.query<Row>(name, sql)) as Effect.Effect<ReadonlyArray<Row>, ProviderError.ProviderError>
    }))
  )
  return Layer.build(
    (TaskWorker.layer({ tasks: [task], concurrency }) as Layer.Layer<
      never,
      unknown,
      Queue.Queue | PrismaProvider.DatabaseServices
    >).pipe(
      Layer.provide(handlers),
      Layer.merge(Outbox.publisher()),
      Layer.provide(queue),
      Layer.provide(Layer.provideMerge(PrismaDriver.layerTasks(), database)),
      Layer.provide(PrismaProvider.layerDatabase({ url, migrate: "none" })),
      Layer.provide(Logger.layer([]))
    )
  )
}

const failing = (operation: string, reason: ProviderError.Reason) =>
  Effect.fail(new ProviderError.ProviderError({ operation, reason }))

const away = new ProviderError.ConnectionLost({ problem: "away" })

const Work = Task.make("Work", { payload: { n: Schema.Number }, retry: { maxAttempts: 1 } })

const work = (count: number) => Array.from({ length: count }, (_, n) => ({ payload: { n } }))

const test = <E>(title: string, body: Effect.Effect<void, E, any>) =>
  it.live(title, () => Effect.scoped(body) as Effect.Effect<void, E>)

/** Their wake-ups are in the queue, so that one receive gets them all. */
const published = Effect.fnUntraced(function*(app: Effect.Success<ReturnType<typeof open>>, count: number) {
  const publisher = yield* app.publisher
  yield* waitUntil(Effect.map(app.sql("SELECT FROM queue_messages"), ({ length }) => length === count))
  yield* publisher.stop
})

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
         ARRAY(SELECT id FROM queue_tasks WHERE status IN ('Pending', 'Running') ORDER BY id), '{Work}', '{30000}', $1
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

describe.concurrent("Tasks: one that ends its workers", () => {
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

describe("Tasks: suspects", () => {
  /** Makes suspects of tasks, as lost workers would. No sweep wakes them. */
  const suspect = (app: Effect.Success<ReturnType<typeof open>>, ids: ReadonlyArray<string>, lost: number) =>
    app.sql(
      "UPDATE queue_tasks SET lost = $2, max_attempts = 20, look_at = look_at + interval '1 hour' WHERE id = ANY ($1::uuid[])",
      [ids, lost]
    )

  test(
    "others of their set begin while the suspects are being claimed",
    Effect.gen(function*() {
      const app = yield* open(server)
      const runs = makeCalls<number>()
      const [other, ...ids] = yield* app.tasks.createMany(Work, work(3))
      yield* suspect(app, ids, 2)
      yield* published(app, 3)
      const begun = gate()
      let claims = 0
      yield* workerBy(app.url, {
        queue: elsewhere,
        task: Work,
        handlers: Work.toLayer(({ n }) => runs.add(n)),
        send: (operation, statement) =>
          operation === "claimTasks" && ++claims === 2 ? Effect.andThen(begun.await, statement) : statement
      })
      yield* app.tasks.wait(Work, other!)
      assert.deepStrictEqual(runs.calls, [0])
      yield* begun.open
      yield* Effect.forEach(ids, (id) => app.tasks.wait(Work, id))
    })
  )

  test(
    "the end of one lets the next one begin at once",
    Effect.gen(function*() {
      const app = yield* open(server)
      const runs = makeCalls<number>()
      const end = gate()
      const ids = yield* app.tasks.createMany(Work, work(4))
      yield* suspect(app, ids, 5)
      yield* published(app, 4)
      yield* workerBy(app.url, {
        queue: server,
        task: Work,
        handlers: Work.toLayer(({ n }) => Effect.andThen(runs.add(n), end.await))
      })
      yield* runs.until(1)
      // The others come again in a few seconds, or rather in an hour.
      let left = 3
      yield* waitUntil(Effect.map(
        app.sql(
          `UPDATE queue_messages SET visible_at = visible_at + interval '1 hour'
           WHERE extract(epoch FROM visible_at - clock_timestamp()) BETWEEN 3 AND 20 RETURNING id`
        ),
        ({ length }) => (left -= length) === 0
      ))
      assert.lengthOf(runs.calls, 1)
      yield* end.open
      yield* Effect.forEach(ids, (id) => app.tasks.wait(Work, id))
      assert.lengthOf(runs.calls, 4)
    })
  )

  it.effect("those that are postponed come again in turn, when others have ended or have proved themselves", () =>
    Effect.scoped(Effect.gen(function*() {
      const recalled: Array<string> = []
      const claimed = (id: string, lost: number) => ({ outcome: "Claimed", id, attempt: 1, lost }) as TaskDriver.Claimed
      const claiming = yield* claimings.make({
        serves: { names: ["Work"], leaseMs: [30_000], workerId: "w" },
        topics: { announce: () => Effect.void, subscribe: () => Effect.void, isConnected: () => true },
        driver: {
          claim: (taskIds: ReadonlyArray<string>) =>
            Effect.succeed(taskIds.map((taskId) => claimed(taskId, Number(taskId.slice(1)))))
        } as never,
        watch: () => (claim) => claim
      })
      const postponed = (name: string, lost: number, delay: Duration.Input = "1 hour") => {
        const recall = Effect.sync(() => void recalled.push(name))
        claiming.postponed({ lost, delay: Duration.fromInputUnsafe(delay), recall })
      }
      // Five losses: alone for 320 seconds.
      yield* claiming.claimSuspects(["a5"])
      postponed("of a minute", 5, "1 minute")
      postponed("first", 5)
      postponed("second", 3)
      yield* TestClock.adjust("319 seconds")
      assert.deepStrictEqual(recalled, [])
      yield* TestClock.adjust("2 seconds")
      // The second one is not beside the first.
      assert.deepStrictEqual(recalled, ["first"])
      yield* claiming.claimSuspects(["b5"])
      claiming.release(claimed("b5", 5))
      yield* TestClock.adjust(0)
      assert.deepStrictEqual(recalled, ["first", "second"])
      // There is room again when it comes.
      postponed("late", 2)
      yield* TestClock.adjust(0)
      assert.deepStrictEqual(recalled, ["first", "second", "late"])
    })))

  test(
    "a set that fails because of one of them: the others run",
    Effect.gen(function*() {
      const app = yield* open(server)
      const runs = makeCalls<number>()
      const ids = yield* app.tasks.createMany(Work, work(4))
      yield* suspect(app, ids, 2)
      yield* app.sql(
        `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no' USING ERRCODE = '22000'; END $$;
         CREATE TRIGGER fail BEFORE UPDATE OF started_at ON queue_tasks FOR EACH ROW
         WHEN (NEW.id = '${ids[1]}') EXECUTE FUNCTION fail()`
      )
      yield* published(app, 4)
      yield* workerBy(app.url, { queue: server, task: Work, handlers: Work.toLayer(({ n }) => runs.add(n)) })
      for (const i of [0, 2, 3]) yield* app.tasks.wait(Work, ids[i]!)
      assert.deepStrictEqual([...runs.calls].sort((a, b) => a - b), [0, 2, 3])
    })
  )

  test(
    "a claim that is repeated takes no more of them than the first time",
    Effect.gen(function*() {
      const app = yield* open(server)
      const ids = yield* app.tasks.createMany(Work, work(6))
      yield* suspect(app, ids, 2)
      const claim = Effect.map(
        app.sql<Claimed & { readonly out_lost: number }>(
          "SELECT * FROM dx_claim_tasks($1::uuid[], '{Work}', '{30000}', 'w', 7, '{4,3,2,1}')",
          [[...ids].sort()]
        ),
        (rows) => rows.map(({ out_lost, out_outcome }) => `${out_outcome} ${out_lost}`)
      )
      const first = yield* claim
      assert.deepStrictEqual(first, [...Array(4).fill("Claimed 2"), ...Array(2).fill("Suspect 2")])
      assert.deepStrictEqual(yield* claim, first)
    })
  )
})

describe("Tasks: a claim whose answer is lost", () => {
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
        const ids = yield* app.tasks.createMany(Work, work(5))
        let left = answers
        yield* workerBy(app.url, {
          queue,
          task: Work,
          handlers: Work.toLayer(({ n }) => runs.add(n)),
          // After the database has done it.
          send: (name, statement) =>
            Effect.flatMap(statement, (rows) => {
              const hasTasks = JSON.stringify(rows, (_, value) => typeof value === "bigint" ? 0 : value).includes(
                "Work"
              )
              if (name !== operation || !hasTasks || left === 0) return Effect.succeed(rows)
              left--
              return failing(name, away)
            })
        })
        yield* Effect.forEach(ids, (id) => app.tasks.wait(Work, id), { concurrency: "unbounded" })
        assert.deepStrictEqual([...runs.calls].sort((a, b) => a - b), [0, 1, 2, 3, 4])
        const all = yield* Effect.forEach(ids, app.outcomes)
        assert.isTrue(all.some((one) => one.length === outcomes.length + 1))
        for (const one of all) assert.notInclude(one, "Lost")
      })) as Effect.Effect<void, unknown>)
  }

  test(
    "and whose repetition fails in another way: what the first one took is given back",
    Effect.gen(function*() {
      const app = yield* open(server)
      const runs = makeCalls<number>()
      const ids = yield* app.tasks.createMany(Work, work(5))
      yield* published(app, 5)
      let claims = 0
      yield* workerBy(app.url, {
        queue: elsewhere,
        task: Work,
        handlers: Work.toLayer(({ n }) => runs.add(n)),
        send: (operation, statement) => {
          if (operation !== "claimTasks" || ++claims > 2) return statement
          return claims === 1
            ? Effect.andThen(statement, failing(operation, away))
            : failing(operation, new ProviderError.SchemaMismatch({ sqlState: "42883", problem: "as in a migration" }))
        }
      })
      yield* Effect.forEach(ids, (id) => app.tasks.wait(Work, id), { concurrency: "unbounded" })
      for (const id of ids) assert.deepStrictEqual(yield* app.outcomes(id), ["GivenBack", "Completed"])
    })
  )

  test(
    "and one of whose tasks another transaction has locked meanwhile: that one is given back later",
    Effect.gen(function*() {
      const app = yield* open(server)
      const [locked, free] = [...yield* app.tasks.createMany(Work, work(2))].sort()
      yield* app.sql(
        "SELECT FROM dx_claim_tasks($1::uuid[], '{Work}', '{30000}', 'w', 7)",
        [[locked, free]]
      )
      const giveBack = app.sql("SELECT dx_return_tasks('w', '{7, 8}') AS claims")
      const client = yield* PgServer.connect(app.url)
      yield* Effect.promise(() => client.query("BEGIN"))
      yield* Effect.promise(() => client.query("SELECT FROM queue_tasks WHERE id = $1 FOR UPDATE", [locked]))
      assert.deepStrictEqual(yield* giveBack, [{ claims: [] }])
      assert.deepStrictEqual(yield* app.outcomes(free!), ["GivenBack"])
      yield* Effect.promise(() => client.query("COMMIT"))
      assert.deepStrictEqual(yield* giveBack, [{ claims: [7] }])
      assert.deepStrictEqual(yield* app.outcomes(locked!), ["GivenBack"])
    })
  )
})
