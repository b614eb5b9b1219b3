import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as Tracer from "effect/Tracer"
import * as Database from "../../src/prisma/Database.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import * as Transaction from "../../src/prisma/Transaction.ts"
import * as FromDriver from "../../src/provider/FromDriver.ts"
import * as PgServer from "../utils/PgServer.ts"
import { Collector } from "../utils/traces.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const Pack = Activity.make("Pack", { payload: Schema.Int })
const Order = Orchestration.make("Order")

const runtime = Runtime.layer({ orchestrations: [Order], activities: [Pack] }).pipe(
  Layer.provide([
    Order.toLayer(() => Effect.forEach([1, 2], Pack.execute, { discard: true })),
    Pack.toLayer(() => Effect.void)
  ])
)

const storeOn = (url: string, process: Layer.Layer<never>) =>
  Client.layer.pipe(
    Layer.provideMerge(FromDriver.layer()),
    Layer.provideMerge(PrismaDriver.layer()),
    Layer.provideMerge(Database.layer({ url })),
    Layer.provideMerge(Logger.layer([])),
    Layer.provideMerge(process)
  )

/** A process that runs until its scope is closed, or until the test ends. */
const worker = (url: string, process: Layer.Layer<never>) =>
  Effect.gen(function*() {
    const scope = yield* Scope.make()
    yield* Effect.addFinalizer((exit) => Scope.close(scope, exit))
    yield* Layer.buildWithScope(runtime.pipe(Layer.provide(storeOn(url, process))), scope)
    return scope
  })

const instanceIds = (count: number) => Array.from({ length: count }, (_, n) => `o-${n}`)

const request = (client: Client.Client["Service"], instanceId: string, options?: Tracer.SpanOptions) =>
  Effect.withSpan(client.start(Order, { instanceId }), `POST ${instanceId}`, options)

