import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider, Transaction } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import * as Headers from "effect/http/Headers"
import * as HttpTraceContext from "effect/http/HttpTraceContext"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as OtlpSerialization from "effect/observability/OtlpSerialization"
import * as OtlpTracer from "effect/observability/OtlpTracer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Tracer from "effect/Tracer"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"
import { Collector } from "../utils/traces.ts"

const Traces = (serviceName: string) =>
  OtlpTracer.layer({
    url: "http://localhost:4318/v1/traces",
    resource: { serviceName }
  }).pipe(Layer.provide([OtlpSerialization.layerJson, FetchHttpClient.layer]))

const server = (url: string) =>
  Client.layer.pipe(
    Layer.provide(PrismaProvider.layer({ url })),
    Layer.provideMerge(Traces("shop"))
  )

const worker = (url: string) =>
  Runtime.layer({ orchestrations: [Fulfil], activities: [Charge] }).pipe(
    Layer.provide([FulfilLive, ChargeLive]),
    Layer.provide(PrismaProvider.layer({ url })),
    Layer.provideMerge(Traces("shop-worker"))
  )

const traced = (request: Request) => <A, E, R>(handler: Effect.Effect<A, E, R>) =>
  handler.pipe(
    Effect.withSpan(`${request.method} ${new URL(request.url).pathname.split("/")[1]}`, {
      kind: "server",
      parent: Option.getOrUndefined(HttpTraceContext.fromHeaders(Headers.fromInput(request.headers)))
    })
  )

const sampled = (fraction: number) =>
  Layer.effect(
    Tracer.Tracer,
    Effect.map(Effect.tracer, (tracer) =>
      Tracer.make({
        span: (options) =>
          tracer.span(
            Option.isSome(options.parent)
              ? options
              : { ...options, sampled: options.sampled && Math.random() < fraction }
          )
      }))
  )

const Charge = Activity.make("Charge", { payload: Schema.String })
const Fulfil = Orchestration.make("Fulfil", { payload: Schema.String, instanceId: (order) => `order-${order}` })
const ChargeLive = Charge.toLayer(() => Effect.withSpan(Effect.void, "card"))
const FulfilLive = Fulfil.toLayer((order) => Charge.execute(order))

interface Sent {
  readonly name: string
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
}

/** Stands in for a collector; returns the spans it was sent, with the name of the process. */
const collector = () => {
  const spans: Array<Sent & { readonly process: string }> = []
  const fetch: typeof globalThis.fetch = async (_, init) => {
    const body = JSON.parse(await new Response(init!.body).text())
    for (const { resource, scopeSpans } of body.resourceSpans) {
      const name = resource.attributes.find(({ key }: { key: string }) => key === "service.name").value.stringValue
      for (const scope of scopeSpans) spans.push(...scope.spans.map((span: Sent) => ({ ...span, process: name })))
    }
    return new Response("{}")
  }
  return { spans, layer: Layer.merge(Layer.succeed(FetchHttpClient.Fetch, fetch), Logger.layer([])) }
}

const page = Docs.section("docs/observability.md", "Traces")

describe("docs/observability.md, Traces:", () => {
  it("its examples are those tested here", () => {
    const here = Docs.withoutIndentation(Docs.read("test/docs/tracing.test.ts"))
    const examples = Docs.blocks(page, "ts")
    assert.lengthOf(examples, 4)
    for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
  })

  it.live("server and worker send one trace, which the caller of the server has begun", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const { layer, spans } = collector()
      const traceId = "0af7651916cd43dd8448eb211c80319c"
      const request = new Request("http://shop/orders/1", {
        method: "POST",
        headers: { traceparent: `00-${traceId}-b7ad6b7169203331-01` }
      })
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* traced(request)(client.start(Fulfil, { payload: "1" }))
        yield* Effect.provide(client.wait(Fulfil, "order-1"), worker(url))
      }).pipe(Effect.provide(Layer.provideMerge(server(url), layer)))

      const ours = spans.filter((span) => span.traceId === traceId)
      const pathOf = ({ name, parentSpanId, process }: (typeof spans)[number]): string => {
        const parent = ours.find(({ spanId }) => spanId === parentSpanId)
        return `${parent === undefined ? "" : `${pathOf(parent)} > `}${process}: ${name}`
      }
      assert.includeMembers(ours.map(pathOf), [
        "shop: POST orders > shop: Client.start > shop-worker: turn Fulfil > shop-worker: activity Charge > shop-worker: card"
      ])
      assert.deepStrictEqual(
        new Set(ours.filter(({ parentSpanId }) => !ours.some(({ spanId }) => spanId === parentSpanId)).map(pathOf)),
        new Set(["shop: POST orders"])
      )
    }).pipe(Effect.scoped))

  it.live("the tracer that samples takes the fraction it is given of new traces, and follows its caller", () =>
    Effect.gen(function*() {
      const spans = new Collector()
      const inner = Effect.withSpan(Effect.void, "inner")
      const requests = (fraction: number) =>
        Effect.withSpan(inner, "outer").pipe(
          Effect.repeat({ times: 99 }),
          Effect.provide(sampled(fraction).pipe(Layer.provide(spans.layer("all"))))
        )
      yield* requests(0)
      assert.lengthOf(spans.spans, 0)
      yield* requests(1)
      assert.lengthOf(spans.named("outer"), 100)
      yield* requests(0.5)
      const [outer, below] = [spans.named("outer"), spans.named("inner")]
      assert.isAbove(outer.length, 100)
      assert.isBelow(outer.length, 200)
      assert.deepStrictEqual(below.map(({ parentId }) => parentId), outer.map(({ spanId }) => spanId))
    }))

  it.live("the table of attributes has all of them, and no other", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const spans = new Collector()
      const Declined = Activity.make("Declined", { error: Schema.String, tag: "bank" })
      const Sale = Orchestration.make("Sale", { error: Schema.String })
      const runtime = Runtime.layer({ orchestrations: [Sale], activities: [Declined] }).pipe(
        Layer.provide([Sale.toLayer(() => Declined.execute()), Declined.toLayer(() => Effect.fail("no"))]),
        Layer.provide(RuntimeConfig.layer({ tags: { _tag: "Any" }, dashboardUrl: "https://shop.example/duroxide" }))
      )
      const store = Client.layer.pipe(
        Layer.provideMerge(PrismaProvider.layer({ url })),
        Layer.provideMerge(Logger.layer([])),
        Layer.provideMerge(spans.layer("all"))
      )
      const ids = ["sale-1", "sale-2", "sale-3"]
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* Effect.forEach(ids, (instanceId) => client.start(Sale, { instanceId }), { concurrency: "unbounded" })
        yield* Effect.provide(
          Effect.forEach(ids, (instanceId) => Effect.exit(client.wait(Sale, instanceId)), { concurrency: "unbounded" }),
          runtime
        )
        const connection = yield* PgServer.connect(url)
        const lost = Client.within(Transaction.make(connection, { schema: "missing" }))
        yield* Effect.exit(lost.start(Sale, { instanceId: "lost" }))
      }).pipe(Effect.withSpan("test"), Effect.provide(store))

      const table = page.split("\n### Attributes\n")[1]!.split("\n### ")[0]!
      const documented = [...table.matchAll(/`((?:duroxide|messaging|db|server|error)\.[a-z_.]+)`/g)].map(([, name]) =>
        name!
      )
      assert.deepStrictEqual(
        [...new Set(spans.spans.flatMap(({ attributes }) => Object.keys(attributes)))].sort(),
        [...new Set(documented)].sort()
      )
    }).pipe(Effect.scoped))
})
