/**
 * Limits of orchestrations: which instances have a slot, whose turn it is, and what ends the wait of a start.
 */
import { assert } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { application } from "../../model/ErrorDetails.ts"
import type { LimitChanges } from "../../model/Limit.ts"
import { PauseTarget } from "../../model/Pause.ts"
import { Admin } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import {
  ack,
  cancelItem,
  childStartItem,
  claimInstance,
  complete,
  completed,
  continueAsNewItem,
  elapse,
  elapseLockTimeout,
  expectNoOrchestration,
  fails,
  listed,
  lockTimeout,
  named,
  poke,
  queueMessage,
  send,
  started,
  startItem,
  topic,
  turn,
  turnOf,
  version
} from "./harness.ts"
import type { EventInput } from "./harness.ts"
import { begins, beginsNot } from "./unclaimed.ts"

const name = "TestOrch"

const limit = (changes: LimitChanges) =>
  Effect.flatMap(Admin, (admin) => admin.setLimit("orchestration", name, changes))

const unlimit = Effect.flatMap(Admin, (admin) => admin.removeLimit("orchestration", name))

const use = (key?: string) =>
  Effect.map(
    Effect.flatMap(Admin, (admin) => admin.getLimit("orchestration", name, key)),
    (limit) => [limit!.inUse, limit!.waiting]
  )

const waiting = Effect.flatMap(
  Provider,
  ({ readBacklog }) => Effect.map(readBacklog, ({ limitedInstances }) => limitedInstances)
)

/** Starts these instances, in this order. */
const start = (...starts: ReadonlyArray<readonly [instance: string, limitKey?: string, delay?: Duration.Input]>) =>
  Effect.flatMap(
    Provider,
    (provider) =>
      Effect.forEach(starts, ([instance, limitKey, delay]) =>
        provider.startOrchestration({
          start: startItem(instance, limitKey === undefined ? {} : { limitKey }),
          pinnedVersion: version("1.0.0"),
          delay: Option.map(Option.fromUndefinedOr(delay), Duration.fromInputUnsafe)
        }), { discard: true })
  )

/** Claims the first turns of these, in this order, stores them, and then finds no other. */
const beginOnly = (...instances: ReadonlyArray<string>) =>
  Effect.gen(function*() {
    for (const instance of instances) {
      yield* ack(yield* claimInstance(instance), { events: [started()], metadata: named() })
    }
    yield* expectNoOrchestration()
  })

