import { assert, describe, it } from "@effect/vitest"
import { Client, Runtime } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Collect, collect, Item } from "../programs/collecting.ts"
import * as App from "../utils/app.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"

const runtime = Runtime.layer({ orchestrations: [Collect] }).pipe(Layer.provide(Collect.toLayer(collect)))

describe("Signals that start their instances", () => {
  it.live(
    "are neither lost nor doubled, although their senders are killed",
    () =>
      Effect.scoped(Effect.gen(function*() {
        const client = yield* Client.Client
        const { sql, url } = yield* PgServer.PgServer
        const sent: Array<readonly [string, string]> = []
        for (let round = 0; round < 3; round++) {
          const senders = yield* Effect.forEach(
            [0, 1],
            (i) => ChildProcess.start("signalStarter", url, `s${round}${i}`)
          )
          yield* senders[0]!.printed("=")
          yield* senders[0]!.kill
          yield* senders[1]!.printed("done")
          for (const sender of senders) {
            for (const [, id, item] of sender.output().matchAll(/^(collect-\d+)=(\S+)$/gm)) {
              sent.push([id!, item!])
            }
          }
        }
        const ids = [...new Set(sent.map(([id]) => id))]
        assert.lengthOf(ids, 20)
        for (const id of ids) yield* client.send(Item, id, "close")
        const all = yield* Effect.forEach(ids, (id) => client.wait(Collect, id, { timeout: "4 minutes" }), {
          concurrency: "unbounded"
        })
        const received = all.flatMap((items, i) => items.map((item) => `${ids[i]}=${item}`))
        assert.lengthOf(new Set(received), received.length, "no signal came twice")
        const missing = sent.map((one) => one.join("=")).filter((one) => !received.includes(one))
        assert.deepStrictEqual(missing, [], "all that were acknowledged have come")
        const [left] = yield* sql("SELECT count(*)::int AS count FROM orchestrator_queue")
        assert.deepStrictEqual(left, { count: 0 })
      })).pipe(Effect.provide(App.layer(runtime)))
  )
})
