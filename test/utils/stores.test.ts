import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Prisma } from "../../src/prisma/internal/client.ts"
import * as PgServer from "./PgServer.ts"
import * as Stores from "./stores.ts"

const store = Stores.make(PgServer.database)

/** What the next test finds: the name of its database, its rows, and what its connection remembers. */
const found = Effect.scoped(Effect.flatMap(store, ({ database }) =>
  Effect.map(
    database.query<{ name: string; rows: number; remembered: string | null }>(
      "look",
      Prisma.sql`SELECT current_database()::text AS name, (SELECT count(*)::int FROM sessions) AS rows,
        NULLIF(current_setting('duroxide_prisma.handover', true), '') AS remembered`
    ),
    ([row]) => row!
  )))

it.live("a store is handed on empty, once the statements have ended that no one waits for", () =>
  Effect.gen(function*() {
    const { name } = yield* found
    yield* Effect.scoped(Effect.gen(function*() {
      const { database } = yield* store
      yield* database.query("remember", Prisma.sql`SELECT set_config('duroxide_prisma.handover', 'x', false)`)
      const late = database.query(
        "insert",
        Prisma.sql`WITH waited AS MATERIALIZED (SELECT pg_sleep(0.5))
          INSERT INTO sessions SELECT 's', 'worker', 0, 0 FROM waited RETURNING session_id`
      )
      assert.isTrue((yield* Effect.timeoutOption(late, "100 millis"))._tag === "None")
    }))
    const expected = PgServer.server().template === null ? {} : { name }
    assert.deepInclude(yield* found, { ...expected, rows: 0, remembered: null })
  }))

it.live("a store is not handed on while another connection is open, nor after a failure", () =>
  Effect.gen(function*() {
    if (PgServer.server().template === null) return
    const { name } = yield* found
    yield* Effect.scoped(Effect.gen(function*() {
      yield* PgServer.connect(PgServer.urlWith((url) => (url.pathname = `/${name}`)))
      assert.strictEqual((yield* found).name, name)
    }))
    const second = yield* found
    assert.notStrictEqual(second.name, name)
    yield* Effect.flip(Effect.scoped(Effect.andThen(store, Effect.fail("failed"))))
    assert.notStrictEqual((yield* found).name, second.name)
  }))
