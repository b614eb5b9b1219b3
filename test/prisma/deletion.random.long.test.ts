/**
 * Deletion against everything at once: turns, results, messages, starts and prunings of the same few instances, in a
 * random order on many connections, several hundred times. Which of them wins is left to chance; that an instance is
 * complete or fully deleted is not, nor that no call fails because of a deadlock.
 *
 * Limited to half a minute: a busy machine runs fewer rounds.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type { ClaimedInstance } from "../../src/provider/ProviderDriver.ts"
import type { ProviderError } from "../../src/provider/ProviderError.ts"
import * as Test from "../utils/driver.ts"

const most = 300
const ids = ["child", "other", "parent", "stranger"]

const chance = (probability: number) => Math.random() < probability
const shuffled = <A>(all: ReadonlyArray<A>) =>
  all.map((value) => ({ value, at: Math.random() })).sort((a, b) => a.at - b.at).map(({ value }) => value)

const childStart = `{"StartOrchestration":{"instance":"child","parent_instance":"parent"}}`

type Call = Effect.Effect<unknown, ProviderError>

/** A turn as the runtime takes it: without a name, a start and a history there is no instance. */
const settle = (driver: Test.Driver, claimed: ClaimedInstance): Call => {
  const { executionId, history, instance, instanceId, lockToken, messages } = claimed
  const isStarted = instance !== null ||
    messages.some(({ workItem }) => workItem.startsWith(`{"StartOrchestration"`))
  if (!isStarted || chance(0.2)) {
    return driver.abandonOrchestrationItems([{ lockToken, delayMs: null, ignoreAttempt: false }])
  }
  const movesOn = history.length > 0 && chance(0.3)
  return driver.ackOrchestrationItems([
    Test.turn(lockToken, {
      ...Test.named,
      executionId: movesOn ? executionId + 1 : executionId,
      history: Test.events(movesOn ? 1 : history.length + 1),
      keyValues: [{ action: "set", key: "k", value: "v", lastUpdatedAtMs: 1 }],
      parentInstanceId: instanceId === "child" ? "parent" : null,
      status: "ContinuedAsNew",
      workerItems: [Test.activity({ instanceId })],
      orchestratorItems: [
        Test.message(instanceId),
        ...(instanceId === "parent" && chance(0.5) ? [Test.message("child", childStart)] : [])
      ]
    })
  ])
}

const claimAndSettle = (driver: Test.Driver): Call =>
  Effect.flatMap(
    Test.claim(driver),
    (claimed) => Effect.forEach(shuffled(claimed), (one) => settle(driver, one), { concurrency: 2 })
  )

const takeAndSettle = (driver: Test.Driver): Call =>
  Effect.flatMap(Test.take(driver), (taken) =>
    driver.ackWorkItems(
      shuffled(taken).map(({ lockToken }, i) => ({
        lockToken,
        completion: { instanceId: ids[i % ids.length]!, workItem: "{}" }
      }))
    ))

const remove = ({ admin }: Test.Opened, instanceIds: ReadonlyArray<string>) =>
  admin.deleteInstances({ instanceIds: shuffled(instanceIds), mustHaveEnded: [] })

const start = ({ driver }: Test.Opened): Call =>
  driver.startOrchestrations(shuffled(ids.filter((id) => id !== "child")).map((id) => Test.start(id)))

/** The concurrent calls of a round, besides the deletion of all ids. */
const calls = (test: Test.Opened, second: Test.Opened): ReadonlyArray<Call> => [
  claimAndSettle(test.driver),
  claimAndSettle(second.driver),
  claimAndSettle(test.driver),
  takeAndSettle(second.driver),
  takeAndSettle(test.driver),
  test.driver.enqueueForOrchestrator(shuffled(ids).map((id) => Test.message(id))),
  remove(second, ["parent", "child"]),
  remove(test, ["parent"]),
  second.admin.pruneExecutions({ instanceId: "parent", keepLast: null, completedBeforeMs: null })
]

