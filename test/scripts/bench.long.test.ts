import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { plainLoad } from "../../scripts/bench/contender.ts"
import type { Sample } from "../../scripts/bench/contender.ts"
import { drive } from "../../scripts/bench/drive.ts"
import { page, parse } from "../../scripts/bench/history.ts"
import { openJobs } from "../../scripts/bench/jobs.ts"
import { judge } from "../../scripts/bench/judge.ts"
import { summarize } from "../../scripts/bench/profile.ts"
import { resultOf } from "../../scripts/bench/report.ts"
import { scenarios } from "../../scripts/bench/scenarios.ts"
import * as PgServer from "../utils/PgServer.ts"
import { node } from "../utils/prismaCli.ts"

/** Where `DATABASE_URL` may not create databases, the script starts a server of its own. */
const run = (script: string, ...args: ReadonlyArray<string>) =>
  node(script, args, { DATABASE_URL: PgServer.server().template === null ? "" : PgServer.server().url })
const bench = (...args: ReadonlyArray<string>) =>
  Effect.map(run("build/scripts/bench/main.js", ...args), ({ exitCode, output }) => {
    assert.strictEqual(exitCode, 0, output)
    // The last line on stdout; warnings of the processes follow it here.
    return JSON.parse(output.split("\n").findLast((line) => line.startsWith("{\"scenario\""))!)
  })

/** Options of the shortest run: each window lasts until its first result. */
const briefly = ["--seconds", "0.1", "--warmup", "0", "--rounds", "1"]

const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "bench-"))),
  (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
)

const promised = [
  "orchestrationsPerSecond",
  "p50Ms",
  "p90Ms",
  "p99Ms",
  "statementsPerOrchestration",
  "transactionsPerOrchestration",
  "walBytesPerOrchestration",
  "nodeCpuMsPerOrchestration",
  "postgresCpuMsPerOrchestration",
  "memoryMiB",
  "roundTrips",
  "statementsPerMinute",
  "nodeCpuMsPerMinute",
  "postgresCpuMsPerMinute",
  "completed",
  "failed"
]

describe("judge", () => {
  const latencies = (claim: number, end: number, empty: number) =>
    new Map(
      [["start to claim", claim], ["end to waiter", end], ["SELECT 1", empty]].map(([name, p50Ms]) =>
        [String(name), { p50Ms: Number(p50Ms), statementsPerMinute: null }] as const
      )
    )
  const counts = (entries: Readonly<Record<string, number | null>>) =>
    new Map(
      Object.entries(entries).map(([name, statementsPerMinute]) =>
        [name, { p50Ms: null, statementsPerMinute }] as const
      )
    )

  it("N: what waits for a poll misses its mark; a slower machine may take longer", () => {
    assert.deepStrictEqual(judge("N", latencies(2.2, 6.1, 0.65)), [])
    assert.deepStrictEqual(judge("N", latencies(19, 6.1, 0.65)), [
      "N, start to claim: p50Ms is 19, at most 6.5 allowed"
    ])
    assert.deepStrictEqual(judge("N", latencies(3, 14, 0.3)), ["N, end to waiter: p50Ms is 14, at most 13 allowed"])
    assert.deepStrictEqual(judge("N", latencies(10, 26, 1)), [])
  })

  it("Q: a process that polls misses its mark, and so does what was not counted", () => {
    const quiet = { "woken": 0, "20 processes": 8, "after one start": 26, "after one start, 20 processes": 80 }
    assert.deepStrictEqual(judge("Q", counts({ ...quiet, "polling every second": 125 })), [])
    assert.deepStrictEqual(judge("Q", counts({ ...quiet, "woken": 61 })), [
      "Q, woken: statementsPerMinute is 61, at most 5 allowed"
    ])
    assert.deepStrictEqual(judge("Q", counts({ "woken": null })), [
      "Q, woken: statementsPerMinute is unknown, at most 5 allowed"
    ])
  })

  it("a scenario or a variant without a mark is refused, not passed", () => {
    assert.deepStrictEqual(judge("S8", counts({ "": 0 })), ["S8: no mark to judge by"])
    assert.deepStrictEqual(judge("Q", counts({ "polling every second": 125 })), ["Q: no mark to judge by"])
    assert.deepStrictEqual(judge("N", latencies(1, 1, Number.NaN)).length, 2)
  })

  it("its variants are those of the scenarios", () => {
    for (const name of ["N", "Q"]) {
      const all = scenarios[name]!.variants.map(({ label }) =>
        [label, { p50Ms: null, statementsPerMinute: null }] as const
      )
      assert.lengthOf(judge(name, new Map(all)), name === "N" ? 2 : 4)
    }
  })
})

