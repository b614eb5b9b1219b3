/**
 * Defects of duroxide 0.1.30 that no recorded history shows; README.md lists all defects.
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Metrics, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import { MemoryDriver, Provider, ProviderDriver, ProviderError } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "../utils/localProcess.ts"

const Step = Activity.make("Step", { payload: Schema.Int, success: Schema.Int })
const Hang = Activity.make("Hang")
const Steps = Orchestration.make("Steps", { payload: Schema.Int, success: Schema.Int })
const Hasty = Orchestration.make("Hasty", { success: Schema.String })
const Loop = Orchestration.make("Loop")
const Go = Signal.make("Go")

const runtime = Runtime.layer({ orchestrations: [Steps, Hasty, Loop], activities: [Step, Hang] }).pipe(
  Layer.provide([
    Step.toLayer((n) => Effect.succeed(n + 1)),
    Hang.toLayer(() => Effect.sleep(10_000_000_000)),
    Steps.toLayer((n) => Effect.flatMap(Step.execute(n), Step.execute)),
    Hasty.toLayer(() => Effect.race(Effect.as(Hang.execute(), "done"), Effect.as(Effect.sleep("1 second"), "over"))),
    Loop.toLayer(() => Go.wait)
  ]),
  Layer.provide(Logger.layer([]))
)

const impatient = runtime.pipe(Layer.provide(RuntimeConfig.layer({ maxAttempts: 2 })))

/** Lets time pass until the fiber has ended. */
const inTime = Effect.fnUntraced(function*<A, E>(fiber: Fiber.Fiber<A, E>) {
  while (fiber.pollUnsafe() === undefined) yield* TestClock.adjust("1 second")
  return yield* Fiber.join(fiber)
})

const counted = (metric: Metric.Counter<number>, labels: Record<string, string>) =>
  Effect.map(Metric.value(Metric.withAttributes(metric, labels)), ({ count }) => count)

