import { assert, describe, it } from "@effect/vitest"
import { Activity, Orchestration, Runtime } from "duroxide-prisma"
import { MemoryDriver, ProviderDriver, ProviderError } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "../utils/localProcess.ts"

const Task = Activity.make("Task", { payload: Schema.String, success: Schema.String })

const Hasty = Orchestration.make("Hasty", { success: Schema.String })
const Persistent = Orchestration.make("Persistent", { success: Schema.String })
const Limited = Orchestration.make("Limited", { success: Schema.String })
const Job = Orchestration.make("Job", { payload: Schema.String, success: Schema.String })
const Three = Orchestration.make("Three", { success: Schema.Array(Schema.String) })

const message = (error: Activity.ActivityTimedOut) => Effect.succeed(error.message)

const programs = Layer.mergeAll(
  Hasty.toLayer(() =>
    Task.with({ timeout: "10 seconds" }).execute("").pipe(Effect.catchTag("ActivityTimedOut", message))
  ),
  Persistent.toLayer(() =>
    Task.with({ timeout: "10 seconds", retry: { schedule: Schedule.exponential("1 second"), times: 2 } }).execute("")
      .pipe(Effect.catchTag("ActivityTimedOut", message))
  ),
  Limited.toLayer(() =>
    Task.with({ timeout: "10 seconds", totalTimeout: "25 seconds", retry: Schedule.spaced("1 second") }).execute("")
      .pipe(Effect.catchTag("ActivityTimedOut", message))
  ),
  Job.toLayer(Task.execute),
  Three.toLayer(() => Effect.all(["1", "2", "3"].map(Task.execute), { concurrency: "unbounded" }))
)

const orchestrations = [Hasty, Persistent, Limited, Job, Three] as const

/** A handler that never ends; it reports when it begins and when it is interrupted. The virtual clock starts at 0. */
const endless = Effect.gen(function*() {
  const running = yield* Deferred.make<void>()
  const ended = yield* Deferred.make<number>()
  const log: Array<string> = []
  const say = (what: string) => Effect.map(Clock.currentTimeMillis, (now) => log.push(`${what} at ${now}`))
  const handler = Task.toLayer(() =>
    say("runs").pipe(
      Effect.andThen(Deferred.succeed(running, undefined)),
      Effect.andThen(Effect.never),
      Effect.onInterrupt(() =>
        Effect.andThen(say("ends"), Effect.flatMap(Clock.currentTimeMillis, (now) => Deferred.succeed(ended, now)))
      )
    )
  )
  return { running: Deferred.await(running), ended: Deferred.await(ended), log, handler }
})

const all = (handler: Layer.Layer<Activity.Handler<"Task">>) =>
  Runtime.layer({ orchestrations, activities: [Task] }).pipe(Layer.provide([handler, programs]))
const worker = (handler: Layer.Layer<Activity.Handler<"Task">>) =>
  Runtime.layer({ activities: [Task] }).pipe(Layer.provide(handler))
const brain = Runtime.layer({ orchestrations }).pipe(Layer.provide(programs))

/** Only the periodic check can notice it; how long a test takes does not matter. */
const never = { cancellationCheckInterval: Infinity, workerLockTimeout: "1 hour", sessionIdleTimeout: "1 day" } as const

