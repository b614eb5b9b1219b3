import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import { Echo } from "../programs/chaos/definitions.ts"
import * as App from "../utils/app.ts"
import * as Fleet from "../utils/fleet.ts"
import * as PgServer from "../utils/PgServer.ts"

const starts = 60
const strangers = 9

const median = (all: ReadonlyArray<number>) => all.toSorted((a, b) => a - b)[Math.floor(all.length / 2)]!

/** A process that serves on a database of its own, and `count` others that do not. */
const machines = Effect.fnUntraced(function*(count: number) {
  const { url } = yield* PgServer.database
  const fleet = yield* Fleet.make(url)
  const names = Array.from({ length: count }, (_, i) => `stranger-${i}`)
  const serving = yield* fleet.worker("serving", ["1.0.0"])
  const others = yield* Effect.forEach(names, (name) => fleet.worker(name, []))
  yield* Effect.forEach([serving, ...others], (process) => process.printed("ready"), { concurrency: "unbounded" })
  return url
})

/** How long each of the starts, 20 a second, took until its result was there, milliseconds. */
const executeAll = (url: string) =>
  Effect.gen(function*() {
    const client = yield* Client.Client
    const execute = Effect.fnUntraced(function*(n: number) {
      yield* Effect.sleep(n * 50)
      const startedAt = performance.now()
      assert.strictEqual(yield* client.execute(Echo, { instanceId: `echo-${n}`, payload: n }), n + 1)
      return performance.now() - startedAt
    })
    return yield* Effect.forEach(Array.from({ length: starts }, (_, n) => n), execute, { concurrency: "unbounded" })
  }).pipe(Effect.provide(App.store(url)))

describe("Processes that serve something else", () => {
  it.live(
    `${strangers} of them beside one that serves them: ${starts} of ${starts} starts complete, half of them within a second`,
    () =>
      Effect.gen(function*() {
        const [among, alone] = yield* Effect.all([machines(strangers), machines(0)], { concurrency: "unbounded" })
        const took = yield* Effect.all([executeAll(among), executeAll(alone)], { concurrency: "unbounded" })
        // A machine that is too busy for a dozen processes is also slow without strangers.
        assert.isBelow(median(took[0]), Math.max(1_000, 3 * median(took[1])))
      }).pipe(Effect.scoped)
  )
})
