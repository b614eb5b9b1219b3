import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Test from "../utils/driver.ts"

const startOf = (n: number) =>
  Test.message("a", JSON.stringify({ StartOrchestration: { instance: "a", orchestration: "One", input: `${n}` } }))

describe("abandonOrchestrationItems with beginsFirst:", () => {
  for (const rows of [0, 1]) {
    it.live(`keeps the order of starts when the planner expects a queue of ${rows} rows`, () =>
      Effect.gen(function*() {
        const { driver, sql } = yield* Test.open()
        if (rows === 1) yield* driver.enqueueForOrchestrator([startOf(9)])
        yield* sql("VACUUM ANALYZE orchestrator_queue")
        yield* sql("DELETE FROM orchestrator_queue")
        const numbers = [0, 1, 2, 3, 4]
        yield* Effect.forEach(numbers, (n) => driver.enqueueForOrchestrator([startOf(n)]))
        const [claimed] = yield* driver.fetchOrchestrationItems({
          limit: 1,
          lockTimeoutMs: 60_000,
          versions: null,
          orphans: true,
          maxBytes: 1
        })
        yield* driver.abandonOrchestrationItems([
          { lockToken: claimed!.lockToken, delayMs: null, ignoreAttempt: false, beginsFirst: true }
        ])
        const queued = yield* sql<{ readonly input: string }>(
          `SELECT work_item::jsonb #>> '{StartOrchestration,input}' AS input FROM orchestrator_queue ORDER BY id`
        )
        // A start comes before those that were stored earlier; the claimed one is the last now.
        assert.deepStrictEqual(queued.map(({ input }) => input), ["3", "2", "1", "0", "4"])
      }))
  }
})
