// Runs all checks on a clean checkout, each with the command a person would type, and continues after a failure so
// that one run shows all of them. Those that wait a lot, for npm's registry, a browser or other processes, run in two
// rows side by side, and print when they end.
//
// The last line is `N passed, M failed`: vitest's totals, to which every other check that failed adds one failure, so
// that the line never looks better than the exit code.

import { spawn } from "node:child_process"
import { existsSync, readFileSync, rmSync } from "node:fs"
import { relative } from "node:path"
import { fileURLToPath } from "node:url"

/** The checks of which each writes a report of its tests. */
const counted = ["test", "test:long", "test:browser"]
const reports = ["build/vitest.json", "build/vitest.long.json", "build/vitest.browser.json"]

const alone = [
  ["generate"],
  ["format:check"],
  ["lint"],
  ["check:drift"],
  ["test", "--", "--reporter=default", "--reporter=json", `--outputFile.json=${reports[0]}`], // types and imports first
  ["test:long", "--", "--reporter=default", "--reporter=json", `--outputFile.json=${reports[1]}`]
]

/** They share no files but the caches of npm and what `npm run build` has built by then. */
const sideBySide = [
  [
    // The oldest version most people run; the others by the same command, `npm run test:postgres -- 14`.
    [
      "test:postgres",
      "--",
      "15",
      "suite.queues",
      "suite.turns",
      "test/prisma/indexes",
      "test/tasks/indexes",
      "test/runtime/statements"
    ],
    ["test:bare"], // all that is optional of a server switched off
    ["test:rust"],
    ["chaos", "--", "--minutes", "0.4", "--seed", "7"], // a minute including its checks; its first and last lines contain the seed
    ["stress", "--", "--seconds", "1"], // judges success, not speed
    ["demo"],
    ["lite", "--", "--queue", "sqs", "--records", "6000"], // the tests run it on PostgreSQL alone
    ["example", "--", "all"]
  ],
  [
    ["test:package"],
    ["test:browser", "--", "--reporter=default", "--reporter=json", `--outputFile.json=${reports[2]}`]
  ]
]

process.chdir(fileURLToPath(new URL("..", import.meta.url)))
// Output of an earlier run must not hide that something is missing.
for (
  const output of ["dist", "build", "ui/dist", "src/prisma/generated", "src/prisma/internal/migrations.generated.ts"]
) {
  rmSync(output, { recursive: true, force: true })
}

const ends = new Map()
for (const check of alone) await run(check, true)
await Promise.all(sideBySide.map(async (row) => {
  for (const check of row) await run(check, false)
}))
const failed = [...ends.keys()]
const tests = totals(failed.filter((name) => counted.includes(name)).length)
const failures = tests.failed + failed.filter((name) => !counted.includes(name)).length

if (failed.length > 0) console.log(`\nFailed: ${failed.join(", ")}`)
// At the end, because often only the end of a long log is kept.
for (const [name, end] of ends) if (!counted.includes(name)) console.log(`\n- ${name} ended with\n${end}`)
for (const failure of tests.failures) console.log(`\n- ${failure}`)
console.log(`\n${tests.passed} passed, ${failures} failed`)
process.exitCode = failures === 0 ? 0 : 1

/** Runs a check; the end of what it printed goes to `ends` if it failed. */
async function run([name, ...args], isAlone) {
  console.log(`\n=== ${name}${isAlone ? "" : ", which prints at its end"}`)
  const started = performance.now()
  const check = spawn("npm", ["run", "--silent", name, ...args], { stdio: ["inherit", "pipe", "pipe"] })
  const chunks = []
  let end = ""
  for (const [from, to] of [[check.stdout, process.stdout], [check.stderr, process.stderr]]) {
    from.setEncoding("utf8").on("data", (text) => {
      if (isAlone) to.write(text)
      else chunks.push(text)
      end = (end + text).slice(-4000)
    })
  }
  const status = await new Promise((resolve) => {
    check.once("error", (error) => {
      end += error.message
      resolve(null)
    }).once("close", resolve)
  })
  if (!isAlone) process.stdout.write(`\n=== what ${name} printed\n${chunks.join("")}`)
  console.log(
    `=== ${name} ${status === 0 ? "passed" : "FAILED"} in ${((performance.now() - started) / 1000).toFixed(1)} s`
  )
  if (status !== 0) ends.set(name, end)
}

/** Counts the tests; a file that could not be loaded, and a run that failed without naming a test, count as one. */
function totals(runsFailed) {
  const files = reports.flatMap((report) =>
    existsSync(report) ? JSON.parse(readFileSync(report, "utf8")).testResults : []
  )
  const count = (file, status) => file.assertionResults.filter((test) => test.status === status).length
  let passed = 0
  let failed = 0
  for (const file of files) {
    passed += count(file, "passed")
    failed += Math.max(count(file, "failed"), file.status === "failed" ? 1 : 0)
  }
  return { passed, failed: Math.max(failed, runsFailed), failures: files.flatMap(failuresOf) }
}

/** The names of a file's tests that failed, each with its message. */
function failuresOf({ assertionResults, message, name, status }) {
  const failed = assertionResults.filter((test) => test.status === "failed")
  const named = failed.map(({ failureMessages, fullName }) => `${fullName}: ${shortened(failureMessages.join("\n"))}`)
  const problems = failed.length === 0 && status === "failed" ? [shortened(message)] : named
  return problems.map((problem) => `${relative(process.cwd(), name)}: ${problem}`)
}

/** Beginning and end: a random test prints its counterexample first and the error last. */
function shortened(message) {
  return message.length <= 1600 ? message : `${message.slice(0, 400)}\n[...]\n${message.slice(-1200)}`
}
