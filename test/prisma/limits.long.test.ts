/**
 * Limits in PostgreSQL: by a random model, with many claims at once, and beside 100,000 activities of one key.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as TestClock from "effect/testing/TestClock"
import * as fc from "fast-check"
import type { BoundRow, EncodedChanges } from "../../src/model/shared/limits.ts"
import * as Database from "../../src/prisma/Database.ts"
import * as PrismaAdmin from "../../src/prisma/PrismaAdmin.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import { AdminDriver } from "../../src/provider/AdminDriver.ts"
import { ProviderDriver } from "../../src/provider/ProviderDriver.ts"
import type { EncodedActivity } from "../../src/provider/ProviderDriver.ts"
import * as Test from "../utils/driver.ts"
import * as model from "../utils/limitsModel.ts"
import * as PgServer from "../utils/PgServer.ts"

const bound = (concurrency: number | null): BoundRow => ({ concurrency, rate: null, rateMs: null, burst: null })

const charge = (id: number, limitKey: string): EncodedActivity => ({
  workItem: `${id}`,
  name: "Charge",
  instanceId: `i${id}`,
  executionId: 1,
  activityId: id,
  sessionId: null,
  tag: null,
  limitKey
})

const numbers = (count: number) => Array.from({ length: count }, (_, i) => i)

it.effect(
  "limits: none is exceeded, keys take turns, and all slots come back, in random sequences",
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
      const clear = ["limits", "limit_keys", "worker_queue", "orchestrator_queue", "instance_locks", "executions"]
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

describe("limits:", () => {
  it.live(
    "eight processes that claim at once exceed neither the bound of all nor that of a key",
    () =>
      Effect.gen(function*() {
        const { admin, driver } = yield* Test.open({ maxConnections: 9, patient: true })
        yield* admin.setLimit({
          kind: "activity",
          name: "Charge",
          changes: { total: bound(5), eachKey: bound(2) },
          replaces: true
        })
        const keyOf = (id: number) => `k${id % 4}`
        yield* driver.enqueueForWorker(numbers(300).map((id) => charge(id, keyOf(id))))
        const running = new Map<number, string>()
        let [most, mostOfKey, done] = [0, 0, 0]
        const worker = Effect.gen(function*() {
          while (done < 300) {
            const claimed = yield* Test.take(driver, { limit: 3 })
            for (const { workItem } of claimed) running.set(Number(workItem), keyOf(Number(workItem)))
            most = Math.max(most, running.size)
            for (const key of ["k0", "k1", "k2", "k3"]) {
              mostOfKey = Math.max(mostOfKey, [...running.values()].filter((one) => one === key).length)
            }
            yield* Effect.yieldNow
            // Before the slot can be given to another one.
            for (const { workItem } of claimed) running.delete(Number(workItem))
            yield* driver.ackWorkItems(claimed.map(({ lockToken }) => ({ lockToken, completion: null })))
            done += claimed.length
          }
        })
        yield* Effect.all(numbers(8).map(() => worker), { concurrency: "unbounded" })
        assert.strictEqual(done, 300)
        assert.isAtMost(most, 5)
        assert.isAtMost(mostOfKey, 2)
        assert.isAtLeast(most, 3, "the claims were not at once: the test showed nothing")
      })
  )

  it.live("statements that give slots at once, side by side, stay below the bound", () =>
    Effect.gen(function*() {
      const { admin, driver, sql } = yield* Test.open({ maxConnections: 17, patient: true })
      const most = 1300
      yield* admin.setLimit({ kind: "activity", name: "Charge", changes: { total: bound(most) }, replaces: true })
      // Each stores turns whose activities none of them ends.
      yield* Effect.forEach(numbers(100), (turn) =>
        Effect.gen(function*() {
          const instanceId = `i${turn}`
          yield* driver.enqueueForOrchestrator([Test.message(instanceId)])
          // Of any instance. One that looked before another stored its message may find none.
          const claimed = yield* Effect.repeat(
            driver.fetchOrchestrationItems({ limit: 1, lockTimeoutMs: 30_000, versions: null, orphans: true }),
            { until: ({ length }) => length > 0 }
          )
          yield* driver.ackOrchestrationItems(claimed.map(({ lockToken }) => ({
            ...Test.turn(lockToken),
            executionId: 1,
            workerItems: numbers(20).map((n) => ({ ...charge(turn * 20 + n, "a"), instanceId }))
          })))
        }), { concurrency: 16, discard: true })
      const [limit] = yield* admin.readLimits({ of: { kind: "activity", name: "Charge" }, key: null, mostKeys: 1 })
      assert.strictEqual(limit!.inUse + limit!.waiting, 2000)
      assert.isAbove(limit!.inUse, 0, "none was admitted at once: the test showed nothing")
      assert.isAtMost(limit!.inUse, most)
      // Claims fill the rest.
      while ((yield* Test.take(driver, { limit: 100 })).length > 0);
      const [row] = yield* sql<{ locked: number }>(
        "SELECT count(*)::int AS locked FROM worker_queue WHERE lock_token IS NOT NULL"
      )
      assert.strictEqual(row!.locked, most)
    }))

  it.live.each<[what: string, most: number, changes: EncodedChanges]>([
    ["of 3,000", 3000, { total: bound(3000) }],
    ["of 100", 100, { total: bound(100) }],
    ["of 40 of each key", 40, { total: bound(1300), eachKey: bound(40) }],
    ["of 8 of one key", 8, { eachKey: bound(1300), keys: { a: bound(8) } }],
    ["of 1", 1, { total: bound(1) }]
  ])(
    "transactions that give slots %s at once and have not committed leave room for each other",
    ([, most, changes]) =>
      Effect.gen(function*() {
        const { admin, sql, url } = yield* Test.open()
        yield* admin.setLimit({ kind: "activity", name: "Charge", changes, replaces: true })
        const sessions = yield* Effect.forEach(numbers(6), () => PgServer.connect(url))
        type Session = (typeof sessions)[number]
        const query = (session: Session, text: string) =>
          Effect.promise(() => session.query<{ answers: ReadonlyArray<boolean> }>(text))
        const stores = Effect.fnUntraced(function*(session: Session, asked: number) {
          const { rows } = yield* query(
            session,
            `SELECT dx_admit_at_once(
              'activity', array_fill('Charge'::text, ARRAY[${asked}]), array_fill('a'::text, ARRAY[${asked}]), 0
            ) AS answers`
          )
          const admitted = rows[0]!.answers.filter((answer) => answer).length
          yield* query(
            session,
            `INSERT INTO worker_queue (work_item, visible_at, created_at, route, limit_name, limit_key)
            SELECT '{}', now(), now(), 'Charge', 'Charge', 'a' FROM generate_series(1, ${admitted})`
          )
          return admitted
        })
        let admitted = 0
        let atOnce = 0
        for (let round = 0; round < 12; round++) {
          const asked = Math.ceil(most / [40, 8, 3][round % 3]!)
          yield* Effect.forEach(sessions, (session) => query(session, "BEGIN"))
          const counts = yield* Effect.forEach(sessions, (session) => stores(session, asked))
          atOnce = Math.max(atOnce, counts.filter((count) => count > 0).length)
          assert.isAtMost(Math.max(...counts), asked)
          // What the first statement of its transaction gave is not visible to the others: a second one gives nothing.
          const again = yield* Effect.forEach(sessions, (session, n) =>
            counts[n] === 0 ? Effect.succeed(0) : stores(session, asked))
          assert.deepStrictEqual(
            again,
            counts.map(() =>
              0
            )
          )
          admitted += counts.reduce((sum, count) => sum + count, 0)
          yield* Effect.forEach(sessions, (session) => query(session, "COMMIT"))
        }
        // Alone, one gives all that is left.
        admitted += yield* stores(sessions[0]!, most)
        const [row] = yield* sql<{ count: number }>("SELECT count(*)::int AS count FROM worker_queue")
        assert.strictEqual(row!.count, admitted)
        assert.strictEqual(admitted, most)
        if (most > 40) assert.isAtLeast(atOnce, 4)
      })
  )

  it.live("a transaction that can give no slot keeps no lock; one with an old snapshot gives none", () =>
    Effect.gen(function*() {
      const { admin, url } = yield* Test.open()
      const changes = { total: bound(100), keys: { full: bound(1) } }
      yield* admin.setLimit({ kind: "activity", name: "Charge", changes, replaces: true })
      const session = yield* PgServer.connect(url)
      const query = (text: string) => Effect.promise(() => session.query<Record<string, unknown>>(text))
      const admits = (key: string) =>
        Effect.map(
          query(`SELECT dx_admit_at_once('activity', '{Charge}', '{${key}}', 0) AS answers`),
          ({ rows: [row] }) => row!["answers"]
        )
      const locks = Effect.map(
        query("SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'"),
        ({ rowCount }) => rowCount
      )
      yield* query(`INSERT INTO worker_queue (work_item, visible_at, created_at, route, limit_name, limit_key)
        SELECT '{}', now(), now(), 'Charge', 'Charge', 'full'`)
      yield* query("BEGIN")
      assert.deepStrictEqual(yield* admits("full"), [false])
      assert.strictEqual(yield* locks, 0)
      // It has given none yet.
      assert.deepStrictEqual(yield* admits("free"), [true])
      assert.isAbove((yield* locks)!, 0)
      assert.deepStrictEqual(yield* admits("free"), [false])
      yield* query("ROLLBACK")
      for (const level of ["REPEATABLE READ", "SERIALIZABLE"]) {
        yield* query(`BEGIN ISOLATION LEVEL ${level}`)
        assert.deepStrictEqual(yield* admits("free"), [false])
        assert.strictEqual(yield* locks, 0)
        yield* query("ROLLBACK")
      }
    }))

  it.live(
    "one activity of a key comes after one of each other key, however many of these wait",
    () =>
      Effect.gen(function*() {
        const { admin, driver, url } = yield* Test.open()
        yield* admin.setLimit({ kind: "activity", name: "Charge", changes: { total: bound(10) }, replaces: true })
        yield* Effect.forEach(
          numbers(10),
          (part) => driver.enqueueForWorker(numbers(10_000).map((n) => charge(part * 10_000 + n, "big"))),
          { discard: true }
        )
        const others = numbers(20).map((n) => ({ id: 200_000 + n, key: `small${n}` }))
        yield* driver.enqueueForWorker(others.map(({ id, key }) => charge(id, key)))
        const order: Array<number> = []
        const hasAll = () => order.filter((id) => id >= 200_000).length === others.length
        while (!hasAll()) {
          assert.isBelow(order.length, 100)
          const claimed = yield* Test.take(driver, { limit: 1 })
          order.push(...claimed.map(({ workItem }) => Number(workItem)))
          yield* driver.ackWorkItems(claimed.map(({ lockToken }) => ({ lockToken, completion: null })))
        }
        // One of each of 21 keys.
        assert.isAtMost(order.length, 21)

        // A claim reads little of what waits.
        const session = yield* PgServer.connect(url)
        const query = (text: string) => Effect.promise(() => session.query<Record<string, number>>(text))
        yield* query("BEGIN")
        const { rows } = yield* query(
          "SELECT FROM dx_fetch_work_items(10, 30000, true, NULL, NULL, NULL) WHERE out_lock_token IS NOT NULL"
        )
        assert.lengthOf(rows, 10)
        const [read] = (yield* query(
          "SELECT pg_stat_get_xact_tuples_fetched('worker_queue'::regclass)::int AS fetched"
        )).rows
        yield* query("ROLLBACK")
        assert.isBelow(read!["fetched"]!, 1_000)
      })
  )

  it.live("a row with a slot that any program deletes is announced where another one waits for it", () =>
    Effect.gen(function*() {
      const { admin, driver, sql, url } = yield* Test.open()
      yield* admin.setLimit({ kind: "activity", name: "Charge", changes: { total: bound(1) }, replaces: true })
      yield* driver.enqueueForWorker([charge(1, "a"), charge(2, "a")])
      const [claimed] = yield* Test.take(driver, { limit: 2 })
      assert.strictEqual(claimed!.workItem, "1")
      const session = yield* PgServer.connect(url)
      const heard: Array<string> = []
      session.on("notification", ({ channel }) => heard.push(channel))
      yield* Effect.promise(() => session.query("LISTEN \"public_worker_work\""))
      yield* sql("DELETE FROM worker_queue WHERE work_item = '1'")
      yield* Effect.promise(() => session.query("SELECT 1"))
      assert.deepStrictEqual(heard, ["public_worker_work"])
      assert.deepStrictEqual((yield* Test.take(driver, { limit: 2 })).map(({ workItem }) => workItem), ["2"])
      // No other one waits.
      yield* sql("DELETE FROM worker_queue")
      yield* Effect.promise(() => session.query("SELECT 1"))
      assert.lengthOf(heard, 1)
    }))

  it.live("what a statement parks while its limit is removed is released by the next claim", () =>
    Effect.gen(function*() {
      const { admin, driver, sql } = yield* Test.open()
      yield* admin.setLimit({ kind: "activity", name: "Charge", changes: { total: bound(1) }, replaces: true })
      yield* driver.enqueueForWorker(numbers(3).map((id) => charge(id, "a")))
      yield* sql("DELETE FROM limits")
      assert.lengthOf(yield* Test.take(driver, { limit: 5 }), 3)
    }))
})
