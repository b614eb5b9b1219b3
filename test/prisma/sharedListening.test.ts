/**
 * A process with a runtime and queues: both listen on one connection of their `Database`.
 */
import { assert, describe, it } from "@effect/vitest"
import { Database, PgQueue } from "duroxide-prisma/prisma"
import { Queue } from "duroxide-prisma/queue"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Scope from "effect/Scope"
import * as notifying from "../../src/prisma/internal/notifying.ts"
import { Hint } from "../../src/waking/Notifier.ts"
import { Topics } from "../../src/waking/Topics.ts"
import * as Listening from "../utils/listening.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const work = Hint.Work({ queue: "worker", visibleAtMs: 0 })

describe("a process with a runtime and queues:", () => {
  it.live("both learn of other processes by one connection, also after its loss, and when one of them has ended", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const there = yield* Listening.connected(test)
      const runtime = yield* Listening.connected(test)
      const scope = yield* Scope.make()
      const queues = yield* PgQueue.layer({ queues: { work: {} } }).pipe(
        Layer.provideMerge(Layer.effect(Topics, notifying.makeTopics({ url: test.url }))),
        Layer.provide(Layer.succeed(Database.Database, runtime.database)),
        Layer.buildWithScope(scope)
      )
      const { isConnected } = Context.get(queues, Topics)
      const { receive } = Context.get(queues, Queue.Queue)
      const options = { maxMessages: 1, visibilityTimeout: "1 minute", wait: "20 seconds" } as const
      const connections = Effect.map(
        test.sql(
          "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name ~ 'listener|queues'"
        ),
        ({ length }) => length
      )

      const bothLearn = Effect.gen(function*() {
        const receiving = yield* Effect.forkChild(receive("work", options), { startImmediately: true })
        yield* waitUntil(Effect.sync(isConnected))
        yield* test.sql(
          `SELECT dx_publish_messages('[{"queue":"work","payload":{"kind":"new"},"delay_ms":0,"max_attempts":20}]')`
        )
        assert.lengthOf(yield* Fiber.join(receiving), 1)
        yield* there.announce(work)
        assert.deepStrictEqual((yield* runtime.next(1)).map(({ hint }) => hint), [work])
        assert.strictEqual(yield* connections, 2, "one for each process")
      })
      yield* bothLearn

      assert.strictEqual(yield* Listening.terminate(test), 2)
      yield* runtime.until(() => runtime.connections() === 2)
      yield* there.until(() => there.connections() === 2)
      yield* bothLearn

      yield* Scope.close(scope, Exit.void)
      yield* waitUntil(Effect.map(
        Listening.backends(test),
        (rows) => rows.every(({ query }) => query.includes("worker_work") && !query.includes("queues"))
      ))
      yield* there.announce(work)
      yield* runtime.next(1)
      assert.strictEqual(runtime.connections(), 2, "it was not connected anew")
    }).pipe(Effect.scoped, Effect.provide(Logger.layer([]))))
})
