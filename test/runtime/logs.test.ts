import { assert, describe, it } from "@effect/vitest"
import { Activity, Orchestration, Runtime, Signal } from "duroxide-prisma"
import type { RuntimeConfig } from "duroxide-prisma"
import { MemoryDriver } from "duroxide-prisma/provider"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as References from "effect/References"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "../utils/localProcess.ts"
import { waitUntil } from "../utils/waitUntil.ts"

interface Line {
  readonly cause: string
  readonly level: string
  readonly message: string
  readonly annotations: Record<string, unknown>
}

const collect = () => {
  const lines: Array<Line> = []
  const logger = Logger.make(({ cause, fiber, logLevel, message }) => {
    lines.push({
      cause: Cause.pretty(cause),
      level: logLevel,
      message: String(message),
      annotations: { ...fiber.getRef(References.CurrentLogAnnotations) }
    })
  })
  return { lines, layer: Logger.layer([logger]) }
}

const Compute = Activity.make("Compute")
const Computes = Orchestration.make("Computes")
const Calls = Orchestration.make("Calls", { version: "1.2.0" })

/** Holds the event loop, as a large computation does. */
const compute = Effect.sync(() => {
  const until = performance.now() + 1_200
  while (performance.now() < until);
})

/** Lets everything happen that can happen at this time. */
const settle = Effect.repeat(Effect.promise(() => new Promise<void>((resolve) => void setImmediate(resolve))), {
  times: 100
})

/** Logs in a program, in a handler that dies, and in a child. */
const Speaks = Orchestration.make("Speaks")
const SpeaksToo = Orchestration.make("SpeaksToo")
const Dies = Activity.make("Dies")
const speaking = Runtime.layer({ orchestrations: [Speaks, SpeaksToo], activities: [Dies] }).pipe(Layer.provide([
  Dies.toLayer(() => Effect.andThen(Effect.logInfo("the handler speaks"), Effect.die("of it"))),
  SpeaksToo.toLayer(() => Effect.logInfo("the child speaks")),
  Speaks.toLayer(() =>
    Effect.logInfo("the program speaks").pipe(
      Effect.andThen(SpeaksToo.execute()),
      Effect.andThen(Dies.execute())
    )
  )
]))

const runtime = Runtime.layer({ orchestrations: [Computes, Calls], activities: [Compute] }).pipe(Layer.provide([
  Compute.toLayer(() => Effect.andThen(compute, Effect.sleep("700 millis"))),
  Computes.toLayer(() => compute),
  Calls.toLayer(() => Compute.execute())
]))

