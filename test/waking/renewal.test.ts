import { assert, describe, it } from "@effect/vitest"
import { ProviderError } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/testing/TestClock"
import * as renewal from "../../src/waking/renewal.ts"

const unavailable = new ProviderError.ProviderError({
  operation: "renew_orchestration_item_lock",
  reason: new ProviderError.ConnectionLost({ problem: "connect ECONNREFUSED" })
})

const lockLost = new ProviderError.ProviderError({
  operation: "renew_orchestration_item_lock",
  reason: new ProviderError.LockLost({ lockToken: "token" })
})

/** Renews a lock of 20 seconds; returns at which seconds, if the store answers as given. */
const seconds = (answers: ReadonlyArray<"held" | "unanswered" | "broken" | "lost">) =>
  Effect.gen(function*() {
    const at: Array<number> = []
    const renew = Effect.flatMap(Clock.currentTimeMillis, (ms) => {
      at.push(ms / 1_000)
      const answer = answers[at.length - 1]
      return answer === "unanswered"
        ? Effect.fail(unavailable)
        : answer === "broken"
        ? Effect.die(new Error("broken"))
        : answer === "lost"
        ? Effect.fail(lockLost)
        : Effect.void
    })
    const fiber = yield* Effect.forkChild(renewal.untilLost(Duration.seconds(20), renew, "not renewed yet"))
    yield* TestClock.adjust("5 minutes")
    assert.isDefined(fiber.pollUnsafe())
    return at
  })

describe("renewal", () => {
  it.effect("a lock is renewed after a quarter of its length, then at each half, until it is lost", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* seconds(["held", "held", "held", "lost"]), [5, 15, 25, 35])
    }))

  it.effect("an attempt without an answer is repeated at a tenth, whatever the failure", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(
        yield* seconds(["held", "unanswered", "broken", "unanswered", "held", "lost"]),
        [5, 15, 17, 19, 21, 31]
      )
    }))

  it("no interval is longer than the caller's maximum", () => {
    const { interval, retryInterval } = renewal.pace(Duration.seconds(30), Duration.seconds(1))
    assert.deepStrictEqual([interval, retryInterval].map(Duration.toMillis), [1_000, 1_000])
    const alone = renewal.pace(Duration.seconds(30))
    assert.deepStrictEqual([alone.interval, alone.retryInterval].map(Duration.toMillis), [15_000, 3_000])
  })
})
