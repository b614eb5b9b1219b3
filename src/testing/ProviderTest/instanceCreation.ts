/**
 * Instances are created by the metadata of a turn, never by a message; names and versions are found without them, too.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Admin } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import {
  ack,
  activityCompleted,
  childStartItem,
  claimInstance,
  claimOrchestration,
  create,
  enqueueStart,
  expectGone,
  expectInstances,
  named,
  poke,
  send,
  started,
  topic
} from "./harness.ts"

export const instanceCreation = topic("instance_creation", {
  test_instance_creation_via_metadata: Effect.gen(function*() {
    yield* enqueueStart("i")
    const first = yield* claimOrchestration()
    assert.deepStrictEqual(
      [first.item.orchestrationName, first.item.executionId, first.item.history],
      ["TestOrch", 1, []]
    )
    yield* ack(first, {
      events: [started({ version: "2.0.0" })],
      metadata: { orchestrationName: "TestOrch", orchestrationVersion: "2.0.0" }
    })
    yield* enqueueStart("i")
    const { item } = yield* claimOrchestration()
    assert.deepStrictEqual(
      [item.orchestrationVersion, item.executionId, item.history.length],
      ["2.0.0", 1, 1]
    )
  }),

  test_no_instance_creation_on_enqueue: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* expectGone("i")
    const claimed = yield* claimInstance("i")
    yield* expectGone("i")
    yield* ack(claimed, { events: [started()], metadata: named() })
    yield* expectInstances("i")
  }),

  test_null_version_handling: Effect.gen(function*() {
    yield* enqueueStart("i", { version: null })
    yield* ack(yield* claimOrchestration(), {
      events: [started({ version: "3.0.0" })],
      metadata: named({ orchestrationVersion: "3.0.0" })
    })
    yield* enqueueStart("i")
    assert.strictEqual((yield* claimOrchestration()).item.orchestrationVersion, "3.0.0")
  }),

  test_sub_orchestration_instance_creation: Effect.gen(function*() {
    const parent = "parent-instance"
    const child = "parent-instance::child-instance"
    yield* enqueueStart(parent)
    yield* ack(yield* claimOrchestration(), {
      events: [started({ name: "ParentOrch" })],
      items: [childStartItem(child, parent, { orchestration: "ChildOrch", version: null })],
      metadata: { orchestrationName: "ParentOrch", orchestrationVersion: "1.0.0" }
    })
    const claimed = yield* claimInstance(child)
    assert.strictEqual(claimed.item.orchestrationName, "ChildOrch")
    yield* ack(claimed, {
      events: [started({ name: "ChildOrch", version: "1.5.0", parentInstance: parent, parentId: 1 })],
      metadata: { orchestrationName: "ChildOrch", orchestrationVersion: "1.5.0" }
    })
    yield* send(childStartItem(child, parent, { orchestration: "ChildOrch", version: null }))
    assert.strictEqual((yield* claimInstance(child)).item.orchestrationVersion, "1.5.0")
  }),

  // -- ours ------------------------------------------------------------------------------------

  identity_is_found_in_history_without_metadata: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* ack(yield* claimOrchestration(), { executionId: 2, events: [started({ name: "Named", version: "4.5.6" })] })
    yield* poke("i")
    const { item } = yield* claimInstance("i")
    assert.deepStrictEqual(
      [item.orchestrationName, item.orchestrationVersion, item.executionId, item.history.length],
      ["Named", "4.5.6", 2, 1]
    )
  }),

  identity_is_found_anywhere_in_the_batch: Effect.gen(function*() {
    yield* send(activityCompleted("i", 1))
    yield* enqueueStart("i", { version: null, orchestration: "Named", executionId: 7 })
    const { item } = yield* claimInstance("i")
    assert.deepStrictEqual(
      [item.orchestrationName, item.orchestrationVersion, item.executionId, item.messages.length],
      ["Named", "unknown", 7, 2]
    )
  }),

  parent_link_is_written_once: Effect.gen(function*() {
    const admin = yield* Admin
    yield* create("parent")
    yield* create("other")
    yield* create("i")
    assert.isTrue(Option.isNone(yield* admin.getParentId("i")))
    for (const parentInstanceId of ["parent", "other"]) {
      yield* poke("i")
      yield* ack(yield* claimInstance("i"), { metadata: named({ parentInstanceId }) })
      assert.deepStrictEqual(yield* admin.getParentId("i"), Option.some("parent"))
    }
  }),

  name_alone_creates_no_instance: Effect.gen(function*() {
    const provider = yield* Provider
    yield* enqueueStart("i")
    yield* ack(yield* claimOrchestration(), { events: [started()], metadata: { orchestrationName: "TestOrch" } })
    yield* expectGone("i")
    assert.lengthOf(yield* provider.read("i"), 1)
  })
})
