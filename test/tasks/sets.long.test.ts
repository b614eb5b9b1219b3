/**
 * Wake-ups that are claimed, and attempts that are completed, in sets: each task of a set succeeds or fails alone.
 */
import { assert, describe, it } from "@effect/vitest"
import { Outbox } from "duroxide-prisma/outbox"
import { Database, PgQueue, PrismaDriver, PrismaProvider } from "duroxide-prisma/prisma"
import { Task, TaskDriver, Tasks, TaskWorker } from "duroxide-prisma/tasks"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as References from "effect/References"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as Drivers from "../utils/driver.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import { gate, Job, makeCalls } from "./utils/tasks.ts"
import type { Act } from "./utils/tasks.ts"

const Large = Task.make("Large", { payload: { n: Schema.Number }, success: Schema.String })

/** The storage of tasks over a `Database`. */
const storeOf = (database: Database.Database["Service"]) =>
  Effect.map(
    Layer.build(Layer.provide(PrismaDriver.layerTasks(), Layer.succeed(Database.Database, database))),
    (services) => Context.get(services, TaskDriver.TaskDriver)
  )

/** One process with its queue, as an application on PostgreSQL alone has it. */
const open = Effect.gen(function*() {
  const test = yield* PgServer.database
  const lines: Array<Readonly<Record<string, unknown>>> = []
  const logger = Logger.make(({ fiber, message }) => {
    lines.push({ ...fiber.getRef(References.CurrentLogAnnotations), message: String(message) })
  })
  const services = yield* Layer.build(
    Layer.mergeAll(Tasks.layer, PgQueue.layer({ queues: { tasks: { maxAttempts: 3 } } })).pipe(
      Layer.provideMerge(PrismaProvider.layerDatabase({ url: test.url, migrate: "none" })),
      Layer.provideMerge(Logger.layer([logger]))
    )
  )
  const tasks = Context.get(services, Tasks.Tasks)
  const ids = (status: string) =>
    Effect.map(
      test.sql<{ id: string }>("SELECT id FROM queue_tasks WHERE status = $1 ORDER BY payload::jsonb -> 'n'", [status]),
      (rows) => rows.map(({ id }) => id)
    )
  const messages = Effect.map(
    test.sql<{ count: number }>("SELECT count(*)::int AS count FROM queue_messages"),
    ([row]) => row!.count
  )
  /** Publishes the wake-ups that wait. */
  const sent = (count: number) =>
    Effect.scoped(Effect.andThen(
      Layer.build(Outbox.publisher().pipe(Layer.provide(Layer.succeedContext(services)))),
      waitUntil(Effect.map(messages, (messages) => messages === count))
    ))
  return {
    ...test,
    tasks,
    ids,
    messages,
    untilCompleted: (count: number) => waitUntil(Effect.map(ids("Completed"), ({ length }) => length === count)),
    linesOf: (text: string) => lines.filter(({ message }) => String(message).includes(text)),
    database: Context.get(services, Database.Database),
    statementCounts: Context.get(services, Database.Database).statementCounts,
    /** Creates tasks, and publishes their wake-ups, so that one receive gets all of them. */
    publish: (count: number) =>
      Effect.tap(
        tasks.createMany(Job, Array.from({ length: count }, (_, n) => ({ payload: { n } }))),
        sent(count)
      ),
    sent,
    /** Sessions of the server. */
    sleeping: Effect.map(
      test.sql("SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"),
      ({ length }) => length
    ),
    /** Eight at a time. */
    largeWorker: (act: () => Effect.Effect<string>) =>
      Layer.build(
        TaskWorker.layer({ tasks: [Large], concurrency: 8 }).pipe(
          Layer.provide(Large.toLayer(act)),
          Layer.provide(Layer.succeedContext(services))
        )
      ),
    worker: (act: Act) =>
      Layer.build(
        TaskWorker.layer({ tasks: [Job], concurrency: 100 }).pipe(
          Layer.provide(Job.toLayer((payload) => Effect.flatMap(Task.Attempt, (attempt) => act(payload, attempt)))),
          Layer.provide(Layer.succeedContext(services))
        )
      )
  }
})

const test = (title: string, body: (app: Effect.Success<typeof open>) => Effect.Effect<void, unknown, any>) =>
  it.live(title, () => Effect.scoped(Effect.flatMap(open, body)) as Effect.Effect<void, unknown>)

/** The statement of a set that writes this task fails. */
const poison = (when: string) =>
  `CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'poisoned'; END $$;
   CREATE TRIGGER poison BEFORE UPDATE ON queue_tasks FOR EACH ROW
   WHEN (NEW.payload = '{"n":3}' AND ${when}) EXECUTE FUNCTION poison()`

