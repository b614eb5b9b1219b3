import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type { ProviderError } from "../../src/provider/ProviderError.ts"
import * as Test from "../utils/driver.ts"
import { session } from "../utils/session.ts"
import { waitUntil } from "../utils/waitUntil.ts"

/**
 * Two sets that share three rows, given in opposite orders, while another session holds the middle row. When rows were
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

type Operations = Readonly<
  Record<
    string,
    (driver: Test.Driver, tokens: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<string>, ProviderError>
  >
>

const turns: Operations = {
  ackOrchestrationItems: (driver, tokens) =>
    driver.ackOrchestrationItems(tokens.map((token) => Test.turn(token, { ...Test.named, left: [1] }))),
  abandonOrchestrationItems: (driver, tokens) =>
    driver.abandonOrchestrationItems(
      tokens.map((lockToken) => ({ lockToken, delayMs: null, ignoreAttempt: false }))
    ),
  renewOrchestrationItemLocks: (driver, tokens) =>
    driver.renewOrchestrationItemLocks(tokens.map((lockToken) => ({ lockToken, extendForMs: 60_000 }))),
  deferMessages: (driver, tokens) =>
    driver.deferMessages(tokens.map((lockToken) => ({ lockToken, ids: [1], delayMs: 60_000 })))
}

/** Renewals are not among them: they wait for no activity. */
const activities: Operations = {
  ackWorkItems: (driver, tokens) => driver.ackWorkItems(tokens.map((lockToken) => ({ lockToken, completion: null }))),
  abandonWorkItems: (driver, tokens) =>
    driver.abandonWorkItems(tokens.map((lockToken) => ({ lockToken, delayMs: null, ignoreAttempt: false })))
}

describe("instance locks are taken by instance:", () => {
  const open = Effect.gen(function*() {
    const test = yield* Test.open({ patient: true })
    yield* test.driver.enqueueForOrchestrator(ids.map((id) => Test.message(id)))
    const tokens = (yield* Test.claim(test.driver)).map(({ lockToken }) => lockToken)
    return { ...test, tokens }
  })
  const middle = "SELECT FROM instance_locks WHERE instance_id = 'm' FOR UPDATE"
  for (const [name, operation] of Object.entries(turns)) {
    for (const [otherName, other] of Object.entries(turns)) {
      if (name > otherName) continue
      it.live(`${name} and ${otherName}`, () =>
        Effect.gen(function*() {
          const test = yield* open
          const [forward, backward] = both(test.tokens)
          const answers = yield* meet(test, middle, [operation(test.driver, forward), other(test.driver, backward)])
          // The second call finds all locks or none.
          for (const each of answers) assert.lengthOf(new Set(each), 1)
        }))
    }
  }
})

describe("activities are locked by id:", () => {
  const open = Effect.gen(function*() {
    const test = yield* Test.open({ patient: true })
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
  for (const [name, operation] of Object.entries(activities)) {
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
  it.live("results in any order; renewals pass over a session that others lock", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      yield* test.driver.enqueueForWorker(
        [...ids, ...ids.toReversed()].map((sessionId) => Test.activity({ sessionId }))
      )
      const taken = yield* Test.take(test.driver, { session: { workerId: "me", lockTimeoutMs: 60_000 } })
      const middle = "SELECT FROM sessions WHERE session_id = 'm' FOR UPDATE"
      const holder = yield* session(test)
      yield* holder(middle)
      assert.deepStrictEqual(
        yield* test.driver.renewWorkItemLocks(taken.map(({ lockToken }) => ({ lockToken, extendForMs: 60_000 }))),
        taken.map(() => "Done")
      )
      yield* holder("COMMIT")
      const [along, against] = [taken.slice(0, 3), taken.slice(3)].map((some) =>
        test.driver.ackWorkItems(some.map(({ lockToken }) => ({ lockToken, completion: null })))
      )
      const answers = yield* meet(test, middle, [along!, against!])
      assert.deepStrictEqual(answers, [["Done", "Done", "Done"], ["Done", "Done", "Done"]])
    }))
})

describe("instances are created by id:", () => {
  const middle = "INSERT INTO instances VALUES ('m', 'O', null, 1, now(), now())"

  it.live("starts", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      const [forward, backward] = both(ids.map((id) => Test.start(id)))
      const answers = yield* meet(test, middle, [
        test.driver.startOrchestrations(forward),
        test.driver.startOrchestrations(backward)
      ])
      assert.strictEqual(answers.flat().filter((answer) => answer === "Started").length, 2)
    }))

  it.live("a start and first turns", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      yield* test.driver.enqueueForOrchestrator(ids.map((id) => Test.message(id)))
      const claimed = yield* Test.claim(test.driver)
      const answers = yield* meet(test, middle, [
        test.driver.startOrchestrations(ids.toReversed().map((id) => Test.start(id))),
        test.driver.ackOrchestrationItems(claimed.map(({ lockToken }) => Test.turn(lockToken, Test.named)))
      ])
      assert.deepStrictEqual(answers[1], ["Done", "Done", "Done"])
    }))
})

