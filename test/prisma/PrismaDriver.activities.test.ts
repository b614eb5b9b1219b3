import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/testing/TestClock"
import type { TagFilter } from "../../src/model/Instance.ts"
import * as Test from "../utils/driver.ts"

const opened = Test.opener()
const open = opened({ clock: "effect" })

/** Work items are their names here. */
const named = (workItem: string, changes: object = {}) => Test.activity({ workItem, ...changes })
const names = (taken: ReadonlyArray<{ readonly workItem: string }>) => taken.map(({ workItem }) => workItem)
const back = (lockToken: string, delayMs: number | null = null, ignoreAttempt = false) => ({
  lockToken,
  delayMs,
  ignoreAttempt
})
const done = (lockToken: string) => ({ lockToken, completion: { instanceId: "instance", workItem: "result" } })

describe("fetchWorkItems:", () => {
  it.effect("claims up to the limit, smallest id first, and counts the delivery", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.enqueueForWorker([named("1"), named("2"), named("3")])
      const taken = yield* Test.take(driver, { limit: 2, lockTimeoutMs: 1000 })
      assert.deepStrictEqual(names(taken), ["1", "2"])
      assert.deepStrictEqual(taken.map(({ attemptCount }) => attemptCount), [1, 1])
      assert.notStrictEqual(taken[0]!.lockToken, taken[1]!.lockToken)
      assert.deepStrictEqual(yield* sql("SELECT locked_until::int FROM worker_queue WHERE lock_token IS NOT NULL"), [
        { locked_until: 1000 },
        { locked_until: 1000 }
      ])
      assert.deepStrictEqual(names(yield* Test.take(driver)), ["3"])
      assert.deepStrictEqual(yield* Test.take(driver), [])
    }))

  it.effect("takes an activity again exactly when its lock ends, in its old place", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      yield* driver.enqueueForWorker([named("1"), named("2")])
      yield* Test.take(driver, { limit: 1, lockTimeoutMs: 1000 })
      yield* TestClock.adjust(999)
      assert.deepStrictEqual(names(yield* Test.take(driver, { limit: 1, lockTimeoutMs: 1 })), ["2"])
      yield* TestClock.adjust(1)
      const again = yield* Test.take(driver)
      assert.deepStrictEqual(names(again), ["1", "2"])
      assert.deepStrictEqual(again.map(({ attemptCount }) => attemptCount), [2, 2])
    }))

  const tagged = [
    named("plain"),
    named("a1", { tag: "a" }),
    named("b", { tag: "b" }),
    named("a2", { tag: "a" }),
    named("plain 2")
  ]
  const filters: ReadonlyArray<readonly [TagFilter, ReadonlyArray<string>]> = [
    [{ _tag: "DefaultOnly" }, ["plain", "plain 2"]],
    [{ _tag: "Tags", tags: ["a"] }, ["a1", "a2"]],
    [{ _tag: "Tags", tags: ["b", "a", "none"] }, ["a1", "b", "a2"]],
    [{ _tag: "DefaultAnd", tags: ["a"] }, ["plain", "a1", "a2", "plain 2"]],
    [{ _tag: "Any" }, ["plain", "a1", "b", "a2", "plain 2"]],
    [{ _tag: "None" }, []]
  ]
  for (const [filter, expected] of filters) {
    const name = `${filter._tag}${"tags" in filter ? `(${filter.tags.join()})` : ""}`
    it.effect(`${name} takes ${expected.join() || "nothing"}, by id`, () =>
      Effect.gen(function*() {
        const { driver } = yield* open
        yield* driver.enqueueForWorker(tagged)
        assert.deepStrictEqual(names(yield* Test.take(driver, { tags: filter, limit: 3 })), expected.slice(0, 3))
        assert.deepStrictEqual(names(yield* Test.take(driver, { tags: filter, limit: 3 })), expected.slice(3))
      }))

    it.effect(`${name} takes the same behind many delayed activities`, () =>
      Effect.gen(function*() {
        const { driver } = yield* open
        yield* driver.enqueueForWorker(Array.from({ length: 300 }, () => named("delayed", { tag: "a" })))
        const delayed = yield* Test.take(driver, { limit: 300 })
        yield* driver.abandonWorkItems(delayed.map(({ lockToken }) => back(lockToken, 60_000)))
        yield* driver.enqueueForWorker(tagged)
        assert.deepStrictEqual(names(yield* Test.take(driver, { tags: filter })), expected)
        yield* TestClock.adjust(60_000)
        assert.lengthOf(
          (yield* Test.take(driver, { tags: filter, limit: 1000 })).filter(({ workItem }) => workItem === "delayed"),
          expected.includes("a1") ? 300 : 0
        )
      }))
  }

  it.effect("a tag survives redelivery", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      yield* driver.enqueueForWorker([named("a", { tag: "a" })])
      const [taken] = yield* Test.take(driver)
      yield* driver.abandonWorkItems([back(taken!.lockToken)])
      assert.deepStrictEqual(yield* Test.take(driver, { tags: { _tag: "DefaultOnly" } }), [])
      assert.deepStrictEqual(names(yield* Test.take(driver, { tags: { _tag: "Tags", tags: ["a"] } })), ["a"])
    }))
})

