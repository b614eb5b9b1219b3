/**
 * Attributes of instances: given by a start, changed by turns, and found by lists and counts.
 */
import { assert } from "@effect/vitest"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as ErrorDetails from "../../model/ErrorDetails.ts"
import * as attributesModel from "../../model/shared/attributes.ts"
import type { EncodedAttributes, EncodedChanges } from "../../model/shared/attributes.ts"
import { Admin } from "../../provider/Admin.ts"
import type { InstanceSearch } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import {
  ack,
  activityItem,
  activityScheduled,
  childStartItem,
  claimActivity,
  claimInstance,
  continueAsNewItem,
  create,
  elapse,
  enqueueStart,
  fails,
  listed,
  named,
  poke,
  send,
  started,
  startItem,
  topic,
  turn,
  valuesCleared,
  valueSet,
  version
} from "./harness.ts"
import type { EventInput } from "./harness.ts"
import { advances, begins, completion } from "./unclaimed.ts"

const due = Date.parse("2026-11-27T08:00:00.123Z")

const set = (eventId: number, changes: EncodedChanges): EventInput =>
  valueSet(eventId, attributesModel.recordKey, attributesModel.writeChanges(changes))

/** Starts an instance, whose first turn has not run. */
const start = (instance: string, attributes: EncodedAttributes) =>
  Effect.flatMap(Provider, (provider) =>
    provider.startOrchestration({
      start: startItem(instance, { attributes }),
      pinnedVersion: version("1.0.0"),
      delay: Option.none()
    }))

/** An instance with these attributes, whose first turn has run. */
const having = (instance: string, attributes: EncodedAttributes) =>
  Effect.gen(function*() {
    yield* start(instance, attributes)
    yield* ack(yield* claimInstance(instance), {
      executionId: 1,
      events: [started({ attributes })],
      metadata: named()
    })
    yield* elapse(2)
  })

const attributesOf = (instance: string) =>
  Effect.flatMap(Admin, (admin) => Effect.map(admin.getInstanceInfo(instance), (info) => info.attributes))

const expect = Effect.fnUntraced(function*(instance: string, expected: object) {
  assert.deepStrictEqual(yield* attributesOf(instance), expected)
})

const found = (attributes: InstanceSearch["attributes"], search: InstanceSearch = {}) =>
  listed({ ...search, attributes })

