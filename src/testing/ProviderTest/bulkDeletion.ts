/**
 * Bulk deletion: only instances that have ended, tree by tree.
 */
import { assert } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { Admin } from "../../provider/Admin.ts"
import type { DeletionFilter } from "../../provider/Admin.ts"
import { create, done, elapse, expectGone, expectInstances, fails, listed, running, topic } from "./harness.ts"

const bulk = (filter: DeletionFilter) =>
  Effect.flatMap(
    Admin,
    (admin) => Effect.map(admin.deleteInstanceBulk(filter), ({ instancesDeleted }) => instancesDeleted)
  )

const ended = (...instances: ReadonlyArray<string>) => Effect.forEach(instances, (instance) => done(instance))

export const bulkDeletion = topic("bulk_deletion", {
  test_delete_instance_bulk_filter_combinations: Effect.gen(function*() {
    yield* ended("i0", "i1", "i2", "i3", "i4")
    assert.strictEqual(yield* bulk({ instanceIds: ["i0", "i1"] }), 2)
    yield* expectInstances("i2")
    assert.strictEqual(yield* bulk({ instanceIds: ["unknown", "i0"] }), 0)
    assert.isAtLeast(yield* bulk({}), 3)
    yield* expectGone("i0", "i1", "i2", "i3", "i4")
  }),

  test_delete_instance_bulk_safety_and_limits: Effect.gen(function*() {
    yield* ended("a", "b")
    yield* running("c")
    yield* running("d")
    assert.strictEqual(yield* bulk({ instanceIds: ["a", "b", "c", "d"] }), 2)
    yield* expectInstances("c", "d")
    yield* ended("e", "f", "g", "h")
    assert.deepStrictEqual(
      [yield* bulk({ limit: 2 }), yield* bulk({ limit: 2 }), yield* bulk({ limit: 2 })],
      [2, 2, 0]
    )
  }),

  test_delete_instance_bulk_completed_before_filter: Effect.gen(function*() {
    const before = yield* Clock.currentTimeMillis
    yield* elapse(10)
    yield* ended("a", "b")
    yield* elapse(10)
    const after = yield* Clock.currentTimeMillis
    assert.strictEqual(yield* bulk({ instanceIds: ["a", "b"], completedBeforeMs: before }), 0)
    yield* expectInstances("a", "b")
    assert.strictEqual(yield* bulk({ instanceIds: ["a", "b"], completedBeforeMs: after }), 2)
  }),

  test_delete_instance_bulk_cascades_to_children: Effect.gen(function*() {
    yield* ended("parent1", "parent2", "alone")
    yield* done("child", "parent1")
    const children = ["child1", "child2", "child3"]
    yield* Effect.forEach(children, (child) => done(child, "parent2"))
    assert.strictEqual(yield* bulk({ instanceIds: ["parent1", "parent2", "alone"] }), 7)
    yield* expectGone("parent1", "parent2", "alone", "child", ...children)
  }),

  // -- ours ------------------------------------------------------------------------------------

  an_empty_list_selects_nothing: Effect.gen(function*() {
    yield* ended("a")
    assert.strictEqual(yield* bulk({ instanceIds: [] }), 0)
    assert.strictEqual(yield* bulk({ limit: 0 }), 0)
    yield* fails(bulk({ limit: -1 }))
    yield* expectInstances("a")
  }),

  the_end_itself_is_not_before_it: Effect.gen(function*() {
    yield* ended("a")
    const { completedAtMs } = yield* (yield* Admin).getExecutionInfo("a", 1)
    assert(completedAtMs !== null)
    assert.strictEqual(yield* bulk({ completedBeforeMs: completedAtMs }), 0)
    assert.strictEqual(yield* bulk({ completedBeforeMs: completedAtMs + 1 }), 1)
  }),

  children_are_not_selected: Effect.gen(function*() {
    yield* running("root")
    yield* done("child", "root")
    assert.strictEqual(yield* bulk({ instanceIds: ["child"] }), 0)
    assert.strictEqual(yield* bulk({}), 0)
    yield* expectInstances("root", "child")
  }),

  bulk_deletion_of_listed_instances_matches_every_field: Effect.gen(function*() {
    for (const id of ["a", "b"]) yield* done(id)
    yield* done("failed", undefined, { status: "Failed", output: "boom" })
    const { deleteInstanceBulk } = yield* Admin
    const instanceIds = ["a", "b", "failed"]
    assert.strictEqual(yield* bulk({ instanceIds, status: "Cancelled" }), 0)
    assert.strictEqual(yield* bulk({ instanceIds, status: "Failed" }), 1)
    yield* expectInstances("a", "b")
    yield* fails(deleteInstanceBulk({ instanceIds, cursor: "x" }), /cursor/)
    assert.strictEqual(yield* bulk({ instanceIds, status: "Completed" }), 2)
  }),

  bulk_deletion_by_status_continues_at_its_cursor: Effect.gen(function*() {
    const { deleteInstanceBulk } = yield* Admin
    for (const id of ["a", "b", "c"]) yield* done(id)
    yield* done("failed", undefined, { status: "Failed", output: "boom" })
    yield* create("running")
    const filter = { status: "Completed", limit: 2 } as const
    const first = yield* deleteInstanceBulk(filter)
    assert.deepInclude(first, { instancesDeleted: 2, failed: [] })
    assert.isNotNull(first.next)
    const second = yield* deleteInstanceBulk({ ...filter, cursor: first.next })
    assert.deepInclude(second, { instancesDeleted: 1, next: null })
    assert.sameMembers([...yield* listed()], ["failed", "running"])
    yield* fails(deleteInstanceBulk({ cursor: "x" }), /cursor/)
  })
})
