import { assert, describe, it } from "@effect/vitest"
import { FromDriver, MemoryDriver } from "duroxide-prisma/provider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as TestClock from "effect/testing/TestClock"
import { message as start } from "../utils/starts.ts"

const cancel = (instance: string) => ({ _tag: "CancelInstance", instance, reason: "" }) as const

/** A provider, and the results of its claims. */
const open = Effect.gen(function*() {
  const store = MemoryDriver.make()
  const claimed: Array<string> = []
  const provider = yield* FromDriver.make({
    ...store,
    fetchOrchestrationItems: (options) =>
      Effect.tap(
        store.fetchOrchestrationItems(options),
        (claims) => Effect.sync(() => claimed.push(...claims.map(({ instanceId }) => instanceId)))
      )
  }, { longPolling: { maxWaitTime: "5 minutes" } })
  return { provider, claimed }
})

const serves = [{ name: "O", versions: ["1.0.0"] }]

const claim = (pollTimeout: Duration.Duration) =>
  ({ lockTimeout: Duration.seconds(30), pollTimeout, versions: Option.none(), serves }) as const

describe("Orphans", () => {
  it.effect("are not claimed, and keep no other message from being claimed", () =>
    Effect.gen(function*() {
      const { claimed, provider } = yield* open
      yield* provider.enqueueForOrchestrator({ message: cancel("never"), delay: Option.none() })
      const taken = yield* Effect.forkChild(provider.fetchOrchestrationItem(claim(Duration.minutes(5))))
      for (let second = 0; second < 190; second++) yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(claimed, [])

      yield* provider.enqueueForOrchestrator({ message: start("other"), delay: Option.none() })
      yield* TestClock.adjust(0)
      assert.strictEqual(Option.getOrThrow(yield* Fiber.join(taken)).item.instanceId, "other")
    }))

  it.effect("are delivered with their start, not counted, however long they have waited", () =>
    Effect.gen(function*() {
      const { claimed, provider } = yield* open
      const look = provider.fetchOrchestrationItem(claim(Duration.zero))
      yield* provider.enqueueForOrchestrator({ message: cancel("late"), delay: Option.none() })
      yield* TestClock.adjust("2 hours")
      yield* provider.enqueueForOrchestrator({ message: cancel("late"), delay: Option.none() })
      assert.deepStrictEqual(yield* look, Option.none())
      yield* provider.enqueueForOrchestrator({ message: start("late"), delay: Option.none() })
      const { attemptCount, item } = Option.getOrThrow(yield* look)
      assert.deepStrictEqual(item.messages.map(({ _tag }) => _tag), [
        "StartOrchestration",
        "CancelInstance",
        "CancelInstance"
      ])
      assert.strictEqual(attemptCount, 1)
      assert.deepStrictEqual(claimed, ["late"])
    }))
})
