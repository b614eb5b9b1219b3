/**
 * Holders and takeovers at the expiry of a lock, two sessions at a time: one of them pauses inside its transaction.
 * The first one wins, never both. The tests pass times to the functions, so nothing waits for a lock to expire.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Test from "../utils/driver.ts"
import type { Run } from "../utils/session.ts"
import { session } from "../utils/session.ts"
import { waitForStatement } from "../utils/waitUntil.ts"

const json = JSON.stringify

/** Later than any lock of these tests on the database's clock. */
const start = () => Date.now() + 3_600_000

/** What is claimed; a claim that meets only locked rows says so by a row of nulls. */
const claimAt = (run: Run, now: number) =>
  run(
    `SELECT * FROM dx_fetch_orchestration_items(1, 1000, null, null, p_orphans => true, p_now_ms => ${now})
     WHERE out_lock_token IS NOT NULL`
  )
const takeAt = (run: Run, now: number) =>
  run(
    `SELECT * FROM dx_fetch_work_items(1, 1000, true, null, null, null, p_now_ms => ${now})
     WHERE out_lock_token IS NOT NULL`
  )

/** A turn with an event and an activity. */
const ackAt = (run: Run, token: string, eventId: number, now: number) =>
  Effect.map(
    run(
      `SELECT dx_ack_orchestration_items($1, $2, null,
         '[{"ack":1,"work_item":"{}","name":"A","instance_id":"a","execution_id":1,"activity_id":1}]', null, null, p_now_ms => ${now}) AS outcomes`,
      [
        json([{ token, execution_id: 1 }]),
        json([{ ack: 1, event_id: eventId, event_type: "TimerFired", event_data: `${eventId}` }])
      ]
    ),
    ([row]) => row.outcomes
  )
const ackWorkAt = (run: Run, token: string, now: number) =>
  Effect.map(
    run(`SELECT dx_ack_work_items($1, p_now_ms => ${now}) AS outcomes`, [
      json([{ token, instance_id: "a", work_item: "{}" }])
    ]),
    ([row]) => row.outcomes
  )

