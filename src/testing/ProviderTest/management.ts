/**
 * The views of operators: lists, details, sizes, depths.
 */
import { assert } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import { cancelled } from "../../model/ErrorDetails.ts"
import * as Event from "../../model/Event.ts"
import { Admin } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import {
  abandon,
  ack,
  activityCompleted,
  activityScheduled,
  claimActivity,
  claimInstance,
  claimOrchestration,
  completed,
  create,
  customStatus,
  done,
  elapse,
  enqueueActivity,
  enqueueStart,
  externalRaised,
  fails,
  listed,
  multi,
  named,
  poke,
  send,
  started,
  startItem,
  timerFired,
  topic,
  turn,
  valueCleared,
  valueSet
} from "./harness.ts"
import type { EventInput } from "./harness.ts"
import * as Harness from "./harness.ts"

const stats = (instance: string) =>
  Effect.flatMap(
    Provider,
    (provider) => Effect.map(provider.getInstanceStats(instance), (found) => Harness.some(found, "statistics"))
  )

const sizes = (instance: string) =>
  Effect.map(stats(instance), (found) => [found.kvUserKeyCount, found.kvTotalValueBytes])

/** One look. */
const endOf = (instanceId: string) =>
  Effect.flatMap(Provider, (provider) => provider.awaitEnd({ instanceId, timeout: Duration.zero }))