describe("turns without a claim", () => {
  const middle = "INSERT INTO instances VALUES ('m', 'O', null, 1, now(), now())"
  const children = (of: ReadonlyArray<string>) =>
    of.map((id) => ({
      ...Test.message(id, "{\"StartOrchestration\":{}}"),
      start: {
        orchestrationName: "Child",
        orchestrationVersion: null,
        parentInstanceId: null,
        pinnedVersion: { major: 1000, minor: 0, patch: 0 }
      }
    }))
  const begin = (id: string, of: ReadonlyArray<string> = []) =>
    Test.start(id, {
      firstTurn: { turn: Test.unclaimedTurn(0, { ...Test.named, orchestratorItems: children(of) }), handOver: null }
    })
  const instances = ({ sql }: Test.Opened) =>
    Effect.map(
      sql<{ id: string }>("SELECT instance_id AS id FROM instances ORDER BY 1"),
      (rows) => rows.map(({ id }) => id)
    )

  it.live("create instances by id: two sets of first turns", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      const [forward, backward] = both(ids.map((id) => begin(id)))
      yield* meet(test, middle, [
        Effect.as(test.driver.startOrchestrations(forward), []),
        Effect.as(test.driver.startOrchestrations(backward), [])
      ])
      assert.deepStrictEqual(yield* instances(test), ids)
    }))

  it.live("create instances by id: children of a first turn, and starts of the same ids", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      yield* meet(test, middle, [
        // In the order of their ids, the parent comes after a child that the other set starts.
        Effect.as(test.driver.startOrchestrations([begin("n", ["z", "m", "a"])]), []),
        Effect.as(test.driver.startOrchestrations(["n", "a", "z", "m"].map((id) => Test.start(id))), [])
      ])
      assert.deepStrictEqual(yield* instances(test), ["a", "m", "n", "z"])
    }))

  it.live("create instances by id: children of optimistic turns", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      const waiting = yield* Test.waiting(test.driver, ["one", "two"])
      const [one, two] = yield* meet(test, middle, [
        test.driver.advanceOrchestrations!([
          Test.optimistic("one", waiting.one!, { orchestratorItems: children(ids) })
        ]),
        test.driver.advanceOrchestrations!([
          Test.optimistic("two", waiting.two!, { orchestratorItems: children(ids.toReversed()) })
        ])
      ])
      assert.deepStrictEqual([one, two].flat().map(({ _tag }) => _tag), ["Advanced", "Advanced"])
      assert.deepStrictEqual(yield* instances(test), ["a", "m", "one", "two", "z"])
    }))

  for (
    const [what, results, cancels, expected] of [
      ["result", [2, 0], [], "Contention"],
      ["cancelled activity", [2], [0], "Queued"]
    ] as const
  ) {
    it.live(`wait for no activity that others lock, be it a ${what}; neither do renewals`, () =>
      Effect.gen(function*() {
        const test = yield* Test.open({ patient: true })
        const { one } = yield* Test.waiting(test.driver, ["one"], 3)
        const holder = yield* session(test)
        yield* holder("SELECT FROM worker_queue WHERE activity_id = 2 FOR UPDATE")
        const renewed = test.driver.renewWorkItemLocks(one!.map((lockToken) => ({ lockToken, extendForMs: 60_000 })))
        assert.deepStrictEqual(yield* renewed, ["Locked", "Done", "Done"])
        const answer = yield* test.driver.advanceOrchestrations!([
          Test.optimistic("one", results.map((i) => one![i]!), {
            cancelledActivities: cancels.map((i) => ({ instanceId: "one", executionId: 1, activityId: i + 2 }))
          })
        ]).pipe(
          Effect.map(([answer]) => answer!._tag),
          Effect.catch((error) => Effect.succeed(error.reason._tag))
        )
        assert.strictEqual(answer, expected)
        yield* holder("COMMIT")
        assert.deepStrictEqual(yield* renewed, ["Done", "Done", expected === "Queued" ? "LockLost" : "Done"])
      }))
  }
})