describe("Traces with PostgreSQL", () => {
  it.live("a start here, and turns, activities and their statements elsewhere, are one tree", () =>
    Effect.gen(function*() {
      const { schema, sql, url } = yield* PgServer.database
      const collector = new Collector()
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* request(client, "o")
        const process = yield* worker(url, collector.layer("worker"))
        yield* client.wait(Order, "o")
        yield* Scope.close(process, Exit.void)
      }).pipe(Effect.provide(storeOn(url, collector.layer("web"))))

      const [root] = collector.named("POST o")
      const tree = collector.spans.filter(({ traceId }) => traceId === root!.traceId)
      const ids = new Set(tree.map(({ spanId }) => spanId))
      assert.deepStrictEqual(tree.filter(({ parentId }) => !ids.has(parentId!)), [root!])
      const names = (process: string) =>
        new Set(tree.filter((span) => span.process === process).map(({ name }) => name))
      assert.deepStrictEqual(names("web"), new Set(["PrismaDriver.startOrchestrations", "Client.start", "POST o"]))
      assert.includeMembers([...names("worker")], [
        "turn Order",
        "activity Pack",
        // The claim of the start, and what stores the first turn.
        "PrismaDriver.fetchOrchestrationItems",
        "PrismaDriver.ackOrchestrationItems"
      ])
      assert.lengthOf(tree.filter(({ name }) => name === "activity Pack"), 2)
      assert.deepStrictEqual([...collector.open.values()], [])

      const turns = tree.filter(({ name }) => name === "turn Order")
      const [claim] = collector.named("PrismaDriver.fetchOrchestrationItems")
      assert.include(turns[0]!.links, claim!.spanId)
      const [ack] = collector.named("PrismaDriver.ackOrchestrationItems")
      assert.strictEqual(ack!.kind, "client")
      assert.include(turns.map(({ spanId }) => spanId), ack!.parentId)
      const { hostname, pathname, port } = new URL(url)
      assert.deepStrictEqual(ack!.attributes, {
        "db.system.name": "postgresql",
        "db.namespace": `${pathname.slice(1)}|${schema}`,
        "db.operation.name": "SELECT",
        "db.stored_procedure.name": "dx_ack_orchestration_items",
        "db.query.summary": "SELECT dx_ack_orchestration_items",
        "server.address": hostname,
        "server.port": Number(port || 5432)
      })

      const [stored] = yield* sql<{ event_data: string }>("SELECT event_data FROM history WHERE event_id = 1")
      assert.match(stored!.event_data, /"traceparent":"00-[\da-f]{32}-[\da-f]{16}-01"\}$/)
    }).pipe(Effect.scoped))

  it.live("turns that are run ahead are in the tree, too, each with the statement that stores it", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const collector = new Collector()
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        // The clock of the store is known after the first one.
        yield* client.execute(Order, { instanceId: "first" })
        yield* Effect.withSpan(client.execute(Order, { instanceId: "o" }), "POST o")
      }).pipe(Effect.provide(runtime.pipe(Layer.provideMerge(storeOn(url, collector.layer("both"))))))

      const [root] = collector.named("POST o")
      const tree = collector.spans.filter(({ traceId }) => traceId === root!.traceId)
      const ids = new Set(tree.map(({ spanId }) => spanId))
      assert.deepStrictEqual(tree.filter(({ parentId }) => !ids.has(parentId!)), [root!])
      const [start] = tree.filter(({ name }) => name === "Client.start")
      assert.strictEqual(start!.parentId, root!.spanId)
      const turns = tree.filter(({ name }) => name === "turn Order")
      assert.deepStrictEqual(new Set(turns.map(({ parentId }) => parentId)), new Set([start!.spanId]))
      assert.lengthOf(turns.filter(({ attributes }) => attributes["duroxide.turn.stored"] !== false), 3)
      const turnIds = new Set(turns.map(({ spanId }) => spanId))
      const activities = tree.filter(({ name }) => name === "activity Pack")
      assert.lengthOf(activities, 2)
      assert.isTrue(activities.every(({ parentId }) => turnIds.has(parentId!)))
      const advances = tree.filter(({ name }) => name === "PrismaDriver.advanceOrchestrations")
      assert.isAbove(advances.length, 0)
      assert.isTrue(advances.every(({ parentId }) => turnIds.has(parentId!)))
      assert.deepStrictEqual([...collector.open.values()], [])
    }).pipe(Effect.scoped))

  it.live("starts that share a statement: its span is below the first, and linked with the others", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const collector = new Collector()
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* Effect.forEach(instanceIds(5), (id) => request(client, id), { concurrency: "unbounded" })
      }).pipe(Effect.provide(storeOn(url, collector.layer("web"))))

      const calls = collector.named("Client.start")
      const statements = collector.named("PrismaDriver.startOrchestrations")
      assert.lengthOf(calls, 5)
      assert.lengthOf(statements, 1)
      const [statement] = statements
      assert.strictEqual(statement!.attributes["db.operation.batch.size"], 5)
      assert.sameMembers([statement!.parentId, ...statement!.links], calls.map(({ spanId }) => spanId))
      for (const { links, spanId } of calls) {
        assert.deepStrictEqual(links, spanId === statement!.parentId ? [] : [statement!.spanId])
      }
    }).pipe(Effect.scoped))

  it.live("a statement is not linked with calls that are not sampled, and has no span if none is", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const collector = new Collector()
      const together = (sampled: ReadonlySet<string>) =>
        Effect.flatMap(
          Client.Client,
          (client) =>
            Effect.forEach(instanceIds(5), (id) =>
              request(client, `${id}-${sampled.size}`, { sampled: sampled.has(id) }), {
              concurrency: "unbounded"
            })
        )
      yield* Effect.gen(function*() {
        yield* together(new Set())
        assert.deepStrictEqual(collector.named("PrismaDriver.startOrchestrations"), [])
        yield* together(new Set(["o-2", "o-3"]))
      }).pipe(Effect.provide(storeOn(url, collector.layer("web"))))

      const calls = collector.named("Client.start")
      const [statement, ...others] = collector.named("PrismaDriver.startOrchestrations")
      assert.deepStrictEqual(others, [])
      assert.strictEqual(statement!.attributes["db.operation.batch.size"], 5)
      assert.sameMembers([statement!.parentId, ...statement!.links], calls.map(({ spanId }) => spanId))
      assert.notInclude(collector.unsampled.map(({ name }) => name), "PrismaDriver.startOrchestrations")
      assert.lengthOf(collector.unsampled.flatMap(({ links }) => links), 0)
    }).pipe(Effect.scoped))

  it.live("polls, housekeeping and calls that are not traced make no span, whatever span began the process", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const collector = new Collector()
      const process = runtime.pipe(
        Layer.provide(RuntimeConfig.layer({ sessionCleanupInterval: "20 millis" })),
        Layer.provideMerge(storeOn(url, collector.layer("worker")))
      )
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* Effect.withTracer(client.terminate("unknown", "not traced"), Tracer.nativeTracer)
        const { statementCounts } = yield* Database.Database
        const operations = [
          "fetchOrchestrationItems",
          "fetchWorkItems",
          "cleanupOrphanedSessions",
          "enqueueForOrchestrator"
        ]
        yield* waitUntil(Effect.map(statementCounts, (counts) => operations.every((one) => (counts[one] ?? 0) > 0)))
      }).pipe(
        Effect.provide(process),
        Effect.withSpan("main"),
        Effect.withTracer(collector.tracer("worker"))
      )
      assert.deepStrictEqual(collector.outline(), ["main", "  Database.make"])
      assert.deepStrictEqual([...collector.open.values()], [])
    }).pipe(Effect.scoped))

  it.live("without a tracer no row has a context", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* request(client, "o")
        yield* Effect.withSpan(client.terminate("waits", "no more"), "DELETE")
        const queued = yield* sql<{ work_item: string }>("SELECT work_item FROM orchestrator_queue ORDER BY id")
        assert.lengthOf(queued, 2)
        assert.notInclude(JSON.stringify(queued), "trace")
        yield* worker(url, Layer.empty)
        yield* client.wait(Order, "o")
        assert.notInclude(JSON.stringify(yield* sql("SELECT event_data FROM history")), "trace")
      }).pipe(Effect.provide(storeOn(url, Layer.empty)))
    }).pipe(Effect.scoped))

  it.live("a start in a transaction of the application hands its context on", () =>
    Effect.gen(function*() {
      const { schema, sql, url } = yield* PgServer.database
      const connection = yield* PgServer.connect(url)
      const collector = new Collector()
      const client = Client.within(Transaction.make(connection, { schema }))
      yield* client.start(Order, { instanceId: "o" }).pipe(
        Effect.withSpan("POST o"),
        Effect.withTracer(collector.tracer("web"))
      )
      assert.deepStrictEqual(collector.outline(), ["POST o", "  Client.start", "    PrismaDriver.startOrchestrations"])
      const [start] = collector.named("Client.start")
      const [queued] = yield* sql<{ work_item: string }>("SELECT work_item FROM orchestrator_queue")
      assert.include(queued!.work_item, `"traceparent":"00-${start!.traceId}-${start!.spanId}-01"`)
    }).pipe(Effect.scoped))
})