// They wait for processes most of the time.
describe.concurrent("bench", () => {
  it.live("a scenario beside a peer: the last line has both sides, every promised field, and a ratio", () =>
    Effect.gen(function*() {
      const line = yield* bench("L", "--peer", "bare", ...briefly)
      assert.deepStrictEqual(Object.keys(line), ["scenario", "against", "ours", "peer", "ratio"])
      assert.deepInclude(line, { scenario: "L", against: "bare" })
      assert.deepStrictEqual([Object.keys(line.ours), Object.keys(line.peer)], [promised, promised])
      assert.isAbove(line.peer.completed, 0)
      assert.strictEqual(line.ours.failed, 0)
    }))

  it.live("one variant, a single call through the proxy: its line has the variant's numbers alone", () =>
    Effect.gen(function*() {
      const line = yield* bench("R", "--only", "read, 20 ms", ...briefly)
      assert.deepStrictEqual(Object.keys(line), ["scenario", "ours"])
      assert.isAbove(line.ours.completed, 0)
      assert.isAtLeast(line.ours.roundTrips, 1)
    }))

  it.live("waits: what sessions of the database are busy with, or wait for", () =>
    Effect.gen(function*() {
      const { ours, waits } = yield* bench("S8", "--waits", "--seconds", "2", "--warmup", "0", "--rounds", "1")
      assert.isAbove(ours.completed, 0)
      const sessions: ReadonlyArray<number> = Object.values(waits)
      assert.isAbove(sessions.reduce((all, some) => all + some, 0), 0, JSON.stringify(waits))
    }))

  it.live("a profile: shares of the busy time", () =>
    Effect.gen(function*() {
      const { profile } = yield* bench("S8", "--profile", ...briefly)
      const shares: ReadonlyArray<number> = Object.values(profile)
      assert.approximately(shares.reduce((all, share) => all + share, 0), 1, 0.01)
    }))

  it.live("a profile: each sample counts for the owner of its function, or of the caller", () =>
    Effect.gen(function*() {
      const file = join(yield* folder, "0.cpuprofile")
      const functions = [
        ["(root)", "", [2, 3, 5, 7]],
        ["(idle)", "", []],
        ["turn", "file:///app/dist/replay/turn.js", [4, 6]],
        ["stringify", "", []],
        ["gen", "file:///app/node_modules/effect/dist/Effect.js", []],
        ["query", "file:///app/node_modules/pg/lib/client.js", []],
        ["(garbage collector)", "", []]
      ] as const
      const nodes = functions.map(([functionName, url, children], i) => ({
        id: i + 1,
        children,
        callFrame: { functionName, url, scriptId: "0", lineNumber: 0, columnNumber: 0 }
      }))
      const samples = [2, 3, 4, 5, 6, 7]
      writeFileSync(
        file,
        JSON.stringify({ nodes, samples, timeDeltas: [50, 20, 10, 10, 6, 4], startTime: 0, endTime: 100 })
      )
      const { busy, fractions } = summarize(file)
      assert.strictEqual(busy, 0.5)
      assert.deepStrictEqual(fractions, { ours: 0.6, Effect: 0.2, pg: 0.12, "garbage collection": 0.08 })
    }).pipe(Effect.scoped))

  it.live("a transaction open for longer than the run: refused", () =>
    Effect.gen(function*() {
      const { exitCode } = yield* run("build/scripts/bench/main.js", "S8", "--minutes", "1", "--open-transaction", "2")
      assert.strictEqual(exitCode, 2)
    }))

  it.live("nothing to do: an idle process completes nothing", () =>
    Effect.gen(function*() {
      const line = yield* bench("Q", ...briefly, "--only", "woken")
      assert.deepStrictEqual(Object.keys(line), ["scenario", "statementsPerMinute", "ours"])
      assert.deepInclude(line.ours, { completed: 0, failed: 0, orchestrationsPerSecond: null })
    }))

  it.live("--judge: what is missed is named, and the exit code is 1", () =>
    Effect.gen(function*() {
      // Polling has no mark, so nothing was judged.
      const args = ["Q", ...briefly, "--only", "polling every second", "--judge"]
      const { exitCode, output } = yield* run("build/scripts/bench/main.js", ...args)
      assert.strictEqual(exitCode, 1, output)
      assert.match(output, /^missed: Q: no mark to judge by$/m)
    }))

  it.live("another process serves: what was noticed is timed", () =>
    Effect.gen(function*() {
      const line = yield* bench("N", ...briefly)
      const names = line.variants.map(({ variant }: { readonly variant: string }) => variant)
      assert.deepStrictEqual(names, [
        "start to claim",
        "end to waiter",
        "SELECT 1",
        "start to claim, polling every 50 ms",
        "start to claim, polling every second"
      ])
      for (const { ours } of line.variants) assert.isAbove(ours.completed, 0)
      assert.isAtLeast(line.p99Ms, line.p50Ms)
    }))

  it.live("a neighbour beside full load: its inserts are counted", () =>
    Effect.gen(function*() {
      const line = yield* bench("B", ...briefly)
      for (const { ours } of line.variants) assert.isAbove(ours.completed, 0)
    }))

  it.live("plain jobs: each is timed", () =>
    Effect.gen(function*() {
      const line = yield* bench("J", ...briefly, "--only", "20 in flight")
      assert.isAbove(line.ours.completed, 0)
    }))

  it.live("plain jobs: each counts, also of those that are created at once", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const [plain] = scenarios["J"]!.variants
      const load = { ...plainLoad, jobs: 300, activities: 300, inFlight: 1 }
      const window = { ...plain, warmUpMs: 0, windowMs: 0, once: true, startsOne: false, name: "jobs" }
      const contender = yield* Effect.acquireRelease(
        Effect.promise(() => openJobs({ url, load, processName: "p1" })),
        (contender) => Effect.promise(() => contender.close())
      )
      const samples: Array<Sample> = []
      yield* Effect.promise(() => drive(contender, load, window, () => {}, (sample) => samples.push(sample)))
      assert.deepInclude(
        resultOf({ ...plain, load }, { samples, seconds: 1, server: null, waits: null, readings: [] }),
        {
          completed: 300,
          failed: 0
        }
      )
    }).pipe(Effect.scoped))

  it.live("nightly: adds a run and draws the page; fails where a ratio fell, and keeps that run too", () =>
    Effect.gen(function*() {
      const into = yield* folder
      const nightly = run("build/scripts/bench/main.js", "nightly", "--only", "K", "--into", into, ...briefly)
      const first = yield* nightly
      assert.strictEqual(first.exitCode, 0, first.output)
      const file = join(into, "history.jsonl")
      const [night] = parse(readFileSync(file, "utf8"))
      const rows = ["K, 100,000 of each key at once", "K, 100 of each key at once", "K, 4 of each key at once"]
      assert.deepStrictEqual(Object.keys(night!.ratios), rows)
      // As if all had been much better before.
      const ratios = Object.fromEntries(rows.map((row) => [row, 1000]))
      writeFileSync(file, `${JSON.stringify({ ...night!, ratios })}\n`)
      const second = yield* nightly
      assert.strictEqual(second.exitCode, 1)
      for (const row of rows) assert.include(second.output, `fallen: ${row}: `)
      const nights = parse(readFileSync(file, "utf8"))
      assert.lengthOf(nights, 2)
      assert.strictEqual(readFileSync(join(into, "history.md"), "utf8"), page(nights))
    }))

  it.live("an unknown scenario, and an unknown peer: the scenarios and peers there are", () =>
    Effect.gen(function*() {
      for (const args of [["S9"], ["S8", "--peer", "temporal"]]) {
        const { exitCode, output } = yield* run("build/scripts/bench/main.js", ...args)
        assert.strictEqual(exitCode, 2)
        assert.include(output, "W1000")
        assert.include(output, "duroxide-sqlite")
      }
    }))

  it.live("a scenario it cannot run: refused, with the reason", () =>
    Effect.gen(function*() {
      const { exitCode, output } = yield* run("build/scripts/bench/main.js", "T", "--peer", "graphile")
      assert.strictEqual(exitCode, 2)
      assert.include(output, "T cannot be run with graphile: it has no timers")
    }))
})

