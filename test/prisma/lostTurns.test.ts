/**
 * A failover that lost turns: the new primary has other events under ids that a warm program has seen.
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Metrics, Orchestration, Runtime } from "duroxide-prisma"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as Schema from "effect/Schema"
import * as App from "../utils/app.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const Ask = Activity.make("Ask", { payload: Schema.String, success: Schema.String })

const value = (metric: Metric.Metric<number, Metric.CounterState<number>>, attributes: Record<string, string>) =>
  Effect.map(Metric.value(Metric.withAttributes(metric, attributes)), ({ count }) => count)

const queued = value(Metrics.optimisticTurns, { turn: "next", answer: "queued" })

const cases = [
  { what: "an optimistic turn", optimisticTurns: true, statuses: 0 },
  { what: "a claimed turn", optimisticTurns: false, statuses: 0 },
  { what: "a claimed turn with a long history", optimisticTurns: false, statuses: 150 }
]

describe("a failover that lost turns:", () => {
  for (const { optimisticTurns, statuses, what } of cases) {
    it.live(`${what} runs on the history that the store has now, not on what its program has seen`, () => {
      const Both = Orchestration.make(`Both after ${what}`, { success: Schema.String })
      const answers = { first: Deferred.makeUnsafe<string>(), second: Deferred.makeUnsafe<string>() }
      const runtime = Runtime.layer({ orchestrations: [Both], activities: [Ask] }).pipe(Layer.provide([
        Ask.toLayer((which) => Deferred.await(which === "first" ? answers.first : answers.second)),
        Both.toLayer(Effect.fnUntraced(function*() {
          for (let i = 0; i < statuses; i++) yield* Orchestration.setCustomStatus(`status ${i}`)
          const both = yield* Effect.all([Ask.execute("first"), Ask.execute("second")], { concurrency: "unbounded" })
          return both.join(" ")
        }))
      ]))
      const turns = value(Metrics.orchestrationTurns, { orchestration_name: Both.name })
      const replays = value(Metrics.orchestrationReplays, { orchestration_name: Both.name })
      return Effect.gen(function*() {
        const client = yield* Client.Client
        const { sql } = yield* PgServer.PgServer
        // A turn is counted when its program waits in memory.
        const untilTurns = (stored: number) => waitUntil(Effect.map(turns, (count) => count === stored))

        yield* client.start(Both, { instanceId: "i" })
        yield* untilTurns(1)
        yield* Deferred.succeed(answers.first, "one")
        yield* untilTurns(2)
        assert.strictEqual(yield* replays, 0)
        const queuedBefore = yield* queued

        yield* sql(
          `UPDATE history SET event_data = replace(event_data, 'one', 'eins')
           WHERE event_id = (SELECT max(event_id) FROM history)`
        )
        yield* Deferred.succeed(answers.second, "two")
        assert.strictEqual(yield* client.wait(Both, "i"), "eins two")
        assert.strictEqual(yield* replays, 1)
        assert.strictEqual((yield* queued) - queuedBefore, optimisticTurns ? 1 : 0)
      }).pipe(Effect.provide(App.layer(runtime, { runtime: { verifyReplay: false, optimisticTurns } })))
    })
  }
})
