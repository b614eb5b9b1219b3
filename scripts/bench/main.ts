/**
 * Measures one scenario, alone or beside a peer:
 *
 *     npm run bench -- S8 [--peer duroxide] [--seconds 10] [--rounds 2]
 *     npm run bench -- hot-path [...]
 *
 * Runs on `DATABASE_URL`, whose role may create databases, else on an embedded PostgreSQL. The last line is one JSON
 * object. Exit code 1: an orchestration of ours failed. README.md beside this file says what the numbers mean.
 */
import os from "node:os"
import { parseArgs } from "node:util"
import { ours, peers, prepare } from "./peers.ts"
import { ratioOf, resultOf, table } from "./report.ts"
import type { Result } from "./report.ts"
import { scenarios } from "./scenarios.ts"
import type { Scenario, Variant } from "./scenarios.ts"
import * as servers from "./server.ts"
import { join, measure } from "./side.ts"
import type { Measured } from "./side.ts"
import { round, sum } from "./statistics.ts"

if (process.argv[2] === "hot-path") {
  process.argv.splice(2, 1)
  await import("./hotPath.ts")
  process.exit()
}

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    /** Runs alternately with ours, window by window. */
    peer: { type: "string" },
    /** Length of a window; that of the scenario unless set, most often 10. */
    seconds: { type: "string" },
    /** Under load before each window. */
    warmup: { type: "string", default: "2" },
    /** Windows of each side. */
    rounds: { type: "string", default: "2" }
  }
})
const [name = ""] = positionals
const scenario = scenarios[name]
const peer = values.peer === undefined ? undefined : peers[values.peer]
const [seconds, warmUpSeconds, rounds] = [
  Number(values.seconds ?? scenario?.seconds),
  Number(values.warmup),
  Number(values.rounds)
]
if (
  scenario === undefined || (peer !== undefined && name === "G") ||
  (peer === undefined) !== (values.peer === undefined) || !(seconds > 0) ||
  !(warmUpSeconds >= 0) || !(rounds >= 1)
) {
  console.error(
    "usage: npm run bench -- <scenario> [--peer <name>] [--seconds 10] [--warmup 2] [--rounds 2]\n" +
      Object.entries(scenarios).map(([key, { about }]) => `  ${key.padEnd(8)} ${about}\n`).join("") +
      "  hot-path the statements of the driver; has options of its own\n" +
      `peers: ${Object.keys(peers).join(", ")}`
  )
  process.exit(2)
}
const obstacle = peer?.cannot?.[name]
if (obstacle !== undefined) {
  console.error(`${name} cannot be run with ${values.peer}: ${obstacle}`)
  process.exit(2)
}
if (peer !== undefined) prepare(peer)

const server = await servers.open()
const sides = [ours, ...(peer ? [peer] : [])]
let failures = 0
try {
  console.log(`${name}: ${scenario.about}`)
  const load = os.loadavg().map((average) => average.toFixed(1)).join(", ")
  console.log(
    `${server.description}; ${os.availableParallelism()} cores, load average ${load}, Node ${process.version}`
  )
  const runs = []
  for (const variant of scenario.variants) runs.push(await prepared(variant, runs.length))
  for (let index = 0; index < rounds; index++) {
    for (const run of runs) await measureRound(run, index)
  }
  report(scenario, runs)
} finally {
  await server.close()
}
process.exit(failures > 0 ? 1 : 0)

interface Run {
  readonly variant: Variant
  /** By side. */
  readonly urls: ReadonlyArray<string>
  readonly windows: ReadonlyArray<Array<Measured>>
}

async function prepared(variant: Variant, index: number): Promise<Run> {
  const urls = []
  for (const side of sides) {
    urls.push(await server.create(`bench_${process.pid}_${index}_${side.name.replace("-", "_")}`))
  }
  return { variant, urls, windows: sides.map(() => []) }
}

/** A window of each side, one after the other. */
async function measureRound({ urls, variant, windows }: Run, index: number) {
  for (const [i, side] of sides.entries()) {
    const first = index === 0
    const measured = await measure(server, side, variant, { url: urls[i]!, seconds, warmUpSeconds, first })
    windows[i]!.push(measured)
    const failed = measured.samples.flatMap((sample) => sample.failures)
    if (failed.length > 0) console.error(`${side.name}: ${failed.length} failed: ${failed[0]}`)
    if (side === ours) failures += failed.length
    const { orchestrationsPerSecond, p50Ms } = resultOf(variant, measured)
    const label = [variant.label, `window ${index + 1}`, side.name].filter((part) => part !== "").join(", ")
    if (p50Ms !== null) console.log(`${label}: ${orchestrationsPerSecond}/s, p50 ${p50Ms} ms`)
  }
}

function report({ baseline, compares }: Scenario, runs: ReadonlyArray<Run>) {
  const results = runs.map(({ variant, windows }) => {
    const [mine, theirs] = windows.map((all) => resultOf(variant, join(all)))
    const ratio = theirs && ratioOf(compares, mine!, theirs)
    return { variant: variant.label, ours: mine!, ...(theirs && { peer: theirs, ratio }) }
  })
  const rateOf = (result: Result | undefined) => result?.orchestrationsPerSecond ?? 0
  const ofBaseline = (result: Result) => {
    const rate = rateOf(results.find(({ variant }) => variant === baseline)?.ours)
    return baseline === undefined || rate === 0 ? {} : { ofBaseline: Number((rateOf(result) / rate).toFixed(2)) }
  }
  const variants = results.map((result) => ({ ...result, ...ofBaseline(result.ours) }))
  if (seconds >= 120) printCurves(runs)
  for (const { ofBaseline: share, ours: mine, peer: theirs, ratio, variant } of variants) {
    console.log(`\n${variant}\n${table({ ours: mine, ...(peer && theirs && { [peer.name]: theirs }) })}`)
    if (peer && ratio !== undefined) {
      console.log(`\n${ratio ?? "an unknown number of"} times ${peer.name} (${compares})`)
    }
    if (share !== undefined) console.log(`\n${share} times the rate of ${baseline}`)
  }
  const { variant: _, ...first } = variants[0]!
  console.log(JSON.stringify({
    scenario: name,
    ...(peer && { against: peer.name }),
    ...first,
    ...(variants.length > 1 && { variants })
  }))
}

/** The rate of every whole minute, so that a long window shows whether it holds. */
function printCurves(runs: ReadonlyArray<Run>) {
  for (const { variant, windows } of runs) {
    for (const [i, side] of sides.entries()) {
      for (const { samples } of windows[i]!) {
        const minutes = Array.from(
          { length: Math.floor(seconds / 60) },
          (_, minute) => sum(samples.map(({ completedByMinute }) => completedByMinute[minute] ?? 0)) / 60
        )
        const label = [variant.label, side.name].filter((part) => part !== "").join(", ")
        console.log(`${label}, per second in each minute: ${minutes.map(round).join(", ")}`)
      }
    }
  }
}
