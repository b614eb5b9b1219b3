import { assert, describe, it } from "@effect/vitest"
import { Metrics } from "duroxide-prisma"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Database from "../../src/prisma/Database.ts"
import { Prisma } from "../../src/prisma/internal/client.ts"
import { isolated, values } from "../utils/metrics.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

describe("Gauges of the pool", () => {
  it.live("show open and waiting connections while the database is open", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const closed = yield* Effect.scoped(Effect.gen(function*() {
        const { query } = yield* Database.make({ url, maxConnections: 2 })
        assert.deepStrictEqual(yield* values(Metrics.poolConnections), { idle: 1, busy: 0 })
        assert.deepStrictEqual(yield* values(Metrics.poolWaiting), { "": 0 })
        yield* sql("SELECT pg_advisory_lock(1)")
        const begun = yield* Deferred.make<void>()
        const blocked = yield* Effect.forkChild(
          Effect.forEach(
            [1, 2, 3],
            () =>
              Effect.andThen(
                Deferred.succeed(begun, undefined),
                query("wait", Prisma.sql`SELECT pg_advisory_lock_shared(1)::text, pg_advisory_unlock_shared(1)`)
              ),
            { concurrency: "unbounded" }
          )
        )
        yield* Deferred.await(begun)
        yield* waitUntil(Effect.map(values(Metrics.poolConnections), ({ busy }) => busy === 2))
        yield* waitUntil(Effect.map(values(Metrics.poolWaiting), ({ "": waiting }) => waiting === 1))
        yield* sql("SELECT pg_advisory_unlock(1)")
        yield* Fiber.join(blocked)
        yield* waitUntil(Effect.map(values(Metrics.poolConnections), ({ idle }) => idle === 2))
        return "closed"
      }))
      assert.strictEqual(closed, "closed")
      assert.deepStrictEqual(yield* values(Metrics.poolConnections), {})
    }).pipe(Effect.scoped, isolated))
})
