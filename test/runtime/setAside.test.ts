/**
 * Signals that no build can read: their instances are blocked for a while, and then continue without them.
 */
import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import { Admin, FromDriver, MemoryDriver } from "duroxide-prisma/provider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as References from "effect/References"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "../utils/localProcess.ts"

const inMemory = Effect.provide([MemoryDriver.layer, Logger.layer([])])

const admin = Effect.flatMap(Admin.Admin, Effect.succeed).pipe(Effect.provide(FromDriver.layerAdmin))

const Approval = Orchestration.make("Approval", { success: Schema.String })

/** What foreign senders, and builds before the change, send. */
const Anything = Signal.make("Answer", { payload: Schema.Unknown })
const AnythingLossy = Signal.make("Answer", { payload: Schema.Unknown, unawaited: "lost" })
const Answer = Signal.make("Answer", { payload: Schema.Struct({ by: Schema.String }) })
const AnswerLossy = Signal.make("Answer", { payload: Schema.Struct({ by: Schema.String }), unawaited: "lost" })

const two = (answer: typeof Answer) =>
  Approval.toLayer(() =>
    Effect.gen(function*() {
      const first = yield* answer.wait
      const second = yield* answer.wait
      return `${first.by}, ${second.by}`
    })
  )

/** Reads both forms. */
const reading = Approval.toLayer(() =>
  Effect.gen(function*() {
    const first = yield* Anything.wait
    const second = yield* Anything.wait
    return JSON.stringify([first, second])
  })
)

const start = (program: Layer.Layer<Orchestration.Handler<"Approval", "1.0.0">>, options: RuntimeConfig.Options = {}) =>
  LocalProcess.start(Runtime.layer({ orchestrations: [Approval], activities: [] }).pipe(Layer.provide(program)), {
    runtime: options,
    provider: { longPolling: { aggressivePollInterval: "5 seconds" } }
  })

const blockOf = Effect.fnUntraced(function*(client: Client.Client["Service"], instanceId: string) {
  const status = yield* client.status(instanceId)
  return status._tag === "Running" ? Option.getOrUndefined(status.block) : assert.fail(`it is ${status._tag}`)
})

const countOf = Effect.map(
  Metric.snapshot,
  (all) =>
    all.flatMap((one) =>
      one.id === "duroxide_signals_set_aside_total" && one.type === "Counter" ? Number(one.state.count) : []
    ).reduce((sum, count) => sum + count, 0)
)

