/** Single calls of the store, each timed by itself: what R needs beyond orchestrations. */
import { Database, Migrator, PrismaDriver } from "duroxide-prisma/prisma"
import { ProviderDriver } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as ManagedRuntime from "effect/ManagedRuntime"
import * as Redacted from "effect/Redacted"
import type { Contender, Load } from "./contender.ts"

/** `abandon` gives a claimed instance back, `read` reads a history of 100 events, `append` adds an event. */
export const openCalls = async (
  { call, url }: { readonly url: string; readonly call: Load["call"] & {} }
): Promise<Contender> => {
  const address = Redacted.make(url)
  const runtime = ManagedRuntime.make(
    PrismaDriver.layer().pipe(
      Layer.provide(Database.layer({ url: address })),
      Layer.provide(Migrator.layer({ url }))
    )
  )
  const driver = await runtime.runPromise(ProviderDriver.ProviderDriver)
  const append = (instanceId: string, count: number) =>
    driver.appendHistory({
      instanceId,
      executionId: 1,
      history: Array.from({ length: count }, (_, i) => ({ eventId: i + 1, eventType: "Event", eventData: text }))
    })
  const timed = async (effect: Effect.Effect<unknown, unknown>) => {
    const begin = performance.now()
    await runtime.runPromise(effect)
    return { ms: performance.now() - begin }
  }
  await runtime.runPromise(append("read", 100))
  return {
    execute: async (id) => {
      switch (call) {
        case "abandon": {
          await runtime.runPromise(driver.startOrchestrations([start(id)]))
          const [claimed] = await runtime.runPromise(
            driver.fetchOrchestrationItems({ limit: 1, lockTimeoutMs: 60_000, versions: null })
          )
          // A pause keeps it out of the next claim.
          return timed(
            driver.abandonOrchestrationItems([
              { lockToken: claimed!.lockToken, delayMs: 3_600_000, ignoreAttempt: false }
            ])
          )
        }
        case "read":
          return timed(driver.readHistory({ instanceId: "read", executionId: 1 }))
        case "append":
          return timed(append(id, 1))
      }
    },
    close: () => runtime.dispose()
  }
}

// internal

const text = JSON.stringify({ text: "x".repeat(200) })

const start = (instanceId: string): ProviderDriver.OrchestrationStart => ({
  instanceId,
  orchestrationName: "Call",
  orchestrationVersion: "1.0.0",
  workItem: JSON.stringify({ StartOrchestration: { instance: instanceId, input: "1" } }),
  pinnedVersion: { major: 1000, minor: 0, patch: 0 },
  delayMs: null
})
