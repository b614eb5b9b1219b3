import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/testing/TestClock"
import * as Test from "../utils/driver.ts"

const opened = Test.opener()
const open = opened({ clock: "effect" })

const back = (lockToken: string, delayMs: number | null = null, ignoreAttempt = false) => ({
  lockToken,
  delayMs,
  ignoreAttempt
})

const uuid = "00000000-0000-4000-8000-000000000000"

/** Texts that are not tokens, or belong to no row. */
const garbage = [
  "",
  "garbage",
  ".",
  "1",
  "1.",
  ".1",
  "-1.x",
  "1e3.x",
  "９.x",
  `1.${uuid}`,
  `999999999999999999.${uuid}`,
  `99999999999999999999999999.${uuid}`,
  `${uuid}.a`,
  `${uuid}a`,
  uuid,
  "'; DROP TABLE instances; --",
  "😀".repeat(40)
]

describe("tokens:", () => {
  it.live("garbage returns LockLost everywhere, and does not affect a valid token beside it", () =>
    Effect.gen(function*() {
      const { driver } = yield* opened()
      const settle = <A>(items: (tokens: ReadonlyArray<string>) => Effect.Effect<A, unknown>, good: string) =>
        Effect.map(
          items([...garbage, good]),
          (answers) => assert.deepStrictEqual(answers as unknown, [...garbage.map(() => "LockLost"), "Done"])
        )
      const tokenOf = (id: string) => Effect.map(Test.claimed(driver, id), ({ lockToken }) => lockToken)
      const lock = Effect.gen(function*() {
        yield* driver.enqueueForWorker([Test.activity()])
        const [taken] = yield* Test.take(driver, { limit: 1 })
        return taken!.lockToken
      })

      const renewals = (tokens: ReadonlyArray<string>) =>
        tokens.map((lockToken) => ({ lockToken, extendForMs: 60_000 }))
      const backs = (tokens: ReadonlyArray<string>) => tokens.map((token) => back(token))
      const acks = (tokens: ReadonlyArray<string>) => tokens.map((token) => Test.turn(token))
      const deferrals = (tokens: ReadonlyArray<string>) =>
        tokens.map((lockToken) => ({ lockToken, ids: [1, 2], delayMs: 1000 }))
      const results = (tokens: ReadonlyArray<string>) =>
        tokens.map((lockToken) => ({ lockToken, completion: { instanceId: "a", workItem: "{}" } }))

      yield* settle((tokens) => driver.renewOrchestrationItemLocks(renewals(tokens)), yield* tokenOf("a"))
      yield* settle((tokens) => driver.deferMessages(deferrals(tokens)), yield* tokenOf("b"))
      yield* settle((tokens) => driver.ackOrchestrationItems(acks(tokens)), yield* tokenOf("c"))
      yield* settle((tokens) => driver.abandonOrchestrationItems(backs(tokens)), yield* tokenOf("d"))
      yield* settle((tokens) => driver.renewWorkItemLocks(renewals(tokens)), yield* lock)
      yield* settle((tokens) => driver.abandonWorkItems(backs(tokens)), yield* lock)
      yield* settle((tokens) => driver.ackWorkItems(results(tokens)), (yield* Test.take(driver))[0]!.lockToken)
    }))

  it.live("empty sets return without a statement", () =>
    Effect.gen(function*() {
      const { driver, statements } = yield* opened()
      assert.deepStrictEqual(yield* driver.ackOrchestrationItems([]), [])
      assert.deepStrictEqual(yield* driver.abandonOrchestrationItems([]), [])
      assert.deepStrictEqual(yield* driver.renewOrchestrationItemLocks([]), [])
      assert.deepStrictEqual(yield* driver.deferMessages([]), [])
      assert.deepStrictEqual(yield* driver.startOrchestrations([]), [])
      assert.deepStrictEqual(yield* driver.ackWorkItems([]), [])
      assert.deepStrictEqual(yield* driver.abandonWorkItems([]), [])
      assert.deepStrictEqual(yield* driver.renewWorkItemLocks([]), [])
      assert.deepStrictEqual(yield* driver.readInstances([]), [])
      assert.deepStrictEqual(yield* Test.take(driver, { tags: { _tag: "None" } }), [])
      yield* driver.enqueueForOrchestrator([])
      yield* driver.enqueueForWorker([])
      yield* driver.appendHistory({ instanceId: "a", executionId: 1, history: [] })
      assert.strictEqual(yield* statements, 0)
    }))

  it.live("tokens find their lock whatever the form of the instance id", () =>
    Effect.gen(function*() {
      const { driver } = yield* opened()
      const ids = ["a.b", ".", "1.2", "", " ", "sub::1::2", "ünï-код-例-😀", "\"quoted\" \\ 'x'", "x".repeat(2000)]
      yield* driver.enqueueForOrchestrator(ids.map((id) => Test.message(id)))
      const claimed = yield* Test.claim(driver, 20)
      assert.sameMembers(claimed.map(({ instanceId }) => instanceId), ids)
      const answers = yield* driver.ackOrchestrationItems(
        claimed.map(({ lockToken }) => Test.turn(lockToken, Test.named))
      )
      assert.deepStrictEqual(answers, ids.map(() => "Done" as const))
      assert.sameMembers((yield* driver.readInstances(ids)).map(({ instanceId }) => instanceId), ids)
    }))
})