export const instanceLimits = topic("instanceLimits", {
  no_more_instances_than_the_limit_begin: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 2 } })
    yield* start(["a"], ["b"], ["c"], ["d"])
    yield* beginOnly("a", "b")
    assert.deepStrictEqual(yield* use(), [2, 2])
    assert.strictEqual(yield* waiting, 2)
    yield* complete("b")
    yield* beginOnly("c")
    yield* complete("a")
    yield* beginOnly("d")
    assert.deepStrictEqual(yield* use(), [2, 0])
    assert.strictEqual(yield* waiting, 0)
    assert.sameMembers(yield* listed(), ["a", "b", "c", "d"])
  }),

  other_orchestrations_have_no_limit: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 1 } })
    yield* start(["a"], ["b"])
    yield* Effect.flatMap(Provider, (provider) =>
      provider.startOrchestration({
        start: startItem("other", { orchestration: "Other" }),
        pinnedVersion: version("1.0.0"),
        delay: Option.none()
      }))
    yield* beginOnly("a", "other")
  }),

  instances_of_each_key_have_slots_of_their_own: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 3 }, eachKey: { concurrency: 1 }, keys: { c: { concurrency: 2 } } })
    yield* start(["a1", "a"], ["a2", "a"], ["b1", "b"], ["c1", "c"], ["c2", "c"])
    yield* beginOnly("a1", "b1", "c1")
    yield* complete("b1")
    yield* beginOnly("c2")
    assert.deepStrictEqual(yield* use("c"), [3, 1])
  }),

  instances_of_keys_take_turns: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 1 } })
    yield* start(["a1", "a"], ["a2", "a"], ["a3", "a"], ["b1", "b"], ["b2", "b"], ["c1", "c"])
    // The first has its slot at once, and no turn was taken for it.
    for (const instance of ["a1", "a2", "b1", "c1", "a3", "b2"]) {
      yield* beginOnly(instance)
      yield* complete(instance)
    }
  }),

  a_paused_instance_takes_no_slot: Effect.gen(function*() {
    const { pause, resume } = yield* Admin
    yield* limit({ total: { concurrency: 1 } })
    yield* start(["a", "k"], ["b", "k"], ["c", "k"], ["d", "z"])
    yield* beginOnly("a")
    const target = PauseTarget.Instance({ instanceId: "b" })
    yield* pause(target)
    yield* complete("a")
    yield* beginOnly("c")
    yield* complete("c")
    yield* beginOnly("d")
    yield* resume(target)
    yield* expectNoOrchestration()
    yield* complete("d")
    yield* beginOnly("b")
  }),

  an_instance_keeps_its_slot_until_it_ends: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 1 } })
    yield* start(["a"], ["b"])
    yield* claimInstance("a", { lockTimeout: yield* lockTimeout() })
    yield* elapseLockTimeout
    yield* expectNoOtherThan("a")
    yield* ack(yield* claimInstance("a"), { events: [started()], metadata: named() })
    // It waits, for a signal or a timer.
    yield* expectNoOrchestration()
    yield* turn("a", { metadata: named({ status: "ContinuedAsNew" }), items: [continueAsNewItem("a")] })
    yield* ack(yield* claimInstance("a"), { executionId: 2, events: [started()], metadata: named() })
    yield* expectNoOrchestration()
    yield* turn("a", {
      executionId: 2,
      events: [failed],
      metadata: named({ status: "Failed", output: "it broke" })
    })
    yield* beginOnly("b")
  }),

  a_child_waits_for_a_slot: Effect.gen(function*() {
    yield* start(["p"])
    yield* beginOnly("p")
    yield* Effect.flatMap(Admin, (admin) => admin.setLimit("orchestration", "Child", { total: { concurrency: 1 } }))
    const child = (instance: string) => childStartItem(instance, "p", { orchestration: "Child", limitKey: "k" })
    const children = [child("c1"), child("c2")]
    yield* poke("p")
    const claimed = yield* claimInstance("p")
    yield* Effect.flatMap(Provider, (provider) =>
      provider.ackOrchestrationItem(claimed.lockToken, {
        ...turnOf("p", 1, { items: children }),
        startsPinnedTo: new Map(children.map((item) => [item, version("1.0.0")]))
      }))
    yield* ack(yield* claimInstance("c1"), {
      events: [started({ name: "Child" })],
      metadata: named({ orchestrationName: "Child" })
    })
    yield* expectNoOrchestration()
    const limit = yield* Effect.flatMap(Admin, (admin) => admin.getLimit("orchestration", "Child", "k"))
    assert.deepInclude(limit!.keys[0], { key: "k", inUse: 1, waiting: 1 })
    yield* turn("c1", {
      events: [completed(2)],
      metadata: named({ orchestrationName: "Child", status: "Completed", output: "done" })
    })
    yield* claimInstance("c2")
  }),

  a_rate_spaces_starts: Effect.gen(function*() {
    yield* limit({ total: { rate: { count: 1, per: "3 seconds" } } })
    yield* start(["a"], ["b"])
    yield* beginOnly("a")
    yield* elapse("1 second")
    yield* expectNoOrchestration()
    yield* elapse("2 seconds")
    yield* beginOnly("b")
  }),

  a_later_start_takes_no_slot_before: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 1 } })
    yield* start(["later", "a", "3 seconds"], ["now", "a"])
    yield* beginOnly("now")
    assert.deepStrictEqual(yield* use(), [1, 0])
    assert.strictEqual(yield* waiting, 0)
    yield* elapse("3 seconds")
    yield* expectNoOrchestration()
    assert.deepStrictEqual(yield* use(), [1, 1])
    assert.strictEqual(yield* waiting, 1)
    yield* complete("now")
    yield* beginOnly("later")
  }),

  a_change_applies_to_starts_that_wait: Effect.gen(function*() {
    yield* start(["a", "k"], ["b", "k"], ["c", "k"])
    yield* ack(yield* claimInstance("a"), { events: [started()], metadata: named() })
    // What runs counts, what has not begun waits.
    yield* limit({ eachKey: { concurrency: 1 } })
    yield* expectNoOrchestration()
    assert.deepStrictEqual(yield* use(), [1, 2])
    yield* limit({ eachKey: { concurrency: 2 } })
    yield* beginOnly("b")
    assert.isTrue(yield* unlimit)
    yield* beginOnly("c")
    assert.isFalse(yield* unlimit)
  }),

  messages_wait_with_their_start: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 1 } })
    yield* start(["a"])
    yield* beginOnly("a")
    yield* start(["b"])
    yield* send(queueMessage("b", "Go", "1"))
    yield* expectNoOrchestration()
    yield* send(queueMessage("b", "Go", "2"))
    yield* expectNoOrchestration()
    yield* complete("a")
    const { item } = yield* claimInstance("b")
    assert.deepStrictEqual(item.messages.map(({ _tag }) => _tag), [
      "StartOrchestration",
      "QueueMessage",
      "QueueMessage"
    ])
  }),

  a_start_that_waits_is_cancelled_at_once: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 1 } })
    yield* start(["a"])
    yield* beginOnly("a")
    yield* start(["b"], ["c"], ["d"])
    yield* send(cancelItem("b"))
    yield* send(queueMessage("c", "duroxide-prisma/interrupt", `{"reason":"test"}`))
    for (const instance of ["b", "c"]) {
      yield* ack(yield* claimInstance(instance), {
        events: [started()],
        metadata: named({ status: "Failed", output: "canceled: test" })
      })
    }
    yield* expectNoOrchestration()
    assert.deepStrictEqual(yield* use(), [1, 1])
    yield* Effect.flatMap(Admin, (admin) => admin.deleteInstance("d", { force: true }))
    assert.deepStrictEqual(yield* use(), [1, 0])
  }),

  a_deleted_instance_frees_its_slot: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 1 } })
    yield* start(["a"], ["b"])
    yield* beginOnly("a")
    yield* Effect.flatMap(Admin, (admin) => admin.deleteInstance("a", { force: true }))
    yield* beginOnly("b")
  }),

  a_retried_instance_counts_again: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 1 } })
    yield* start(["a", "k"])
    yield* beginOnly("a")
    yield* turn("a", {
      events: [failed],
      metadata: named({ status: "Failed", output: "it broke" })
    })
    yield* start(["b", "k"])
    yield* beginOnly("b")
    yield* Effect.flatMap(Admin, (admin) => admin.retry("a"))
    // It does not wait for a slot.
    assert.deepStrictEqual(yield* use("k"), [2, 0])
    yield* claimInstance("a")
  }),

  a_start_without_a_slot_is_stored_without_its_first_turn: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 1 } })
    const first = { events: [started()], metadata: named() }
    yield* begins("a", first)
    yield* beginsNot("b", first, "Started")
    yield* expectUse([1, 1])
    yield* complete("a")
    yield* beginOnly("b")
    yield* expectUse([1, 0])
  }),

  a_later_start_does_not_hold_up_others: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 5 } })
    yield* start(["later", "k", "1 hour"])
    yield* begins("a", { events: [started()], metadata: named() })
    yield* expectUse([1, 0])
  }),

  with_a_free_slot_a_start_brings_its_first_turn: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 5000 }, eachKey: { concurrency: 2000 } })
    yield* begins("a", { events: [started()], metadata: named() })
    yield* expectUse([1, 0])
    yield* complete("a")
    yield* expectUse([0, 0])
  }),

  a_start_says_what_it_waits_for: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 5 }, eachKey: { concurrency: 1 } })
    const beforeMs = yield* Clock.currentTimeMillis
    yield* start(["a", "k"], ["b", "k"], ["c", "k"])
    yield* beginOnly("a")
    const { waitsForLimit } = yield* Effect.flatMap(Admin, (admin) => admin.getQueuedWork("c"))
    assert.deepStrictEqual(waitsForLimit, { key: "k", ahead: 1 })
    const found = yield* Effect.flatMap(Admin, (admin) => admin.getLimit("orchestration", name))
    assert.isAtLeast(found!.keys[0]!.oldestMs!, beforeMs)
  }),

  a_bad_key_is_refused: Effect.gen(function*() {
    yield* fails(start(["a", "k".repeat(300)]), /300 bytes/)
    assert.deepStrictEqual(yield* listed(), [])
  })
})

const failed: EventInput = {
  _tag: "OrchestrationFailed",
  eventId: 2,
  details: application("OrchestrationFailed", "it broke")
}

const expectUse = (expected: readonly [inUse: number, waiting: number]) =>
  Effect.map(use(), (used) => assert.deepStrictEqual(used, [...expected]))

/** The lock of this one has ended, and it is the only one that can be claimed. */
const expectNoOtherThan = (instance: string) =>
  Effect.gen(function*() {
    const { lockToken } = yield* claimInstance(instance)
    yield* expectNoOrchestration()
    yield* Effect.flatMap(Provider, (provider) =>
      provider.abandonOrchestrationItem({ lockToken, delay: Option.none(), ignoreAttempt: true }))
  })
