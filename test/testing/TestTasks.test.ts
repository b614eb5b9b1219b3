import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import { Task, Tasks } from "duroxide-prisma/tasks"
import { TestRuntime } from "duroxide-prisma/testing"
import { TestTasks } from "duroxide-prisma/testing/tasks"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"

class Declined extends Schema.TaggedError<Declined>("test/Declined")("Declined", { attempt: Schema.Number }) {}

const Resize = Task.make("Resize", {
  payload: { image: Schema.String },
  success: Schema.String,
  error: Declined,
  retry: { maxAttempts: 3, schedule: Schedule.spaced("10 minutes") },
  timeout: "1 hour"
})

const Other = Task.make("Other")

const Count = Activity.make("Count", { success: Schema.Number })

const Publish = Orchestration.make("Publish", { payload: Schema.String, success: Schema.String, error: Declined })
const Shares = Orchestration.make("Shares", { payload: Schema.String, success: Schema.String, error: Declined })
const Impatient = Orchestration.make("Impatient", { success: Schema.String })

type Act = (attempt: Task.Attempt["Service"], image: string) => Effect.Effect<string, Declined>

/** A process whose task does what `act` says. */
const app = (act: Act) =>
  Runtime.layer({ orchestrations: [Publish, Shares, Impatient], activities: [Count, ...Tasks.activities] }).pipe(
    Layer.provideMerge(TestTasks.layer({ tasks: [Resize] })),
    Layer.provide([
      Publish.toLayer((image) => Resize.execute({ image })),
      Shares.toLayer((image) => Resize.execute({ image }, { key: "cat" })),
      Impatient.toLayer(() =>
        Resize.execute({ image: "slow" }).pipe(
          Effect.timeoutOption("1 minute"),
          Effect.map(Option.getOrElse(() => "gave up")),
          Effect.orDie
        )
      ),
      Count.toLayer(() => Effect.succeed(1)),
      Resize.toLayer(({ image }) => Effect.flatMap(Task.Attempt, (attempt) => act(attempt, image)))
    ]),
    Layer.provide(Logger.layer([]))
  )

const test = (
  title: string,
  act: Act,
  body: Effect.Effect<
    void,
    unknown,
    Client.Client | Tasks.Tasks | TestRuntime.TestRuntime
  >
) => it.effect(title, () => Effect.provide(body, TestRuntime.layer(app(act))))

const minutes = Effect.map(Clock.currentTimeMillis, (ms) => (ms - Date.parse("2030-01-01T00:00:00Z")) / 60_000)

const tagOf = (error: { readonly _tag: string }) => error._tag

const seen: Array<number> = []
/** Notes the minutes in which attempts begin. */
const noting = (act: Act): Act => (attempt, image) =>
  Effect.andThen(Effect.map(minutes, (now) => void seen.push(now)), act(attempt, image))

