import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import { type Build, definitions } from "../programs/booking.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const bookings = 200

const cases: ReadonlyArray<readonly [build: Build, what: string, blocks: boolean]> = [
  ["edited", "a program is edited in place", true],
  ["renamed", "an activity is renamed", true],
  ["field", "a field becomes required", true],
  ["version", "the old version is no longer served", false],
  ["activity", "an activity is forgotten", false]
]

describe.concurrent(`A wrong deploy over ${bookings} running instances, rolled out and back:`, () => {
  for (const [build, what, blocks] of cases) {
    it.live(`${what}: none is lost, no effect happens twice, and all end with the old code`, () =>
      Effect.gen(function*() {
        const { sql, url } = yield* PgServer.database
        yield* sql("CREATE TABLE effects (instance text NOT NULL, what text NOT NULL)")
        const { Booking } = definitions("original")
        const ids = Array.from({ length: bookings }, (_, room) => `booking-${room}`)
        const count = (query: string) => Effect.map(sql(query), (rows) => rows.length)
        yield* Effect.gen(function*() {
          const client = yield* Client.Client
          const { list } = yield* Admin.Admin

          const original = yield* ChildProcess.start("booking", url, "original")
          yield* original.printed("ready")
          yield* Effect.forEach(
            ids,
            (instanceId, room) => client.start(Booking, { instanceId, payload: { room } }),
            { concurrency: 20, discard: true }
          )
          yield* waitUntil(Effect.map(count("SELECT FROM effects WHERE what = 'reserve'"), (n) => n === bookings))
          yield* original.stop
          const charged = yield* count("SELECT FROM effects WHERE what = 'charge'")

          const wrong = yield* ChildProcess.start("booking", url, build)
          yield* wrong.printed("ready")
          const blocked = Effect.map(list({ status: "Blocked", limit: 1_000 }), ({ instances }) => instances.length)
          if (blocks) yield* waitUntil(Effect.map(blocked, (n) => n >= bookings - charged))
          else {
            // All timers are due.
            yield* Effect.sleep("6 seconds")
            assert.strictEqual(yield* blocked, 0)
          }
          assert.lengthOf((yield* list({ status: "Failed" })).instances, 0)
          yield* wrong.stop

          const back = yield* ChildProcess.start("booking", url, "original")
          yield* back.printed("ready")
          const results = yield* Effect.forEach(
            ids,
            (id) => client.wait(Booking, id, { timeout: "5 minutes" }),
            { concurrency: "unbounded" }
          )
          assert.deepStrictEqual(results, ids.map((_, room) => `room ${room}`))
          assert.strictEqual(yield* count("SELECT FROM effects"), 2 * bookings)
          assert.strictEqual(yield* count("SELECT DISTINCT instance, what FROM effects"), 2 * bookings)
        }).pipe(
          Effect.provide(
            Layer.merge(Client.layer, PrismaProvider.layer({ url })).pipe(
              Layer.provideMerge(PrismaProvider.layer({ url, migrate: "none" }))
            )
          )
        )
      }).pipe(Effect.scoped, Effect.provide(Logger.layer([]))))
  }
})
