/**
 * The memory driver as the validation suite wants it: a provider, its management, and a way behind both.
 */
import { MemoryDriver, Provider, ProviderAdmin } from "duroxide-prisma"
import type { ProviderTest } from "duroxide-prisma/testing"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as tables from "../../src/internal/memory/tables.ts"
import { Backdoor } from "../../src/testing/ProviderTest.ts"

export const layer = (
  options?: Provider.Options
): Layer.Layer<Provider.Provider | ProviderAdmin.ProviderAdmin | ProviderTest.Backdoor> =>
  Layer.unwrap(Effect.sync(() => {
    const store = tables.make()
    return ProviderAdmin.layerFromDriver.pipe(
      Layer.provideMerge(Provider.layerFromDriver(options)),
      Layer.provide(MemoryDriver.layerOver(store)),
      Layer.merge(Layer.succeed(Backdoor, backdoor(store)))
    )
  }))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

// Above what the driver itself counts to in a test.
let nextId = 1_000_000

const backdoor = ({ activities, history, messages }: tables.Tables): Backdoor["Service"] => ({
  corruptInstanceHistory: (instanceId, eventData) =>
    Effect.sync(() => {
      for (const events of history.get(instanceId)?.values() ?? []) {
        for (const eventId of events.keys()) events.set(eventId, eventData)
      }
    }),
  getMaxAttemptCount: (instanceId) =>
    Effect.sync(() =>
      Math.max(
        0,
        ...[...messages.values()].filter((message) => message.instanceId === instanceId)
          .map(({ attemptCount }) => attemptCount)
      )
    ),
  insertMessage: (instanceId, workItem) =>
    Effect.map(Clock.currentTimeMillis, (now) => {
      messages.set(nextId++, { instanceId, workItem, visibleAtMs: now, lock: null, attemptCount: 0 })
    }),
  insertActivity: (workItem) =>
    Effect.map(Clock.currentTimeMillis, (now) => {
      activities.set(nextId++, {
        workItem,
        instanceId: null,
        executionId: null,
        activityId: null,
        sessionId: null,
        tag: null,
        visibleAtMs: now,
        lock: null,
        attemptCount: 0
      })
    })
})
