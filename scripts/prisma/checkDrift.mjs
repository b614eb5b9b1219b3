#!/usr/bin/env node
/**
 * Checks that all descriptions of the tables agree: Prisma schema, migrations, function files, and a database.
 *
 *     npm run check:drift                       the files of the repository, on scratch databases
 *     npm run check:drift -- --url <database>   a database against the files; `?schema=` says which schema
 *
 * Prisma compares tables, columns, keys and indexes; what it does not see is compared in PostgreSQL's catalog. Exit
 * code 1 and one line per difference when there is drift.
 *
 * Scratch databases are created on the server of `DATABASE_URL`; if that is not set, or may not create databases, on
 * an embedded server that is removed afterwards.
 */
import { DatabaseServer } from "duroxide-prisma/server"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { execFile } from "node:child_process"
import { randomUUID } from "node:crypto"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import path from "node:path"
import { parseArgs } from "node:util"
import pg from "pg"
import { compareCatalogs, readCatalog } from "./catalog.mjs"
import { compareFunctions, definedBy, fixedSearchPath, readFunctionFiles } from "./functionFiles.mjs"
import { readMigrations, root } from "./migrationsModule.mjs"

const { values } = parseArgs({
  options: {
    url: { type: "string" },
    // The folder with schema.prisma, migrations and functions.
    prisma: { type: "string", default: path.join(root, "prisma") }
  }
})
const schemaFile = path.join(values.prisma, "schema.prisma")
const migrationsFolder = path.join(values.prisma, "migrations")

try {
  const differences = await withServer(values.url === undefined ? checkFiles : checkDatabase)
  for (const difference of differences) console.error(difference)
  console.log(differences.length === 0 ? "Drift: none." : `Drift: ${differences.length} found.`)
  process.exitCode = differences.length === 0 ? 0 : 1
} catch (error) {
  console.error(`The check could not run: ${error.message}`)
  process.exitCode = 2
}

async function checkFiles(serverUrl) {
  const functions = readFunctionFiles(path.join(values.prisma, "functions"))
  return withScratch(serverUrl, async (url, client) => {
    const [, fromMigrations, fromDatabase] = await Promise.all([
      prismaMustSee(url),
      prismaDiff("migrations and schema.prisma", url, [
        "--from-migrations",
        migrationsFolder,
        "--to-schema",
        schemaFile
      ]),
      migrate(client, "drift_one")
        .then(() => migrate(client, "Drift Two"))
        .then(() => replaceFunctions(client, "Drift Two", functions))
        .then(() => databaseDiff(withSchema(url, "drift_one")))
    ])
    const migrations = readMigrations(migrationsFolder)
    const { changed, created, dropped, replaced } = compareFunctions(functions, definedBy(migrations))
    const behind = [...created, ...changed, ...replaced, ...dropped].map((name) => `migrations lag behind ${name}.sql`)
    const expected = await readCatalog(client, "Drift Two")
    const actual = await readCatalog(client, "drift_one")
    console.log(
      `Compared all tables, and ${expected.size} functions, indexes, constraints and storage parameters by their text.`
    )
    return [...fromMigrations, ...fromDatabase, ...behind, ...compareCatalogs(expected, actual)]
  })
}

async function checkDatabase(serverUrl) {
  return withScratch(serverUrl, async (url, client) => {
    const live = new URL(values.url)
    const schema = live.searchParams.get("schema") ?? "public"
    const [, fromDatabase] = await Promise.all([
      prismaMustSee(url),
      databaseDiff(values.url),
      migrate(client, "drift_one")
    ])
    live.searchParams.delete("schema")
    const onlooker = new pg.Client(live.toString())
    await onlooker.connect()
    try {
      const expected = await readCatalog(client, "drift_one")
      return [...fromDatabase, ...compareCatalogs(expected, await readCatalog(onlooker, schema))]
    } finally {
      await onlooker.end()
    }
  })
}

// -----------------------------------------------------------------------------
// Prisma's comparison
// -----------------------------------------------------------------------------

/** An engine that does nothing would make every comparison succeed: it must report that an empty schema differs. */
async function prismaMustSee(url) {
  const { exitCode, output } = await prisma(url, ["--from-empty", "--to-schema", schemaFile])
  if (exitCode !== 2) throw new Error(`prisma migrate diff does not see any difference\n${output}`)
}

