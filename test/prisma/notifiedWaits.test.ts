import { assert, describe, it } from "@effect/vitest"
import { Client, Runtime, RuntimeConfig } from "duroxide-prisma"
import { FromDriver } from "duroxide-prisma/provider"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Database from "../../src/prisma/Database.ts"
import * as PgNotifier from "../../src/prisma/PgNotifier.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import { Calls, Endless, Next, Report, Stage } from "../programs/reports.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const interrupted = Deferred.makeUnsafe<void>()
const running = Deferred.makeUnsafe<void>()

/** This process: it runs activities only, and asks for their locks only when half of them is left. */
const services = Layer.unwrap(Effect.map(PgServer.PgServer, ({ url }) =>
  Runtime.layer({ activities: [Endless] }).pipe(
    Layer.provide(Endless.toLayer(() =>
      Deferred.succeed(running, undefined).pipe(
        Effect.andThen(Effect.never),
        Effect.onInterrupt(() => Deferred.succeed(interrupted, undefined))
      )
    )),
    Layer.provide(RuntimeConfig.layer({ workerLockTimeout: "1 hour", sessionIdleTimeout: "1 day" })),
    Layer.merge(Client.layer),
    Layer.provide(FromDriver.layer()),
    Layer.provide(PrismaDriver.layer()),
    Layer.provide(PgNotifier.layer({ url })),
    Layer.provideMerge(Database.layer({ url })),
    Layer.provide(Logger.layer([]))
  ))).pipe(Layer.provideMerge(PgServer.layer))

describe("What another process stores", () => {
  it.live(
    "reaches those that wait for it without polling: a status, a value, an end, a cancellation",
    () =>
      Effect.gen(function*() {
        const { sql, url } = yield* PgServer.PgServer
        const client = yield* Client.Client
        const { statementCounts } = yield* Database.Database
        const child = yield* ChildProcess.start("reporter", url)
        yield* child.printed("ready")
        const looks = Effect.map(
          statementCounts,
          ({ readEnds = 0, readProgress = 0, renewWorkItemLocks = 0 }) => ({
            readEnds,
            readProgress,
            renewWorkItemLocks
          })
        )

        yield* client.start(Report, { instanceId: "a" })
        yield* client.start(Calls, { instanceId: "c" })
        const status = yield* Effect.forkChild(client.waitForStatus("a"))
        const value = yield* Effect.forkChild(client.waitForValue(Stage, "a"))
        const end = yield* Effect.forkChild(client.wait(Report, "a"))
        yield* Deferred.await(running)
        yield* waitUntil(Effect.map(sql("SELECT FROM history WHERE instance_id = 'a'"), (rows) => rows.length > 0))
        // Until the other process knows of the waits, and all have been looked at once more.
        yield* waitUntil(
          Effect.gen(function*() {
            const before = yield* looks
            yield* Effect.sleep("1500 millis")
            return JSON.stringify(before) === JSON.stringify(yield* looks)
          })
        )

        const before = yield* looks
        const count = Effect.map(looks, (now) => ({
          readEnds: now.readEnds - before.readEnds,
          readProgress: now.readProgress - before.readProgress,
          renewWorkItemLocks: now.renewWorkItemLocks - before.renewWorkItemLocks
        }))
        // Without hints each of them would wait for one of the looks after 5, 10 and 20 seconds.
        yield* Effect.gen(function*() {
          yield* client.send(Next, "a")
          assert.deepStrictEqual(yield* Fiber.join(status), { status: Option.some("first"), version: 1 })
          yield* client.send(Next, "a")
          assert.strictEqual(yield* Fiber.join(value), 1)
          yield* client.send(Next, "a")
          assert.strictEqual(yield* Fiber.join(end), "done")
        }).pipe(Effect.timeout("10 seconds"))
        // One look for each hint; a slow machine may see one at a time that is due for a look in any case.
        const { readEnds, readProgress, renewWorkItemLocks } = yield* count
        assert.isAtMost(readEnds, 4)
        assert.isAtMost(readProgress, 3)
        assert.strictEqual(renewWorkItemLocks, 0)

        yield* client.terminate("c", "not wanted")
        yield* Deferred.await(interrupted)
        assert.strictEqual((yield* count).renewWorkItemLocks, 1)
        assert.deepStrictEqual(yield* sql(`SELECT FROM worker_queue WHERE instance_id = 'c'`), [])
      }).pipe(Effect.scoped, Effect.provide(services))
  )
})
