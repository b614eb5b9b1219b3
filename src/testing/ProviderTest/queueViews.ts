/**
 * The views of operators on what is queued: loads by name, and the queued work of one instance.
 */
import { assert } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type { InstanceStatus } from "../../model/Instance.ts"
import { PauseTarget } from "../../model/Pause.ts"
import { Admin } from "../../provider/Admin.ts"
import {
  abandon,
  claimActivity,
  claimInstance,
  continueAsNew,
  create,
  done,
  elapse,
  enqueueActivity,
  enqueueStart,
  externalRaised,
  listed,
  poke,
  queueMessage,
  seed,
  send,
  startItem,
  timerFired,
  topic
} from "./harness.ts"

const idle = { waiting: 0, running: 0, later: 0, oldestAgeMs: null }

/** All fields but one that depends on the clock. */
const without = (field: string, row: object) =>
  Object.fromEntries(Object.entries(row).filter(([name]) => name !== field))

export const queueViews = topic("queueViews", {
  instances_are_counted: Effect.gen(function*() {
    const { count } = yield* Admin
    assert.deepStrictEqual(yield* count(), [])
    yield* create("running-1", { orchestrationName: "Order", orchestrationVersion: "1.0.0" })
    yield* create("running-2", { orchestrationName: "Order", orchestrationVersion: "2.0.0" })
    yield* create("running-3", { orchestrationName: "Order", orchestrationVersion: "2.0.0" })
    yield* done("completed")
    yield* done("failed", undefined, { status: "Failed", output: "boom" })
    yield* done("cancelled", undefined, { status: "Failed", output: "canceled: stop" })
    const row = (
      orchestrationName: string,
      status: InstanceStatus,
      instances: number,
      orchestrationVersion: string | null
    ) => ({
      orchestrationName,
      status,
      orchestrationVersion,
      instances,
      isEstimate: false
    })
    assert.deepStrictEqual(yield* count({ name: "Order" }), [row("Order", "Running", 3, null)])
    assert.deepStrictEqual(yield* count({ name: "Order", byVersion: true }), [
      row("Order", "Running", 2, "2.0.0"),
      row("Order", "Running", 1, "1.0.0")
    ])
    const all = yield* count()
    assert.deepStrictEqual(all[0], row("Order", "Running", 3, null))
    assert.sameMembers(all.slice(1).map(({ status }) => status), ["Cancelled", "Completed", "Failed"])
    assert.deepStrictEqual((yield* count({ status: "Cancelled" })).map(({ instances }) => instances), [1])
    assert.deepStrictEqual(yield* count({ status: "Cancelled", name: "Order" }), [])
  }),

  the_status_of_an_instance_follows_its_executions: Effect.gen(function*() {
    const { retry } = yield* Admin
    yield* create("continued")
    yield* continueAsNew("continued", 2)
    assert.deepStrictEqual(yield* listed({ status: "Running" }), ["continued"])
    yield* done("failed", undefined, { status: "Failed", output: "boom" })
    assert.deepStrictEqual(yield* listed({ status: "Failed" }), ["failed"])
    yield* retry("failed")
    assert.deepStrictEqual(yield* listed({ status: "Failed" }), [])
    assert.sameMembers([...yield* listed({ status: "Running" })], ["continued", "failed"])
  }),

  messages_before_a_start_are_counted_and_listed: Effect.gen(function*() {
    const admin = yield* Admin
    yield* poke("unknown")
    yield* send(queueMessage("unknown", "mail", "1"))
    yield* enqueueStart("known")
    assert.strictEqual(yield* admin.countMessagesBeforeStart, 2)
    const listed = yield* admin.listMessagesBeforeStart({ limit: 10 })
    assert.deepStrictEqual(
      listed.map(({ instanceId, isDue, item }) => [instanceId, item?._tag, isDue]),
      [["unknown", "ExternalRaised", true], ["unknown", "QueueMessage", true]]
    )
    assert.lengthOf(yield* admin.listMessagesBeforeStart({ limit: 1 }), 1)
  }),

  loads_say_by_orchestration_what_waits_runs_and_comes_later: Effect.gen(function*() {
    const admin = yield* Admin
    assert.deepStrictEqual(yield* admin.getQueueLoads, { orchestrations: [], activities: [] })
    yield* create("b", { orchestrationName: "Bread" })
    yield* enqueueStart("a", { orchestration: "Apple" })
    yield* elapse(5)
    yield* poke("b")
    yield* send(timerFired("b", 1, 0), "1 hour")
    yield* poke("unknown")
    yield* elapse(500)
    const { activities, orchestrations } = yield* admin.getQueueLoads
    assert.deepStrictEqual(activities, [])
    assert.deepStrictEqual(orchestrations.map((load) => without("oldestAgeMs", load)), [
      { orchestration: "Apple", version: "1.0.0", isOfRust: false, servedBy: 0, waiting: 1, running: 0, later: 0 },
      { orchestration: "Bread", version: "1.0.0", isOfRust: false, servedBy: 0, waiting: 1, running: 0, later: 1 },
      { orchestration: null, version: null, isOfRust: false, servedBy: null, waiting: 1, running: 0, later: 0 }
    ])
    for (const { oldestAgeMs } of orchestrations) assert.isAtLeast(oldestAgeMs!, 400)

    const claimed = yield* claimInstance("a", { lockTimeout: "30 seconds" })
    const [ofApple] = (yield* admin.getQueueLoads).orchestrations
    assert.deepInclude(ofApple, { orchestration: "Apple", ...idle, running: 1 })
    yield* abandon(claimed.lockToken)
    assert.strictEqual((yield* admin.getQueueLoads).orchestrations[0]?.waiting, 1)
  }),

  messages_of_a_paused_instance_come_later: Effect.gen(function*() {
    const admin = yield* Admin
    const target = PauseTarget.Instance({ instanceId: "i" })
    const load = Effect.map(admin.getQueueLoads, ({ orchestrations: [load] }) => load)
    yield* create("i")
    yield* poke("i")
    yield* admin.pause(target)
    assert.deepInclude(yield* load, { ...idle, later: 1 })
    yield* admin.resume(target)
    assert.deepInclude(yield* load, { waiting: 1, running: 0, later: 0 })
    const { lockToken } = yield* claimInstance("i")
    yield* abandon(lockToken, { delay: "1 minute" })
    assert.deepInclude(yield* load, { ...idle, later: 1 })
  }),

  loads_say_by_activity_and_tag_what_waits_runs_and_comes_later: Effect.gen(function*() {
    const admin = yield* Admin
    yield* enqueueActivity("i", 1, { name: "Audit" })
    yield* elapse(5)
    yield* enqueueActivity("i", 2, { name: "Mail" })
    yield* enqueueActivity("i", 3, { name: "Mail", tag: "gpu" })
    yield* enqueueActivity("i", 4, { name: "Mail", tag: "gpu" })
    yield* elapse(500)
    const waiting = (yield* admin.getQueueLoads).activities
    assert.deepStrictEqual(waiting.map(({ activity, tag, waiting }) => [activity, tag, waiting]), [
      ["Audit", null, 1],
      ["Mail", null, 1],
      ["Mail", "gpu", 2]
    ])
    for (const { oldestAgeMs } of waiting) assert.isAtLeast(oldestAgeMs!, 400)

    yield* claimActivity(1, { lockTimeout: 1500 })
    const [audit] = (yield* admin.getQueueLoads).activities
    assert.deepStrictEqual(audit, { activity: "Audit", tag: null, servedBy: 0, ...idle, running: 1, limited: 0 })
    yield* elapse(1600)
    assert.deepInclude((yield* admin.getQueueLoads).activities[0], { waiting: 1, running: 0 })
  }),

  queued_work_of_an_instance_has_its_messages_and_activities: Effect.gen(function*() {
    const admin = yield* Admin
    yield* create("i")
    const timer = timerFired("i", 7, 0)
    const signal = externalRaised("i", "poke", "1")
    yield* send(signal)
    yield* elapse(5)
    yield* send(timer, "1 hour")
    yield* enqueueActivity("i", 3)
    yield* poke("other")
    const { activities, messages } = yield* admin.getQueuedWork("i")
    assert.deepStrictEqual(messages.map((message) => without("visibleAtMs", message)), [
      { kind: "ExternalRaised", item: signal, lockedUntilMs: null, attemptCount: 0, isDue: true },
      { kind: "TimerFired", item: timer, lockedUntilMs: null, attemptCount: 0, isDue: false }
    ])
    assert.closeTo(messages[1]!.visibleAtMs - messages[0]!.visibleAtMs, Duration.toMillis("1 hour"), 10_000)
    assert.deepStrictEqual(activities.map((activity) => without("visibleAtMs", activity)), [
      { executionId: 1, eventId: 3, lockedUntilMs: null, attemptCount: 0, isDue: true, waitsForLimit: null }
    ])

    yield* claimActivity(3, { lockTimeout: "30 seconds" })
    const [claimed] = (yield* admin.getQueuedWork("i")).activities
    assert.deepInclude(claimed, { executionId: 1, eventId: 3, attemptCount: 1, isDue: true })
    assert.isAbove(claimed?.lockedUntilMs ?? 0, claimed?.visibleAtMs ?? 0)
    assert.deepStrictEqual(yield* admin.getQueuedWork("unknown"), {
      messages: [],
      activities: [],
      waitsForLimit: null
    })
  }),

  queued_work_has_all_timers_and_fifty_other_messages: Effect.gen(function*() {
    const admin = yield* Admin
    yield* create("i")
    for (let n = 0; n < 52; n++) {
      yield* send(queueMessage("i", "mail", `${n}`))
      yield* send(timerFired("i", n + 1, 0), "1 hour")
    }
    const { messages } = yield* admin.getQueuedWork("i")
    assert.lengthOf(messages.filter(({ kind }) => kind === "TimerFired"), 52)
    const mail = messages.filter(({ kind }) => kind === "QueueMessage")
    assert.deepStrictEqual(
      mail.map(({ item }) => item),
      Array.from({ length: 50 }, (_, n) => queueMessage("i", "mail", `${n}`))
    )
  }),

  a_queued_message_beyond_64_kib_is_not_read: Effect.gen(function*() {
    const admin = yield* Admin
    yield* send(startItem("i", { input: `"${"x".repeat(70_000)}"` }))
    const { messages: [start] } = yield* admin.getQueuedWork("i")
    assert.deepInclude(start, { kind: "StartOrchestration", item: null })
  }),

  an_execution_names_the_version_it_is_pinned_to: Effect.gen(function*() {
    const admin = yield* Admin
    yield* seed("pinned", "1.2.3")
    assert.deepStrictEqual((yield* admin.getExecutionInfo("pinned", 1)).pinnedVersion, {
      major: 1,
      minor: 2,
      patch: 3
    })
  })
})
