/**
 * Work that was queued while the schema had no routes: before its adoption, and between a reset and the next adoption.
 */
import { assert, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Queue from "effect/Queue"
import * as Schema from "effect/Schema"
import * as Database from "../../src/prisma/Database.ts"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as Duroxide from "../utils/duroxideSchema.ts"
import * as LocalProcess from "../utils/localProcess.ts"
import { type Run, session } from "../utils/session.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const silently = Effect.provide(Logger.layer([]))

const Grade = Activity.make("Grade", { payload: Schema.String })
const Render = Activity.make("Render", { payload: Schema.String })
const Pack = Activity.make("Pack", { payload: Schema.String, success: Schema.String })
const Amounts = Signal.make("Amounts", { payload: Schema.Int })
const Parcel = Orchestration.make("Parcel", { payload: Schema.String, success: Schema.String })
const Nap = Orchestration.make("Nap", { payload: Schema.Void, success: Schema.String })
const Sum = Orchestration.make("Sum", { payload: Schema.Int, success: Schema.Int })

/** Everything is served; `pack` and `ran` are the handlers. */
const serving = (
  pack: (order: string) => Effect.Effect<string>,
  ran: (call: string) => Effect.Effect<unknown>
) =>
  Runtime.layer({
    orchestrations: [Parcel, Nap, Sum],
    activities: [Grade, Render, Pack]
  }).pipe(
    Layer.provide(RuntimeConfig.layer({ tags: { _tag: "Any" }, shutdownTimeout: 0, activityGracePeriod: 0 })),
    Layer.provide([
      Grade.toLayer((payload) => Effect.asVoid(ran(`Grade ${payload}`))),
      Render.toLayer((payload) => Effect.asVoid(ran(`Render ${payload}`))),
      Pack.toLayer(pack),
      Parcel.toLayer((order) => Pack.execute(order)),
      Nap.toLayer(() => Effect.as(Effect.sleep("2 seconds"), "awake")),
      Sum.toLayer(Effect.fn(function*(first) {
        return first + (yield* Amounts.wait)
      }))
    ])
  )

/** An activity, queued by Duroxide. */
const call = (name: string, n: number, tag: string | null) => ({
  work_item: JSON.stringify({
    ActivityExecute: { instance: `rust-${name}`, execution_id: 1, id: n, name, input: `"${n}"`, ...(tag && { tag }) }
  }),
  instance_id: `rust-${name}`,
  execution_id: 1,
  activity_id: n,
  tag
})

/** Starts an instance of `Sum`, as Duroxide queues it. */
const startOf = (instance: string) => ({
  instance_id: instance,
  work_item: JSON.stringify({
    StartOrchestration: {
      instance,
      orchestration: "Sum",
      input: "40",
      version: null,
      parent_instance: null,
      parent_id: null,
      execution_id: 1
    }
  })
})

const insert = (sql: Run, table: string, row: object) =>
  sql(
    `INSERT INTO ${table} (${Object.keys(row).join(", ")}, visible_at, created_at)
     SELECT ${Object.keys(row).map((column) => `r.${column}`).join(", ")}, now(), now()
     FROM jsonb_populate_record(NULL::${table}, $1) AS r`,
    [JSON.stringify(row)]
  )

/** Well before the fallback poll. */
const inTime = Effect.timeout("2 minutes")

it.live("adopt: what was queued before runs as what is queued after", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* Duroxide.empty("rust")
    const parcels = ["p1", "p2", "p3"]
    // A process of ours is killed with three activities under way and a timer that is not due.
    yield* silently(Migrator.adopt({ url }))
    yield* Effect.gen(function*() {
      const begun = yield* Queue.unbounded<string>()
      const process = yield* LocalProcess.start(
        serving((order) => Effect.andThen(Queue.offer(begun, order), Effect.never), () => Effect.void)
      )
      yield* Effect.forEach(parcels, (id) => process.client.start(Parcel, { instanceId: id, payload: id }))
      yield* process.client.start(Nap, { instanceId: "nap" })
      yield* Queue.takeN(begun, parcels.length)
      const timers = sql("SELECT FROM orchestrator_queue WHERE work_item LIKE '{\"TimerFired\"%'")
      yield* waitUntil(Effect.map(timers, (rows) => rows.length === 1))
      yield* process.kill
      yield* process.stop
    }).pipe(
      Effect.scoped,
      Effect.provide(PrismaDriver.layer().pipe(Layer.provide(Database.layer({ url })))),
      silently
    )
    // As the passing of time does.
    yield* sql("UPDATE worker_queue SET locked_until = 0; UPDATE instance_locks SET locked_until = 0")
    yield* silently(Migrator.reset({ url }))

    // Meanwhile Rust queues: a tagged call, calls that a killed process had, a message before its start, and the start.
    yield* insert(sql, "worker_queue", call("Grade", 2, "gpu"))
    for (const n of [1, 2, 3, 4, 5]) {
      yield* insert(sql, "worker_queue", {
        ...call("Render", n, null),
        lock_token: "dead",
        locked_until: 1,
        attempt_count: 1
      })
    }
    const message = { QueueMessage: { instance: "rust-sum", name: "Amounts", data: "2" } }
    yield* insert(sql, "orchestrator_queue", { instance_id: "rust-sum", work_item: JSON.stringify(message) })
    yield* insert(sql, "orchestrator_queue", startOf("rust-sum"))

    const ran = yield* Queue.unbounded<string>()
    const allRan = yield* Deferred.make<ReadonlyArray<string>>()
    yield* Effect.forkScoped(Effect.flatMap(Queue.takeN(ran, 6), (calls) => Deferred.succeed(allRan, calls)))
    const runtime = serving((order) => Effect.succeed(`${order} packed`), (one) => Queue.offer(ran, one))
    yield* Effect.gen(function*() {
      const client = yield* Client.Client
      const found = yield* inTime(Effect.all({
        calls: Deferred.await(allRan),
        parcels: Effect.forEach(parcels, (id) => client.wait(Parcel, id), { concurrency: "unbounded" }),
        nap: client.wait(Nap, "nap"),
        sum: client.wait(Sum, "rust-sum")
      }, { concurrency: "unbounded" }))
      assert.deepStrictEqual(
        { ...found, calls: [...found.calls].sort() },
        {
          calls: ["Grade 2", "Render 1", "Render 2", "Render 3", "Render 4", "Render 5"],
          parcels: ["p1 packed", "p2 packed", "p3 packed"],
          nap: "awake",
          sum: 42
        }
      )
    }).pipe(
      Effect.provide(
        runtime.pipe(
          Layer.merge(Client.layer),
          Layer.provideMerge(PrismaProvider.layer({ url, schema: "rust", migrate: "adopt" }))
        )
      ),
      silently
    )
  }))

