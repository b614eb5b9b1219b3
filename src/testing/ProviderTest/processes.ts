/**
 * The processes that run work: what is known of them, and until when.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { TagFilter } from "../../model/Instance.ts"
import { Admin } from "../../provider/Admin.ts"
import type { ProcessInfo } from "../../provider/AdminDriver.ts"
import {
  announce,
  claimActivity,
  duties,
  elapse,
  enqueueActivity,
  enqueueStart,
  listedProcesses as listed,
  listProcesses,
  poke,
  topic
} from "./harness.ts"

const tags: ReadonlyArray<TagFilter> = [
  { _tag: "DefaultOnly" },
  { _tag: "Any" },
  { _tag: "None" },
  { _tag: "Tags", tags: ["gpu", "eu"] },
  { _tag: "DefaultAnd", tags: ["gpu"] }
]

export const processes = topic("processes", {
  process_is_listed_until_it_closes: Effect.gen(function*() {
    assert.deepStrictEqual(yield* listProcesses, [])
    const process = duties("a", { orchestrations: ["Order@1.0.0", "Order@1.1.0"], activities: ["Charge"] })
    const close = yield* announce(process)
    const [info] = yield* listed(1)
    assert.deepInclude(info, { ...process, isAlive: true })
    assert.match(info!.id, /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/)
    assert.isAtLeast(info!.seenMs, info!.sinceMs)
    yield* close
    assert.deepStrictEqual(yield* listProcesses, [])
  }),

  processes_are_listed_in_the_order_of_their_start: Effect.gen(function*() {
    const closes = [yield* announce(duties("b"))]
    yield* listed(1)
    yield* elapse(20)
    closes.push(yield* announce(duties("a", { orchestrationSlots: null, activitySlots: null })))
    const found = yield* listed(2)
    assert.deepStrictEqual(found.map(({ build }) => build), ["b", "a"])
    assert.deepInclude(found[1], { orchestrationSlots: null, activitySlots: null })
    yield* closes[0]!
    assert.deepStrictEqual((yield* listProcesses).map(({ build }) => build), ["a"])
    yield* closes[1]!
  }),

  process_says_how_many_slots_are_in_use: Effect.gen(function*() {
    const close = yield* announce(duties("a", { activitySlots: null }), { orchestrations: 3, activities: 21 })
    const [{ seenMs, sinceMs, slotsInUse }] = (yield* listed(1)) as [ProcessInfo]
    assert.deepInclude(slotsInUse, { orchestrations: 3, activities: 21 })
    assert.isAtLeast(slotsInUse!.atMs, sinceMs)
    assert.isAtMost(slotsInUse!.atMs, seenMs)
    yield* close
  }),

  process_says_which_tags_it_takes: Effect.gen(function*() {
    for (const [i, filter] of tags.entries()) {
      const close = yield* announce(duties(String(i), { tags: filter }))
      assert.deepStrictEqual((yield* listed(1))[0]!.tags, filter)
      yield* close
    }
  }),

  work_is_unserved_without_a_process_for_its_version_or_tag: Effect.gen(function*() {
    const { findUnserved, getQueueLoads } = yield* Admin
    const unserved = Effect.map(
      findUnserved,
      (all) => all.map(({ kind, name, tag, version, waiting }) => [kind, name, version, tag, waiting])
    )
    yield* enqueueStart("one", { orchestration: "Booking", version: "1.0.0" })
    yield* enqueueStart("two", { orchestration: "Booking", version: "2.0.0" })
    yield* enqueueStart("any", { orchestration: "Order", version: null })
    yield* poke("unknown")
    yield* enqueueActivity("one", 1, { name: "Mail" })
    yield* enqueueActivity("one", 2, { name: "Mail", tag: "gpu" })
    assert.deepStrictEqual(yield* unserved, [
      ["orchestration", "Booking", "1.0.0", null, 1],
      ["orchestration", "Booking", "2.0.0", null, 1],
      ["orchestration", "Order", null, null, 1],
      ["activity", "Mail", null, null, 1],
      ["activity", "Mail", null, "gpu", 1]
    ])
    for (const { oldestAgeMs } of yield* findUnserved) assert.isAtLeast(oldestAgeMs!, 0)

    const closeOld = yield* announce(
      duties("old", { orchestrations: ["Booking@1.0.0", "Order@1.0.0"], activities: ["Mail"] })
    )
    yield* listed(1)
    assert.deepStrictEqual(yield* unserved, [
      ["orchestration", "Booking", "2.0.0", null, 1],
      ["activity", "Mail", null, "gpu", 1]
    ])
    const close = yield* announce(duties("new", {
      orchestrations: ["Booking@1.0.0", "Booking@2.0.0"],
      activities: ["Mail"],
      tags: { _tag: "Any" }
    }))
    yield* listed(2)
    assert.deepStrictEqual(yield* unserved, [])
    const { activities, orchestrations } = yield* getQueueLoads
    assert.deepStrictEqual(orchestrations.map(({ servedBy }) => servedBy), [2, 1, 1, null])
    assert.deepStrictEqual(activities.map(({ servedBy }) => servedBy), [2, 1])

    yield* close
    // Work that a process has claimed does not wait for one.
    yield* claimActivity(2, { tags: { _tag: "Tags", tags: ["gpu"] }, lockTimeout: "30 seconds" })
    assert.deepStrictEqual(yield* unserved, [["orchestration", "Booking", "2.0.0", null, 1]])
    yield* closeOld
  })
})