describe("sessions:", () => {
  const as = (workerId: string, lockTimeoutMs = 1000, limit = 10) => ({ limit, session: { workerId, lockTimeoutMs } })
  const rows = [named("s1", { sessionId: "s" }), named("free"), named("s2", { sessionId: "s" })]
  const sessions = "SELECT session_id, worker_id, locked_until::int, last_activity_at::int FROM sessions ORDER BY 1"

  it.effect("without an owner only activities without a session are taken", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.enqueueForWorker(rows)
      assert.deepStrictEqual(names(yield* Test.take(driver)), ["free"])
      assert.deepStrictEqual(yield* sql(sessions), [])
    }))

  it.effect("the owner claims the session with its first activity, and refreshes it with the next", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.enqueueForWorker(rows)
      assert.deepStrictEqual(names(yield* Test.take(driver, as("me", 1000, 1))), ["s1"])
      assert.deepStrictEqual(yield* sql(sessions), [
        { session_id: "s", worker_id: "me", locked_until: 1000, last_activity_at: 0 }
      ])
      yield* TestClock.adjust(400)
      assert.deepStrictEqual(names(yield* Test.take(driver, as("other"))), ["free"])
      assert.deepStrictEqual(names(yield* Test.take(driver, as("me"))), ["s2"])
      assert.deepStrictEqual(yield* sql(sessions), [
        { session_id: "s", worker_id: "me", locked_until: 1400, last_activity_at: 400 }
      ])
    }))

  it.effect("one call claims several sessions, and several activities of one", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.enqueueForWorker([...rows, named("t1", { sessionId: "t" }), named("u1", { sessionId: "u" })])
      yield* sql("INSERT INTO sessions VALUES ('u', 'other', 1000, 0), ('t', 'other', 0, 0)")
      assert.deepStrictEqual(names(yield* Test.take(driver, as("me"))), ["s1", "free", "s2", "t1"])
      assert.deepStrictEqual(yield* sql("SELECT session_id, worker_id FROM sessions ORDER BY 1"), [
        { session_id: "s", worker_id: "me" },
        { session_id: "t", worker_id: "me" },
        { session_id: "u", worker_id: "other" }
      ])
      assert.deepStrictEqual(yield* sql("SELECT attempt_count FROM worker_queue WHERE session_id = 'u'"), [
        { attempt_count: 0 }
      ])
    }))

  it.effect("a busy session hides nothing behind it", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* sql("INSERT INTO sessions VALUES ('s', 'other', 1000, 0)")
      yield* driver.enqueueForWorker(Array.from({ length: 100 }, () => named("busy", { sessionId: "s" })))
      yield* driver.enqueueForWorker([named("free"), named("mine", { sessionId: "mine" })])
      assert.deepStrictEqual(names(yield* Test.take(driver, as("me", 1000, 1))), ["free"])
      assert.deepStrictEqual(names(yield* Test.take(driver, as("me", 1000, 1))), ["mine"])
      assert.deepStrictEqual(yield* Test.take(driver, as("me")), [])
    }))

  it.effect("another owner takes an expired session, exactly at its end; a running activity can still be settled", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.enqueueForWorker(rows)
      const [first] = yield* Test.take(driver, as("me", 1000, 1))
      yield* TestClock.adjust(999)
      assert.deepStrictEqual(names(yield* Test.take(driver, as("other"))), ["free"])
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(names(yield* Test.take(driver, as("other"))), ["s2"])
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(yield* driver.ackWorkItems([done(first!.lockToken)]), ["Done"])
      assert.deepStrictEqual(yield* sql(sessions), [
        { session_id: "s", worker_id: "other", locked_until: 2000, last_activity_at: 1001 }
      ])
    }))

  it.effect("acks and renewals update the session's last activity while its lock is live, and do not extend the lock", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.enqueueForWorker(rows)
      const taken = yield* Test.take(driver, as("me"))
      const [s1, , s2] = taken
      const stamp = Effect.map(
        sql<{ at: number; until: number }>(
          "SELECT last_activity_at::int AS at, locked_until::int AS until FROM sessions"
        ),
        (rows) => rows[0]
      )
      yield* TestClock.adjust(100)
      yield* driver.renewWorkItemLocks(taken.map(({ lockToken }) => ({ lockToken, extendForMs: 60_000 })))
      assert.deepStrictEqual(yield* stamp, { at: 100, until: 1000 })
      yield* TestClock.adjust(100)
      yield* driver.ackWorkItems([done(s1!.lockToken)])
      assert.deepStrictEqual(yield* stamp, { at: 200, until: 1000 })
      yield* TestClock.adjust(800)
      yield* driver.renewWorkItemLocks([{ lockToken: s2!.lockToken, extendForMs: 60_000 }])
      yield* driver.ackWorkItems([done(s2!.lockToken)])
      assert.deepStrictEqual(yield* stamp, { at: 200, until: 1000 })
    }))

  it.effect("a tag filter applies to activities with sessions as well", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.enqueueForWorker([named("tagged", { sessionId: "s", tag: "a" })])
      assert.deepStrictEqual(yield* Test.take(driver, { ...as("me"), tags: { _tag: "DefaultOnly" } }), [])
      assert.deepStrictEqual(yield* sql(sessions), [])
      assert.lengthOf(yield* Test.take(driver, { ...as("me"), tags: { _tag: "Tags", tags: ["a"] } }), 1)
    }))
})

