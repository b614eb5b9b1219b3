import { assert, describe, it } from "@effect/vitest"
import { MemoryDriver, Provider } from "duroxide-prisma"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as TestClock from "effect/testing/TestClock"

const cancel = (instance: string) => ({ _tag: "CancelInstance", instance, reason: "" }) as const
const start = (instance: string) =>
  ({
    _tag: "StartOrchestration",
    instance,
    orchestration: "O",
    input: "1",
    version: null,
    parentInstance: null,
    parentId: null,
    executionId: 1
  }) as const

/** A provider, and the seconds at which it gave batches back. */
const open = Effect.gen(function*() {
  const store = MemoryDriver.make()
  const givenBack: Array<number> = []
  const provider = yield* Provider.fromDriver({
    ...store,
    abandonOrchestrationItems: (items) =>
      Effect.flatMap(Clock.currentTimeMillis, (now) => {
        givenBack.push(now / 1000)
        return store.abandonOrchestrationItems(items)
      })
  })
  return { provider, givenBack }
})

const claim = (pollTimeout: Duration.Duration) =>
  ({ lockTimeout: Duration.seconds(30), pollTimeout, versions: Option.none() }) as const

describe("Orphans", () => {
  it.effect("are looked at again after 1, 2, 4, … 60 seconds, which keeps no other from being claimed", () =>
    Effect.gen(function*() {
      const { givenBack, provider } = yield* open
      yield* provider.enqueueForOrchestrator(cancel("never"), Option.none())
      const taken = yield* Effect.forkChild(provider.fetchOrchestrationItem(claim(Duration.minutes(5))))
      yield* TestClock.adjust(0)
      for (let second = 0; second < 190; second++) yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(givenBack, [0, 1, 3, 7, 15, 31, 63, 123, 183])

      yield* provider.enqueueForOrchestrator(start("other"), Option.none())
      yield* TestClock.adjust(0)
      assert.strictEqual(Option.getOrThrow(yield* Fiber.join(taken)).item.instanceId, "other")
    }))

  it.effect("wait for their start as long as the newest of them has waited", () =>
    Effect.gen(function*() {
      const { givenBack, provider } = yield* open
      const look = provider.fetchOrchestrationItem(claim(Duration.zero))
      yield* provider.enqueueForOrchestrator(cancel("late"), Option.none())
      yield* TestClock.adjust("50 seconds")
      yield* provider.enqueueForOrchestrator(cancel("late"), Option.none())
      assert.deepStrictEqual(yield* look, Option.none())
      assert.deepStrictEqual(givenBack, [50])
      yield* provider.enqueueForOrchestrator(start("late"), Option.none())
      yield* TestClock.adjust("1 second")
      const { attemptCount, item } = Option.getOrThrow(yield* look)
      assert.deepStrictEqual(item.messages.map(({ _tag }) => _tag), [
        "CancelInstance",
        "CancelInstance",
        "StartOrchestration"
      ])
      assert.strictEqual(attemptCount, 1)
    }))
})
