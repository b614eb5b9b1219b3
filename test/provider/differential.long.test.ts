/**
 * Both drivers see the same random calls at the same virtual times: every answer, and everything stored at the end,
 * must be the same. This finds behaviour that the contract leaves unspecified.
 *
 * A failure prints its seed and the smallest sequence that still fails. `DIFFERENTIAL_SEED` sets the seed, or is
 * `random` for sequences not seen before; `DIFFERENTIAL_RUNS` sets their number. Without them every run plays the same
 * sequences: a change is judged by what it changes.
 */
import { assert, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as TestClock from "effect/testing/TestClock"
import * as fc from "fast-check"
import * as Database from "../../src/prisma/Database.ts"
import * as PrismaAdmin from "../../src/prisma/PrismaAdmin.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import { AdminDriver } from "../../src/provider/AdminDriver.ts"
import * as memoryDriver from "../../src/provider/memory/driver.ts"
import * as memory from "../../src/provider/memory/tables.ts"
import { ProviderDriver } from "../../src/provider/ProviderDriver.ts"
import * as PgServer from "../utils/PgServer.ts"
import { found } from "./differential/found.ts"
import type { Operation } from "./differential/operations.ts"
import { sequence } from "./differential/random.ts"
import { play } from "./differential/replay.ts"
import { shrink } from "./differential/shrink.ts"
import * as Tables from "./differential/tables.ts"

const runs = Number(process.env["DIFFERENTIAL_RUNS"] ?? 200)
const seed = process.env["DIFFERENTIAL_SEED"] ?? "1"

const memoryStore = Effect.suspend(() => {
  const tables = memory.make()
  return Effect.map(Layer.build(memoryDriver.layer(tables)), (context) => ({
    driver: Context.get(context, ProviderDriver),
    admin: Context.get(context, AdminDriver),
    tables: Tables.ofMemory(tables)
  }))
})

/** Plays a sequence on both drivers, from empty stores. */
class Player extends Context.Service<Player, (sequence: ReadonlyArray<Operation>) => Effect.Effect<void, unknown>>()(
  "test/differential/Player"
) {}

const player = Layer.effect(
  Player,
  Effect.gen(function*() {
    yield* TestClock.setTime(Date.UTC(2030, 0, 1))
    const { schema, sql, url } = yield* PgServer.database
    const context = yield* Layer.build(
      PrismaAdmin.layer({ clock: "effect" }).pipe(
        Layer.provideMerge(PrismaDriver.layer({ clock: "effect" })),
        Layer.provide(Database.layer({ url, schema }))
      )
    )
    const prismaStore = {
      driver: Context.get(context, ProviderDriver),
      admin: Context.get(context, AdminDriver),
      tables: Tables.ofPostgres({ sql })
    }
    // TRUNCATE makes new files for every table and index, which takes longer than a sequence.
    const clear = Object.keys(yield* prismaStore.tables).map((table) => `DELETE FROM ${table}`).join(";")
    let outages = 0
    return Effect.fnUntraced(
      function*(sequence: ReadonlyArray<Operation>) {
        yield* sql(clear)
        yield* play(yield* memoryStore, prismaStore, sequence)
      },
      Effect.scoped,
      // A sequence in which the server could not answer says nothing, and other test files share the server: it begins
      // anew, after a second of the real clock, up to 60 times in all.
      Effect.tapError(() => Effect.promise(() => new Promise((resolve) => setTimeout(resolve, 1_000)))),
      Effect.retry({ while: () => outages++ < 60 })
    )
  })
)

it.layer(player)("MemoryDriver and PrismaDriver:", (it) => {
  for (const [name, sequence] of Object.entries(found)) {
    it.effect(name, () => Effect.flatMap(Player, (play) => play(sequence)))
  }

  it.effect(`${runs} random sequences of calls have the same results`, () =>
    Effect.gen(function*() {
      const play = yield* Player
      const run = Effect.runPromiseWith(yield* Effect.context<never>())
      const failureOf = (operations: ReadonlyArray<Operation>) =>
        run(play(operations)).then(() => undefined, (error: Error) => error)
      const result = yield* Effect.promise(() =>
        fc.check(
          fc.asyncProperty(sequence, (operations) => run(play(operations))),
          { endOnFailure: true, numRuns: runs, ...(seed === "random" ? {} : { seed: Number(seed) }) }
        )
      )
      if (!result.failed) return
      const smallest = yield* Effect.promise(() =>
        shrink(result.counterexample![0], result.errorInstance as Error, failureOf)
      )
      // What differs comes first: a long sequence hides it.
      assert.fail(
        `${(yield* Effect.promise(() => failureOf(smallest)))?.message}\nseed ${result.seed}; to repeat it, add to ` +
          `found.ts:\n[\n  ${smallest.map((operation) => JSON.stringify(operation)).join(",\n  ")}\n]`
      )
    }), Math.max(60_000, runs * 2000))
})
