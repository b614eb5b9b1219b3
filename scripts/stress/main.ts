/**
 * Runs the classic configurations under load, and pools of several sizes:
 *
 *     npm run stress [-- --seconds 2] [--only "baseline 1/1,pool of 5"] [--results file]
 *
 * Runs on `DATABASE_URL`, else on an embedded PostgreSQL, in a schema of its own that it drops at the end. Adds one
 * line of JSON per configuration to the results file, `.duroxide/stress.jsonl` unless another is named. Exit code 1: a
 * target was missed. With `--seconds` the runs are too short to judge by their speed: only success counts.
 */
import { DatabaseServer } from "duroxide-prisma/server"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import { appendFileSync, mkdirSync, readFileSync } from "node:fs"
import os from "node:os"
import path from "node:path"
import { parseArgs } from "node:util"
import * as pg from "pg"
import { configurations } from "./configurations.ts"
import { judge, run } from "./run.ts"
import type { Outcome } from "./run.ts"

const { values } = parseArgs({
  options: {
    /** Length of every configuration, instead of 10 and 30. */
    seconds: { type: "string" },
    /** Comma-separated names of configurations; all unless set. */
    only: { type: "string", default: configurations.map(({ name }) => name).join(",") },
    /** The file that results are added to. */
    results: { type: "string", default: ".duroxide/stress.jsonl" }
  }
})
const wanted = values.only.split(",")
const short = values.seconds !== undefined
const unknown = wanted.filter((name) => !configurations.some((known) => known.name === name))
if (unknown.length > 0 || (short && !(Number(values.seconds) > 0))) {
  console.error(
    "usage: npm run stress [-- --seconds 2] [--only \"baseline 1/1,pool of 5\"] [--results file]\nconfigurations: " +
      configurations.map(({ name }) => name).join(", ")
  )
  process.exit(2)
}

const scope = Scope.makeUnsafe()
const server = await Effect.runPromise(Scope.provide(DatabaseServer.make({ directory: ".duroxide/stress" }), scope))
const url = Redacted.value(server.url)
const schema = `stress_${process.pid}`
const admin = new pg.Client(url)
await admin.connect()
const { rows: [{ server_version: postgres }] } = await admin.query("SHOW server_version")
const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { readonly version: string }
const machine = { version, node: process.versions.node, postgres: String(postgres), cores: os.availableParallelism() }
console.log(
  `stress: ${server.description}, PostgreSQL ${machine.postgres}, Node ${machine.node}, ${machine.cores} cores`
)
mkdirSync(path.dirname(values.results), { recursive: true })

const outcomes: Array<Outcome> = []
let missed = 0
try {
  for (const configuration of configurations.filter(({ name }) => wanted.includes(name))) {
    const { activities, activityMs, inFlight, name, slots, target } = configuration
    const seconds = short ? Number(values.seconds) : configuration.seconds
    const loadAverage = os.loadavg()[0]!
    console.log(
      `\n${name}: ${inFlight} in flight, ${seconds} s, ${activities} activities of ${activityMs} ms, slots ${slots}/${slots}`
    )
    const outcome = await run(configuration, { url, schema, seconds })
    const judged = judge(short ? { success: target.success === true } : target, outcome, outcomes)
    const high = judge(configuration.high ?? {}, outcome, outcomes)
    outcomes.push(outcome)
    missed += judged.filter(({ reached }) => !reached).length
    print(outcome)
    for (const { reached, text } of judged) console.log(`  ${reached ? "reached" : "MISSED "} ${text}`)
    for (const { reached, text } of high) console.log(`  high target ${text}: ${reached ? "reached" : "not reached"}`)
    const passed = judged.every(({ reached }) => reached)
    const line = { at: new Date().toISOString(), ...machine, loadAverage, seconds, slots, ...outcome, passed }
    appendFileSync(values.results, `${JSON.stringify(line)}\n`)
  }
} finally {
  await admin.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`)
  await admin.end()
  await Effect.runPromise(Scope.close(scope, Exit.void))
}
console.log(`\nstress: ${outcomes.length} configurations, ${missed} targets missed; added to ${values.results}`)
process.exit(missed > 0 ? 1 : 0)

function print(outcome: Outcome) {
  const { completed, elapsedPerCompletedMs, firstFailure, orchestrationsPerSecond, p50Ms, p99Ms, started } = outcome
  console.log(
    `  ${completed} of ${started} completed (${
      (100 * outcome.successRate).toFixed(1)
    } %), ${orchestrationsPerSecond}/s, ` +
      `${elapsedPerCompletedMs} ms elapsed per completed; start to result p50 ${p50Ms} ms, p99 ${p99Ms} ms`
  )
  if (firstFailure !== null) console.log(`  first failure: ${firstFailure}`)
}