describe("Logs of a runtime", () => {
  it.live("name the instance whose turn blocks the event loop, and the activities that may do so", () => {
    const { layer, lines } = collect()
    return Effect.gen(function*() {
      const { client } = yield* LocalProcess.start(runtime)
      yield* client.execute(Computes, { instanceId: "a turn" })
      yield* client.execute(Calls, { instanceId: "an activity" })
      const blocked = () => lines.filter(({ message }) => message.includes("blocked the event loop"))
      yield* waitUntil(Effect.sync(() => blocked().length > 0))
      const warnings = lines.filter(({ level }) => level === "Warn")
      assert.lengthOf(warnings, 2)
      assert.deepInclude(warnings[0]!.annotations, { instance_id: "a turn", orchestration_name: "Computes" })
      assert.include(warnings[1]!.message, "the event loop was blocked")
      assert.strictEqual(warnings[1]!.annotations["activities"], "Compute of an activity")
      for (const { annotations } of warnings) assert.isAtLeast(annotations["duration_ms"] as number, 1_000)
    }).pipe(Effect.provide([MemoryDriver.layer, layer]))
  })

  it.effect("are those of the runtime when a handler has loggers of its own, and each line names its call", () => {
    const [ours, theirs] = [collect(), collect()]
    return Effect.gen(function*() {
      const Dies = Activity.make("Dies")
      const CallsIt = Orchestration.make("CallsIt")
      const { client } = yield* LocalProcess.start(
        Runtime.layer({ orchestrations: [CallsIt], activities: [Dies] }).pipe(Layer.provide([
          Dies.toLayer(() => Effect.andThen(Effect.logInfo("the handler speaks"), Effect.die("of it"))).pipe(
            Layer.provide(theirs.layer),
            Layer.provide(Layer.succeed(References.CurrentLogAnnotations, { service: "shop" }))
          ),
          CallsIt.toLayer(() => Dies.execute())
        ]))
      )
      yield* Effect.exit(client.execute(CallsIt, { instanceId: "a" }))
      const [line, ...others] = theirs.lines
      assert.deepStrictEqual(others, [])
      assert.strictEqual(line!.message, "the handler speaks")
      assert.deepInclude(line!.annotations, { activity_name: "Dies", instance_id: "a", service: "shop" })
      const [death] = ours.lines.filter(({ message }) => message.includes("activity died"))
      assert.deepInclude(death!.annotations, { activity_name: "Dies", instance_id: "a", package: "duroxide-prisma" })
    }).pipe(Effect.provide([MemoryDriver.layer, ours.layer]))
  })

  for (const optimisticTurns of [true, false]) {
    it.effect(
      `have the address of their instance in the dashboard, if there is one, with${
        optimisticTurns ? "" : "out"
      } optimistic turns`,
      () =>
        Effect.gen(function*() {
          const linesOf = Effect.fnUntraced(function*(options: RuntimeConfig.Options) {
            const { layer, lines } = collect()
            yield* Effect.gen(function*() {
              const { client } = yield* LocalProcess.start(speaking, { runtime: { optimisticTurns, ...options } })
              yield* client.execute(SpeaksToo, { instanceId: "first" })
              // Its claims have found nothing more, so turns can be stored without one.
              yield* settle
              yield* Effect.exit(client.execute(Speaks, { instanceId: "order 1/2" }))
              yield* settle
            }).pipe(
              Effect.scoped,
              Effect.provide([MemoryDriver.layer, layer, Layer.succeed(References.MinimumLogLevel, "Debug")])
            )
            return lines
          })
          const lines = yield* linesOf({ dashboardUrl: "https://shop.example/duroxide/" })
          const spoken = lines.findIndex(({ message }) => message === "the program speaks")
          const stored = lines.slice(spoken).find(({ annotations }) => annotations["operation"] !== undefined)
          assert.strictEqual(
            stored!.annotations["operation"],
            optimisticTurns ? "startOrchestrations" : "ackOrchestrationItems"
          )
          const about = lines.filter(({ annotations }) => annotations["instance_id"] !== undefined)
          for (const { annotations, message } of about) {
            const id = encodeURIComponent(annotations["instance_id"] as string)
            assert.strictEqual(annotations["url"], `https://shop.example/duroxide/#/instances/${id}`, message)
          }
          const messages = about.map(({ message }) => message.replace(/: of it$/, ""))
          assert.includeMembers(messages, [
            "the program speaks",
            "the child speaks",
            "the handler speaks",
            "Worker dispatcher: activity died",
            "Worker dispatcher: outcome stored",
            "Orchestration dispatcher: turn stored, instance waits",
            "Orchestration dispatcher: instance completed"
          ])
          assert.isTrue(about.some(({ annotations }) => annotations["instance_id"] !== "order 1/2"))
          const others = lines.filter((line) => !about.includes(line))
          for (const { annotations, message } of [...others, ...yield* linesOf({})]) {
            assert.notProperty(annotations, "url", message)
          }
        })
    )
  }

  it.effect("report once what is served and which settings differ, and the stop", () => {
    const { layer, lines } = collect()
    return Effect.gen(function*() {
      const { stop } = yield* LocalProcess.start(runtime, {
        runtime: { maxAttempts: 3, shutdownTimeout: "1 minute", tags: { _tag: "Any" } }
      })
      yield* TestClock.adjust("1 minute")
      yield* stop
      // The test clock warns of fibers that a slow machine keeps from their sleep.
      const ours = lines.filter(({ annotations }) => annotations["package"] !== undefined)
      assert.deepStrictEqual(ours.map(({ level, message }) => `${level} ${message}`), [
        "Info Runtime: started",
        "Info Runtime: stopped"
      ])
      const { activities, orchestrations, settings } = lines[0]!.annotations
      assert.deepStrictEqual([orchestrations, activities], ["Computes@1.0.0, Calls@1.2.0", "Compute"])
      assert.strictEqual(settings, `maxAttempts=3, shutdownTimeout=1m, tags={"_tag":"Any"}`)
    }).pipe(Effect.provide([MemoryDriver.layer, layer]))
  })

  it.effect("warn once of each activity whose own limit is over when the lock of a dead worker is", () => {
    const { layer, lines } = collect()
    const Short = Activity.make("Short", { timeout: "30 seconds" })
    const ShortInTotal = Activity.make("ShortInTotal", { totalTimeout: "10 seconds" })
    const Long = Activity.make("Long", { timeout: "31 seconds", totalTimeout: "1 hour" })
    const nothing = () => Effect.void
    const serving = Runtime.layer({ activities: [Short, ShortInTotal, Long, Compute] }).pipe(Layer.provide([
      Short.toLayer(nothing),
      ShortInTotal.toLayer(nothing),
      Long.toLayer(nothing),
      Compute.toLayer(nothing)
    ]))
    return Effect.gen(function*() {
      yield* LocalProcess.start(serving)
      yield* TestClock.adjust("1 minute")
      // The test clock warns of fibers that a slow machine keeps from their sleep.
      const warnings = lines.filter(({ annotations, level }) =>
        level === "Warn" && annotations["package"] !== undefined
      )
      for (const { message } of warnings) assert.include(message, "Runtime: an activity times out after a crash")
      assert.deepStrictEqual(warnings.map(({ annotations }) => annotations), [
        { package: "duroxide-prisma", activity_name: "Short", timeout: "30s", workerLockTimeout: "30s" },
        { package: "duroxide-prisma", activity_name: "ShortInTotal", totalTimeout: "10s", workerLockTimeout: "30s" }
      ])
    }).pipe(Effect.provide([MemoryDriver.layer, layer]))
  })

  it.effect("warn once of an instance whose history is long", () => {
    const { layer, lines } = collect()
    const Go = Signal.make("Go")
    const Long = Orchestration.make("Long", { payload: Schema.Int, success: Schema.Int })
    const serving = Runtime.layer({ orchestrations: [Long] }).pipe(Layer.provide(
      Long.toLayer(Effect.fn(function*(requests) {
        for (let i = 0; i < requests; i++) yield* Orchestration.setCustomStatus(String(i))
        yield* Go.wait
        yield* Go.wait
        yield* Go.wait
        return yield* Orchestration.historySize
      }))
    ))
    return Effect.gen(function*() {
      const { client } = yield* LocalProcess.start(serving)
      const rounds = Effect.fnUntraced(function*(instanceId: string, payload: number) {
        yield* client.start(Long, { instanceId, payload })
        for (let i = 0; i < 3; i++) {
          yield* TestClock.adjust("1 minute")
          yield* client.send(Go, instanceId)
        }
        yield* TestClock.adjust("1 minute")
        return yield* client.wait(Long, instanceId)
      })
      assert.strictEqual(yield* rounds("short", 9_990), 9_997)
      assert.strictEqual(yield* rounds("long", 9_995), 10_002)
      const warnings = lines.filter(({ annotations, level }) =>
        level === "Warn" && annotations["package"] !== undefined
      )
      assert.lengthOf(warnings, 1)
      assert.include(warnings[0]!.message, "continueAsNew")
      assert.deepInclude(warnings[0]!.annotations, {
        orchestration_name: "Long",
        instance_id: "long",
        events: 10_001
      })
    }).pipe(Effect.provide([MemoryDriver.layer, layer]))
  })

  it.effect("report a defect once: stack, cause, names and ids", () => {
    const { layer, lines } = collect()
    const Dies = Orchestration.make("Dies")
    const failing = Runtime.layer({ orchestrations: [Dies] }).pipe(Layer.provide(
      Dies.toLayer(() => Effect.die(new Error("no such order", { cause: new Error("socket closed") })))
    ))
    return Effect.gen(function*() {
      const { client } = yield* LocalProcess.start(failing)
      yield* client.start(Dies, { instanceId: "order-1" })
      yield* TestClock.adjust("1 minute")
      const errors = lines.filter(({ level }) => level === "Error")
      assert.lengthOf(errors, 1)
      const [{ annotations, cause, message }] = errors as [Line]
      assert.strictEqual(message, "Orchestration dispatcher: program died, its instance fails")
      assert.deepInclude(annotations, { instance_id: "order-1", orchestration_name: "Dies", execution_id: 1 })
      for (const text of ["no such order", "socket closed", "logs.test.ts"]) assert.include(cause, text)
      assert.notInclude(lines.map(({ level }) => level), "Warn")
    }).pipe(Effect.provide([MemoryDriver.layer, layer]))
  })

  it.effect("carry the ids of the instance when its program logs, also in its fibers, and name an exceeded limit", () => {
    const { layer, lines } = collect()
    const Logs = Orchestration.make("Logs")
    const logging = Runtime.layer({ orchestrations: [Logs] }).pipe(Layer.provide(
      Logs.toLayer(() =>
        Effect.gen(function*() {
          yield* Effect.logInfo("own line")
          yield* Fiber.join(yield* Effect.forkChild(Effect.logInfo("line of a fiber")))
          yield* Orchestration.setCustomStatus("x".repeat(262_145))
        })
      )
    ))
    return Effect.gen(function*() {
      const { client } = yield* LocalProcess.start(logging)
      yield* client.start(Logs, { instanceId: "order-1" })
      yield* TestClock.adjust("1 minute")
      const ids = { instance_id: "order-1", orchestration_name: "Logs", execution_id: 1 }
      for (const text of ["own line", "line of a fiber"]) {
        assert.deepInclude(lines.find(({ message }) => message === text)?.annotations, ids)
      }
      const [failed] = lines.filter(({ level }) => level === "Warn")
      assert.include(failed?.message, "Orchestration dispatcher: instance failed: Custom status size (262145 bytes)")
      assert.deepInclude(failed?.annotations, ids)
    }).pipe(Effect.provide([MemoryDriver.layer, layer]))
  })

  it.effect("call a changed program an error, with the remedy", () => {
    const { layer, lines } = collect()
    const Changes = Orchestration.make("Changes")
    let isChanged = false
    const changing = Runtime.layer({ orchestrations: [Changes] }).pipe(Layer.provide(
      Changes.toLayer(() => isChanged ? Effect.asVoid(Orchestration.uuid) : Effect.sleep("10 seconds"))
    ))
    return Effect.gen(function*() {
      const { client } = yield* LocalProcess.start(changing, { runtime: { warmInstances: 0 } })
      yield* client.start(Changes, { instanceId: "order-1" })
      yield* TestClock.adjust("1 second")
      isChanged = true
      yield* TestClock.adjust("1 minute")
      const blocked = lines.filter(({ message }) => message.includes("instance is blocked: its code"))
      assert.strictEqual(blocked[0]?.level, "Error")
      assert.include(blocked[0]!.message, "Bring the old code back")
      assert.include(blocked[0]!.annotations["error"], "event 2: history has timer, ")
      assert.deepInclude(blocked[0]!.annotations, { instance_id: "order-1", reason: "HistoryDiffers", event_id: 2 })
      assert.match(String(blocked[0]!.annotations["build"]), /^[0-9a-f]{8}$/)
      // Further tries, and those of other instances, add no line within the hour.
      assert.strictEqual(blocked.filter(({ level }) => level === "Error").length, 1)
    }).pipe(Effect.provide([MemoryDriver.layer, layer]))
  })

  it.effect("name the instance when its program continues outside its turn", () => {
    const { layer, lines } = collect()
    const Strays = Orchestration.make("Strays")
    const straying = Runtime.layer({ orchestrations: [Strays] }).pipe(Layer.provide(
      Strays.toLayer(() =>
        Effect.race(
          Effect.sleep("1 day"),
          Effect.andThen(Effect.promise(() => Promise.resolve()), Effect.sleep("1 day"))
        )
      )
    ))
    return Effect.gen(function*() {
      const { client } = yield* LocalProcess.start(straying)
      yield* client.start(Strays, { instanceId: "order-1" })
      yield* TestClock.adjust("1 minute")
      yield* client.start(Strays, { instanceId: "order-2" })
      yield* TestClock.adjust("1 minute")
      const stray = lines.filter(({ message }) => message.includes("continues outside its turn"))
      assert.lengthOf(stray, 1)
      assert.deepInclude(stray[0]!.annotations, { orchestration_name: "Strays", instance_id: "order-1" })
    }).pipe(Effect.provide([MemoryDriver.layer, layer]))
  })
})
