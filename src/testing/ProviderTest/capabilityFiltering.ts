/**
 * Which executions a dispatcher claims, by the version they are pinned to, and what happens to unreadable histories.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Admin } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import {
  abandon,
  ack,
  Backdoor,
  claimInstance,
  claimOrchestration,
  continueAsNewItem,
  create,
  elapse,
  enqueueStart,
  expectNoOrchestration,
  fails,
  fetchOrchestration,
  named,
  poke,
  renew,
  seed,
  Settings,
  started,
  topic,
  version
} from "./harness.ts"

const within = (min: string, max: string) => ({ versions: [min, max] as const })

/** Claims the instance with a filter and abandons it; the delivery does not count. */
const takesAndReturns = (instance: string, min: string, max: string) =>
  Effect.flatMap(
    claimInstance(instance, within(min, max)),
    ({ lockToken }) => abandon(lockToken, { ignoreAttempt: true })
  )

const garbage = JSON.stringify({ garbage: true })

const corrupt = (instance: string, eventData = garbage) =>
  Effect.flatMap(Backdoor, (backdoor) => backdoor.corruptInstanceHistory(instance, eventData))

const highestAttemptCount = (instance: string) =>
  Effect.flatMap(Backdoor, (backdoor) => backdoor.getMaxAttemptCount(instance))

/** Claims an instance whose history cannot be read. */
const claimCorrupt = (instance: string, options?: Parameters<typeof claimInstance>[1]) =>
  Effect.map(claimInstance(instance, options), (claimed) => {
    assert(Option.isSome(claimed.item.historyError), "expected a history error")
    assert.lengthOf(claimed.item.history, 0)
    return claimed
  })

/** Delivers a corrupt instance `times` times, and abandons each delivery as a counted attempt. */
const deliverCorrupt = (instance: string, times: number) =>
  Effect.gen(function*() {
    for (let time = 1; time <= times; time++) {
      const { attemptCount, lockToken } = yield* claimCorrupt(instance, { lockTimeout: "5 seconds" })
      assert.strictEqual(attemptCount, time)
      yield* abandon(lockToken)
      yield* elapse("100 millis")
    }
  })

