import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Tracer from "effect/Tracer"
import { Prisma } from "../../src/prisma/generated/client.js"
import * as drivers from "../../src/prisma/internal/driver.ts"

describe("Spans of claims", () => {
  it.effect("a claim that finds nothing has none, a claim that finds work has one", () =>
    Effect.gen(function*() {
      const spans: Array<string> = []
      const native = Tracer.make({
        span: (options) => {
          spans.push(options.name)
          return new Tracer.NativeSpan(options)
        }
      })
      let rows: ReadonlyArray<object> = []
      const driver = drivers.make({
        query: <Row>() => Effect.sync(() => rows as ReadonlyArray<Row>),
        schemaSql: Prisma.raw("s")
      })
      const lock = { limit: 1, lockTimeoutMs: 1_000 }
      yield* Effect.gen(function*() {
        yield* driver.fetchOrchestrationItems({ ...lock, versions: null })
        const look = driver.fetchWorkItems({ ...lock, tags: { _tag: "Any" }, session: null })
        yield* look
        assert.deepStrictEqual(spans, [])
        rows = [{ out_work_item: "{}", out_lock_token: "t", out_attempt_count: 1 }]
        yield* look
        assert.deepStrictEqual(spans, ["PrismaDriver.fetchWorkItems"])
      }).pipe(Effect.withTracer(native))
    }))
})
