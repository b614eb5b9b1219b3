import { assert, describe, it } from "@effect/vitest"
import { Admin, FromDriver, MemoryDriver, Provider } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Database from "../../src/prisma/Database.ts"
import * as PrismaAdmin from "../../src/prisma/PrismaAdmin.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import * as PgServer from "../utils/PgServer.ts"
import { answered, stored } from "./badInput/answered.ts"
import { refused } from "./badInput/refused.ts"

const prisma = Layer.unwrap(
  Effect.map(PgServer.PgServer, ({ url }) =>
    FromDriver.layerAdmin.pipe(
      Layer.provideMerge(FromDriver.layer()),
      Layer.provideMerge(PrismaAdmin.layer()),
      Layer.provideMerge(PrismaDriver.layer()),
      Layer.provideMerge(Database.layer({ url }))
    ))
).pipe(Layer.provideMerge(PgServer.layer), Layer.provideMerge(Logger.layer([])))

const memory = FromDriver.layerAdmin.pipe(
  Layer.provideMerge(FromDriver.layer()),
  Layer.provideMerge(MemoryDriver.layer),
  Layer.provideMerge(Logger.layer([]))
)

const services = Effect.gen(function*() {
  return { provider: yield* Provider.Provider, admin: yield* Admin.Admin }
})

const rows = `SELECT (SELECT count(*) FROM instances)::int + (SELECT count(*) FROM executions)::int
  + (SELECT count(*) FROM history)::int + (SELECT count(*) FROM orchestrator_queue)::int
  + (SELECT count(*) FROM worker_queue)::int + (SELECT count(*) FROM sessions)::int AS count`

const refuses = Effect.gen(function*() {
  const all = yield* services
  for (const [name, call] of refused) {
    const error = yield* Effect.flip(call(all)).pipe(
      Effect.catchCause((cause) => Effect.die(new Error(`${name}: ${String(cause)}`)))
    )
    assert.strictEqual(error.reason._tag, "InvalidInput", `${name}: ${error.message}`)
    assert.strictEqual(error.operation, name.split(" ")[0], name)
    const isTooLong = /: [\d,]+ bytes$/.test(name)
    if (isTooLong) {
      assert.match(error.message, /it has \d+ bytes, the limit is (2048|1024|256|\d+: with .* may have 2560)$/, name)
    }
    assert.isFalse(error.isRetryable, name)
  }
})

const answers = Effect.gen(function*() {
  const all = yield* services
  for (const [name, call, expected] of answered) {
    const answer = yield* Effect.match(call(all), {
      onSuccess: (value) => value,
      onFailure: ({ reason }) => reason._tag
    })
    assert.deepStrictEqual(answer, expected, name.slice(0, 200))
  }
})

describe("Bad input:", () => {
  describe("PostgreSQL", () => {
    it.live(
      `${refused.length} calls are refused with InvalidInput, and nothing is written`,
      () =>
        Effect.gen(function*() {
          const { sql } = yield* PgServer.PgServer
          const { statementCounts } = yield* Database.Database
          yield* refuses
          assert.deepStrictEqual(yield* sql(rows), [{ count: 0 }])
          assert.deepStrictEqual(yield* statementCounts, {})
        }).pipe(Effect.provide(prisma))
    )

    it.live(`${answered.length} unusual calls have an answer`, () =>
      Effect.gen(function*() {
        const { sql } = yield* PgServer.PgServer
        yield* answers
        assert.deepStrictEqual(yield* sql(rows), [{ count: 0 }])
      }).pipe(Effect.provide(prisma)))

    for (const [name, call] of stored) {
      it.live(`stored as it is: ${name}`, () =>
        Effect.gen(function*() {
          const { sql } = yield* PgServer.PgServer
          yield* call(yield* services)
          const [row] = yield* sql<{ count: number }>(rows)
          assert.isAtLeast(row!.count, 1)
        }).pipe(Effect.provide(prisma)))
    }
  })

  describe("memory", () => {
    it.live(`${refused.length} calls are refused with InvalidInput`, () => Effect.provide(refuses, memory))

    it.live(`${answered.length} unusual calls have the same answer`, () => Effect.provide(answers, memory))
  })
})