function databaseDiff(url) {
  return prismaDiff("database and schema.prisma", url, ["--from-config-datasource", "--to-schema", schemaFile])
}

async function prismaDiff(what, url, args) {
  const { exitCode, output } = await prisma(url, args)
  if (exitCode === 0) return []
  if (exitCode === 2) return [`${what} differ:\n${output.trim()}`]
  throw new Error(`prisma migrate diff failed\n${output}`)
}

function prisma(url, args) {
  const engine = path.join(root, "scripts/prisma/schema-engine.mjs")
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [path.join(root, "node_modules/prisma/build/index.js"), "migrate", "diff", "--exit-code", ...args],
      {
        cwd: root,
        env: { ...process.env, DATABASE_URL: url, PRISMA_OFFLINE: "1", PRISMA_SCHEMA_ENGINE_BINARY: engine }
      },
      (error, stdout, stderr) =>
        resolve({ exitCode: error === null ? 0 : error.code, output: error?.code === 2 ? stdout : stdout + stderr })
    )
  })
}

// -----------------------------------------------------------------------------
// databases
// -----------------------------------------------------------------------------

/** Applies the migrations of the folder to a new schema, without recording them. */
async function migrate(client, schema) {
  const quoted = pg.escapeIdentifier(schema)
  await client.query(`CREATE SCHEMA ${quoted}; SET search_path = ${quoted}`)
  for (const { sql } of readMigrations(migrationsFolder)) await client.query(sql)
}

/** Replaces the functions of the migrations by those of the files; triggers that call them stay. */
async function replaceFunctions(client, schema, functions) {
  const quoted = pg.escapeIdentifier(schema)
  await client.query(`SET search_path = ${quoted}`)
  const { rows: triggers } = await client.query(
    `SELECT pg_get_triggerdef(t.oid) AS definition
     FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
     WHERE c.relnamespace = $1::regnamespace AND NOT t.tgisinternal`,
    [quoted]
  )
  const { rows } = await client.query(
    "SELECT oid::regprocedure::text AS name FROM pg_proc WHERE pronamespace = $1::regnamespace",
    [quoted]
  )
  for (const { name } of rows) await client.query(`DROP FUNCTION ${name} CASCADE`)
  const definitions = [...functions.values()].map(({ definition }) => `${definition};`)
  await client.query([fixedSearchPath, ...definitions].join("\n"))
  for (const { definition } of triggers) await client.query(definition)
}

function withSchema(url, schema) {
  const changed = new URL(url)
  changed.searchParams.set("schema", schema)
  return changed.toString()
}

async function withServer(use) {
  const given = process.env.DATABASE_URL
  if (given && await mayCreateDatabases(given)) return use(given)
  const directory = await mkdtemp(path.join(tmpdir(), "duroxide-prisma-drift-"))
  const run = Effect.gen(function*() {
    const { url } = yield* DatabaseServer.makeEmbedded({ directory, settings: { fsync: "off" } })
    return yield* Effect.tryPromise({ try: () => use(Redacted.value(url)), catch: (error) => error })
  })
  try {
    return await Effect.runPromise(Effect.scoped(run))
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

async function mayCreateDatabases(url) {
  return connected(url, async (client) => {
    const { rows } = await client.query(
      "SELECT rolsuper OR rolcreatedb AS may FROM pg_roles WHERE rolname = current_user"
    )
    return rows[0]?.may === true
  })
}

/** A temporary database for the check. */
function withScratch(serverUrl, use) {
  const name = `duroxide_drift_${randomUUID().replaceAll("-", "_")}`
  const url = new URL(serverUrl)
  url.pathname = `/${name}`
  url.searchParams.delete("schema")
  return connected(serverUrl, async (admin) => {
    await admin.query(`CREATE DATABASE ${name}`)
    try {
      return await connected(url.toString(), (client) => use(url.toString(), client))
    } finally {
      await admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)
    }
  })
}

async function connected(url, use) {
  const client = new pg.Client(url)
  await client.connect()
  try {
    return await use(client)
  } finally {
    await client.end()
  }
}
