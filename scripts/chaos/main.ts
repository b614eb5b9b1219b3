/**
 * Runs a fleet of real processes on a real PostgreSQL, injects faults, and checks the outcome of every
 * acknowledged call.
 *
 *     npm run chaos [-- --minutes 2 --seed 42 --only deploys,locks --keep]
 *
 * README.md beside this file names the faults and what is checked. Exit code 1: a promise was broken.
 */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import path from "node:path"
import { parseArgs } from "node:util"
import { random } from "../../test/programs/chaos/random.ts"
import * as audit from "./audit.ts"
import * as faults from "./faults.ts"
import * as fleets from "./fleet.ts"
import * as logs from "./logs.ts"
import * as starvation from "./starvation.ts"
import * as stores from "./store.ts"

const { values } = parseArgs({
  options: {
    /** How long faults are injected. The checks afterwards take about half a minute. */
    minutes: { type: "string", default: "2" },
    /** Chooses faults and their times; a random one is printed. */
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    /** Comma-separated names of faults; all unless set. */
    only: { type: "string", default: faults.names.join(",") },
    /** Keeps the files of the processes even if all checks pass. */
    keep: { type: "boolean", default: false }
  }
})
const minutes = Number(values.minutes)
const seed = Number(values.seed)
const wanted = values.only.split(",")
const unknown = wanted.filter((name) => !faults.names.includes(name))
if (unknown.length > 0 || !(minutes > 0) || !Number.isInteger(seed)) {
  console.error(
    `usage: npm run chaos [-- --minutes 2 --seed 42 --only ${faults.names.slice(0, 2).join(",")} --keep]\n` +
      `faults: ${faults.names.join(", ")}`
  )
  process.exit(2)
}

console.log(`chaos: seed ${seed}, ${minutes} minutes, ${wanted.join(", ")}`)
const startedAt = performance.now()
const directory = mkdtempSync(path.join(tmpdir(), "duroxide-prisma-chaos-"))
const store = await stores.open(directory)
const fleet = fleets.make({
  directory,
  store,
  chance: random(2 * seed),
  short: minutes < 3,
  versions: faults.firstVersions(wanted)
})
process.on("exit", fleet.killAll)
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    fleet.killAll()
    void store.close().finally(() => process.exit(130))
  })
}

let violations: ReadonlyArray<string> = []
try {
  const starving = starvation.watch(store.ownerUrl)
  await fleet.start(faults.flows(wanted))
  const injected = await faults.inject({ store, fleet, wanted, minutes, chance: random(2 * seed + 1) })
  console.log("no more faults; waiting for what was begun")
  await fleet.endClients()
  await fleet.serveEverything()
  await fleet.finish(await audit.unfinished(store, logs.readClients(directory)))
  // A pill takes ten deliveries, each as long as a lock. What was stored under a clock that was ahead waits until then.
  const unsettled = await audit.untilQuiet(store, (minutes < 3 ? 60_000 : 400_000) + faults.longestStep(minutes))
  await fleet.ping() // after the pills, which end processes
  // A ping may leave its wake-up behind with a worker that does not serve it.
  const left = unsettled.length > 0 ? [] : await audit.untilQuiet(store, 60_000)
  const unstopped = await fleet.stop()
  const starved = await starving.stop()
  const report = await audit.audit({ store, directory, processes: fleet.processes, injected, starved })
  violations = [...unsettled, ...left, ...unstopped, ...report.violations]
  for (const line of report.summary) console.log(line)
  if (starved.length > 0) {
    const ms = starved.reduce((sum, { from, to }) => sum + to - from, 0)
    console.log(
      `the machine was starved: ${starved.length} connections took ${(ms / starved.length).toFixed(0)} ms on average`
    )
  }
} finally {
  fleet.killAll()
  await store.close()
}
for (const violation of violations) console.log(`VIOLATION: ${violation}`)
const files = violations.length > 0 || values.keep
if (files) console.log(`files of the processes: ${directory}`)
else rmSync(directory, { recursive: true, force: true })
const seconds = Math.round((performance.now() - startedAt) / 1000)
console.log(`chaos: ${violations.length} violations, seed ${seed}, ${seconds} s`)
process.exit(violations.length > 0 ? 1 : 0)
