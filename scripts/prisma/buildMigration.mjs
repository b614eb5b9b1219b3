#!/usr/bin/env node
/**
 * Writes the next migration from the stored functions in `prisma/functions`, the only place where they are edited.
 *
 *     npm run migration -- <name>            writes prisma/migrations/<stamp>_<name>/migration.sql
 *     npm run migration -- --replace-last    rewrites the newest functions migration (before a release)
 *     npm run migration -- --check           writes nothing; exit code 1 when files and migrations differ
 *
 * Each time it also writes the migrations as a module of the code, `src/prisma/internal/migrations.generated.ts`, which
 * is not committed. `scripts/ready.mjs` does the same for migrations that were written or edited by hand.
 *
 * The migration holds what changed since the migrations before it: new and changed functions in full, and a DROP for
 * removed ones. A function whose arguments, result or attributes change is dropped first, because CREATE OR REPLACE
 * would refuse or leave the old one beside it.
 */
import { mkdirSync, rmSync, writeFileSync } from "node:fs"
import path from "node:path"
import { parseArgs } from "node:util"
import {
  compareFunctions,
  definedBy,
  fixedSearchPath,
  functionsDirectory,
  readFunctionFiles
} from "./functionFiles.mjs"
import { migrationsDirectory, migrationsModule, readMigrations, writeModule } from "./migrationsModule.mjs"

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    check: { type: "boolean", default: false },
    "replace-last": { type: "boolean", default: false },
    functions: { type: "string", default: functionsDirectory },
    migrations: { type: "string", default: migrationsDirectory },
    module: { type: "string", default: migrationsModule }
  }
})

const builtBy = "-- Built by scripts/prisma/buildMigration.mjs from prisma/functions; edit the functions there."

try {
  process.exitCode = run()
} catch (error) {
  console.error(error.message)
  process.exitCode = 1
}

function run() {
  const files = readFunctionFiles(values.functions)
  const migrations = readMigrations(values.migrations)
  const last = migrations.findLast(({ sql }) => sql.startsWith(builtBy))
  const replaced = values["replace-last"] ? last : undefined
  if (values["replace-last"] && last === undefined) {
    throw new Error("no migration was built from functions yet; give a name for a new one")
  }
  const difference = compareFunctions(files, definedBy(migrations.filter((one) => one !== replaced)))
  const lines = Object.entries(difference).flatMap(([what, names]) => names.map((name) => `${what} ${name}`))
  if (values.check) return check(files, lines)

  if (lines.length > 0) {
    const name = replaced?.name ?? nextName(migrations.at(-1)?.name)
    const file = path.join(values.migrations, name, "migration.sql")
    mkdirSync(path.dirname(file), { recursive: true })
    writeFileSync(file, render(name, files, difference))
    console.log([path.relative(process.cwd(), file), ...lines].join("\n  "))
    if (difference.replaced.length + difference.dropped.length > 0) {
      console.log("Processes of an earlier version fail on dropped functions; a new name (…_v2) lets both run.")
    }
  } else {
    if (replaced !== undefined) rmSync(path.dirname(replaced.file), { recursive: true })
    console.log("nothing to migrate")
  }
  writeModule(values)
  return 0
}

function check(files, lines) {
  if (lines.length === 0) console.log(`migrations hold the ${files.size} functions as their files say`)
  else console.error(`migrations lag behind prisma/functions:\n  ${lines.join("\n  ")}\nRun "npm run migration".`)
  return lines.length === 0 ? 0 : 1
}

/** Migrations are ordered by stamp, so a new one must follow the newest even if two clocks disagree. */
function nextName(lastName) {
  const [title] = positionals
  if (positionals.length !== 1 || !/^[a-z0-9_]+$/.test(title)) {
    throw new Error("usage: npm run migration -- <name>, in lower case with underscores, such as renew_in_milliseconds")
  }
  const now = new Date().toISOString().replace(/\D/g, "").slice(0, 14)
  const after = lastName === undefined ? now : String(BigInt(lastName.slice(0, 14)) + 1n)
  return `${now > after ? now : after}_${title}`
}

function render(name, files, { changed, created, dropped, replaced }) {
  const written = [...files.keys()].filter((one) => [...created, ...changed, ...replaced].includes(one))
  return [
    `${builtBy}\n--`,
    `-- Purpose: ${name.slice(15).replaceAll("_", " ")}.`,
    replaced.length + dropped.length > 0
      ? "-- Effect on running workers: calls of an earlier version to the dropped functions fail from now on."
      : "-- Effect on running workers: their next statement runs the functions below.",
    "",
    "-- The functions below keep this path: a temporary table of their caller must not hide ours.",
    fixedSearchPath,
    ...[...dropped, ...replaced].sort().map((gone) => `\nDROP FUNCTION IF EXISTS ${gone};`),
    ...written.map((one) => `\n${files.get(one).text};`),
    ""
  ].join("\n")
}
