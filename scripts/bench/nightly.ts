/**
 * The bench of every night, and its history:
 *
 *     npm run bench -- nightly [--seconds 30] [--rounds 3] [--only S8,J] [--into <folder>]
 *     npm run bench -- history [--into <folder>]
 *
 * The first runs what the rows below name, adds a line to history.jsonl and draws history.md. Exit code 1: a ratio fell
 * by a tenth, a row is missing, or an orchestration of ours failed; the run is added in any case. The second only
 * draws the page again. Both files are in scripts/bench unless `--into` names another folder.
 */
import { execFileSync } from "node:child_process"
import { existsSync, readFileSync, writeFileSync } from "node:fs"
import os from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import { falls, page, parse } from "./history.ts"
import type { Night } from "./history.ts"
import { run } from "./run.ts"
import { scenarios } from "./scenarios.ts"

/** A peer is compared by what the scenario compares; without one, variants are compared with the baseline. */
const rows: ReadonlyArray<Row> = [
  { scenario: "S8", peer: "dbos", also: ["walBytesPerOrchestration", "postgresCpuMsPerOrchestration"] },
  { scenario: "L", peer: "dbos" },
  { scenario: "C", peer: "dbos" },
  { scenario: "F", peer: "dbos", also: ["nodeCpuMsPerOrchestration"], hasOwnWindows: true },
  { scenario: "J", peer: "graphile" },
  { scenario: "D" },
  { scenario: "K" },
  { scenario: "O" },
  { scenario: "M2" }
]

interface Row {
  readonly scenario: string
  readonly peer?: string
  readonly also?: ReadonlyArray<Also>
  /** Whether the lengths and numbers of its windows are those of the scenario. */
  readonly hasOwnWindows?: boolean
}

/** Counts of a scenario that are compared as well: theirs by ours. */
type Also = "walBytesPerOrchestration" | "postgresCpuMsPerOrchestration" | "nodeCpuMsPerOrchestration"

const alsoNames: Readonly<Record<Also, string>> = {
  walBytesPerOrchestration: "WAL",
  postgresCpuMsPerOrchestration: "CPU of PostgreSQL",
  nodeCpuMsPerOrchestration: "CPU of Node"
}

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    seconds: { type: "string", default: "30" },
    rounds: { type: "string", default: "3" },
    warmup: { type: "string" },
    only: { type: "string" },
    into: { type: "string", default: "scripts/bench" }
  }
})
const [file, pageFile] = [join(values.into, "history.jsonl"), join(values.into, "history.md")]
const nights = [...existsSync(file) ? parse(readFileSync(file, "utf8")) : []]
if (positionals[0] === "history") {
  writeFileSync(pageFile, page(nights))
  process.exit(0)
}

const only = values.only?.split(",")
const options = ["--seconds", values.seconds, "--rounds", values.rounds]
if (values.warmup !== undefined) options.push("--warmup", values.warmup)
const ratios: Record<string, number> = {}
let hasFailed = false
for (const { also = [], hasOwnWindows = false, peer, scenario } of rows) {
  if (only?.includes(scenario) === false) continue
  const outcome = await run(
    scenario,
    ...peer === undefined ? [] : ["--peer", peer],
    ...hasOwnWindows ? [] : options
  )
  hasFailed ||= outcome.hasFailed
  for (const compared of outcome.variants) {
    const beside = peer === undefined ? "" : `, beside ${peer}`
    const name = [scenario, compared.variant].filter((part) => part !== "").join(", ")
    const ratio = peer === undefined ? compared.ofBaseline : compared.ratio
    if (typeof ratio === "number" && compared.variant !== scenarios[scenario]!.baseline) {
      ratios[`${name}${beside}`] = ratio
    }
    for (const field of also) {
      const [mine, theirs] = [compared.ours[field], compared.peer?.[field]]
      if (mine && theirs) ratios[`${name}, ${alsoNames[field]}${beside}`] = Number((theirs / mine).toPrecision(3))
    }
  }
}

const night: Night = {
  at: new Date().toISOString(),
  commit: execFileSync("git", ["rev-parse", "--short", "HEAD"], { encoding: "utf8" }).trim(),
  cores: os.availableParallelism(),
  node: process.version,
  options: [...options, ...only === undefined ? [] : ["--only", values.only!]].join(" "),
  ratios
}
nights.push(night)
writeFileSync(file, nights.map((each) => `${JSON.stringify(each)}\n`).join(""))
writeFileSync(pageFile, page(nights))
console.log(`\n${page(nights)}`)
const fallen = falls(nights)
for (const problem of fallen) console.error(`fallen: ${problem}`)
process.exit(hasFailed || fallen.length > 0 ? 1 : 0)
