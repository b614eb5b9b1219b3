import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type { ProviderError } from "../../src/ProviderError.ts"
import * as Test from "../utils/driver.ts"
import { session } from "../utils/session.ts"
import { waitUntil } from "../utils/waitUntil.ts"

/**
 * Two sets that share three rows, given in opposite orders, while somebody else holds the middle row. When rows were
 * locked in the order given, each set would hold one end and wait for the middle, and then for the other's end.
 */
const meet = Effect.fnUntraced(function*<A, B>(
  test: Test.Opened,
  middle: string,
  sets: readonly [Effect.Effect<A, ProviderError>, Effect.Effect<B, ProviderError>]
) {
  const holder = yield* session(test)
  yield* holder(middle)
  const first = yield* Effect.forkChild(sets[0])
  const second = yield* Effect.forkChild(sets[1])
  yield* waitUntil(Effect.map(
    test.sql(`SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`),
    (waiting) => waiting.length === 2
  ))
  yield* holder("COMMIT")
  return [yield* Fiber.join(first), yield* Fiber.join(second)] as const
})

const ids = ["a", "m", "z"]
const both = <A>(all: ReadonlyArray<A>) => [all, all.toReversed()] as const

describe("leases are locked by instance:", () => {
  const open = Effect.gen(function*() {
    const test = yield* Test.open()
    yield* test.driver.enqueueForOrchestrator(ids.map((id) => Test.message(id)))
    const tokens = (yield* Test.claim(test.driver)).map(({ lockToken }) => lockToken)
    return { ...test, tokens }
  })
  const middle = "SELECT FROM instance_locks WHERE instance_id = 'm' FOR UPDATE"
  const operations: Readonly<
    Record<
      string,
      (driver: Test.Driver, tokens: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<string>, ProviderError>
    >
  > = {
    ackOrchestrationItems: (driver, tokens) =>
      driver.ackOrchestrationItems(tokens.map((token) => Test.turn(token, Test.named))),
    abandonOrchestrationItems: (driver, tokens) =>
      driver.abandonOrchestrationItems(
        tokens.map((lockToken) => ({ lockToken, delayMs: null, ignoreAttempt: false }))
      ),
    renewOrchestrationItemLocks: (driver, tokens) =>
      driver.renewOrchestrationItemLocks(tokens.map((lockToken) => ({ lockToken, extendForMs: 60_000 }))),
    deferMessages: (driver, tokens) =>
      driver.deferMessages(tokens.map((lockToken) => ({ lockToken, ids: [1], delayMs: 60_000 })))
  }
  for (const [name, operation] of Object.entries(operations)) {
    for (const [otherName, other] of Object.entries(operations)) {
      if (name > otherName) continue
      it.live(`${name} and ${otherName}`, () =>
        Effect.gen(function*() {
          const test = yield* open
          const [forward, backward] = both(test.tokens)
          const answers = yield* meet(test, middle, [operation(test.driver, forward), other(test.driver, backward)])
          // Whoever comes second finds all leases or none.
          for (const each of answers) assert.lengthOf(new Set(each), 1)
        }))
    }
  }
})

describe("activities are locked by id:", () => {
  const open = Effect.gen(function*() {
    const test = yield* Test.open()
    yield* test.driver.enqueueForWorker(ids.map((instanceId) => Test.activity({ instanceId })))
    const tokens = (yield* Test.take(test.driver)).map(({ lockToken }) => lockToken)
    yield* test.driver.enqueueForOrchestrator([Test.message("x"), Test.message("y")])
    const turns = (yield* Test.claim(test.driver)).map(({ lockToken }) => lockToken)
    return { ...test, tokens, turns }
  })
  const middle = "SELECT FROM worker_queue WHERE instance_id = 'm' FOR UPDATE"
  const cancel = (driver: Test.Driver, turn: string, instanceIds: ReadonlyArray<string>) =>
    driver.ackOrchestrationItems([
      Test.turn(turn, {
        cancelledActivities: instanceIds.map((instanceId) => ({ instanceId, executionId: 1, activityId: 1 }))
      })
    ])
  const operations: Readonly<
    Record<
      string,
      (driver: Test.Driver, tokens: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<string>, ProviderError>
    >
  > = {
    ackWorkItems: (driver, tokens) => driver.ackWorkItems(tokens.map((lockToken) => ({ lockToken, completion: null }))),
    abandonWorkItems: (driver, tokens) =>
      driver.abandonWorkItems(tokens.map((lockToken) => ({ lockToken, delayMs: null, ignoreAttempt: false }))),
    renewWorkItemLocks: (driver, tokens) =>
      driver.renewWorkItemLocks(tokens.map((lockToken) => ({ lockToken, extendForMs: 60_000 })))
  }
  for (const [name, operation] of Object.entries(operations)) {
    it.live(`${name} and itself`, () =>
      Effect.gen(function*() {
        const test = yield* open
        const [forward, backward] = both(test.tokens)
        const answers = yield* meet(test, middle, [operation(test.driver, forward), operation(test.driver, backward)])
        for (const each of answers) assert.lengthOf(new Set(each), 1)
      }))

    it.live(`${name} and cancellation by a turn`, () =>
      Effect.gen(function*() {
        const test = yield* open
        const [forward, backward] = both(test.tokens)
        for (const [tokens, cancelled] of [[forward, ids.toReversed()], [backward, ids]] as const) {
          const turn = test.turns.pop()!
          const taken = tokens === forward ? tokens : (yield* Effect.gen(function*() {
            yield* test.driver.enqueueForWorker(ids.map((instanceId) => Test.activity({ instanceId })))
            return (yield* Test.take(test.driver)).map(({ lockToken }) => lockToken).toReversed()
          }))
          const [settled, acked] = yield* meet(test, middle, [
            operation(test.driver, taken),
            cancel(test.driver, turn, cancelled)
          ])
          assert.lengthOf(new Set(settled), 1)
          assert.deepStrictEqual(acked, ["Done"])
        }
      }))
  }

  it.live("cancellations by two turns", () =>
    Effect.gen(function*() {
      const test = yield* open
      const answers = yield* meet(test, middle, [
        cancel(test.driver, test.turns[0]!, ids),
        cancel(test.driver, test.turns[1]!, ids.toReversed())
      ])
      assert.deepStrictEqual(answers, [["Done"], ["Done"]])
    }))
})

describe("sessions are locked by id:", () => {
  // Rows in the order of their sessions, and rows against it.
  for (const [name, settledFirst] of [["along", true], ["against", false]] as const) {
    it.live(`results ${name} the order of ids, and renewals the other way`, () =>
      Effect.gen(function*() {
        const test = yield* Test.open()
        yield* test.driver.enqueueForWorker(
          [...ids, ...ids.toReversed()].map((sessionId) => Test.activity({ sessionId }))
        )
        const taken = yield* Test.take(test.driver, { session: { ownerId: "me", lockTimeoutMs: 60_000 } })
        const [along, against] = [taken.slice(0, 3), taken.slice(3)]
        const answers = yield* meet(test, "SELECT FROM sessions WHERE session_id = 'm' FOR UPDATE", [
          test.driver.ackWorkItems(
            (settledFirst ? along : against).map(({ lockToken }) => ({ lockToken, completion: null }))
          ),
          test.driver.renewWorkItemLocks(
            (settledFirst ? against : along).map(({ lockToken }) => ({ lockToken, extendForMs: 60_000 }))
          )
        ])
        assert.deepStrictEqual(answers, [["Done", "Done", "Done"], ["Done", "Done", "Done"]])
      }))
  }
})

describe("instances are created by id:", () => {
  const middle = "INSERT INTO instances VALUES ('m', 'O', null, 1, now(), now())"

  it.live("starts", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      const [forward, backward] = both(ids.map((id) => Test.start(id)))
      const answers = yield* meet(test, middle, [
        test.driver.startOrchestrations(forward),
        test.driver.startOrchestrations(backward)
      ])
      assert.strictEqual(answers.flat().filter((answer) => answer === "Started").length, 2)
    }))

  it.live("a start and first turns", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      yield* test.driver.enqueueForOrchestrator(ids.map((id) => Test.message(id)))
      const claimed = yield* Test.claim(test.driver)
      const answers = yield* meet(test, middle, [
        test.driver.startOrchestrations(ids.toReversed().map((id) => Test.start(id))),
        test.driver.ackOrchestrationItems(claimed.map(({ lockToken }) => Test.turn(lockToken, Test.named)))
      ])
      assert.deepStrictEqual(answers[1], ["Done", "Done", "Done"])
    }))
})
