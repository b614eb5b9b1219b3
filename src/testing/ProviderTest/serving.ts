/**
 * Routing: a claim takes only work that its process serves, and leaves all other work unchanged.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Provider } from "../../provider/Provider.ts"
import {
  abandon,
  abandonWork,
  ack,
  ackWork,
  activityCompleted,
  Backdoor,
  cancelItem,
  childStartItem,
  claimActivity,
  claimInstance,
  continueAsNewItem,
  create,
  elapseLockTimeout,
  enqueueActivity,
  enqueueStart,
  expectNoOrchestration,
  expectNoWork,
  lockTimeout,
  named,
  poke,
  queueMessage,
  send,
  started,
  topic,
  version
} from "./harness.ts"

export const serving = topic("serving", {
  unserved_instances_stay_as_they_are: Effect.gen(function*() {
    yield* enqueueStart("other", { orchestration: "Other" })
    yield* enqueueStart("newer", { version: "2.0.0" })
    yield* expectNoOrchestration({ serves: ["1.0.0"] })
    yield* enqueueStart("ours")
    yield* claimInstance("ours", { serves: ["1.0.0"] })
    yield* expectNoOrchestration({ serves: ["1.0.0"] })
    // At once, and as its first delivery, for a process that serves it.
    assert.strictEqual((yield* claimInstance("newer", { serves: ["1.0.0", "2.0.0"] })).attemptCount, 1)
    assert.strictEqual((yield* claimInstance("other")).attemptCount, 1)
  }),

  the_version_of_the_running_execution_counts: Effect.gen(function*() {
    yield* create("i")
    yield* poke("i")
    yield* expectNoOrchestration({ serves: ["2.0.0"] })
    yield* claimInstance("i", { serves: ["1.0.0"] })
  }),

  a_start_without_a_version_is_for_any: Effect.gen(function*() {
    yield* enqueueStart("i", { version: null })
    yield* claimInstance("i", { serves: ["7.0.0"] })
  }),

  continue_as_new_without_a_version_never_goes_back: Effect.gen(function*() {
    yield* enqueueStart("i", { version: "1.10.0" })
    yield* ack(yield* claimInstance("i"), {
      events: [started({ version: "1.10.0" })],
      items: [continueAsNewItem("i", { version: null })],
      metadata: named({ orchestrationVersion: "1.10.0", status: "ContinuedAsNew" })
    })
    yield* expectNoOrchestration({ serves: ["1.9.0"] })
    yield* claimInstance("i", { serves: ["1.9.0", "1.11.0"] })
  }),

  a_pre_release_comes_before_later_ones_and_its_release: Effect.gen(function*() {
    yield* enqueueStart("i", { version: "1.0.0-rc.2" })
    yield* ack(yield* claimInstance("i"), {
      events: [started({ version: "1.0.0-rc.2" })],
      items: [continueAsNewItem("i", { version: null })],
      metadata: named({ orchestrationVersion: "1.0.0-rc.2", status: "ContinuedAsNew" })
    })
    for (const older of ["0.9.9", "1.0.0-1", "1.0.0-beta.11", "1.0.0-rc", "1.0.0-rc.1", "1.0.0-RC.3", "1.0.0-rc.1.9"]) {
      yield* expectNoOrchestration({ serves: [older] })
    }
    const provider = yield* Provider
    for (
      const newer of [
        "1.0.0-rc.2",
        "1.0.0-rc.2+build",
        "1.0.0-rc.2.0",
        "1.0.0-rc.10",
        "1.0.0-rc.x",
        "1.0.0-rca",
        "1.0.0"
      ]
    ) {
      const { lockToken } = yield* claimInstance("i", { serves: [newer] })
      yield* provider.abandonOrchestrationItem({ lockToken, delay: Option.none(), ignoreAttempt: true })
    }
  }),

  continue_as_new_to_a_version_goes_to_who_serves_it: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* ack(yield* claimInstance("i"), {
      events: [started()],
      items: [continueAsNewItem("i", { version: "2.0.0" })],
      metadata: named({ status: "ContinuedAsNew" })
    })
    yield* send(cancelItem("i"))
    yield* expectNoOrchestration({ serves: ["1.0.0"] })
    const { item } = yield* claimInstance("i", { serves: ["2.0.0"] })
    assert.deepStrictEqual(item.messages.map(({ _tag }) => _tag), ["ContinueAsNew", "CancelInstance"])
  }),

  unserved_activities_stay_as_they_are: Effect.gen(function*() {
    yield* enqueueActivity("i", 1, { name: "Other" })
    yield* enqueueActivity("i", 2, { name: "Ours", tag: "gpu" })
    const options = { activities: ["Ours"] }
    yield* expectNoWork(options)
    yield* enqueueActivity("i", 3, { name: "Ours" })
    yield* claimActivity(3, options)
    assert.strictEqual((yield* claimActivity(1)).attemptCount, 1)
    yield* claimActivity(2, { ...options, tags: { _tag: "Any" } })
  }),

  starts_of_a_turn_create_their_pinned_instances: Effect.gen(function*() {
    const provider = yield* Provider
    yield* create("parent")
    yield* poke("parent")
    yield* ack(yield* claimInstance("parent"), {
      items: [childStartItem("child", "parent")],
      pinsStartsTo: "1000.0.0"
    })
    const child = Option.getOrThrow(yield* provider.readInstance("child"))
    assert.deepStrictEqual([child.parentInstanceId, child.status, child.orchestrationVersion], [
      "parent",
      "Running",
      null
    ])
    // Messages to it are not orphans, and are delivered with the start.
    yield* send(queueMessage("child", "q", "1"))
    yield* expectNoOrchestration({ versions: ["0.0.0", "0.9.9"] })
    const claimed = yield* claimInstance("child", { versions: ["1000.0.0", "1000.9.9"], serves: ["1.0.0"] })
    assert.lengthOf(claimed.item.messages, 2)
    assert.deepStrictEqual(version("1000.0.0"), { major: 1000, minor: 0, patch: 0 })
  }),

  a_start_of_a_turn_leaves_a_taken_id_alone: Effect.gen(function*() {
    yield* create("taken")
    yield* create("parent")
    yield* poke("parent")
    yield* ack(yield* claimInstance("parent"), { items: [childStartItem("taken", "parent")], pinsStartsTo: "1000.0.0" })
    const taken = Option.getOrThrow(yield* (yield* Provider).readInstance("taken"))
    assert.strictEqual(taken.parentInstanceId, null)
    assert.lengthOf((yield* claimInstance("taken")).item.messages, 1)
  }),

  what_begins_an_execution_comes_first_however_many_messages_wait: Effect.gen(function*() {
    const sendAll = Effect.forEach(
      Array.from({ length: 4200 }, (_, i) => queueMessage("i", "q", String(i))),
      (message) => send(message),
      { concurrency: "unbounded", discard: true }
    )
    yield* sendAll
    yield* enqueueStart("i")
    // A slow server takes longer than the default for so many.
    const first = yield* claimInstance("i", { serves: ["1.0.0"], lockTimeout: "5 minutes" })
    assert.isTrue(first.item.messages.some(({ _tag }) => _tag === "StartOrchestration"))
    yield* sendAll
    yield* ack(first, {
      events: [started()],
      items: [continueAsNewItem("i")],
      metadata: named({ status: "ContinuedAsNew" })
    })
    const second = yield* claimInstance("i", { serves: ["1.0.0"] })
    assert.isTrue(second.item.messages.some(({ _tag }) => _tag === "ContinueAsNew"))
  }),

  suspects_are_claimed_together_and_alone_in_the_end: Effect.gen(function*() {
    const LT = yield* lockTimeout()
    for (const instance of ["a", "b"]) yield* enqueueStart(instance)
    for (let delivery = 1; delivery <= 5; delivery++) {
      yield* claimInstance("a", { lockTimeout: LT })
      yield* claimInstance("b", { lockTimeout: LT })
      yield* elapseLockTimeout
    }
    const suspect = yield* claimInstance("a")
    assert.strictEqual(suspect.attemptCount, 6)
    yield* expectNoOrchestration()
    // Work that was never delivered is not held up.
    yield* enqueueStart("fresh")
    yield* claimInstance("fresh")
    yield* abandon(suspect.lockToken, { delay: "10 seconds" })
    yield* claimInstance("b")
  }),

  suspect_activities_are_claimed_together_and_alone_in_the_end: Effect.gen(function*() {
    const LT = yield* lockTimeout()
    for (const id of [1, 2]) yield* enqueueActivity("i", id)
    for (let delivery = 1; delivery <= 5; delivery++) {
      yield* claimActivity(1, { lockTimeout: LT })
      yield* claimActivity(2, { lockTimeout: LT })
      yield* elapseLockTimeout
    }
    const suspect = yield* claimActivity(1)
    yield* expectNoWork()
    yield* enqueueActivity("i", 3)
    const fresh = yield* claimActivity(3)
    yield* abandonWork(fresh.lockToken, { delay: "10 seconds", ignoreAttempt: true })
    yield* ackWork(suspect.lockToken, activityCompleted("i", 1))
    yield* claimActivity(2)
  }),

  a_claim_binds_no_more_sessions_than_it_may: Effect.gen(function*() {
    yield* enqueueActivity("i", 1, { sessionId: "s1" })
    yield* enqueueActivity("i", 2, { sessionId: "s2" })
    yield* enqueueActivity("i", 3)
    const full = { session: { workerId: "full", maxNew: 0 } }
    yield* claimActivity(3, full)
    yield* expectNoWork(full)
    // Still free for other processes.
    yield* claimActivity(1, { session: { workerId: "free" } })
    yield* claimActivity(2, { session: { workerId: "free" } })
  }),

  large_messages_come_in_parts_and_in_order: Effect.gen(function*() {
    const large = "x".repeat(4_000_000)
    yield* create("i")
    const names = Array.from({ length: 7 }, (_, i) => `q${i}`)
    for (const name of names) yield* send(queueMessage("i", name, large))
    const seen: Array<string> = []
    let parts = 0
    while (seen.length < names.length) {
      const claimed = yield* claimInstance("i")
      assert.isAtLeast(claimed.item.messages.length, 1)
      for (const message of claimed.item.messages) if (message._tag === "QueueMessage") seen.push(message.name)
      parts++
      yield* ack(claimed)
    }
    assert.deepStrictEqual(seen, names)
    assert.isAtLeast(parts, 2)
    assert.strictEqual(yield* (yield* Backdoor).getMaxAttemptCount("i"), 0)
  })
})
