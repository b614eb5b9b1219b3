/**
 * Examines a schema of duroxide-pg: whether our statements work on its tables, and what has to be added.
 *
 * Nothing here writes.
 */
import * as Effect from "effect/Effect"
import * as MigrationError from "../MigrationError.ts"
import { duroxideBooks, hasTable, type Session } from "../shared/directSession.ts"
import * as Layout from "./layout.ts"
import type { Layout as Shared } from "./migration.ts"

/** The result of `examine`. */
export interface Examined {
  /** Migrations of duroxide-pg that this version does not know. */
  readonly unknown: ReadonlyArray<string>
  /** SQL that adds what our first migration creates besides the tables: indexes and storage parameters. */
  readonly extension: string
}

/** Fails with `LayoutMismatch`, which lists every difference. */
export const examine = Effect.fnUntraced(function*(session: Session, { additions, tables }: Shared) {
  const { run, schema } = session
  const refused = (differences: ReadonlyArray<string>) =>
    Effect.fail(new MigrationError.LayoutMismatch({ schema, differences }))
  if (!(yield* hasTable(session, duroxideBooks))) {
    return yield* refused([`table ${duroxideBooks} is missing, so duroxide-pg was never here`])
  }
  const rows = yield* run(`SELECT version::text, name FROM ${duroxideBooks} ORDER BY version`)
  const versions = new Set(rows.map(({ version }) => Number(version)))
  const names = tables.map(({ name }) => name)
  const found = (yield* run(Layout.query, [schema, names])) as ReadonlyArray<unknown> as ReadonlyArray<Layout.Found>
  const differences = [
    ...needed.filter((version) => !versions.has(version)).map((version) => `its migration ${version} is not applied`),
    ...Layout.differences(tables, found)
  ]
  if (differences.length > 0) return yield* refused(differences)
  const plain = (yield* run(
    `SELECT relname::text AS name FROM pg_class
     WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND relname = ANY($2)
       AND relkind = 'r' AND reloptions IS NULL`,
    [schema, names]
  )).map(({ name }) => name)
  return {
    unknown: rows.filter(({ version }) => Number(version) > 21 && Number(version) !== 23).map(({ name }) =>
      String(name)
    ),
    extension: [
      // Leave storage parameters that are set already.
      ...tables.filter(({ name, storage }) => storage.length > 0 && plain.includes(name))
        .map(({ name, storage }) => `ALTER TABLE ${name} SET (${storage.join(", ")})`),
      ...additions
    ].join(";\n")
  } satisfies Examined
})

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** Migrations of duroxide-pg that a schema must have: 22 was never released, 23 changes only indexes. */
const needed = Array.from({ length: 21 }, (_, index) => index + 1)
