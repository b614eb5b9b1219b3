/**
 * Results of activities, stored together with the turn they lead to: only while the instance is exactly where the
 * caller believes it to be.
 */
import { assert } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as WorkItem from "../../model/WorkItem.ts"
import { Provider } from "../../provider/Provider.ts"
import {
  abandon,
  ack,
  ackWork,
  activityCompleted,
  activityItem,
  activityScheduled,
  beginFirst,
  childStartItem,
  claimActivity,
  claimInstance,
  complete,
  completed,
  continueAsNewItem,
  create,
  customStatus,
  elapse,
  elapseLockTimeout,
  elapseUntil,
  enqueueActivity,
  enqueueStart,
  expectInstances,
  expectNoOrchestration,
  expectNoWork,
  externalRaised,
  fails,
  fetchOrchestration,
  lockTimeout,
  named,
  parallel,
  poke,
  queueMessage,
  send,
  Settings,
  started,
  timerFired,
  topic,
  turn,
  valueCleared,
  valueSet
} from "./harness.ts"
import type { ClaimedOrchestration } from "./harness.ts"
import { advance, advances, completion, queues, scheduling, seen, working } from "./unclaimed.ts"
import type { Advance } from "./unclaimed.ts"

/** The turn that ends an instance which waits for activity 2. */
const last: Advance = {
  events: [completion(3, 2), completed(4)],
  metadata: named({ status: "Completed", output: "done" })
}

/** A turn after which the instance waits again. */
const next: Advance = {
  events: [completion(3, 2), activityScheduled(4)],
  workers: [activityItem("i", 4)],
  metadata: named()
}

const types = (instance: string) =>
  Effect.map(Effect.flatMap(Provider, ({ read }) => read(instance)), (events) => events.map(({ _tag }) => _tag))

/** No part of the turn is stored, and the next claim of the instance delivers these messages. */
const delivers = (...messages: ReadonlyArray<WorkItem.WorkItem>) =>
  Effect.gen(function*() {
    yield* expectNoWork()
    const claimed = yield* claimInstance("i")
    assert.deepStrictEqual(claimed.item.messages, messages)
    return claimed
  })

/** Checks that of a turn that differs from `next` in this, only the result is stored. */
const refused = (changes: Partial<Advance>) =>
  Effect.gen(function*() {
    yield* queues("i", yield* working("i"), { ...next, ...changes })
    assert.lengthOf((yield* delivers(activityCompleted("i", 2))).item.history, 2)
  })

