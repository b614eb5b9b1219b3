/**
 * After an outage, locks that expired meanwhile are left to their holders for the length of a lock.
 */
import { assert, describe, it } from "@effect/vitest"
import { FromDriver, MemoryDriver, Provider, ProviderDriver, ProviderError } from "duroxide-prisma/provider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as TestClock from "effect/testing/TestClock"
import * as Drivers from "../utils/driver.ts"
import * as LocalProcess from "../utils/localProcess.ts"
import { start } from "../utils/starts.ts"

const lockTimeout = Duration.seconds(20)

const activity = (id: number) => ({
  _tag: "ActivityExecute" as const,
  instance: "i",
  executionId: 1,
  id,
  name: "A",
  input: "1"
})

type Service = Provider.Provider["Service"]

interface Queue {
  readonly enqueue: (provider: Service, id: number) => Effect.Effect<unknown, ProviderError.ProviderError>
  readonly claim: (
    provider: Service
  ) => Effect.Effect<Option.Option<{ readonly lockToken: string }>, ProviderError.ProviderError>
  readonly renew: (provider: Service, lockToken: string) => Effect.Effect<void, ProviderError.ProviderError>
}

const queues: Record<string, Queue> = {
  "an activity": {
    enqueue: (provider, id) => provider.enqueueForWorker(activity(id)),
    claim: (provider) =>
      Effect.map(
        provider.fetchWorkItems({
          lockTimeout,
          pollTimeout: Duration.zero,
          tags: { _tag: "Any" },
          session: Option.none()
        }),
        ([claimed]) => Option.fromUndefinedOr(claimed)
      ),
    renew: (provider, lockToken) => provider.renewWorkItemLock({ lockToken, extendFor: lockTimeout })
  },
  "an instance": {
    enqueue: (provider, id) => provider.startOrchestration(start(`i${id}`)),
    claim: (provider) =>
      provider.fetchOrchestrationItem({ lockTimeout, pollTimeout: Duration.zero, versions: Option.none() }),
    renew: (provider, lockToken) => provider.renewOrchestrationItemLock({ lockToken, extendFor: lockTimeout })
  }
}

/** Two processes on one store that can be unavailable to both. */
const setup = Effect.gen(function*() {
  const driver = yield* ProviderDriver.ProviderDriver
  let isAway = false
  let renewalsHang = false
  const gone = (operation: string) =>
    new ProviderError.ProviderError({ operation, reason: new ProviderError.ConnectionLost({ problem: "gone" }) })
  const open = FromDriver.make(
    LocalProcess.intercept(driver, (call, operation) =>
      isAway
        ? Effect.fail(gone(operation))
        : renewalsHang && operation.startsWith("renew")
        ? Effect.delay(Effect.fail(gone(operation)), "30 seconds")
        : call)
  )
  return {
    holder: yield* open,
    taker: yield* open,
    /** Renewals fail after half a minute. */
    hangRenewals: Effect.sync(() => {
      renewalsHang = true
    }),
    /** The processes claim continuously. */
    away: Effect.fnUntraced(function*(seconds: number, asks: Effect.Effect<unknown, ProviderError.ProviderError>) {
      isAway = true
      for (let second = 0; second < seconds; second++) {
        yield* Effect.forkChild(Effect.ignore(asks))
        yield* TestClock.adjust("1 second")
      }
      isAway = false
    })
  }
})