describe("ackWorkItems:", () => {
  it.effect("deletes the activity and delivers its completion; null deletes only", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.enqueueForWorker([named("1"), named("2"), named("3")])
      const taken = yield* Test.take(driver)
      yield* TestClock.adjust(10)
      assert.deepStrictEqual(
        yield* driver.ackWorkItems([
          { lockToken: taken[2]!.lockToken, completion: { instanceId: "x", workItem: "{ \"kept\":  1 }" } },
          { lockToken: taken[0]!.lockToken, completion: null }
        ]),
        ["Done", "Done"]
      )
      assert.deepStrictEqual(yield* sql("SELECT work_item FROM worker_queue"), [{ work_item: "2" }])
      assert.deepStrictEqual(
        yield* sql(
          "SELECT instance_id, work_item, extract(epoch FROM visible_at)::float8 AS at FROM orchestrator_queue"
        ),
        [{ instance_id: "x", work_item: "{ \"kept\":  1 }", at: 0.01 }]
      )
    }))

  it.effect("needs a live lock: expired, superseded and settled ones are lost, the row stays", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.enqueueForWorker([named("1")])
      const [first] = yield* Test.take(driver, { lockTimeoutMs: 1000 })
      yield* TestClock.adjust(1000)
      assert.deepStrictEqual(yield* driver.ackWorkItems([done(first!.lockToken)]), ["LockLost"])
      assert.lengthOf(yield* sql("SELECT FROM orchestrator_queue"), 0)
      const [second] = yield* Test.take(driver)
      assert.deepStrictEqual(
        yield* driver.ackWorkItems([done(first!.lockToken), done(second!.lockToken), done(second!.lockToken)]),
        ["LockLost", "Done", "LockLost"]
      )
      assert.lengthOf(yield* sql("SELECT FROM orchestrator_queue"), 1)
      assert.deepStrictEqual(yield* driver.ackWorkItems([done(second!.lockToken)]), ["LockLost"])
    }))
})

