import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { Flow, Pill } from "../programs/chaos/definitions.ts"
import * as App from "../utils/app.ts"
import * as Fleet from "../utils/fleet.ts"
import * as PgServer from "../utils/PgServer.ts"

const innocents = 15

/** Deliveries by the default of `maxAttempts`. */
const deliveries = 10

describe("An activity that kills its process", () => {
  it.live(
    `${innocents} innocents claimed with it: only the guilty one fails, after ${deliveries} deliveries`,
    () =>
      Effect.gen(function*() {
        const { url } = yield* PgServer.database
        const fleet = yield* Fleet.make(url)
        yield* Effect.gen(function*() {
          const client = yield* Client.Client
          const ids = Array.from({ length: innocents }, (_, n) => ({ instanceId: `flow-${n}`, n }))
          // All starts come before the first process, so that it claims them together.
          yield* client.start(Pill, { instanceId: "pill" })
          yield* Effect.forEach(ids, ({ instanceId, n }) =>
            client.start(Flow, { instanceId, payload: { n, kind: "steps" } }))
          let deaths = 0
          const machine = Effect.forever(Effect.scoped(Effect.gen(function*() {
            const worker = yield* fleet.worker(`worker-${deaths}`, ["1.0.0"], { lockMs: 1_000 })
            yield* worker.ended
            deaths++
          })))
          const machines = yield* Effect.forkChild(Effect.all([machine, machine], { concurrency: "unbounded" }))

          const guilty = yield* Effect.flip(client.wait(Pill, "pill"))
          assert.strictEqual(guilty._tag === "InstanceFailed" ? guilty.details._tag : guilty._tag, "Poison")
          const answers = yield* Effect.forEach(ids, ({ instanceId }) =>
            client.wait(Flow, instanceId), {
            concurrency: "unbounded"
          })
          assert.deepStrictEqual(answers, ids.map(({ n }) => n + 5))
          assert.isAtMost(deaths, deliveries)
          yield* Fiber.interrupt(machines)
        }).pipe(Effect.provide(App.store(url)))
      }).pipe(Effect.scoped)
  )
})
