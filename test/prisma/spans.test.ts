import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as tracing from "../../src/model/shared/tracing.ts"
import { Prisma } from "../../src/prisma/generated/client.js"
import * as drivers from "../../src/prisma/internal/driver.ts"
import { DataRefused, ProviderError } from "../../src/provider/ProviderError.ts"
import { Collector } from "../utils/traces.ts"

const driverOn = (answer: () => Effect.Effect<ReadonlyArray<object>, ProviderError>) =>
  drivers.make({
    query: <Row>() => answer() as Effect.Effect<ReadonlyArray<Row>, ProviderError>,
    schemaSql: Prisma.raw("s")
  })

const parent = tracing.spanOf("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")!

describe("Spans of claims", () => {
  it.effect("a claim that finds nothing has none; one that finds work has one, if the work is traced", () =>
    Effect.gen(function*() {
      const collector = new Collector()
      let rows: ReadonlyArray<object> = []
      const driver = driverOn(() => Effect.sync(() => rows))
      const claim = tracing.claiming(
        driver.fetchWorkItems({ limit: 1, lockTimeoutMs: 1_000, tags: { _tag: "Any" }, session: null })
      )
      yield* Effect.gen(function*() {
        assert.isUndefined((yield* claim).claimSpan)
        rows = [{ out_work_item: "{}", out_lock_token: "t", out_attempt_count: 1 }]
        const { claimSpan } = yield* claim
        assert.deepStrictEqual(collector.spans, [])
        const span = claimSpan!(parent)
        // Of all that were claimed together.
        assert.strictEqual(claimSpan!(tracing.spanOf(tracing.traceparentOf(span))!), span)
      }).pipe(Effect.withTracer(collector.tracer("worker")))
      const [claimed, ...others] = collector.spans
      assert.deepStrictEqual(others, [])
      assert.deepInclude(claimed, { name: "PrismaDriver.fetchWorkItems", parentId: parent.spanId })
      assert.strictEqual(claimed!.attributes["db.response.returned_rows"], 1)
    }))
})

describe("Spans of statements", () => {
  it.effect("a failure shows its kind and its SQLSTATE, and no message", () =>
    Effect.gen(function*() {
      const collector = new Collector()
      const reason = new DataRefused({ problem: "secret", sqlState: "22P05" })
      const driver = driverOn(() => Effect.fail(new ProviderError({ operation: "readInstances", reason })))
      yield* Effect.exit(driver.readInstances(["i"])).pipe(
        Effect.withParentSpan(parent),
        Effect.withTracer(collector.tracer("web"))
      )
      const [span] = collector.spans
      assert.isTrue(Exit.isFailure(span!.exit))
      assert.deepInclude(span!.attributes, { "error.type": "DataRefused", "db.response.status_code": "22P05" })
      assert.notInclude(JSON.stringify(span, (_, value) => value instanceof Error ? value.stack : value), "secret")
    }))

  it.effect("housekeeping has none", () =>
    Effect.gen(function*() {
      const collector = new Collector()
      const driver = driverOn(() => Effect.succeed([{ answer: [] }]))
      yield* Effect.withTracer(
        driver.renewWorkItemLocks([{ lockToken: "t", extendForMs: 1_000 }]),
        collector.tracer("worker")
      )
      assert.deepStrictEqual(collector.spans, [])
    }))
})
