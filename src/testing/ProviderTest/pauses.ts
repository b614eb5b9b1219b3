/**
 * What operators pause and resume.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { PauseTarget } from "../../model/Pause.ts"
import { Admin } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import {
  abandon,
  ack,
  activityScheduled,
  claimInstance,
  complete,
  create,
  elapse,
  elapseLockTimeout,
  expectNoOrchestration,
  fails,
  listed,
  named,
  poke,
  renew,
  send,
  timerFired,
  topic
} from "./harness.ts"
import { completion, queues, working } from "./unclaimed.ts"

const target = (instanceId: string) => PauseTarget.Instance({ instanceId })

const pause = (instanceId: string, reason?: string) =>
  Effect.flatMap(Admin, (admin) => admin.pause(target(instanceId), { reason }))

const resume = (instanceId: string) => Effect.flatMap(Admin, (admin) => admin.resume(target(instanceId)))

const pauseOf = (instanceId: string) =>
  Effect.map(
    Effect.flatMap(Provider, (provider) => provider.readInstance(instanceId)),
    (state) => Option.getOrUndefined(state)?.pause
  )

export const pauses = topic("pauses", {
  paused_instance_is_not_claimed_and_keeps_its_messages: Effect.gen(function*() {
    yield* create("i")
    yield* poke("i", "before")
    assert.isNull(yield* pauseOf("i"))
    yield* pause("i", "look at it")
    const { sinceMs, ...stored } = (yield* pauseOf("i"))!
    assert.deepStrictEqual(stored, { target: target("i"), reason: "look at it" })
    yield* poke("i", "meanwhile")
    yield* send(timerFired("i", 9), 500)
    yield* elapse(600)
    yield* poke("i", "last")
    yield* expectNoOrchestration()
    yield* pause("i", "another reason")
    assert.deepStrictEqual(yield* pauseOf("i"), { target: target("i"), reason: "another reason", sinceMs })
    yield* elapseLockTimeout
    yield* expectNoOrchestration()
    assert.isTrue(yield* resume("i"))
    assert.isNull(yield* pauseOf("i"))
    const { attemptCount, item } = yield* claimInstance("i")
    assert.strictEqual(attemptCount, 1)
    assert.deepStrictEqual(
      item.messages.map((message) => message._tag === "ExternalRaised" ? message.name : message._tag),
      ["before", "meanwhile", "TimerFired", "last"]
    )
    assert.isFalse(yield* resume("i"))
  }),

  pause_takes_a_claimed_instance_away: Effect.gen(function*() {
    yield* create("i")
    yield* poke("i", "go")
    const claimed = yield* claimInstance("i")
    yield* pause("i")
    yield* fails(renew(claimed.lockToken, "1 minute"), /Invalid lock token/)
    yield* fails(ack(claimed, { events: [activityScheduled(2)] }), /Invalid lock token/)
    yield* fails(abandon(claimed.lockToken), /Invalid lock token/)
    yield* elapseLockTimeout
    yield* expectNoOrchestration()
    yield* resume("i")
    const again = yield* claimInstance("i")
    // The turn that was taken away has not counted.
    assert.strictEqual(again.attemptCount, 1)
    assert.lengthOf(again.item.messages, 1)
    yield* ack(again, { events: [activityScheduled(2)] })
  }),

  optimistic_turn_respects_the_pause: Effect.gen(function*() {
    const ended = yield* working("i")
    yield* pause("i")
    yield* queues("i", ended, { events: [completion(3, 2), activityScheduled(4)], metadata: named() })
    yield* expectNoOrchestration()
    yield* resume("i")
    const { item } = yield* claimInstance("i")
    assert.lengthOf(item.messages, 1)
  }),

  retry_of_blocked_instances_leaves_the_pause: Effect.gen(function*() {
    const { readInstance, wakeBlocked } = yield* Provider
    yield* create("i")
    yield* poke("i", "go")
    const { lockToken } = yield* claimInstance("i")
    const block = { reason: "HistoryDiffers" as const, problem: "it differs", eventId: 2, build: "old" }
    yield* abandon(lockToken, { delay: "1 hour", ignoreAttempt: true, block })
    yield* pause("i")
    const { orchestrationName } = Option.getOrThrow(yield* readInstance("i"))
    assert.strictEqual(yield* wakeBlocked({ orchestrations: [orchestrationName], activities: [] }), 0)
    yield* expectNoOrchestration()
    // The resume ends the pause of the block as well.
    yield* resume("i")
    yield* claimInstance("i")
  }),

  unknown_and_ended_instances_are_not_paused: Effect.gen(function*() {
    yield* fails(pause("nowhere"), /not found/)
    yield* create("i")
    yield* complete("i")
    yield* fails(pause("i"), /has ended/)
    assert.isFalse(yield* resume("i"))
    yield* fails(
      Effect.flatMap(Admin, (admin) => admin.pause(PauseTarget.Orchestration({ name: "Order", version: "" }))),
      /is empty/
    )
  }),

  deletion_forgets_the_pause: Effect.gen(function*() {
    const { deleteInstance, getPauses } = yield* Admin
    yield* create("i")
    yield* pause("i")
    assert.strictEqual((yield* getPauses).instances, 1)
    yield* fails(deleteInstance("i"), /is Running/)
    yield* deleteInstance("i", { force: true })
    assert.strictEqual((yield* getPauses).instances, 0)
    yield* create("i")
    yield* poke("i", "go")
    assert.isNull(yield* pauseOf("i"))
    yield* claimInstance("i")
  }),

  wider_targets_are_listed_and_do_not_lock: Effect.gen(function*() {
    const { getPauses, pause, resume } = yield* Admin
    yield* create("i", named({ orchestrationName: "Order", orchestrationVersion: "1.0.0" }))
    yield* create("other", named({ orchestrationName: "Other", orchestrationVersion: "1.0.0" }))
    const targets = [
      PauseTarget.Orchestration({ name: "Order", version: "1.0.0" }),
      PauseTarget.Orchestration({ name: "Order" }),
      PauseTarget.Activity({ name: "Charge" }),
      PauseTarget.Tag({ tag: "gpu" }),
      PauseTarget.Everything()
    ]
    const paused = listed({ status: "Paused", orderBy: "id" })
    assert.deepStrictEqual(yield* getPauses, { targets: [], instances: 0 })
    for (const [index, target] of targets.entries()) {
      yield* pause(target, { reason: `reason ${index}` })
      yield* elapse(5)
    }
    const stored = (yield* getPauses).targets
    assert.deepStrictEqual(stored.map(({ target }) => target), targets)
    assert.deepStrictEqual(stored.map(({ reason }) => reason), targets.map((_, index) => `reason ${index}`))
    // Their narrowest pause.
    assert.deepStrictEqual((yield* pauseOf("i"))?.target, targets[0])
    assert.deepStrictEqual((yield* pauseOf("other"))?.target, targets[4])
    assert.deepStrictEqual(yield* paused, ["i", "other"])
    assert.isTrue(yield* resume(targets[4]!))
    assert.isTrue(yield* resume(targets[0]!))
    assert.isFalse(yield* resume(targets[0]!))
    assert.deepStrictEqual((yield* pauseOf("i"))?.target, targets[1])
    assert.deepStrictEqual(yield* paused, ["i"])
    // What a process claims is its own matter.
    yield* poke("i", "go")
    yield* claimInstance("i")
    for (const target of [targets[1]!, targets[2]!, targets[3]!]) assert.isTrue(yield* resume(target))
    assert.deepStrictEqual(yield* getPauses, { targets: [], instances: 0 })
  })
})
