/**
 * Starts of many instances in one statement: what one costs does not grow with how many there are.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as PgServer from "../utils/PgServer.ts"

describe("dx_start_orchestrations", () => {
  it.live("takes about eight times as long for 4,000 starts as for 500", () =>
    Effect.gen(function*() {
      const { sql } = yield* PgServer.database
      let round = 0
      const durationOf = Effect.fnUntraced(function*(count: number) {
        const durations: Array<number> = []
        for (let i = 0; i < 3; i++) {
          const before = performance.now()
          const [outcomes] = yield* sql<{ readonly started: string }>(
            `SELECT count(*) FILTER (WHERE outcome = 'Started')::text AS started
             FROM jsonb_array_elements_text(dx_start_orchestrations((
               SELECT jsonb_agg(jsonb_build_object(
                 'instance_id', '${round++} ' || g, 'orchestration_name', 'Many', 'orchestration_version', '1.0.0',
                 'major', 1000, 'minor', 1, 'patch', 0, 'work_item', '{"StartOrchestration":{}}'
               )) FROM generate_series(1, ${count}) AS g
             ))) AS outcome`
          )
          durations.push(performance.now() - before)
          assert.strictEqual(outcomes?.started, String(count))
        }
        return Math.min(...durations)
      })
      yield* durationOf(10)
      const few = yield* durationOf(500)
      const many = yield* durationOf(4_000)
      // A loop over all of them for each would make it 64.
      assert.isBelow(many / few, 24)
    }).pipe(Effect.scoped))
})
