import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { ErrorDetails, Provider } from "duroxide-prisma/provider"
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Random from "effect/Random"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as App from "../utils/app.ts"

class Declined extends Schema.TaggedError<Declined>()("Declined", { code: Schema.Int }) {}

const Charge = Activity.make("Charge", { payload: Schema.Int, success: Schema.String, error: Declined })
const Explode = Activity.make("Explode")
const Slow = Activity.make("Slow", { payload: Schema.String })
const Approved = Signal.make("Approved", { payload: Schema.Struct({ by: Schema.String }) })

const Retrying = Orchestration.make("Retrying", { payload: Schema.Int, success: Schema.String, error: Declined })
const Exploding = Orchestration.make("Exploding")
const Deciding = Orchestration.make("Deciding", { payload: Schema.String, success: Schema.String })
const Measuring = Orchestration.make("Measuring", { success: Schema.Array(Schema.Number) })
const Sluggish = Orchestration.make("Sluggish", { payload: Schema.String })

const log = { charges: new Map<string, Array<{ tryNumber: number; key: string }>>(), slow: new Map<string, string>() }

const charge = Charge.toLayer(Effect.fn(function*(amount) {
  const { idempotencyKey, instanceId, tryNumber } = yield* Activity.Call
  const calls = log.charges.get(instanceId) ?? []
  log.charges.set(instanceId, [...calls, { tryNumber, key: idempotencyKey }])
  if (calls.length < amount) return yield* new Declined({ code: calls.length })
  return "paid"
}))

const slow = Slow.toLayer((instance) =>
  Effect.sync(() => log.slow.set(instance, "running")).pipe(
    Effect.andThen(Effect.never),
    Effect.onInterrupt(() => Effect.sync(() => log.slow.set(instance, "interrupted")))
  )
)

const runtime = Runtime.layer({
  orchestrations: [Retrying, Exploding, Deciding, Measuring, Sluggish],
  activities: [Charge, Explode, Slow]
}).pipe(Layer.provide([
  charge,
  slow,
  Explode.toLayer(() => Effect.die(new Error("boom"))),
  Retrying.toLayer((amount) => Charge.execute(amount).pipe(Effect.retry({ times: 2, schedule: Schedule.spaced(10) }))),
  Exploding.toLayer(() => Explode.execute()),
  Deciding.toLayer((timeout) =>
    Approved.wait.pipe(
      Effect.map(({ by }) => `approved by ${by}`),
      Effect.race(Effect.as(Effect.sleep(timeout as `${number} millis`), "timed out"))
    )
  ),
  Measuring.toLayer(Effect.fn(function*() {
    const read = Effect.all([Clock.currentTimeMillis, Effect.map(DateTime.now, DateTime.toEpochMillis), Random.next])
    const before = yield* read
    yield* Effect.sleep("50 millis")
    const after = yield* read
    return [...before, ...after]
  })),
  Sluggish.toLayer(Slow.execute)
]))

const layer = App.layer(runtime, {
  runtime: { workerLockTimeout: "400 millis", maxAttempts: 2 }
})

/** Ends when the history of the instance holds an event of the kind. */
const recorded = (instanceId: string, kind: string) =>
  Effect.flatMap(
    Provider.Provider,
    (provider) =>
      Effect.repeat(provider.read(instanceId), { until: (events) => events.some(({ _tag }) => _tag === kind) })
  )

const failure = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.flip(effect)

