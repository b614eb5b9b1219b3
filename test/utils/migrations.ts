import * as Effect from "effect/Effect"
import { readdirSync, readFileSync } from "node:fs"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import type { All, Migration } from "../../src/prisma/internal/migration.ts"
import { Migrations } from "../../src/prisma/internal/migrations.ts"

/** The migrations of a folder, in their order. */
export const read = (folder: string): ReadonlyArray<Migration> =>
  readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => ({ name, sql: readFileSync(path.join(folder, name, "migration.sql"), "utf8") }))
    .sort((a, b) => a.name < b.name ? -1 : 1)

/** Those of the repository. */
export const ours = read(fileURLToPath(new URL("../../prisma/migrations", import.meta.url)))

/** Their names. */
export const names = ours.map(({ name }) => name)

/** Runs an operation of `Migrator` with other migrations than ours: name to SQL, in their order. */
export const withMigrations = (migrations: Readonly<Record<string, string>>) =>
  Effect.provideService(
    Migrations,
    Object.entries(migrations).map(([name, sql]) => ({ name, sql })) as ReadonlyArray<Migration> as All
  )
