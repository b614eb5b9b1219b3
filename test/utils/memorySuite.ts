/**
 * The memory driver for the validation suite: both drivers over an empty store, and a backdoor.
 */
import type { AdminDriver, ProviderDriver } from "duroxide-prisma/provider"
import { ProviderTest } from "duroxide-prisma/testing/provider"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as memory from "../../src/provider/memory/driver.ts"
import * as tables from "../../src/provider/memory/tables.ts"

export const storage: Layer.Layer<
  ProviderDriver.ProviderDriver | AdminDriver.AdminDriver | ProviderTest.Backdoor
> = Layer.unwrap(Effect.sync(() => {
  const store = tables.make()
  return Layer.merge(memory.layer(store), Layer.succeed(ProviderTest.Backdoor, backdoor(store)))
}))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

// Higher than the driver itself counts in a test.
let nextId = 1_000_000

const backdoor = ({ activities, history, messages }: tables.Tables): ProviderTest.Backdoor["Service"] => ({
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
      messages.set(nextId++, { instanceId, workItem, createdAtMs: now, visibleAtMs: now, lock: null, attemptCount: 0 })
    }),
  insertActivity: (workItem) =>
    Effect.map(Clock.currentTimeMillis, (now) => {
      activities.set(nextId++, {
        workItem,
        name: "",
        instanceId: null,
        executionId: null,
        activityId: null,
        sessionId: null,
        tag: null,
        visibleAtMs: now,
        createdAtMs: now,
        lock: null,
        attemptCount: 0
      })
    })
})
