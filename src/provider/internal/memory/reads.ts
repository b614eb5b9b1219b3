/**
 * What is read of instances, and events that tools add.
 */
import * as Effect from "effect/Effect"
import type { ProviderDriver } from "../../ProviderDriver.ts"
import { DuplicateEvent, ProviderError } from "../../ProviderError.ts"
import * as tables from "./tables.ts"

export const make = (store: tables.Tables) =>
  ({
    readHistory: ({ executionId, instanceId }) =>
      Effect.sync(() =>
        tables.historyOf(store, instanceId, executionId ?? Math.max(1, tables.newestExecution(store, instanceId)))
      ),

    appendHistory: ({ executionId, history, instanceId }) =>
      Effect.suspend(() => {
        if (tables.hasTaken(store, instanceId, executionId, history)) {
          const reason = new DuplicateEvent({ instanceId, executionId })
          return Effect.fail(new ProviderError({ operation: "appendHistory", reason }))
        }
        tables.addEvents(store, instanceId, executionId, history)
        return Effect.void
      }),

    readInstances: (instanceIds) =>
      Effect.sync(() => instanceIds.flatMap((instanceId) => tables.stateOf(store, instanceId) ?? [])),

    readEnds: (instanceIds) =>
      Effect.sync(() =>
        [...new Set(instanceIds)].flatMap((instanceId) => {
          const { failure = null, output = null, status } = tables.stateOf(store, instanceId) ?? {}
          return status === "Completed" || status === "Failed" ? [{ instanceId, status, output, failure }] : []
        })
      ),

    readKeyValues: ({ instanceId, key }) =>
      Effect.sync(() =>
        [...tables.visibleValues(store, instanceId)]
          .filter(([name]) => key === null || name === key)
          .map(([key, value]) => ({ key, value }))
      ),

    readInstanceStats: (instanceId) =>
      Effect.sync(() => {
        const instance = store.instances.get(instanceId)
        if (instance === undefined) return null
        const history = tables.historyOf(store, instanceId, instance.executionId)
        const values = [...tables.visibleValues(store, instanceId).values()]
        return {
          eventCount: history.length,
          historyBytes: tables.bytesOf(history),
          firstEvent: history[0] ?? null,
          keyCount: values.length,
          valueBytes: tables.bytesOf(values)
        }
      })
  }) satisfies Partial<ProviderDriver["Service"]>
