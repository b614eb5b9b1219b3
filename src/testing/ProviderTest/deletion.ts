/**
 * Deletion of instances and trees: everything or nothing, and nothing reappears.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import { Admin } from "../../provider/Admin.ts"
import type { Claimed, OrchestrationItem } from "../../provider/Provider.ts"
import { Provider } from "../../provider/Provider.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import {
  ack,
  ackWork,
  activityCompleted,
  activityItem,
  activityScheduled,
  childStartItem,
  claimActivity,
  claimInstance,
  claimOrchestration,
  continueAsNewItem,
  create,
  done,
  enqueueActivity,
  enqueueStart,
  expectGone,
  expectInstances,
  expectNoOrchestration,
  expectNoWork,
  fails,
  fetchOrchestration,
  listed,
  named,
  parallel,
  poke,
  running,
  send,
  started,
  topic,
  turn
} from "./harness.ts"

const remove = (instance: string, force = false) =>
  Effect.flatMap(Admin, (admin) => admin.deleteInstance(instance, { force }))

const removeAtomic = (instances: ReadonlyArray<string>, force = false) =>
  Effect.flatMap(Admin, (admin) => admin.deleteInstancesAtomic(instances, { force }))

/** `root`, its children `root::sub::2` and `root::sub::3`, and a grandchild below the second. */
const family = Effect.gen(function*() {
  yield* done("root")
  yield* done("root::sub::2", "root")
  yield* done("root::sub::3", "root")
  yield* done("root::sub::3::sub::2", "root::sub::3")
  return { root: "root", first: "root::sub::2", second: "root::sub::3", grandchild: "root::sub::3::sub::2" }
})

