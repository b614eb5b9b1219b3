import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration, Retention, Runtime } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import { replayHistory } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as References from "effect/References"
import * as Schema from "effect/Schema"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const Part = Orchestration.make("Part", { payload: Schema.Boolean })
const Work = Orchestration.make("Work", {
  payload: Schema.Struct({ fails: Schema.Boolean, hangs: Schema.Boolean }),
  error: Schema.String
})

const Pair = Orchestration.make("Pair")

const handlers = Layer.mergeAll(
  Part.toLayer((hangs) => hangs ? Effect.never : Effect.void),
  Pair.toLayer(() => Part.execute(false)),
  Work.toLayer(Effect.fn(function*({ fails, hangs }) {
    yield* Part.startDetached({ instanceId: `${(yield* Orchestration.Instance).instanceId} detached`, payload: false })
    if (hangs) yield* Effect.sleep("1 hour")
    yield* Part.execute(false)
    if (fails) return yield* Effect.fail("broken")
  }))
)

const application = (
  url: string,
  retention: Layer.Layer<never>,
  loggers: Array<Logger.Logger<unknown, unknown>> = []
) =>
  Runtime.layer({ orchestrations: [Work, Part, Pair] }).pipe(
    Layer.provide([handlers, retention]),
    Layer.provideMerge(Client.layer),
    Layer.provideMerge(PrismaProvider.layer({ url })),
    Layer.provideMerge(Logger.layer(loggers))
  )

const start = (instanceId: string, payload: { readonly fails: boolean; readonly hangs: boolean }) =>
  Effect.flatMap(Client.Client, (client) => client.start(Work, { instanceId, payload }))

const ended = (...ids: ReadonlyArray<string>) =>
  Effect.flatMap(Client.Client, (client) => Effect.forEach(ids, (id) => Effect.exit(client.wait(Work, id))))

const idsOf = Effect.flatMap(
  Admin.Admin,
  ({ list }) => Effect.map(list({ orderBy: "id" }), ({ instances }) => instances.map(({ instanceId }) => instanceId))
)

