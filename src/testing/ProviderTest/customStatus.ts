/**
 * The custom status of an instance, and its version, by which a waiting client sees that it changed.
 */
import { assert } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Provider } from "../../provider/Provider.ts"
import { continueAsNew, create, customStatus as updated, done, fails, topic, turn } from "./harness.ts"
import type { EventInput } from "./harness.ts"

const store = (...events: ReadonlyArray<EventInput>) => turn("i", { executionId: 1, events })

const read = (instance: string, lastSeenVersion: number) =>
  Effect.flatMap(Provider, (provider) => provider.getCustomStatus(instance, lastSeenVersion))

/** Reads the status by the one look of a wait that is over at once. */
const look = (instanceId: string, lastSeenVersion: number) =>
  Effect.flatMap(Provider, (provider) =>
    provider.awaitProgress({
      instanceId,
      until: ({ status, statusVersion: version }) =>
        version > lastSeenVersion ? Option.some({ status, version }) : Option.none(),
      timeout: Duration.zero
    }))

const expectStatus = Effect.fnUntraced(function*(status: string | null, version: number, instance = "i") {
  const expected = { status: Option.fromNullOr(status), version }
  assert.deepStrictEqual(yield* read(instance, 0), Option.some(expected))
  assert.deepStrictEqual(yield* look(instance, 0), { _tag: "Found", found: expected })
})

const expectNothing = Effect.fnUntraced(function*(instance: string, lastSeenVersion: number) {
  assert.deepStrictEqual(yield* read(instance, lastSeenVersion), Option.none())
  assert.deepStrictEqual(yield* look(instance, lastSeenVersion), { _tag: "TimedOut" })
})

export const customStatus = topic("custom_status", {
  test_custom_status_set: Effect.gen(function*() {
    yield* create("i")
    yield* store(updated(100, "progress"))
    yield* expectStatus("progress", 1)
  }),

  test_custom_status_clear: Effect.gen(function*() {
    yield* create("i")
    yield* store(updated(100, "temp"))
    yield* store(updated(101, null))
    yield* expectStatus(null, 2)
  }),

  test_custom_status_none_preserves: Effect.gen(function*() {
    yield* create("i")
    yield* store(updated(100, "keep-me"))
    yield* store()
    yield* expectStatus("keep-me", 1)
  }),

  test_custom_status_version_increments: Effect.gen(function*() {
    yield* create("i")
    yield* store(updated(100, "a"))
    yield* expectStatus("a", 1)
    yield* store(updated(101, "b"))
    yield* expectStatus("b", 2)
    yield* store(updated(102, null))
    yield* expectStatus(null, 3)
  }),

  test_custom_status_polling_no_change: Effect.gen(function*() {
    yield* create("i")
    yield* store(updated(100, "a"))
    yield* expectNothing("i", 1)
    yield* expectStatus("a", 1)
  }),

  test_custom_status_nonexistent_instance: expectNothing("missing", 0),

  test_custom_status_default_on_new_instance: Effect.gen(function*() {
    yield* create("i")
    yield* expectNothing("i", 0)
  }),

  custom_status_several_events_in_one_ack: Effect.gen(function*() {
    yield* create("i")
    yield* store(updated(100, "first"), updated(101, null), updated(102, "last"))
    yield* expectStatus("last", 1)
    yield* store(updated(103, "again"), updated(104, null))
    yield* expectStatus(null, 2)
  }),

  custom_status_empty_text_is_a_status: Effect.gen(function*() {
    yield* create("i")
    yield* store(updated(100, ""))
    yield* expectStatus("", 1)
  }),

  custom_status_that_will_not_come_ends_a_wait: Effect.gen(function*() {
    yield* create("i")
    yield* store(updated(100, "last"))
    yield* done("ended")
    assert.deepStrictEqual(yield* look("ended", 0), { _tag: "Ended" })
    yield* expectStatus("last", 1)
  }),

  custom_status_belongs_to_one_instance: Effect.gen(function*() {
    yield* create("i")
    yield* create("other")
    yield* store(updated(100, "mine"))
    yield* expectStatus("mine", 1)
    yield* expectNothing("other", 0)
  }),

  custom_status_survives_continue_as_new: Effect.gen(function*() {
    yield* create("i")
    yield* store(updated(100, "kept"))
    yield* continueAsNew("i", 2)
    yield* expectStatus("kept", 1)
    yield* turn("i", { executionId: 2, events: [updated(100, "new")] })
    yield* expectStatus("new", 2)
  }),

  custom_status_of_a_refused_ack_is_not_stored: Effect.gen(function*() {
    yield* create("i")
    yield* store(updated(100, "kept"))
    yield* fails(store(updated(101, "refused"), updated(100, "duplicate")))
    yield* expectStatus("kept", 1)
  })
})
