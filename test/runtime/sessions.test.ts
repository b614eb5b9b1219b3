import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import type { RuntimeConfig } from "duroxide-prisma"
import { MemoryDriver, ProviderDriver } from "duroxide-prisma/provider"
import type { FromDriver } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as App from "../utils/app.ts"
import * as LocalProcess from "../utils/localProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

/** An activity on a session, or without one for "". */
const Step = Activity.make("Step", { payload: Schema.String, success: Schema.String })
const Steps = Orchestration.make("Steps", {
  payload: Schema.Array(Schema.String),
  success: Schema.Array(Schema.String)
})
const on = (sessionId: string) => (sessionId === "" ? Step : Step.with({ sessionId })).execute(sessionId)

const programs = Steps.toLayer((sessions) => Effect.forEach(sessions, on, { concurrency: "unbounded" }))
const brain = Runtime.layer({ orchestrations: [Steps] }).pipe(Layer.provide(programs))

const worker = (
  handler: (sessionId: string) => Effect.Effect<string, never, Activity.Call>,
  runtime: RuntimeConfig.Options = {},
  provider: FromDriver.Options = {}
) =>
  LocalProcess.start(Runtime.layer({ activities: [Step] }).pipe(Layer.provide(Step.toLayer(handler))), {
    runtime,
    provider
  })

const answer = (text: string) => () => Effect.succeed(text)

const onPostgres = Layer.unwrap(Effect.map(PgServer.PgServer, ({ url }) => App.store(url))).pipe(
  Layer.provideMerge(PgServer.layer)
)

it.layer(onPostgres, { excludeTestServices: true })("Sessions", (it) => {
  it.effect("all activities of a session run in one process, others in both", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* LocalProcess.start(brain)
      const waiting = { a: yield* Deferred.make<void>(), b: yield* Deferred.make<void>() }
      // A session that only one of two equal workers may take: the first one keeps it.
      const both = (name: "a" | "b", other: "a" | "b") => (sessionId: string) =>
        sessionId !== ""
          ? Effect.succeed(name)
          : Effect.as(
            Effect.andThen(Deferred.succeed(waiting[name], undefined), Deferred.await(waiting[other])),
            name
          )
      yield* worker(both("a", "b"), { workerConcurrency: 1 })
      yield* worker(both("b", "a"), { workerConcurrency: 1 })
      for (const sessionId of ["one", "two", "three"]) {
        const payload = Array.from({ length: 8 }, () => sessionId)
        const workers = yield* client.execute(Steps, { instanceId: `affine-${sessionId}`, payload })
        assert.lengthOf(new Set(workers), 1)
      }
      const workers = yield* client.execute(Steps, { instanceId: "without", payload: ["", ""] })
      assert.sameMembers(workers as Array<string>, ["a", "b"])
    }))

  it.effect("the handler's worker id is the owner in the table, and the workerId of the settings if set", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const { sql } = yield* PgServer.PgServer
      yield* LocalProcess.start(brain)
      const named = yield* worker(() => Effect.map(Activity.Call, ({ workerId }) => workerId), {
        workerId: "node-7"
      })
      const [workerId] = yield* client.execute(Steps, { instanceId: "named", payload: ["of node-7"] })
      assert.strictEqual(workerId, "node-7")
      assert.deepStrictEqual(yield* sql(`SELECT worker_id FROM sessions WHERE session_id = 'of node-7'`), [
        { worker_id: "node-7" }
      ])
      yield* named.stop
    }))

  it.effect("maxSessions: with more sessions than that, no activity is lost, delivered twice or delayed", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* LocalProcess.start(brain)
      const running = new Map<string, number>()
      let most = 0
      yield* worker((sessionId) =>
        Effect.gen(function*() {
          running.set(sessionId, (running.get(sessionId) ?? 0) + 1)
          most = Math.max(most, running.size)
          yield* Effect.sleep("5 millis")
          if (running.get(sessionId) === 1) running.delete(sessionId)
          else running.set(sessionId, running.get(sessionId)! - 1)
          return `delivery ${(yield* Activity.Call).deliveryNumber}`
        }), { maxSessions: 3, workerConcurrency: 8 })
      const payload = Array.from({ length: 40 }, (_, i) => `crowd ${i % 20}`)
      const answers = yield* client.execute(Steps, { instanceId: "crowd", payload })
      assert.deepStrictEqual(new Set(answers), new Set(["delivery 1"]))
      assert.strictEqual(most, 3)
    }))

  it.effect("sessions without an owner or activities are swept", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const { sql } = yield* PgServer.PgServer
      yield* LocalProcess.start(brain)
      yield* worker(answer("done"), { sessionCleanupInterval: "50 millis", sessionLockTimeout: "100 millis" }).pipe(
        Effect.flatMap(({ stop }) =>
          Effect.andThen(client.execute(Steps, { instanceId: "swept", payload: ["swept", "swept too"] }), stop)
        )
      )
      yield* worker(answer("done"), { sessionCleanupInterval: "50 millis" })
      yield* waitUntil(
        Effect.map(sql(`SELECT FROM sessions WHERE session_id LIKE 'swept%'`), (rows) => rows.length === 0)
      )
      assert.strictEqual((yield* client.status("swept"))._tag, "Completed")
    }))
})

