/** A link to the store that takes long, beside the length of the locks: no activity runs twice because of it. */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Orchestration, Runtime } from "duroxide-prisma"
import type { RuntimeConfig } from "duroxide-prisma"
import { MemoryDriver, ProviderDriver, ProviderError } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "../utils/localProcess.ts"

const Task = Activity.make("Task", { payload: Schema.Int })
const Job = Orchestration.make("Job", { payload: Schema.Int })

/** Runs `instances` of `activities` side by side over such a link; returns how often each call began. */
const run = Effect.fnUntraced(function*(options: {
  readonly instances: number
  readonly activities: number
  readonly takesMs: (n: number) => number
  readonly runtime: RuntimeConfig.Options
  /** Changes the calls of the store, from the first start on. */
  readonly link: Parameters<typeof LocalProcess.intercept>[1]
}) {
  const begins = new Map<string, number>()
  const runtime = Runtime.layer({ orchestrations: [Job], activities: [Task] }).pipe(Layer.provide([
    Task.toLayer((n) =>
      Effect.gen(function*() {
        const { idempotencyKey } = yield* Activity.Call
        begins.set(idempotencyKey, (begins.get(idempotencyKey) ?? 0) + 1)
        yield* Effect.sleep(options.takesMs(n))
      })
    ),
    Job.toLayer((count) =>
      Effect.forEach(Array.from({ length: count }, (_, n) => n), (n) => Task.execute(n), {
        concurrency: "unbounded",
        discard: true
      })
    )
  ]))
  let isOpen = false
  const driver = LocalProcess.intercept(
    yield* ProviderDriver.ProviderDriver,
    (call, operation) => isOpen ? options.link(call, operation) : call
  )
  const { client } = yield* LocalProcess.start(runtime, { runtime: options.runtime }).pipe(
    Effect.provideService(ProviderDriver.ProviderDriver, driver)
  )
  isOpen = true
  const all = yield* Effect.forkChild(
    Effect.forEach(
      Array.from({ length: options.instances }, (_, n) => n),
      (n) => client.execute(Job, { instanceId: `i${n}`, payload: options.activities }),
      { concurrency: "unbounded" }
    )
  )
  yield* Effect.repeat(TestClock.adjust("50 millis"), { until: () => all.pollUnsafe() !== undefined, times: 400 })
  assert.isDefined(all.pollUnsafe())
  isOpen = false
  return [...begins.values()]
})

describe("Over a slow link", () => {
  it.effect("an outcome is stored though its lock ended on the way, if no other process took it", () =>
    Effect.gen(function*() {
      const reason = new ProviderError.Contention({ sqlState: "40001", problem: "a test" })
      const operation = "renewWorkItemLocks"
      let isLate = true
      const begins = yield* run({
        instances: 1,
        activities: 1,
        takesMs: () => 100,
        runtime: { workerLockTimeout: "1 second" },
        link: (call, called) => {
          if (!isLate) return call
          if (called === operation) return Effect.fail(new ProviderError.ProviderError({ operation, reason }))
          if (called === "fetchWorkItems") return Effect.succeed([] as never)
          if (called !== "advanceOrchestrations" && called !== "ackWorkItems") return call
          const later = Effect.suspend(() => {
            isLate = false
            return call
          })
          return Effect.andThen(Effect.sleep("3 seconds"), later)
        }
      })
      assert.deepStrictEqual(begins, [1])
    }).pipe(Effect.provide(MemoryDriver.layer)))
})
