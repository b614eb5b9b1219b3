import { assert, describe, it } from "@effect/vitest"
import { Metrics } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Metric from "effect/Metric"
import * as References from "effect/References"
import { values } from "../utils/metrics.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

/** A process with metrics of its own, on the database. */
const process = Effect.fnUntraced(function*(url: string) {
  const registry: Metric.MetricRegistry = new Map()
  const lines: Array<Readonly<Record<string, unknown>>> = []
  const logger = Logger.make(({ fiber, message }) => {
    lines.push({ ...fiber.getRef(References.CurrentLogAnnotations), message: String(message) })
  })
  const inside = Effect.provideService(Metric.MetricRegistry, registry)
  yield* Layer.build(
    PrismaProvider.layer({ url }).pipe(
      Layer.provide(Logger.layer([logger])),
      Layer.provide(Layer.succeed(References.MinimumLogLevel, "Debug"))
    )
  ).pipe(inside)
  yield* waitUntil(inside(Effect.map(Metric.value(Metrics.listenerConnected), ({ value }) => value === 1)))
  return {
    samples: () => lines.filter(({ operation }) => operation === "readBacklog").length,
    hasReceived: (hint: string) => lines.some((line) => line["hint"] === hint),
    /** Reads like an exporter: the number of active instances, if it is shown. */
    read: inside(Effect.map(values(Metrics.activeOrchestrations), ({ "": active }) => active))
  }
})

describe("Gauges of the store", () => {
  it.live("a process that listens does without a sample when another one has just taken it", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const [first, second] = [yield* process(url), yield* process(url)]
      yield* first.read
      yield* waitUntil(Effect.sync(() => second.hasReceived("Sampled")))
      for (let i = 0; i < 5; i++) assert.isUndefined(yield* second.read)
      assert.strictEqual(yield* first.read, 0)
      assert.deepStrictEqual([first.samples(), second.samples()], [1, 0])
    }).pipe(Effect.scoped))
})
