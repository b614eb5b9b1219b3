/**
 * Pruning deletes old executions; the current one and running ones remain.
 */
import { assert } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { Admin } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import { continueAsNew, create, elapse, fails, multi, named, started, topic, turn } from "./harness.ts"

const executions = (instance: string) => Effect.flatMap(Admin, (admin) => admin.listExecutions(instance))

export const prune = topic("prune", {
  test_prune_options_combinations: Effect.gen(function*() {
    const admin = yield* Admin
    yield* multi("a", 4)
    assert.deepStrictEqual(yield* executions("a"), [1, 2, 3, 4])
    assert.deepStrictEqual(yield* admin.pruneExecutions("a", { keepLast: 2 }), {
      instancesProcessed: 1,
      executionsDeleted: 2,
      eventsDeleted: 2
    })
    assert.deepStrictEqual(yield* executions("a"), [3, 4])
    yield* multi("b", 3)
    yield* admin.pruneExecutions("b", {})
    assert.deepStrictEqual(yield* executions("b"), [3])
  }),

  test_prune_safety: Effect.gen(function*() {
    const admin = yield* Admin
    yield* multi("i", 3)
    yield* admin.pruneExecutions("i", { keepLast: 0 })
    assert.strictEqual((yield* admin.getInstanceInfo("i")).executionId, 3)
    yield* fails(admin.pruneExecutions("unknown", {}), /not found/)
    for (const keepLast of [undefined, 0, 1]) {
      const instance = `keep-${keepLast}`
      yield* multi(instance, 4)
      const { executionsDeleted } = yield* admin.pruneExecutions(instance, { keepLast })
      assert.isAtLeast(executionsDeleted, 3)
      assert.deepStrictEqual(yield* executions(instance), [4])
    }
  }),

  test_prune_bulk: Effect.gen(function*() {
    const admin = yield* Admin
    for (const instance of ["i0", "i1", "i2"]) yield* multi(instance, 4)
    const pruned = yield* admin.pruneExecutionsBulk({ instanceIds: ["i0", "i1"] }, { keepLast: 1 })
    assert.strictEqual(pruned.instancesProcessed, 2)
    assert.isAtLeast(pruned.executionsDeleted, 4)
    assert.deepStrictEqual([yield* executions("i0"), yield* executions("i1")], [[4], [4]])
    assert.lengthOf(yield* executions("i2"), 4)
  }),

  test_prune_bulk_includes_running_instances: Effect.gen(function*() {
    const admin = yield* Admin
    yield* multi("i", 3, { status: "Running", orchestrationName: "LongRunning" })
    const pruned = yield* admin.pruneExecutionsBulk({ instanceIds: ["i"] }, { keepLast: 1 })
    assert.deepInclude(pruned, { instancesProcessed: 1, executionsDeleted: 2 })
    assert.deepStrictEqual(yield* executions("i"), [3])
    assert.strictEqual((yield* admin.getInstanceInfo("i")).status, "Running")
  }),

  // -- ours ------------------------------------------------------------------------------------

  prune_by_time: Effect.gen(function*() {
    const admin = yield* Admin
    yield* create("i")
    yield* continueAsNew("i", 2)
    yield* elapse(20)
    const between = yield* Clock.currentTimeMillis
    yield* elapse(20)
    yield* continueAsNew("i", 3)
    // Both conditions must hold.
    yield* admin.pruneExecutions("i", { keepLast: 3, completedBeforeMs: between })
    assert.deepStrictEqual(yield* executions("i"), [1, 2, 3])
    yield* admin.pruneExecutions("i", { completedBeforeMs: between })
    assert.deepStrictEqual(yield* executions("i"), [2, 3])
    assert.deepStrictEqual(yield* (yield* Provider).readWithExecution("i", 1), [])
    assert.lengthOf(yield* (yield* Provider).readWithExecution("i", 2), 1)
  }),

  the_end_itself_is_not_before_it: Effect.gen(function*() {
    const admin = yield* Admin
    yield* multi("i", 2)
    const { completedAtMs } = yield* admin.getExecutionInfo("i", 1)
    assert(completedAtMs !== null)
    yield* admin.pruneExecutions("i", { completedBeforeMs: completedAtMs })
    assert.deepStrictEqual(yield* executions("i"), [1, 2])
    yield* admin.pruneExecutions("i", { completedBeforeMs: completedAtMs + 1 })
    assert.deepStrictEqual(yield* executions("i"), [2])
  }),

  running_executions_stay: Effect.gen(function*() {
    // A turn may have begun the next execution without ending the one before.
    yield* create("i")
    yield* turn("i", { executionId: 2, events: [started()], metadata: named() })
    yield* (yield* Admin).pruneExecutions("i", {})
    assert.deepStrictEqual(yield* executions("i"), [1, 2])
  }),

  prune_of_nothing: Effect.gen(function*() {
    const admin = yield* Admin
    yield* multi("i", 1)
    const nothing = { executionsDeleted: 0, eventsDeleted: 0 }
    assert.deepStrictEqual(yield* admin.pruneExecutions("i", {}), { instancesProcessed: 1, ...nothing })
    assert.deepStrictEqual(yield* admin.pruneExecutionsBulk({ instanceIds: [] }, {}), {
      instancesProcessed: 0,
      ...nothing
    })
    yield* fails(admin.pruneExecutions("i", { keepLast: -1 }))
  })
})