it.live("adopt: a client reaches instances of Duroxide with ids of 2,048 bytes", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* Duroxide.empty("rust")
    const [summing, cancelled] = ["s", "c"].map((letter) => letter.repeat(2048)) as [string, string]
    for (const id of [summing, cancelled]) yield* insert(sql, "orchestrator_queue", startOf(id))
    const runtime = serving(Effect.succeed, () => Effect.void)
    yield* Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.send(Amounts, summing, 2)
      assert.strictEqual(yield* client.wait(Sum, summing), 42)
      yield* client.terminate(cancelled, "no longer needed")
      assert.strictEqual((yield* Effect.flip(client.wait(Sum, cancelled)))._tag, "InstanceCancelled")
      const statuses = yield* Effect.forEach([summing, cancelled], (id) => client.status(id))
      assert.deepStrictEqual(statuses.map(({ _tag }) => _tag), ["Completed", "Cancelled"])
    }).pipe(
      Effect.provide(
        runtime.pipe(
          Layer.merge(Client.layer),
          Layer.provideMerge(PrismaProvider.layer({ url, schema: "rust", migrate: "adopt" }))
        )
      ),
      silently
    )
  }))

it.live("adopt: a process of Duroxide that queues meanwhile leaves nothing without a route", () =>
  Effect.gen(function*() {
    const { sql, url, ...test } = yield* Duroxide.empty("rust")
    const rust = yield* session({ ...test, sql, url })
    yield* rust("COMMIT")
    let queued = 0
    const queueing = yield* Effect.gen(function*() {
      queued++
      yield* insert(rust, "worker_queue", call("Render", queued, null))
      yield* insert(rust, "orchestrator_queue", startOf(`rust-${queued}`))
    }).pipe(Effect.forever, Effect.forkScoped)
    yield* waitUntil(Effect.sync(() => queued > 10))
    yield* silently(Migrator.adopt({ url }))
    const adopted = queued
    yield* waitUntil(Effect.sync(() => queued > adopted + 10))
    yield* Fiber.interrupt(queueing)
    const routes = yield* sql(
      "SELECT DISTINCT route FROM worker_queue UNION SELECT DISTINCT route FROM orchestrator_queue ORDER BY route"
    )
    assert.deepStrictEqual(routes.map(({ route }) => route), ["- * Sum", "Render"])
  }))