describe("a window of the bench", () => {
  it("lasts until its first result", async () => {
    let calls = 0
    const contender = {
      // The machine is too busy for a result within the window.
      execute: () => new Promise<void>((resolve) => setTimeout(resolve, ++calls < 3 ? 0 : 50)),
      close: () => Promise.resolve()
    }
    const window = {
      warmUpMs: 0,
      windowMs: 0,
      pauseMs: 0,
      idle: false,
      startsOne: false,
      cold: false,
      once: false,
      name: "w"
    }
    const samples: Array<Sample> = []
    await drive(contender, { inFlight: 1 }, window, () => {}, (sample) => samples.push(sample))
    assert.lengthOf(samples, 1)
    assert.isNotEmpty(samples[0]!.latenciesMs)
  })
})

describe("stress", () => {
  it.live("a short run: everything completes, and the results file grows by a line each time", () =>
    Effect.gen(function*() {
      const results = join(yield* folder, "results", "stress.jsonl")
      for (const name of ["concurrency 2/2", "pool of 2"]) {
        const args = ["--seconds", "0.2", "--only", name, "--results", results]
        const { exitCode, output } = yield* run("build/scripts/stress/main.js", ...args)
        assert.strictEqual(exitCode, 0, output)
      }
      const lines = readFileSync(results, "utf8").trim().split("\n").map((line) => JSON.parse(line))
      assert.deepStrictEqual(
        lines.map(({ configuration, passed, successRate }) => ({ configuration, passed, successRate })),
        ["concurrency 2/2", "pool of 2"].map((configuration) => ({ configuration, passed: true, successRate: 1 }))
      )
      assert.isAbove(lines[0].completed, 0)
      assert.strictEqual(lines[0].completed, lines[0].started)
    }).pipe(Effect.scoped))
})