describe("TestTasks", () => {
  test(
    "an orchestration receives the result of its task; retries and delays take virtual time",
    noting(({ attempt }, image) =>
      attempt < 3 ? Effect.fail(new Declined({ attempt })) : Effect.succeed(`small ${image}`)
    ),
    Effect.gen(function*() {
      seen.splice(0)
      const client = yield* Client.Client
      assert.strictEqual(yield* client.execute(Publish, { instanceId: "p", payload: "cat" }), "small cat")
      assert.deepStrictEqual(seen, [0, 10, 20])
      assert.strictEqual(yield* minutes, 20)
    })
  )

  test(
    "orchestrations with one key share a task",
    noting((_, image) => Effect.as(Effect.sleep("5 minutes"), image)),
    Effect.gen(function*() {
      seen.splice(0)
      const client = yield* Client.Client
      yield* client.start(Shares, { instanceId: "a", payload: "cat" })
      assert.strictEqual(yield* client.execute(Shares, { instanceId: "b", payload: "dog" }), "cat")
      assert.strictEqual(yield* client.wait(Shares, "a"), "cat")
      assert.deepStrictEqual(seen, [0])
      assert.strictEqual(yield* minutes, 5)
    })
  )

  test(
    "a typed failure of the last attempt is that of the orchestration",
    ({ attempt }) => Effect.fail(new Declined({ attempt })),
    Effect.gen(function*() {
      const client = yield* Client.Client
      const error = yield* Effect.flip(client.execute(Publish, { instanceId: "p", payload: "cat" }))
      assert.deepStrictEqual(error, new Declined({ attempt: 3 }))
    })
  )

  test(
    "an application creates tasks and waits for them: delays, keys and attempts are those of the store",
    ({ attempt }, image) => attempt < 2 ? Effect.die(new Error("broken")) : Effect.succeed(image),
    Effect.gen(function*() {
      const tasks = yield* Tasks.Tasks
      const create = tasks.create(Resize, { payload: { image: "cat" }, key: "cat", delay: "2 hours" })
      const id = yield* create
      assert.strictEqual(yield* create, id)
      assert.deepInclude(yield* tasks.status(id), { _tag: "Pending", runAt: new Date("2030-01-01T02:00:00Z") })
      assert.strictEqual(yield* tasks.wait(Resize, id), "cat")
      assert.strictEqual(yield* minutes, 130)
      assert.deepStrictEqual((yield* tasks.attempts(id)).map(({ outcome }) => outcome), ["Died", "Completed"])
      assert.deepInclude(yield* tasks.status(id), { _tag: "Completed", attempts: 2, result: "\"cat\"" })
      assert.strictEqual((yield* Effect.flip(tasks.wait(Resize, "none")))._tag, "TaskNotFound")
    })
  )

  test(
    "a dead task is listed, and has its attempts again when it is redriven; a timeout interrupts the handler",
    () => Effect.as(Effect.sleep("2 hours"), ""),
    Effect.gen(function*() {
      const tasks = yield* Tasks.Tasks
      const id = yield* tasks.create(Resize, { payload: { image: "cat" } })
      assert.strictEqual(tagOf(yield* Effect.flip(tasks.wait(Resize, id))), "TaskTimedOut")
      // Three attempts of an hour, and two pauses.
      assert.strictEqual(yield* minutes, 200)
      assert.deepStrictEqual((yield* tasks.listDead()).map(({ attempts, taskId }) => [taskId, attempts]), [[id, 3]])
      assert.deepStrictEqual(yield* tasks.redrive({ name: "Resize" }), [id])
      const wait = tasks.wait(Resize, id, { timeout: "30 minutes" })
      assert.strictEqual(tagOf(yield* Effect.flip(wait)), "TaskWaitTimeout")
      assert.strictEqual(yield* minutes, 230)
      assert.isTrue(yield* tasks.cancel(id, "not needed"))
      assert.strictEqual(tagOf(yield* Effect.flip(tasks.wait(Resize, id))), "TaskCancelled")
      assert.isFalse(yield* tasks.cancel(id, "not needed"))
    })
  )

  test(
    "a handler that never answers ends with its timeout",
    () => Effect.as(Effect.sleep(Infinity), ""),
    Effect.gen(function*() {
      const tasks = yield* Tasks.Tasks
      const id = yield* tasks.create(Resize, { payload: { image: "cat" } })
      assert.strictEqual(tagOf(yield* Effect.flip(tasks.wait(Resize, id))), "TaskTimedOut")
      assert.strictEqual(yield* minutes, 200)
    })
  )

  test(
    "a task whose call is interrupted, or whose orchestration has ended, is cancelled",
    () => Effect.as(Effect.sleep("50 minutes"), ""),
    Effect.gen(function*() {
      const client = yield* Client.Client
      assert.strictEqual(yield* client.execute(Impatient, { instanceId: "i" }), "gave up")
      assert.strictEqual(yield* minutes, 1)
      yield* client.start(Publish, { instanceId: "p", payload: "cat" })
      yield* client.terminate("p", "not needed")
      // The next heartbeat finds it.
      yield* TestRuntime.advance("1 minute")
      const tasks = yield* Tasks.Tasks
      assert.deepStrictEqual(yield* tasks.listDead(), [])
    })
  )

  test(
    "commit completes the task once, and a second one is stale",
    (attempt) =>
      Effect.gen(function*() {
        yield* Effect.orDie(attempt.commit({} as never, "committed"))
        const error = yield* Effect.orDie(Effect.flip(attempt.commit({} as never, "again")))
        assert.strictEqual(error._tag, "StaleAttempt")
        return "returned"
      }),
    Effect.gen(function*() {
      const client = yield* Client.Client
      assert.strictEqual(yield* client.execute(Publish, { instanceId: "p", payload: "cat" }), "committed")
    })
  )

  test(
    "after a restart the attempt is given back and begins anew; after a crash it is lost, and the next one begins after its lease",
    noting(({ attempt }) => Effect.as(attempt < 3 ? Effect.sleep("50 minutes") : Effect.void, "done")),
    Effect.gen(function*() {
      seen.splice(0)
      const client = yield* Client.Client
      const tasks = yield* Tasks.Tasks
      yield* client.start(Publish, { instanceId: "p", payload: "cat" })
      const id = yield* tasks.create(Resize, { payload: { image: "dog" } })
      yield* TestRuntime.advance("5 minutes")
      yield* TestRuntime.restart
      yield* TestRuntime.advance("5 minutes")
      yield* TestRuntime.crash
      assert.strictEqual(yield* client.wait(Publish, "p"), "done")
      assert.deepStrictEqual((yield* tasks.attempts(id)).map(({ outcome }) => outcome), [
        "GivenBack",
        "Lost",
        "Completed"
      ])
      const [first, second, third] = seen.filter((_, i) => i % 2 === 0)
      assert.deepStrictEqual([first, second], [0, 5])
      assert.isTrue(third! > 10.2 && third! < 10.6, `the third one began after ${third} minutes`)
    })
  )

  test(
    "one that is redriven belongs to no orchestration: it outlives that of its call, which receives one end",
    ({ attempt }) =>
      attempt <= 3 ? Effect.fail(new Declined({ attempt })) : Effect.as(Effect.sleep("50 minutes"), "late"),
    Effect.gen(function*() {
      const client = yield* Client.Client
      const tasks = yield* Tasks.Tasks
      yield* Effect.flip(client.execute(Publish, { instanceId: "p", payload: "cat" }))
      const [{ taskId }] = (yield* tasks.listDead()) as [Tasks.DeadTask]
      assert.deepStrictEqual(yield* tasks.redrive({ ids: [taskId] }), [taskId])
      assert.strictEqual(yield* tasks.wait(Resize, taskId), "late")
    })
  )

  test(
    "tasks are redriven in the order in which they died",
    (_, image) =>
      Effect.andThen(
        Effect.sleep(image === "cat" ? "50 minutes" : "1 minute"),
        Effect.fail(new Declined({ attempt: 1 }))
      ),
    Effect.gen(function*() {
      const tasks = yield* Tasks.Tasks
      const ids = yield* tasks.createMany(Resize, ["cat", "dog"].map((image) => ({ payload: { image } })))
      for (const id of ids) yield* Effect.flip(tasks.wait(Resize, id))
      assert.deepStrictEqual(yield* tasks.redrive({ name: "Resize" }), ids.toReversed())
    })
  )

  test(
    "a task that is lost each time dies after five losses and its attempts",
    () => Effect.as(Effect.sleep("50 minutes"), ""),
    Effect.gen(function*() {
      const tasks = yield* Tasks.Tasks
      const id = yield* tasks.create(Resize, { payload: { image: "cat" } })
      for (let death = 0; death < 8; death++) {
        yield* TestRuntime.advance("1 minute")
        assert.strictEqual((yield* tasks.status(id))._tag, "Running")
        yield* TestRuntime.crash
      }
      const error = yield* Effect.flip(tasks.wait(Resize, id))
      assert.include(error.message, "the worker of its last attempt was lost")
      assert.deepStrictEqual((yield* tasks.attempts(id)).map(({ outcome }) => outcome), Array(8).fill("Lost"))
    })
  )

  test(
    "of tasks that were lost five times one begins, and the others when it has proved itself or has ended",
    noting((_, image) => Effect.as(Effect.sleep("50 minutes"), image)),
    Effect.gen(function*() {
      seen.splice(0)
      const tasks = yield* Tasks.Tasks
      const ids = yield* tasks.createMany(Resize, ["cat", "dog"].map((image) => ({ payload: { image } })))
      for (let death = 0; death < 5; death++) {
        yield* TestRuntime.advance("1 minute")
        yield* TestRuntime.crash
      }
      yield* TestRuntime.advance("5 minutes")
      assert.lengthOf(seen, 11)
      yield* TestRuntime.advance("2 minutes")
      assert.lengthOf(seen, 12)
      for (const id of ids) yield* tasks.wait(Resize, id)
    })
  )

  it.effect("a task without a handler: the test dies, and the message says what to serve", () =>
    Effect.gen(function*() {
      const tasks = yield* Tasks.Tasks
      const id = yield* tasks.create(Other, {})
      const defect = yield* Effect.catchDefect(tasks.wait(Other, id), (defect) => Effect.succeed(defect))
      assert.instanceOf(defect, TestRuntime.Stuck)
      assert.include(defect.message, "No worker serves it: add it to TestTasks.layer({ tasks })")
    }).pipe(Effect.provide(TestRuntime.layer(app(() => Effect.succeed("")), { patience: "20 millis" }))))

  it.effect("a handler that calls something real: time waits for it", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      assert.strictEqual(yield* client.execute(Impatient, { instanceId: "i" }), "real")
      assert.strictEqual(yield* minutes, 0)
    }).pipe(
      Effect.provide(
        TestRuntime.layer(app(() => Effect.promise(() => new Promise((done) => setTimeout(() => done("real"), 30)))))
      )
    ))

  it.effect("a retry that would wait for a task is refused, and works from the event that the refusal names", () => {
    let fails = true
    const act: Act = ({ attempt }) => fails ? Effect.fail(new Declined({ attempt })) : Effect.succeed("small")
    return Effect.gen(function*() {
      const client = yield* Client.Client
      const admin = yield* Admin.Admin
      yield* client.start(Publish, { instanceId: "p", payload: "cat" })
      yield* Effect.exit(client.wait(Publish, "p"))
      fails = false
      const { message } = yield* Effect.flip(admin.retry("p"))
      assert.include(message, "retry from event 1, before its calls of tasks")
      yield* admin.retry("p", { from: 1 })
      // Its process receives no notice of what the service of an operator does.
      yield* (yield* TestRuntime.TestRuntime).restart
      assert.strictEqual(yield* client.wait(Publish, "p"), "small")
    }).pipe(Effect.provide(TestRuntime.layer(app(act))))
  })

  it.effect("TestClock moves the same time", () =>
    Effect.gen(function*() {
      const tasks = yield* Tasks.Tasks
      const id = yield* tasks.create(Resize, { payload: { image: "cat" }, delay: "1 hour" })
      yield* TestClock.adjust("1 hour")
      assert.strictEqual((yield* tasks.status(id))._tag, "Completed")
    }).pipe(Effect.provide(TestRuntime.layer(app(() => Effect.succeed(""))))))
})

