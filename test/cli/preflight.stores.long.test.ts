/**
 * `preflight` on stores that differ from what one process of the same release leaves.
 */
import { assert, it } from "@effect/vitest"
import { Client, Runtime } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import changed from "./releases/changed.ts"
import { Approved, CheckFraud, Decline, Fulfil, Meter } from "./releases/definitions.ts"
import * as Shops from "./releases/store.ts"

const fits = { exitCode: 0, error: undefined }

it.layer(PgServer.layer, { excludeTestServices: true })("preflight", (it) => {
  it.effect("an event that this release cannot read: the data are unreadable, the other instances are replayed", () =>
    Effect.gen(function*() {
      const store = yield* Shops.make
      yield* store.sql(
        `UPDATE history SET event_data = '{"type":"LaterKind","event_id":3}' WHERE instance_id = 'order-2' AND event_id = 3`
      )
      const { exitCode, report } = yield* Shops.preflightJson(store, "matching")
      assert.strictEqual(exitCode, 5)
      assert.deepInclude(report, { replayed: 6, wouldBlock: 1 })
      assert.deepInclude(report.findings[0], { reason: "DataUnreadable", diff: [], instances: 1 })
      assert.deepStrictEqual(report.findings[0].examples, [{ instanceId: "order-2", executionId: 1, eventId: null }])
    }))

  it.effect("values of ended executions: they lead the way, also when their executions were pruned", () =>
    Effect.gen(function*() {
      const store = yield* Shops.make
      assert.deepInclude(yield* Shops.preflightJson(store, "matching", "--id meter-1"), fits)
      yield* Effect.flatMap(Admin.Admin, (admin) => admin.pruneExecutions("meter-1", {})).pipe(
        Effect.provide(Shops.services(store.url)),
        Effect.orDie
      )
      assert.lengthOf(yield* store.sql("SELECT FROM executions WHERE instance_id = 'meter-1'"), 1)
      assert.deepInclude(yield* Shops.preflightJson(store, "matching", "--id meter-1"), fits)
    }))

  it.effect("instances that wait for a retry, or are forks: their histories are cut, and fit", () =>
    Effect.gen(function*() {
      const store = yield* PgServer.database
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* Effect.flip(client.execute(Decline, { instanceId: "declined" }))
      }).pipe(Effect.provide(Shops.application(store.url)), Effect.orDie)
      yield* Effect.gen(function*() {
        const admin = yield* Admin.Admin
        yield* admin.fork("declined", { atEvent: 3, newId: "fork" })
        yield* admin.retry("declined", { from: 3 })
      }).pipe(Effect.provide(Shops.services(store.url)), Effect.orDie)
      const { report, ...rest } = yield* Shops.preflightJson(store, "matching")
      assert.deepStrictEqual(rest, fits)
      assert.deepInclude(report, { running: 2, replayed: 2 })
    }))

  it.effect("a finding is what blocks the instance once the release is deployed; then it counts as blocked already", () =>
    Effect.gen(function*() {
      const store = yield* Shops.make
      const before = yield* Shops.preflightJson(store, "changed", "--id order-1")
      const block = yield* Effect.gen(function*() {
        const client = yield* Client.Client
        const admin = yield* Admin.Admin
        yield* client.send(Approved, "order-1")
        yield* waitUntil(Effect.map(admin.getInstanceInfo("order-1"), ({ block }) => block !== null))
        return (yield* admin.getInstanceInfo("order-1")).block!
      }).pipe(
        Effect.provide(
          Runtime.layer({ orchestrations: [Fulfil, Meter], activities: [CheckFraud] }).pipe(
            Layer.provide([...changed, CheckFraud.toLayer(() => Effect.void)]),
            Layer.provideMerge(Shops.services(store.url))
          )
        ),
        Effect.orDie
      )
      assert.deepInclude(before.report.findings[0], { reason: block.reason, problem: block.problem })
      assert.strictEqual(before.report.findings[0].examples[0].eventId, block.eventId)
      const { stdout } = yield* Shops.preflight(store, "changed")
      assert.include(stdout, "Fulfil 1.0.0: 5 instances would block, 1 of them blocked already\n")
      assert.deepInclude(yield* Shops.preflightJson(store, "matching"), fits)
      assert.include((yield* Shops.preflight(store, "matching")).stdout, "6 replayed, 6 fit (1 blocked now), 0 would")
    }))

  it.effect("instances that Duroxide runs are left out; so are those that have ended", () =>
    Effect.gen(function*() {
      const store = yield* Shops.make
      yield* store.sql("UPDATE executions SET duroxide_version_major = 0 WHERE instance_id = 'order-1'")
      yield* store.sql("UPDATE executions SET status = 'Completed' WHERE instance_id = 'order-2'")
      assert.deepInclude((yield* Shops.preflightJson(store, "changed")).report, { running: 4, wouldBlock: 3 })
      assert.deepInclude(yield* Shops.preflight(store, "changed", "--id order-2"), {
        exitCode: 1,
        stderr: "error: instance order-2 has ended: no code has to continue it\n"
      })
    }))

  it.effect("an instance that has not begun has nothing to replay", () =>
    Effect.gen(function*() {
      const store = yield* PgServer.database
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Meter, { instanceId: "meter-2", payload: 1 })
      }).pipe(Effect.provide(Shops.services(store.url)), Effect.orDie)
      const { report, ...rest } = yield* Shops.preflightJson(store, "matching")
      assert.deepStrictEqual(rest, fits)
      assert.strictEqual(report.replayed, 0)
      assert.deepInclude(report, { running: 1, notBegun: 1 })
    }))

  it.effect("more instances than a page: each is replayed once, and the same findings are one", () =>
    Effect.gen(function*() {
      const store = yield* Shops.make
      for (
        const [table, columns] of [
          ["instances", "orchestration_name, orchestration_version, current_execution_id, created_at, updated_at"],
          [
            "executions",
            "execution_id, status, started_at, duroxide_version_major, duroxide_version_minor, duroxide_version_patch"
          ],
          ["history", "execution_id, event_id, event_type, event_data, created_at"]
        ]
      ) {
        yield* store.sql(`
          INSERT INTO ${table} (instance_id, ${columns})
          SELECT 'copy-' || n, ${columns} FROM ${table}, generate_series(1, 2500) AS n WHERE instance_id = 'order-1'
        `)
      }
      const { report } = yield* Shops.preflightJson(store, "changed")
      assert.deepInclude(report, { running: 2506, replayed: 2506, wouldBlock: 2505 })
      assert.lengthOf(report.findings, 1)
      assert.deepStrictEqual([report.findings[0].instances, report.findings[0].examples.length], [2505, 3])
    }))

  it.effect("instances that continue meanwhile: none is reported", () =>
    Effect.gen(function*() {
      const store = yield* PgServer.database
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        for (const instanceId of Shops.orders) {
          yield* client.start(Fulfil, { instanceId, payload: { card: Shops.card, lines: 150 } })
        }
        const replayed = new Array<number>()
        const isRunning = yield* Effect.forkChild(
          waitUntil(Effect.map(
            store.sql("SELECT FROM history WHERE event_type = 'ExternalSubscribedPersistent'"),
            (rows) => rows.length === Shops.orders.length
          ))
        )
        while (isRunning.pollUnsafe() === undefined) {
          const { report, ...rest } = yield* Shops.preflightJson(store, "matching")
          assert.deepStrictEqual(rest, fits, JSON.stringify(report))
          replayed.push(report.replayed)
        }
        assert.include(replayed, Shops.orders.length)
      }).pipe(Effect.provide(Shops.application(store.url)), Effect.orDie)
    }))
})
