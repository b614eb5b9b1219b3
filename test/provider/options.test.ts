import { assert, describe, it } from "@effect/vitest"
import { FromDriver, MemoryDriver } from "duroxide-prisma/provider"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"

const impossible: Record<string, readonly [FromDriver.Options, string]> = {
  "no lane": [{ lanes: 0 }, "lanes is 0; it must be a whole number of at least 1"],
  "a fraction of a batch": [{ maxBatch: 1.5 }, "maxBatch is 1.5; it must be a whole number of at least 1"],
  "no time for a statement": [{ statementTimeout: 0 }, "statementTimeout is 0 milliseconds; it must be at least 1"],
  "a text without a unit that it knows": [
    { statementTimeout: "30 secs" as "30 seconds" },
    "statementTimeout is not a duration"
  ],
  "a negative interval": [
    { longPolling: { aggressivePollInterval: "-1 seconds" } },
    "longPolling.aggressivePollInterval is -1000 milliseconds; it must be at least 1"
  ],
  "polling without a pause": [
    { longPolling: { fallbackPollInterval: 0 } },
    "longPolling.fallbackPollInterval is 0 milliseconds; it must be at least 1"
  ],
  "no look before polling ends": [
    { longPolling: { aggressiveExitThreshold: 0 } },
    "longPolling.aggressiveExitThreshold is 0; it must be a whole number of at least 1"
  ]
}

describe("Impossible options of a provider are refused by name:", () => {
  for (const [name, [options, message]] of Object.entries(impossible)) {
    it.effect(name, () =>
      Effect.gen(function*() {
        const exit = yield* Effect.exit(FromDriver.make(MemoryDriver.make(), options))
        assert.isTrue(Exit.isFailure(exit))
        if (Exit.isSuccess(exit)) return
        const defect = Cause.squash(exit.cause)
        assert.instanceOf(defect, RangeError)
        assert.strictEqual(defect.message, message)
      }))
  }
})
