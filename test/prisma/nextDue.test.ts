import { assert, describe, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/testing/TestClock"
import * as Test from "../utils/driver.ts"

const opened = Test.opener()

const now = 1_800_000_000_000

const nothing = { orchestratorMs: null, workerMs: null }

/** Virtual time, so that a claim can be made at a moment and right before it. */
const open = Effect.gen(function*() {
  yield* TestClock.setTime(now)
  const test = yield* opened({ clock: "effect" })
  return {
    ...test,
    nextDue: Effect.flatMap(
      test.driver.readNextDue!,
      ({ nowMs, paused, ...due }) =>
        Effect.map(Clock.currentTimeMillis, (clockMs) => {
          assert.strictEqual(nowMs, clockMs)
          assert.deepStrictEqual(paused, [])
          return due
        })
    )
  }
})

const inMinutes = (minutes: number) => `to_timestamp(${now / 1000 + 60 * minutes})`

const worker = { workerId: "me", lockTimeoutMs: 1000 }

describe("readNextDue:", () => {
  it.effect("an empty store has nothing due, nor has one whose work may all be claimed now", () =>
    Effect.gen(function*() {
      const { driver, nextDue } = yield* open
      assert.deepStrictEqual(yield* nextDue, nothing)
      yield* driver.startOrchestrations([Test.start("a")])
      yield* driver.enqueueForWorker([Test.activity(), Test.activity({ sessionId: "s" })])
      assert.deepStrictEqual(yield* nextDue, nothing)
    }))

  it.effect("the time it gives is the first at which a claim finds the row", () =>
    Effect.gen(function*() {
      const { driver, nextDue, sql } = yield* open
      const claim = Test.claim(driver, 10, 1)
      const take = Test.take(driver, { lockTimeoutMs: 1, session: worker })
      /** Goes there, and settles what is claimed. */
      const check = Effect.fnUntraced(function*(what: string, dueMs: number) {
        const due = yield* nextDue
        const times = [due.orchestratorMs, due.workerMs].filter((time) => time !== null)
        assert.deepStrictEqual(times, [dueMs], what)
        yield* TestClock.setTime(dueMs - 1)
        assert.lengthOf([...yield* claim, ...yield* take], 0, what)
        yield* TestClock.setTime(dueMs)
        const instances = yield* claim
        const activities = yield* take
        assert.strictEqual(instances.length + activities.length, 1, what)
        assert.deepStrictEqual(yield* nextDue, nothing, `${what}, afterwards`)
        return { instances, activities }
      })

      yield* driver.startOrchestrations([{ ...Test.start("a"), delayMs: 60_000 }])
      const [started] = (yield* check("a delayed start", now + 60_000)).instances
      yield* driver.abandonOrchestrationItems([
        { lockToken: started!.lockToken, delayMs: 60_000, ignoreAttempt: false }
      ])
      const [paused] = (yield* check("the end of a pause", now + 120_000)).instances
      yield* driver.deferMessages([
        { lockToken: paused!.lockToken, ids: paused!.messages.map(({ id }) => id), delayMs: 60_000 }
      ])
      yield* driver.abandonOrchestrationItems([{ lockToken: paused!.lockToken, delayMs: null, ignoreAttempt: false }])
      const [deferred] = (yield* check("a deferred message", now + 180_000)).instances
      yield* driver.ackOrchestrationItems([Test.turn(deferred!.lockToken, Test.named)])
      yield* sql(
        `INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
         VALUES ('a', '{}', ${inMinutes(4)} + interval '1 us', now())`
      )
      const [timed] = (yield* check("a fraction of a millisecond", now + 240_001)).instances
      yield* driver.ackOrchestrationItems([Test.turn(timed!.lockToken, { status: "Completed", output: "" })])

      for (const [minute, sessionId] of [[5, null], [7, "s"]] as const) {
        yield* sql(
          `INSERT INTO worker_queue (work_item, visible_at, created_at, session_id)
           VALUES ('{"ActivityExecute":{"name":"A"}}', ${inMinutes(minute)}, now(), $1)`,
          [sessionId]
        )
        const [taken] = (yield* check(`an activity of session ${sessionId}`, now + minute * 60_000)).activities
        yield* driver.abandonWorkItems([{ lockToken: taken!.lockToken, delayMs: 60_000, ignoreAttempt: false }])
        const [again] = (yield* check("a retry", now + (minute + 1) * 60_000)).activities
        yield* driver.ackWorkItems([{ lockToken: again!.lockToken, completion: null }])
      }
    }))

  it.effect("gives the first of all routes, sessions and pauses", () =>
    Effect.gen(function*() {
      const { nextDue, sql } = yield* open
      const message = (route: string, minutes: number) =>
        sql(
          `INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
           VALUES ('i', '{}', ${inMinutes(minutes)}, now(), $1)`,
          [route]
        )
      const activity = (route: string, minutes: number, sessionId: string | null = null) =>
        sql(
          `INSERT INTO worker_queue (work_item, visible_at, created_at, route, session_id)
           VALUES ('{}', ${inMinutes(minutes)}, now(), $1, $2)`,
          [route, sessionId]
        )
      const due = Effect.map(
        nextDue,
        ({ orchestratorMs, workerMs }) =>
          [orchestratorMs, workerMs].map((ms) => ms === null ? null : (ms - now) / 60_000)
      )
      yield* message("1000.0.0 =1.0.0 B", 5)
      yield* message("1000.0.0 =1.0.0 A", 6)
      yield* message("1000.0.0 =1.0.0 C", 7)
      yield* message("1000.0.0 =1.0.0 A", -5)
      yield* activity("A", -5)
      yield* activity("A", 9)
      yield* activity("B", 8)
      assert.deepStrictEqual(yield* due, [5, 8])
      yield* activity("C", 7, "s")
      yield* activity("B", 6, "t")
      yield* activity("A", 9, "s")
      assert.deepStrictEqual(yield* due, [5, 6])
      // Of another process, in the past, and to come.
      yield* sql(
        `INSERT INTO instance_locks
         VALUES ('a', 'x', ${now + 60_000}, 1), ('b', '', ${now - 60_000}, 1), ('c', '', ${now + 120_000}, 1),
           ('d', '', ${now + 180_000}, 1)`
      )
      assert.deepStrictEqual(yield* due, [2, 6])
    }))

  it.effect("leaves out what no clock reaches, and timers of instances that Duroxide runs", () =>
    Effect.gen(function*() {
      const { nextDue, sql } = yield* open
      yield* sql(
        `INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
         VALUES ('i', '{}', 'infinity', now(), 'A'), ('i', '{}', '-infinity', now(), 'A'),
           ('i', '{}', ${inMinutes(1)}, now(), '0.1.30 =1.0.0 A');
         INSERT INTO worker_queue (work_item, visible_at, created_at, route)
         VALUES ('{}', 'infinity', now(), 'A'), ('{}', '-infinity', now(), 'A')`
      )
      assert.deepStrictEqual(yield* nextDue, nothing)
      yield* sql("UPDATE orchestrator_queue SET route = '1000.0.0 =1.0.0 A' WHERE visible_at < 'infinity'")
      assert.deepStrictEqual(yield* nextDue, { orchestratorMs: now + 60_000, workerMs: null })
    }))
})

describe("readLocks:", () => {
  const openLocks = Effect.map(open, ({ driver, ...test }) => ({
    ...test,
    driver,
    locks: Effect.map(driver.readLocks!, (locks) => ({ orchestrator: locks.orchestrator, worker: locks.worker }))
  }))

  it.effect("an empty store has none, nor has one whose work is free, to come or paused", () =>
    Effect.gen(function*() {
      const { driver, locks, sql } = yield* openLocks
      const none = { orchestrator: null, worker: null }
      assert.deepStrictEqual(yield* locks, none)
      yield* driver.startOrchestrations([Test.start("a"), { ...Test.start("b"), delayMs: 60_000 }])
      yield* driver.enqueueForWorker([Test.activity(), Test.activity({ sessionId: "s" })])
      yield* sql(`INSERT INTO instance_locks VALUES ('a', '', ${now + 60_000}, 1)`)
      assert.deepStrictEqual(yield* locks, none)
    }))

  it.effect("the time it gives is the first at which a claim finds the work", () =>
    Effect.gen(function*() {
      const { driver, locks } = yield* openLocks
      yield* driver.startOrchestrations([Test.start("a"), Test.start("b")])
      yield* driver.enqueueForWorker([Test.activity(), Test.activity({ sessionId: "s" })])
      yield* Test.claim(driver, 1, 10_000)
      yield* Test.claim(driver, 1, 20_000)
      yield* Test.take(driver, { limit: 1, lockTimeoutMs: 30_000 })
      // The lock of the session lasts longer.
      yield* Test.take(driver, { limit: 1, lockTimeoutMs: 10_000, session: { workerId: "you", lockTimeoutMs: 40_000 } })
      const claim = Test.claim(driver, 10, 60_000)
      const take = Test.take(driver, { lockTimeoutMs: 60_000, session: worker })
      assert.deepStrictEqual(yield* locks, {
        orchestrator: { firstMs: now + 10_000, lastMs: now + 20_000 },
        worker: { firstMs: now + 30_000, lastMs: now + 40_000 }
      })
      for (const seconds of [10, 20, 30, 40]) {
        yield* TestClock.setTime(now + 1_000 * seconds - 1)
        assert.lengthOf([...yield* claim, ...yield* take], 0, `before ${seconds} seconds`)
        yield* TestClock.setTime(now + 1_000 * seconds)
        assert.lengthOf([...yield* claim, ...yield* take], 1, `after ${seconds} seconds`)
      }
    }))

  it.effect("reads no more than the 1,000 oldest rows of a route", () =>
    Effect.gen(function*() {
      const { locks, sql } = yield* openLocks
      yield* sql(
        `INSERT INTO worker_queue (work_item, visible_at, created_at, route, lock_token, locked_until)
         SELECT '{}', ${inMinutes(-5)}, now(), 'A', 'x', ${now} + 1000 * g FROM generate_series(1, 1001) AS g`
      )
      assert.deepStrictEqual((yield* locks).worker, { firstMs: now + 1_000, lastMs: now + 1_000_000 })
    }))
})