/** A statement that brings a task there waits for the advisory lock 7. */
const slowWhen = (status: string) =>
  `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN
       -- Waiting for the lock itself would end with the lock timeout.
       WHILE NOT pg_try_advisory_xact_lock_shared(7) LOOP PERFORM pg_sleep(0.01); END LOOP;
       RETURN NEW;
     END $$;
   CREATE TRIGGER slow BEFORE UPDATE ON queue_tasks FOR EACH ROW
     WHEN (NEW.status = '${status}') EXECUTE FUNCTION slow()`

describe("Tasks in sets:", () => {
  test("a set is answered in parts, so that no text gets too long", (app) =>
    Effect.gen(function*() {
      const parts: Array<number> = []
      const database = {
        ...app.database,
        query: <Row>(operation: string, sql: Parameters<typeof app.database.query>[1]) =>
          Effect.tap(app.database.query<Row>(operation, sql), (rows) => Effect.sync(() => parts.push(rows.length)))
      }
      const store = yield* storeOf(database)
      const task = { name: "Job", payload: "{\"n\":1}", maxAttempts: 1, queue: "tasks" }
      const created = yield* store.create(Array.from({ length: 100 }, () => task))
      const ids = created.map(({ id }) => id)
      assert.strictEqual(new Set(ids).size, 100)
      assert.deepStrictEqual(yield* store.await(ids), [])
      yield* app.sent(100)
      yield* app.worker(({ n }) => Effect.succeed(n))
      yield* app.untilCompleted(100)
      const ended = yield* store.await(ids)
      assert.deepStrictEqual(ended.map(({ id }) => id), ids)
      assert.deepStrictEqual(ended[99], { id: ids[99]!, status: "Completed", result: "1", error: null })
      assert.deepStrictEqual(parts, [4, 0, 4])
    }))

  test("a hundred tasks take a few statements, and leave no message", (app) =>
    Effect.gen(function*() {
      yield* app.publish(100)
      yield* app.worker(({ n }) => Effect.succeed(n))
      yield* app.untilCompleted(100)
      assert.strictEqual(yield* app.messages, 0)
      const counts = yield* app.statementCounts
      const { completeTasks = 0, takeTasks = 0 } = counts
      assert.isAtMost(takeTasks, 5)
      assert.isAtMost(completeTasks, 5)
      assert.isUndefined(counts.receiveMessages)
      assert.isUndefined(counts.claimTasks)
      assert.isUndefined(counts.ackMessages)
      assert.isUndefined(counts.publishMessages)
    }))

  test("handlers of one receive run at the same time, and those that end late settle late", (app) =>
    Effect.gen(function*() {
      const ids = yield* app.publish(10)
      const end = gate()
      yield* app.worker(({ n }) => n === 3 ? Effect.as(end.await, 3) : Effect.succeed(n))
      yield* app.untilCompleted(9)
      assert.deepStrictEqual(yield* app.ids("Running"), [ids[3]!])
      // The claims have deleted the messages.
      assert.strictEqual(yield* app.messages, 0)
      yield* end.open
      yield* app.untilCompleted(10)
    }))

  test("messages that are no wake-ups go to the dead letters, and their neighbours run", (app) =>
    Effect.gen(function*() {
      yield* app.publish(5)
      yield* app.sql(
        `SELECT dx_publish_messages(jsonb_agg(jsonb_build_object(
           'queue', 'tasks', 'payload', payload::jsonb, 'delay_ms', 0, 'max_attempts', 20
         ))) FROM unnest(ARRAY['{"kind":"task_wakeup","task_id":7}', '{"kind":"delivery"}', '{"kind":"order"}']) AS one (payload)`
      )
      // It names no task: there is nothing to do.
      yield* app.sql(
        `SELECT dx_publish_messages('[{"queue":"tasks","payload":{"kind":"task_wakeup","task_id":"x"},"delay_ms":0,"max_attempts":20}]')`
      )
      yield* app.worker(({ n }) => Effect.succeed(n))
      yield* app.untilCompleted(5)
      yield* waitUntil(Effect.map(app.messages, (count) => count === 0))
      const dead = yield* app.sql<{ last_error: string }>("SELECT last_error FROM queue_dead ORDER BY last_error")
      assert.deepStrictEqual(
        dead.map(({ last_error }) => last_error),
        ["delivery", "order", "task_wakeup"].map((kind) =>
          `no handler for messages of kind "${kind}" without a task_id`
        )
      )
    }))

  test("a task that cannot be claimed does not keep its neighbours from running", (app) =>
    Effect.gen(function*() {
      const ids = yield* app.publish(10)
      yield* app.sql(poison("NEW.status = 'Running'"))
      const ran = makeCalls<number>()
      yield* app.worker(({ n }) => Effect.as(ran.add(n), n))
      yield* app.untilCompleted(9)
      assert.deepStrictEqual(yield* app.ids("Pending"), [ids[3]!])
      assert.sameMembers(ran.calls, [0, 1, 2, 4, 5, 6, 7, 8, 9])
      yield* app.sql("DROP TRIGGER poison ON queue_tasks")
      // Its wake-up comes again.
      yield* app.untilCompleted(10)
    }))

  test("tasks that are claimed while their worker stops are given back, and no attempt is counted", (app) =>
    Effect.gen(function*() {
      const ids = yield* app.publish(3)
      yield* app.sql(slowWhen("Running"))
      const client = yield* PgServer.connect(app.url)
      yield* Effect.promise(() => client.query("SELECT pg_advisory_lock(7)"))
      const ran = makeCalls<number>()
      const scope = yield* Scope.make()
      yield* Scope.provide(app.worker(({ n }) => Effect.as(ran.add(n), n)), scope)
      yield* waitUntil(Effect.map(app.sleeping, (count) => count > 0))
      const stopped = yield* Effect.forkChild(Scope.close(scope, Exit.void))
      yield* Effect.yieldNow
      yield* Effect.promise(() => client.query("SELECT pg_advisory_unlock(7)"))
      yield* Fiber.join(stopped)
      assert.deepStrictEqual(ran.calls, [])
      assert.deepStrictEqual(
        yield* app.sql("SELECT DISTINCT status, attempt, uncounted FROM queue_tasks"),
        [{ status: "Pending", attempt: 1, uncounted: 1 }]
      )
      const attempts = yield* Effect.forEach(ids, app.tasks.attempts)
      assert.deepStrictEqual(attempts.flat().map(({ outcome }) => outcome), ["GivenBack", "GivenBack", "GivenBack"])
      // Their wake-ups are in the outbox again.
      assert.deepStrictEqual(
        yield* app.sql("SELECT count(*)::int AS count FROM queue_outbox WHERE sent_at IS NULL"),
        [{ count: 3 }]
      )
    }))

  test("results that are not stored are bounded in bytes: then nothing further is claimed", (app) =>
    Effect.gen(function*() {
      yield* app.tasks.createMany(Large, Array.from({ length: 24 }, (_, n) => ({ payload: { n } })))
      yield* app.sent(24)
      yield* app.sql(slowWhen("Completed"))
      const client = yield* PgServer.connect(app.url)
      yield* Effect.promise(() => client.query("SELECT pg_advisory_lock(7)"))
      const ran = makeCalls<void>()
      const result = "x".repeat(4_000_000)
      yield* app.largeWorker(() => Effect.as(ran.add(), result))
      yield* ran.until(8)
      // Both lanes are held.
      yield* waitUntil(Effect.map(app.sleeping, (count) => count === 2))
      for (let i = 0; i < 20; i++) yield* app.sleeping
      assert.lengthOf(ran.calls, 8)
      yield* Effect.promise(() => client.query("SELECT pg_advisory_unlock(7)"))
      yield* app.untilCompleted(24)
      assert.lengthOf(ran.calls, 24)
    }))

  test("a task whose end cannot be stored does not keep its neighbours from being completed", (app) =>
    Effect.gen(function*() {
      const ids = yield* app.publish(10)
      yield* app.sql(poison("NEW.status = 'Completed'"))
      yield* app.worker(({ n }) => Effect.succeed(n))
      yield* app.untilCompleted(9)
      yield* waitUntil(Effect.sync(() => app.linesOf("attempt not settled").length === 1))
      assert.deepStrictEqual(yield* app.ids("Running"), [ids[3]!])
      assert.deepInclude(app.linesOf("attempt not settled")[0], { task_id: ids[3]!, attempt: 1 })
    }))

  test("a task that another transaction has locked does not delay its neighbours", (app) =>
    Effect.gen(function*() {
      const ids = yield* app.publish(10)
      const end = gate()
      const running = makeCalls<number>()
      yield* app.worker(({ n }) => Effect.andThen(running.add(n), Effect.as(end.await, n)))
      yield* running.until(10)
      const client = yield* PgServer.connect(app.url)
      yield* Effect.promise(() => client.query("BEGIN"))
      yield* Effect.promise(() => client.query("SELECT FROM queue_tasks WHERE id = $1 FOR UPDATE", [ids[3]]))
      yield* end.open
      yield* app.untilCompleted(9)
      assert.deepStrictEqual(yield* app.ids("Running"), [ids[3]!])
      yield* Effect.promise(() => client.query("COMMIT"))
      yield* app.untilCompleted(10)
      assert.lengthOf(running.calls, 10)
    }))

  test("a stale attempt is refused alone", (app) =>
    Effect.gen(function*() {
      const ids = yield* app.publish(10)
      const end = gate()
      const running = makeCalls<number>()
      yield* app.worker(({ n }) => Effect.andThen(running.add(n), Effect.as(end.await, n)))
      yield* running.until(10)
      // As if another worker had begun the next attempt.
      yield* app.sql("UPDATE queue_tasks SET attempt = 2, worker_id = 'other' WHERE id = $1", [ids[3]])
      yield* end.open
      yield* app.untilCompleted(9)
      yield* waitUntil(Effect.sync(() => app.linesOf("a stale attempt was refused").length === 1))
      assert.deepInclude(app.linesOf("a stale attempt was refused")[0], { task_id: ids[3]!, attempt: 1 })
      assert.deepStrictEqual(
        yield* app.sql("SELECT status, attempt, worker_id, result FROM queue_tasks WHERE id = $1", [ids[3]]),
        [{ status: "Running", attempt: 2, worker_id: "other", result: null }]
      )
      assert.deepStrictEqual(yield* app.sql("SELECT FROM queue_task_attempts WHERE task_id = $1", [ids[3]]), [])
    }))

  test("handlers with and without transactions of their own, and one that fails, end together", (app) =>
    Effect.gen(function*() {
      const ids = yield* app.publish(4)
      const clients = yield* Effect.forEach([1, 2], () => PgServer.connect(app.url))
      const end = gate()
      const running = makeCalls<number>()
      const inTransaction = (client: (typeof clients)[number], attempt: Task.Attempt["Service"], ends: string) =>
        Effect.gen(function*() {
          yield* Effect.promise(() => client.query("BEGIN"))
          yield* Effect.orDie(attempt.commit(client, 10))
          yield* Effect.promise(() => client.query(ends))
        })
      yield* app.worker(({ n }, attempt) =>
        Effect.gen(function*() {
          if (attempt.attempt === 1) {
            if (n === 1) yield* inTransaction(clients[0]!, attempt, "COMMIT")
            if (n === 2) yield* inTransaction(clients[1]!, attempt, "ROLLBACK")
            yield* running.add(n)
            yield* end.await
            if (n === 3) return yield* Effect.die("broken")
          }
          return n
        })
      )
      yield* running.until(4)
      yield* end.open
      yield* waitUntil(Effect.map(app.ids("Completed"), ({ length }) => length >= 2))
      // Those that died run again after a pause.
      const outcomes = Effect.forEach(ids, (id) => Effect.map(app.tasks.attempts(id), ([first]) => first?.outcome))
      yield* waitUntil(Effect.map(outcomes, (all) => !all.includes("Running")))
      assert.deepStrictEqual(yield* outcomes, ["Completed", "Completed", "Died", "Died"])
      assert.deepStrictEqual(
        yield* app.sql("SELECT result FROM queue_tasks WHERE status = 'Completed' ORDER BY payload"),
        [{ result: "0" }, { result: "10" }]
      )
      yield* waitUntil(Effect.map(app.messages, (count) => count === 0))
    }))
})