/** Waits for locks longer than the server takes to find a deadlock, which would otherwise end as a lock timeout. */
const open = Effect.gen(function*() {
  const test = yield* Test.open({ maxConnections: 8, patient: true })
  return [test, yield* Test.openOn(test, { maxConnections: 8, patient: true })] as const
})

const atOnce = (all: ReadonlyArray<Call>) => Effect.all(shuffled(all), { concurrency: "unbounded", discard: true })

const clean = (test: Test.Opened) => Effect.andThen(remove(test, ids), test.sql("DELETE FROM orchestrator_queue"))

/** Runs as many rounds as time allows; returns their number. */
const rounds = Effect.fnUntraced(function*<E>(play: (round: number) => Effect.Effect<void, E>) {
  const end = (yield* Clock.currentTimeMillis) + 30_000
  let round = 0
  while (round < most && (round === 0 || (yield* Clock.currentTimeMillis) < end)) yield* play(round++)
  return round
})

/** Incomplete instances, and children without their parent. $1 is the start of a child. */
const brokenSql = `
  SELECT 'without execution' AS problem, instance_id FROM instances AS i
  WHERE NOT EXISTS (SELECT FROM executions AS e WHERE e.instance_id = i.instance_id)
  UNION ALL
  SELECT 'without instance', instance_id FROM executions AS e
  WHERE NOT EXISTS (SELECT FROM instances AS i WHERE i.instance_id = e.instance_id)
  UNION ALL
  SELECT 'neither started nor to be started', instance_id FROM instances AS i
  WHERE NOT EXISTS (SELECT FROM history AS h WHERE h.instance_id = i.instance_id)
    AND NOT EXISTS (
      SELECT FROM orchestrator_queue AS q
      WHERE q.instance_id = i.instance_id AND q.work_item LIKE '{"StartOrchestration"%'
    )
  UNION ALL
  SELECT 'without parent', instance_id FROM instances AS i
  WHERE parent_instance_id IS NOT NULL
    AND NOT EXISTS (SELECT FROM instances AS p WHERE p.instance_id = i.parent_instance_id)
  UNION ALL
  SELECT 'to be started without parent', instance_id FROM orchestrator_queue
  WHERE work_item = $1 AND NOT EXISTS (SELECT FROM instances WHERE instance_id = 'parent')`

describe(`deletion, ${most} rounds of everything at once:`, () => {
  it.live("a deleted instance never reappears", () =>
    Effect.gen(function*() {
      const [test, second] = yield* open
      yield* rounds(Effect.fnUntraced(function*(round) {
        yield* start(test)
        yield* claimAndSettle(test.driver)
        yield* atOnce([remove(test, ids), ...calls(test, second)])
        // Only messages that were sent after the deletion may be left; they belong to no instance.
        for (const id of ids) {
          const left = yield* Test.tablesWith(test, id)
          assert.isTrue(left.every((table) => table === "orchestrator_queue"), `round ${round}, ${id}: ${left.join()}`)
        }
        yield* clean(test)
      }))
    }))

  it.live(
    "a concurrently started instance is complete, and no child is without its parent",
    () =>
      Effect.gen(function*() {
        const [test, second] = yield* open
        let survived = 0
        const played = yield* rounds(Effect.fnUntraced(function*(round) {
          if (chance(0.5)) yield* start(test)
          yield* atOnce([remove(test, ids), start(test), start(second), ...calls(test, second)])
          assert.deepStrictEqual(yield* test.sql(brokenSql, [childStart]), [], `round ${round}`)
          survived += (yield* test.sql("SELECT FROM instances")).length
          yield* clean(test)
          for (const id of ids) assert.deepStrictEqual(yield* Test.tablesWith(test, id), [], `round ${round}, ${id}`)
        }))
        // Both sides win some of the time.
        assert.isAbove(survived, 0)
        assert.isBelow(survived, played * ids.length)
      })
  )
})
