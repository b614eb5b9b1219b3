/**
 * Every scenario in which a peer can be compared with ours, one after another:
 *
 *     npm run bench -- all --peer duroxide-sqlite [options of every scenario]
 *
 * The last lines are one table and one JSON object. Exit code 1: an orchestration of ours failed.
 */
import { peerOf, peers } from "./peers.ts"
import { run } from "./run.ts"
import { isOnlyOurs, scenarios } from "./scenarios.ts"
import type { Scenario } from "./scenarios.ts"

const args = process.argv.slice(3)
const peerName = args[args.indexOf("--peer") + 1] ?? ""
const peer = args.includes("--peer") ? peerOf(peerName) : undefined
if (peer === undefined) {
  console.error(`usage: npm run bench -- all --peer <name> [--seconds 10] [--warmup 2] [--rounds 2]
peers: ${Object.keys(peers).join(", ")}`)
  process.exit(2)
}

const names = Object.entries(scenarios)
  .filter(([name, { compares, variants }]) =>
    peer.cannot?.[name] === undefined && compares !== "statementsPerMinute" && !variants.every(isOnlyOurs)
  )
  .map(([name]) => name)

const rows: Array<{ scenario: string; compares: string; ours: unknown; peer: unknown; ratio: number | null }> = []
let failed = false
for (const name of names) {
  const { compares } = scenarios[name] as Scenario
  const { hasFailed, variants } = await run(name, ...args)
  failed ||= hasFailed
  for (const { ours, peer: theirs, ratio = null, variant } of variants) {
    if (theirs === undefined) continue
    rows.push({
      scenario: [name, variant].filter((part) => part !== "").join(", "),
      compares,
      ours: ours[compares],
      peer: theirs[compares],
      ratio
    })
  }
}
console.log(`\nours beside ${peerName}; ratio: how many times better ours is`)
console.table(Object.fromEntries(rows.map(({ scenario, ...row }) => [scenario, row])))
const named = (of: typeof rows) => of.map(({ scenario }) => scenario).join("; ")
const below = rows.filter(({ ratio }) => ratio !== null && ratio < 1)
const unknown = rows.filter(({ ratio }) => ratio === null)
console.log(below.length === 0 ? "Ours is below in none of them." : `Ours is below in: ${named(below)}`)
if (unknown.length > 0) console.log(`In one window or both nothing ended, so choose longer ones: ${named(unknown)}`)
console.log(JSON.stringify({ against: peerName, rows }))
process.exit(failed ? 1 : 0)
