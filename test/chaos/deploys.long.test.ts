import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import { Box2, Letters } from "../programs/chaos/definitions.ts"
import * as App from "../utils/app.ts"
import * as Fleet from "../utils/fleet.ts"
import * as PgServer from "../utils/PgServer.ts"

const boxes = 20
const letters = 40

describe("A rolling deploy", () => {
  it.live(
    `one process lacks the new version, for a while both do: ${boxes} lines of signals are taken whole and in order`,
    () =>
      Effect.gen(function*() {
        const { url } = yield* PgServer.database
        const fleet = yield* Fleet.make(url)
        const old = yield* fleet.worker("old", ["1.0.0"])
        const first = yield* fleet.worker("first", ["1.0.0", "2.0.0"])
        yield* Effect.all([old.printed("ready"), first.printed("ready")])

        yield* Effect.gen(function*() {
          const client = yield* Client.Client
          const ids = Array.from({ length: boxes }, (_, i) => `box-${i}`)
          const sent = Array.from({ length: letters }, (_, i) => `${i}`)
          const write = Effect.fnUntraced(function*(id: string) {
            yield* client.start(Box2, { instanceId: id, payload: { read: [] } })
            for (const letter of sent) {
              yield* client.send(Letters, id, letter)
              yield* Effect.sleep(100)
            }
            yield* client.send(Letters, id, "close")
          })
          const writing = yield* Effect.forkChild(
            Effect.forEach(ids, write, { concurrency: "unbounded", discard: true })
          )
          yield* Effect.sleep(1_000)
          yield* first.stop
          // Nothing serves 2.0.0 now.
          yield* Effect.sleep(500)
          const second = yield* fleet.worker("second", ["1.0.0", "2.0.0"])
          yield* second.printed("ready")

          const read = yield* Effect.forEach(ids, (id) => client.wait(Box2, id), { concurrency: "unbounded" })
          assert.deepStrictEqual(read, ids.map(() => sent))
          assert.isDefined(writing.pollUnsafe())
        }).pipe(Effect.provide(App.store(url)))
      }).pipe(Effect.scoped)
  )
})
