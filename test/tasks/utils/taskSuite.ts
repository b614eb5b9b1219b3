/**
 * What tasks promise, whatever server carries their wake-ups.
 */
import { assert, describe, it } from "@effect/vitest"
import { Transaction } from "duroxide-prisma/prisma"
import type { Queue } from "duroxide-prisma/queue"
import { Task, Tasks } from "duroxide-prisma/tasks"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { connect } from "../../utils/PgServer.ts"
import { waitUntil } from "../../utils/waitUntil.ts"
import { Declined, gate, Job, makeCalls, open } from "./tasks.ts"
import type { Server } from "./tasks.ts"

const ok = () => Effect.succeed(1)

/** Each test has a database of its own; `server` must have the queues of `utils/tasks.ts`. */
export const taskSuite = (name: string, server: Server) => {
  const test = (
    title: string,
    body: (app: Effect.Success<ReturnType<typeof open>>) => Effect.Effect<void, unknown, any>
  ) =>
    it.live(
      title,
      () => Effect.scoped(Effect.flatMap(open(server), body)) as Effect.Effect<void, unknown>
    )

  describe(`Tasks (${name}): running`, () => {
    test("a task runs once, and its typed result arrives where it is waited for", (app) =>
      Effect.gen(function*() {
        yield* app.publisher
        yield* app.jobWorker(({ n }) => Effect.succeed(n * 2), { workerId: "w1" })
        const id = yield* app.tasks.create(Job, { payload: { n: 21 } })
        assert.strictEqual(yield* app.tasks.wait(Job, id), 42)
        const [attempt, ...others] = yield* app.tasks.attempts(id)
        assert.lengthOf(others, 0)
        assert.deepInclude(attempt, { attempt: 1, workerId: "w1", outcome: "Completed", failure: Option.none() })
        assert.isAtLeast(Option.getOrThrow(attempt!.endedAt).getTime(), attempt!.startedAt.getTime())
        assert.deepInclude(yield* app.tasks.status(id), { _tag: "Completed", attempts: 1, result: "42" })
      }))

    test("a handler knows its attempt, and that the key is the same for all of them", (app) =>
      Effect.gen(function*() {
        const seen = makeCalls<Task.Attempt["Service"]>()
        yield* app.publisher
        yield* app.jobWorker((_, attempt) =>
          Effect.andThen(
            seen.add(attempt),
            attempt.attempt < 2 ? Effect.fail(new Declined({ code: 1 })) : Effect.succeed(0)
          )
        )
        const id = yield* app.tasks.create(Job, { payload: { n: 1 } })
        yield* app.tasks.wait(Job, id)
        assert.deepStrictEqual(
          seen.calls.map((
            { attempt, idempotencyKey, taskId, taskName }
          ) => [taskName, taskId, attempt, idempotencyKey]),
          [["Job", id, 1, id], ["Job", id, 2, id]]
        )
      }))

    test("after its attempts are used up a task is dead, with the typed failure of the last one; redriven, it has them again", (app) =>
      Effect.gen(function*() {
        let isFixed = false
        yield* app.publisher
        yield* app.jobWorker((_, { attempt }) =>
          isFixed ? Effect.succeed(7) : Effect.fail(new Declined({ code: attempt }))
        )
        const id = yield* app.tasks.create(Job, { payload: { n: 1 } })
        const error = yield* Effect.flip(app.tasks.wait(Job, id))
        assert.deepStrictEqual(error, new Declined({ code: 3 }))
        assert.deepStrictEqual(yield* app.outcomes(id), ["Failed", "Failed", "Failed"])
        const [dead, ...others] = yield* app.tasks.listDead({ name: "Job" })
        assert.lengthOf(others, 0)
        assert.deepInclude(dead, { taskId: id, name: "Job", attempts: 3 })
        assert.deepInclude(dead!.failure, { _tag: "Failed" })
        assert.deepStrictEqual(yield* app.tasks.listDead({ name: "Other" }), [])

        assert.deepStrictEqual(yield* app.tasks.redrive({ ids: [id] }), [id])
        assert.deepStrictEqual(yield* Effect.flip(app.tasks.wait(Job, id)), new Declined({ code: 6 }))
        isFixed = true
        assert.deepStrictEqual(yield* app.tasks.redrive({ name: "Job" }), [id])
        assert.strictEqual(yield* app.tasks.wait(Job, id), 7)
        assert.deepStrictEqual(yield* app.tasks.redrive({ ids: [id] }), [])
        assert.lengthOf(yield* app.tasks.attempts(id), 7)
      }))

    test("a defect, a wrong result and a timeout are recorded, and the timeout interrupts the handler", (app) =>
      Effect.gen(function*() {
        const Dies = Task.make("Dies", { payload: Schema.String, success: Schema.Number, retry: { maxAttempts: 1 } })
        const Hangs = Task.make("Hangs", { timeout: "50 millis", retry: { maxAttempts: 1 } })
        const interrupted = makeCalls<string>()
        yield* app.publisher
        yield* app.worker(
          { tasks: [Dies, Hangs] },
          Layer.mergeAll(
            Dies.toLayer((kind) => kind === "defect" ? Effect.die(new Error("broken")) : Effect.succeed("x" as never)),
            Hangs.toLayer(() => Effect.onInterrupt(Effect.never, () => interrupted.add("Hangs")))
          )
        )
        const wait = (task: Task.Any, id: string) => Effect.flip(app.tasks.wait(task, id)) as Effect.Effect<Error>
        const defect = yield* app.tasks.create(Dies, { payload: "defect" })
        const result = yield* app.tasks.create(Dies, { payload: "result" })
        const hangs = yield* app.tasks.create(Hangs, {})
        assert.deepStrictEqual(yield* wait(Dies, defect), new Task.TaskDied({ taskName: "Dies", problem: "broken" }))
        assert.include((yield* wait(Dies, result)).message, "result of task \"Dies\"")
        assert.deepStrictEqual(yield* wait(Hangs, hangs), new Task.TaskTimedOut({ taskName: "Hangs", timeoutMs: 50 }))
        assert.deepStrictEqual(interrupted.calls, ["Hangs"])
        assert.deepStrictEqual(yield* app.outcomes(hangs), ["TimedOut"])
      }))

    test("a failure that is not to be retried makes the task dead at once", (app) =>
      Effect.gen(function*() {
        const Picky = Task.make("Picky", { error: Declined, retry: { while: (error) => !(error instanceof Declined) } })
        yield* app.publisher
        yield* app.worker({ tasks: [Picky] }, Picky.toLayer(() => Effect.fail(new Declined({ code: 410 }))))
        const id = yield* app.tasks.create(Picky, {})
        assert.deepStrictEqual(yield* Effect.flip(app.tasks.wait(Picky, id)), new Declined({ code: 410 }))
        assert.deepStrictEqual(yield* app.outcomes(id), ["Failed"])
      }))

    test("a delayed task begins no earlier", (app) =>
      Effect.gen(function*() {
        yield* app.publisher
        yield* app.jobWorker(ok)
        const delay = Duration.millis(700)
        const id = yield* app.tasks.create(Job, { payload: { n: 1 }, delay })
        const before = yield* app.tasks.status(id)
        yield* app.tasks.wait(Job, id)
        const [attempt] = yield* app.tasks.attempts(id)
        assert.isTrue(before._tag === "Pending" && attempt!.startedAt >= before.runAt)
      }))
  })

  describe(`Tasks (${name}): creating`, () => {
    test("one key makes one task, however many create it at the same time", (app) =>
      Effect.gen(function*() {
        const create = app.tasks.create(Job, { payload: { n: 1 }, key: "k" })
        const ids = yield* Effect.all(Array.from({ length: 30 }, () => create), { concurrency: "unbounded" })
        assert.lengthOf([...new Set(ids)], 1)
        const many = yield* app.tasks.createMany(Job, [
          { payload: { n: 1 }, key: "k" },
          { payload: { n: 2 }, key: "l" },
          { payload: { n: 3 }, key: "l" },
          { payload: { n: 4 } }
        ])
        assert.strictEqual(many[0], ids[0])
        assert.strictEqual(many[1], many[2])
        assert.lengthOf([...new Set(many)], 3)
        assert.deepStrictEqual(yield* app.sql("SELECT count(*)::int AS count FROM queue_outbox"), [{ count: 3 }])
        // Of another name the same key is another one.
        const Other = Task.make("Other")
        assert.notStrictEqual(yield* app.tasks.create(Other, { key: "k" }), ids[0])
      }))

    test("in a transaction a task is created with the rows of the application, or not at all", (app) =>
      Effect.gen(function*() {
        const client = yield* connect(app.url)
        const other = yield* connect(app.url)
        const query = (text: string) => Effect.promise(() => client.query(text))
        const create = Tasks.within(Transaction.make(client, { schema: "public" })).create(Job, {
          payload: { n: 1 },
          key: "k"
        })
        yield* query("BEGIN")
        const first = yield* create
        assert.strictEqual(yield* create, first)
        yield* query("ROLLBACK")
        assert.deepStrictEqual(yield* app.sql("SELECT FROM queue_tasks"), [])
        assert.deepStrictEqual(yield* app.sql("SELECT FROM queue_outbox"), [])

        yield* query("BEGIN")
        const second = yield* create
        // Another transaction waits for the outcome, and finds the task.
        yield* Effect.promise(() => other.query("BEGIN"))
        const waiting = yield* Effect.forkChild(
          Tasks.within(Transaction.make(other, { schema: "public" })).create(Job, { payload: { n: 2 }, key: "k" })
        )
        yield* waitUntil(Effect.map(
          app.sql(
            "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND strpos(query, 'dx_create_tasks') > 0"
          ),
          (rows) => rows.length > 0
        ))
        yield* query("COMMIT")
        assert.strictEqual(yield* Fiber.join(waiting), second)
        yield* Effect.promise(() => other.query("COMMIT"))
        assert.lengthOf(yield* app.sql("SELECT FROM queue_outbox"), 1)
        yield* app.publisher
        yield* app.jobWorker(ok)
        yield* app.tasks.wait(Job, second)
      }))

    test("bad input is one typed error, and stores nothing", (app) =>
      Effect.gen(function*() {
        const reasonOf = <A>(call: Effect.Effect<A, { readonly _tag: string; readonly message: string }>) =>
          Effect.map(Effect.flip(call), (error) => `${error._tag}: ${error.message}`)
        const payload = { n: 1 }
        const { create } = app.tasks
        assert.include(yield* reasonOf(create(Job, { payload: { n: "1" } as never })), "PayloadMismatch")
        assert.include(yield* reasonOf(create(Job, { payload, key: "" })), "invalid key: it is empty")
        assert.include(yield* reasonOf(create(Job, { payload, key: "x".repeat(1025) })), "the limit is 1024")
        assert.include(yield* reasonOf(create(Job, { payload, key: "\0" })), "NUL")
        assert.include(yield* reasonOf(create(Job, { payload, delay: "-1 second" })), "invalid delay")
        assert.include(yield* reasonOf(create(Job, { payload, delay: Infinity })), "invalid delay")
        const Large = Task.make("Large", { payload: Schema.String })
        assert.include(yield* reasonOf(create(Large, { payload: "x".repeat(5_000_000) })), "PayloadTooLarge")
        assert.include(
          yield* reasonOf(app.tasks.createMany(Job, Array.from({ length: 10_001 }, () => ({ payload })))),
          "the limit is 10000"
        )
        assert.include(yield* reasonOf(app.tasks.listDead({ limit: 0 })), "invalid limit")
        assert.include(yield* reasonOf(app.tasks.cancel("x", "\0")), "invalid reason")
        const client = yield* connect(app.url)
        const within = Tasks.within(Transaction.make(client, { schema: "pg_no" }))
        assert.include(yield* reasonOf(within.create(Job, { payload })), "reserved")
        assert.deepStrictEqual(yield* app.sql("SELECT FROM queue_tasks"), [])

        for (const id of ["", "no uuid", "00000000-0000-0000-0000-000000000000"]) {
          assert.deepStrictEqual(yield* app.tasks.status(id), { _tag: "NotFound" })
          assert.deepStrictEqual(yield* app.tasks.attempts(id), [])
          assert.isFalse(yield* app.tasks.cancel(id, "why"))
          assert.deepStrictEqual(yield* app.tasks.redrive({ ids: [id] }), [])
          assert.include(yield* reasonOf(app.tasks.wait(Job, id)), "TaskNotFound")
        }
      }))

    it("a definition that cannot work throws", () => {
      assert.throws(() => Task.make(""), RangeError)
      assert.throws(() => Task.make("x".repeat(1025)), RangeError)
      assert.throws(() => Task.make("T", { retry: { maxAttempts: 0 } }), RangeError)
      assert.throws(() => Task.make("T", { retry: { maxAttempts: 1.5 } }), RangeError)
      assert.throws(() => Task.make("T", { timeout: 0 }), RangeError)
      assert.throws(() => Task.make("T", { lease: "500 millis" }), RangeError)
      assert.throws(() => Task.make("T", { lease: "2 hours" }), RangeError)
      assert.throws(() => Task.make("T", { queue: "" }), RangeError)
      assert.throws(() => Task.make("T", { queue: "a b" }), RangeError)
    })
  })

  describe(`Tasks (${name}): cancelling`, () => {
    test("a cancelled task that waits never runs", (app) =>
      Effect.gen(function*() {
        const id = yield* app.tasks.create(Job, { payload: { n: 1 } })
        assert.isTrue(yield* app.tasks.cancel(id, "not needed"))
        assert.isFalse(yield* app.tasks.cancel(id, "again"))
        const calls = makeCalls<number>()
        yield* app.publisher
        yield* app.jobWorker(({ n }) => Effect.as(calls.add(n), 0))
        const after = yield* app.tasks.create(Job, { payload: { n: 2 } })
        yield* app.tasks.wait(Job, after)
        const cancelled = new Task.TaskCancelled({ taskName: "Job", reason: "not needed" })
        assert.deepStrictEqual(yield* Effect.flip(app.tasks.wait(Job, id)), cancelled)
        assert.deepStrictEqual(calls.calls, [2])
      }))

    test("the handler of a cancelled task is interrupted, and can commit nothing", (app) =>
      Effect.gen(function*() {
        const running = makeCalls<number>()
        const interrupted = makeCalls<number>()
        yield* app.publisher
        yield* app.jobWorker(({ n }) =>
          Effect.andThen(running.add(n), Effect.onInterrupt(Effect.never, () => interrupted.add(n)))
        )
        const id = yield* app.tasks.create(Job, { payload: { n: 1 } })
        yield* running.until(1)
        assert.isTrue(yield* app.tasks.cancel(id, "enough"))
        yield* interrupted.until(1)
        assert.deepStrictEqual(yield* app.outcomes(id), ["Cancelled"])
        assert.deepInclude(yield* app.tasks.status(id), { _tag: "Cancelled", reason: "enough" })
      }))
  })

  describe(`Tasks (${name}): waiting`, () => {
    test("a wait ends with its timeout, and a thousand waits share their looks", (app) =>
      Effect.gen(function*() {
        const id = yield* app.tasks.create(Job, { payload: { n: 1 } })
        const timeout = yield* Effect.flip(app.tasks.wait(Job, id, { timeout: "50 millis" }))
        assert.deepStrictEqual(timeout, new Tasks.TaskWaitTimeout({ taskId: id, timeoutMs: 50 }))
        const ids = yield* app.tasks.createMany(Job, Array.from({ length: 1000 }, (_, n) => ({ payload: { n } })))
        const waits = yield* Effect.forkChild(
          Effect.all(ids.map((id) => app.tasks.wait(Job, id)), { concurrency: "unbounded" })
        )
        yield* app.publisher
        yield* app.jobWorker(({ n }) => Effect.succeed(n), { concurrency: 100 })
        assert.deepStrictEqual(yield* Fiber.join(waits), ids.map((_, n) => n))
        const { awaitTasks = 0 } = yield* app.statementCounts
        assert.isBelow(awaitTasks, 300)
      }))
  })

  describe(`Tasks (${name}): several workers`, () => {
    test("every wake-up delivered twice: each task runs once", (app) =>
      Effect.gen(function*() {
        const calls = makeCalls<number>()
        const twice = (queue: Queue.Queue["Service"]): Queue.Queue["Service"] => ({
          ...queue,
          receive: (name, options) =>
            Effect.map(
              queue.receive(name, { ...options, maxMessages: Math.max(1, Math.floor(options.maxMessages / 2)) }),
              (messages) => messages.flatMap((message) => [message, message])
            )
        })
        yield* app.publisher
        yield* app.worker(
          { tasks: [Job], concurrency: 20 },
          Job.toLayer(({ n }) => Effect.as(calls.add(n), n)),
          twice
        )
        const ids = yield* app.tasks.createMany(Job, Array.from({ length: 100 }, (_, n) => ({ payload: { n } })))
        yield* Effect.forEach(ids, (id) => app.tasks.wait(Job, id), { concurrency: "unbounded" })
        assert.deepStrictEqual([...calls.calls].sort((a, b) => a - b), ids.map((_, n) => n))
        app.counting.assertOnlyPublisher()
      }))

    test("a wake-up of a task that a worker does not serve goes back, and comes to one that does", (app) =>
      Effect.gen(function*() {
        const Elsewhere = Task.make("Elsewhere", { success: Schema.String })
        yield* app.publisher
        yield* app.jobWorker(ok)
        const id = yield* app.tasks.create(Elsewhere, {})
        const job = yield* app.tasks.create(Job, { payload: { n: 1 } })
        yield* app.tasks.wait(Job, job)
        assert.deepInclude(yield* app.tasks.status(id), { _tag: "Pending" })
        yield* app.worker({ tasks: [Elsewhere] }, Elsewhere.toLayer(() => Effect.succeed("here")))
        assert.strictEqual(yield* app.tasks.wait(Elsewhere, id), "here")
      }))

    test("a zombie that comes back after its lease is refused; the newest attempt's result counts", (app) =>
      Effect.gen(function*() {
        const running = makeCalls<number>()
        const awake = gate()
        yield* app.publisher
        yield* app.jobWorker((_, { attempt }) => Effect.andThen(running.add(attempt), Effect.as(awake.await, 1)), {
          workerId: "zombie"
        })
        const id = yield* app.tasks.create(Job, { payload: { n: 1 } })
        yield* running.until(1)
        yield* app.jobWorker((_, { attempt }) => Effect.as(running.add(attempt), 2), { workerId: "second" })
        yield* app.endLease(id)
        // Whichever worker the wake-up comes to: both attempts may be the zombie's.
        yield* running.until(2)
        yield* awake.open
        const result = yield* app.tasks.wait(Job, id)
        const attempts = yield* app.tasks.attempts(id)
        assert.deepStrictEqual(attempts.map(({ attempt, outcome }) => [attempt, outcome]), [[1, "Lost"], [
          2,
          "Completed"
        ]])
        assert.strictEqual(result, attempts[1]!.workerId === "second" ? 2 : 1)
      }))
  })
}
