/** A link to the store that takes long, beside the length of the locks: no activity runs twice because of it. */
import { assert, it } from "@effect/vitest"
import { Activity, Orchestration, Runtime } from "duroxide-prisma"
import { MemoryDriver, ProviderDriver, ProviderError } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "../utils/localProcess.ts"

const Task = Activity.make("Task")
const Job = Orchestration.make("Job")

it.effect("An outcome is stored though its lock ended on the way, if no other process took it", () =>
  Effect.gen(function*() {
    const begins: Array<string> = []
    const runtime = Runtime.layer({ orchestrations: [Job], activities: [Task] }).pipe(Layer.provide([
      Task.toLayer(() => Effect.map(Activity.Call, ({ idempotencyKey }) => void begins.push(idempotencyKey))),
      Job.toLayer(() => Task.execute())
    ]))
    const reason = new ProviderError.Contention({ sqlState: "40001", problem: "a test" })
    const operation = "renewWorkItemLocks"
    let isLate = false
    const driver = LocalProcess.intercept(yield* ProviderDriver.ProviderDriver, (call, called) => {
      if (!isLate) return call
      if (called === operation) return Effect.fail(new ProviderError.ProviderError({ operation, reason }))
      if (called === "fetchWorkItems") return Effect.succeed([] as never)
      if (called !== "advanceOrchestrations" && called !== "ackWorkItems") return call
      const later = Effect.suspend(() => {
        isLate = false
        return call
      })
      return Effect.andThen(Effect.sleep("3 seconds"), later)
    })
    const { client } = yield* LocalProcess.start(runtime, { runtime: { workerLockTimeout: "1 second" } }).pipe(
      Effect.provideService(ProviderDriver.ProviderDriver, driver)
    )
    isLate = true
    const job = yield* Effect.forkChild(client.execute(Job, { instanceId: "a" }))
    yield* Effect.repeat(TestClock.adjust("50 millis"), { until: () => job.pollUnsafe() !== undefined, times: 400 })
    assert.isDefined(job.pollUnsafe())
    assert.lengthOf(begins, 1)
  }).pipe(Effect.provide(MemoryDriver.layer)))
