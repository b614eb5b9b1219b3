#!/usr/bin/env node
/**
 * A `schema-engine` that needs no download: speaks the JSON-RPC protocol of the Prisma CLI on stdin and stdout and
 * hands the work to `@prisma/schema-engine-wasm` over `pg`.
 *
 * `prisma.config.ts` chooses it when `PRISMA_OFFLINE=1`. The real CLI then runs `migrate deploy`, `status`, `diff`,
 * `dev`, `resolve`, `reset`, `db pull` and `db push` as it does with the native engine. Linux and macOS only: Windows
 * cannot start a script as a binary.
 */
import { PrismaPg } from "@prisma/adapter-pg"
import { bindMigrationAwareSqlAdapterFactory, ColumnTypeEnum } from "@prisma/driver-adapter-utils"
import { randomUUID } from "node:crypto"
import { readFileSync, writeSync } from "node:fs"
import { createRequire } from "node:module"
import path from "node:path"
import readline from "node:readline"
import { pathToFileURL } from "node:url"
import pg from "pg"

const args = process.argv.slice(2)
const option = (name) => args.flatMap((arg, i) => (arg === name ? [args[i + 1]] : []))
const datasource = JSON.parse(option("--datasource")[0] ?? "{}")
const command = args.indexOf("cli") < 0 ? undefined : args[args.indexOf("cli") + 1]

if (args.includes("--version")) {
  console.log("schema-engine-cli wasm-over-pg")
} else if (command !== undefined) {
  await administrate(command)
} else {
  await serve()
}

/** The CLI reads log lines of this shape from stderr and shows their message. */
function log(level, fields) {
  const line = { timestamp: new Date().toISOString(), level, fields, target: "schema_engine::logger" }
  writeSync(2, `${JSON.stringify(line)}\n`)
}

// -----------------------------------------------------------------------------
// Connections
// -----------------------------------------------------------------------------

/** Splits a Prisma URL: parameters that only Prisma knows (`schema`, …) must not reach `pg`. */
function target(prismaUrl) {
  const url = new URL(prismaUrl)
  const schema = url.searchParams.get("schema") ?? "public"
  for (const key of ["schema", "connection_limit", "pool_timeout", "pgbouncer", "connect_timeout"]) {
    url.searchParams.delete(key)
  }
  // The value of `options` is split at blanks; a backslash keeps the next character.
  const searchPath = pg.escapeIdentifier(schema).replace(/[\\\s]/g, "\\$&")
  return {
    schema,
    host: url.host,
    database: decodeURIComponent(url.pathname.slice(1)) || "postgres",
    config: (database, extra = {}) => {
      const own = new URL(url)
      own.pathname = `/${encodeURIComponent(database)}`
      return {
        connectionString: own.toString(),
        options: `-c search_path=${searchPath} -c timezone=UTC`,
        max: 1, // migrations hold a session lock: one session for everything
        ...extra
      }
    }
  }
}

async function runOn(at, database, sql) {
  const client = new pg.Client(at.config(database, { connectionTimeoutMillis: 5000 }))
  await client.connect()
  try {
    if (sql !== undefined) await client.query(sql)
  } finally {
    await client.end()
  }
}

const charColumns = new WeakMap()

/** Three corrections without which the wasm engine cannot work over `PrismaPg`. */
function corrected(adapter) {
  const { performIO, queryRaw } = adapter
  // PrismaPg splits scripts at ';', which breaks $$ bodies, strings and comments: send the whole file as one query.
  adapter.executeScript = async function(script) {
    try {
      await this.underlyingDriver().query(script)
    } catch (error) {
      this.onError(error)
    }
  }
  // The catalog queries select "char" (OID 18) and name[] (1003), which PrismaPg does not map.
  adapter.performIO = async function(query) {
    const result = await performIO.call(this, query)
    charColumns.set(result.rows, result.fields.flatMap((field, i) => (field.dataTypeID === 18 ? [i] : [])))
    for (const field of result.fields) {
      field.dataTypeID = { 18: 25, 1003: 1009 }[field.dataTypeID] ?? field.dataTypeID
    }
    return result
  }
  adapter.queryRaw = async function(query) {
    const result = await queryRaw.call(this, query)
    for (const i of charColumns.get(result.rows) ?? []) result.columnTypes[i] = ColumnTypeEnum.Character
    return result
  }
  return adapter
}

async function open(at, database) {
  return corrected(await new PrismaPg(at.config(database), { schema: at.schema }).connect())
}