describe("a turn that", () => {
  it.live("begins to commit before its lock expires keeps other claims out until they see its result", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      yield* test.driver.enqueueForOrchestrator([Test.message("a")])
      const now = start()
      const [claimed] = yield* claimAt(test.sql, now)
      // Arrives during the turn: a takeover could run it.
      yield* test.driver.enqueueForOrchestrator([Test.message("a")])
      const holder = yield* session(test)
      assert.deepStrictEqual(yield* ackAt(holder, claimed.out_lock_token, 1, now + 999), ["Done"])
      assert.deepStrictEqual(yield* claimAt(test.sql, now + 5000), [])
      yield* holder("COMMIT")
      const [taken] = yield* claimAt(test.sql, now + 5000)
      assert.deepStrictEqual([taken.out_history, taken.out_messages.length], [["1"], 1])
      assert.lengthOf(yield* test.sql("SELECT FROM worker_queue"), 1)
    }))

  it.live("is rolled back leaves everything to the next claim", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      yield* test.driver.enqueueForOrchestrator([Test.message("a")])
      const now = start()
      const [claimed] = yield* claimAt(test.sql, now)
      const holder = yield* session(test)
      yield* ackAt(holder, claimed.out_lock_token, 1, now + 999)
      yield* holder("ROLLBACK")
      const [taken] = yield* claimAt(test.sql, now + 5000)
      assert.deepStrictEqual([taken.out_history, taken.out_messages.length], [null, 1])
      assert.deepStrictEqual(yield* ackAt(test.sql, claimed.out_lock_token, 1, now + 5001), ["LockLost"])
      assert.deepStrictEqual(yield* ackAt(test.sql, taken.out_lock_token, 1, now + 5001), ["Done"])
      assert.lengthOf(yield* test.sql("SELECT FROM worker_queue"), 1)
    }))

  it.live("arrives during a takeover waits, and is lost", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      yield* test.driver.enqueueForOrchestrator([Test.message("a")])
      const now = start()
      const [claimed] = yield* claimAt(test.sql, now)
      const taker = yield* session(test)
      const [taken] = yield* claimAt(taker, now + 5000)
      assert.deepStrictEqual(taken.out_attempt_counts, [2])
      // By its own clock the lock is still good.
      const holder = yield* session(test)
      const late = yield* Effect.forkChild(ackAt(holder, claimed.out_lock_token, 1, now + 999))
      yield* waitForStatement(test, "dx_ack_orchestration_items", "Lock")
      yield* taker("COMMIT")
      assert.deepStrictEqual(yield* Fiber.join(late), ["LockLost"])
      yield* holder("COMMIT")
      for (const table of ["history", "worker_queue"]) {
        assert.lengthOf(yield* test.sql(`SELECT FROM ${table}`), 0, table)
      }
      assert.lengthOf(yield* test.sql("SELECT FROM orchestrator_queue"), 1)
    }))

  it.live("arrives while a takeover is rolled back is stored", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      yield* test.driver.enqueueForOrchestrator([Test.message("a")])
      const now = start()
      const [claimed] = yield* claimAt(test.sql, now)
      const taker = yield* session(test)
      yield* claimAt(taker, now + 5000)
      const holder = yield* session(test)
      const late = yield* Effect.forkChild(ackAt(holder, claimed.out_lock_token, 1, now + 999))
      yield* waitForStatement(test, "dx_ack_orchestration_items", "Lock")
      yield* taker("ROLLBACK")
      assert.deepStrictEqual(yield* Fiber.join(late), ["Done"])
      yield* holder("COMMIT")
      assert.deepStrictEqual(yield* claimAt(test.sql, now + 5000), [])
    }))

  it.live("renews its lock keeps other claims out as well", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      yield* test.driver.enqueueForOrchestrator([Test.message("a")])
      const now = start()
      const [claimed] = yield* claimAt(test.sql, now)
      const holder = yield* session(test)
      yield* holder(`SELECT dx_renew_orchestration_item_locks($1, ${now + 999})`, [
        json([{ token: claimed.out_lock_token, extend_for_ms: 1000 }])
      ])
      assert.deepStrictEqual(yield* claimAt(test.sql, now + 1500), [])
      yield* holder("COMMIT")
      assert.deepStrictEqual(yield* claimAt(test.sql, now + 1998), [])
      assert.lengthOf(yield* claimAt(test.sql, now + 1999), 1)
    }))
})

describe("the result of an activity that", () => {
  const claimed = Effect.gen(function*() {
    const test = yield* Test.open()
    yield* test.driver.enqueueForWorker([Test.activity({ instanceId: "a" })])
    const now = start()
    const [first] = yield* takeAt(test.sql, now)
    return { ...test, now, token: first.out_lock_token as string }
  })

  it.live("begins to commit before its lock expires keeps other claims out, and is the only one", () =>
    Effect.gen(function*() {
      const test = yield* claimed
      const holder = yield* session(test)
      assert.deepStrictEqual(yield* ackWorkAt(holder, test.token, test.now + 999), ["Done"])
      assert.deepStrictEqual(yield* takeAt(test.sql, test.now + 5000), [])
      yield* holder("COMMIT")
      assert.deepStrictEqual(yield* takeAt(test.sql, test.now + 5000), [])
      assert.lengthOf(yield* test.sql("SELECT FROM orchestrator_queue"), 1)
    }))

  it.live("arrives during a takeover waits, and is lost", () =>
    Effect.gen(function*() {
      const test = yield* claimed
      const taker = yield* session(test)
      const [taken] = yield* takeAt(taker, test.now + 5000)
      const holder = yield* session(test)
      const late = yield* Effect.forkChild(ackWorkAt(holder, test.token, test.now + 999))
      yield* waitForStatement(test, "dx_ack_work_items", "Lock")
      yield* taker("COMMIT")
      assert.deepStrictEqual(yield* Fiber.join(late), ["LockLost"])
      yield* holder("COMMIT")
      assert.deepStrictEqual(yield* ackWorkAt(test.sql, taken.out_lock_token, test.now + 5001), ["Done"])
      assert.lengthOf(yield* test.sql("SELECT FROM orchestrator_queue"), 1)
    }))
})
