// Runs the repository's tasks: `node scripts/run.mjs <task> [arguments]`; every npm script goes through it.
//
// A task first runs what it needs, so that one command works on a fresh clone: dependencies are installed when
// they differ from the lockfile, the Prisma client is generated when it is missing or stale, and sources are
// compiled, as Node 20 cannot run TypeScript. It uses Node alone, because it starts before anything is installed.

import { spawn } from "node:child_process"
import { existsSync, readFileSync, rmSync, statSync, utimesSync } from "node:fs"
import { constants } from "node:os"
import { fileURLToPath } from "node:url"

/** Each task: the tasks that must have run before it, and what it does. A task runs at most once per command. */
const tasks = {
  "install": { run: install },
  "generate": { needs: ["install"], run: (args) => tool("prisma", "generate", ...args) },
  "client": { needs: ["install"], run: generateWhenStale },
  "build": { needs: ["client"], run: () => tool("tsc", "-b", "examples", "scripts", "test/programs") },
  "types": { needs: ["client"], run: () => tool("tsc", "-b") },
  "diagnostics": { needs: ["types"], run: () => tool("effect-tsgo", "diagnostics", ...effectDiagnostics) },
  "format": { needs: ["install"], run: (args) => tool("dprint", "fmt", ...args) },
  "format:check": { needs: ["install"], run: (args) => tool("dprint", "check", ...args) },
  "lint": { needs: ["check:words", "build"], run: (args) => tool("oxlint", ...args) },
  "check:words": { run: () => node("scripts/words.mjs") },
  "check:imports": { run: () => node("scripts/imports.mjs") },
  "check:drift": { needs: ["build"], run: (args) => node("scripts/prisma/checkDrift.mjs", ...args) },
  "migration": { run: (args) => node("scripts/prisma/buildMigration.mjs", ...args) },
  "test": { needs: ["types", "diagnostics", "check:imports"], run: (args) => tool("vitest", "run", ...args) },
  "validate": { needs: ["client"], run: () => node("scripts/validate.mjs") },
  "test:package": { needs: ["build"], run: (args) => tool("vitest", "run", "--config", packageTests, ...args) },
  "test:pgbouncer": { needs: ["types"], run: (args) => node("scripts/testPgBouncer.mjs", ...args) },
  "test:postgres": { needs: ["types"], run: (args) => node("scripts/testPostgres.mjs", ...args) },
  "test:rust": { needs: ["types"], run: (args) => node("scripts/testRust.mjs", ...args) },
  "bench": { needs: ["build"], run: (args) => node("build/scripts/bench/hotPath.js", ...args) },
  "chaos": { needs: ["build"], run: (args) => node("build/scripts/chaos/main.js", ...args) },
  "fixtures": { needs: ["client"], run: (args) => tool("vitest", "run", "test/recordings/duroxide.test.ts", ...args) },
  "record": { needs: ["client"], run: record },
  "demo": { needs: ["build"], run: (args) => node("build/examples/orders/demo.js", ...args) },
  "example": { needs: ["build"], run: (args) => node("scripts/example.mjs", ...args) },
  "prepack": { needs: ["client"], run: prepack }
}

/** The tools' own entry files: started with this Node, they need neither a PATH nor a shell. */
const tools = {
  "dprint": "dprint/bin.cjs",
  "effect-tsgo": "@effect/tsgo/dist/effect-tsgo.cjs",
  "oxlint": "oxlint/bin/oxlint",
  "prisma": "prisma/build/index.js",
  "tsc": "typescript/bin/tsc",
  "vitest": "vitest/vitest.mjs"
}

/** All projects at once; suggestions are left to editors. */
const effectDiagnostics = ["--project", "tsconfig.json", "--severity", "error,warning", "--strict"]

const packageTests = "vitest.package.config.ts"

const root = fileURLToPath(new URL("..", import.meta.url))

const environment = {
  // The Prisma CLI otherwise downloads an engine, which nothing here needs, and looks for news of itself.
  PRISMA_OFFLINE: "1",
  CHECKPOINT_DISABLE: "1",
  PRISMA_HIDE_UPDATE_MESSAGE: "1",
  ...process.env
}

const startedByNpm = process.env.npm_lifecycle_event !== undefined

process.chdir(root)
const [name, ...args] = process.argv.slice(2)
if (Object.hasOwn(tasks, name ?? "")) {
  checkNode()
  await run(name, args)
} else {
  fail(`usage: node scripts/run.mjs <task> [arguments]\ntasks: ${Object.keys(tasks).join(", ")}`, 2)
}

async function run(name, args = [], finished = new Set()) {
  if (finished.has(name)) return
  finished.add(name)
  for (const need of tasks[name].needs ?? []) await run(need, [], finished)
  await tasks[name].run(args)
}

// -----------------------------------------------------------------------------
// tasks
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
  utimesSync(client, new Date(), new Date()) // it is up to date, also when Prisma found nothing to write
}

/** Writes the recordings that are missing; those that are there are promises to running instances. */
async function record() {
  environment.RECORD_MISSING = "1"
  await tool("vitest", "run", "test/recordings/ours.test.ts")
}

async function prepack() {
  rmSync("dist", { recursive: true, force: true }) // what deleted modules left behind must not be packed
  await tool("tsc", "-b", "src")
}

// -----------------------------------------------------------------------------
// commands
// -----------------------------------------------------------------------------

function tool(name, ...args) {
  console.log(`> ${[name, ...args].join(" ")}`)
  return command(process.execPath, `node_modules/${tools[name]}`, ...args)
}

function node(script, ...args) {
  return command(process.execPath, script, ...args)
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
    // A terminal sends its interrupt to the child as well; twice would mean "at once" to some.
    const interrupt = process.stdin.isTTY ? () => {} : forward
    process.on("SIGINT", interrupt).on("SIGTERM", forward).on("SIGHUP", forward)
    // npm hands its signals to the shell between us, which may end without passing them on.
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
