import { assert, describe, it } from "@effect/vitest"
import { FromDriver, MemoryDriver, Provider } from "duroxide-prisma/provider"
import type { ProviderError } from "duroxide-prisma/provider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as TestClock from "effect/testing/TestClock"
import * as Starts from "../utils/starts.ts"

type Service = Provider.Provider["Service"]

const start = Starts.message("a")
const activity = { _tag: "ActivityExecute", instance: "a", executionId: 1, id: 2, name: "A", input: "1" } as const

const poll = { lockTimeout: Duration.minutes(5), pollTimeout: Duration.minutes(5) }
const pause = { delay: Option.some(Duration.seconds(1)), ignoreAttempt: false }

interface Case {
  readonly enqueue: (provider: Service) => Effect.Effect<void, ProviderError.ProviderError>
  readonly claim: (
    provider: Service
  ) => Effect.Effect<
    Option.Option<{ readonly lockToken: string; readonly attemptCount: number }>,
    ProviderError.ProviderError
  >
  readonly giveBack: (provider: Service, lockToken: string) => Effect.Effect<void, ProviderError.ProviderError>
}

const cases: Record<string, Case> = {
  "a start": {
    enqueue: (provider) => provider.enqueueForOrchestrator({ message: start, delay: Option.none() }),
    claim: (provider) => provider.fetchOrchestrationItem({ ...poll, versions: Option.none() }),
    giveBack: (provider, lockToken) => provider.abandonOrchestrationItem({ ...pause, lockToken })
  },
  "an activity": {
    enqueue: (provider) => provider.enqueueForWorker(activity),
    claim: (provider) =>
      Effect.map(
        provider.fetchWorkItems({ ...poll, tags: { _tag: "DefaultOnly" }, session: Option.none() }),
        ([claimed]) => Option.fromUndefinedOr(claimed)
      ),
    giveBack: (provider, lockToken) => provider.abandonWorkItem({ ...pause, lockToken })
  }
}

// A process that abandons work without a handler must not claim it again each time, until it is poison.
describe("Work abandoned with a pause does not wake the process that abandoned it:", () => {
  for (const [what, { claim, enqueue, giveBack }] of Object.entries(cases)) {
    it.effect(`${what} goes to the process that claims next`, () =>
      Effect.gen(function*() {
        const driver = MemoryDriver.make()
        const first = yield* FromDriver.make(driver, { longPolling: { aggressivePollInterval: "30 seconds" } })
        const second = yield* FromDriver.make(driver, { longPolling: { aggressivePollInterval: "20 seconds" } })
        yield* enqueue(first)
        const { lockToken } = Option.getOrThrow(yield* claim(first))
        const claims = yield* Effect.forEach([first, second], (provider) => Effect.forkChild(claim(provider)))
        yield* TestClock.adjust(0)
        yield* giveBack(first, lockToken)
        yield* TestClock.adjust("25 seconds")
        assert.deepStrictEqual(claims.map((claim) => claim.pollUnsafe() !== undefined), [false, true])
        assert.strictEqual(Option.getOrThrow(yield* Fiber.join(claims[1]!)).attemptCount, 2)
      }))
  }
})