function adapterFactory(at, shadowUrl) {
  return {
    provider: "postgres",
    adapterName: "@prisma/adapter-pg",
    connect: () => open(at, at.database),
    // Not PrismaPg's own: given a connection string, that one connects to the main database.
    async connectToShadowDb() {
      if (shadowUrl) {
        const shadow = target(shadowUrl)
        return open(shadow, shadow.database)
      }
      const name = `prisma_migrate_shadow_db_${randomUUID()}`
      await runOn(at, at.database, `CREATE DATABASE ${pg.escapeIdentifier(name)}`)
      const adapter = await open(at, name)
      const dispose = adapter.dispose.bind(adapter)
      adapter.dispose = async () => {
        await dispose()
        await runOn(at, at.database, `DROP DATABASE IF EXISTS ${pg.escapeIdentifier(name)} WITH (FORCE)`)
      }
      return adapter
    }
  }
}

// -----------------------------------------------------------------------------
// schema-engine cli <verb>: reach, create or drop the database
// -----------------------------------------------------------------------------

async function administrate(verb) {
  const at = target(datasource.url)
  const name = pg.escapeIdentifier(at.database)
  try {
    if (verb === "can-connect-to-database") await runOn(at, at.database)
    else if (verb === "create-database") await runOn(at, "postgres", `CREATE DATABASE ${name}`)
    else if (verb === "drop-database") await runOn(at, "postgres", `DROP DATABASE IF EXISTS ${name}`)
  } catch (error) {
    const [code, message] = error.code === "3D000"
      ? ["P1003", `Database \`${at.database}\` does not exist`]
      : error.code === "28P01"
      ? ["P1000", "Authentication failed against the database server"]
      : ["P1001", `Can't reach database server at \`${at.host}\``]
    log("INFO", { message: "schema-engine (wasm)" }) // the CLI takes the second line for the error
    log("ERROR", { is_panic: false, error_code: code, message })
    process.exitCode = 1
  }
}

// -----------------------------------------------------------------------------
// JSON-RPC: one request per line, answered in order
// -----------------------------------------------------------------------------

async function loadEngine() {
  globalThis.PRISMA_WASM_PANIC_REGISTRY = { set_message: (message) => log("ERROR", { is_panic: true, message }) }
  const directory = path.dirname(createRequire(import.meta.url).resolve("@prisma/schema-engine-wasm"))
  const glue = await import(pathToFileURL(path.join(directory, "schema_engine_bg.js")).href)
  const module = new WebAssembly.Module(readFileSync(path.join(directory, "schema_engine_bg.wasm")))
  const instance = new WebAssembly.Instance(module, { "./schema_engine_bg.js": glue })
  glue.__wbg_set_wasm(instance.exports)
  instance.exports.__wbindgen_start()

  const files = option("--datamodels")
  const at = target(datasource.url ?? "postgresql://localhost/postgres")
  return glue.SchemaEngine.new(
    { datamodels: files.length === 0 ? undefined : files.map((file) => [file, readFileSync(file, "utf8")]) },
    (line) => process.stderr.write(line),
    bindMigrationAwareSqlAdapterFactory(adapterFactory(at, datasource.shadowDatabaseUrl))
  )
}

async function serve() {
  let engine
  let answered = Promise.resolve()
  let printed = 0
  const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`)

  const call = async (method, params) => {
    engine ??= await loadEngine()
    const run = () => engine[method === "getDatabaseVersion" ? "version" : method](params)
    try {
      return await run()
    } catch (error) {
      if (!/external factory/.test(error?.message) || !params?.migrationsList) throw error
      // The connector has handed over its factory; this call restores a state in which it can create a shadow database.
      await engine.devDiagnostic({ migrationsList: params.migrationsList, filters: params.filters })
      return run()
    }
  }

  const answer = async ({ id, method, params }) => {
    try {
      const result = (await call(method, params)) ?? {}
      if (method === "diff" && result.stdout) {
        send({ id: `print-${++printed}`, method: "print", params: { content: result.stdout } })
      }
      send({ id, result })
    } catch (error) {
      const data = {
        is_panic: false,
        message: error?.message ?? String(error),
        error_code: error?.code,
        meta: error?.meta ?? null
      }
      send({ id, error: { code: 4466, message: "An error happened. Check the data field for details.", data } })
    }
  }

  const lines = readline.createInterface({ input: process.stdin })
  lines.on("line", (line) => {
    const request = JSON.parse(line)
    if (request.method) answered = answered.then(() => answer(request))
  })
  lines.on("close", () => answered.then(() => process.exit(0)))
}