export const optimisticTurns = topic("optimistic_turns", {
  a_result_and_its_turn_are_stored_together: Effect.gen(function*() {
    const ended = yield* working("i")
    yield* advances("i", ended, last)
    const state = Option.getOrThrow(yield* (yield* Provider).readInstance("i"))
    assert.strictEqual(state.status, "Completed")
    assert.strictEqual(state.output, "done")
    assert.deepStrictEqual(yield* types("i"), [
      "OrchestrationStarted",
      "ActivityScheduled",
      "ActivityCompleted",
      "OrchestrationCompleted"
    ])
    yield* expectNoOrchestration()
    yield* fails(ackWork(ended[0]!.lockToken, activityCompleted("i", 2)), /Invalid lock token/)
    yield* expectNoOrchestration()
  }),

  readers_see_the_same_as_after_an_ack: Effect.gen(function*() {
    const { onFreshProvider } = yield* Settings
    const story = (store: typeof advances) =>
      Effect.gen(function*() {
        const ended = yield* working("i", [2, 3])
        yield* store("i", ended.slice(0, 1), {
          events: [
            completion(4, 2),
            customStatus(5, "half"),
            valueSet(6, "kept", "a"),
            valueSet(7, "gone", "b"),
            valueCleared(8, "gone"),
            activityScheduled(9)
          ],
          workers: [activityItem("i", 9)],
          items: [childStartItem("child", "i"), timerFired("i", 10, (yield* Clock.currentTimeMillis) + 3_600_000)],
          metadata: named({ pinnedVersion: { major: 1, minor: 2, patch: 3 } }),
          pinsStartsTo: "1.0.0"
        })
        const between = [yield* seen("i"), yield* seen("child")]
        yield* ack(yield* claimInstance("child"), { events: [started()] })
        yield* store("i", ended.slice(1), {
          events: [completion(10, 3), completed(11)],
          metadata: named({ status: "Completed", output: "done" })
        })
        return [...between, yield* seen("i")]
      })
    const afterAcks: typeof advances = (instance, ended, parts) =>
      Effect.gen(function*() {
        for (const { item, lockToken } of ended) yield* ackWork(lockToken, activityCompleted(instance, item.id))
        yield* ack(yield* claimInstance(instance), parts)
        return []
      })
    assert.deepStrictEqual(yield* story(advances), yield* onFreshProvider(story(afterAcks)))
  }),

  one_step_after_another: Effect.gen(function*() {
    let ended = yield* working("i")
    for (let id = 2; id < 12; id += 2) {
      yield* advances("i", ended, {
        events: [completion(id + 1, id), activityScheduled(id + 2)],
        workers: [activityItem("i", id + 2)]
      })
      ended = [yield* claimActivity(id + 2)]
    }
    assert.lengthOf(yield* types("i"), 12)
    yield* expectNoOrchestration()
  }),

  several_results_in_one_turn: Effect.gen(function*() {
    yield* advances("i", yield* working("i", [2, 3, 4]), {
      events: [completion(5, 2), completion(6, 3), completion(7, 4), completed(8)],
      metadata: named({ status: "Completed", output: "done" })
    })
    yield* expectNoWork()
    yield* expectNoOrchestration()
  }),

  a_result_keeps_its_session_active: Effect.gen(function*() {
    const provider = yield* Provider
    yield* enqueueStart("i")
    yield* ack(yield* claimInstance("i"), {
      events: [started(), activityScheduled(2)],
      workers: [activityItem("i", 2, { sessionId: "s" })],
      metadata: named()
    })
    const ended = [yield* claimActivity(2, { session: { workerId: "A" } })]
    // Between the result and the renewal, time of its own may pass on a slow machine.
    yield* elapse("6 seconds")
    yield* advances("i", ended, next)
    const renewed = yield* provider.renewSessionLock({
      workerIds: ["A"],
      extendFor: Duration.seconds(30),
      idleTimeout: Duration.seconds(5)
    })
    assert.strictEqual(renewed, 1)
  }),

  the_next_message_finds_the_instance_free: Effect.gen(function*() {
    yield* advances("i", yield* working("i"), next)
    yield* poke("i")
    const claimed = yield* claimInstance("i")
    assert.strictEqual(claimed.attemptCount, 1)
    assert.lengthOf(claimed.item.history, 4)
    assert.deepStrictEqual(claimed.item.messages, [externalRaised("i")])
  }),

  // -- the instance is not where the caller believes it to be ------------------------------------------

  a_waiting_message_comes_before_the_result: Effect.gen(function*() {
    const ended = yield* working("i")
    yield* poke("i")
    yield* queues("i", ended, next)
    yield* delivers(externalRaised("i"), activityCompleted("i", 2))
  }),

  a_message_that_is_not_due_does_not_matter: Effect.gen(function*() {
    const ended = yield* working("i")
    yield* send(externalRaised("i"), "1 hour")
    yield* advances("i", ended, next)
  }),

  a_turn_of_an_earlier_time_is_not_stored_and_the_clock_is_corrected: Effect.gen(function*() {
    const provider = yield* Provider
    const { optimisticTurns } = yield* Settings
    const ended = yield* working("i")
    if (!optimisticTurns) return yield* queues("i", ended, next)
    const before = provider.storeNowMs()!
    yield* queues("i", ended, { ...next, clockOffMs: -60_000 })
    assert.isAtMost(Math.abs(provider.storeNowMs()! - before), 30_000)
    yield* delivers(activityCompleted("i", 2))
  }),

  a_turn_of_a_later_time_is_not_stored: refused({ clockOffMs: 60_000 }),

  a_turn_that_was_on_its_way_for_a_while_is_stored: Effect.gen(function*() {
    yield* advances("i", yield* working("i"), { ...next, clockOffMs: -500 })
  }),

  a_turn_under_way_gets_the_result_afterwards: Effect.gen(function*() {
    const ended = yield* working("i")
    yield* poke("i")
    const claimed = yield* claimInstance("i")
    yield* queues("i", ended, next)
    yield* expectNoOrchestration()
    yield* ack(claimed, { events: [{ _tag: "ExternalEvent", eventId: 3, name: "poke", data: "" }] })
    const { item } = yield* delivers(activityCompleted("i", 2))
    assert.lengthOf(item.history, 3)
  }),

  an_expired_lock_may_be_renewed_by_its_holder: Effect.gen(function*() {
    const ended = yield* working("i")
    yield* poke("i")
    const claimed = yield* claimInstance("i", { lockTimeout: yield* lockTimeout() })
    yield* elapseLockTimeout
    yield* queues("i", ended, next)
    yield* fails(ack(claimed), /Invalid lock token/)
    yield* delivers(externalRaised("i"), activityCompleted("i", 2))
  }),

  a_paused_instance_stays_paused: Effect.gen(function*() {
    const ended = yield* working("i")
    yield* poke("i")
    const claimed = yield* claimInstance("i")
    yield* ack(claimed, { left: claimed.item.messageIds })
    yield* abandon((yield* claimInstance("i")).lockToken, { delay: yield* lockTimeout(), ignoreAttempt: true })
    yield* queues("i", ended, next)
    yield* expectNoOrchestration()
    yield* elapseLockTimeout
    yield* delivers(externalRaised("i"), activityCompleted("i", 2))
  }),

  a_history_that_has_grown: Effect.gen(function*() {
    const ended = yield* working("i")
    yield* turn("i", { events: [{ _tag: "ExternalEvent", eventId: 3, name: "poke", data: "" }] })
    yield* queues("i", ended, { ...next, lastEventId: 2, events: [completion(4, 2), activityScheduled(5)] })
    assert.lengthOf((yield* delivers(activityCompleted("i", 2))).item.history, 3)
  }),

  a_history_that_is_shorter: refused({ lastEventId: 3 }),

  // Both as after a failover that lost turns.
  another_event_with_the_id_of_the_last: refused({ lastEvent: { timestampMs: 1 } }),

  another_event_with_the_id_and_the_time_of_the_last: refused({ lastEvent: { input: "other" } }),

  a_taken_event_id: refused({ events: [completion(3, 2), activityScheduled(2)] }),

  an_event_id_given_twice: refused({ events: [completion(3, 2), activityScheduled(3)] }),

  an_earlier_execution: Effect.gen(function*() {
    const ended = yield* working("i")
    // It has no end, so only its number says that it is not current.
    yield* turn("i", { executionId: 2, events: [started()], metadata: named() })
    yield* queues("i", ended, next)
    yield* delivers(activityCompleted("i", 2))
    assert.deepStrictEqual(yield* types("i"), ["OrchestrationStarted"])
  }),

  an_ended_execution: Effect.gen(function*() {
    const ended = yield* working("i")
    yield* complete("i")
    yield* queues("i", ended, { ...next, lastEventId: 9999 })
    yield* delivers(activityCompleted("i", 2))
    assert.strictEqual(Option.getOrThrow(yield* (yield* Provider).readInstance("i")).status, "Completed")
  }),

  an_instance_that_does_not_exist: Effect.gen(function*() {
    yield* enqueueActivity("i", 2)
    yield* queues("i", [yield* claimActivity(2)], next)
    yield* expectNoWork()
    assert.isTrue(Option.isNone(yield* (yield* Provider).readInstance("i")))
  }),

  // -- the caller no longer holds the activity ------------------------------------------------------------

  an_activity_that_another_worker_has_taken: Effect.gen(function*() {
    yield* scheduling("i")
    const late = yield* claimActivity(2, { lockTimeout: yield* lockTimeout() })
    yield* elapseLockTimeout
    const { lockToken } = yield* claimActivity(2)
    yield* queues("i", [late], next, ["LockLost"])
    yield* expectNoOrchestration()
    yield* ackWork(lockToken, activityCompleted("i", 2))
    yield* delivers(activityCompleted("i", 2))
  }),

  an_activity_whose_lock_has_expired: Effect.gen(function*() {
    yield* scheduling("i")
    const late = yield* claimActivity(2, { lockTimeout: yield* lockTimeout() })
    yield* elapseLockTimeout
    yield* queues("i", [late], next, ["LockLost"])
    yield* expectNoOrchestration()
    yield* claimActivity(2)
  }),

  a_cancelled_activity: Effect.gen(function*() {
    const ended = yield* working("i")
    yield* turn("i", { cancelled: [{ instanceId: "i", executionId: 1, activityId: 2 }] })
    yield* queues("i", ended, next, ["LockLost"])
    yield* expectNoOrchestration()
    yield* expectNoWork()
  }),

  one_lost_activity_of_two: Effect.gen(function*() {
    yield* scheduling("i", [2, 3])
    const late = yield* claimActivity(2, { lockTimeout: yield* lockTimeout() })
    const other = yield* claimActivity(3)
    yield* elapseLockTimeout
    const { lockToken } = yield* claimActivity(2)
    yield* queues("i", [late, other], {
      events: [completion(4, 2), completion(5, 3), activityScheduled(6)],
      workers: [activityItem("i", 6)]
    }, ["LockLost", "Done"])
    assert.lengthOf((yield* delivers(activityCompleted("i", 3))).item.history, 3)
    yield* ackWork(lockToken)
  }),

  one_activity_given_twice: Effect.gen(function*() {
    const [ended] = yield* working("i")
    yield* queues("i", [ended!, ended!], next, ["Done", "LockLost"])
    yield* delivers(activityCompleted("i", 2))
  }),

  a_lost_lock_says_that_it_was_stored: Effect.gen(function*() {
    const ended = yield* working("i")
    yield* advances("i", ended, next)
    yield* queues("i", ended, next, ["LockLost"])
    assert.lengthOf(yield* types("i"), 4)
    yield* claimActivity(4)
    yield* expectNoWork()
  }),

  // -- at the same time ----------------------------------------------------------------------------

  of_two_turns_of_an_instance_at_most_one_is_stored: Effect.gen(function*() {
    const { optimisticTurns } = yield* Settings
    const [one, other] = yield* working("i", [2, 3])
    const answers = yield* parallel([
      advance("i", [one!], { events: [completion(4, 2)] }),
      advance("i", [other!], { events: [completion(4, 3)] })
    ])
    // None, if the results of one that was not stored have become messages before the other one looked for some.
    const stored = answers.filter(({ _tag }) => _tag === "Advanced").length
    assert.isAtMost(stored, optimisticTurns ? 1 : 0)
    assert.lengthOf(yield* types("i"), 3 + stored)
    assert.lengthOf((yield* claimInstance("i")).item.messages, 2 - stored)
  }),

  turns_of_many_instances_are_stored_apart: Effect.gen(function*() {
    const ids = Array.from({ length: 20 }, (_, index) => `i${index}`)
    const ended = yield* Effect.forEach(ids, (id) => working(id))
    // Every third of them has a message.
    for (const [index, id] of ids.entries()) if (index % 3 === 0) yield* poke(id)
    const { optimisticTurns } = yield* Settings
    const answers = yield* parallel(ids.map((id, index) => advance(id, ended[index]!, last)))
    assert.deepStrictEqual(
      answers.map(({ _tag }) => _tag),
      ids.map((_, index) => optimisticTurns && index % 3 > 0 ? "Advanced" : "Queued")
    )
    for (const [index, id] of ids.entries()) {
      assert.lengthOf(yield* types(id), answers[index]!._tag === "Advanced" ? 4 : 2)
    }
  }),

  a_claim_at_the_same_time_excludes_it: Effect.gen(function*() {
    for (let round = 0; round < 10; round++) {
      const id = `i${round}`
      const ended = yield* working(id)
      let claimed: ClaimedOrchestration | undefined
      const [isAdvanced, isClaimed] = yield* parallel([
        Effect.map(advance(id, ended, last), ({ _tag }) => _tag === "Advanced"),
        Effect.andThen(
          poke(id),
          Effect.map(fetchOrchestration(), (found) => {
            claimed = Option.getOrUndefined(found)
            return claimed !== undefined
          })
        )
      ])
      // Whichever call was first, the batch and the history together say everything that has happened.
      const { item } = isClaimed === true ? claimed! : yield* claimInstance(id)
      assert.lengthOf(item.history, isAdvanced ? 4 : 2)
      assert.lengthOf(yield* types(id), isAdvanced ? 4 : 2)
    }
  }),

  // -- what a turn does besides ------------------------------------------------------------------------

  activities_children_and_messages_are_sent: Effect.gen(function*() {
    yield* create("parent")
    yield* advances("i", yield* working("i"), {
      events: [completion(3, 2), activityScheduled(4), activityScheduled(5)],
      workers: [activityItem("i", 4), activityItem("i", 5)],
      items: [childStartItem("child", "i"), externalRaised("parent", "news")],
      pinsStartsTo: "1.0.0"
    })
    yield* claimActivity(4)
    yield* claimActivity(5)
    yield* expectInstances("child")
    const claimed = [yield* fetchOrchestration(), yield* fetchOrchestration()].map(Option.getOrThrow)
    assert.sameDeepMembers(claimed.map(({ item }) => [item.instanceId, item.messages[0]!._tag]), [
      ["child", "StartOrchestration"],
      ["parent", "ExternalRaised"]
    ])
  }),

  a_timer_fires_at_its_time: Effect.gen(function*() {
    const work = yield* working("i")
    const fireAtMs = (yield* Clock.currentTimeMillis) + 4_000
    yield* advances("i", work, {
      events: [completion(3, 2), { _tag: "TimerCreated", eventId: 4, fireAtMs }],
      items: [timerFired("i", 4, fireAtMs)]
    })
    yield* expectNoOrchestration()
    yield* elapseUntil(fireAtMs)
    assert.deepStrictEqual((yield* claimInstance("i")).item.messages, [timerFired("i", 4, fireAtMs)])
  }),

  the_end_deletes_timers_and_reports_to_the_parent: Effect.gen(function*() {
    yield* create("parent")
    const report: WorkItem.WorkItem = {
      _tag: "SubOrchCompleted",
      parentInstance: "parent",
      parentExecutionId: 1,
      parentId: 2,
      result: "done"
    }
    const ended = yield* working("i")
    const fireAtMs = (yield* Clock.currentTimeMillis) + 4_000
    yield* send(timerFired("i", 9, fireAtMs))
    yield* advances("i", ended, { ...last, items: [report] })
    assert.deepStrictEqual((yield* claimInstance("parent")).item.messages, [report])
    yield* elapseUntil(fireAtMs)
    yield* expectNoOrchestration()
  }),

  cancelled_activities_and_timers_are_deleted: Effect.gen(function*() {
    yield* scheduling("i", [2, 3])
    const fireAtMs = (yield* Clock.currentTimeMillis) + 4_000
    yield* send(timerFired("i", 9, fireAtMs))
    yield* advances("i", [yield* claimActivity(2)], {
      events: [completion(4, 2)],
      cancelled: [{ instanceId: "i", executionId: 1, activityId: 3 }],
      cancelledTimers: [timerFired("i", 9, fireAtMs)]
    })
    yield* expectNoWork()
    yield* elapseUntil(fireAtMs)
    yield* expectNoOrchestration()
  }),

  an_execution_continues_as_new: Effect.gen(function*() {
    const unread = { _tag: "ExternalEventPersistent", eventId: 5, name: "Mail", data: "unread" } as const
    yield* advances("i", yield* working("i"), {
      events: [completion(3, 2), valueSet(4, "k", "v"), unread],
      items: [continueAsNewItem("i")],
      metadata: named({ status: "ContinuedAsNew", output: "{}" }),
      requeued: [5]
    })
    const { item, lockToken } = yield* claimInstance("i")
    assert.deepStrictEqual(beginFirst(item.messages), [continueAsNewItem("i"), queueMessage("i", "Mail", "unread")])
    assert.strictEqual(item.keyValues.get("k")?.value, "v")
    yield* ack({ item, lockToken }, {
      executionId: 2,
      events: [started(), activityScheduled(2)],
      workers: [activityItem("i", 2, { executionId: 2 })],
      metadata: named()
    })
    yield* advances("i", [yield* claimActivity(2)], { ...last, executionId: 2 })
    const provider = yield* Provider
    assert.strictEqual(Option.getOrThrow(yield* provider.readInstance("i")).executionId, 2)
    assert.lengthOf(yield* provider.readWithExecution("i", 1), 5)
    assert.lengthOf(yield* provider.readWithExecution("i", 2), 4)
  })
})
