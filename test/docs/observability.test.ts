/**
 * Compares docs/observability.md with the metrics and with the tests it names.
 */
import { assert, describe, it } from "@effect/vitest"
import { Metrics, Runtime } from "duroxide-prisma"
import { Health } from "duroxide-prisma/observability"
import { QueueHealth } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import { FetchHttpClient } from "effect/http"
import * as Layer from "effect/Layer"
import { Otlp, PrometheusMetrics } from "effect/observability"
import * as Docs from "../utils/docs.ts"

const page = Docs.read("docs/observability.md")
/** Their examples are those of tracing.test.ts. */
const traces = Docs.section("docs/observability.md", "Traces")

const Pages = Layer.mergeAll(PrometheusMetrics.layerHttp(), Health.layerHttp())

const OtlpLive = Otlp.layerJson({
  baseUrl: "http://localhost:4318",
  resource: { serviceName: "orders" }
}).pipe(Layer.provide(FetchHttpClient.layer))

const HealthPage = Health.layerHttp().pipe(Layer.provide(QueueHealth.layer()))

const problems = Effect.map(Health.check, (report) => report.problems)

const isAlive = Effect.gen(function*() {
  const runtime = yield* Runtime.Runtime
  const health = yield* runtime.health
  return health.state !== "Failed"
})

/** The rows of the tables of metrics. */
const rows = [
  ...page.matchAll(/^\| `((?:provider\.|duroxide_)[a-z_.]+)` +\| (.*?) +\| (.*?) +\| (.*?) +\| `(.*?)`: (.*?) +\|$/gm)
]
  .map(([, name, unit, labels, , file, test]) => ({
    name: name!,
    unit: unit!,
    labels: [...labels!.matchAll(/`([a-z_]+)`/g)].map(([, label]) => label!),
    file: file!,
    test: test!
  }))

const timeUnits = ["milliseconds", "seconds", "bytes"]

describe("docs/observability.md:", () => {
  it("its examples are those tested here", () => {
    const here = Docs.withoutIndentation(Docs.read("test/docs/observability.test.ts"))
    const examples = Docs.blocks(page.replace(traces, ""), "ts")
    assert.lengthOf(examples, 5)
    for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
    for (const layer of [Pages, OtlpLive, HealthPage]) assert.isTrue(Layer.isLayer(layer))
    for (const effect of [problems, isAlive]) assert.isTrue(Effect.isEffect(effect))
  })

  it("its tables have every metric, with its unit and its labels", () => {
    const all = Object.values(Metrics).map(({ attributes, id, labels }) => ({
      name: id,
      labels: [...labels],
      unit: attributes?.["unit"]
    }))
    assert.deepStrictEqual(
      rows.map(({ labels, name, unit }) => ({
        name,
        labels,
        unit: timeUnits.includes(unit) ? unit : undefined
      })).toSorted((a, b) => a.name < b.name ? -1 : 1),
      all.toSorted((a, b) => a.name < b.name ? -1 : 1)
    )
  })

  it("each metric has a test, which exists", () => {
    for (const { file, name, test } of rows) assert.include(Docs.read(file), `"${test}"`, name)
  })
})
