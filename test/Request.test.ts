import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, KeyValue, Orchestration, Request, Runtime, Signal } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as requestSignal from "../src/model/shared/requestSignal.ts"

const Add = Request.make("Add", {
  payload: Schema.Int,
  success: Schema.Int,
  error: Schema.Struct({ over: Schema.Int })
})

const Ping = Request.make("Ping")

const Close = Signal.make("Close")
const Next = Signal.make("Next")

const Total = KeyValue.make("total", Schema.Int)

const Book = Activity.make("Book", { payload: Schema.Int, success: Schema.Int })

/** Adds up what it is asked to add, at most 100; `Next` begins the next execution. */
const Account = Orchestration.make("Account", { payload: Schema.Int, success: Schema.Int })

const account = Effect.fn(function*(before: number) {
  let total = before
  yield* Ping.serve(() => Effect.void)
  yield* Add.serve(
    Effect.fn(function*(amount) {
      if (amount < 0) return yield* Effect.die(new Error("negative"))
      const booked = yield* Book.execute(amount)
      if (total + booked > 100) return yield* Effect.fail({ over: total + booked - 100 })
      total += booked
      yield* Total.set(total)
      return total
    }),
    { validate: (amount) => amount > 1_000 ? Result.fail({ over: amount }) : Result.succeed(undefined) }
  )
  yield* Effect.raceFirst(Close.wait, Effect.andThen(Next.wait, Effect.suspend(() => Account.continueAsNew(total))))
  return total
})

const Idle = Orchestration.make("Idle")

const runtime = (book: (amount: number) => Effect.Effect<number>) =>
  Runtime.layer({ orchestrations: [Account, Idle], activities: [Book] }).pipe(
    Layer.provide([
      Account.toLayer(account),
      Idle.toLayer(() => Close.wait),
      Book.toLayer((amount) => book(amount))
    ]),
    Layer.provide(Logger.layer([]))
  )

const layer = TestRuntime.layer(runtime(Effect.succeed))

const started = Effect.gen(function*() {
  const client = yield* Client.Client
  yield* client.start(Account, { instanceId: "a", payload: 0 })
  return client
})

const textsOf = (instanceId: string) =>
  Effect.map(
    TestRuntime.history(instanceId),
    (events) =>
      events.flatMap((event) => event._tag === "KeyValueSet" && requestSignal.isAnswerKey(event.key) ? event.value : [])
  )

describe("Request.make", () => {
  it("refuses a name that cannot be stored", () => {
    assert.throws(() => Request.make(""), RangeError)
    assert.throws(() => Request.make("x".repeat(1_024)), RangeError)
  })

  it("reserves the names of its messages and the keys of its answers", () => {
    assert.throws(() => Signal.make(requestSignal.nameOf("Add")), RangeError)
  })
})