/** Moves the clock poll by poll until the condition holds. */
const passUntil = (condition: () => boolean) => Effect.repeat(TestClock.adjust("100 millis"), { until: condition })

describe("Sessions, in virtual time", () => {
  /** A worker owns session "s", the second one waits for it; ends with the owner. */
  const owned = Effect.fnUntraced(function*(owner: RuntimeConfig.Options = {}) {
    const { client } = yield* LocalProcess.start(brain)
    const first = yield* worker(answer("first"), owner)
    const step = (instanceId: string) =>
      Effect.andThen(
        client.start(Steps, { instanceId, payload: ["s"] }),
        Effect.map(client.wait(Steps, instanceId), ([name]) => name)
      )
    /** Milliseconds the clock has to move, poll by poll, until the step is done, and which process did it. */
    const timed = Effect.fnUntraced(function*(instanceId: string) {
      const begun = yield* Clock.currentTimeMillis
      const fiber = yield* Effect.forkChild(step(instanceId))
      yield* passUntil(() => fiber.pollUnsafe() !== undefined)
      return { by: yield* Fiber.join(fiber), tookMs: (yield* Clock.currentTimeMillis) - begun }
    })
    assert.strictEqual((yield* timed("claims")).by, "first")
    return { first, timed }
  })

  it.effect("a process that dies loses them when their lock expires", () =>
    Effect.gen(function*() {
      const { first, timed } = yield* owned()
      yield* TestClock.adjust("2 minutes") // renewed meanwhile
      yield* first.kill
      yield* worker(answer("second"))
      const { by, tookMs } = yield* timed("taken over")
      assert.strictEqual(by, "second")
      assert.isAtLeast(tookMs, 10_000)
      assert.isAtMost(tookMs, 31_000)
    }).pipe(Effect.provide(MemoryDriver.layer)))

  it.effect("a process that shuts down releases them", () =>
    Effect.gen(function*() {
      const { first, timed } = yield* owned()
      yield* first.stop
      yield* worker(answer("second"))
      const { by, tookMs } = yield* timed("taken over")
      assert.strictEqual(by, "second")
      assert.isAtMost(tookMs, 1_000)
    }).pipe(Effect.provide(MemoryDriver.layer)))

  it.effect("a process with a workerId still owns them after its restart", () =>
    Effect.gen(function*() {
      const { first, timed } = yield* owned({ workerId: "node" })
      yield* worker(answer("second"))
      yield* first.stop
      yield* TestClock.adjust("20 seconds")
      yield* worker(answer("first again"), { workerId: "node" })
      // Renewed at the start: longer than the lock the first one left behind.
      yield* TestClock.adjust("20 seconds")
      const { by, tookMs } = yield* timed("after the restart")
      assert.strictEqual(by, "first again")
      assert.isAtMost(tookMs, 1_000)
    }).pipe(Effect.provide(MemoryDriver.layer)))

  it.effect("they are kept while an activity runs, however long, and released when idle", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      let renewals = 0
      const counted = LocalProcess.intercept(driver, (call, operation) => {
        if (operation === "renewSessionLocks") renewals++
        return call
      })
      const count = (minutes: number) =>
        Effect.gen(function*() {
          const before = renewals
          yield* TestClock.adjust(`${minutes} minutes`)
          return renewals - before
        })
      const seldom = { longPolling: { aggressivePollInterval: "10 seconds" } } as const
      const { client } = yield* LocalProcess.start(brain, { provider: seldom })
      yield* worker(() => Effect.as(Effect.sleep("20 minutes"), "done"), {}, seldom).pipe(
        Effect.provideService(ProviderDriver.ProviderDriver, counted)
      )
      assert.strictEqual(yield* count(5), 0) // no session, no statement
      yield* client.start(Steps, { instanceId: "long", payload: ["s"] })
      yield* count(1)
      assert.strictEqual(yield* count(15), 60)
      yield* count(9)
      assert.deepStrictEqual(yield* client.wait(Steps, "long"), ["done"])
      yield* count(5)
      assert.strictEqual(yield* count(10), 0)
    }).pipe(Effect.provide(MemoryDriver.layer)))

  it.effect("maxSessions: limits concurrent sessions, not activities without one, and counts no delivery", () =>
    Effect.gen(function*() {
      const { client } = yield* LocalProcess.start(brain)
      const gate = yield* Deferred.make<void>()
      const running = new Set<string>()
      const deliveries: Array<number> = []
      let most = 0
      let others = 0
      yield* worker((sessionId) =>
        Effect.gen(function*() {
          if (sessionId === "") return `${++others}`
          deliveries.push((yield* Activity.Call).deliveryNumber)
          running.add(sessionId)
          most = Math.max(most, running.size)
          yield* Deferred.await(gate)
          yield* Effect.sleep("1 second")
          running.delete(sessionId)
          return sessionId
        }), { maxSessions: 2, workerConcurrency: 6 })
      const sessions = ["a", "b", "c", "d", "e", "f", "g"]
      yield* client.start(Steps, { instanceId: "sessions", payload: sessions })
      yield* passUntil(() => running.size === 2)
      yield* client.start(Steps, { instanceId: "others", payload: ["", "", "", "", ""] })
      yield* passUntil(() => others === 5)
      yield* TestClock.adjust("1 minute")
      assert.strictEqual(running.size, 2)
      yield* Deferred.succeed(gate, undefined)
      const waiting = yield* Effect.forkChild(client.wait(Steps, "sessions"))
      yield* passUntil(() => waiting.pollUnsafe() !== undefined)
      assert.deepStrictEqual(yield* Fiber.join(waiting), sessions)
      assert.strictEqual(most, 2)
      assert.deepStrictEqual(new Set(deliveries), new Set([1]))
    }).pipe(Effect.provide(MemoryDriver.layer)))

  it.effect("maxSessions: below the limit again, all waiting slots take sessions", () =>
    Effect.gen(function*() {
      const { client } = yield* LocalProcess.start(brain)
      const end = yield* Deferred.make<void>()
      let running: Array<string> = []
      const ended = new Set<string>()
      yield* worker((sessionId) =>
        Effect.gen(function*() {
          running.push(sessionId)
          yield* sessionId === "long" ? Effect.never : Deferred.await(end)
          running = running.filter((other) => other !== sessionId)
          ended.add(sessionId)
          return "done"
        }), { maxSessions: 2, workerConcurrency: 3, pollTimeout: "1000 days" })
      yield* client.start(Steps, { instanceId: "at the limit", payload: ["long", "short", "above"] })
      yield* passUntil(() => running.length === 2)
      yield* TestClock.adjust("1 second")
      yield* Deferred.succeed(end, undefined)
      yield* passUntil(() => ended.has("above"))
      yield* client.start(Steps, { instanceId: "below it", payload: ["long", "long"] })
      yield* passUntil(() => running.length === 3)
      assert.deepStrictEqual(running, ["long", "long", "long"])
    }).pipe(Effect.provide(MemoryDriver.layer)))

  it.effect("maxSessions: an idle process takes the sessions above the limit", () =>
    Effect.gen(function*() {
      const { client } = yield* LocalProcess.start(brain)
      const sessions = Array.from({ length: 8 }, (_, i) => `s${i}`)
      yield* client.start(Steps, { instanceId: "many", payload: sessions })
      yield* TestClock.adjust(1)
      const ran: Array<string> = []
      const hour = (name: string) => (sessionId: string) =>
        Effect.andThen(Effect.sync(() => ran.push(`${sessionId} by ${name}`)), Effect.as(Effect.sleep("1 hour"), name))
      yield* worker(hour("first"), { maxSessions: 3 })
      yield* TestClock.adjust("1 second")
      assert.lengthOf(ran, 3)
      yield* worker(hour("second"), { maxSessions: 5 })
      yield* TestClock.adjust("1 second")
      assert.lengthOf(ran, 8)
    }).pipe(Effect.provide(MemoryDriver.layer)))

  it.effect("maxSessions 0: a process takes none; they wait for another one", () =>
    Effect.gen(function*() {
      const { client } = yield* LocalProcess.start(brain)
      let others = 0
      yield* worker(() => Effect.sync(() => `takes none ${++others}`), { maxSessions: 0 })
      const fiber = yield* Effect.forkChild(client.execute(Steps, { instanceId: "waits", payload: ["s", ""] }))
      yield* passUntil(() => others === 1)
      yield* TestClock.adjust("1 minute")
      assert.isUndefined(fiber.pollUnsafe())
      yield* worker(answer("takes them"))
      yield* passUntil(() => fiber.pollUnsafe() !== undefined)
      assert.deepStrictEqual(yield* Fiber.join(fiber), ["takes them", "takes none 1"])
    }).pipe(Effect.provide(MemoryDriver.layer)))
})
