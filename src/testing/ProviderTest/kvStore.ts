/**
 * Key-values of an instance: the changes of its running execution, on top of those of ended executions.
 */
import { assert } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Admin } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import type { ExecutionMetadata } from "../../provider/Provider.ts"
import {
  ack,
  childStartItem,
  claimInstance,
  complete,
  completed,
  continueAsNew,
  create,
  expectGone,
  fails,
  named,
  poke,
  send,
  started,
  topic,
  turn,
  valueCleared,
  valuesCleared,
  valueSet
} from "./harness.ts"
import type { EventInput } from "./harness.ts"

/** A turn of execution `executionId` that changes key-values. */
const change = (instance: string, executionId: number, ...events: ReadonlyArray<EventInput>) =>
  turn(instance, { executionId, events })

const get = (instance: string, key: string) =>
  Effect.flatMap(Provider, (provider) => provider.getKvValue(instance, key))

/** Reads the value by the one look of a wait that is over at once. */
const look = (instanceId: string, key: string) =>
  Effect.flatMap(Provider, (provider) =>
    provider.awaitProgress({
      instanceId,
      key,
      until: ({ value }) => Option.some(value),
      timeout: Duration.zero
    }))

/** Requires what readers see: each key with its value, null for a missing one. */
const reads = (instance: string, expected: Readonly<Record<string, string | null>>) =>
  Effect.forEach(
    Object.entries(expected),
    Effect.fnUntraced(function*([key, value]) {
      const expected = Option.fromNullOr(value)
      assert.deepStrictEqual(yield* get(instance, key), expected, `${instance}: ${key}`)
      assert.deepStrictEqual(yield* look(instance, key), { _tag: "Found", found: expected }, `${instance}: ${key}`)
    }),
    { discard: true }
  )

/** Requires that readers see exactly these. */
const readsAll = (instance: string, expected: Readonly<Record<string, string>>) =>
  Effect.flatMap(Provider, (provider) =>
    Effect.map(
      provider.getKvAllValues(instance),
      (values) => assert.deepStrictEqual(Object.fromEntries(values), expected)
    ))

/** Requires what the next turn receives; that turn stores nothing. */
const expectSnapshot = (instance: string, expected: Readonly<Record<string, string>>) =>
  Effect.gen(function*() {
    yield* poke(instance)
    const claimed = yield* claimInstance(instance)
    const entries = [...claimed.item.keyValues].map(([key, { value }]) => [key, value])
    assert.deepStrictEqual(Object.fromEntries(entries), expected)
    yield* ack(claimed)
  })

const keepLast = (instance: string, count: number) =>
  Effect.flatMap(Admin, (admin) => admin.pruneExecutions(instance, { keepLast: count }))

const expectExecutions = (instance: string, ...executionIds: ReadonlyArray<number>) =>
  Effect.flatMap(
    Admin,
    (admin) => Effect.map(admin.listExecutions(instance), (found) => assert.deepStrictEqual(found, executionIds))
  )

const remove = (instance: string, force: boolean) =>
  Effect.flatMap(Admin, (admin) => admin.deleteInstance(instance, { force }))

const expectSizes = (instance: string, keys: number, bytes: number) =>
  Effect.flatMap(Provider, (provider) =>
    Effect.map(provider.getInstanceStats(instance), (stats) => {
      const { kvTotalValueBytes, kvUserKeyCount } = Option.getOrThrow(stats)
      assert.deepStrictEqual([kvUserKeyCount, kvTotalValueBytes], [keys, bytes])
    }))

const ends = (status: ExecutionStatusThatEnds): ExecutionMetadata => named({ status, output: "done" })
type ExecutionStatusThatEnds = "Completed" | "Failed" | "ContinuedAsNew"