describe("Request", () => {
  it.effect("is answered by its handler, which may run activities, and stores what the handler does", () =>
    Effect.gen(function*() {
      const client = yield* started
      assert.strictEqual(yield* client.request(Add, "a", 40), 40)
      assert.strictEqual(yield* client.request(Add, "a", 2), 42)
      yield* client.request(Ping, "a")
      assert.deepStrictEqual(yield* client.read(Total, "a"), Option.some(42))
      yield* client.send(Close, "a")
      assert.strictEqual(yield* client.wait(Account, "a"), 42)
    }).pipe(Effect.provide(layer)))

  it.effect("is refused by its handler, or by the check before it, with its typed error", () =>
    Effect.gen(function*() {
      const client = yield* started
      assert.deepStrictEqual(yield* Effect.flip(client.request(Add, "a", 120)), { over: 20 })
      assert.deepStrictEqual(yield* Effect.flip(client.request(Add, "a", 2_000)), { over: 2_000 })
      const [handler, check] = (yield* textsOf("a")).map(requestSignal.decodeAnswer)
      assert.deepStrictEqual(handler, { _tag: "Refused", error: "{\"over\":20}", isRejected: false })
      assert.deepStrictEqual(check, { _tag: "Refused", error: "{\"over\":2000}", isRejected: true })
      const booked = (yield* TestRuntime.history("a")).filter(({ _tag }) => _tag === "ActivityScheduled")
      assert.lengthOf(booked, 1)
    }).pipe(Effect.provide(layer)))

  it.effect("is answered once for each id, however often it is sent, also over continue-as-new", () =>
    Effect.gen(function*() {
      const client = yield* started
      const ask = client.request(Add, "a", 7, { requestId: "r" })
      assert.deepStrictEqual(yield* Effect.all([ask, ask, ask], { concurrency: "unbounded" }), [7, 7, 7])
      yield* client.send(Next, "a")
      assert.strictEqual(yield* client.request(Add, "a", 1_000, { requestId: "r" }), 7)
      assert.strictEqual(yield* client.request(Add, "a", 1), 8)
      yield* client.send(Close, "a")
      assert.strictEqual(yield* client.wait(Account, "a"), 8)
      assert.strictEqual(yield* ask, 7)
    }).pipe(Effect.provide(layer)))

  it.effect("that was taken and not answered reaches the next execution", () => {
    let booked = 0
    const slow = TestRuntime.layer(
      runtime((amount) => ++booked === 1 ? Effect.as(Effect.sleep("1 hour"), amount) : Effect.succeed(amount))
    )
    return Effect.gen(function*() {
      const client = yield* started
      const asked = yield* Effect.forkChild(client.request(Add, "a", 5, { requestId: "r" }))
      yield* Effect.yieldNow
      yield* TestRuntime.settle
      yield* client.send(Next, "a")
      assert.strictEqual(yield* Fiber.join(asked), 5)
      assert.strictEqual(booked, 2)
      const status = yield* client.status("a")
      assert.strictEqual(status._tag === "Running" ? status.executionId : 0, 2)
    }).pipe(Effect.provide(slow))
  })

  it.effect("fails when its handler dies, and the program continues", () =>
    Effect.gen(function*() {
      const client = yield* started
      const failed = yield* Effect.flip(client.request(Add, "a", -1, { requestId: "r" }))
      assert.deepStrictEqual(
        failed,
        new Client.RequestFailed({
          instanceId: "a",
          request: "Add",
          requestId: "r",
          problem: "its handler died: negative"
        })
      )
      assert.strictEqual(yield* client.request(Add, "a", 1), 1)
    }).pipe(Effect.provide(layer)))

  it.effect("fails when its payload cannot be read by the program", () =>
    Effect.gen(function*() {
      const client = yield* started
      const Other = Request.make("Add", { payload: Schema.String, success: Schema.Int })
      const failed = yield* Effect.flip(client.request(Other, "a", "text"))
      assert.include(failed.message, "payload cannot be read")
      assert.strictEqual(yield* client.request(Add, "a", 1), 1)
    }).pipe(Effect.provide(layer)))

  it.effect("fails when the instance ends without an answer, or has ended", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Idle, { instanceId: "i" })
      const asked = yield* Effect.forkChild(Effect.flip(client.request(Ping, "i")))
      yield* Effect.yieldNow
      yield* TestRuntime.settle
      yield* client.send(Close, "i")
      const ended = new Client.InstanceEnded({ instanceId: "i", waitedFor: "answer" })
      assert.deepStrictEqual(yield* Fiber.join(asked), ended)
      assert.deepStrictEqual(yield* Effect.flip(client.request(Ping, "i")), ended)
    }).pipe(Effect.provide(layer)))

  it.effect("says how far it has come when its timeout is over", () =>
    Effect.gen(function*() {
      const client = yield* started
      yield* client.start(Idle, { instanceId: "i" })
      const options = { timeout: "10 seconds" } as const
      const progress = (instanceId: string) =>
        Effect.map(Effect.flip(client.request(Ping, instanceId, undefined, options)), (error) =>
          error._tag === "WaitTimeout" ? [error.waitedFor, error.progress, error.timeoutMs] : error)
      assert.deepStrictEqual(yield* progress("none"), ["answer", "NotStarted", 10_000])
      assert.deepStrictEqual(yield* progress("i"), ["answer", "NotServed", 10_000])
      yield* (yield* Admin.Admin).setLimit("orchestration", "Account", { total: { concurrency: 1 } })
      yield* client.start(Account, { instanceId: "waits", payload: 0 })
      const unread = yield* Effect.flip(client.request(Ping, "waits", undefined, options))
      assert.include(unread, { _tag: "WaitTimeout", progress: "NotReceived" })
      assert.strictEqual(
        unread.message,
        "instance waits had not answered the request \"Ping\" after 10000 ms: no turn of the instance has read it; " +
          "it may be paused or blocked, or wait for a slot of its limit, or no process serves it"
      )
    }).pipe(Effect.provide(layer)))

  it.effect("is not checked again by a replay: what was decided stays, under another check as well", () => {
    const serving = (limit: number, isOpen = true) =>
      Runtime.layer({ orchestrations: [Account], activities: [Book] }).pipe(Layer.provide([
        Account.toLayer(Effect.fn(function*() {
          yield* Add.serve(Book.execute, {
            validate: (amount) => amount > limit ? Result.fail({ over: amount - limit }) : Result.succeed(undefined)
          })
          yield* Close.wait
          return isOpen ? 1 : 0
        })),
        Book.toLayer(Effect.succeed)
      ]))
    return Effect.gen(function*() {
      const client = yield* started
      assert.strictEqual(yield* client.request(Add, "a", 7), 7)
      assert.deepStrictEqual(yield* Effect.flip(client.request(Add, "a", 11)), { over: 1 })
      // The first would be refused now, the second accepted.
      yield* TestRuntime.deploy(serving(5))
      assert.deepStrictEqual(yield* Effect.flip(client.request(Add, "a", 7)), { over: 2 })
      yield* TestRuntime.deploy(serving(20))
      assert.strictEqual(yield* client.request(Add, "a", 11), 11)
      yield* client.send(Close, "a")
      assert.strictEqual(yield* client.wait(Account, "a"), 1)
    }).pipe(Effect.provide(TestRuntime.layer(serving(10))))
  })

  it.effect("is answered by several handlers at once, as many as are allowed", () => {
    let running = 0
    const most: Array<number> = []
    const Work = Activity.make("Work", { payload: Schema.Int, success: Schema.Int })
    const Pool = Orchestration.make("Pool", { payload: Schema.NullOr(Schema.Int) })
    const layer = TestRuntime.layer(
      Runtime.layer({ orchestrations: [Pool], activities: [Work] }).pipe(Layer.provide([
        Pool.toLayer(Effect.fn(function*(concurrency) {
          yield* Add.serve(Work.execute, { concurrency: concurrency ?? "unbounded" })
          yield* Close.wait
        })),
        Work.toLayer((amount) =>
          Effect.acquireUseRelease(
            Effect.sync(() => ++running),
            (now) => Effect.as(Effect.sleep("1 minute"), (most.push(now), amount)),
            () => Effect.sync(() => --running)
          )
        )
      ]))
    )
    return Effect.gen(function*() {
      const client = yield* Client.Client
      for (const concurrency of [1, 3, null]) {
        const instanceId = String(concurrency)
        yield* client.start(Pool, { instanceId, payload: concurrency })
        const answers = yield* Effect.forEach(
          [1, 2, 3, 4, 5, 6],
          (amount) => client.request(Add, instanceId, amount),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(answers, [1, 2, 3, 4, 5, 6])
        assert.strictEqual(Math.max(...most.splice(0)), concurrency ?? 6)
      }
    }).pipe(Effect.provide(layer))
  })

  it.effect("has one answer: a second one is a defect", () => {
    const layer = TestRuntime.layer(
      Runtime.layer({ orchestrations: [Idle] }).pipe(
        Layer.provide(Idle.toLayer(Effect.fn(function*() {
          const { answer } = yield* Ping.take
          yield* answer()
          yield* answer()
        })))
      )
    )
    return Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Idle, { instanceId: "i" })
      // Of that turn only the question is stored.
      assert.strictEqual((yield* Effect.flip(client.request(Ping, "i")))._tag, "InstanceEnded")
      const failed = yield* Effect.flip(client.wait(Idle, "i"))
      assert.include(failed._tag === "InstanceFailed" ? failed.details.message : "", "is answered already")
    }).pipe(Effect.provide(layer))
  })
})