describe("Defects of Duroxide:", () => {
  // Duroxide tries a commit six times within half a second, then fails the instance for good.
  it.effect("a store that takes no turns for a minute fails no instance", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      let refusals = 0
      const away = LocalProcess.intercept(driver, (call, operation) =>
        Effect.flatMap(Clock.currentTimeMillis, (now) => {
          if (now >= 60_000 || operation !== "ackOrchestrationItems") return call
          refusals++
          const reason = new ProviderError.Unavailable({ sqlState: "57P03", problem: "it is starting up" })
          return Effect.fail(new ProviderError.ProviderError({ operation, reason }))
        }))
      const { client } = yield* LocalProcess.start(runtime, { runtime: { optimisticTurns: false } }).pipe(
        Effect.provideService(ProviderDriver.ProviderDriver, away)
      )
      const running = yield* Effect.forkChild(client.execute(Steps, { instanceId: "i", payload: 1 }))
      assert.strictEqual(yield* inTime(running), 3)
      assert.isAtLeast(yield* Clock.currentTimeMillis, 60_000)
      assert.isAbove(refusals, 6)
    }).pipe(Effect.provide(MemoryDriver.layer)))

  // Duroxide counts a start in every turn, activities twice, and a cancelled activity as a failure of the store.
  it.effect("starts, ends, activities and cancellations are counted once", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      assert.strictEqual(yield* client.execute(Steps, { instanceId: "steps", payload: 1 }), 3)
      assert.strictEqual(yield* client.execute(Hasty, { instanceId: "hasty" }), "over")
      const steps = { orchestration_name: "Steps" }
      const ofVersion = { ...steps, version: "1.0.0" }
      assert.strictEqual(yield* counted(Metrics.orchestrationStarts, { ...ofVersion, initiated_by: "client" }), 1)
      assert.strictEqual(yield* counted(Metrics.orchestrationTurns, steps), 3)
      assert.strictEqual(yield* counted(Metrics.orchestrationCompletions, { ...ofVersion, status: "success" }), 1)
      const of = (activity_name: string, outcome: string) => ({ activity_name, outcome, tag: "default" })
      assert.strictEqual(yield* counted(Metrics.activityExecutions, of("Step", "success")), 2)
      // The row is deleted by then: that is how a worker learns of a cancellation, not an error.
      yield* TestRuntime.advance("1 minute")
      assert.strictEqual(yield* counted(Metrics.activityExecutions, of("Hang", "cancelled")), 1)
      for (const error_type of ["transaction_failed", "lock_timeout", "serialization_error", "unknown"]) {
        assert.strictEqual(
          yield* counted(Metrics.infrastructureErrors, { operation: "ack_worker", error_type }),
          0,
          error_type
        )
      }
    }).pipe(
      Effect.provide(TestRuntime.layer(runtime)),
      Effect.provideService(Metric.MetricRegistry, new Map())
    ))

  // Duroxide reads the whole history for each of these.
  it.effect("waiting, asking for the status and running an activity read no history", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      const calls: Array<string> = []
      const watched = LocalProcess.intercept(driver, (call, operation) => {
        calls.push(operation)
        return call
      })
      const { client } = yield* LocalProcess.start(runtime).pipe(
        Effect.provideService(ProviderDriver.ProviderDriver, watched)
      )
      const running = yield* Effect.forkChild(client.execute(Steps, { instanceId: "i", payload: 1 }))
      assert.strictEqual(yield* inTime(running), 3)
      assert.strictEqual((yield* client.status("i"))._tag, "Completed")
      const later = yield* Effect.forkChild(client.wait(Steps, "i"))
      assert.strictEqual(yield* inTime(later), 3)
      assert.includeMembers(calls, ["readInstances", "readEnds"])
      assert.notInclude(calls, "readHistory")
    }).pipe(Effect.provide(MemoryDriver.layer)))

  // Duroxide writes the failure after the end of the previous execution.
  it.effect("a poisoned next execution fails, and the previous one does not change", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const provider = yield* Provider.Provider
      const envelope = {
        instanceId: "loop",
        executionId: 1,
        timestampMs: 0,
        duroxideVersion: "1000.1.0",
        sourceEventId: null
      }
      const begun = { name: "Loop", version: "1.0.0", input: "null", parentInstance: null, parentId: null }
      yield* provider.appendWithExecution("loop", 1, [
        { ...envelope, eventId: 1, _tag: "OrchestrationStarted", ...begun },
        { ...envelope, eventId: 2, _tag: "OrchestrationContinuedAsNew", input: "null" }
      ])
      yield* provider.enqueueForOrchestrator({
        message: {
          _tag: "ContinueAsNew",
          instance: "loop",
          orchestration: "Loop",
          input: "null",
          version: "1.0.0",
          carryForwardEvents: []
        },
        delay: Option.none()
      })
      // Processes that take it and die.
      for (let delivery = 1; delivery <= 2; delivery++) {
        yield* provider.fetchOrchestrationItem({
          lockTimeout: Duration.seconds(5),
          pollTimeout: Duration.zero,
          versions: Option.none()
        })
        yield* TestRuntime.advance("5 seconds")
      }
      yield* TestRuntime.deploy(impatient)
      const status = yield* TestRuntime.runToEnd("loop")
      assert.strictEqual(status._tag, "Failed")
      assert.lengthOf(yield* provider.readWithExecution("loop", 1), 2)
      const [first, last] = yield* provider.readWithExecution("loop", 2)
      assert.deepInclude(first, { _tag: "OrchestrationStarted", eventId: 1, version: "1.0.0" })
      assert.deepInclude(last, { _tag: "OrchestrationFailed", eventId: 2 })
      const error = yield* Effect.flip(client.wait(Loop, "loop"))
      assert.include(String(error), "orchestration loop was delivered 2 times and never ended (maxAttempts 2)")
    }).pipe(Effect.provide(TestRuntime.layer(Runtime.layer({})))))
})