export const kvStore = topic("kv_store", {
  test_kv_set_and_get: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "counter", "42"))
    yield* reads("i", { counter: "42" })
  }),

  test_kv_overwrite: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "key", "old"))
    yield* reads("i", { key: "old" })
    yield* change("i", 1, valueSet(101, "key", "new"))
    yield* reads("i", { key: "new" })
  }),

  test_kv_clear_single: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "key", "value"))
    yield* reads("i", { key: "value" })
    yield* change("i", 1, valueCleared(101, "key"))
    yield* reads("i", { key: null })
  }),

  test_kv_clear_all: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "a", "1"), valueSet(101, "b", "2"))
    yield* reads("i", { a: "1", b: "2" })
    yield* change("i", 1, valuesCleared(102))
    yield* reads("i", { a: null, b: null })
    yield* readsAll("i", {})
  }),

  test_kv_get_nonexistent: Effect.gen(function*() {
    yield* create("i")
    yield* reads("i", { missing: null })
  }),

  test_kv_snapshot_in_fetch: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "x", "10"), valueSet(101, "y", "20"))
    yield* complete("i", 1)
    yield* expectSnapshot("i", { x: "10", y: "20" })
  }),

  test_kv_snapshot_after_clear_single: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "keep", "yes"), valueSet(101, "remove", "no"))
    yield* change("i", 1, valueCleared(102, "remove"))
    yield* complete("i", 1)
    yield* expectSnapshot("i", { keep: "yes" })
  }),

  test_kv_snapshot_after_clear_all: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "a", "1"), valueSet(101, "b", "2"))
    yield* change("i", 1, valuesCleared(102))
    yield* complete("i", 1)
    yield* expectSnapshot("i", {})
  }),

  test_kv_execution_id_tracking: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "shared", "exec1"))
    yield* continueAsNew("i", 2)
    yield* change("i", 2, valueSet(200, "shared", "exec2"))
    yield* keepLast("i", 1)
    yield* expectExecutions("i", 2)
    yield* reads("i", { shared: "exec2" })
  }),

  test_kv_cross_execution_overwrite: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "key", "v1"))
    yield* continueAsNew("i", 2)
    yield* reads("i", { key: "v1" })
    yield* change("i", 2, valueSet(200, "key", "v2"))
    yield* reads("i", { key: "v2" })
  }),

  test_kv_cross_execution_remove_readd: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "key", "exec1"))
    yield* continueAsNew("i", 2)
    yield* change("i", 2, valueCleared(200, "key"))
    yield* reads("i", { key: null })
    yield* continueAsNew("i", 3)
    yield* change("i", 3, valueSet(300, "key", "exec3"))
    yield* reads("i", { key: "exec3" })
  }),

  test_kv_prune_preserves_overwritten: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "survive", "v1"))
    yield* continueAsNew("i", 2)
    yield* change("i", 2, valueSet(200, "survive", "v2"))
    yield* keepLast("i", 1)
    yield* expectExecutions("i", 2)
    yield* reads("i", { survive: "v2" })
  }),

  test_kv_prune_preserves_all_keys: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "orphan", "from-1"))
    yield* continueAsNew("i", 2)
    yield* change("i", 2, valueSet(200, "keeper", "from-2"))
    yield* keepLast("i", 1)
    yield* expectExecutions("i", 2)
    yield* reads("i", { orphan: "from-1", keeper: "from-2" })
  }),

  test_kv_instance_isolation: Effect.gen(function*() {
    yield* create("a")
    yield* create("b")
    yield* change("a", 1, valueSet(100, "key", "of-a"))
    yield* change("b", 1, valueSet(100, "key", "of-b"))
    yield* reads("a", { key: "of-a" })
    yield* reads("b", { key: "of-b" })
  }),

  test_kv_delete_instance_cascades: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "key", "value"))
    yield* complete("i", 1)
    yield* reads("i", { key: "value" })
    yield* remove("i", false)
    yield* reads("i", { key: null })
  }),

  test_kv_clear_nonexistent_key: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueCleared(100, "never-set"))
    yield* reads("i", { "never-set": null })
  }),

  test_kv_get_unknown_instance: Effect.gen(function*() {
    yield* reads("unknown", { key: null })
    yield* readsAll("unknown", {})
  }),

  test_kv_set_after_clear: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "old_a", "1"), valueSet(101, "old_b", "2"))
    yield* change("i", 1, valuesCleared(102), valueSet(103, "new_x", "fresh"))
    yield* reads("i", { old_a: null, old_b: null, new_x: "fresh" })
    yield* readsAll("i", { new_x: "fresh" })
  }),

  test_kv_empty_value: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "blank", ""))
    yield* reads("i", { blank: "" })
  }),

  test_kv_large_value: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "large", "x".repeat(16_384)))
    yield* reads("i", { large: "x".repeat(16_384) })
  }),

  test_kv_special_chars_in_key: Effect.gen(function*() {
    const keys = ["key with spaces", "日本語キー", "dotted.key.name", "path/like/key", "emoji🎉key"]
    yield* create("i")
    yield* change("i", 1, ...keys.map((key, index) => valueSet(100 + index, key, `value ${index}`)))
    yield* reads("i", Object.fromEntries(keys.map((key, index) => [key, `value ${index}`])))
  }),

  test_kv_snapshot_empty: Effect.gen(function*() {
    yield* create("i")
    yield* expectSnapshot("i", {})
  }),

  test_kv_snapshot_cross_execution: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "A", "1"))
    yield* continueAsNew("i", 2)
    yield* change("i", 2, valueSet(200, "B", "2"))
    yield* expectSnapshot("i", { A: "1" })
  }),

  test_kv_prune_current_execution_protected: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "key", "value"))
    yield* keepLast("i", 1)
    yield* expectExecutions("i", 1)
    yield* reads("i", { key: "value" })
  }),

  test_kv_delete_instance_with_children: Effect.gen(function*() {
    yield* create("parent")
    yield* send(childStartItem("child", "parent"))
    const parentInstanceId = "parent"
    yield* ack(yield* claimInstance("child"), {
      executionId: 1,
      events: [started({ parentInstance: "parent", parentId: 1 })],
      metadata: named({ parentInstanceId })
    })
    yield* change("parent", 1, valueSet(100, "key", "of-parent"))
    yield* change("child", 1, valueSet(100, "key", "of-child"))
    yield* complete("child", 1)
    yield* complete("parent", 1)
    yield* reads("child", { key: "of-child" })
    yield* remove("parent", false)
    yield* reads("parent", { key: null })
    yield* reads("child", { key: null })
    yield* expectGone("parent", "child")
  }),

  test_kv_clear_isolation: Effect.gen(function*() {
    yield* create("a")
    yield* create("b")
    yield* change("a", 1, valueSet(100, "key", "of-a"))
    yield* change("b", 1, valueSet(100, "key", "of-b"))
    yield* change("a", 1, valuesCleared(101))
    yield* reads("a", { key: null })
    yield* reads("b", { key: "of-b" })
  }),

  test_kv_delta_snapshot_excludes_current_execution: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "counter", "1", 100))
    yield* reads("i", { counter: "1" })
    yield* expectSnapshot("i", {})
  }),

  test_kv_delta_snapshot_includes_completed_execution: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "counter", "5"))
    yield* continueAsNew("i", 2)
    yield* expectSnapshot("i", { counter: "5" })
  }),

  test_kv_delta_client_reads_merged: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "color", "red"), valueSet(101, "size", "large"))
    yield* complete("i", 1)
    yield* change("i", 2, started(), valueSet(200, "color", "blue"), valueSet(201, "shape", "circle"))
    yield* reads("i", { color: "blue", size: "large", shape: "circle" })
    yield* readsAll("i", { color: "blue", size: "large", shape: "circle" })
  }),

  test_kv_delta_tombstone_overrides_store: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "key", "value"))
    yield* complete("i", 1)
    yield* change("i", 2, started(), valueCleared(200, "key"))
    yield* reads("i", { key: null })
    yield* readsAll("i", {})
  }),

  test_kv_delta_clear_all_tombstones_store: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "a", "1"), valueSet(101, "b", "2"))
    yield* complete("i", 1)
    yield* change("i", 2, started(), valuesCleared(200), valueSet(201, "c", "3"))
    yield* reads("i", { a: null, b: null, c: "3" })
  }),

  test_kv_delta_merged_on_completion: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "key", "value"))
    yield* complete("i", 1)
    yield* reads("i", { key: "value" })
  }),

  test_kv_delta_merged_on_can: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "version", "1"), valueSet(101, "progress", "50%"))
    yield* change("i", 1, valueSet(102, "progress", "100%"))
    yield* continueAsNew("i", 2)
    yield* expectSnapshot("i", { version: "1", progress: "100%" })
  }),

  test_kv_delta_delete_instance_cascades: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "key", "value"))
    yield* reads("i", { key: "value" })
    yield* remove("i", true)
    yield* reads("i", { key: null })
  }),

  test_kv_delta_prune_untouched_key_survives: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "stale_config", "v1"))
    yield* continueAsNew("i", 2)
    yield* change("i", 2, valueSet(200, "other", "v2"))
    yield* continueAsNew("i", 3)
    yield* keepLast("i", 1)
    yield* expectExecutions("i", 3)
    yield* reads("i", { stale_config: "v1", other: "v2" })
    yield* expectSnapshot("i", { stale_config: "v1", other: "v2" })
  }),

  kv_tombstones_are_not_counted: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "a", "aaa"), valueSet(101, "b", "ünï"))
    yield* complete("i", 1)
    yield* expectSizes("i", 2, 8)
    yield* change("i", 1, valueCleared(200, "a"), valueCleared(201, "never"), valueSet(202, "b", "bb"))
    yield* expectSizes("i", 1, 2)
    yield* change("i", 1, valuesCleared(203))
    yield* expectSizes("i", 0, 0)
  }),

  kv_changes_apply_in_the_order_of_events: Effect.gen(function*() {
    yield* create("i")
    yield* change(
      "i",
      1,
      valueSet(100, "a", "1"),
      valueCleared(101, "a"),
      valueSet(102, "b", "1"),
      valuesCleared(103),
      valueSet(104, "b", "2"),
      valueSet(105, "b", "3"),
      valueCleared(106, "c"),
      valueSet(107, "c", "4")
    )
    yield* readsAll("i", { b: "3", c: "4" })
  }),

  kv_changes_of_the_last_turn_are_merged: Effect.gen(function*() {
    for (const status of ["Completed", "Failed", "ContinuedAsNew"] as const) {
      yield* create(status)
      yield* change(status, 1, valueSet(100, "kept", "1"), valueSet(101, "removed", "1"))
      yield* turn(status, {
        executionId: 1,
        events: [valueSet(102, "last", "2"), valueCleared(103, "removed"), completed(104)],
        metadata: ends(status)
      })
      yield* expectSnapshot(status, { kept: "1", last: "2" })
    }
  }),

  kv_snapshot_keeps_the_time_of_the_event: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "timed", "a", 1_700_000_000_123), valueSet(101, "untimed", "b", 0))
    yield* complete("i", 1)
    yield* poke("i")
    const { item } = yield* claimInstance("i")
    assert.deepStrictEqual(item.keyValues.get("timed"), { value: "a", lastUpdatedAtMs: 1_700_000_000_123 })
    assert.deepStrictEqual(item.keyValues.get("untimed"), { value: "b", lastUpdatedAtMs: 0 })
  }),

  kv_changes_of_a_refused_ack_are_not_stored: Effect.gen(function*() {
    yield* create("i")
    yield* change("i", 1, valueSet(100, "key", "kept"))
    yield* fails(change("i", 1, valueSet(101, "key", "refused"), valueSet(100, "other", "refused")))
    yield* readsAll("i", { key: "kept" })
  })
})