describe("Activity, in virtual time", () => {
  describe("timeout", () => {
    it.effect("fails the call when it is due, and interrupts the handler, which runs its finalizers", () =>
      Effect.gen(function*() {
        const { ended, handler, log, running } = yield* endless
        const { client } = yield* LocalProcess.start(all(handler), { runtime: never })
        yield* client.start(Hasty, { instanceId: "hasty" })
        yield* running
        yield* TestClock.adjust("10 seconds")
        assert.strictEqual(
          yield* client.wait(Hasty, "hasty"),
          `activity "Task" did not end within its timeout of 10000 ms`
        )
        yield* ended
        assert.deepStrictEqual(log, ["runs at 0", "ends at 10000"])
      }).pipe(Effect.provide(MemoryDriver.layer)))

    it.effect("counts for each try; pauses lie between the end of one and the beginning of the next", () =>
      Effect.gen(function*() {
        const { handler, log, running } = yield* endless
        const { client } = yield* LocalProcess.start(all(handler), { runtime: never })
        yield* client.start(Persistent, { instanceId: "persistent" })
        yield* running
        yield* TestClock.adjust("1 minute")
        assert.strictEqual(
          yield* client.wait(Persistent, "persistent"),
          `activity "Task" did not end within its timeout of 10000 ms`
        )
        assert.deepStrictEqual(log, [
          "runs at 0",
          "ends at 10000",
          "runs at 11000",
          "ends at 21000",
          "runs at 23000",
          "ends at 33000"
        ])
      }).pipe(Effect.provide(MemoryDriver.layer)))

    it.effect("totalTimeout ends a try and all that would follow", () =>
      Effect.gen(function*() {
        const { handler, log, running } = yield* endless
        const { client } = yield* LocalProcess.start(all(handler), { runtime: never })
        yield* client.start(Limited, { instanceId: "limited" })
        yield* running
        yield* TestClock.adjust("1 minute")
        assert.strictEqual(
          yield* client.wait(Limited, "limited"),
          `activity "Task" did not end within its totalTimeout of 25000 ms`
        )
        assert.deepStrictEqual(log, [
          "runs at 0",
          "ends at 10000",
          "runs at 11000",
          "ends at 21000",
          "runs at 22000",
          "ends at 25000"
        ])
      }).pipe(Effect.provide(MemoryDriver.layer)))
  })

  describe("cancellation", () => {
    it.effect("from the same process reaches a running activity at once", () =>
      Effect.gen(function*() {
        const { ended, handler, running } = yield* endless
        const { client } = yield* LocalProcess.start(all(handler), { runtime: never })
        yield* client.start(Job, { instanceId: "cancelled", payload: "" })
        yield* running
        yield* client.terminate("cancelled", "not wanted")
        // The clock stands still: no renewal, no poll.
        assert.strictEqual(yield* ended, 0)
      }).pipe(Effect.provide(MemoryDriver.layer)))

    it.effect("from another process reaches it within the check interval, though locks are renewed much later", () =>
      Effect.gen(function*() {
        const { ended, handler, running } = yield* endless
        yield* LocalProcess.start(worker(handler))
        const { client } = yield* LocalProcess.start(brain)
        yield* client.start(Job, { instanceId: "cancelled", payload: "" })
        const found = yield* Effect.forkChild(running)
        yield* Effect.repeat(TestClock.adjust("100 millis"), { until: () => found.pollUnsafe() !== undefined })
        yield* TestClock.adjust("10500 millis")
        yield* client.terminate("cancelled", "not wanted")
        yield* Effect.flip(client.wait(Job, "cancelled"))
        const cancelled = yield* Clock.currentTimeMillis
        yield* TestClock.adjust("1 second")
        const noticed = yield* ended
        assert.isAbove(noticed, cancelled)
        assert.isAtMost(noticed, cancelled + 1_000)
      }).pipe(Effect.provide(MemoryDriver.layer)))

    it.effect("the check is one statement for all running activities, and none without any", () =>
      Effect.gen(function*() {
        let statements = 0
        let renewed = 0
        const driver = yield* ProviderDriver.ProviderDriver
        const counted = ProviderDriver.ProviderDriver.of({
          ...driver,
          renewWorkItemLocks: (items) => {
            statements++
            renewed += items.length
            return driver.renewWorkItemLocks(items)
          }
        })
        const { client } = yield* LocalProcess.start(
          all(Task.toLayer(() => Effect.as(Effect.sleep("10500 millis"), "done")))
        ).pipe(Effect.provideService(ProviderDriver.ProviderDriver, counted))
        yield* TestClock.adjust("1 minute")
        assert.strictEqual(statements, 0)
        yield* client.start(Three, { instanceId: "three" })
        yield* TestClock.adjust("1 minute")
        assert.deepStrictEqual(yield* client.wait(Three, "three"), ["done", "done", "done"])
        assert.deepStrictEqual({ statements, renewed }, { statements: 10, renewed: 30 })
      }).pipe(Effect.provide(MemoryDriver.layer)))

    it.effect("a store that does not answer for a while cancels nothing: the result is stored", () =>
      Effect.gen(function*() {
        const driver = yield* ProviderDriver.ProviderDriver
        let refusals = 0
        const troubled = ProviderDriver.ProviderDriver.of({
          ...driver,
          renewWorkItemLocks: (items) =>
            Effect.flatMap(
              Clock.currentTimeMillis,
              (now) =>
                now > 25_000 ? driver.renewWorkItemLocks(items) : Effect.andThen(
                  Effect.sync(() => refusals++),
                  Effect.fail(
                    new ProviderError.ProviderError({
                      operation: "renewWorkItemLock",
                      reason: refusals % 2 === 0
                        ? new ProviderError.ConnectionLost({ problem: "gone" })
                        : new ProviderError.Unexpected({ sqlState: null, problem: "odd", cause: null })
                    })
                  )
                )
            )
        })
        const { client } = yield* LocalProcess.start(
          all(Task.toLayer(() => Effect.as(Effect.sleep("2 minutes"), "done")))
        ).pipe(Effect.provideService(ProviderDriver.ProviderDriver, troubled))
        yield* client.start(Job, { instanceId: "troubled", payload: "" })
        yield* TestClock.adjust("3 minutes")
        assert.strictEqual(yield* client.wait(Job, "troubled"), "done")
        assert.isAbove(refusals, 10)
      }).pipe(Effect.provide(MemoryDriver.layer)))

    it.effect("a handler that ignores its interruption is left alone: slot and shutdown do not wait for it", () =>
      Effect.gen(function*() {
        const running = yield* Deferred.make<void>()
        const { client, stop } = yield* LocalProcess.start(
          all(Task.toLayer((what) =>
            what === "stuck"
              ? Effect.uninterruptible(Effect.andThen(Deferred.succeed(running, undefined), Effect.never))
              : Effect.succeed(what)
          )),
          { runtime: { workerConcurrency: 1, activityGracePeriod: "10 seconds" } }
        )
        yield* client.start(Job, { instanceId: "stuck", payload: "stuck" })
        yield* Deferred.await(running)
        yield* client.terminate("stuck", "not wanted")
        yield* client.start(Job, { instanceId: "next", payload: "next" })
        const next = yield* Effect.forkChild(client.wait(Job, "next"))
        yield* TestClock.adjust("9 seconds")
        assert.isUndefined(next.pollUnsafe())
        yield* TestClock.adjust("1 second")
        assert.strictEqual(yield* Fiber.join(next), "next")
        yield* stop
      }).pipe(Effect.provide(MemoryDriver.layer)))
  })
})