it.live("adopt: a long queue is routed before the queues are locked", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* Duroxide.empty("rust")
    const queue = (table: string, count: number, row: object) =>
      sql(
        `INSERT INTO ${table} (${Object.keys(row).join(", ")}, visible_at, created_at)
         SELECT ${Object.keys(row).map((column) => `r.${column}`).join(", ")}, now(), now()
         FROM jsonb_populate_record(NULL::${table}, $1) AS r, generate_series(1, ${count})`,
        [JSON.stringify(row)]
      )
    yield* queue("worker_queue", 2500, call("Render", 1, null))
    yield* queue("orchestrator_queue", 2500, startOf("rust-sum"))
    const early = { QueueMessage: { instance: "unknown", name: "Amounts", data: "2" } }
    yield* queue("orchestrator_queue", 1500, { instance_id: "unknown", work_item: JSON.stringify(early) })
    yield* silently(Migrator.adopt({ url }))
    const routes = yield* sql(
      `SELECT route, count(*)::int AS rows, count(*) FILTER (WHERE route <> '' AND q.xmin = (
         SELECT xmin FROM _prisma_migrations WHERE migration_name LIKE '%create_triggers'
       ))::int AS locked
       FROM (SELECT route, xmin FROM worker_queue UNION ALL SELECT route, xmin FROM orchestrator_queue) AS q
       GROUP BY route ORDER BY route`
    )
    assert.deepStrictEqual(routes, [
      { route: "", rows: 1500, locked: 0 },
      { route: "- * Sum", rows: 2500, locked: 0 },
      { route: "Render", rows: 2500, locked: 0 }
    ])
  }))

it.live("adopt: the statuses of ended instances are set before a lock holds the turns of duroxide-pg", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* Duroxide.empty("rust")
    yield* sql(
      `INSERT INTO instances (instance_id, orchestration_name, orchestration_version, current_execution_id,
         created_at, updated_at)
       SELECT 'ended-' || n, 'Sum', '1.0.0', 1, now(), now() FROM generate_series(1, 2500) AS n`
    )
    yield* sql(
      `INSERT INTO executions (instance_id, execution_id, status, started_at)
       SELECT 'ended-' || n, 1, CASE WHEN n % 2 = 0 THEN 'Completed' ELSE 'Failed' END, now()
       FROM generate_series(1, 2500) AS n`
    )
    yield* silently(Migrator.adopt({ url }))
    assert.deepStrictEqual(
      yield* sql(
        `SELECT i.status, count(*)::int AS rows, count(*) FILTER (WHERE i.xmin IN (
           SELECT xmin FROM _prisma_migrations WHERE migration_name ~ 'create_(status_trigger|triggers)$'
         ))::int AS locked
         FROM instances AS i GROUP BY i.status ORDER BY i.status`
      ),
      [{ status: "Completed", rows: 1250, locked: 0 }, { status: "Failed", rows: 1250, locked: 0 }]
    )
  }))