describe("the attempt of a task", () => {
  it.effect("is that of its handler, and a defect in the handler of another task", () =>
    Effect.gen(function*() {
      const { commits, service } = TestTasks.attempt({ taskName: "Resize" })
      yield* Effect.flatMap(Resize.attempt, ({ commit }) => commit({} as never, "small")).pipe(
        Effect.provideService(Task.Attempt, service)
      )
      assert.deepStrictEqual(commits, ["small"])
      const defect = yield* Effect.catchDefect(Other.attempt, Effect.succeed).pipe(
        Effect.provideService(Task.Attempt, service)
      )
      assert.include(String(defect), "this is an attempt at the task \"Resize\", not at \"Other\"")
    }))
})

describe("TestTasks.attempt", () => {
  it.effect("a handler is tested without a worker: it finds its attempt, and its commits are kept", () =>
    Effect.gen(function*() {
      const handler = Effect.gen(function*() {
        const attempt = yield* Task.Attempt
        yield* attempt.lock({} as never)
        yield* attempt.commit({} as never, `${attempt.taskName} ${attempt.attempt}`)
        return yield* Effect.flip(attempt.commit({} as never, "again"))
      })
      const { commits, service } = TestTasks.attempt({ taskName: "Resize", attempt: 2 })
      const second = yield* Effect.provideService(handler, Task.Attempt, service)
      assert.deepStrictEqual(commits, ["Resize 2"])
      assert.strictEqual(second._tag, "StaleAttempt")

      const stale = TestTasks.attempt({ isStale: true }).service
      const refused = yield* Effect.flip(Effect.provideService(handler, Task.Attempt, stale))
      assert.instanceOf(refused, Task.StaleAttempt)
      assert.notStrictEqual(TestTasks.attempt().service.idempotencyKey, stale.idempotencyKey)
    }))
})