export const attributes = topic("attributes", {
  a_start_gives_them_before_its_first_turn: Effect.gen(function*() {
    yield* start("i", { amount: 12.5, customer: "c1", due: { timeMs: due } })
    const expected = { amount: 12.5, customer: "c1", due: DateTime.makeUnsafe(due) }
    yield* expect("i", expected)
    assert.deepStrictEqual(yield* found({ customer: "c1" }), ["i"])
    yield* ack(yield* claimInstance("i"), {
      executionId: 1,
      events: [started({ attributes: { amount: 12.5, customer: "c1", due: { timeMs: due } } })],
      metadata: named()
    })
    yield* expect("i", expected)
    const { instances } = yield* (yield* Admin).list()
    assert.deepStrictEqual(instances.map((one) => one.attributes), [expected])
  }),

  a_refused_start_changes_nothing: Effect.gen(function*() {
    yield* having("i", { customer: "c1" })
    assert.strictEqual(yield* start("i", { customer: "c2", more: 1 }), "AlreadyExists")
    yield* expect("i", { customer: "c1" })
    assert.deepStrictEqual(yield* found({ customer: "c2" }), [])
  }),

  the_first_turn_of_a_message_gives_them: Effect.gen(function*() {
    yield* enqueueStart("i", { attributes: { customer: "c1" } })
    assert.deepStrictEqual(yield* found({ customer: "c1" }), [])
    yield* ack(yield* claimInstance("i"), {
      executionId: 1,
      events: [started({ attributes: { customer: "c1" } }), set(2, { customer: "c2" })],
      metadata: named()
    })
    yield* expect("i", { customer: "c2" })
  }),

  a_first_turn_that_is_stored_with_its_start_changes_them: Effect.gen(function*() {
    yield* begins("i", {
      events: [started({ attributes: { customer: "c1", kind: "a" } }), set(2, { kind: null, size: 3 })],
      metadata: named()
    })
    yield* expect("i", { customer: "c1", size: 3 })
  }),

  children_begin_with_theirs: Effect.gen(function*() {
    yield* create("parent")
    yield* turn("parent", {
      events: [],
      items: [
        childStartItem("child", "parent", { attributes: { customer: "c1" } }),
        // The id is taken by the one before.
        childStartItem("child", "parent", { attributes: { customer: "c2" } }),
        startItem("parent", { attributes: { customer: "c3" } })
      ],
      pinsStartsTo: "1.0.0"
    })
    yield* expect("child", { customer: "c1" })
    yield* expect("parent", {})
    assert.deepStrictEqual(yield* found({ customer: "c1" }, { parentId: "parent" }), ["child"])
    assert.deepStrictEqual(yield* found({ customer: "c2" }), [])
  }),

  turns_replace_and_remove_them: Effect.gen(function*() {
    yield* having("i", { amount: 1, customer: "c1", due: { timeMs: due } })
    yield* having("other", { customer: "c1" })
    yield* turn("i", {
      events: [set(2, { customer: 5 }), set(3, { customer: "c2", more: "x" }), set(4, { due: null })]
    })
    yield* expect("i", { amount: 1, customer: "c2", more: "x" })
    assert.deepStrictEqual(yield* found({ customer: "c1" }), ["other"])
    assert.deepStrictEqual(yield* found({ customer: "c2" }), ["i"])
    assert.deepStrictEqual(yield* found({ customer: 5 }), [])
    yield* turn("i", { events: [set(5, { unknown: null })] })
    yield* expect("i", { amount: 1, customer: "c2", more: "x" })
  }),

  an_optimistic_turn_changes_them: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* ack(yield* claimInstance("i"), {
      executionId: 1,
      events: [started(), activityScheduled(2)],
      workers: [activityItem("i", 2)],
      metadata: named()
    })
    const work = yield* claimActivity(2)
    yield* advances("i", [work], { events: [completion(3, 2), set(4, { customer: "c1" })] })
    yield* expect("i", { customer: "c1" })
  }),

  they_are_no_values: Effect.gen(function*() {
    const provider = yield* Provider
    yield* having("i", { customer: "c1" })
    yield* turn("i", { events: [valueSet(2, "k", "v"), set(3, { size: 1 })] })
    assert.deepStrictEqual([...yield* provider.getKvAllValues("i")], [["k", "v"]])
    yield* turn("i", { events: [valuesCleared(4)] })
    assert.deepStrictEqual([...yield* provider.getKvAllValues("i")], [])
    yield* expect("i", { customer: "c1", size: 1 })
  }),

  the_next_execution_has_them: Effect.gen(function*() {
    yield* having("i", { customer: "c1" })
    yield* turn("i", { events: [set(2, { customer: "c2" })], metadata: named({ status: "ContinuedAsNew" }) })
    yield* expect("i", { customer: "c2" })
    yield* send(continueAsNewItem("i", { attributes: { customer: "c2" } }))
    yield* ack(yield* claimInstance("i"), {
      executionId: 2,
      events: [started({ attributes: { customer: "c2" } }), set(2, { size: 1 })],
      metadata: named()
    })
    yield* expect("i", { customer: "c2", size: 1 })
    assert.deepStrictEqual(yield* found({ customer: "c2" }), ["i"])
  }),

  a_deletion_removes_them: Effect.gen(function*() {
    const admin = yield* Admin
    yield* having("i", { customer: "c1" })
    yield* having("other", { customer: "c1" })
    yield* admin.deleteInstance("i", { force: true })
    assert.deepStrictEqual(yield* found({ customer: "c1" }), ["other"])
    yield* enqueueStart("i")
    yield* ack(yield* claimInstance("i"), { executionId: 1, events: [started()], metadata: named() })
    yield* expect("i", {})
  }),

  a_retry_brings_back_those_before_the_cut: Effect.gen(function*() {
    const { retry } = yield* Admin
    yield* having("i", { customer: "c1", kind: "a" })
    yield* turn("i", { executionId: 1, events: [set(2, { customer: "c2" }), activityScheduled(3)] })
    const details = ErrorDetails.application("ActivityFailed", "\"no\"")
    yield* turn("i", {
      executionId: 1,
      events: [
        { _tag: "ActivityFailed", eventId: 4, sourceEventId: 3, details },
        set(5, { customer: "c3", kind: null }),
        { _tag: "OrchestrationFailed", eventId: 6, details }
      ],
      metadata: named({ status: "Failed", output: "no" })
    })
    yield* retry("i")
    yield* expect("i", { customer: "c2", kind: "a" })
    assert.deepStrictEqual(yield* found({ customer: "c2" }), ["i"])
  }),

  a_fork_has_those_of_its_event: Effect.gen(function*() {
    const { fork } = yield* Admin
    yield* having("i", { customer: "c1", due: { timeMs: due } })
    yield* turn("i", {
      executionId: 1,
      events: [set(2, { customer: "c2" }), activityScheduled(3), set(4, { late: 1 })]
    })
    yield* fork("i", { atEvent: 3, newId: "f" })
    yield* expect("f", { customer: "c2", due: DateTime.makeUnsafe(due) })
    yield* expect("i", { customer: "c2", due: DateTime.makeUnsafe(due), late: 1 })
    assert.deepStrictEqual(yield* found({ customer: "c2" }), ["f", "i"])
  }),

  lists_find_values_and_ranges: Effect.gen(function*() {
    yield* having("a", { amount: 10, customer: "c1", due: { timeMs: due } })
    yield* having("b", { amount: 20, customer: "c1", due: { timeMs: due + 1 } })
    yield* having("c", { amount: -0.5, customer: "C1" })
    yield* having("d", { amount: "10", due: "2026-11-27T08:00:00.123Z" })
    yield* create("none")
    assert.deepStrictEqual(yield* found({ customer: "c1" }), ["b", "a"])
    assert.deepStrictEqual(yield* found({ customer: "c1" }, { orderBy: "oldest" }), ["a", "b"])
    assert.deepStrictEqual(yield* found({ customer: "c1" }, { orderBy: "id" }), ["a", "b"])
    assert.deepStrictEqual(yield* found({ customer: "c" }), [])
    assert.deepStrictEqual(yield* found({ amount: 10 }), ["a"])
    assert.deepStrictEqual(yield* found({ amount: "10" }), ["d"])
    assert.deepStrictEqual(yield* found({ amount: { from: 10 } }), ["b", "a"])
    assert.deepStrictEqual(yield* found({ amount: { from: 10, below: 20 } }), ["a"])
    assert.deepStrictEqual(yield* found({ amount: { below: 20 } }, { orderBy: "oldest" }), ["a", "c"])
    assert.deepStrictEqual(yield* found({ amount: { below: 20 } }, { orderBy: "id" }), ["a", "c"])
    assert.deepStrictEqual(yield* found({ due: new Date(due) }), ["a"])
    assert.deepStrictEqual(yield* found({ due: { below: new Date(due + 1) } }), ["a"])
    assert.deepStrictEqual(yield* found({ due: { from: DateTime.makeUnsafe(due + 1) } }), ["b"])
    assert.deepStrictEqual(yield* found({ amount: { from: 0 }, customer: "c1", due: new Date(due + 1) }), ["b"])
    assert.deepStrictEqual(yield* found({ amount: { from: 20 }, due: { below: new Date(due + 1) } }), [])
    assert.deepStrictEqual(yield* found({ unknown: "c1" }), [])
    assert.deepStrictEqual(yield* found({}), ["none", "d", "c", "b", "a"])
    assert.deepStrictEqual(yield* found({ customer: "c1" }, { name: "Other" }), [])
    assert.deepStrictEqual(yield* found({ amount: { from: 10 } }, { name: "TestOrch", status: "Running" }), ["b", "a"])
    assert.deepStrictEqual(yield* found({ customer: "c1" }, { status: "Completed" }), [])
  }),

  the_earliest_and_the_latest_time_are_exact: Effect.gen(function*() {
    const times = ["0001-01-01T00:00:00.000Z", "1969-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"].map((text) =>
      new Date(text)
    )
    for (const [index, time] of times.entries()) yield* having(`i${index}`, { at: { timeMs: time.getTime() } })
    for (const [index, time] of times.entries()) {
      yield* expect(`i${index}`, { at: DateTime.makeUnsafe(time) })
      assert.deepStrictEqual(yield* found({ at: time }), [`i${index}`])
    }
    assert.deepStrictEqual(yield* found({ at: { from: times[1]! } }), ["i2", "i1"])
  }),

  lists_by_attribute_have_pages: Effect.gen(function*() {
    const admin = yield* Admin
    for (let index = 0; index < 6; index++) {
      yield* having(`i${index}`, { customer: `c${index % 2}`, size: index })
    }
    const conditions = [{ customer: "c0" }, { size: { from: 1, below: 5 } }, { customer: "c1", size: { from: 2 } }]
    const expected = [["i4", "i2", "i0"], ["i4", "i3", "i2", "i1"], ["i5", "i3"]]
    for (const orderBy of ["newest", "oldest", "id"] as const) {
      for (const [index, attributes] of conditions.entries()) {
        const ids: Array<string> = []
        let cursor: string | undefined
        do {
          const page = yield* admin.list({ attributes, orderBy, limit: 1, cursor })
          ids.push(...page.instances.map(({ instanceId }) => instanceId))
          cursor = page.next ?? undefined
        } while (cursor !== undefined)
        assert.deepStrictEqual(ids, orderBy === "newest" ? expected[index]! : expected[index]!.toReversed(), orderBy)
      }
    }
  }),

  counts_by_attribute: Effect.gen(function*() {
    const { count } = yield* Admin
    yield* having("a", { customer: "c1", size: 1 })
    yield* having("b", { customer: "c1", size: 2 })
    yield* having("c", { customer: "c2", size: 3 })
    yield* turn("b", { events: [], metadata: { status: "Completed", output: "done" } })
    const numbers = (options: Parameters<typeof count>[0]) =>
      Effect.map(count(options), (counts) => counts.map(({ instances, status }) => [status, instances]))
    assert.deepStrictEqual(yield* numbers({ attributes: { customer: "c1" } }), [["Completed", 1], ["Running", 1]])
    assert.deepStrictEqual(yield* numbers({ attributes: { size: { from: 2 } }, status: "Running" }), [["Running", 1]])
    assert.deepStrictEqual(yield* numbers({ attributes: { customer: "c1", size: 2 } }), [["Completed", 1]])
    assert.deepStrictEqual(yield* numbers({ attributes: { customer: "c1" }, name: "Other" }), [])
    assert.deepStrictEqual(
      (yield* count({ attributes: { customer: "c2" }, byVersion: true })).map((one) => one.orchestrationVersion),
      ["1.0.0"]
    )
  }),

  conditions_that_nothing_can_meet_are_refused: Effect.gen(function*() {
    const { count, list } = yield* Admin
    const bad: ReadonlyArray<readonly [attributes: any, problem: RegExp]> = [
      [{ "1st": 1 }, /begin with a letter/],
      [{ [`a${"b".repeat(64)}`]: 1 }, /1 to 64 of/],
      [{ amount: NaN }, /give a finite one/],
      [{ amount: { from: 1, below: new Date() } }, /one of numbers or one of times/],
      [{ amount: { from: "a" } }, /one of numbers or one of times/],
      [{ amount: {} }, /needs from or below/],
      [{ amount: null }, /must be a text, a number/],
      [{ customer: "a\0b" }, /NUL/],
      [{ customer: "x".repeat(257) }, /257 characters/],
      [{ due: new Date(NaN) }, /years 1 to 9999/]
    ]
    for (const [attributes, problem] of bad) {
      yield* fails(list({ attributes }), problem)
      yield* fails(count({ attributes }), problem)
    }
  }),

  a_turn_without_any_leaves_them: Effect.gen(function*() {
    yield* having("i", { customer: "c1" })
    yield* turn("i", { events: [valueSet(2, "k", "v")] })
    yield* poke("i")
    yield* ack(yield* claimInstance("i"), { events: [] })
    yield* expect("i", { customer: "c1" })
  })
})
