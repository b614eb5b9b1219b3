/**
 * When a process that holds a suspect claims the next one, and that this is the business of no other process.
 */
import { assert, describe, it } from "@effect/vitest"
import type { Provider } from "duroxide-prisma/provider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { ended, hub, open, pass, storeOf, waiting } from "../utils/longPolling.ts"
import type { Driver } from "../utils/longPolling.ts"

const fetch = (provider: Provider.Provider["Service"]) =>
  Effect.map(
    provider.fetchWorkItems({
      lockTimeout: Duration.hours(1),
      pollTimeout: Duration.hours(1),
      tags: { _tag: "DefaultOnly" },
      session: Option.none()
    }),
    ([claimed]) => claimed
  )

/** Stores an activity that has been delivered so often without an end. */
const delivered = Effect.fnUntraced(function*(driver: Driver, id: number, deliveries: number) {
  yield* driver.enqueueForWorker([{
    workItem: JSON.stringify({ ActivityExecute: { instance: "a", execution_id: 1, id, name: "A", input: "1" } }),
    name: "A",
    instanceId: "a",
    executionId: 1,
    activityId: id,
    sessionId: null,
    tag: null
  }])
  const request = { limit: 1, lockTimeoutMs: 1_000, tags: { _tag: "DefaultOnly" }, session: null } as const
  for (let i = 0; i < deliveries; i++) {
    const [claimed] = yield* driver.fetchWorkItems(request)
    yield* driver.abandonWorkItems([{ lockToken: claimed!.lockToken, delayMs: null, ignoreAttempt: false }])
  }
})

/** A process that claims a suspect of so many deliveries, and what it announces for later. */
const claiming = Effect.fnUntraced(function*(deliveries: number) {
  const store = storeOf()
  const { connect, heard, listen } = hub()
  yield* listen
  yield* delivered(store.directly, 1, deliveries)
  const provider = yield* open(store.driver, connect("one"), { fallbackPollInterval: "1 day" })
  assert.strictEqual((yield* fetch(provider))?.attemptCount, deliveries + 1)
  yield* pass("1 minute")
  return { later: heard.filter((hint) => hint._tag === "Work" && hint.visibleAtMs !== 0), provider, store }
})

describe("A process that holds a suspect", () => {
  it.effect("does not tell the others when it will have proved itself", () =>
    Effect.gen(function*() {
      const { later } = yield* claiming(5)
      assert.deepStrictEqual(later, [])
    }))

  it.effect("claims the next one when the first has proved itself", () =>
    Effect.gen(function*() {
      const { provider, store } = yield* claiming(5)
      yield* delivered(store.directly, 2, 5)
      const fetches = yield* waiting(1, fetch(provider))
      yield* pass("250 seconds")
      assert.lengthOf(yield* ended(fetches), 0)
      yield* pass("20 seconds")
      assert.lengthOf(yield* ended(fetches), 1)
    }))
})