describe("A signal that no build can read", () => {
  it.effect("blocks its instance for an hour, then it is set aside, and the next one is taken", () =>
    Effect.gen(function*() {
      const before = yield* countOf
      const { client } = yield* start(two(Answer))
      yield* client.start(Approval, { instanceId: "a" })
      yield* client.send(Anything, "a", "junk")
      yield* client.send(Answer, "a", { by: "Ann" })
      yield* TestClock.adjust("58 minutes")
      assert.deepInclude(yield* blockOf(client, "a"), { reason: "DataUnreadable" })
      yield* TestClock.adjust("4 minutes")
      assert.isUndefined(yield* blockOf(client, "a"))
      assert.strictEqual((yield* countOf) - before, 1)
      yield* client.send(Answer, "a", { by: "Bob" })
      yield* TestClock.adjust("1 second")
      assert.strictEqual(yield* client.wait(Approval, "a", { timeout: 0 }), "Ann, Bob")
    }).pipe(inMemory))

  it.effect("is taken if a build that reads it is deployed before", () =>
    Effect.gen(function*() {
      const wrong = yield* start(two(Answer))
      yield* wrong.client.start(Approval, { instanceId: "a" })
      yield* wrong.client.send(Anything, "a", "junk")
      yield* TestClock.adjust("30 minutes")
      yield* wrong.stop
      const { client } = yield* start(reading)
      yield* client.send(Answer, "a", { by: "Ann" })
      yield* TestClock.adjust("1 minute")
      assert.strictEqual(yield* client.wait(Approval, "a", { timeout: 0 }), `["junk",{"by":"Ann"}]`)
    }).pipe(inMemory))

  it.effect("stays set aside in every replay, also by a build that reads it, and is read when it is redriven", () =>
    Effect.gen(function*() {
      const wrong = yield* start(two(Answer), { unreadableSignalTimeout: 0, warmInstances: 0 })
      yield* wrong.client.start(Approval, { instanceId: "a" })
      yield* TestClock.adjust("1 second")
      yield* wrong.client.send(Anything, "a", "junk")
      yield* TestClock.adjust("1 second")
      yield* wrong.client.send(Answer, "a", { by: "Ann" })
      yield* TestClock.adjust("1 second")
      assert.isUndefined(yield* blockOf(wrong.client, "a"))
      yield* wrong.stop

      const { client } = yield* start(reading, { warmInstances: 0 })
      // Its start, the wait, and the signal come first.
      yield* client.redrive("a", { event: 3 })
      yield* TestClock.adjust("1 minute")
      assert.strictEqual(yield* client.wait(Approval, "a", { timeout: 0 }), `[{"by":"Ann"},"junk"]`)
    }).pipe(inMemory))

  it.effect("that arrived before its wait is set aside as well, a whole burst at once", () =>
    Effect.gen(function*() {
      const { client } = yield* start(
        Approval.toLayer(() =>
          Effect.gen(function*() {
            yield* Effect.sleep("1 minute")
            return (yield* Answer.wait).by
          })
        ),
        { unreadableSignalTimeout: "5 minutes" }
      )
      yield* client.start(Approval, { instanceId: "a" })
      for (let i = 0; i < 5_000; i++) yield* client.send(Anything, "a", i)
      yield* client.send(Answer, "a", { by: "Ann" })
      yield* TestClock.adjust("4 minutes")
      assert.deepInclude(yield* blockOf(client, "a"), { reason: "DataUnreadable" })
      yield* TestClock.adjust("4 minutes")
      assert.strictEqual(yield* client.wait(Approval, "a", { timeout: 0 }), "Ann")
    }).pipe(inMemory))

  it.effect("is set aside where signals are lossy", () =>
    Effect.gen(function*() {
      const { client } = yield* start(two(AnswerLossy), { unreadableSignalTimeout: 0 })
      yield* client.start(Approval, { instanceId: "a" })
      yield* TestClock.adjust("1 second")
      for (const by of ["Ann", "Bob"]) {
        yield* client.send(AnythingLossy, "a", "junk")
        yield* TestClock.adjust("1 second")
        yield* client.send(AnswerLossy, "a", { by })
        yield* TestClock.adjust("1 second")
      }
      assert.strictEqual(yield* client.wait(Approval, "a", { timeout: 0 }), "Ann, Bob")
    }).pipe(inMemory))

  it.effect("does not delay a timeout once it is set aside", () =>
    Effect.gen(function*() {
      const { client } = yield* start(
        Approval.toLayer(() => Effect.as(Effect.timeoutOption(Answer.wait, "3 hours"), "too late"))
      )
      yield* client.start(Approval, { instanceId: "a" })
      yield* TestClock.adjust("1 second")
      yield* client.send(Anything, "a", "junk")
      yield* TestClock.adjust("2 hours")
      assert.isUndefined(yield* blockOf(client, "a"))
      yield* TestClock.adjust(Duration.minutes(61))
      assert.strictEqual(yield* client.wait(Approval, "a", { timeout: 0 }), "too late")
    }).pipe(inMemory))

  it.effect("that was taken by an earlier build blocks for good: what followed depends on it", () =>
    Effect.gen(function*() {
      const right = yield* start(reading)
      yield* right.client.start(Approval, { instanceId: "a" })
      yield* right.client.send(Anything, "a", "junk")
      yield* TestClock.adjust("1 second")
      yield* right.stop
      const { client } = yield* start(two(Answer), { unreadableSignalTimeout: 0 })
      yield* client.send(Answer, "a", { by: "Ann" })
      yield* TestClock.adjust("3 hours")
      assert.deepInclude(yield* blockOf(client, "a"), { reason: "DataUnreadable" })
    }).pipe(inMemory))
})

describe("The hour of a signal", () => {
  it.effect("is its own: a later one blocks anew, also while its program waits in memory", () =>
    Effect.gen(function*() {
      const { client } = yield* start(two(Answer))
      yield* client.start(Approval, { instanceId: "a" })
      yield* TestClock.adjust("1 second")
      yield* client.send(Anything, "a", "junk")
      yield* TestClock.adjust("62 minutes")
      assert.isUndefined(yield* blockOf(client, "a"))
      yield* client.send(Anything, "a", "more junk")
      yield* TestClock.adjust("1 minute")
      assert.deepInclude(yield* blockOf(client, "a"), { reason: "DataUnreadable" })
      yield* TestClock.adjust("62 minutes")
      assert.isUndefined(yield* blockOf(client, "a"))
      for (const by of ["Ann", "Bob"]) yield* client.send(Answer, "a", { by })
      yield* TestClock.adjust("1 second")
      assert.strictEqual(yield* client.wait(Approval, "a", { timeout: 0 }), "Ann, Bob")
    }).pipe(inMemory))

  it.effect("does not begin before it comes, whatever has blocked its instance before", () =>
    Effect.gen(function*() {
      const right = yield* start(two(Answer))
      yield* right.client.start(Approval, { instanceId: "a" })
      yield* TestClock.adjust("1 second")
      yield* right.stop
      const wrong = yield* start(Approval.toLayer(() => Effect.as(Effect.sleep("1 minute"), "edited")))
      yield* wrong.client.send(Answer, "a", { by: "Ann" })
      yield* TestClock.adjust("2 hours")
      assert.deepInclude(yield* blockOf(wrong.client, "a"), { reason: "HistoryDiffers" })
      yield* wrong.client.send(Anything, "a", "junk")
      yield* wrong.stop
      const { client } = yield* start(two(Answer))
      yield* TestClock.adjust("50 minutes")
      assert.deepInclude(yield* blockOf(client, "a"), { reason: "DataUnreadable" })
      yield* client.send(Answer, "a", { by: "Bob" })
      yield* TestClock.adjust("12 minutes")
      assert.strictEqual(yield* client.wait(Approval, "a", { timeout: 0 }), "Ann, Bob")
    }).pipe(inMemory))
})

