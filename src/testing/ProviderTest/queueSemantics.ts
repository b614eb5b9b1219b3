/**
 * Order, visibility and atomic delivery in both queues.
 */
import { assert } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as interruptSignal from "../../model/shared/interruptSignal.ts"
import { Admin } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import { mostWaiting } from "../../provider/shared/bounds.ts"
import {
  abandon,
  abandonWork,
  ack,
  ackWork,
  activityCompleted,
  activityItem,
  activityScheduled,
  Backdoor,
  beginFirst,
  cancelItem,
  claimActivity,
  claimInstance,
  claimOrchestration,
  claimWork,
  continueAsNewItem,
  create,
  elapse,
  elapseLockTimeout,
  elapseUntil,
  enqueueActivity,
  enqueueStart,
  expectNoOrchestration,
  expectNoWork,
  externalRaised,
  fails,
  lockTimeout,
  named,
  poke,
  queueMessage,
  send,
  stamp,
  started,
  timerFired,
  topic,
  turn
} from "./harness.ts"

export const queueSemantics = topic("queue_semantics", {
  test_worker_queue_fifo_ordering: Effect.gen(function*() {
    const ids = [0, 1, 2, 3, 4]
    yield* Effect.forEach(ids, (id) => enqueueActivity("i", id, { name: `Activity${id}` }))
    const claimed = yield* Effect.forEach(ids, () => claimWork())
    assert.deepStrictEqual(claimed.map(({ item }) => item.name), ids.map((id) => `Activity${id}`))
    yield* expectNoWork()
  }),

  test_worker_peek_lock_semantics: Effect.gen(function*() {
    yield* enqueueActivity("i", 1)
    const { item, lockToken } = yield* claimWork()
    assert.deepStrictEqual(item, activityItem("i", 1))
    yield* expectNoWork()
    yield* ackWork(lockToken, activityCompleted("i", 1))
    yield* expectNoWork()
  }),

  test_worker_ack_atomicity: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* ack(yield* claimOrchestration(), { events: [started()] })
    yield* enqueueActivity("i", 1)
    const { lockToken } = yield* claimWork()
    yield* ackWork(lockToken, activityCompleted("i", 1))
    yield* expectNoWork()
    const { item } = yield* claimInstance("i")
    assert.deepStrictEqual(item.messages, [activityCompleted("i", 1)])
  }),

  test_timer_delayed_visibility: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* ack(yield* claimOrchestration(), { events: [started()] })
    yield* send(timerFired("i", 1), "5 seconds")
    yield* expectNoOrchestration()
    yield* elapse(5100)
    const { item } = yield* claimInstance("i")
    assert.deepStrictEqual(item.messages, [timerFired("i", 1)])
  }),

  test_lost_lock_token_handling: Effect.gen(function*() {
    const LT = yield* lockTimeout()
    yield* enqueueActivity("i", 1)
    yield* claimWork({ lockTimeout: LT })
    yield* expectNoWork({ lockTimeout: LT })
    yield* elapseLockTimeout
    yield* claimActivity(1)
  }),

  test_worker_item_immediate_visibility: Effect.gen(function*() {
    yield* enqueueActivity("i", 1)
    const { lockToken } = yield* claimActivity(1)
    yield* ackWork(lockToken, activityCompleted("i", 1))
  }),

  test_worker_delayed_visibility_skips_future_items: Effect.gen(function*() {
    yield* enqueueActivity("i", 1)
    yield* enqueueActivity("i", 2)
    yield* abandonWork((yield* claimActivity(1)).lockToken, { delay: 1000 })
    const second = yield* claimActivity(2)
    yield* expectNoWork()
    yield* elapse(1100)
    const first = yield* claimActivity(1)
    yield* ackWork(first.lockToken, activityCompleted("i", 1))
    yield* ackWork(second.lockToken, activityCompleted("i", 2))
  }),

  test_orphan_queue_messages_dropped: Effect.gen(function*() {
    yield* send(queueMessage("orphan-test", "ConfigUpdate", "v1"))
    yield* send(queueMessage("orphan-test", "ConfigUpdate", "v2"))
    yield* expectNoOrchestration({ lockTimeout: "5 seconds" })
    yield* expectNoOrchestration({ lockTimeout: "5 seconds" })
    yield* create("orphan-test-existing")
    yield* send(queueMessage("orphan-test-existing", "ConfigUpdate", "v3"))
    const claimed = yield* claimInstance("orphan-test-existing", { lockTimeout: "5 seconds" })
    assert.deepStrictEqual(claimed.item.messages, [queueMessage("orphan-test-existing", "ConfigUpdate", "v3")])
    yield* ack(claimed)
  }),

  // -- ours ------------------------------------------------------------------------------------

  queue_messages_wait_for_their_start: Effect.gen(function*() {
    const admin = yield* Admin
    yield* send(queueMessage("orphan", "ConfigUpdate", "v1"))
    yield* expectNoOrchestration()
    assert.deepStrictEqual(yield* admin.listExecutions("orphan"), [])
    // No lock either: the id can be used at once, and the first turn receives the earlier messages.
    yield* enqueueStart("orphan")
    const { attemptCount, item } = yield* claimInstance("orphan")
    assert.deepStrictEqual(beginFirst(item.messages).map(({ _tag }) => _tag), ["StartOrchestration", "QueueMessage"])
    assert.strictEqual(attemptCount, 1)
  }),

  queue_messages_beside_a_history_are_kept: Effect.gen(function*() {
    // Whatever wrote them, messages are dropped only if nothing identifies their instance.
    yield* (yield* Provider).appendWithExecution("i", 1, [stamp("i", 1, activityScheduled(1))])
    yield* send(queueMessage("i", "ConfigUpdate", "v1"))
    yield* expectNoOrchestration()
    yield* enqueueStart("i")
    yield* elapse("1100 millis")
    assert.lengthOf((yield* claimInstance("i")).item.messages, 2)
  }),

  timer_is_invisible_until_its_time: Effect.gen(function*() {
    yield* create("i")
    const fireAtMs = (yield* Clock.currentTimeMillis) + 4_000
    yield* send(timerFired("i", 1, fireAtMs))
    yield* poke("i")
    yield* ack(yield* claimInstance("i"), { items: [timerFired("i", 2, fireAtMs)] })
    yield* expectNoOrchestration()
    yield* elapseUntil(fireAtMs)
    const { item } = yield* claimInstance("i")
    assert.deepStrictEqual(item.messages, [timerFired("i", 1, fireAtMs), timerFired("i", 2, fireAtMs)])
  }),

  timers_without_a_waiter_are_deleted: Effect.gen(function*() {
    const admin = yield* Admin
    yield* create("i")
    yield* create("j")
    const fireAtMs = (yield* Clock.currentTimeMillis) + 4_000
    const timer = (instance: string, id: number) => timerFired(instance, id, fireAtMs)
    yield* poke("i")
    yield* poke("j")
    yield* ack(yield* claimInstance("i"), { items: [timer("i", 1), timer("i", 2), timer("i", 3)] })
    yield* ack(yield* claimInstance("j"), { items: [timer("j", 1)] })
    yield* poke("i")
    // An earlier timer, one of the same turn, one that does not exist, one of another instance.
    yield* ack(yield* claimInstance("i"), {
      items: [timer("i", 4)],
      cancelledTimers: [timer("i", 1), timer("i", 4), timer("i", 5), timer("j", 1)]
    })
    yield* elapseUntil(fireAtMs)
    assert.strictEqual((yield* admin.getQueueDepths).orchestratorQueue, 3)
    const first = yield* claimInstance("i")
    assert.deepStrictEqual(first.item.messages, [timer("i", 2), timer("i", 3)])
    assert.deepStrictEqual((yield* claimInstance("j")).item.messages, [timer("j", 1)])
    // A timer that has fired is delivered, even if it is cancelled afterwards.
    yield* ack(first, { cancelledTimers: [timer("i", 2)] })
    yield* expectNoOrchestration()
  }),

  a_timer_that_is_due_is_delivered_all_the_same: Effect.gen(function*() {
    yield* create("i")
    yield* poke("i")
    const claimed = yield* claimInstance("i")
    const due = timerFired("i", 1, yield* Clock.currentTimeMillis)
    yield* send(due)
    yield* ack(claimed, { cancelledTimers: [due] })
    assert.deepStrictEqual((yield* claimInstance("i")).item.messages, [due])
  }),

  messages_of_an_instance_keep_their_order: Effect.gen(function*() {
    yield* create("i")
    yield* send(timerFired("i", 1), 300)
    yield* poke("i", "later, but visible first")
    yield* elapse(400)
    const { item } = yield* claimInstance("i")
    assert.deepStrictEqual(item.messages.map(({ _tag }) => _tag), ["TimerFired", "ExternalRaised"])
  }),

  messages_a_turn_leaves_are_delivered_again_in_their_places: Effect.gen(function*() {
    const { getMaxAttemptCount } = yield* Backdoor
    const mail = (data: string) => queueMessage("i", "Mail", data)
    yield* create("i")
    yield* Effect.forEach(["1", "2", "3"], (data) => send(mail(data)))
    yield* abandon((yield* claimInstance("i")).lockToken)
    const claimed = yield* claimInstance("i")
    assert.deepStrictEqual([claimed.attemptCount, claimed.item.messageIds.length], [2, 3])
    yield* send(mail("4"))
    yield* ack(claimed, {
      items: [continueAsNewItem("i")],
      metadata: named({ status: "ContinuedAsNew" }),
      left: claimed.item.messageIds.slice(1)
    })
    // The turn ended well, whatever it left.
    assert.strictEqual(yield* getMaxAttemptCount("i"), 0)
    const next = yield* claimInstance("i")
    assert.strictEqual(next.attemptCount, 1)
    assert.deepStrictEqual(beginFirst(next.item.messages), [continueAsNewItem("i"), mail("2"), mail("3"), mail("4")])
    yield* ack(next, {
      left: next.item.messageIds.filter((_, i) => next.item.messages[i]!._tag === "QueueMessage").slice(0, 1)
    })
    // No message of its own wakes the instance.
    assert.deepStrictEqual((yield* claimInstance("i")).item.messages, [mail("2")])
  }),

  a_turn_leaves_only_messages_of_its_batch: Effect.gen(function*() {
    yield* create("i")
    yield* create("j")
    yield* poke("j")
    const other = yield* claimInstance("j")
    yield* poke("i", "first")
    const claimed = yield* claimInstance("i")
    yield* ack(claimed, { left: [...other.item.messageIds, 1_000_000] })
    yield* expectNoOrchestration()
    yield* ack(other)
    yield* expectNoOrchestration()
  }),

  a_turn_that_is_not_stored_leaves_its_batch_locked: Effect.gen(function*() {
    yield* create("i")
    yield* poke("i")
    const claimed = yield* claimInstance("i")
    const left = claimed.item.messageIds
    yield* fails(ack(claimed, { events: [started()], left }), /event/i)
    yield* expectNoOrchestration()
    yield* ack(claimed)
    yield* fails(ack(claimed, { left }), /lock/i)
    yield* expectNoOrchestration()
  }),

  messages_a_turn_requeues_are_delivered_again_before_all_others: Effect.gen(function*() {
    const mail = (data: string) => queueMessage("i", "Mail \"\\", data)
    const recorded = (eventId: number, data: string) => ({
      _tag: "ExternalEventPersistent" as const,
      eventId,
      name: "Mail \"\\",
      data
    })
    const strange = "\"2\" \\ ü😀\n\t\u001f\u007f\u2028"
    yield* create("i")
    yield* turn("i", { events: [recorded(2, "1"), recorded(3, strange), recorded(4, "3")] })
    yield* Effect.forEach(["4", "5"], (data) => send(mail(data)))
    const claimed = yield* claimInstance("i")
    yield* send(mail("6"))
    yield* ack(claimed, {
      events: [recorded(5, "4")],
      items: [continueAsNewItem("i")],
      metadata: named({ status: "ContinuedAsNew" }),
      left: claimed.item.messageIds.slice(1),
      // 1 is not a message, and 6 does not exist.
      requeued: [4, 3, 5, 1, 6]
    })
    const next = yield* claimInstance("i")
    assert.strictEqual(next.attemptCount, 1)
    const waiting = ["3", "4", "5", "6"].map(mail)
    assert.deepStrictEqual(beginFirst(next.item.messages), [continueAsNewItem("i"), mail(strange), ...waiting])
    // Those that were requeued before can be left as any others; they stay behind those that are requeued now.
    yield* ack(next, {
      executionId: 2,
      events: [started(), recorded(2, strange)],
      items: [continueAsNewItem("i")],
      metadata: named({ status: "ContinuedAsNew" }),
      left: next.item.messageIds.filter((_, i) => next.item.messages[i]!._tag === "QueueMessage").slice(1),
      requeued: [2]
    })
    const last = yield* claimInstance("i")
    assert.deepStrictEqual(beginFirst(last.item.messages), [continueAsNewItem("i"), mail(strange), ...waiting])
    // Only an execution that continues as new requeues.
    yield* ack(last, { executionId: 3, events: [started(), recorded(2, "1")], requeued: [2] })
    yield* expectNoOrchestration()
  }),

  what_begins_an_execution_gets_in_front_of_a_full_batch: Effect.gen(function*() {
    const large = "x".repeat(4 * 1024 * 1024)
    yield* create("i")
    yield* ack(yield* poke("i").pipe(Effect.andThen(claimInstance("i"))), {
      metadata: named({ status: "ContinuedAsNew" })
    })
    const fullBatch = Effect.repeat(send(queueMessage("i", "Mail", large)), { times: 3 })
    yield* fullBatch
    const early = yield* claimInstance("i")
    // Visible after them.
    yield* send(continueAsNewItem("i"), 1_000)
    // Not due, so there is nothing to put in front: a pause.
    yield* abandon(early.lockToken, { delay: 900, ignoreAttempt: true, beginsFirst: true })
    yield* expectNoOrchestration()
    yield* elapse(1_100)
    const full = yield* claimInstance("i")
    assert.isFalse(full.item.messages.some(({ _tag }) => _tag === "ContinueAsNew"))
    yield* abandon(full.lockToken, { delay: "1 hour", ignoreAttempt: true, beginsFirst: true })
    const next = yield* claimInstance("i")
    assert.strictEqual(next.attemptCount, 1)
    const [begins, ...others] = beginFirst(next.item.messages).map(({ _tag }) => _tag)
    assert.strictEqual(begins, "ContinueAsNew")
    // After a slow claim, the next one asks for fewer bytes.
    assert.isAtLeast(others.length, 1)
    assert.isTrue(others.every((tag) => tag === "QueueMessage"))
    // It is in the batch: another delivery would find nothing else.
    yield* abandon(next.lockToken, { delay: "1 hour", ignoreAttempt: true, beginsFirst: true })
    yield* expectNoOrchestration()
  }),

  a_full_instance_takes_no_more_signals: Effect.gen(function*() {
    const lines = Array.from({ length: mostWaiting }, (_, n) => send(queueMessage("full", "Mail", `${n}`)))
    yield* Effect.all(lines, { concurrency: "unbounded", discard: true })
    for (const signal of [queueMessage("full", "Mail", "one more"), externalRaised("full")]) {
      assert.strictEqual((yield* fails(send(signal), /instance full is full/)).reason._tag, "InstanceFull")
    }
    // What this package sends arrives, and so does what ends it.
    yield* send(queueMessage("full", interruptSignal.name, "{}"))
    yield* send(cancelItem("full"))
    yield* create("other")
    yield* send(queueMessage("other", "Mail", "1"))
    yield* claimInstance("other")
  }),

  delayed_messages_are_delivered_later: Effect.gen(function*() {
    yield* create("i")
    yield* poke("i", "now")
    yield* send(timerFired("i", 1), 1500)
    const first = yield* claimInstance("i")
    assert.lengthOf(first.item.messages, 1)
    yield* elapse(1600)
    // Visible by now, but not part of the batch.
    yield* ack(first)
    assert.deepStrictEqual((yield* claimInstance("i")).item.messages, [timerFired("i", 1)])
  })
})
