/**
 * Where a codec meets others: object stores that do not answer, processes of Rust, limits of sizes, stores without one.
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { FromDriver, PayloadCodec, ProviderDriver } from "duroxide-prisma/provider"
import { recordHistory, replayHistory, TestRuntime } from "duroxide-prisma/testing"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { anyRust, current } from "../../src/model/shared/coreVersion.ts"
import type * as WorkItem from "../../src/model/WorkItem.ts"
import * as memory from "../../src/provider/memory/driver.ts"
import * as tables from "../../src/provider/memory/tables.ts"
import { canary, encryption } from "./utils.ts"

const Copy = Activity.make("Copy", { payload: Schema.String, success: Schema.String })
const Twice = Orchestration.make("Twice", { payload: Schema.String, success: Schema.String })

const TwiceLive = Twice.toLayer(Effect.fn(function*(text) {
  const once = yield* Copy.execute(text)
  yield* Effect.sleep("1 minute")
  return once + (yield* Copy.execute(once))
}))

const runtime = Runtime.layer({ orchestrations: [Twice], activities: [Copy] }).pipe(Layer.provide([
  Copy.toLayer((text) => Effect.succeed(text)),
  TwiceLive,
  Logger.layer([])
]))

/** Blocks what does not fit, as in production. */
const blocking = Layer.provide(runtime, RuntimeConfig.layer({ onMismatch: "block", shutdownTimeout: 1 }))

describe("An object store", () => {
  it.effect("that does not answer delays what needs it; what is lost blocks until it is back", () => {
    const objects = new Map<string, Uint8Array>()
    let isDown = false
    const payloads = PayloadCodec.layer([
      PayloadCodec.objectStore({
        put: (name, bytes) => isDown ? Effect.fail("down") : Effect.sync(() => objects.set(name, bytes)),
        get: (name) => isDown ? Effect.die("down") : Effect.sync(() => objects.get(name)),
        above: 100
      })
    ])
    const text = "x".repeat(500)
    return Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Twice, { instanceId: "a", payload: text })
      // The same bytes are one object, wherever they are stored.
      assert.strictEqual(objects.size, 1)
      isDown = true
      const refused = yield* Effect.flip(client.start(Twice, { instanceId: "b", payload: text }))
      assert.deepInclude(refused, { _tag: "ProviderError", isRetryable: true })
      assert.strictEqual(
        refused.message,
        "startOrchestration: a payload cannot be encoded or decoded now: the object store did not take a payload"
      )
      yield* TestRuntime.crash
      yield* TestRuntime.advance("10 minutes")
      const blockOf = Effect.map(
        client.status("a"),
        (status) => status._tag === "Running" ? Option.getOrUndefined(status.block) : status
      )
      assert.isUndefined(yield* blockOf)
      isDown = false
      const kept = new Map(objects)
      objects.clear()
      yield* TestRuntime.advance("10 minutes")
      assert.deepInclude(yield* blockOf, { reason: "DataUnreadable" })
      assert.include(JSON.stringify(yield* blockOf), "it is in the object store (object ")
      for (const [name, bytes] of kept) objects.set(name, bytes)
      assert.strictEqual(yield* client.wait(Twice, "a"), text + text)
    }).pipe(Effect.provide(Layer.provideMerge(TestRuntime.layer(blocking), payloads)), Effect.scoped)
  })

  it.effect("that lost a failure blocks: the program does not take it for another one", () => {
    const objects = new Map<string, Uint8Array>()
    const payloads = PayloadCodec.layer([
      PayloadCodec.objectStore({
        put: (name, bytes) => Effect.sync(() => objects.set(name, bytes)),
        get: (name) => Effect.sync(() => objects.get(name)),
        above: 100
      })
    ])
    const Refuse = Activity.make("Refuse", { error: Schema.String })
    const Careful = Orchestration.make("Careful", { success: Schema.Int })
    const careful = Runtime.layer({ orchestrations: [Careful], activities: [Refuse] }).pipe(
      Layer.provide([
        Refuse.toLayer(() => Effect.fail("x".repeat(500))),
        Careful.toLayer(() =>
          Refuse.execute().pipe(
            Effect.as(0),
            Effect.catch((text) => Effect.succeed(text.length)),
            Effect.tap(() => Effect.sleep("1 minute"))
          )
        ),
        Logger.layer([]),
        RuntimeConfig.layer({ onMismatch: "block", shutdownTimeout: 1 })
      ])
    )
    return Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Careful, { instanceId: "a" })
      const kept = new Map(objects)
      assert.strictEqual(kept.size, 1)
      objects.clear()
      yield* TestRuntime.crash
      yield* TestRuntime.advance("10 minutes")
      const status = yield* client.status("a")
      assert.deepInclude(status._tag === "Running" ? Option.getOrUndefined(status.block) : status, {
        reason: "DataUnreadable"
      })
      for (const [name, bytes] of kept) objects.set(name, bytes)
      assert.strictEqual(yield* client.wait(Careful, "a"), 500)
    }).pipe(Effect.provide(Layer.provideMerge(TestRuntime.layer(careful), payloads)), Effect.scoped)
  })

  it.effect("keeps large payloads out of the database, up to 4 MiB of plain text", () => {
    const objects = new Map<string, Uint8Array>()
    const payloads = PayloadCodec.layer([
      encryption("k1"),
      PayloadCodec.objectStore({
        put: (name, bytes) => Effect.sync(() => objects.set(name, bytes)),
        get: (name) => Effect.sync(() => objects.get(name))
      })
    ])
    return Effect.gen(function*() {
      const client = yield* Client.Client
      const text = "x".repeat(1_000_000)
      assert.strictEqual(yield* client.execute(Twice, { instanceId: "large", payload: text }), text + text)
      assert.isBelow(JSON.stringify(yield* TestRuntime.history("large")).length, 10_000)
      const tooLarge = yield* Effect.flip(client.start(Twice, { instanceId: "more", payload: "x".repeat(4_194_304) }))
      assert.strictEqual(tooLarge._tag, "PayloadTooLarge")
    }).pipe(Effect.provide(Layer.provideMerge(TestRuntime.layer(runtime), payloads)), Effect.scoped)
  })
})