describe("deletions lock rows in the same order as all functions:", () => {
  const remove = (test: Test.Opened, instanceIds: ReadonlyArray<string>) =>
    test.admin.deleteInstances({ instanceIds, mustHaveEnded: [] })
  const lock = "SELECT FROM instance_locks WHERE instance_id = 'm' FOR UPDATE"

  const open = Effect.gen(function*() {
    const test = yield* Test.open({ patient: true })
    yield* test.driver.startOrchestrations(ids.map((id) => Test.start(id)))
    const turns = (yield* Test.claim(test.driver)).map(({ lockToken }) => lockToken)
    yield* test.driver.enqueueForWorker(ids.map((instanceId) => Test.activity({ instanceId })))
    const activities = (yield* Test.take(test.driver)).map(({ lockToken }) => lockToken)
    return { ...test, turns, activities }
  })
  const instancesLeft = ({ sql }: Test.Opened) => Effect.map(sql("SELECT FROM instances"), (rows) => rows.length)

  it.live("two deletions", () =>
    Effect.gen(function*() {
      const test = yield* open
      const answers = yield* meet(test, lock, [remove(test, ids), remove(test, ids.toReversed())])
      const counts = answers.map((answer) => answer._tag === "Deleted" ? answer.deleted.instancesDeleted : answer)
      assert.sameMembers(counts, [3, 0])
      assert.strictEqual(yield* instancesLeft(test), 0)
    }))

  for (const [name, operation] of Object.entries(turns)) {
    it.live(`one and ${name}`, () =>
      Effect.gen(function*() {
        for (const [given, tokens] of [[ids, "against"], [ids.toReversed(), "along"]] as const) {
          const test = yield* open
          const [answers, removed] = yield* meet(test, lock, [
            operation(test.driver, tokens === "along" ? test.turns : test.turns.toReversed()),
            remove(test, given)
          ])
          assert.lengthOf(new Set(answers), 1)
          assert.strictEqual(removed._tag, "Deleted")
          assert.strictEqual(yield* instancesLeft(test), 0)
        }
      }))
  }

  for (const [name, operation] of Object.entries(activities)) {
    it.live(`one and ${name}`, () =>
      Effect.gen(function*() {
        const test = yield* open
        const [answers, removed] = yield* meet(
          test,
          "SELECT FROM worker_queue WHERE instance_id = 'm' FOR UPDATE",
          [operation(test.driver, test.activities.toReversed()), remove(test, ids)]
        )
        assert.lengthOf(new Set(answers), 1)
        assert.strictEqual(removed._tag, "Deleted")
        assert.lengthOf(yield* test.sql("SELECT FROM orchestrator_queue"), 0)
      }))
  }

  it.live("one and first turns of children", () =>
    Effect.gen(function*() {
      const test = yield* open
      // The order of the children is the reverse of that of their parents.
      yield* test.driver.enqueueForOrchestrator(
        ids.map((parent, i) =>
          Test.message(
            `child-${9 - i}`,
            `{"StartOrchestration":{"parent_instance":"${parent}"}}`
          )
        )
      )
      const claimed = yield* Test.claim(test.driver)
      assert.lengthOf(claimed, 3)
      const [acked, removed] = yield* meet(test, "SELECT FROM instances WHERE instance_id = 'm' FOR UPDATE", [
        test.driver.ackOrchestrationItems(
          claimed.map(({ lockToken }, i) => Test.turn(lockToken, { ...Test.named, parentInstanceId: ids[i]! }))
        ),
        remove(test, ids.toReversed())
      ])
      assert.deepStrictEqual(acked, ["Done", "Done", "Done"])
      assert.strictEqual(removed._tag, "ChildLeftBehind")
      assert.strictEqual(yield* instancesLeft(test), 6)
    }))

  it.live("one of ids without rows and starts of them", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      const [started, removed] = yield* meet(test, "INSERT INTO instances VALUES ('m', 'O', null, 1, now(), now())", [
        test.driver.startOrchestrations(ids.map((id) => Test.start(id))),
        remove(test, ids.toReversed())
      ])
      assert(removed._tag === "Deleted")
      // The one of the holder, and the started ones.
      const created = 1 + started.filter((answer) => answer === "Started").length
      assert.strictEqual(removed.deleted.instancesDeleted + (yield* instancesLeft(test)), created)
      for (const id of ids) {
        const left = yield* Test.tablesWith(test, id)
        assert.isTrue(left.length === 0 || left.length === 3, left.join())
      }
    }))
})