describe("abandonWorkItems:", () => {
  it.effect("makes the activity visible at once or after the delay, and counts the delivery unless ignored", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      yield* driver.enqueueForWorker([named("1"), named("2")])
      const [one, two] = yield* Test.take(driver)
      assert.deepStrictEqual(
        yield* driver.abandonWorkItems([back(two!.lockToken, null, true), back(one!.lockToken, 1000)]),
        ["Done", "Done"]
      )
      const again = yield* Test.take(driver)
      assert.deepStrictEqual(names(again), ["2"])
      assert.strictEqual(again[0]!.attemptCount, 1)
      yield* TestClock.adjust(999)
      assert.deepStrictEqual(yield* Test.take(driver), [])
      yield* TestClock.adjust(1)
      const [late] = yield* Test.take(driver)
      assert.deepStrictEqual([late!.workItem, late!.attemptCount], ["1", 2])
    }))

  it.effect("works once on an expired lock that no other worker took over, not on a superseded one", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      yield* driver.enqueueForWorker([named("1")])
      const [first] = yield* Test.take(driver, { lockTimeoutMs: 10 })
      yield* TestClock.adjust(1000)
      const [second] = yield* Test.take(driver, { lockTimeoutMs: 10 })
      yield* TestClock.adjust(1000)
      assert.deepStrictEqual(
        yield* driver.abandonWorkItems([back(first!.lockToken), back(second!.lockToken), back(second!.lockToken)]),
        ["LockLost", "Done", "LockLost"]
      )
    }))
})

describe("renewWorkItemLocks:", () => {
  it.effect("only reads a lock that lasts long enough, unless its session has to be updated", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.enqueueForWorker([named("1"), named("2", { sessionId: "s" })])
      const session = { workerId: "me", lockTimeoutMs: 1000 }
      const taken = yield* Test.take(driver, { lockTimeoutMs: 1000, session })
      const renew = driver.renewWorkItemLocks(
        taken.map(({ lockToken }) => ({ lockToken, extendForMs: 1000, sufficientMs: 500 }))
      )
      const versions = sql(
        "SELECT xmin::text AS version, xmax::text AS locker FROM worker_queue WHERE session_id IS NULL"
      )
      const before = yield* versions
      yield* TestClock.adjust(500)
      assert.deepStrictEqual(yield* renew, ["Done", "Done"])
      assert.deepStrictEqual(yield* versions, before)
      assert.deepStrictEqual(yield* sql("SELECT locked_until::int FROM worker_queue ORDER BY id"), [
        { locked_until: 1000 },
        { locked_until: 1500 }
      ])
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(yield* renew, ["Done", "Done"])
      assert.deepStrictEqual(yield* sql("SELECT locked_until::int FROM worker_queue ORDER BY id"), [
        { locked_until: 1501 },
        { locked_until: 1501 }
      ])
      yield* sql("DELETE FROM worker_queue WHERE session_id IS NULL")
      assert.deepStrictEqual(yield* renew, ["LockLost", "Done"])
    }))

  it.effect("extends live locks from now, each by its own milliseconds", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.enqueueForWorker([named("1"), named("2"), named("3")])
      const taken = yield* Test.take(driver, { lockTimeoutMs: 100 })
      yield* TestClock.adjust(99)
      assert.deepStrictEqual(
        yield* driver.renewWorkItemLocks([
          { lockToken: taken[1]!.lockToken, extendForMs: 250 },
          { lockToken: taken[0]!.lockToken, extendForMs: 1 }
        ]),
        ["Done", "Done"]
      )
      assert.deepStrictEqual(yield* sql("SELECT locked_until::int FROM worker_queue ORDER BY id"), [
        { locked_until: 100 },
        { locked_until: 349 },
        { locked_until: 100 }
      ])
      // An expired lock becomes live again unless another worker has taken over; then it is lost.
      yield* TestClock.adjust(1)
      const renewals = taken.map(({ lockToken }) => ({ lockToken, extendForMs: 100 }))
      assert.deepStrictEqual(yield* driver.renewWorkItemLocks(renewals.slice(1)), ["Done", "Done"])
      assert.deepStrictEqual(names(yield* Test.take(driver)), ["1"])
      assert.deepStrictEqual(yield* driver.renewWorkItemLocks(renewals), ["LockLost", "Done", "Done"])
    }))
})
