import * as Effect from "effect/Effect"
import { readdirSync, readFileSync } from "node:fs"
import * as path from "node:path"
import { layoutOf, manifestOf } from "../../scripts/prisma/manifest.mjs"
import type { Release } from "../../src/prisma/internal/migration.ts"
import { release } from "../../src/prisma/internal/migrations.generated.ts"
import { Migrations } from "../../src/prisma/internal/migrations.ts"

/** The migrations of the repository. */
export const ours = release.migrations

/** Names of the migrations. */
export const names = ours.map(({ name }) => name)

/** The SQL files of a folder with migrations: name to SQL, in their order. */
export const read = (folder: string): Readonly<Record<string, string>> =>
  Object.fromEntries(
    readdirSync(folder, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name)
      .sort((a, b) => a < b ? -1 : 1)
      .map((name) => [name, readFileSync(path.join(folder, name, "migration.sql"), "utf8")])
  )

/** Migrations by name, in their order, as a release has them. */
export const releaseOf = (migrations: Readonly<Record<string, string>>): Release => {
  const all = Object.entries(migrations).map(([name, sql]) => ({ name, sql, manifest: manifestOf(sql) }))
  const [first, ...later] = all
  if (first === undefined) throw new Error("a release has at least one migration")
  return {
    migrations: [first, ...later],
    // Only our first migration writes its tables in the form that is compared.
    shared: first.sql.includes("CREATE TABLE instances (") ? layoutOf(first.sql) : { tables: [], additions: [] }
  }
}

/** Runs an operation of `Migrator` with other migrations than ours: name to SQL, in their order. */
export const withMigrations = (migrations: Readonly<Record<string, string>>) =>
  Effect.provideService(Migrations, releaseOf(migrations))
