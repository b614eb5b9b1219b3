import { assert, describe, it } from "@effect/vitest"
import { Activity, Orchestration, Runtime } from "duroxide-prisma"
import { MemoryDriver, ProviderDriver } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "../utils/localProcess.ts"

const Task = Activity.make("Task", { payload: Schema.String, success: Schema.String })
const Job = Orchestration.make("Job", { payload: Schema.String, success: Schema.String })

/** The answers that are late. */
type Late = "fetchWorkItems" | "startOrchestrations" | "advanceOrchestrations"

/**
 * An instance of `Job`, whose activity takes 2 seconds under locks of 3, after one that runs in time: process A claims
 * the activity or is handed it over, by an answer that takes `lateMs`; process B serves it as well. Returns what
 * happened to the activity, with the time since A asked.
 */
const run = Effect.fnUntraced(function*(late: Late, lateMs: number) {
  const log: Array<string> = []
  let askedAtMs: number | undefined
  const say = (what: string) =>
    Effect.map(Clock.currentTimeMillis, (now) => askedAtMs !== undefined && log.push(`${what} at ${now - askedAtMs}`))
  const handler = (process: string) =>
    Task.toLayer((payload) =>
      say(`${process} begins`).pipe(
        Effect.andThen(Effect.sleep("2 seconds")),
        Effect.andThen(say(`${process} ends`)),
        Effect.as(payload)
      )
    )
  const program = Job.toLayer(Task.execute)
  const driver = yield* ProviderDriver.ProviderDriver
  let isLate = false
  const slow = LocalProcess.intercept(driver, (call, operation) =>
    operation === "renewWorkItemLocks" && isLate
      ? Effect.andThen(say("A renews"), call)
      : Effect.flatMap(Clock.currentTimeMillis, (now) =>
        Effect.tap(call, (answer) => {
          if (operation !== late || !isLate || askedAtMs !== undefined || isEmpty(answer)) return Effect.void
          askedAtMs = now
          return Effect.sleep(lateMs)
        })))
  const options = { runtime: { workerLockTimeout: "3 seconds", sessionIdleTimeout: "1 day" } } as const
  const worker = (process: string) => Runtime.layer({ activities: [Task] }).pipe(Layer.provide(handler(process)))
  const all = Runtime.layer({ orchestrations: [Job], activities: [Task] }).pipe(
    Layer.provide([handler("A"), program])
  )
  const brain = Runtime.layer({ orchestrations: [Job] }).pipe(Layer.provide(program))
  const { client } = late === "fetchWorkItems"
    ? (yield* Effect.provideService(LocalProcess.start(worker("A"), options), ProviderDriver.ProviderDriver, slow),
      yield* LocalProcess.start(brain))
    : yield* Effect.provideService(LocalProcess.start(all, options), ProviderDriver.ProviderDriver, slow)
  const until = (isTrue: () => boolean) => Effect.repeat(TestClock.adjust("100 millis"), { until: isTrue })
  const first = yield* Effect.forkChild(client.execute(Job, { instanceId: "in-time", payload: "1" }))
  yield* until(() => first.pollUnsafe() !== undefined)
  isLate = true
  const second = yield* Effect.forkChild(client.execute(Job, { instanceId: "late", payload: "2" }))
  yield* until(() => askedAtMs !== undefined)
  yield* LocalProcess.start(worker("B"), options)
  yield* until(() => second.pollUnsafe() !== undefined)
  yield* TestClock.adjust("20 seconds")
  return log
})

const isEmpty = (answer: unknown) =>
  !Array.isArray(answer) || answer.length === 0 ||
  (answer[0]._tag !== undefined && !(answer[0].handedOver?.length > 0))

describe("an answer with an activity", () => {
  it.effect("that comes after the end of the lock begins nothing: another process runs it", () =>
    Effect.gen(function*() {
      const log = yield* run("fetchWorkItems", 4_500)
      assert.deepStrictEqual(
        log.filter((line) => !line.startsWith("A renews")).map((line) => line.split(" at ")[0]),
        ["B begins", "B ends"]
      )
    }).pipe(Effect.provide(MemoryDriver.layer)))

  it.effect("that comes in the second half of the lock renews it before the handler begins", () =>
    Effect.gen(function*() {
      const log = yield* run("fetchWorkItems", 2_000)
      assert.deepStrictEqual(log.slice(0, 2), ["A renews at 2000", "A begins at 2000"])
      assert.deepStrictEqual(
        log.filter((line) => !line.startsWith("A renews")).map((line) => line.split(" at ")[0]),
        ["A begins", "A ends"]
      )
    }).pipe(Effect.provide(MemoryDriver.layer)))

  it.effect("that comes in the first half of the lock begins at once", () =>
    Effect.gen(function*() {
      const log = yield* run("fetchWorkItems", 1_000)
      assert.strictEqual(log[0], "A begins at 1000")
    }).pipe(Effect.provide(MemoryDriver.layer)))
})

describe("an answer that hands an activity over", () => {
  it.effect("with its first turn, after the end of the lock, begins nothing: the next claim runs it", () =>
    Effect.gen(function*() {
      const begun = (yield* run("startOrchestrations", 4_500)).filter((line) => line.includes("begins"))
      assert.lengthOf(begun, 1)
      assert.notInclude(begun[0]!, "at 4500")
    }).pipe(Effect.provide(MemoryDriver.layer)))

  it.effect("with its first turn, in the second half of the lock, renews it before the handler begins", () =>
    Effect.gen(function*() {
      const log = yield* run("startOrchestrations", 2_000)
      assert.deepStrictEqual(log.slice(0, 2), ["A renews at 2000", "A begins at 2000"])
    }).pipe(Effect.provide(MemoryDriver.layer)))
})
