import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
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

/** As short as a run can be. */
const briefly = ["--seconds", "0.5", "--warmup", "0.1", "--rounds", "1"]
const patient = 120_000

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

describe("bench", () => {
  it.live(
    "a scenario beside a peer: the last line has both sides, every promised field, and a ratio",
    () =>
      Effect.gen(function*() {
        const line = yield* bench("L", "--peer", "bare", ...briefly)
        assert.deepStrictEqual(Object.keys(line), ["scenario", "against", "ours", "peer", "ratio"])
        assert.deepInclude(line, { scenario: "L", against: "bare" })
        assert.deepStrictEqual([Object.keys(line.ours), Object.keys(line.peer)], [promised, promised])
        assert.isAbove(line.peer.completed, 0)
        assert.strictEqual(line.ours.failed, 0)
      }),
    patient
  )

  it.live(
    "one variant, a single call through the proxy: its line has the variant's numbers alone",
    () =>
      Effect.gen(function*() {
        const line = yield* bench("R", "--only", "read, 20 ms", ...briefly)
        assert.deepStrictEqual(Object.keys(line), ["scenario", "ours"])
        assert.isAbove(line.ours.completed, 0)
        assert.isAtLeast(line.ours.roundTrips, 1)
      }),
    patient
  )

  it.live("a profile: whose code ran, as shares of the busy time", () =>
    Effect.gen(function*() {
      const { profile } = yield* bench("S8", "--profile", ...briefly)
      const shares: ReadonlyArray<number> = Object.values(profile)
      assert.approximately(shares.reduce((all, share) => all + share, 0), 1, 0.01)
      assert.isAbove(profile.ours, 0)
      assert.isAbove(profile.Effect, 0)
    }), patient)

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
    }), patient)

  it.live("another process serves: what was noticed is timed", () =>
    Effect.gen(function*() {
      const line = yield* bench("N", ...briefly, "--seconds", "2.5")
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
    }), patient)

  it.live("a neighbour beside full load: its inserts are counted", () =>
    Effect.gen(function*() {
      const line = yield* bench("B", ...briefly)
      for (const { ours } of line.variants) assert.isAbove(ours.completed, 0)
    }), patient)

  it.live("plain jobs: each counts, also of those that are created at once", () =>
    Effect.gen(function*() {
      const line = yield* bench("J", "--seconds", "3", "--warmup", "1", "--rounds", "1")
      for (const { ours } of line.variants) assert.isAbove(ours.completed, 0)
      assert.deepInclude(line.variants.at(-1).ours, { completed: 10_000, failed: 0 })
    }), patient)

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

describe("stress", () => {
  it.live(
    "a short run: everything completes, and the results file grows by a line each time",
    () =>
      Effect.gen(function*() {
        const folder = mkdtempSync(join(tmpdir(), "stress-"))
        yield* Effect.addFinalizer(() => Effect.sync(() => rmSync(folder, { recursive: true, force: true })))
        const results = join(folder, "results", "stress.jsonl")
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
      }),
    patient
  )
})
