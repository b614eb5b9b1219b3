/**
 * Claims whose messages travel slowly: the lock begins in the store, before they are sent.
 */
import { assert, describe, it } from "@effect/vitest"
import { FromDriver, MemoryDriver, WorkItem } from "duroxide-prisma/provider"
import type { ProviderDriver } from "duroxide-prisma/provider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as TestClock from "effect/testing/TestClock"
import * as claimBytes from "../../src/provider/internal/claimBytes.ts"
import * as Drivers from "../utils/driver.ts"
import * as Starts from "../utils/starts.ts"

const MiB = 1024 * 1024
const lockTimeout = Duration.seconds(4)

/** Claims reach `slow` this long after they are made; another process is `near`. */
const setup = Effect.fnUntraced(function*(travelMs: number) {
  const driver = MemoryDriver.make()
  const asked: Array<number | undefined> = []
  const far: ProviderDriver.ProviderDriver["Service"] = {
    ...driver,
    fetchOrchestrationItems: (request) => {
      asked.push(request.maxBytes)
      return Effect.tap(driver.fetchOrchestrationItems(request), () => Effect.sleep(travelMs))
    }
  }
  const [slow, near] = yield* Effect.all([FromDriver.make(far), FromDriver.make(driver)])
  const claim = (provider: typeof slow) =>
    provider.fetchOrchestrationItem({ lockTimeout, pollTimeout: Duration.zero, versions: Option.none() })
  return { asked, claim, driver, near, slow }
})

const start = (instanceId: string) =>
  Drivers.start(instanceId, {
    workItem: WorkItem.encode(Starts.message(instanceId))
  })

describe("A claim", () => {
  it("asks for half as much after a slow one, and for twice as much after a quick one that was full", () => {
    const bytes = claimBytes.make()
    const after = (tookMs: number, carried: number) => {
      bytes.arrived({ bytes: carried, tookMs, lockTimeoutMs: 4_000 })
      return bytes.current() / MiB
    }
    assert.strictEqual(bytes.current(), 4 * MiB)
    assert.deepStrictEqual([after(1_001, 4 * MiB), after(1_001, 1), after(1_000, 2 * MiB)], [2, 1, 1])
    assert.deepStrictEqual([after(500, MiB / 2 - 1), after(500, MiB / 2), after(501, 2 * MiB)], [1, 2, 2])
    assert.deepStrictEqual([2, 4, 8, 16].map((carried) => after(1, carried * MiB)), [4, 8, 16, 16])
    for (let i = 0; i < 20; i++) after(5_000, 1)
    assert.strictEqual(bytes.current(), MiB / 16)
  })

  it.effect("that was slow makes the next one smaller", () =>
    Effect.gen(function*() {
      const { asked, claim, driver, slow } = yield* setup(1_500)
      yield* driver.startOrchestrations([start("a"), start("b")])
      for (let i = 0; i < 2; i++) {
        const claimed = yield* Effect.forkChild(claim(slow))
        yield* TestClock.adjust(0)
        yield* TestClock.adjust("2 seconds")
        assert.isTrue(Option.isSome(yield* Fiber.join(claimed)))
      }
      assert.deepStrictEqual(asked, [4 * MiB, 2 * MiB])
    }))

  it.effect("that arrives after the end of its lock is run under a renewed lock", () =>
    Effect.gen(function*() {
      const { claim, driver, near, slow } = yield* setup(5_000)
      yield* driver.startOrchestrations([start("a")])
      const claimed = yield* Effect.forkChild(claim(slow))
      yield* TestClock.adjust(0)
      yield* TestClock.adjust("6 seconds")
      assert.strictEqual(Option.getOrThrow(yield* Fiber.join(claimed)).attemptCount, 1)
      yield* TestClock.adjust("2 seconds")
      assert.isTrue(Option.isNone(yield* claim(near)))
    }))

  it.effect("that another process has taken over on its way is not run", () =>
    Effect.gen(function*() {
      const { claim, driver, near, slow } = yield* setup(5_000)
      yield* driver.startOrchestrations([start("a")])
      const late = yield* Effect.forkChild(claim(slow))
      yield* TestClock.adjust(0)
      yield* TestClock.adjust("4500 millis")
      assert.isTrue(Option.isSome(yield* claim(near)))
      yield* TestClock.adjust("10 seconds")
      assert.isTrue(Option.isNone(yield* Fiber.join(late)))
    }))
})
