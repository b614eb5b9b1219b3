import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as PgServer from "./PgServer.ts"

it.live("database: gives every caller its own migrated tables", () =>
  Effect.gen(function*() {
    const databases = yield* Effect.all(Array.from({ length: 5 }, () => PgServer.database), {
      concurrency: "unbounded"
    })
    const insert = `INSERT INTO sessions VALUES ('s', 'w', 1, 1)`
    yield* Effect.forEach(databases, ({ sql }) => sql(insert), { concurrency: "unbounded" })
    for (const { sql } of databases) assert.lengthOf(yield* sql("SELECT FROM sessions"), 1)
  }))

it.live("database: is dropped when its scope closes", () =>
  Effect.gen(function*() {
    const { url } = yield* Effect.scoped(PgServer.database)
    const { sql } = yield* PgServer.database
    const name = new URL(url).pathname.slice(1)
    const left = yield* sql(
      "SELECT FROM pg_database WHERE datname = $1 AND $1 LIKE 'test_%'",
      [name]
    )
    assert.lengthOf(left, 0)
  }))

it.live("emptyDatabase: has none of our tables", () =>
  Effect.gen(function*() {
    const { schema, sql } = yield* PgServer.emptyDatabase
    assert.lengthOf(yield* sql("SELECT FROM pg_tables WHERE schemaname = $1", [schema]), 0)
  }))