export const management = topic("management", {
  test_list_instances: Effect.gen(function*() {
    const ids = ["mgmt-inst-0", "mgmt-inst-1", "mgmt-inst-2"]
    yield* Effect.forEach(ids, (id) => create(id))
    assert.sameMembers([...yield* listed()], ids)
  }),

  test_list_instances_by_status: Effect.gen(function*() {
    yield* done("ended")
    yield* create("running")
    yield* done("failed", undefined, { status: "Failed", output: "boom" })
    yield* done("cancelled", undefined, { status: "Failed", output: "canceled: stop" })
    assert.deepStrictEqual(yield* listed({ status: "Completed" }), ["ended"])
    assert.deepStrictEqual(yield* listed({ status: "Running" }), ["running"])
    assert.deepStrictEqual(yield* listed({ status: "Failed" }), ["failed"])
    assert.deepStrictEqual(yield* listed({ status: "Cancelled" }), ["cancelled"])
    assert.deepStrictEqual(yield* listed({ error: "STOP" }), ["cancelled"])
    // What the store keeps before the reason is not part of it.
    assert.deepStrictEqual(yield* listed({ error: "cancel" }), [])
  }),

  instances_are_found_by_every_field: Effect.gen(function*() {
    const admin = yield* Admin
    yield* done("old")
    yield* elapse(5)
    yield* create("other")
    yield* elapse(5)
    yield* create("order-1", { parentInstanceId: "other", orchestrationVersion: "1.2.0" })
    yield* elapse(5)
    yield* create("order-2", { orchestrationName: "Rare" })
    yield* turn("order-2", { events: [customStatus(2, "50 % of Rome")], metadata: { orchestrationName: "Rare" } })
    yield* elapse(5)
    yield* done("broken", undefined, { status: "Failed", output: "Card_Declined" })
    const { createdAtMs } = yield* admin.getInstanceInfo("order-1")
    assert.deepStrictEqual(yield* listed(), ["broken", "order-2", "order-1", "other", "old"])
    assert.deepStrictEqual(yield* listed({ status: "Completed" }), ["old"])
    assert.deepStrictEqual(yield* listed({ name: "Rare" }), ["order-2"])
    assert.deepStrictEqual(yield* listed({ name: "Rare", status: "Failed" }), [])
    assert.deepStrictEqual(yield* listed({ version: "1.2.0" }), ["order-1"])
    yield* (yield* Provider).startOrchestration({
      start: startItem("not-begun", { version: "3.0.0" }),
      pinnedVersion: { major: 1000, minor: 1, patch: 0 },
      delay: Option.none()
    })
    assert.deepStrictEqual(yield* listed({ version: "3.0.0" }), ["not-begun"])
    yield* admin.deleteInstance("not-begun", { force: true })
    assert.deepStrictEqual(yield* listed({ parentId: "other" }), ["order-1"])
    assert.deepStrictEqual(yield* listed({ parentId: "other", orderBy: "id", status: "Failed" }), [])
    assert.deepStrictEqual(yield* listed({ isRoot: true }), ["broken", "order-2", "other", "old"])
    assert.deepStrictEqual(yield* listed({ idPrefix: "order" }), ["order-1", "order-2"])
    assert.deepStrictEqual(yield* listed({ idPrefix: "order", orderBy: "newest" }), ["order-2", "order-1"])
    assert.deepStrictEqual(yield* listed({ idPrefix: "order%" }), [])
    assert.deepStrictEqual(yield* listed({ idPrefix: "o", status: "Running", parentId: "old" }), [])
    assert.deepStrictEqual(yield* listed({ createdFromMs: createdAtMs }), ["broken", "order-2", "order-1"])
    assert.deepStrictEqual(yield* listed({ createdBeforeMs: createdAtMs, orderBy: "oldest" }), ["old", "other"])
    assert.deepStrictEqual(yield* listed({ updatedFromMs: createdAtMs, updatedBeforeMs: createdAtMs + 4 }), ["order-1"])
    assert.deepStrictEqual(yield* listed({ customStatus: "% of rome" }), ["order-2"])
    assert.deepStrictEqual(yield* listed({ error: "card_" }), ["broken"])
    assert.deepStrictEqual(yield* listed({ error: "card-" }), [])
    const { instances: [newest] } = yield* admin.list({ limit: 1 })
    assert.deepStrictEqual(newest, yield* admin.getInstanceInfo("broken"))
  }),

  lists_have_pages: Effect.gen(function*() {
    const admin = yield* Admin
    const ids = Array.from({ length: 7 }, (_, index) => `i-${index}`)
    // Two of them at a time: also a page that ends between them is continued with the other one.
    for (const [index, id] of ids.entries()) {
      if (index % 2 === 0) yield* elapse(5)
      yield* create(id, { orchestrationName: `Name ${index % 3}` })
    }
    for (const orderBy of ["newest", "oldest", "id"] as const) {
      const all = yield* listed({ orderBy })
      assert.sameMembers([...all], ids)
      for (const limit of [1, 2, 3, 7]) {
        const found: Array<string> = []
        let cursor: string | undefined
        do {
          const page = yield* admin.list({ orderBy, limit, cursor })
          assert.isAtMost(page.instances.length, limit)
          found.push(...page.instances.map(({ instanceId }) => instanceId))
          cursor = page.next ?? undefined
        } while (cursor !== undefined)
        assert.deepStrictEqual(found, [...all], `${orderBy} by ${limit}`)
      }
    }
    const { next } = yield* admin.list({ limit: 2 })
    yield* fails(admin.list({ cursor: next!, orderBy: "id" }), /not one of a list in the order "id"/)
    yield* fails(admin.list({ cursor: "first" }), /cursor/)
  }),

  test_list_executions: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* ack(yield* claimOrchestration(), { executionId: 1, events: [started()] })
    assert.deepStrictEqual(yield* (yield* Admin).listExecutions("i"), [1])
  }),

  test_get_instance_info: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* ack(yield* claimOrchestration(), {
      events: [started()],
      metadata: { orchestrationName: "InfoOrch", orchestrationVersion: "2.0.0" }
    })
    const info = yield* (yield* Admin).getInstanceInfo("i")
    assert.deepInclude(info, {
      instanceId: "i",
      orchestrationName: "InfoOrch",
      orchestrationVersion: "2.0.0",
      executionId: 1,
      status: "Running",
      output: null
    })
  }),

  test_get_execution_info: Effect.gen(function*() {
    yield* enqueueStart("mgmt-exec-info")
    yield* ack(yield* claimOrchestration(), {
      executionId: 1,
      events: [started({ instanceId: "another" })],
      metadata: { status: "Completed", output: "result" }
    })
    const info = yield* (yield* Admin).getExecutionInfo("mgmt-exec-info", 1)
    assert.deepInclude(info, { executionId: 1, status: "Completed", output: "result", eventCount: 1 })
  }),

  test_get_system_metrics: Effect.gen(function*() {
    const admin = yield* Admin
    const before = yield* admin.getSystemMetrics
    yield* enqueueStart("i")
    yield* ack(yield* claimOrchestration(), { events: [started({ instanceId: "another" })], metadata: named() })
    const after = yield* admin.getSystemMetrics
    assert.strictEqual(after.totalInstances, before.totalInstances + 1)
    assert.isAbove(after.totalEvents, 0)
  }),

  test_get_queue_depths: Effect.gen(function*() {
    const admin = yield* Admin
    const before = yield* admin.getQueueDepths
    yield* enqueueStart("i")
    assert.strictEqual((yield* admin.getQueueDepths).orchestratorQueue, before.orchestratorQueue + 1)
  }),

  test_get_instance_stats_nonexistent: Effect.gen(function*() {
    assert.isTrue(Option.isNone(yield* (yield* Provider).getInstanceStats("unknown")))
  }),

  test_get_instance_stats_history: Effect.gen(function*() {
    yield* create("i")
    const { historySizeBytes, ...others } = yield* stats("i")
    assert.isAbove(historySizeBytes, 0)
    assert.deepStrictEqual(others, {
      historyEventCount: 1,
      queuePendingCount: 0,
      kvUserKeyCount: 0,
      kvTotalValueBytes: 0
    })
  }),

  test_get_instance_stats_kv: Effect.gen(function*() {
    yield* create("i")
    yield* turn("i", {
      events: [valueSet(100, "k1", "aaa"), valueSet(101, "k2", "bbbbb"), completed(102)],
      metadata: named({ status: "Completed" })
    })
    assert.deepStrictEqual(yield* sizes("i"), [2, 8])
  }),

  test_get_instance_stats_carry_forward: Effect.gen(function*() {
    yield* enqueueStart("i")
    const carryForwardEvents = [["q", "1"], ["q", "2"], ["r", "3"]] as const
    yield* ack(yield* claimOrchestration(), { events: [started({ carryForwardEvents })], metadata: named() })
    assert.strictEqual((yield* stats("i")).queuePendingCount, 3)
    assert.deepStrictEqual(yield* sizes("i"), [0, 0])
  }),

  test_get_instance_stats_kv_delta_only: Effect.gen(function*() {
    yield* create("i")
    yield* turn("i", { events: [valueSet(100, "dk1", "xxx"), valueSet(101, "dk2", "yyyyyy"), activityScheduled(102)] })
    assert.deepStrictEqual(yield* sizes("i"), [2, 9])
    assert.strictEqual((yield* stats("i")).queuePendingCount, 0)
  }),

  test_get_instance_stats_kv_merged: Effect.gen(function*() {
    yield* create("i")
    yield* turn("i", { events: [valueSet(100, "mk1", "aaa"), valueSet(101, "mk2", "bb")] })
    assert.deepStrictEqual(yield* sizes("i"), [2, 5])
    yield* turn("i", { events: [valueSet(102, "mk1", "zzzzz")], metadata: named({ status: "Completed" }) })
    assert.deepStrictEqual(yield* sizes("i"), [2, 7])
  }),

  // -- ours ------------------------------------------------------------------------------------

  stats_leave_out_removed_values: Effect.gen(function*() {
    yield* create("i")
    yield* turn("i", {
      events: [valueSet(100, "kept", "123"), valueSet(101, "removed", "1234567")],
      metadata: named({ status: "ContinuedAsNew" })
    })
    yield* turn("i", { executionId: 2, events: [valueCleared(1, "removed"), valueSet(2, "kept", "ü")] })
    // Two bytes, because sizes are counted in UTF-8.
    assert.deepStrictEqual(yield* sizes("i"), [1, 2])
  }),

  stats_count_strings_bare: Effect.gen(function*() {
    yield* create("i")
    // As the limit on values does: without quotes and escapes. What is not a string of JSON counts as it is.
    const events = [`"elf bytes!!"`, `"ü\\n"`, `{"a":1}`, `"open`, ""].map((value, n) =>
      valueSet(100 + n, `k${n}`, value)
    )
    yield* turn("i", { events, metadata: named({ status: "Completed" }) })
    assert.deepStrictEqual(yield* sizes("i"), [5, 11 + 3 + 7 + 5])
  }),

  queue_depths_count_what_could_be_claimed: Effect.gen(function*() {
    const admin = yield* Admin
    yield* enqueueStart("locked")
    yield* send(timerFired("later", 1), "1 hour")
    yield* enqueueActivity("i", 1)
    yield* enqueueActivity("i", 2)
    const locked = yield* claimInstance("locked", { lockTimeout: 1500 })
    yield* claimActivity(1, { lockTimeout: 1500 })
    assert.deepStrictEqual(yield* admin.getQueueDepths, { orchestratorQueue: 0, workerQueue: 1 })
    yield* elapse(1600)
    assert.deepStrictEqual(yield* admin.getQueueDepths, { orchestratorQueue: 1, workerQueue: 2 })
    yield* abandon(locked.lockToken)
    assert.strictEqual((yield* admin.getQueueDepths).orchestratorQueue, 1)
  }),

  backlog_has_what_could_be_claimed_and_since_when: Effect.gen(function*() {
    const { readBacklog } = yield* Provider
    const empty = yield* readBacklog
    assert.deepStrictEqual(empty, {
      orchestrator: { depth: 0, oldestAgeMs: null },
      worker: [],
      activeInstances: 0,
      blockedInstances: 0,
      limitedActivities: 0,
      limitedInstances: 0
    })
    yield* enqueueStart("locked")
    yield* send(timerFired("later", 1), "1 hour")
    yield* send(externalRaised("without a start"))
    yield* enqueueActivity("i", 1)
    yield* enqueueActivity("i", 2, { tag: "gpu" })
    yield* elapse(500)
    const waiting = yield* readBacklog
    assert.strictEqual(waiting.orchestrator.depth, 1)
    assert.isAtLeast(waiting.orchestrator.oldestAgeMs!, 400)
    assert.deepStrictEqual(waiting.worker.map(({ depth, tag }) => [tag, depth]), [["gpu", 1], [null, 1]])
    yield* claimInstance("locked", { lockTimeout: 1500 })
    yield* claimActivity(1, { lockTimeout: 1500 })
    const claimed = yield* readBacklog
    assert.deepStrictEqual(claimed.orchestrator, { depth: 0, oldestAgeMs: null })
    assert.deepStrictEqual(claimed.worker.map(({ depth, tag }) => [tag, depth]), [["gpu", 1]])
    yield* elapse(1600)
    // Since the locks have run out, and not since it was enqueued.
    const expired = yield* readBacklog
    assert.strictEqual(expired.orchestrator.depth, 1)
    const gpuAgeMs = expired.worker.find(({ tag }) => tag === "gpu")!.oldestAgeMs!
    assert.isAtLeast(gpuAgeMs, 1_900)
    assert.isBelow(expired.orchestrator.oldestAgeMs!, gpuAgeMs - 1_500)
  }),

  system_metrics_count_by_status: Effect.gen(function*() {
    yield* create("running")
    yield* done("completed")
    yield* done("failed", undefined, { status: "Failed" })
    yield* multi("many", 3)
    assert.deepStrictEqual(yield* (yield* Admin).getSystemMetrics, {
      totalInstances: 4,
      totalExecutions: 6,
      runningInstances: 1,
      completedInstances: 2,
      failedInstances: 1,
      totalEvents: 6
    })
  }),

  an_instance_names_what_failed_it_however_many_activities_were_open: Effect.gen(function*() {
    const open = Array.from({ length: 40 }, (_, index) => index + 2)
    yield* send(startItem("i"))
    yield* ack(yield* claimInstance("i"), {
      executionId: 1,
      events: [
        started(),
        ...open.map((eventId) => activityScheduled(eventId)),
        { _tag: "OrchestrationFailed", eventId: 42, details: cancelled("stop") },
        ...open.map((sourceEventId, index): EventInput => ({
          _tag: "ActivityCancelRequested",
          eventId: 43 + index,
          sourceEventId,
          // The content of a text must not affect the type of its event.
          reason: `"type":"OrchestrationFailed"`
        }))
      ],
      metadata: named({ status: "Failed", output: "canceled: stop" })
    })
    const state = Harness.some(yield* (yield* Provider).readInstance("i"), "instance")
    const event = Option.getOrThrow(Result.getSuccess(Event.decode(state.failure ?? "")))
    assert.deepInclude(event, { _tag: "OrchestrationFailed", eventId: 42, details: cancelled("stop") })
    assert.deepStrictEqual(
      yield* endOf("i"),
      Option.some({ _tag: "Failed" as const, details: cancelled("stop") })
    )
  }),

  an_end_is_that_of_the_newest_execution: Effect.gen(function*() {
    yield* multi("i", 2, { status: "ContinuedAsNew", output: "2" })
    assert.deepStrictEqual(yield* endOf("i"), Option.none())
    yield* multi("j", 2, { status: "Completed", output: "done" })
    assert.deepStrictEqual(yield* endOf("j"), Option.some({ _tag: "Completed" as const, output: "done" }))
    assert.deepStrictEqual(yield* endOf("unknown"), Option.none())
  }),

  unknown_instances: Effect.gen(function*() {
    const admin = yield* Admin
    assert.deepStrictEqual(yield* admin.listExecutions("unknown"), [])
    assert.deepStrictEqual(yield* admin.readHistoryWithExecutionId("unknown", 1), [])
    yield* fails(admin.latestExecutionId("unknown"), /not found/)
    yield* fails(admin.readHistory("unknown"), /not found/)
    yield* fails(admin.getInstanceInfo("unknown"), /not found/)
    yield* fails(admin.getExecutionInfo("unknown", 1), /not found/)
  }),

  management_reads_the_newest_execution: Effect.gen(function*() {
    const admin = yield* Admin
    yield* multi("i", 2, { status: "Failed", output: "boom" })
    assert.strictEqual(yield* admin.latestExecutionId("i"), 2)
    assert.deepStrictEqual((yield* admin.readHistory("i")).map(({ executionId }) => executionId), [2])
    assert.deepInclude(yield* admin.getInstanceInfo("i"), { executionId: 2, status: "Failed", output: "boom" })
  }),

  instances_are_listed_newest_first: Effect.gen(function*() {
    const ids = ["b", "c", "a"]
    for (const id of ids) {
      yield* create(id)
      yield* elapse(5)
    }
    assert.deepStrictEqual(yield* listed(), ids.toReversed())
    yield* poke("b")
    yield* send(activityCompleted("b", 1))
    assert.deepStrictEqual(yield* listed({ status: "Running" }), ids.toReversed())
  })
})
