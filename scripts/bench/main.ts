/**
 * Measures one scenario, alone or beside a peer:
 *
 *     npm run bench -- S8 [--peer duroxide] [--seconds 10] [--rounds 2] [--profile]
 *     npm run bench -- S8 --peer ../earlier
 *     npm run bench -- S8 --minutes 30 [--open-transaction 10]
 *     npm run bench -- all --peer duroxide-sqlite [...]
 *     npm run bench -- hot-path [...]
 *     npm run bench -- recovery [...]
 *     npm run bench -- nightly [...]
 *
 * Runs on `DATABASE_URL`, whose role may create databases, else on an embedded PostgreSQL. The last line is one JSON
 * object. Exit code 1: an orchestration of ours failed, or with `--judge` a number missed its mark. README.md beside
 * this file says what the numbers mean.
 */
import os from "node:os"
import { parseArgs } from "node:util"
import { judge } from "./judge.ts"
import { ours, peerOf, peers, prepare } from "./peers.ts"
import { summarize } from "./profile.ts"
import { minutesOf, ratioOf, resultOf, table, waitsOf } from "./report.ts"
import type { Minute, Result } from "./report.ts"
import { isOnlyOurs, scenarios } from "./scenarios.ts"
import type { Scenario, Variant } from "./scenarios.ts"
import * as servers from "./server.ts"
import { join, measure } from "./side.ts"
import type { Measured } from "./side.ts"