/** A provider over tables that the test reads. */
const open = Effect.fnUntraced(function*(codec: PayloadCodec.PayloadCodec["Service"] | undefined) {
  const store = tables.make()
  const services = yield* Layer.build(memory.layer(store))
  const driver = yield* Effect.provide(ProviderDriver.ProviderDriver, services)
  const made = FromDriver.make(driver, { longPolling: { enabled: false } })
  const provider = yield* (codec === undefined ? made : Effect.provideService(made, PayloadCodec.PayloadCodec, codec))
  const stored = () => ({
    messages: [...store.messages.values()].map(({ workItem }) => workItem),
    activities: [...store.activities.values()].map(({ workItem }) => workItem)
  })
  return { provider, stored }
}, Effect.provide(Logger.layer([])))

const start = (instance: string): WorkItem.Of<"StartOrchestration"> => ({
  _tag: "StartOrchestration",
  instance,
  orchestration: "Errand",
  input: JSON.stringify(canary),
  version: "1.0.0",
  parentInstance: null,
  parentId: null,
  executionId: 1
})
const activity = (id: number, more: Partial<WorkItem.Of<"ActivityExecute">> = {}): WorkItem.Of<"ActivityExecute"> => ({
  _tag: "ActivityExecute",
  instance: "ours",
  executionId: 1,
  id,
  name: "Step",
  input: JSON.stringify(canary),
  ...more
})
const none = Option.none<Duration.Duration>()
const claim = {
  lockTimeout: Duration.seconds(30),
  pollTimeout: Duration.zero,
  versions: Option.none(),
  tags: { _tag: "Any" },
  session: Option.none()
} as const

describe("A recorded history", () => {
  it.effect("stays sealed, and is replayed with the codec", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.execute(Twice, { instanceId: "a", payload: canary })
      const history = yield* recordHistory("a")
      assert.notInclude(history, canary)
      const replayed = yield* replayHistory(Twice, history)
      assert.strictEqual(replayed.executions[0]?.status, "Completed")
      const blind = yield* replayHistory(Twice, history).pipe(
        Effect.provide(PayloadCodec.layer([encryption("k2")])),
        Effect.flip
      )
      assert.include(blind.message, "encrypted (key k1,")
    }).pipe(
      Effect.provide(
        Layer.merge(TestRuntime.layer(runtime), TwiceLive).pipe(
          Layer.provideMerge(PayloadCodec.layer([encryption("k1")]))
        )
      ),
      Effect.scoped
    ))
})

