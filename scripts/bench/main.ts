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
import type { Variant } from "./scenarios.ts"
import * as servers from "./server.ts"
import { join, measure } from "./side.ts"
import type { Measured } from "./side.ts"

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
    /** Length of a window. */
    seconds: { type: "string", default: "10" },
    /** Under load before each window. */
    warmup: { type: "string", default: "2" },
    /** Windows of each side. */
    rounds: { type: "string", default: "2" }
  }
})
const [name = ""] = positionals
const scenario = scenarios[name]
const peer = values.peer === undefined ? undefined : peers[values.peer]
const [seconds, warmUpSeconds, rounds] = [Number(values.seconds), Number(values.warmup), Number(values.rounds)]
if (
  scenario === undefined || (peer === undefined) !== (values.peer === undefined) || !(seconds > 0) ||
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
if (peer !== undefined) prepare(peer)

const server = await servers.open()
let failures = 0
const results: Array<{ readonly variant: string; ours: Result; peer?: Result; ratio?: number | null }> = []
try {
  console.log(`${name}: ${scenario.about}`)
  const load = os.loadavg().map((average) => average.toFixed(1)).join(", ")
  console.log(
    `${server.description}; ${os.availableParallelism()} cores, load average ${load}, Node ${process.version}`
  )
  for (const variant of scenario.variants) await run(scenario.compares, variant)
} finally {
  await server.close()
}
const [{ variant: _, ...first }, ...others] = results as [(typeof results)[number], ...typeof results]
console.log(JSON.stringify({
  scenario: name,
  ...(peer && { against: peer.name }),
  ...first,
  ...(others.length > 0 && { variants: results })
}))
process.exit(failures > 0 ? 1 : 0)

async function run(compares: (typeof scenarios)[string]["compares"], variant: Variant) {
  const sides = [ours, ...(peer ? [peer] : [])]
  const suffix = `${process.pid}_${results.length}`
  const urls = []
  for (const side of sides) urls.push(await server.create(`bench_${suffix}_${side.name.replace("-", "_")}`))
  const windows: Array<Array<Measured>> = sides.map(() => [])
  for (let round = 0; round < rounds; round++) {
    for (const [i, side] of sides.entries()) {
      const measured = await measure(server, side, variant, { url: urls[i]!, seconds, warmUpSeconds })
      windows[i]!.push(measured)
      const failed = measured.samples.flatMap((sample) => sample.failures)
      if (failed.length > 0) console.error(`${side.name}: ${failed.length} failed: ${failed[0]}`)
      if (side === ours) failures += failed.length
      const { orchestrationsPerSecond, p50Ms } = resultOf(variant, measured)
      if (p50Ms !== null) {
        console.log(`window ${round + 1}, ${side.name}: ${orchestrationsPerSecond}/s, p50 ${p50Ms} ms`)
      }
    }
  }
  const [mine, theirs] = windows.map((all) => resultOf(variant, join(all)))
  console.log(`\n${variant.label}\n${table({ ours: mine!, ...(peer && { [peer.name]: theirs! }) })}\n`)
  const ratio = theirs && ratioOf(compares, mine!, theirs)
  if (ratio !== undefined && peer !== undefined) console.log(`${ratio} times ${peer.name} (${compares})\n`)
  results.push({ variant: variant.label, ours: mine!, ...(theirs && { peer: theirs, ratio: ratio ?? null }) })
}