if (process.argv[2] === "all") await import("./all.ts")
if (process.argv[2] === "nightly" || process.argv[2] === "history") await import("./nightly.ts")
if (process.argv[2] === "hot-path" || process.argv[2] === "recovery") {
  const [name] = process.argv.splice(2, 1)
  await (name === "recovery" ? import("./recovery.ts") : import("./hotPath.ts"))
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
    warmup: { type: "string" },
    /** Windows of each side. */
    rounds: { type: "string" },
    /** Only the variants of the scenario whose label contains this. */
    only: { type: "string", default: "" },
    /** One long window, and what each of its minutes showed. */
    minutes: { type: "string" },
    /** Minutes for which a transaction is open beside the load, in the middle of that window. */
    "open-transaction": { type: "string", default: "0" },
    /** Records the CPU profile of our process, which slows it down a little, and prints whose code it ran. */
    profile: { type: "boolean", default: false },
    /** Looks at what the sessions of the server wait for, which costs it a statement 20 times a second. */
    waits: { type: "boolean", default: false },
    /** Fails when a number of ours misses its mark, in scenarios that have marks: N and Q. */
    judge: { type: "boolean", default: false }
  }
})
const [name = ""] = positionals
const scenario = scenarios[name]
const variants = scenario?.variants.filter(({ label }) => label.includes(values.only)) ?? []
const peer = values.peer === undefined ? undefined : peerOf(values.peer)
const minutes = values.minutes === undefined ? undefined : Number(values.minutes)
const openMinutes = Number(values["open-transaction"])
const [seconds, warmUpSeconds, rounds] = [
  minutes === undefined ? Number(values.seconds ?? scenario?.seconds) : 60 * minutes,
  Number(values.warmup ?? scenario?.warmUpSeconds ?? 2),
  Number(values.rounds ?? (minutes === undefined ? scenario?.rounds ?? 2 : 1))
]
/** A minute or two have no curve. */
const byMinute = minutes !== undefined || seconds >= 120
if (
  scenario === undefined || (peer !== undefined && (name === "G" || name === "K" || name === "O")) ||
  (peer === undefined) !== (values.peer === undefined) || !(seconds > 0) ||
  variants.length === 0 || !(warmUpSeconds >= 0) || !(rounds >= 1) || !(openMinutes >= 0) ||
  openMinutes > (minutes ?? 0)
) {
  console.error(
    "usage: npm run bench -- <scenario> [--peer <name>] [--seconds 10] [--warmup 2] [--rounds 2] [--profile] [--waits] [--judge] [--only <label>]\n" +
      "       npm run bench -- <scenario> [--peer <name>] --minutes <n> [--open-transaction <m>]\n" +
      Object.entries(scenarios).map(([key, { about }]) => `  ${key.padEnd(8)} ${about}\n`).join("") +
      "  all      every scenario in which the peer can be compared\n" +
      "  hot-path the statements of the driver; has options of its own\n" +
      "  recovery how soon the instances of a killed process continue in another one\n" +
      "  nightly  what the history is made of; history draws its page again\n" +
      `peers: ${Object.keys(peers).join(", ")}, or the folder of an earlier version of this repository, built`
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
let missed: ReadonlyArray<string> = []
try {
  console.log(`${name}: ${scenario.about}`)
  const load = os.loadavg().map((average) => average.toFixed(1)).join(", ")
  console.log(
    `${server.description}; ${os.availableParallelism()} cores, load average ${load}, Node ${process.version}`
  )
  const runs = []
  for (const variant of variants) runs.push(await prepared(variant, runs.length))
  for (let index = 0; index < rounds; index++) {
    for (const run of runs) await measureRound(run, index)
  }
  report(scenario, runs)
} finally {
  await server.close()
}
for (const problem of missed) console.error(`missed: ${problem}`)
process.exit(failures > 0 || missed.length > 0 ? 1 : 0)

interface Run {
  readonly variant: Variant
  /** By side. */
  readonly urls: ReadonlyArray<string>
  /** File for the CPU profile of our process in the last window. */
  readonly profile: string | undefined
  readonly windows: ReadonlyArray<Array<Measured>>
}

async function prepared(variant: Variant, index: number): Promise<Run> {
  const urls = []
  for (const side of sides) {
    urls.push(await server.create(`bench_${process.pid}_${index}_${side.name.replace("-", "_")}`))
  }
  const profile = values.profile ? `.duroxide/bench/${[name, index].join("-")}.cpuprofile` : undefined
  return { variant, urls, profile, windows: sides.map(() => []) }
}

/** A window of each side, one after another. */
async function measureRound({ profile, urls, variant, windows }: Run, index: number) {
  for (const [i, side] of sides.entries()) {
    if (side !== ours && side.isOurs !== true && isOnlyOurs(variant)) continue
    const measured = await measure(server, side, variant, {
      url: urls[i]!,
      seconds,
      warmUpSeconds,
      first: index === 0,
      byMinute: byMinute && !variant.once,
      openTransactionSeconds: 60 * openMinutes,
      waits: values.waits,
      profile: side === ours ? profile : undefined
    })
    windows[i]!.push(measured)
    const failed = measured.samples.flatMap((sample) => sample.failures)
    if (failed.length > 0) console.error(`${side.name}: ${failed.length} failed: ${failed[0]}`)
    if (side === ours) failures += failed.length
    const { orchestrationsPerSecond, p50Ms } = resultOf(variant, measured)
    const label = [variant.label, `window ${index + 1}`, side.name].filter((part) => part !== "").join(", ")
    if (p50Ms !== null) console.log(`${label}: ${orchestrationsPerSecond}/s, p50 ${p50Ms} ms`)
  }
}

function report({ baseline, compares, shows = [] }: Scenario, runs: ReadonlyArray<Run>) {
  const results = runs.map(({ profile, variant, windows }) => {
    const [mine, theirs] = windows.map((all) => all.length === 0 ? undefined : resultOf(variant, join(all)))
    const ratio = theirs && ratioOf(compares, mine!, theirs)
    const curves = windows.map((all) => all.flatMap(minutesOf))
    return {
      variant: variant.label,
      ours: mine!,
      ...(theirs && { peer: theirs, ratio }),
      ...(curves[0]!.length > 0 && { minutes: curves[0], lastToFirstMinute: lastToFirstOf(curves[0]!) }),
      ...(curves[1] && curves[1].length > 0 && { peerMinutes: curves[1] }),
      ...(values.waits && { waits: waitsOf(join(windows[0]!)) }),
      ...(profile !== undefined && { profile: printProfile(profile) })
    }
  })
  const rateOf = (result: Result | undefined) => result?.orchestrationsPerSecond ?? 0
  const ofBaseline = (result: Result) => {
    const rate = rateOf(results.find(({ variant }) => variant === baseline)?.ours)
    return baseline === undefined || rate === 0 || result.lastToFirst !== undefined
      ? {}
      : { ofBaseline: Number((rateOf(result) / rate).toFixed(2)) }
  }
  const compared = results.map((result) => ({ ...result, ...ofBaseline(result.ours) }))
  printCurves(runs)
  for (const { ofBaseline: share, ours: mine, peer: theirs, ratio, variant, waits } of compared) {
    console.log(`\n${variant}\n${table({ ours: mine, ...(peer && theirs && { [peer.name]: theirs }) })}`)
    if (peer && ratio !== undefined) {
      console.log(`\n${ratio ?? "an unknown number of"} times ${peer.name} (${compares})`)
    }
    if (share !== undefined) console.log(`\n${share} times the rate of ${baseline}`)
    if (waits !== undefined) {
      console.log("\nsessions of ours at a time, by what they wait for:")
      console.table(waits)
    }
  }
  if (values.judge) missed = judge(name, new Map(results.map(({ ours: mine, variant }) => [variant, mine])))
  const { variant: _, ...first } = compared[0]!
  console.log(JSON.stringify({
    scenario: name,
    ...(peer && { against: peer.name }),
    ...Object.fromEntries(shows.map((field) => [field, first.ours[field]])),
    ...first,
    ...(compared.length > 1 && { variants: compared })
  }))
}

/** Every whole minute, so that a long window shows whether it holds. */
function printCurves(runs: ReadonlyArray<Run>) {
  for (const { variant, windows } of runs) {
    for (const [i, side] of sides.entries()) {
      for (const curve of windows[i]!.map(minutesOf)) {
        if (curve.length === 0) continue
        console.log(`\n${[variant.label, side.name].filter((part) => part !== "").join(", ")}, minute by minute:`)
        console.table(Object.fromEntries(curve.map((minute, of) => [of + 1, minute])))
        console.log(`The last minute's rate by that of the first: ${lastToFirstOf(curve)}`)
      }
    }
  }
}

function lastToFirstOf(curve: ReadonlyArray<Minute>): number {
  const [first, last] = [curve[0]!, curve.at(-1)!].map((minute) => minute.orchestrationsPerSecond)
  return Number((last! / first!).toFixed(2))
}

/** Returns the share of each owner. */
function printProfile(file: string) {
  const { busy, fractions, functions } = summarize(file)
  const percent = (fraction: number) => `${(100 * fraction).toFixed(1).padStart(5)} %`
  console.log(
    `\nCPU profile of our process, in ${file}; its main thread was busy for ${percent(busy).trim()} of the time`
  )
  for (const [owner, fraction] of Object.entries(fractions)) console.log(`${percent(fraction)}  ${owner}`)
  console.log("of these, the functions that took most themselves:")
  for (const { fraction, name: of } of functions) console.log(`${percent(fraction)}  ${of}`)
  return fractions
}