export const capabilityFiltering = topic("capability_filtering", {
  test_fetch_with_filter_none_returns_any_item: Effect.gen(function*() {
    yield* seed("i", "1.2.3")
    yield* claimInstance("i")
  }),

  test_fetch_with_compatible_filter_returns_item: Effect.gen(function*() {
    yield* seed("i", "1.2.3")
    yield* claimInstance("i", within("1.0.0", "1.9.9"))
  }),

  test_fetch_with_incompatible_filter_skips_item: Effect.gen(function*() {
    yield* seed("i", "1.2.3")
    yield* expectNoOrchestration(within("2.0.0", "2.9.9"))
  }),

  test_fetch_filter_skips_incompatible_selects_compatible: Effect.gen(function*() {
    yield* seed("v1", "1.0.0")
    yield* seed("v2", "2.0.0")
    yield* takesAndReturns("v2", "2.0.0", "2.9.9")
    yield* takesAndReturns("v1", "1.0.0", "1.9.9")
  }),

  test_fetch_filter_does_not_lock_skipped_instances: Effect.gen(function*() {
    yield* seed("i", "1.0.0")
    yield* expectNoOrchestration(within("2.0.0", "2.9.9"))
    const { attemptCount } = yield* claimInstance("i", within("0.0.0", "1.9.9"))
    assert.strictEqual(attemptCount, 1)
  }),

  test_fetch_filter_null_pinned_version_always_compatible: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* ack(yield* claimInstance("i"), {
      executionId: 1,
      events: [started({ duroxideVersion: "0.0.0" })],
      metadata: named()
    })
    yield* poke("i", "ping")
    yield* claimInstance("i", within("99.0.0", "99.9.9"))
  }),

  test_fetch_filter_boundary_versions: Effect.gen(function*() {
    yield* seed("lowest", "1.0.0")
    yield* takesAndReturns("lowest", "1.0.0", "1.9.99")
    const { lockToken } = yield* claimInstance("lowest")
    yield* seed("highest", "1.9.99")
    yield* takesAndReturns("highest", "1.0.0", "1.9.99")
    yield* renew(lockToken, "30 seconds")

    const { onFreshProvider } = yield* Settings
    yield* onFreshProvider(Effect.gen(function*() {
      yield* seed("beyond", "2.0.0")
      yield* expectNoOrchestration(within("1.0.0", "1.9.99"))
      yield* claimInstance("beyond")
    }))
  }),

  test_pinned_version_stored_via_ack_metadata: Effect.gen(function*() {
    yield* seed("i", "3.1.4")
    yield* takesAndReturns("i", "3.0.0", "3.9.9")
    yield* takesAndReturns("i", "3.1.4", "3.1.4")
    yield* expectNoOrchestration(within("3.1.5", "3.9.9"))
  }),

  test_pinned_version_immutable_across_ack_cycles: Effect.gen(function*() {
    yield* seed("i", "1.0.0")
    yield* ack(yield* claimInstance("i", within("0.0.0", "1.9.9")), { executionId: 1, metadata: named() })
    yield* poke("i", "ping2")
    yield* expectNoOrchestration(within("2.0.0", "2.9.9"))
    yield* claimInstance("i", within("0.0.0", "1.9.9"))
  }),

  test_continue_as_new_execution_gets_own_pinned_version: Effect.gen(function*() {
    yield* seed("i", "1.0.0")
    yield* ack(yield* claimInstance("i", within("0.0.0", "1.9.9")), {
      executionId: 1,
      events: [{ _tag: "OrchestrationContinuedAsNew", eventId: 2, input: "{}" }],
      items: [continueAsNewItem("i")],
      metadata: named({ status: "ContinuedAsNew" })
    })
    yield* ack(yield* claimInstance("i"), {
      executionId: 2,
      events: [started({ duroxideVersion: "2.0.0" })],
      metadata: named({ pinnedVersion: version("2.0.0") })
    })
    yield* poke("i", "ping")
    yield* takesAndReturns("i", "2.0.0", "2.9.9")
    yield* expectNoOrchestration(within("1.0.0", "1.9.9"))
  }),

  test_filter_with_empty_supported_versions_returns_nothing: Effect.gen(function*() {
    // The contract has no empty list of ranges; a range that holds no version is equivalent.
    yield* seed("i", "1.0.0")
    yield* expectNoOrchestration(within("1.0.1", "0.9.9"))
    yield* claimInstance("i")
  }),

  test_concurrent_filtered_fetch_no_double_lock: Effect.gen(function*() {
    yield* seed("i", "1.0.0")
    yield* claimInstance("i", within("0.0.0", "1.9.9"))
    yield* expectNoOrchestration(within("0.0.0", "1.9.9"))
  }),

  test_ack_stores_pinned_version_via_metadata_update: Effect.gen(function*() {
    yield* create("i")
    yield* poke("i", "ping")
    yield* ack(yield* claimInstance("i"), { executionId: 1, metadata: named({ pinnedVersion: version("1.2.3") }) })
    yield* poke("i", "ping2")
    yield* expectNoOrchestration(within("2.0.0", "2.9.9"))
    yield* claimInstance("i", within("1.0.0", "1.9.9"))
  }),

  test_provider_updates_pinned_version_when_told: Effect.gen(function*() {
    yield* seed("i", "1.0.0")
    yield* ack(yield* claimInstance("i"), { executionId: 1, metadata: named({ pinnedVersion: version("2.0.0") }) })
    yield* poke("i")
    yield* takesAndReturns("i", "2.0.0", "2.0.0")
    yield* expectNoOrchestration(within("1.0.0", "1.0.0"))
  }),

  test_fetch_corrupted_history_filtered_vs_unfiltered: Effect.gen(function*() {
    yield* seed("i", "1.0.0")
    yield* corrupt("i")
    yield* expectNoOrchestration(within("2.0.0", "2.9.9"))
    const { lockToken } = yield* claimCorrupt("i")
    yield* abandon(lockToken)
  }),

  test_fetch_deserialization_error_increments_attempt_count: Effect.gen(function*() {
    yield* seed("i", "1.0.0")
    yield* corrupt("i")
    yield* deliverCorrupt("i", 2)
    assert.isAtLeast(yield* highestAttemptCount("i"), 2)
  }),

  test_fetch_deserialization_error_eventually_reaches_poison: Effect.gen(function*() {
    yield* seed("i", "1.0.0")
    yield* corrupt("i")
    yield* deliverCorrupt("i", 5)
    assert.isAtLeast(yield* highestAttemptCount("i"), 5)
  }),

  test_fetch_filter_applied_before_history_deserialization: Effect.gen(function*() {
    yield* seed("i", "99.0.0")
    yield* corrupt("i")
    yield* expectNoOrchestration(within("1.0.0", "2.0.0"))
    const { attemptCount, lockToken } = yield* claimCorrupt("i")
    assert.strictEqual(attemptCount, 1)
    yield* abandon(lockToken)
  }),

  test_fetch_single_range_only_uses_first_range: Effect.gen(function*() {
    // There is only one range; versions of a second range are not claimed.
    yield* seed("A", "1.0.0")
    yield* seed("B", "3.0.0")
    yield* takesAndReturns("A", "1.0.0", "1.5.0")
    const again = yield* fetchOrchestration(within("1.0.0", "1.5.0"))
    if (Option.isSome(again)) assert.strictEqual(again.value.item.instanceId, "A")
    yield* expectNoOrchestration(within("1.0.0", "1.5.0"))
    yield* claimInstance("B", within("3.0.0", "3.5.0"))
  }),

  test_ack_appends_event_to_corrupted_history: Effect.gen(function*() {
    const admin = yield* Admin
    yield* seed("i", "1.0.0")
    yield* corrupt("i")
    const claimed = yield* claimCorrupt("i")
    const { executionId, orchestrationName, orchestrationVersion } = claimed.item
    const message = "history deserialization failed after 4 attempts (limit 3)"
    yield* ack(claimed, {
      executionId,
      events: [{
        _tag: "OrchestrationFailed",
        eventId: 99_999,
        details: {
          _tag: "Poison",
          attemptCount: 4,
          maxAttempts: 3,
          messageType: { FailedDeserialization: { instance: "i", execution_id: executionId, error: "not an event" } },
          message
        }
      }],
      metadata: { orchestrationName, orchestrationVersion, status: "Failed", output: message }
    })
    const { output, status } = yield* admin.getInstanceInfo("i")
    assert.strictEqual(status, "Failed")
    assert.include(output, "deserialization failed")
  }),

  unparsable_history_is_a_history_error: Effect.gen(function*() {
    const provider = yield* Provider
    const texts = {
      "null": "null",
      "no-json": "this is not JSON",
      "empty": "",
      "half": "{\"event_id\":1,",
      "nul": "{\"garbage\":\"\\u0000\"}",
      "surrogate": "{\"garbage\":\"\\ud800\"}"
    }
    for (const [instance, text] of Object.entries(texts)) {
      yield* create(instance)
      yield* corrupt(instance, text)
      yield* fails(provider.read(instance))
      yield* fails(provider.readWithExecution(instance, 1))
      yield* poke(instance)
      const { lockToken } = yield* claimCorrupt(instance)
      yield* ack({ lockToken, item: { instanceId: instance, executionId: 1 } })
    }
    yield* expectNoOrchestration()
  }),

  one_unreadable_history_leaves_others_alone: Effect.gen(function*() {
    yield* seed("broken", "1.0.0")
    yield* seed("whole", "1.0.0")
    yield* corrupt("broken", "{")
    const claims = [yield* claimOrchestration(), yield* claimOrchestration()]
    const byInstance = new Map(claims.map(({ item }) => [item.instanceId, item]))
    assert(Option.isSome(byInstance.get("broken")!.historyError))
    assert(Option.isNone(byInstance.get("whole")!.historyError))
    assert.lengthOf(byInstance.get("whole")!.history, 1)
  })
})