for (const [name, { claim, enqueue, renew }] of Object.entries(queues)) {
  describe(`After an outage, ${name}`, () => {
    it.effect("that runs under an expired lock is left to its holder; other work is claimed", () =>
      Effect.gen(function*() {
        const { away, holder, taker } = yield* setup
        yield* enqueue(holder, 1)
        const { lockToken } = Option.getOrThrow(yield* claim(holder))
        yield* away(30, claim(taker))
        assert.isTrue(Option.isNone(yield* claim(taker)))
        yield* enqueue(taker, 2)
        assert.isTrue(Option.isSome(yield* claim(taker)))
        yield* TestClock.adjust("19 seconds")
        assert.isTrue(Option.isNone(yield* claim(taker)))
        yield* renew(holder, lockToken)
      }).pipe(Effect.provide(MemoryDriver.layer)))

    it.effect("whose holder has died is taken over when the store has worked for the length of a lock", () =>
      Effect.gen(function*() {
        const { away, holder, taker } = yield* setup
        yield* enqueue(holder, 1)
        yield* claim(holder)
        yield* away(30, claim(taker))
        assert.isTrue(Option.isNone(yield* claim(taker)))
        yield* TestClock.adjust("20 seconds")
        assert.isTrue(Option.isSome(yield* claim(taker)))
      }).pipe(Effect.provide(MemoryDriver.layer)))

    it.effect("is taken over at the end of its lock when the outage was shorter than a quarter of that", () =>
      Effect.gen(function*() {
        const { away, holder, taker } = yield* setup
        yield* enqueue(holder, 1)
        yield* claim(holder)
        yield* TestClock.adjust("16 seconds")
        yield* away(4, claim(taker))
        assert.isTrue(Option.isSome(yield* claim(taker)))
      }).pipe(Effect.provide(MemoryDriver.layer)))

    it.effect("is taken over at the end of its lock when a renewal has hung while claims succeeded", () =>
      Effect.gen(function*() {
        const { hangRenewals, holder, taker } = yield* setup
        yield* hangRenewals
        yield* Effect.forkChild(Effect.ignore(renew(taker, "any")))
        yield* TestClock.adjust("29 seconds")
        yield* enqueue(holder, 1)
        yield* claim(holder)
        assert.isTrue(Option.isNone(yield* claim(taker)))
        // Now the renewal fails.
        yield* TestClock.adjust("2 seconds")
        assert.isTrue(Option.isNone(yield* claim(taker)))
        yield* TestClock.adjust("18 seconds")
        assert.isTrue(Option.isSome(yield* claim(taker)))
      }).pipe(Effect.provide(MemoryDriver.layer)))

    it.effect("is taken over at once by a process that has not noticed the outage", () =>
      Effect.gen(function*() {
        const { away, holder, taker } = yield* setup
        yield* enqueue(holder, 1)
        yield* claim(holder)
        yield* away(30, Effect.void)
        assert.isTrue(Option.isSome(yield* claim(taker)))
      }).pipe(Effect.provide(MemoryDriver.layer)))
  })
}

const drivers = {
  memory: Effect.provide(ProviderDriver.ProviderDriver, MemoryDriver.layer),
  prisma: Effect.map(Drivers.open({ clock: "effect" }), ({ driver }) => driver)
}

for (const [name, open] of Object.entries(drivers)) {
  describe(`A claim that takes nothing over (${name})`, () => {
    it.effect("takes fresh work, work given back and ended pauses, but no expired lock", () =>
      Effect.gen(function*() {
        const driver = yield* open
        const claim = (takesOver: boolean) =>
          Effect.map(
            driver.fetchOrchestrationItems({ limit: 10, lockTimeoutMs: 1_000, versions: null, takesOver }),
            (claimed) => claimed.map(({ instanceId }) => instanceId).sort()
          )
        yield* driver.startOrchestrations(["held", "paused"].map((id) => Drivers.start(id)))
        const claimed = yield* driver.fetchOrchestrationItems({ limit: 10, lockTimeoutMs: 1_000, versions: null })
        const { lockToken } = claimed.find(({ instanceId }) => instanceId === "paused")!
        yield* driver.abandonOrchestrationItems([{ lockToken, delayMs: 1_000, ignoreAttempt: true }])
        yield* TestClock.adjust("2 seconds")
        yield* driver.startOrchestrations([Drivers.start("fresh")])
        assert.deepStrictEqual(yield* claim(false), ["fresh", "paused"])
        assert.deepStrictEqual(yield* claim(true), ["held"])
      }))

    it.effect("takes fresh activities, but none with an expired lock", () =>
      Effect.gen(function*() {
        const driver = yield* open
        const claim = (takesOver: boolean, sessions: boolean) =>
          Effect.map(
            driver.fetchWorkItems({
              limit: 10,
              lockTimeoutMs: 1_000,
              tags: { _tag: "Any" },
              session: sessions ? { workerId: "me", lockTimeoutMs: 60_000 } : null,
              takesOver
            }),
            (claimed) => claimed.map(({ workItem }) => workItem)
          )
        const add = (workItem: string, sessionId: string | null) =>
          driver.enqueueForWorker([Drivers.activity({ workItem: JSON.stringify(workItem), sessionId })])
        yield* add("held", null)
        yield* add("held in session", "s")
        assert.lengthOf(yield* claim(true, true), 2)
        yield* TestClock.adjust("2 seconds")
        yield* add("fresh", null)
        yield* add("fresh in session", "s")
        assert.sameMembers(yield* claim(false, true), ["\"fresh\"", "\"fresh in session\""])
        assert.sameMembers(yield* claim(true, true), ["\"held\"", "\"held in session\""])
      }))
  })
}
