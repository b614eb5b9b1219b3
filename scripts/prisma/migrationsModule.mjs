/**
 * Builds the module that contains the migrations as code, `src/prisma/internal/migrations.generated.ts`. As the Prisma
 * client, it is not committed: `scripts/ready.mjs` and `vitest.config.ts` write it when it is missing or stale.
 *
 * Uses Node alone, because it runs before anything is installed.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs"
import path from "node:path"
import { fileURLToPath } from "node:url"
import { layoutOf, manifestOf } from "./manifest.mjs"

export const root = fileURLToPath(new URL("../../", import.meta.url))
export const migrationsDirectory = path.join(root, "prisma/migrations")
export const migrationsModule = path.join(root, "src/prisma/internal/migrations.generated.ts")

/** The migrations in the order they are applied: `{ name, file, sql }`. */
export function readMigrations(directory = migrationsDirectory) {
  return readdirSync(directory, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .sort()
    .map((name) => {
      const file = path.join(directory, name, "migration.sql")
      return { name, file, sql: readFileSync(file, "utf8") }
    })
}

/**
 * The source of the module with the given migrations, which makes them available in a bundle as well. Beside each
 * stands what it creates, so that no code has to read SQL.
 */
export function renderModule(migrations) {
  const literal = (text) => `\`${text.replace(/[\\`]|\$\{/g, "\\$&")}\``
  const entries = migrations.map(({ name, sql }) =>
    `    {\n      name: "${name}",\n      manifest: ${JSON.stringify(manifestOf(sql))},\n      sql: ${
      literal(sql)
    }\n    }`
  )
  return [
    "// Built from prisma/migrations by scripts/ready.mjs and by vitest.config.ts; edit those.",
    "import type { Release } from \"./migration.ts\"",
    "",
    "export const release: Release = {",
    `  shared: ${JSON.stringify(layoutOf(migrations[0]?.sql ?? ""))},`,
    `  migrations: [\n${entries.join(",\n")}\n  ]\n}\n`
  ].join("\n")
}

/**
 * Writes the module if it is missing or does not hold the migrations as they are. Two processes may do so at the same
 * time: neither reads half of it.
 */
export function writeModule({ migrations = migrationsDirectory, module = migrationsModule } = {}) {
  const text = renderModule(readMigrations(migrations))
  if (existsSync(module) && readFileSync(module, "utf8") === text) return
  mkdirSync(path.dirname(module), { recursive: true })
  const written = `${module}.${process.pid}`
  writeFileSync(written, text)
  renameSync(written, module)
}
