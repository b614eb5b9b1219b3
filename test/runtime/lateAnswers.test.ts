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
 * happened to the activity, with the time since A asked. Of two activities in a row, an optimistic turn hands over the
 * second. What was to be handed over to A is claimed by B.
 */
const run = Effect.fnUntraced(function*(late: Late, lateMs: number, renewal?: "dies") {
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
  const program = Job.toLayer((payload) =>
    late === "advanceOrchestrations"
      ? Effect.andThen(Task.execute(payload), Task.execute(payload))
      : Task.execute(payload)
  )
  const driver = yield* ProviderDriver.ProviderDriver
  let isLate = false
  let hasDied = false
  const dies = Effect.suspend(() => {
    hasDied = true
    return Effect.die(new Error("no driver does this"))
  })
  const slow = LocalProcess.intercept(driver, (call, operation) =>
    operation === "renewWorkItemLocks" && isLate
      ? Effect.andThen(say("A renews"), renewal === undefined || hasDied ? call : dies)
      : operation === "fetchWorkItems" && isLate && late !== operation
      ? Effect.succeed([] as never)
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
  const until = (isTrue: () => boolean) =>
    Effect.repeat(TestClock.adjust("100 millis"), { until: isTrue, times: 1_000 })
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

/** But for renewals, and without times. */
const happened = (log: ReadonlyArray<string>) =>
  log.filter((line) => !line.startsWith("A renews")).map((line) => line.split(" at ")[0]!)

describe("an answer with an activity", () => {
  it.effect("that comes after the end of the lock begins nothing: another process runs it", () =>
    Effect.gen(function*() {
      const log = yield* run("fetchWorkItems", 4_500)
      assert.deepStrictEqual(
        happened(log),
        ["B begins", "B ends"]
      )
    }).pipe(Effect.provide(MemoryDriver.layer)))

  it.effect("that comes in the second half of the lock renews it before the handler begins", () =>
    Effect.gen(function*() {
      const log = yield* run("fetchWorkItems", 2_000)
      assert.deepStrictEqual(log.slice(0, 2), ["A renews at 2000", "A begins at 2000"])
      assert.deepStrictEqual(
        happened(log),
        ["A begins", "A ends"]
      )
    }).pipe(Effect.provide(MemoryDriver.layer)))

  it.effect("whose renewal breaks is given back, and runs with the next claim", () =>
    Effect.gen(function*() {
      const log = happened(yield* run("fetchWorkItems", 2_000, "dies"))
      assert.lengthOf(log, 2)
      assert.include(["A begins,A ends", "B begins,B ends"], log.join())
    }).pipe(Effect.provide(MemoryDriver.layer)))

  it.effect("that comes in the first half of the lock begins at once", () =>
    Effect.gen(function*() {
      const log = yield* run("fetchWorkItems", 1_000)
      assert.strictEqual(log[0], "A begins at 1000")
    }).pipe(Effect.provide(MemoryDriver.layer)))
})

describe("an answer that hands an activity over", () => {
  for (
    const [turn, late] of [["its first turn", "startOrchestrations"], [
      "an optimistic turn",
      "advanceOrchestrations"
    ]] as const
  ) {
    it.effect(`with ${turn}, after the end of the lock, begins nothing: another process runs it`, () =>
      Effect.gen(function*() {
        const log = yield* run(late, 4_500)
        assert.deepStrictEqual(happened(log), ["B begins", "B ends"])
      }).pipe(Effect.provide(MemoryDriver.layer)))

    it.effect(`with ${turn}, in the second half of the lock, renews it before the handler begins`, () =>
      Effect.gen(function*() {
        const log = yield* run(late, 1_800)
        assert.deepStrictEqual(log.filter((line) => line.endsWith("at 1800")), [
          "A renews at 1800",
          "A begins at 1800"
        ])
        assert.deepStrictEqual(happened(log), ["A begins", "A ends"])
      }).pipe(Effect.provide(MemoryDriver.layer)))
  }
})
