/**
 * Processes on one database, one of which pauses and resumes. No look that nothing has asked for comes during a test.
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Admin, Pause } from "duroxide-prisma/provider"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Database from "../../src/prisma/Database.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const { PauseTarget } = Pause

const Double = Activity.make("Double", { payload: Schema.Number, success: Schema.Number })
const Doubled = Orchestration.make("Doubled", { payload: Schema.Number, success: Schema.Number })
const Sum = Orchestration.make("Sum", { success: Schema.Number })
const Add = Signal.make("Add", { payload: Schema.Number })

const RuntimeLive = Runtime.layer({ orchestrations: [Doubled, Sum], activities: [Double] }).pipe(Layer.provide([
  Double.toLayer((n) => Effect.succeed(2 * n)),
  Doubled.toLayer((n) => Double.execute(n)),
  Sum.toLayer(() => Effect.map(Add.wait, (n) => n + 1))
]))

/** A process of its own pool, which listens. */
const start = Effect.fnUntraced(function*(url: string) {
  const services = yield* Layer.build(
    RuntimeLive.pipe(
      Layer.merge(Client.layer),
      Layer.provideMerge(PrismaProvider.layer({ url, migrate: "none" })),
      Layer.provide(Logger.layer([]))
    )
  )
  const { statementCounts } = Context.get(services, Database.Database)
  return {
    client: Context.get(services, Client.Client),
    admin: Context.get(services, Admin.Admin),
    statementCounts,
    reads: Effect.map(statementCounts, ({ readPaused = 0 }) => readPaused),
    /** Until its hints arrive: it asks once more then. */
    listening: waitUntil(Effect.map(statementCounts, ({ readPaused = 0 }) => readPaused > 1))
  }
})

describe("Processes on one database:", () => {
  it.live("a pause outlives the process that made it, and its end is seen at once", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.PgServer
      const pauser = yield* ChildProcess.start("pauser", url)
      yield* pauser.printed("paused")
      yield* pauser.kill
      const process = yield* start(url)
      yield* process.listening
      yield* process.client.start(Doubled, { instanceId: "a", payload: 4 })
      yield* Effect.sleep("500 millis")
      const status = yield* process.client.status("a")
      assert(status._tag === "Running" && Option.isSome(status.pause))
      assert.deepStrictEqual(status.pause.value.target, PauseTarget.Everything())
      assert.strictEqual(status.pause.value.reason, "a drill")
      const { fetchOrchestrationItems = 0, fetchWorkItems = 0 } = yield* process.statementCounts
      assert.deepStrictEqual([fetchOrchestrationItems, fetchWorkItems], [0, 0])
      const other = yield* start(url)
      assert.isTrue(yield* other.admin.resume(PauseTarget.Everything()))
      assert.strictEqual(yield* process.client.wait(Doubled, "a", { timeout: "2 minutes" }), 8)
    }).pipe(Effect.provide(PgServer.layer)))

  it.live("a process that runs learns of a pause and of its end at once", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.PgServer
      const one = yield* start(url)
      const two = yield* start(url)
      yield* one.listening
      yield* two.listening
      yield* one.client.execute(Doubled, { instanceId: "warm-up", payload: 1 })
      const readsOfBoth = Effect.all([one.reads, two.reads])
      const before = yield* readsOfBoth
      yield* two.admin.pause(PauseTarget.Orchestration({ name: "Doubled" }))
      yield* waitUntil(Effect.map(readsOfBoth, (now) => now.every((count, i) => count > before[i]!)))
      // They have asked; the answer is there when a start is no longer run.
      let probes = 0
      for (const { client } of [one, two]) {
        yield* waitUntil(Effect.gen(function*() {
          const instanceId = `probe-${probes++}`
          yield* client.start(Doubled, { instanceId, payload: 1 })
          return (yield* Effect.exit(client.wait(Doubled, instanceId, { timeout: "200 millis" })))._tag === "Failure"
        }))
      }
      for (const n of [1, 2, 3]) yield* one.client.start(Doubled, { instanceId: `a${n}`, payload: n })
      yield* Effect.sleep("300 millis")
      for (const n of [1, 2, 3]) assert.strictEqual((yield* two.client.status(`a${n}`))._tag, "Running")
      yield* two.admin.resume(PauseTarget.Orchestration({ name: "Doubled" }))
      for (const n of [1, 2, 3]) {
        assert.strictEqual(yield* one.client.wait(Doubled, `a${n}`, { timeout: "2 minutes" }), 2 * n)
      }
    }).pipe(Effect.provide(PgServer.layer)))

  it.live("an instance that waits in memory is paused, and resumed at once", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.PgServer
      const one = yield* start(url)
      const two = yield* start(url)
      yield* one.listening
      yield* two.listening
      yield* one.client.start(Sum, { instanceId: "a" })
      yield* waitUntil(Effect.map(two.client.status("a"), ({ _tag }) => _tag === "Running"))
      yield* Effect.sleep("200 millis")
      yield* two.admin.pause(PauseTarget.Instance({ instanceId: "a" }))
      yield* one.client.send(Add, "a", 41)
      yield* Effect.sleep("300 millis")
      assert.strictEqual((yield* two.client.status("a"))._tag, "Running")
      yield* two.admin.resume(PauseTarget.Instance({ instanceId: "a" }))
      assert.strictEqual(yield* one.client.wait(Sum, "a", { timeout: "2 minutes" }), 42)
    }).pipe(Effect.provide(PgServer.layer)))
})
