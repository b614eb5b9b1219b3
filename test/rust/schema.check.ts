import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as Duroxide from "../utils/duroxideSchema.ts"
import type * as PgServer from "../utils/PgServer.ts"
import * as Rust from "./Rust.ts"

const silently = Effect.provide(Logger.layer([]))

/** A description of everything in a schema, independent of its name. */
const description = Effect.fnUntraced(function*({ schema, sql }: Pick<PgServer.TestDatabase, "schema" | "sql">) {
  const lines = (query: string) =>
    Effect.map(sql<{ line: string }>(`${query} ORDER BY 1`, [schema]), (rows) => rows.map(({ line }) => line))
  const inSchema = "(SELECT oid FROM pg_namespace WHERE nspname = $1)"
  return {
    relations: yield* lines(
      `SELECT concat_ws(' ', relname, relkind, reloptions::text) AS line FROM pg_class WHERE relnamespace = ${inSchema}`
    ),
    columns: yield* lines(
      `SELECT concat_ws(' ', c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
         replace(pg_get_expr(d.adbin, d.adrelid), $1 || '.', '')) AS line
       FROM pg_attribute AS a
       JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind = 'r' AND c.relnamespace = ${inSchema}
       LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
       WHERE a.attnum > 0 AND NOT a.attisdropped`
    ),
    indexes: yield* lines(`SELECT replace(indexdef, $1 || '.', '') AS line FROM pg_indexes WHERE schemaname = $1`),
    constraints: yield* lines(
      `SELECT concat_ws(' ', r.relname, k.conname, pg_get_constraintdef(k.oid)) AS line
       FROM pg_constraint AS k JOIN pg_class AS r ON r.oid = k.conrelid WHERE k.connamespace = ${inSchema}`
    ),
    triggers: yield* lines(
      `SELECT t.tgname::text AS line FROM pg_trigger AS t
       JOIN pg_class AS c ON c.oid = t.tgrelid AND c.relnamespace = ${inSchema}`
    ),
    functions: yield* lines(
      `SELECT concat(proname, '(', pg_get_function_arguments(oid), ') ', pg_get_function_result(oid)) AS line
       FROM pg_proc WHERE pronamespace = ${inSchema}`
    ),
    migrations: yield* lines(
      `SELECT version || ' ' || name AS line FROM _duroxide_migrations WHERE $1::text IS NOT NULL`
    )
  }
})

const books = ({ sql }: Rust.Shared) => sql("SELECT * FROM _duroxide_migrations ORDER BY version")

describe("a schema duroxide-pg made", () => {
  it.live("duroxide-pg-schema.sql describes it", () =>
    Effect.gen(function*() {
      const { functions, ...live } = yield* description(yield* Rust.open)
      const { functions: standIns, ...fixture } = yield* description(yield* Duroxide.empty("fixture"))
      assert.deepStrictEqual(fixture, live)
      assert.isAbove(live.columns.length, 60)
      assert.isAbove(standIns.length, 0)
      assert.deepStrictEqual(standIns.filter((standIn) => !functions.includes(standIn)), [])
    }))

  it.live("adopt: adds to it, changes nothing, and duroxide-pg finds nothing to migrate", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      const before = yield* Duroxide.objects(shared.sql, shared.schema)
      const rows = yield* books(shared)
      assert.isAbove((yield* silently(Migrator.adopt(shared))).length, 0)
      const after = yield* Duroxide.objects(shared.sql, shared.schema)
      // On Duroxide's tables, only storage parameters change.
      assert.deepStrictEqual(
        before.filter((object) => !after.includes(object) && !/^relation \w+ r$/.test(object)),
        []
      )
      assert.deepStrictEqual(yield* books(shared), rows)
      yield* shared.connect
      assert.deepStrictEqual(yield* books(shared), rows)
      assert.deepStrictEqual(yield* Duroxide.objects(shared.sql, shared.schema), after)
      yield* Migrator.verify(shared)
    }))

  it.live("adopt and reset: an instance of the other side continues through both", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      const before = yield* Duroxide.objects(shared.sql, shared.schema)
      const rust = yield* shared.run()
      yield* Rust.ask(shared, (client) => client.startOrchestration("errand", "RustErrand", "\"anna\""))
      yield* Rust.asking(shared, "errand")
      yield* silently(Migrator.adopt(shared))
      yield* Rust.ask(shared, (client) => client.raiseEvent("errand", "Answer", "\"yes\""))
      yield* Rust.ask(shared, (client) => client.startOrchestration("steps", "RustSteps", "1"))
      assert.deepInclude(yield* Rust.ended(shared, "steps"), { status: "Completed", output: "6" })
      yield* silently(Migrator.reset({ ...shared, force: true }))
      yield* Rust.ask(shared, (client) => client.enqueueEvent("errand", "Letters", "\"dear\""))
      assert.deepInclude(yield* Rust.ended(shared, "errand"), {
        status: "Completed",
        output: JSON.stringify({ name: "anna", answer: "yes", letter: "dear" })
      })
      assert.deepStrictEqual(yield* Duroxide.objects(shared.sql, shared.schema), before)
      assert.lengthOf(Rust.ran(rust), 5)
    }))

  it.live("adopt: works while the other side runs, and migrates", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      yield* shared.run()
      const ids = Array.from({ length: 20 }, (_, i) => `steps-${i}`)
      yield* Effect.all([
        Effect.forEach(ids, (id) => Rust.ask(shared, (client) => client.startOrchestration(id, "RustSteps", "1"))),
        Effect.all(Array.from({ length: 5 }, () => shared.connect), { concurrency: "unbounded" }),
        silently(Migrator.adopt(shared))
      ], { concurrency: "unbounded" })
      for (const id of ids) assert.deepInclude(yield* Rust.ended(shared, id), { status: "Completed", output: "6" })
    }))
})