describe.concurrent("retention", () => {
  it.live("deletes whole trees of ended instances by their status, and leaves others alone", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const setUp = Effect.gen(function*() {
        for (const id of ["done", "new"]) yield* start(id, { fails: false, hangs: false })
        yield* start("failed", { fails: true, hangs: false })
        yield* start("running", { fails: false, hangs: true })
        yield* ended("done", "new", "failed")
      })
      yield* Effect.provide(setUp, application(url, Retention.layer("off")))
      const before = yield* sql<{ id: string }>("SELECT instance_id AS id FROM instances ORDER BY 1")
      assert.lengthOf(before, 11)
      // Ended long ago; one of them belongs to Duroxide.
      yield* sql("UPDATE executions SET completed_at = now() - interval '31 days' WHERE instance_id NOT LIKE 'new%'")
      yield* sql("UPDATE instances SET created_at = now() - interval '32 days' WHERE instance_id NOT LIKE 'new%'")
      yield* sql(
        `UPDATE executions SET duroxide_version_major = 0, duroxide_version_minor = 1 WHERE instance_id = 'running detached'`
      )
      yield* Effect.gen(function*() {
        yield* waitUntil(Effect.map(idsOf, (ids) => ids.length === 7))
        const ids = yield* idsOf
        assert.deepStrictEqual(
          ids.filter((id) => !id.includes("::")),
          ["failed", "new", "new detached", "running", "running detached"]
        )
      }).pipe(Effect.provide(application(url, Retention.layer({ interval: "50 millis", failed: "forever" }))))
    }))

  it.live.each([false, true])(
    "keeps a tree while one of its instances runs, and passes by it (exports: %s)",
    (exports) =>
      Effect.gen(function*() {
        const { sql, url } = yield* PgServer.database
        const lines: Array<string> = []
        const many = Array.from({ length: 105 }, (_, n) => `kept-${n}`)
        const setUp = Effect.gen(function*() {
          const client = yield* Client.Client
          yield* Effect.forEach(many, (instanceId) => client.execute(Pair, { instanceId }), { concurrency: 20 })
          yield* client.execute(Pair, { instanceId: "last" })
        })
        yield* Effect.provide(setUp, application(url, Retention.layer("off")))
        yield* sql("UPDATE executions SET status = 'Running', completed_at = NULL WHERE instance_id LIKE 'kept%::%'")
        const retention = Retention.layer({
          completed: 0,
          interval: "50 millis",
          ...(exports && { export: (given: ReadonlyArray<string>) => Effect.sync(() => void lines.push(...given)) })
        })
        yield* Effect.gen(function*() {
          // More than a batch of trees that stay comes before it.
          yield* waitUntil(
            Effect.map(sql("SELECT FROM instances WHERE instance_id = 'last'"), (rows) => rows.length === 0)
          )
          const [row] = yield* sql<{ count: number }>(
            "SELECT count(*)::int AS count FROM instances WHERE instance_id LIKE 'kept%'"
          )
          assert.strictEqual(row!.count, 2 * many.length)
          assert.deepStrictEqual(lines.filter((line) => /"instanceId":"kept-\d+"/.test(line)), [])
        }).pipe(Effect.provide(application(url, retention)))
      }),
    // Trees that stay are tried one by one, and a pause of four times as long follows.
    600_000
  )

  it.live("a process that keeps all does not keep others from deleting", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      yield* Effect.gen(function*() {
        yield* start("done", { fails: false, hangs: false })
        yield* ended("done")
        yield* Layer.build(application(url, Retention.layer({ completed: 0, interval: "50 millis" })))
        yield* waitUntil(Effect.map(idsOf, (ids) => ids.length === 0))
      }).pipe(Effect.scoped, Effect.provide(application(url, Retention.layer("off"))))
    }))

  it.live("deletes nothing that has changed while the export was under way", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const exporting = yield* Latch.make()
      const exported = yield* Latch.make()
      const lines: Array<string> = []
      const retention = Retention.layer({
        completed: 0,
        failed: 0,
        interval: "50 millis",
        export: (given) =>
          Effect.gen(function*() {
            yield* exporting.open
            yield* exported.await
            lines.push(...given)
          })
      })
      const setUp = Effect.gen(function*() {
        for (const id of ["same", "reused"]) yield* start(id, { fails: false, hangs: false })
        yield* ended("same", "reused")
      })
      yield* Effect.provide(setUp, application(url, Retention.layer("off")))
      yield* Effect.gen(function*() {
        const admin = yield* Admin.Admin
        yield* exporting.await
        yield* admin.deleteInstance("reused")
        yield* start("reused", { fails: true, hangs: false })
        yield* ended("reused")
        yield* exported.open
        const [row] = yield* sql<{ created: Date }>(
          "SELECT created_at AS created FROM instances WHERE instance_id = 'reused'"
        )
        yield* waitUntil(Effect.map(idsOf, (ids) => ids.length === 0))
        // The second one of this id was exported, too, before it was deleted.
        const ofReused = lines.map((line) => JSON.parse(line)).filter(({ instanceId }) => instanceId === "reused")
        assert.deepStrictEqual(ofReused.map(({ status }) => status), ["Completed", "Failed"])
        assert.strictEqual(ofReused[1].createdAtMs, row!.created.getTime())
        assert.isTrue(lines.some((line) => line.includes("\"instanceId\":\"same\"")))
      }).pipe(Effect.provide(application(url, retention)))
    }))

  it.live("an instance that cannot be read stays, and the others are exported and deleted", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const lines: Array<string> = []
      const retention = Retention.layer({
        completed: 0,
        interval: "50 millis",
        export: (given) => Effect.sync(() => void lines.push(...given))
      })
      const setUp = Effect.gen(function*() {
        for (const id of ["broken", "whole"]) yield* start(id, { fails: false, hangs: false })
        yield* ended("broken", "whole")
      })
      yield* Effect.provide(setUp, application(url, Retention.layer("off")))
      yield* sql("UPDATE history SET event_data = '{}' WHERE instance_id = 'broken' AND event_id = 2")
      yield* Effect.gen(function*() {
        yield* waitUntil(Effect.map(idsOf, (ids) => !ids.includes("whole")))
        assert.include(yield* idsOf, "broken")
        assert.isFalse(lines.some((line) => line.includes("\"instanceId\":\"broken\"")))
      }).pipe(Effect.provide(application(url, retention)))
    }))

  it.live("says which trees the store does not delete, and deletes the others", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const logs: Array<Record<string, unknown>> = []
      const logger = Logger.make(({ fiber, message }) => {
        logs.push({ ...fiber.getRef(References.CurrentLogAnnotations), message: String(message) })
      })
      const ids = ["held-1", "held-2", "free"]
      const setUp = Effect.gen(function*() {
        for (const id of ids) yield* start(id, { fails: false, hangs: false })
        yield* ended(...ids)
      })
      yield* Effect.provide(setUp, application(url, Retention.layer("off")))
      yield* sql(
        `CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN RAISE 'held by the test' USING ERRCODE = '23503'; END $$`
      )
      yield* sql(
        `CREATE TRIGGER hold BEFORE DELETE ON history
         FOR EACH ROW WHEN (OLD.instance_id IN ('held-1', 'held-2')) EXECUTE FUNCTION hold()`
      )
      yield* Effect.gen(function*() {
        yield* waitUntil(Effect.map(idsOf, (ids) => !ids.includes("free")))
        yield* waitUntil(Effect.sync(() => logs.some(({ failed }) => failed === 2)))
        const warning = logs.find(({ failed }) => failed === 2)!
        assert.match(String(warning.message), /^Retention: some trees could not be deleted/)
        assert.strictEqual(warning.instance_id, "held-1")
        assert.includeMembers(yield* idsOf, ["held-1", "held-2"])
      }).pipe(Effect.provide(application(url, Retention.layer({ completed: 0, interval: "50 millis" }), [logger])))
    }))

  it.live("exports what it deletes, and deletes nothing that it could not export", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const lines: Array<string> = []
      let calls = 0
      const retention = Retention.layer({
        completed: 0,
        interval: "50 millis",
        export: (given) =>
          Effect.suspend(() => {
            if (calls++ < 2) return Effect.fail("the disk is full")
            lines.push(...given)
            return Effect.void
          })
      })
      yield* Effect.gen(function*() {
        const payload = { fails: false, hangs: false }
        const attributes = { amount: 12, customer: "c1", due: new Date(0) }
        yield* (yield* Client.Client).start(Work, { instanceId: "one", payload, attributes })
        yield* ended("one")
        yield* waitUntil(Effect.map(idsOf, (ids) => ids.length === 0))
      }).pipe(Effect.provide(application(url, retention)))
      assert.isAtLeast(calls, 3)
      assert.deepStrictEqual(yield* sql("SELECT FROM history"), [])
      const exported = lines.map((line) => JSON.parse(line))
      const one = exported.find(({ instanceId }) => instanceId === "one")
      assert.deepInclude(one, { orchestrationName: "Work", status: "Completed" })
      assert.deepStrictEqual(one.attributes, { amount: 12, customer: "c1", due: "1970-01-01T00:00:00.000Z" })
      assert.deepStrictEqual(yield* sql("SELECT FROM attributes"), [])
      assert.includeMembers(exported.map(({ parentInstanceId }) => parentInstanceId), ["one", null])
      yield* Effect.provide(replayHistory(Work, one.history), handlers)
    }))

  it("refuses what is not a duration", () => {
    for (const options of [{ completed: -1 }, { failed: "soon" as never }, { interval: 0 }]) {
      assert.throws(() => Retention.layer(options), /^Retention: (completed|failed|interval) must be a duration/)
    }
  })
})
