/**
 * Limits of orchestrations in PostgreSQL: by a random model, with many claims at once, and beside 100,000 starts of one
 * key.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as TestClock from "effect/testing/TestClock"
import * as fc from "fast-check"
import type { BoundRow } from "../../src/model/shared/limits.ts"
import * as Database from "../../src/prisma/Database.ts"
import * as PrismaAdmin from "../../src/prisma/PrismaAdmin.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import { AdminDriver } from "../../src/provider/AdminDriver.ts"
import { ProviderDriver } from "../../src/provider/ProviderDriver.ts"
import type { OrchestrationStart } from "../../src/provider/ProviderDriver.ts"
import * as Test from "../utils/driver.ts"
import * as model from "../utils/instanceLimitsModel.ts"
import * as PgServer from "../utils/PgServer.ts"

const bound = (concurrency: number): BoundRow => ({ concurrency, rate: null, rateMs: null, burst: null })

const limit = { kind: "orchestration", name: "Job", replaces: true } as const

const job = (instanceId: string, limitKey: string): OrchestrationStart => ({
  instanceId,
  orchestrationName: "Job",
  orchestrationVersion: "1.0.0",
  workItem: model.startOf(instanceId),
  pinnedVersion: { major: 1000, minor: 0, patch: 0 },
  delayMs: null,
  limitKey
})

const numbers = (count: number) => Array.from({ length: count }, (_, i) => i)

const claim = (driver: Test.Driver, limit: number) =>
  driver.fetchOrchestrationItems({ limit, lockTimeoutMs: 30_000, versions: null })

const end = (driver: Test.Driver, lockToken: string) =>
  driver.ackOrchestrationItems([{
    ...model.nothing,
    lockToken,
    executionId: 1,
    status: "Completed",
    orchestrationName: "Job",
    orchestrationVersion: "1.0.0"
  }])

it.effect(
  "limits of orchestrations: none is exceeded, and all slots come back, in random sequences",
  () =>
    Effect.gen(function*() {
      yield* TestClock.setTime(Date.UTC(2030, 0, 1))
      const { schema, sql, url } = yield* PgServer.database
      const context = yield* Layer.build(
        PrismaAdmin.layer({ clock: "effect" }).pipe(
          Layer.provideMerge(PrismaDriver.layer({ clock: "effect" })),
          Layer.provide(Database.layer({ url, schema }))
        )
      )
      const store = { driver: Context.get(context, ProviderDriver), admin: Context.get(context, AdminDriver) }
      const run = Effect.runPromiseWith(yield* Effect.context<never>())
      const clear = ["limits", "limit_keys", "orchestrator_queue", "instance_locks", "executions", "instances"]
        .map((table) => `DELETE FROM ${table}`).join(";")
      const result = yield* Effect.promise(() =>
        fc.check(
          fc.asyncProperty(model.steps, (steps) => run(Effect.andThen(sql(clear), model.play(store, steps)))),
          { numRuns: 40 }
        )
      )
      if (result.failed) {
        assert.fail(
          `${String(result.errorInstance)}\nseed ${result.seed}\n${JSON.stringify(result.counterexample?.[0])}`
        )
      }
    })
)

describe("limits of orchestrations:", () => {
  it.live("a due start gets its slot although those of 1,100 keys start later", () =>
    Effect.gen(function*() {
      const { admin, driver } = yield* Test.open({ patient: true })
      yield* admin.setLimit({ ...limit, changes: { total: bound(10), eachKey: bound(1) } })
      yield* driver.startOrchestrations(
        numbers(1100).map((id) => ({ ...job(`later-${id}`, `k${id}`), delayMs: 3_600_000 }))
      )
      yield* driver.startOrchestrations(["z", "zz"].map((id) => job(id, id)))
      const claimed = [...yield* claim(driver, 10), ...yield* claim(driver, 10)]
      assert.sameMembers(claimed.map(({ instanceId }) => instanceId), ["z", "zz"])
    }))

  it.live("a start that waits is cancelled at once, however many messages have come with the cancellation", () =>
    Effect.gen(function*() {
      const { admin, driver, sql } = yield* Test.open()
      yield* admin.setLimit({ ...limit, changes: { total: bound(1) } })
      yield* driver.startOrchestrations(["a", "b", "c"].map((id) => job(id, "k")))
      assert.deepStrictEqual((yield* claim(driver, 10)).map(({ instanceId }) => instanceId), ["a"])
      // As Duroxide sends them, and as they are where no claim has met them.
      yield* sql(
        `INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
         SELECT i.id, format('{"QueueMessage":{"instance":"%s","name":"Go","data":"null"}}', i.id), now(), now()
         FROM (VALUES ('b'), ('c')) AS i (id), generate_series(1, 6);
         INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
         VALUES ('b', '{"CancelInstance":{"instance":"b","reason":"test"}}', now(), now())`
      )
      const claimed = yield* claim(driver, 10)
      assert.deepStrictEqual(
        claimed.map(({ instanceId, messages }) => ({ instanceId, messages: messages.length })),
        [{ instanceId: "b", messages: 8 }]
      )
      assert.lengthOf(yield* claim(driver, 10), 0)
      // Those of the other one wait with it, out of the way of claims.
      const waiting = yield* sql<{ n: number }>(
        "SELECT count(*)::int AS n FROM orchestrator_queue WHERE instance_id = 'c' AND starts_with(route, '~')"
      )
      assert.deepStrictEqual(waiting, [{ n: 7 }])
    }))

  it.live("a claim says when a token of a rate is back, of all keys or of the key that waits", () =>
    Effect.gen(function*() {
      const { admin, driver, sql } = yield* Test.open()
      const rate: BoundRow = { concurrency: null, rate: 1, rateMs: 3_600_000, burst: 1 }
      for (const changes of [{ total: rate }, { total: null, eachKey: rate }]) {
        yield* admin.setLimit({ ...limit, changes })
        yield* driver.startOrchestrations(["a", "b"].map((id) => job(id, "k")))
        for (const ids of [["a"], []]) {
          const times: Array<number> = []
          const claimed = yield* driver.fetchOrchestrationItems({
            limit: 10,
            lockTimeoutMs: 30_000,
            versions: null,
            onLocked: () => assert.fail("no transaction has locked any"),
            onNext: (timeMs) => void times.push(timeMs)
          })
          assert.deepStrictEqual(claimed.map(({ instanceId }) => instanceId), ids)
          const [row] = yield* sql<{ next: string }>("SELECT next_ms AS next FROM limits")
          assert.deepStrictEqual(times, [Number(row!.next)])
        }
        yield* sql(
          "DELETE FROM orchestrator_queue; DELETE FROM instance_locks; DELETE FROM executions; DELETE FROM instances"
        )
      }
    }))

  it.live("a claim without a limit, or of which none waits for a token, says no time", () =>
    Effect.gen(function*() {
      const { admin, driver } = yield* Test.open()
      const claimedIds = Effect.map(
        driver.fetchOrchestrationItems({
          limit: 10,
          lockTimeoutMs: 30_000,
          versions: null,
          onNext: () => assert.fail("none waits for a token")
        }),
        (claimed) => claimed.map(({ instanceId }) => instanceId)
      )
      yield* driver.startOrchestrations([job("free", "k")])
      assert.deepStrictEqual(yield* claimedIds, ["free"])
      yield* admin.setLimit({ ...limit, changes: { total: bound(2) } })
      yield* driver.startOrchestrations([job("a", "k"), job("b", "k")])
      assert.deepStrictEqual(yield* claimedIds, ["a"])
    }))

  it.live(
    "eight processes that claim at once exceed neither the bound of all nor that of a key",
    () =>
      Effect.gen(function*() {
        const { admin, driver } = yield* Test.open({ maxConnections: 9, patient: true })
        yield* admin.setLimit({ ...limit, changes: { total: bound(5), eachKey: bound(2) } })
        const keyOf = (id: number) => `k${id % 4}`
        yield* driver.startOrchestrations(numbers(200).map((id) => job(`${id}`, keyOf(id))))
        const running = new Map<string, string>()
        let [most, mostOfKey, done] = [0, 0, 0]
        const worker = Effect.gen(function*() {
          while (done < 200) {
            const claimed = yield* claim(driver, 3)
            for (const { instanceId } of claimed) running.set(instanceId, keyOf(Number(instanceId)))
            most = Math.max(most, running.size)
            for (const key of running.values()) {
              mostOfKey = Math.max(mostOfKey, [...running.values()].filter((one) => one === key).length)
            }
            yield* Effect.sleep("2 millis")
            for (const { instanceId, lockToken } of claimed) {
              running.delete(instanceId)
              yield* end(driver, lockToken)
              done++
            }
          }
        })
        yield* Effect.all(numbers(8).map(() => worker), { concurrency: "unbounded" })
        assert.isAtMost(most, 5)
        assert.isAbove(most, 2)
        assert.isAtMost(mostOfKey, 2)
        const [found] = yield* admin.readLimits({ of: limit, key: null, mostKeys: 1 })
        assert.deepInclude(found, { inUse: 0, waiting: 0 })
      })
  )

  it.live(
    "one start of a key comes after one of each other key, however many of these wait",
    () =>
      Effect.gen(function*() {
        const { admin, driver, url } = yield* Test.open()
        yield* admin.setLimit({ ...limit, changes: { total: bound(10) } })
        yield* Effect.forEach(
          numbers(100),
          (part) => driver.startOrchestrations(numbers(1_000).map((n) => job(`big${part}-${n}`, "big"))),
          { discard: true }
        )
        yield* driver.startOrchestrations(numbers(20).map((n) => job(`small${n}`, `small${n}`)))
        const order: Array<string> = []
        while (order.filter((id) => id.startsWith("small")).length < 20) {
          assert.isBelow(order.length, 100)
          for (const { instanceId, lockToken } of yield* claim(driver, 1)) {
            order.push(instanceId)
            yield* end(driver, lockToken)
          }
        }
        // The ten that began at once, and one of each of 21 keys.
        assert.isAtMost(order.length, 31)

        // A claim reads little of what waits.
        const session = yield* PgServer.connect(url)
        const query = (text: string) => Effect.promise(() => session.query<Record<string, number>>(text))
        yield* query("BEGIN")
        const { rows } = yield* query(
          "SELECT FROM dx_fetch_orchestration_items(10, 30000, NULL, NULL) WHERE out_lock_token IS NOT NULL"
        )
        assert.lengthOf(rows, 10)
        const [read] = (yield* query(
          "SELECT pg_stat_get_xact_tuples_fetched('instances'::regclass)::int AS fetched"
        )).rows
        yield* query("ROLLBACK")
        assert.isBelow(read!["fetched"]!, 1_000)
      })
  )

  it.live("transactions that give slots at once and have not committed leave room for each other", () =>
    Effect.gen(function*() {
      const { admin, sql, url } = yield* Test.open()
      const most = 1300
      yield* admin.setLimit({ ...limit, changes: { total: bound(most) } })
      const sessions = yield* Effect.forEach(numbers(6), () => PgServer.connect(url))
      let started = 0
      for (let round = 0; round < 4; round++) {
        for (const session of sessions) {
          const from = started++ * 200
          yield* Effect.promise(() => session.query("BEGIN"))
          yield* Effect.promise(() =>
            session.query(
              `SELECT dx_start_orchestrations(jsonb_agg(jsonb_build_object(
                 'instance_id', 'i' || g, 'orchestration_name', 'Job', 'work_item', '{}',
                 'major', 1000, 'minor', 0, 'patch', 0
               ))) FROM generate_series(${from}, ${from + 199}) AS g`
            )
          )
        }
        yield* Effect.forEach(sessions, (session) => Effect.promise(() => session.query("COMMIT")))
      }
      const [row] = yield* sql<{ slots: number; waiting: number }>(
        `SELECT count(*) FILTER (WHERE limit_route IS NULL)::int AS slots,
           count(*) FILTER (WHERE limit_route IS NOT NULL)::int AS waiting FROM instances`
      )
      assert.strictEqual(row!.slots + row!.waiting, started * 200)
      assert.isAbove(row!.slots, 0)
      assert.isAtMost(row!.slots, most)
    }))

  it.live("an instance that any program deletes or ends is announced where another one waits", () =>
    Effect.gen(function*() {
      const { admin, driver, sql, url } = yield* Test.open()
      yield* admin.setLimit({ ...limit, changes: { total: bound(1) } })
      yield* driver.startOrchestrations(["a", "b", "c"].map((id) => job(id, "k")))
      assert.deepStrictEqual((yield* claim(driver, 3)).map(({ instanceId }) => instanceId), ["a"])
      const session = yield* PgServer.connect(url)
      const heard: Array<string> = []
      session.on("notification", ({ channel }) => heard.push(channel))
      yield* Effect.promise(() => session.query("LISTEN \"public_orch_work\""))
      yield* sql("DELETE FROM executions WHERE instance_id = 'a'; DELETE FROM instances WHERE instance_id = 'a'")
      yield* Effect.promise(() => session.query("SELECT 1"))
      assert.deepStrictEqual(heard, ["public_orch_work"])
      assert.deepStrictEqual((yield* claim(driver, 3)).map(({ instanceId }) => instanceId), ["b"])
      yield* sql("UPDATE instances SET status = 'Failed' WHERE instance_id = 'b'")
      yield* Effect.promise(() => session.query("SELECT 1"))
      assert.lengthOf(heard, 2)
      assert.deepStrictEqual((yield* claim(driver, 3)).map(({ instanceId }) => instanceId), ["c"])
      // No other one waits.
      yield* sql("UPDATE instances SET status = 'Failed' WHERE instance_id = 'c'")
      yield* Effect.promise(() => session.query("SELECT 1"))
      assert.lengthOf(heard, 2)
    }))

  it.live("what a statement parks while its limit is removed is released by the next claim", () =>
    Effect.gen(function*() {
      const { admin, driver, sql } = yield* Test.open()
      yield* admin.setLimit({ ...limit, changes: { total: bound(1) } })
      yield* driver.startOrchestrations(numbers(3).map((id) => job(`${id}`, "a")))
      yield* sql("DELETE FROM limits")
      assert.lengthOf(yield* claim(driver, 5), 3)
    }))

  it.live("without a limit of orchestrations, starts and claims read no row of limits", () =>
    Effect.gen(function*() {
      const { admin, sql, url } = yield* Test.open()
      yield* admin.setLimit({ ...limit, kind: "activity", changes: { total: bound(1) } })
      yield* sql("SELECT")
      const session = yield* PgServer.connect(url)
      const query = (text: string) => Effect.promise(() => session.query<Record<string, number>>(text))
      yield* query("BEGIN")
      yield* query(`SELECT dx_start_orchestrations('[
        {"instance_id":"a","orchestration_name":"Job","work_item":"{}","major":1000,"minor":0,"patch":0,"limit_key":"k"}
      ]')`)
      yield* query("SELECT FROM dx_fetch_orchestration_items(10, 30000, NULL, NULL)")
      const [read] = (yield* query(
        `SELECT (pg_stat_get_xact_tuples_returned('limits'::regclass)
           + pg_stat_get_xact_tuples_fetched('limits'::regclass))::int AS rows`
      )).rows
      yield* query("ROLLBACK")
      assert.strictEqual(read!["rows"], 0)
    }))
})
