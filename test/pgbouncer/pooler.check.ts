import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Errand from "../utils/errand.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as PgBouncer from "./PgBouncer.ts"

const names = Array.from({ length: 20 }, (_, i) => `name ${i}`)

const withParameter = (url: string, name: string, value: string) => {
  const changed = new URL(url)
  changed.searchParams.set(name, value)
  return changed.toString()
}

/** Twenty whole orchestrations at once, and a timer. */
const aDaysWork = Effect.fnUntraced(function*(test: PgServer.TestDatabase) {
  const results = yield* Effect.forEach(names, (name) => Errand.run(name, "heard"), { concurrency: "unbounded" })
  for (const [i, result] of results.entries()) {
    assert.deepStrictEqual(result, { greeting: `ME GREETS ${names[i]!.toUpperCase()}`, answer: "heard" })
  }
  assert.strictEqual((yield* Errand.timerError(test)).row, 0)
  const backends = yield* test.sql(
    "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
  )
  assert.isAtLeast(backends.length, 1)
  assert.isAtMost(backends.length, PgBouncer.poolSize) // all came through the pooler
})

describe("PgBouncer in transaction mode", () => {
  it.live("pgbouncer=true: whole orchestrations run, migrated straight on the server", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.emptyDatabase
      const pooled = yield* PgBouncer.inFrontOf(test.url)
      const options = { url: withParameter(pooled, "pgbouncer", "true"), directUrl: test.url }
      yield* aDaysWork(test).pipe(Effect.provide(Errand.app("ME", options)))
    }), 60_000)

  it.live("preparedStatements: false: the same, where the server's time zone is not UTC", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      if (PgServer.server().template !== null) {
        yield* test.sql(`ALTER DATABASE ${new URL(test.url).pathname.slice(1)} SET TimeZone = 'Asia/Kolkata'`)
      }
      const url = yield* PgBouncer.inFrontOf(test.url)
      yield* aDaysWork(test).pipe(
        Effect.provide(Errand.app("ME", { url, preparedStatements: false, migrate: "verify" }))
      )
    }), 60_000)

  it.live("pgbouncer=true without directUrl: migrating is refused before anything is sent", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.emptyDatabase
      const pooled = yield* PgBouncer.inFrontOf(test.url)
      const error = yield* Errand.run("anna", "heard").pipe(
        Effect.provide(Errand.app("ME", { url: withParameter(pooled, "pgbouncer", "true") })),
        Effect.flip
      )
      assert.strictEqual(error._tag, "MigrationError")
      assert.include(error.message, "not the pooler's")
    }))
})