describe("Processes of Duroxide in Rust", () => {
  it.effect("get plain text of all that they are to run: starts, children, activities, and outcomes of theirs", () =>
    Effect.gen(function*() {
      const { provider, stored } = yield* open(PayloadCodec.make([encryption("k1")], { sharedWithRust: true }))
      yield* provider.startOrchestration({ start: start("theirs"), pinnedVersion: anyRust, delay: none })
      yield* provider.startOrchestration({ start: start("ours"), pinnedVersion: current, delay: none })
      const plain = () => stored().messages.filter((text) => text.includes(canary))
      assert.strictEqual(plain().length, 1)
      const send = (instance: string) =>
        provider.enqueueForOrchestrator({
          message: { _tag: "QueueMessage", instance, name: "Note", data: JSON.stringify(canary) },
          delay: none
        })
      yield* send("ours")
      assert.strictEqual(plain().length, 1)
      yield* send("theirs")
      assert.strictEqual(plain().length, 2)

      const claimed = Option.getOrThrow(
        yield* provider.fetchOrchestrationItem({ ...claim, versions: Option.some({ min: current, max: current }) })
      )
      assert.strictEqual(claimed.item.instanceId, "ours")
      assert.deepInclude(claimed.item.messages[0], { input: JSON.stringify(canary) })
      const theirs = activity(2)
      const ours = activity(3)
      const [child, other] = [start("rust child"), start("child")]
      yield* provider.ackOrchestrationItem(claimed.lockToken, {
        executionId: 1,
        historyDelta: [{
          _tag: "OrchestrationStarted",
          eventId: 1,
          sourceEventId: null,
          instanceId: "ours",
          executionId: 1,
          timestampMs: 0,
          duroxideVersion: "1000.1.0",
          name: "Errand",
          version: "1.0.0",
          input: JSON.stringify(canary),
          parentInstance: null,
          parentId: null
        }],
        workerItems: [theirs, ours],
        forRust: new Set([theirs]),
        orchestratorItems: [
          child,
          other,
          // The answer to a parent, which is one of Rust.
          {
            _tag: "SubOrchCompleted",
            parentInstance: "theirs",
            parentExecutionId: 1,
            parentId: 2,
            result: JSON.stringify(canary)
          }
        ],
        startsPinnedTo: new Map([[child, anyRust], [other, current]]),
        metadata: { status: "Running", orchestrationName: "Errand", orchestrationVersion: "1.0.0" },
        cancelledActivities: []
      })
      const texts = stored()
      assert.deepStrictEqual(texts.activities.map((text) => text.includes(canary)), [true, false])
      const startOf = (id: string) => texts.messages.find((text) => text.includes(`"instance":"${id}"`))
      assert.include(startOf("rust child"), canary)
      assert.notInclude(startOf("child"), canary)
      assert.include(texts.messages.find((text) => text.includes("SubOrchCompleted")), canary)
      // Any process may take a start without a pin.
      yield* provider.enqueueForOrchestrator({ message: start("unpinned"), delay: none })
      assert.include(stored().messages.at(-1), canary)
    }).pipe(Effect.scoped))

  it.effect("get plain results of activities that they have called here", () =>
    Effect.gen(function*() {
      const { provider, stored } = yield* open(PayloadCodec.make([encryption("k1")]))
      // Only this package writes the start of the execution.
      yield* provider.enqueueForWorker(activity(1, { instance: "theirs" }))
      yield* provider.enqueueForWorker(activity(2, { startedAtMs: 1 }))
      const claimed = yield* provider.fetchWorkItems({ ...claim, most: () => 2 })
      assert.strictEqual(claimed.length, 2)
      for (const { item, lockToken } of claimed) {
        assert.strictEqual(item.input, JSON.stringify(canary))
        const { executionId, id, instance } = item
        yield* provider.ackWorkItem(
          lockToken,
          Option.some({ _tag: "ActivityCompleted", instance, executionId, id, result: JSON.stringify(canary) })
        )
      }
      const [theirs, ours] = stored().messages
      assert.include(theirs, canary)
      assert.notInclude(ours, canary)
    }).pipe(Effect.scoped))
})

describe("A store without a codec", () => {
  it.effect("stores what it is given, byte for byte, and refuses a payload that looks sealed", () =>
    Effect.gen(function*() {
      const { provider, stored } = yield* open(undefined)
      assert.strictEqual(provider.sealsPayloads, false)
      yield* provider.startOrchestration({ start: start("ours"), pinnedVersion: current, delay: none })
      assert.include(stored().messages[0], canary)
      const client = yield* Client.Client
      const Any = Orchestration.make("Any", { payload: Schema.Unknown })
      const mismatch = yield* Effect.flip(client.start(Any, { instanceId: "a", payload: { $sealed: "x" } }))
      assert.strictEqual(
        mismatch.message,
        "payload of orchestration \"Any\" does not match its schema: the field \"$sealed\" cannot be the first one: it marks what a PayloadCodec stores"
      )
      yield* client.start(Any, { instanceId: "b", payload: { a: 1, $sealed: "x" } })
    }).pipe(Effect.provide(TestRuntime.layer(runtime)), Effect.scoped))
})
