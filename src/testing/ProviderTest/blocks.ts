/**
 * Instances whose turn no process could run: what is stored of it, and what ends it.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { BlockReport } from "../../model/Block.ts"
import { Admin } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import {
  abandon,
  abandonWork,
  ack,
  activityItem,
  activityScheduled,
  claimInstance,
  claimWork,
  create,
  elapse,
  expectNoOrchestration,
  expectNoWork,
  listed,
  poke,
  topic,
  turn
} from "./harness.ts"

const report: BlockReport = { reason: "HistoryDiffers", problem: "event 2 differs", eventId: 2, build: "old" }

const blockFor = Effect.fnUntraced(function*(instanceId: string, delay: number | "1 hour", block = report) {
  const claimed = yield* claimInstance(instanceId)
  yield* abandon(claimed.lockToken, { delay, ignoreAttempt: true, block })
})

const blockOf = (instanceId: string) =>
  Effect.map(
    Effect.flatMap(Provider, (provider) => provider.readInstance(instanceId)),
    (state) => Option.getOrUndefined(state)?.block
  )

export const blocks = topic("blocks", {
  blocked_instance_runs_and_says_why: Effect.gen(function*() {
    yield* create("i")
    yield* poke("i", "go")
    assert.isNull(yield* blockOf("i"))
    yield* blockFor("i", 1_000)
    const { sinceMs, triedAtMs, tries, ...stored } = (yield* blockOf("i"))!
    assert.deepStrictEqual(stored, report)
    assert.strictEqual(tries, 1)
    assert.strictEqual(sinceMs, triedAtMs)
    yield* poke("i", "meanwhile")
    yield* expectNoOrchestration()
    yield* elapse(1_100)
    yield* blockFor("i", 1_000, { ...report, reason: "DataUnreadable", build: "new" })
    const again = (yield* blockOf("i"))!
    assert.deepInclude(again, { reason: "DataUnreadable", build: "new", sinceMs, tries: 2 })
    assert.isAtLeast(again.triedAtMs, sinceMs + 1_000)
    yield* elapse(1_100)
    const claimed = yield* claimInstance("i")
    // No delivery has counted, and no message is lost.
    assert.strictEqual(claimed.attemptCount, 1)
    assert.lengthOf(claimed.item.messages, 2)
  }),

  stored_turn_ends_the_block: Effect.gen(function*() {
    yield* create("i")
    yield* poke("i", "go")
    yield* blockFor("i", 500)
    yield* elapse(600)
    yield* ack(yield* claimInstance("i"), { events: [activityScheduled(2)] })
    assert.isNull(yield* blockOf("i"))
    assert.deepStrictEqual(yield* listed({ error: "event 2" }), [])
    yield* poke("i", "next")
    yield* blockFor("i", 500)
    assert.strictEqual((yield* blockOf("i"))!.tries, 1)
  }),

  blocked_instances_are_found_and_counted: Effect.gen(function*() {
    const { readBacklog } = yield* Provider
    yield* create("one")
    yield* poke("one", "go")
    yield* blockFor("one", "1 hour")
    yield* create("other")
    yield* poke("other", "go")
    assert.deepStrictEqual(yield* listed({ status: "Blocked" }), ["one"])
    assert.deepStrictEqual(yield* listed({ status: "Running", orderBy: "id" }), ["one", "other"])
    assert.deepStrictEqual(yield* listed({ error: "EVENT 2" }), ["one"])
    assert.deepStrictEqual(yield* listed({ status: "Blocked", error: "event 2" }), ["one"])
    assert.deepStrictEqual(yield* listed({ error: "event 3" }), [])
    assert.strictEqual((yield* readBacklog).blockedInstances, 1)
  }),

  retry_ends_the_pauses_of_served_instances: Effect.gen(function*() {
    const { readInstance, wakeBlocked } = yield* Provider
    yield* create("i")
    yield* poke("i", "go")
    yield* blockFor("i", "1 hour")
    const { orchestrationName } = Option.getOrThrow(yield* readInstance("i"))
    assert.strictEqual(yield* wakeBlocked({ orchestrations: ["another"], activities: [] }), 0)
    yield* expectNoOrchestration()
    assert.strictEqual(yield* wakeBlocked({ orchestrations: [orchestrationName], activities: [] }), 1)
    assert.isNotNull(yield* blockOf("i"))
    // A pause of another kind stays.
    yield* abandon((yield* claimInstance("i")).lockToken, { delay: 500 })
    yield* elapse(600)
    yield* ack(yield* claimInstance("i"), { events: [activityScheduled(2)] })
    yield* poke("i", "next")
    yield* abandon((yield* claimInstance("i")).lockToken, { delay: "1 hour" })
    assert.strictEqual(yield* wakeBlocked({ orchestrations: [orchestrationName], activities: [] }), 0)
    yield* expectNoOrchestration()
  }),

  activity_blocks_its_instance: Effect.gen(function*() {
    const { wakeBlocked } = yield* Provider
    yield* create("i")
    yield* turn("i", {
      executionId: 1,
      events: [activityScheduled(2)],
      workers: [activityItem("i", 2, { tag: "gpu" }), activityItem("i", 3)]
    })
    const tags = { _tag: "Tags", tags: ["gpu"] } as const
    const unread: BlockReport = { reason: "DataUnreadable", problem: "no floor", eventId: 2, build: "old" }
    const claimed = yield* claimWork({ tags })
    yield* abandonWork(claimed.lockToken, { delay: "1 hour", ignoreAttempt: true, block: unread })
    assert.deepInclude(yield* blockOf("i"), { ...unread, tries: 1 })
    yield* expectNoWork({ tags })
    assert.strictEqual(yield* wakeBlocked({ orchestrations: ["TestOrch"], activities: ["Another"] }), 0)
    yield* expectNoWork({ tags })
    assert.strictEqual(yield* wakeBlocked({ orchestrations: [], activities: ["TestActivity"] }), 1)
    assert.strictEqual((yield* claimWork({ tags })).attemptCount, 1)
  }),

  deletion_forgets_the_block: Effect.gen(function*() {
    const { deleteInstance } = yield* Admin
    yield* create("i")
    yield* poke("i", "go")
    yield* blockFor("i", "1 hour")
    yield* deleteInstance("i", { force: true })
    yield* create("i")
    yield* poke("i", "go")
    assert.isNull(yield* blockOf("i"))
  })
})
