import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Random from "effect/Random"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import { Trip } from "../programs/saga.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const trips = 200

describe(`${trips} sagas of three children`, () => {
  it.live(
    "interrupted at random points, their workers killed meanwhile: each completed effect is undone exactly once",
    () =>
      Effect.gen(function*() {
        const { sql, url } = yield* PgServer.database
        yield* sql("CREATE TABLE effects (key text PRIMARY KEY, instance text NOT NULL, what text NOT NULL)")
        yield* sql("CREATE TABLE undone (key text PRIMARY KEY, effect text NOT NULL)")
        const ids = Array.from({ length: trips }, (_, n) => `trip-${n}`)
        yield* Effect.gen(function*() {
          const client = yield* Client.Client
          const { list } = yield* Admin.Admin
          const worker = Effect.tap(ChildProcess.start("saga", url), ({ printed }) => printed("ready"))
          let kills = 0
          /** Two workers, of which one is killed and replaced again and again. */
          const killing: Effect.Effect<never> = Effect.scoped(Effect.gen(function*() {
            yield* worker
            while (true) {
              const victim = yield* worker
              yield* Effect.sleep(yield* Random.nextIntBetween(500, 1_500))
              yield* victim.kill
              kills++
            }
          }))
          let effectsOf = new Map<string, number>()
          const counting = Effect.forever(Effect.delay(
            Effect.map(
              sql("SELECT split_part(instance, '::', 1) AS trip, count(*)::int AS n FROM effects GROUP BY 1"),
              (rows) => void (effectsOf = new Map(rows.map(({ n, trip }) => [String(trip), Number(n)])))
            ),
            200
          ))
          /** At most 1.5 seconds, the longest pause inside of a step, after the trip has 0 to 3 effects. */
          const interrupting = Effect.forEach(ids, (instanceId, n) =>
            Effect.gen(function*() {
              yield* client.start(Trip, { instanceId })
              yield* waitUntil(
                Effect.sync(() => (effectsOf.get(instanceId) ?? 0) >= n % 4 && (n % 8 < 7 || kills >= 3))
              )
              yield* Effect.sleep(yield* Random.nextIntBetween(0, 1_500))
              yield* client.interrupt(instanceId, "rain", { deadline: "2 minutes" })
              return yield* Effect.flip(client.wait(Trip, instanceId, { timeout: "3 minutes" }))
            }), { concurrency: "unbounded" })
          const outcomes = yield* Effect.raceFirst(interrupting, Effect.raceFirst(killing, counting))

          const reasons = outcomes.map((error) => error._tag === "InstanceCancelled" ? error.reason : error._tag)
          assert.deepStrictEqual([...new Set(reasons)], ["rain"], "all are cancelled before their deadline")
          assert.lengthOf((yield* list({ status: "Running" })).instances, 0)
          const effects = yield* sql("SELECT key FROM effects")
          const undone = yield* sql("SELECT effect FROM undone")
          assert.sameMembers(undone.map(({ effect }) => effect), effects.map(({ key }) => key))
          // Points in all steps were hit, and kills fell between them.
          const perTrip = yield* sql("SELECT count(*)::int AS n FROM effects GROUP BY split_part(instance, '::', 1)")
          assert.sameMembers([...new Set(perTrip.map(({ n }) => n))], [1, 2, 3])
          assert.isAbove(trips, perTrip.length)
          assert.isAtLeast(kills, 3)
        }).pipe(
          Effect.provide(
            Layer.merge(Client.layer, PrismaProvider.layer({ url })).pipe(
              Layer.provideMerge(PrismaProvider.layer({ url, migrate: "none" }))
            )
          )
        )
      }).pipe(Effect.scoped, Effect.provide(Logger.layer([])))
  )
})