export const deletion = topic("deletion", {
  test_delete_terminal_instances: Effect.gen(function*() {
    yield* done("completed")
    yield* done("failed", undefined, { status: "Failed", output: "error: something went wrong" })
    yield* done("cancelled", undefined, { status: "Failed", output: "cancelled: user requested cancellation" })
    const deleted = yield* remove("completed")
    assert.deepInclude(deleted, { instancesDeleted: 1, executionsDeleted: 1, eventsDeleted: 1 })
    assert.isAtLeast((yield* remove("failed")).instancesDeleted, 1)
    assert.isAtLeast((yield* remove("cancelled")).instancesDeleted, 1)
    yield* expectGone("completed", "failed", "cancelled")
  }),

  test_delete_running_rejected_force_succeeds: Effect.gen(function*() {
    yield* running("i")
    yield* fails(remove("i"), /running/i)
    yield* expectInstances("i")
    yield* remove("i", true)
    yield* expectGone("i")
  }),

  test_delete_nonexistent_instance: fails(remove("unknown"), /not found/),

  test_delete_cleans_queues_and_locks: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* enqueueActivity("i", 1)
    yield* ack(yield* claimInstance("i"), { events: [started()], metadata: named({ status: "Completed" }) })
    assert.isAtLeast((yield* remove("i")).queueMessagesDeleted, 1)
    yield* enqueueStart("i", { orchestration: "ReusedOrch", version: "2.0.0", input: `{"reused": true}` })
    const claimed = yield* claimInstance("i")
    assert.strictEqual(claimed.item.orchestrationName, "ReusedOrch")
    yield* ack(claimed, {
      executionId: 1,
      events: [started({ name: "ReusedOrch", version: "2.0.0" })],
      metadata: { orchestrationName: "ReusedOrch", orchestrationVersion: "2.0.0" }
    })
    const info = yield* (yield* Admin).getInstanceInfo("i")
    assert.strictEqual(info.orchestrationName, "ReusedOrch")
    yield* expectNoWork()
  }),

  test_cascade_delete_hierarchy: Effect.gen(function*() {
    yield* done("root")
    yield* done("child1", "root")
    yield* done("child2", "root")
    yield* done("grandchild", "child1")
    const refusal = /sub-orchestration|root|parent/
    yield* fails(remove("child1"), refusal)
    yield* fails(remove("child1", true), refusal)
    yield* fails(remove("grandchild"), refusal)
    assert.isAtLeast((yield* remove("root")).executionsDeleted, 4)
    yield* expectGone("root", "child1", "child2", "grandchild")
  }),

  test_force_delete_prevents_ack_recreation: Effect.gen(function*() {
    yield* create("i")
    yield* poke("i")
    const claimed = yield* claimInstance("i")
    yield* remove("i", true)
    yield* fails(
      ack(claimed, { events: [{ _tag: "ExternalEvent", eventId: 2, name: "poke", data: "" }], metadata: named() }),
      /Invalid lock token/
    )
    yield* expectGone("i")
  }),

  test_list_children: Effect.gen(function*() {
    const { first, grandchild, root, second } = yield* family
    const admin = yield* Admin
    assert.sameMembers([...yield* admin.listChildren(root)], [first, second])
    assert.deepStrictEqual(yield* admin.listChildren(second), [grandchild])
    assert.deepStrictEqual(yield* admin.listChildren(grandchild), [])
    assert.deepStrictEqual(yield* admin.listChildren("unknown"), [])
  }),

  test_delete_get_parent_id: Effect.gen(function*() {
    const admin = yield* Admin
    yield* done("root")
    yield* done("child", "root")
    assert.isTrue(Option.isNone(yield* admin.getParentId("root")))
    assert.deepStrictEqual(yield* admin.getParentId("child"), Option.some("root"))
    yield* fails(admin.getParentId("unknown"), /not found/)
  }),

  test_delete_get_instance_tree: Effect.gen(function*() {
    const { first, grandchild, root, second } = yield* family
    const admin = yield* Admin
    const tree = yield* admin.getInstanceTree(root)
    assert.strictEqual(tree.rootId, root)
    assert.sameMembers([...tree.allIds], [root, first, second, grandchild])
    assert.deepStrictEqual(yield* admin.getInstanceTree(grandchild), { rootId: grandchild, allIds: [grandchild] })
  }),

  test_delete_instances_atomic: Effect.gen(function*() {
    const instances = ["a", "b", "c"]
    yield* Effect.forEach(instances, (instance) => done(instance))
    const deleted = yield* removeAtomic(instances)
    assert.deepInclude(deleted, { instancesDeleted: 3, executionsDeleted: 3, eventsDeleted: 3 })
    yield* expectGone(...instances)
  }),

  test_delete_instances_atomic_force: Effect.gen(function*() {
    yield* done("ended")
    yield* running("alive")
    yield* fails(removeAtomic(["ended", "alive"]), /running/i)
    yield* expectInstances("ended", "alive")
    yield* removeAtomic(["ended", "alive"], true)
    yield* expectGone("ended", "alive")
  }),

  test_delete_instances_atomic_orphan_detection: Effect.gen(function*() {
    yield* done("root")
    yield* done("child", "root")
    yield* fails(removeAtomic(["root"]), /child|orphan|tree/)
    yield* expectInstances("root", "child")
    yield* removeAtomic(["root", "child"])
    yield* expectGone("root", "child")
  }),

  test_stale_activity_after_delete_recreate: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* ack(yield* claimInstance("i"), {
      executionId: 1,
      events: [started(), activityScheduled(2)],
      workers: [activityItem("i", 2)],
      metadata: named()
    })
    const stale = yield* claimActivity(2)
    yield* remove("i", true)
    yield* create("i")
    yield* fails(ackWork(stale.lockToken, activityCompleted("i", 2, "stale-result")))
    yield* poke("i")
    const { item } = yield* claimInstance("i")
    assert.isFalse(item.messages.some((message) => "result" in message && message.result.includes("stale-result")))
  }),

  // -- ours ------------------------------------------------------------------------------------

  delete_of_nothing: Effect.gen(function*() {
    const nothing = { instancesDeleted: 0, executionsDeleted: 0, eventsDeleted: 0, queueMessagesDeleted: 0 }
    assert.deepStrictEqual(yield* removeAtomic([]), nothing)
    assert.deepStrictEqual(yield* removeAtomic(["unknown"]), nothing)
  }),

  delete_counts_every_row_once: Effect.gen(function*() {
    yield* create("i")
    yield* turn("i", {
      executionId: 1,
      events: [activityScheduled(2)],
      workers: [activityItem("i", 2), activityItem("i", 3)]
    })
    yield* poke("i")
    assert.deepStrictEqual(yield* removeAtomic(["i", "i"], true), {
      instancesDeleted: 1,
      executionsDeleted: 1,
      eventsDeleted: 2,
      queueMessagesDeleted: 3
    })
    yield* expectNoOrchestration()
    yield* expectNoWork()
    assert.deepStrictEqual(yield* (yield* Provider).read("i"), [])
  }),

  continue_as_new_in_transition_is_alive: Effect.gen(function*() {
    const admin = yield* Admin
    yield* create("i")
    yield* turn("i", {
      executionId: 1,
      items: [continueAsNewItem("i")],
      metadata: named({ status: "ContinuedAsNew" })
    })
    yield* fails(remove("i"), /running/i)
    assert.strictEqual((yield* admin.deleteInstanceBulk({ instanceIds: ["i"] })).instancesDeleted, 0)
    yield* expectInstances("i")
    yield* ack(yield* claimInstance("i"), { executionId: 2, events: [started()], metadata: named() })
    yield* remove("i", true)
    // Without a message that continues it, it has ended.
    yield* create("i")
    yield* turn("i", { executionId: 1, metadata: named({ status: "ContinuedAsNew" }) })
    yield* remove("i")
    yield* expectGone("i")
  }),

  a_bulk_deletion_skips_what_has_changed_since_it_was_read: Effect.gen(function*() {
    const admin = yield* Admin
    for (const id of ["same", "changed", "unread"]) {
      yield* create(id)
      yield* turn(id, { executionId: 1, metadata: named({ status: "Completed" }) })
    }
    const { updatedAtMs } = yield* admin.getInstanceInfo("same")
    const times = new Map([["same", updatedAtMs], ["changed", updatedAtMs - 1]])
    const deletion = { instanceIds: ["same", "changed", "unread"], updatedAtMs: times }
    const { failed, instancesDeleted } = yield* admin.deleteInstanceBulk(deletion)
    assert.deepStrictEqual({ failed, instancesDeleted }, { failed: [], instancesDeleted: 1 })
    yield* expectGone("same")
    yield* expectInstances("changed", "unread")
  }),

  a_queued_child_counts_as_a_child: Effect.gen(function*() {
    yield* create("parent")
    yield* turn("parent", {
      executionId: 1,
      items: [childStartItem("child", "parent")],
      metadata: named({ status: "Completed" })
    })
    yield* fails(removeAtomic(["parent"], true), /child|orphan|tree/)
    yield* expectInstances("parent")
    yield* removeAtomic(["parent", "child"], true)
    yield* expectGone("parent", "child")
    yield* expectNoOrchestration()
  }),

  a_tree_of_more_than_a_thousand_is_taken_from_its_processes: Effect.gen(function*() {
    const children = Array.from({ length: 1001 }, (_, index) => `child-${index}`)
    const start = (child: string) => childStartItem(child, "root", { version: "2.0.0" })
    // Long enough for a slow machine to store the children.
    const claimRoot = Effect.andThen(
      poke("root"),
      claimInstance("root", { serves: ["1.0.0"], lockTimeout: "1 hour" })
    )
    yield* create("root")
    yield* ack(yield* claimRoot, { items: children.map(start), pinsStartsTo: "1.0.0" })
    yield* send(start("not begun"), "1 hour")
    const kept = yield* claimRoot
    yield* fails(remove("root"), /running/i)
    yield* ack(kept)
    const lost = yield* claimRoot
    const deleted = yield* remove("root", true)
    assert.deepInclude(deleted, { instancesDeleted: 1002, queueMessagesDeleted: 1003 })
    yield* fails(ack(lost), /lock/i)
    yield* expectNoOrchestration()
    assert.deepStrictEqual(yield* listed(), [])
  }),

  concurrent_child_creation_during_delete: Effect.gen(function*() {
    // Either the parent remains with its child, or both are deleted.
    for (let round = 0; round < 5; round++) {
      const parent = `parent-${round}`
      const child = `child-${round}`
      yield* done(parent)
      yield* send(childStartItem(child, parent))
      const claimed = yield* claimInstance(child)
      const [created, removed] = yield* parallel<Exit.Exit<void, ProviderError>, never, Provider | Admin>([
        Effect.exit(ack(claimed, { events: [started()], metadata: named({ parentInstanceId: parent }) })),
        Effect.exit(Effect.asVoid(removeAtomic([parent], true)))
      ])
      for (const exit of [created!, removed!]) yield* expectDefined(exit)
      if (Exit.isSuccess(created!)) yield* Exit.isSuccess(removed!) ? expectGone(child) : expectInstances(parent, child)
      yield* Effect.ignore(removeAtomic([parent, child], true))
      yield* expectGone(parent, child)
    }
  }),

  delete_against_fetch_and_ack: Effect.gen(function*() {
    // A deleted instance never reappears, and no caller sees a deadlock.
    const instances = Array.from({ length: 8 }, (_, index) => `i-${index}`)
    yield* Effect.forEach(instances, (instance) => create(instance))
    yield* Effect.forEach(instances, (instance) => poke(instance))
    const claimed = yield* Effect.forEach(instances.slice(4), () => claimOrchestration())
    const settle = (item: Claimed<OrchestrationItem>) =>
      Effect.asVoid(ack(item, { events: [activityScheduled(2)], metadata: named() }))
    const exits = yield* parallel<Exit.Exit<void, ProviderError>, never, Provider | Admin>([
      ...claimed.map((item) => Effect.exit(settle(item))),
      ...instances.map((instance) => Effect.exit(Effect.asVoid(remove(instance, true)))),
      Effect.exit(Effect.asVoid(removeAtomic(instances.toReversed(), true))),
      ...instances.slice(4).map(() => Effect.exit(fetchAndSettle))
    ])
    yield* Effect.forEach(exits, expectDefined)
    yield* expectGone(...instances)
    yield* expectNoOrchestration()
    assert.deepStrictEqual(yield* listed(), [])
  })
})

const fetchAndSettle = Effect.flatMap(
  fetchOrchestration(),
  Option.match({
    onNone: () => Effect.void,
    onSome: (item) => ack(item, { events: [activityScheduled(3)], metadata: named() })
  })
)

/** Success, or a permanent error. */
const expectDefined = (exit: Exit.Exit<void, ProviderError>) =>
  Exit.isSuccess(exit) ? Effect.void : Effect.asVoid(fails(exit))
