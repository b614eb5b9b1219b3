/**
 * What is read of instances, and events that tools add.
 */
import * as Effect from "effect/Effect"
import { valueBytes } from "../../model/shared/valueBytes.ts"
import type { Backlog } from "../Backlog.ts"
import type { LockTimes, ProviderDriver } from "../ProviderDriver.ts"
import { DuplicateEvent, ProviderError } from "../ProviderError.ts"
import * as limitedInstances from "./limitedInstances.ts"
import { isParked } from "./limits.ts"
import { askedBy } from "./messages.ts"
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
      tables.statement((now) => instanceIds.flatMap((instanceId) => tables.stateOf(store, instanceId, now) ?? [])),

    readEnds: (instanceIds) =>
      Effect.sync(() =>
        [...new Set(instanceIds)].flatMap((instanceId) => {
          const { failure = null, output = null, status } = tables.stateOf(store, instanceId) ?? {}
          return status === "Completed" || status === "Failed" ? [{ instanceId, status, output, failure }] : []
        })
      ),

    readProgress: (items) =>
      Effect.sync(() =>
        items.map(({ executionId, instanceId, key, lastEventId }) => {
          const instance = store.instances.get(instanceId)
          if (instance === undefined) return null
          const execution = tables.executionOf(store, instanceId, instance.executionId)
          const hasEnded = execution?.status === "Completed" || execution?.status === "Failed"
          const last = Math.max(0, ...store.history.get(instanceId)?.get(instance.executionId)?.keys() ?? [])
          if (!hasEnded && instance.executionId === executionId && last === lastEventId) return null
          return {
            executionId: instance.executionId,
            lastEventId: last,
            customStatus: instance.customStatus,
            customStatusVersion: instance.customStatusVersion,
            value: key === null ? null : tables.visibleValues(store, instanceId).get(key) ?? null,
            hasEnded,
            isOfRust: execution !== undefined && (execution.pinned?.major ?? 0) < 1000
          }
        })
      ),

    readKeyValues: ({ instanceId, key }) =>
      Effect.sync(() =>
        [...tables.visibleValues(store, instanceId)]
          .filter(([name]) => key === null || name === key)
          .map(([key, value]) => ({ key, value }))
      ),

    readNextDue: tables.statement((now) => ({
      nowMs: now,
      orchestratorMs: earliest(now, [
        ...[...store.messages.values()].map(({ visibleAtMs }) => visibleAtMs),
        ...[...store.limits.orchestration.values()].flatMap(({ nextMs }) => nextMs ?? []),
        // Pauses.
        ...[...store.locks.values()].filter(({ token, untilMs }) => token === "" && untilMs < tables.noEndMs).map((
          { untilMs }
        ) => untilMs)
      ]),
      workerMs: earliest(now, [
        ...[...store.activities.values()].map(({ visibleAtMs }) => visibleAtMs),
        ...[...store.limits.activity.values()].flatMap(({ nextMs }) => nextMs ?? [])
      ]),
      paused: tables.pausesOf(store)
    })),

    readPaused: Effect.sync(() => tables.pausesOf(store)),

    pauseListeners: store.pauseListeners,

    readLocks: tables.statement((now) => ({
      nowMs: now,
      orchestrator: lockTimes(
        now,
        [...store.messages.values()].filter(({ visibleAtMs }) => visibleAtMs <= now).map(({ instanceId, lock }) => {
          const ofInstance = store.locks.get(instanceId)
          return Math.max(
            lock?.untilMs ?? 0,
            ofInstance !== undefined && ofInstance.token !== "" ? ofInstance.untilMs : 0
          )
        })
      ),
      worker: lockTimes(
        now,
        [...store.activities.values()].filter(({ visibleAtMs }) => visibleAtMs <= now).map(({ lock, sessionId }) =>
          Math.max(lock?.untilMs ?? 0, sessionId === null ? 0 : store.sessions.get(sessionId)?.untilMs ?? 0)
        )
      )
    })),

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
          valueBytes: values.reduce((sum, value) => sum + valueBytes(value), 0)
        }
      }),

    readBacklog: () =>
      tables.statement((now): Backlog => {
        const messages = [...store.messages.values()].filter((message) =>
          askedBy(store, message) !== undefined || store.history.has(message.instanceId)
        )
        const byTag = new Map<string | null, Array<tables.Activity>>()
        for (const activity of store.activities.values()) {
          tables.entry(byTag, activity.tag, () => new Array<tables.Activity>()).push(activity)
        }
        return {
          orchestrator: waiting(
            messages.map((message) => {
              const lockedUntilMs = store.locks.get(message.instanceId)?.untilMs ?? 0
              return Math.max(sinceMs(message), message.createdAtMs, lockedUntilMs)
            }),
            now
          ),
          worker: [...byTag].map(([tag, activities]) => ({ tag, ...waiting(activities.map(sinceMs), now) }))
            .filter(({ depth }) => depth > 0)
            .sort((a, b) => a.tag === null ? 1 : b.tag === null || a.tag < b.tag ? -1 : 1),
          activeInstances: [...store.executions.values()]
            .reduce((sum, all) => sum + [...all.values()].filter(({ status }) => status === "Running").length, 0),
          blockedInstances: [...store.blocks.keys()].filter((id) => tables.blockOf(store, id) !== undefined).length,
          limitedActivities: [...store.activities.values()].filter(isParked).length,
          limitedInstances: [...store.instances.values()]
            .filter((one) => limitedInstances.isParked(one) && one.place!.dueAtMs <= now).length
        }
      })
  }) satisfies Partial<ProviderDriver["Service"]>

// internal

/** From when on a row can be claimed. */
const sinceMs = ({ lock, visibleAtMs }: tables.Queued) => Math.max(visibleAtMs, lock?.untilMs ?? 0)

const waiting = (since: ReadonlyArray<number>, now: number) => {
  const claimable = since.filter((ms) => ms <= now)
  return { depth: claimable.length, oldestAgeMs: claimable.length === 0 ? null : now - Math.min(...claimable) }
}

const lockTimes = (now: number, until: ReadonlyArray<number>): LockTimes | null => {
  const live = until.filter((time) => time > now)
  return live.length === 0 ? null : { firstMs: Math.min(...live), lastMs: Math.max(...live) }
}

/** Later than now. */
const earliest = (now: number, times: ReadonlyArray<number>): number | null => {
  const next = Math.min(...times.filter((time) => time > now))
  return next === Infinity ? null : next
}