it.layer(layer, { excludeTestServices: true })("Runtime", (it) => {
  describe("Activity.execute", () => {
    it.effect("a typed failure is retried by a plain Schedule, each time as a separate call", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        assert.strictEqual(yield* client.execute(Retrying, { instanceId: "retry-ok", payload: 2 }), "paid")
        const calls = log.charges.get("retry-ok")!
        assert.deepStrictEqual(calls.map(({ tryNumber }) => tryNumber), [1, 1, 1])
        assert.strictEqual(new Set(calls.map(({ key }) => key)).size, 3)
      }))

    it.effect("the last typed failure reaches the client as the same error", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const error = yield* failure(client.execute(Retrying, { instanceId: "retry-fails", payload: 9 }))
        assert.instanceOf(error, Declined)
        assert.strictEqual(error.code, 2)
      }))

    it.effect("a handler that dies fails the instance with its defect", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const error = yield* failure(client.execute(Exploding, { instanceId: "explodes" }))
        assert.instanceOf(error, Client.InstanceFailed)
        const { details } = error
        assert.strictEqual(
          ErrorDetails.display(details),
          `orchestration panicked: activity "Explode" died: boom`
        )
        assert.strictEqual(error.message, `instance explodes failed: activity "Explode" died: boom`)
      }))
  })

  describe("Signal.wait", () => {
    it.effect("a signal wins the race against a timer, and without a signal the timer wins", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const approved = yield* Effect.forkChild(
          client.execute(Deciding, { instanceId: "approved", payload: "100000 millis" })
        )
        yield* recorded("approved", "ExternalSubscribedPersistent")
        yield* client.send(Approved, "approved", { by: "the boss" })
        assert.strictEqual(yield* Fiber.join(approved), "approved by the boss")
        assert.strictEqual(
          yield* client.execute(Deciding, { instanceId: "alone", payload: "30 millis" }),
          "timed out"
        )
      }))
  })

  describe("Clock and Random", () => {
    it.effect("continue from the recorded state when the program is replayed", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const numbers = yield* client.execute(Measuring, { instanceId: "measures" })
        const [clock1, date1, random1, clock2, date2, random2] = numbers as [
          number,
          number,
          number,
          number,
          number,
          number
        ]
        assert.strictEqual(clock1, date1)
        assert.strictEqual(clock2, date2)
        assert.isAtLeast(clock2, clock1 + 50)
        assert.notStrictEqual(random1, random2)
        const { timestampMs } = (yield* (yield* Provider.Provider).read("measures"))[0]!
        assert.strictEqual(clock1, timestampMs)
      }))
  })

  describe("Client.cancel", () => {
    it.effect("ends the instance and interrupts its running activity", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const waiting = yield* Effect.forkChild(
          failure(client.execute(Sluggish, { instanceId: "cancelled", payload: "cancelled" }))
        )
        yield* Effect.repeat(Effect.sync(() => log.slow.get("cancelled")), { until: (state) => state === "running" })
        yield* client.terminate("cancelled", "changed my mind")
        const error = yield* Fiber.join(waiting)
        assert.instanceOf(error, Client.InstanceCancelled)
        assert.strictEqual(error.message, "instance cancelled was cancelled: changed my mind")
        yield* Effect.repeat(Effect.sync(() => log.slow.get("cancelled")), {
          until: (state) => state === "interrupted"
        })
      }))
  })

  describe("Client.start", () => {
    it.effect("an id in use is refused, or ignored on request", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.execute(Measuring, { instanceId: "once" })
        const error = yield* failure(client.start(Measuring, { instanceId: "once" }))
        assert.instanceOf(error, Client.InstanceAlreadyExists)
        yield* client.start(Measuring, { instanceId: "once", ifExists: "ignore" })
        assert.strictEqual((yield* client.status("once"))._tag, "Completed")
      }))

    it.effect("shows the instance as running at once", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Deciding, { instanceId: "visible", payload: "100000 millis" })
        assert.strictEqual((yield* client.status("visible"))._tag, "Running")
        assert.strictEqual((yield* client.status("unknown"))._tag, "NotFound")
        yield* client.terminate("visible", "done")
      }))
  })

  describe("Bad input", () => {
    it.effect("a payload that does not match its schema is refused before anything is written", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const start = yield* failure(
          client.start(Retrying, { instanceId: "mismatch", payload: "secret" as unknown as number })
        )
        assert.strictEqual(start._tag, "PayloadMismatch")
        assert.strictEqual(
          start.message,
          `payload of orchestration "Retrying" does not match its schema: Expected number`
        )
        assert.strictEqual((yield* client.status("mismatch"))._tag, "NotFound")
        const raise = yield* failure(client.send(Approved, "approved", { by: 1 as unknown as string }))
        assert.strictEqual(raise._tag, "PayloadMismatch")
      }))

    it.effect("an instance id that cannot be stored is refused with the reason", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const problems: ReadonlyArray<readonly [instanceId: string, problem: string]> = [
          ["", "it is empty"],
          ["a\0b", "NUL"],
          ["\ud800", "surrogate"],
          ["é".repeat(1025), "it has 2050 bytes, the limit is "]
        ]
        for (const [instanceId, problem] of problems) {
          const calls = [
            client.start(Measuring, { instanceId }),
            client.wait(Measuring, instanceId),
            client.status(instanceId),
            client.send(Approved, instanceId, { by: "x" }),
            client.terminate(instanceId, "x")
          ]
          for (const call of calls) {
            const error = yield* failure(call as Effect.Effect<unknown, unknown>)
            assert.strictEqual((error as { reason: { _tag: string } }).reason._tag, "InvalidInput")
            assert.include((error as Error).message, problem)
          }
        }
        // Clients can send messages to children, but not start them.
        const child = yield* failure(client.start(Measuring, { instanceId: "parent::sub::1" }))
        assert.include(child.message, "'sub::' is reserved for child orchestrations")
        yield* client.send(Approved, "parent::sub::1", { by: "x" })
        const error = yield* failure(client.terminate("fine", "not\0fine"))
        assert.include(error.message, "invalid reason")
        yield* client.start(Measuring, { instanceId: "é".repeat(512) })
      }))

    it.effect("a result that its schema refuses fails the instance, and names the orchestration", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const Other = Orchestration.make("Measuring", { success: Schema.Struct({ a: Schema.Int }) })
        yield* client.execute(Measuring, { instanceId: "other" })
        const error = yield* failure(client.wait(Other, "other"))
        assert.strictEqual(error._tag, "PayloadMismatch")
        assert.include(error.message, `result of orchestration "Measuring"`)
      }))
  })

  it.effect("Client.wait: fails when the time has passed, and the instance continues", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Deciding, { instanceId: "late", payload: "100000 millis" })
      const error = yield* failure(client.wait(Deciding, "late", { timeout: "30 millis" }))
      assert.strictEqual(error._tag, "WaitTimeout")
      assert.strictEqual((yield* client.status("late"))._tag, "Running")
      yield* client.terminate("late", "done")
      const cause = yield* Effect.sandbox(client.wait(Deciding, "late")).pipe(Effect.flip)
      assert.include(Cause.pretty(cause), "instance late was cancelled: done")
    }))
})