describe("abandonOrchestrationItems:", () => {
  it.effect("frees the batch at once; the delivery counts unless ignored", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      const first = yield* Test.claimed(driver, "a")
      assert.deepStrictEqual(yield* driver.abandonOrchestrationItems([back(first.lockToken)]), ["Done"])
      const second = yield* Test.claimOne(driver)
      assert.strictEqual(Test.attempts(second), 2)
      yield* driver.abandonOrchestrationItems([back(second.lockToken, null, true)])
      const third = yield* Test.claimOne(driver)
      assert.strictEqual(Test.attempts(third), 2)
      assert.deepStrictEqual(third.messages, first.messages.map((message) => ({ ...message, attemptCount: 2 })))
      // Once is enough.
      assert.deepStrictEqual(
        yield* driver.abandonOrchestrationItems([back(second.lockToken), back(third.lockToken), back(third.lockToken)]),
        ["LockLost", "Done", "LockLost"]
      )
    }))

  it.effect("the count never falls below 0", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const { lockToken } = yield* Test.claimed(driver, "a")
      yield* sql("UPDATE orchestrator_queue SET attempt_count = 0")
      yield* driver.abandonOrchestrationItems([back(lockToken, null, true)])
      assert.deepStrictEqual(yield* sql("SELECT attempt_count FROM orchestrator_queue"), [{ attempt_count: 0 }])
    }))

  it.effect("pauses the instance for the delay: messages that arrive meanwhile wait after the batch", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      yield* driver.enqueueForOrchestrator([Test.message("a", "first")])
      const { lockToken } = yield* Test.claimOne(driver)
      yield* driver.enqueueForOrchestrator([Test.message("a", "meanwhile")])
      yield* driver.abandonOrchestrationItems([back(lockToken, 1000)])
      yield* driver.enqueueForOrchestrator([Test.message("a", "later")])
      yield* TestClock.adjust(999)
      assert.deepStrictEqual(yield* Test.claim(driver), [])
      yield* TestClock.adjust(1)
      const { messages } = yield* Test.claimOne(driver)
      assert.deepStrictEqual(messages.map(({ workItem }) => workItem), ["first", "meanwhile", "later"])
    }))

  it.effect("works on an expired lock that no other process took over, not on a superseded one", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      const first = yield* Test.claimed(driver, "a", 10)
      yield* TestClock.adjust(1000)
      const second = yield* Test.claimOne(driver, 10)
      yield* TestClock.adjust(1000)
      assert.deepStrictEqual(
        yield* driver.abandonOrchestrationItems([back(first.lockToken), back(second.lockToken)]),
        ["LockLost", "Done"]
      )
    }))
})

describe("renewOrchestrationItemLocks:", () => {
  it.effect("extends the lock and its batch by milliseconds from now", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const { lockToken } = yield* Test.claimed(driver, "a", 100)
      yield* TestClock.adjust(50)
      assert.deepStrictEqual(
        yield* driver.renewOrchestrationItemLocks([{ lockToken, extendForMs: 250 }]),
        ["Done"]
      )
      for (const table of ["instance_locks", "orchestrator_queue"]) {
        assert.deepStrictEqual(yield* sql(`SELECT locked_until::int FROM ${table}`), [{ locked_until: 300 }], table)
      }
      yield* TestClock.adjust(249)
      assert.deepStrictEqual(yield* Test.claim(driver), [])
      assert.deepStrictEqual(
        yield* driver.renewOrchestrationItemLocks([{ lockToken, extendForMs: 1 }, { lockToken, extendForMs: 1 }]),
        ["Done", "Done"]
      )
      // An expired lock becomes live again unless another process has taken over; then it is lost.
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(yield* driver.renewOrchestrationItemLocks([{ lockToken, extendForMs: 9 }]), ["Done"])
      assert.lengthOf(yield* Test.claim(driver), 0)
      yield* TestClock.adjust(9)
      assert.lengthOf(yield* Test.claim(driver), 1)
      assert.deepStrictEqual(yield* driver.renewOrchestrationItemLocks([{ lockToken, extendForMs: 9 }]), ["LockLost"])
    }))

  it.effect("a renewed lock still settles with the same token", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.enqueueForOrchestrator([Test.message("a"), Test.message("b")])
      const claimed = yield* Test.claim(driver, 2, 100)
      yield* driver.renewOrchestrationItemLocks(
        claimed.map(({ lockToken }) => ({ lockToken, extendForMs: 10_000 })).toReversed()
      )
      yield* TestClock.adjust(5000)
      assert.deepStrictEqual(
        yield* driver.ackOrchestrationItems(claimed.map(({ lockToken }) => Test.turn(lockToken))),
        ["Done", "Done"]
      )
      assert.lengthOf(yield* sql("SELECT FROM orchestrator_queue"), 0)
    }))
})

describe("deferMessages:", () => {
  it.effect("hides single messages without counting their delivery; the lock keeps the rest", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.enqueueForOrchestrator([Test.message("a", "good"), Test.message("a", "bad"), Test.message("b")])
      const [a, b] = yield* Test.claim(driver)
      const bad = a!.messages[1]!.id
      assert.deepStrictEqual(
        yield* driver.deferMessages([{ lockToken: a!.lockToken, ids: [bad, b!.messages[0]!.id, 999], delayMs: 1000 }]),
        ["Done"]
      )
      assert.lengthOf(
        yield* sql("SELECT FROM orchestrator_queue WHERE instance_id = 'b' AND lock_token IS NOT NULL"),
        1
      )
      yield* driver.ackOrchestrationItems([Test.turn(a!.lockToken)])
      yield* TestClock.adjust(999)
      assert.deepStrictEqual(yield* Test.claim(driver), [])
      yield* TestClock.adjust(1)
      const again = yield* Test.claimOne(driver)
      assert.deepStrictEqual(again.messages.map(({ id, workItem }) => ({ id, workItem })), [{
        id: bad,
        workItem: "bad"
      }])
      assert.strictEqual(Test.attempts(again), 1)
    }))
})