describe("Tasks: sweeps", () => {
  it.live("any number of sweeps at the same time write one wake-up for a task of a backlog", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      yield* sql(`SELECT FROM dx_create_tasks(
        (SELECT jsonb_agg(jsonb_build_object('name', 'T', 'payload', '1', 'max_attempts', 1, 'queue', 'tasks'))
         FROM generate_series(1, 4000)))`)
      yield* sql("UPDATE queue_tasks SET run_at = now() - interval '1 minute', look_at = now() - interval '1 second'")
      yield* sql("DELETE FROM queue_outbox")
      // Workers repeat a sweep that has waited too long for the commit of another one; here, it waits for it.
      const stores = yield* Effect.forEach(
        Array.from({ length: 6 }),
        () => Effect.flatMap(Database.make({ url: Drivers.patient(url) }), storeOf)
      )
      for (let round = 0; round < 2; round++) {
        yield* Effect.forEach(stores, ({ sweep }) => sweep(1000, 1000), { concurrency: "unbounded" })
      }
      assert.deepStrictEqual(
        yield* sql(
          "SELECT count(*)::int AS wakeups, count(DISTINCT payload ->> 'task_id')::int AS tasks FROM queue_outbox"
        ),
        [{ wakeups: 4000, tasks: 4000 }]
      )
    }).pipe(Effect.scoped))
})