describe("A signal that was set aside", () => {
  it.effect("does not cost the next one its place: one that came in time wins against a timeout", () =>
    Effect.gen(function*() {
      const { client } = yield* start(
        Approval.toLayer(() => Effect.map(Effect.timeoutOption(Answer.wait, "2 minutes"), ({ _tag }) => _tag)),
        { unreadableSignalTimeout: "5 minutes" }
      )
      yield* client.start(Approval, { instanceId: "a" })
      yield* TestClock.adjust("1 second")
      yield* client.send(Anything, "a", "junk")
      yield* client.send(Answer, "a", { by: "Ann" })
      yield* TestClock.adjust("10 minutes")
      assert.strictEqual(yield* client.wait(Approval, "a", { timeout: 0 }), "Some")
    }).pipe(inMemory))

  it.effect("is set aside again after a retry that removes what followed it", () =>
    Effect.gen(function*() {
      const { client } = yield* start(two(Answer), { unreadableSignalTimeout: 0, warmInstances: 0 })
      const { retry } = yield* admin
      // Its start, the wait, the signal: what set it aside is removed, or half of it.
      for (const from of [3, 4, 5, undefined]) {
        const instanceId = `from ${from}`
        yield* client.start(Approval, { instanceId })
        yield* TestClock.adjust("1 second")
        yield* client.send(Anything, instanceId, "junk")
        yield* TestClock.adjust("1 second")
        yield* client.terminate(instanceId, "too early")
        yield* TestClock.adjust("1 second")
        yield* retry(instanceId, { from })
        for (const by of ["Ann", "Bob"]) yield* client.send(Answer, instanceId, { by })
        yield* TestClock.adjust("1 minute")
        assert.strictEqual(yield* client.wait(Approval, instanceId, { timeout: 0 }), "Ann, Bob")
      }
    }).pipe(inMemory))

  it.effect("is not carried over, and the log names the execution that has it", () => {
    const lines: Array<unknown> = []
    const logger = Logger.make(({ fiber, message }) => {
      if (!String(message).includes("is set aside")) return
      const { event_id, execution_id, signal } = fiber.getRef(References.CurrentLogAnnotations)
      lines.push([signal, execution_id, event_id])
    })
    return Effect.gen(function*() {
      const { client } = yield* start(
        Approval.toLayer(() =>
          Effect.flatMap(Orchestration.Instance, ({ executionId }) =>
            executionId === 1
              ? Effect.andThen(Effect.sleep("1 minute"), Approval.continueAsNew())
              : Effect.map(Answer.wait, ({ by }) => by))
        ),
        { unreadableSignalTimeout: 0, verifyReplay: true }
      )
      yield* client.start(Approval, { instanceId: "a" })
      yield* TestClock.adjust("1 second")
      yield* client.send(Anything, "a", "junk")
      yield* TestClock.adjust("5 minutes")
      assert.deepStrictEqual(lines, [["Answer", 2, 2]])
      yield* client.send(Answer, "a", { by: "Ann" })
      yield* TestClock.adjust("5 minutes")
      assert.strictEqual(yield* client.wait(Approval, "a", { timeout: 0 }), "Ann")
    }).pipe(Effect.provide([MemoryDriver.layer, Logger.layer([logger])]))
  })

  it.effect("does not keep its instance from being interrupted", () =>
    Effect.gen(function*() {
      const { client } = yield* start(two(Answer), { unreadableSignalTimeout: 0 })
      yield* client.start(Approval, { instanceId: "a" })
      yield* client.send(Anything, "a", "junk")
      yield* client.interrupt("a", "not needed")
      yield* TestClock.adjust("1 minute")
      assert.deepInclude(yield* client.status("a"), { _tag: "Cancelled", reason: "not needed" })
    }).pipe(inMemory))
})

describe("A redrive", () => {
  it.effect("refuses what was not set aside, and instances that cannot receive it", () =>
    Effect.gen(function*() {
      const { client } = yield* start(two(Answer), { unreadableSignalTimeout: 0 })
      const reasonOf = (id: string, event: number) =>
        Effect.map(Effect.flip(client.redrive(id, { event })), ({ reason }) => reason)
      assert.strictEqual((yield* reasonOf("a", 3))._tag, "InstanceNotFound")
      yield* client.start(Approval, { instanceId: "a" })
      yield* client.send(Anything, "a", "junk")
      yield* client.send(Answer, "a", { by: "Ann" })
      yield* TestClock.adjust("1 second")
      const reason = yield* reasonOf("a", 1)
      assert.strictEqual(reason._tag, "InvalidInput")
      assert.include(reason.message, "event 1 of execution 1 is not a signal that was set aside")
      yield* client.send(Answer, "a", { by: "Bob" })
      yield* TestClock.adjust("1 second")
      assert.strictEqual(yield* client.wait(Approval, "a", { timeout: 0 }), "Ann, Bob")
      assert.strictEqual((yield* reasonOf("a", 3))._tag, "InstanceEnded")
    }).pipe(inMemory))
})
