/**
 * Which activities a worker claims, by their tags.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { TagFilter } from "../../model/Instance.ts"
import {
  abandonWork,
  ack,
  ackWork,
  activityItem,
  claimActivity,
  claimInstance,
  claimWork,
  enqueueActivity,
  enqueueStart,
  expectNoWork,
  started,
  topic
} from "./harness.ts"

const defaultOnly: TagFilter = { _tag: "DefaultOnly" }
const any: TagFilter = { _tag: "Any" }
const only = (...tags: ReadonlyArray<string>): TagFilter => ({ _tag: "Tags", tags })
const defaultAnd = (...tags: ReadonlyArray<string>): TagFilter => ({ _tag: "DefaultAnd", tags })

/** Enqueues activities 1, 2, … with these tags. */
const enqueue = (...tags: ReadonlyArray<string | null>) =>
  Effect.forEach(
    tags,
    (tag, index) => enqueueActivity("i", index + 1, tag === null ? {} : { tag }),
    { discard: true }
  )

const options = (tags: TagFilter) => ({ lockTimeout: "5 seconds", tags }) as const

/** Claims exactly these activities, in this order; no other activity matches the filter. */
const takes = (tags: TagFilter, ...ids: ReadonlyArray<number>) =>
  Effect.andThen(
    Effect.forEach(ids, (id) => claimActivity(id, options(tags)), { discard: true }),
    expectNoWork(options(tags))
  )

export const tagFiltering = topic("tag_filtering", {
  test_default_only_fetches_untagged: Effect.gen(function*() {
    yield* enqueue(null, "gpu", null)
    yield* takes(defaultOnly, 1, 3)
  }),

  test_tags_fetches_only_matching: Effect.gen(function*() {
    yield* enqueue(null, "gpu", "cpu", "gpu")
    yield* takes(only("gpu"), 2, 4)
  }),

  test_default_and_fetches_untagged_and_matching: Effect.gen(function*() {
    yield* enqueue(null, "gpu", "cpu")
    yield* takes(defaultAnd("gpu"), 1, 2)
  }),

  test_none_filter_returns_nothing: Effect.gen(function*() {
    yield* enqueue(null, "gpu")
    yield* takes({ _tag: "None" })
  }),

  test_multi_tag_filter: Effect.gen(function*() {
    yield* enqueue("gpu", "tpu", "cpu", null)
    yield* takes(only("gpu", "tpu"), 1, 2)
  }),

  test_tag_round_trip_preservation: Effect.gen(function*() {
    yield* enqueueActivity("i", 1, { name: "Render", tag: "gpu" })
    const { item } = yield* claimWork(options(only("gpu")))
    assert.strictEqual(item.tag, "gpu")
    assert.strictEqual(item.name, "Render")
  }),

  test_any_filter_fetches_everything: Effect.gen(function*() {
    yield* enqueue(null, "gpu", "cpu")
    yield* takes(any, 1, 2, 3)
  }),

  test_tag_survives_abandon_and_refetch: Effect.gen(function*() {
    yield* enqueue("gpu", null)
    const first = yield* claimActivity(1, options(only("gpu")))
    yield* abandonWork(first.lockToken)
    const second = yield* claimActivity(1, options(only("gpu")))
    assert.strictEqual(second.item.tag, "gpu")
    assert.isAtLeast(second.attemptCount, 2)
    assert.notStrictEqual(second.lockToken, first.lockToken)
    yield* claimActivity(2, options(defaultOnly))
  }),

  test_multi_runtime_tag_isolation: Effect.gen(function*() {
    yield* enqueue(null, "gpu", "cpu", "fpga", "gpu")
    yield* takes(defaultOnly, 1)
    const taken = [yield* claimWork({ tags: only("gpu", "cpu") }), yield* claimWork({ tags: only("gpu", "cpu") })]
    assert.deepStrictEqual(taken.map(({ item }) => item.id), [2, 3])
    yield* takes(only("cpu", "fpga"), 4)
    yield* takes(any, 5)
  }),

  test_tag_preserved_through_ack_orchestration_item: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* ack(yield* claimInstance("i"), {
      executionId: 1,
      events: [started()],
      workers: [
        activityItem("i", 10, { name: "GpuWork", tag: "gpu" }),
        activityItem("i", 11, { name: "CpuWork" })
      ]
    })
    const cpu = yield* claimActivity(11, options(defaultOnly))
    assert.strictEqual(cpu.item.name, "CpuWork")
    assert.isUndefined(cpu.item.tag)
    yield* ackWork(cpu.lockToken)
    yield* expectNoWork(options(defaultOnly))
    const gpu = yield* claimActivity(10, options(only("gpu")))
    assert.strictEqual(gpu.item.name, "GpuWork")
    assert.strictEqual(gpu.item.tag, "gpu")
  }),

  tags_are_compared_exactly: Effect.gen(function*() {
    yield* enqueue("gpu", "GPU", "", "gpu ")
    yield* takes(only("gpu"), 1)
    yield* takes(defaultOnly)
    yield* takes(only(""), 3)
    yield* takes(any, 2, 4)
  }),

  tagged_backlog_does_not_hide_work_behind_it: Effect.gen(function*() {
    yield* enqueue(...Array.from({ length: 40 }, () => "gpu"), null)
    yield* takes(defaultOnly, 41)
  })
})
