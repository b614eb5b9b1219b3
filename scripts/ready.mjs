// Makes a clone ready, then runs a command in it: `node scripts/ready.mjs [NAME=value …] [command] [arguments]`.
//
// Ready means that dependencies are installed as in the lockfile, the Prisma client is generated from the schema, and
// the module of the migrations and the page of the dashboard are built; each is done only when it is missing or stale.
// The npm scripts begin with this, so that each of them works on a fresh clone. It uses Node alone, because it starts
// before anything is installed.
//
// The command gets the variables of `.env`, unless the environment sets them. `.env.example` lists them.

import { spawn } from "node:child_process"
import { existsSync, readdirSync, readFileSync, statSync, utimesSync } from "node:fs"
import { constants } from "node:os"
import { fileURLToPath } from "node:url"
import { writeModule } from "./prisma/migrationsModule.mjs"

/** The tools' own entry files: started with this Node, they need neither a PATH nor a shell. */
const tools = {
  "dprint": "dprint/bin.cjs",
  "effect-tsgo": "@effect/tsgo/dist/effect-tsgo.cjs",
  "oxlint": "oxlint/bin/oxlint",
  "prisma": "prisma/build/index.js",
  "rolldown": "rolldown/bin/cli.mjs",
  "tsc": "typescript/bin/tsc",
  "vite": "vite/bin/vite.js",
  "vitest": "vitest/vitest.mjs"
}

const root = fileURLToPath(new URL("..", import.meta.url))

process.chdir(root)
checkNode()
if (existsSync(".env")) process.loadEnvFile(".env")

const environment = {
  // The Prisma CLI otherwise downloads an engine, which nothing here needs, and checks for updates.
  PRISMA_OFFLINE: "1",
  CHECKPOINT_DISABLE: "1",
  PRISMA_HIDE_UPDATE_MESSAGE: "1",
  ...process.env
}

const startedByNpm = process.env.npm_lifecycle_event !== undefined

await install()
await generateWhenStale()
writeModule()
await buildPageWhenStale()
const args = process.argv.slice(2)
while (/^\w+=/.test(args[0] ?? "")) {
  const [name, ...value] = args.shift().split("=")
  environment[name] = value.join("=")
}
const [name, ...rest] = args
if (name === "node") await node(...rest)
else if (Object.hasOwn(tools, name ?? "")) await tool(name, ...rest)
else if (name !== undefined) fail(`scripts/ready.mjs runs node and ${Object.keys(tools).join(", ")}, not ${name}`, 2)

// -----------------------------------------------------------------------------
// getting ready
// -----------------------------------------------------------------------------

async function install() {
  const reason = whyInstall()
  if (reason === undefined) return
  console.log(`Installing dependencies: ${reason}.`)
  // NODE_ENV=production would leave out the compiler.
  await npm("ci", "--include=dev", "--no-audit", "--no-fund")
}

/** Compares the lockfile with what npm has recorded in `node_modules`. */
function whyInstall() {
  const installed = packages("node_modules/.package-lock.json")
  if (installed === undefined) return "node_modules is missing"
  for (const [path, wanted] of Object.entries(packages("package-lock.json"))) {
    const found = installed[path]
    // npm leaves out optional packages that are made for other platforms.
    if (path === "" || (found === undefined && (wanted.optional || wanted.devOptional))) continue
    if (found?.version !== wanted.version) {
      return `${path} is ${found?.version ?? "missing"}, package-lock.json wants ${wanted.version}`
    }
  }
}

function packages(lockfile) {
  return existsSync(lockfile) ? JSON.parse(readFileSync(lockfile, "utf8")).packages : undefined
}

async function generateWhenStale() {
  const client = "src/prisma/generated/client.ts"
  const inputs = ["prisma/schema.prisma", "node_modules/.package-lock.json"]
  const changed = (path) => statSync(path).mtimeMs
  if (existsSync(client) && inputs.every((input) => changed(input) <= changed(client))) return
  await tool("prisma", "generate")
  utimesSync(client, new Date(), new Date()) // it is up to date, even if Prisma wrote nothing
}

/** Builds it from its own files, and from the interface that its client is derived from. */
async function buildPageWhenStale() {
  const page = "ui/dist/index.html"
  const inputs = ["src/dashboard/Api.ts", "src/dashboard/Model.ts", "node_modules/.package-lock.json", ...filesOf("ui")]
  const changed = (path) => statSync(path).mtimeMs
  if (existsSync(page) && inputs.every((input) => changed(input) <= changed(page))) return
  await tool("vite", "build", "--config", "ui/vite.config.ts", "--logLevel", "warn")
}

function filesOf(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = `${folder}/${entry.name}`
    return path === "ui/dist" ? [] : entry.isDirectory() ? filesOf(path) : [path]
  })
}

// -----------------------------------------------------------------------------
// commands
// -----------------------------------------------------------------------------

function tool(name, ...args) {
  console.log(`> ${[name, ...args].join(" ")}`)
  return command(process.execPath, `node_modules/${tools[name]}`, ...args)
}

function node(...args) {
  return command(process.execPath, ...args)
}

function npm(...args) {
  const path = process.env.npm_execpath
  return startedByNpm && path?.endsWith(".js") ? command(process.execPath, path, ...args) : command("npm", ...args)
}

/** Runs a command. If it fails, this process exits in the same way. */
function command(file, ...args) {
  return new Promise((resolve) => {
    const child = spawn(file, args, { stdio: "inherit", env: environment })
    const forward = (signal) => child.kill(signal)
    // A terminal also sends its interrupt to the child; a second one would make some programs exit at once.
    const interrupt = process.stdin.isTTY ? () => {} : forward
    process.on("SIGINT", interrupt).on("SIGTERM", forward).on("SIGHUP", forward)
    // npm sends its signals to the shell in between, which may exit without forwarding them.
    const parent = process.ppid
    const watch = setInterval(() => startedByNpm && process.ppid !== parent && forward("SIGTERM"), 500)
    child.on("error", (error) => fail(`${file}: ${error.message}`, 127))
    child.on("exit", (code, signal) => {
      clearInterval(watch)
      process.off("SIGINT", interrupt).off("SIGTERM", forward).off("SIGHUP", forward)
      if (code === 0) resolve()
      else process.exit(code ?? 128 + constants.signals[signal])
    })
  })
}

function checkNode() {
  const [major, minor] = process.versions.node.split(".").map(Number)
  const { engines } = JSON.parse(readFileSync("package.json", "utf8"))
  const fits = engines.node.split(" || ").some((range) => {
    const [, operator, atLeast, minorAtLeast = 0] = /^(\^|>=)(\d+)(?:\.(\d+))?$/.exec(range)
    return operator === "^" ? major === Number(atLeast) && minor >= minorAtLeast : major >= Number(atLeast)
  })
  if (!fits) fail(`Node ${process.versions.node} is not supported: package.json asks for ${engines.node}`)
}

function fail(message, exitCode = 1) {
  console.error(message)
  process.exit(exitCode)
}
