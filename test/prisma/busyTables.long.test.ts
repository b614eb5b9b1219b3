/**
 * What changes tables while other transactions use them.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Logger from "effect/Logger"
import type * as Scope from "effect/Scope"
import { created } from "../../src/prisma/internal/migrations.ts"
import type { MigrationError } from "../../src/prisma/MigrationError.ts"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as Duroxide from "../utils/duroxideSchema.ts"
import { ours, withMigrations } from "../utils/migrations.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitForStatement } from "../utils/waitUntil.ts"

const silently = Effect.provide(Logger.layer([]))

const tables = created("tables", ours)

const altered = ["instances", "executions", "history"]

const laterRelease = withMigrations({
  ...Object.fromEntries(ours.map(({ name, sql }) => [name, sql])),
  "99990101000000_columns": altered.map((table) => `ALTER TABLE ${table} ADD COLUMN added_note TEXT;`).join("\n")
})

/** A schema of our own that is up to date, and a session that looks. */
const migrated = Effect.tap(PgServer.emptyDatabase, (test) => Effect.orDie(silently(Migrator.migrate(test))))

const adopted = Effect.tap(Duroxide.empty("rust"), (test) => Effect.orDie(silently(Migrator.adopt(test))))

interface Case {
  readonly name: string
  readonly schema: Effect.Effect<PgServer.TestDatabase, never, Scope.Scope>
  readonly tables: ReadonlyArray<string>
  /** Takes the locks. */
  readonly statement: string
  readonly run: (options: Migrator.Options) => Effect.Effect<unknown, MigrationError>
}

const cases: ReadonlyArray<Case> = [
  {
    name: "reset",
    schema: migrated,
    tables,
    statement: "LOCK TABLE",
    run: (options: Migrator.Options) => Migrator.reset({ ...options, force: true })
  },
  {
    name: "migrate",
    schema: migrated,
    tables: altered,
    statement: "ALTER TABLE",
    run: (options: Migrator.Options) => laterRelease(Migrator.migrate(options))
  },
  {
    name: "adopt",
    schema: adopted,
    tables: altered,
    statement: "ALTER TABLE",
    run: (options: Migrator.Options) => laterRelease(Migrator.adopt(options))
  }
]

/** A transaction of another process; its statements take locks until it commits. */
const transaction = Effect.fnUntraced(function*({ schema, url }: PgServer.TestDatabase) {
  const client = yield* PgServer.connect(PgServer.urlWith((other) => (other.pathname = new URL(url).pathname)))
  const run = (sql: string) => Effect.promise(() => client.query(sql))
  yield* run(`BEGIN; SET LOCAL search_path = "${schema}"; SET LOCAL deadlock_timeout = '1h'`)
  return run
})

describe("tables in use:", () => {
  for (const { name, run, schema, statement, tables } of cases) {
    it.live(`${name}: the victim of a deadlock starts again`, () =>
      Effect.gen(function*() {
        const test = yield* schema
        const [first, second, last] = [tables[0]!, tables[1]!, tables.at(-1)!]
        const other = yield* transaction(test)
        const delaying = yield* transaction(test)
        yield* other(`LOCK TABLE ${last} IN ROW EXCLUSIVE MODE`)
        yield* delaying(`LOCK TABLE ${second} IN ROW EXCLUSIVE MODE`)
        const url = new URL(test.url)
        url.searchParams.set("options", "-c deadlock_timeout=10ms")
        const ours = yield* Effect.forkChild(silently(run({ url: url.toString() })))
        yield* waitForStatement(test, statement, "Lock") // has `first`, waits for `second`
        const theirs = yield* Effect.forkChild(other(`SELECT count(*) FROM ${first}`))
        yield* waitForStatement(test, "SELECT count(*)", "Lock")
        yield* delaying("COMMIT") // ours waits for `last`, which closes the circle, and looks for deadlocks
        yield* Fiber.join(theirs) // `first` is free, as ours was the victim
        assert.isUndefined(ours.pollUnsafe(), "ours waits for the other transaction, which holds `last`")
        yield* other("COMMIT")
        yield* Fiber.join(ours)
      }))

    it.live(`${name}: names the tables that a transaction holds for longer than lockTimeout`, () =>
      Effect.gen(function*() {
        const test = yield* schema
        const other = yield* transaction(test)
        yield* other(`LOCK TABLE ${tables[0]} IN ROW EXCLUSIVE MODE`)
        const { reason } = yield* Effect.flip(silently(run({ url: test.url, lockTimeout: "50 millis" })))
        assert.deepInclude(reason, { _tag: "TablesInUse", tables: [tables[0]!], waitedMs: 50 })
        assert.isTrue(reason.isRetryable)
        yield* other("COMMIT")
        yield* silently(run(test))
      }))
  }
})
