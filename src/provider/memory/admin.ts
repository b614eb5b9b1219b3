/**
 * The management driver over the tables of the memory driver.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { meets } from "../../model/shared/attributes.ts"
import type { Condition } from "../../model/shared/attributes.ts"
import * as coreVersion from "../../model/shared/coreVersion.ts"
import { groupsOf } from "../../model/shared/groups.ts"
import { kinds } from "../../model/shared/limits.ts"
import { keyOf } from "../../model/shared/pauses.ts"
import { AdminDriver } from "../AdminDriver.ts"
import type {
  CutOutcome,
  DeleteOutcome,
  HoldOutcome,
  Listing,
  ListOrder,
  ListPosition,
  PauseOutcome,
  QueueLoad,
  QueuePlace,
  Selection
} from "../AdminDriver.ts"
import * as deletions from "./deletions.ts"
import * as limitedInstances from "./limitedInstances.ts"
import * as limits from "./limits.ts"
import * as messagesOf from "./messages.ts"
import * as readsOf from "./reads.ts"
import * as streams from "./streams.ts"
import * as tables from "./tables.ts"
import * as texts from "./texts.ts"

export const make = (store: tables.Tables): AdminDriver["Service"] =>
  AdminDriver.of({
    ...reads(store),
    ...queues(store),
    ...pauses(store),
    ...limitsOf(store),
    ...actions(store),
    ...ofDeletions(store),
    readHistory: readsOf.make(store).readHistory
  })

const reads = (store: tables.Tables) => {
  const { executions, history, instances } = store
  return {
    listInstances: (listing) =>
      Effect.sync(() => {
        const found = listed(store, listing)
        const instanceIds = found.slice(0, listing.limit)
        const last = instanceIds.at(-1)
        return {
          instanceIds,
          next: last === undefined || found.length === instanceIds.length ? null : positionOf(store, last)
        }
      }),

    readInstances: (instanceIds) =>
      tables.statement((now) => instanceIds.flatMap((instanceId) => tables.stateOf(store, instanceId, now) ?? [])),

    readAttributes: (instanceIds) =>
      Effect.sync(() =>
        instanceIds.flatMap((instanceId) =>
          [...store.attributes.get(instanceId) ?? []]
            .sort(([a], [b]) => a < b ? -1 : 1)
            .map(([name, value]) => ({ instanceId, name, value }))
        )
      ),

    listStreams: (instanceId) => Effect.sync(() => streams.list(store, instanceId)),

    readChunks: streams.make(store).readChunks,

    listExecutions: (instanceId) =>
      Effect.sync(() => [...executions.get(instanceId)?.keys() ?? []].sort((a, b) => a - b)),

    readExecution: ({ executionId, instanceId }) =>
      Effect.sync(() => {
        const execution = tables.executionOf(store, instanceId, executionId)
        if (execution === undefined) return null
        const { completedAtMs, output, pinned: pinnedVersion, startedAtMs, status } = execution
        const eventCount = history.get(instanceId)?.get(executionId)?.size ?? 0
        return { executionId, status, output, startedAtMs, completedAtMs, eventCount, pinnedVersion }
      }),

    systemMetrics: Effect.sync(() => {
      const count = (status: string) =>
        [...instances.keys()].filter((id) => tables.currentOf(store, id)?.status === status).length
      const all = [...history.values()].flatMap((ofInstance) => [...ofInstance.values()])
      return {
        totalInstances: instances.size,
        totalExecutions: [...executions.values()].reduce((sum, ofInstance) => sum + ofInstance.size, 0),
        runningInstances: count("Running"),
        completedInstances: count("Completed"),
        failedInstances: count("Failed"),
        totalEvents: all.reduce((sum, events) => sum + events.size, 0)
      }
    }),

    countInstances: ({ attributes, byVersion, orchestrationName, status }) =>
      Effect.sync(() => {
        const counted = [...instances].filter(([id]) => meetsAll(store, id, attributes)).map((
          [id, { name, version }]
        ) => ({
          orchestrationName: name,
          status: tables.statusOf(store, id),
          orchestrationVersion: byVersion ? version : null
        })).filter((one) =>
          (status === null || one.status === status) &&
          (orchestrationName === null || one.orchestrationName === orchestrationName)
        )
        return [...groupsOf(counted, (one) => JSON.stringify(one)).values()].map((group) => ({
          ...group[0]!,
          instances: group.length,
          isEstimate: false
        }))
      }),

    listChildren: (instanceIds) => Effect.sync(() => deletions.childrenOf(store, instanceIds)),

    selectInstances: (selection) =>
      Effect.sync(() => [...instances.keys()].filter((id) => matches(store, id, selection)).slice(0, selection.limit))
  } satisfies Partial<AdminDriver["Service"]>
}

const queues = (store: tables.Tables) => {
  const { activities, locks, messages } = store
  const isLocked = ({ instanceId, lock }: tables.Message, now: number) =>
    [lock, locks.get(instanceId)].some((one) => one !== null && one !== undefined && one.untilMs > now)
  const isDue = ({ instanceId, visibleAtMs }: tables.Message, now: number) => {
    const lock = locks.get(instanceId)
    return visibleAtMs <= now && !(lock?.token === "" && lock.untilMs > now)
  }
  const inOrderOfDelivery = ([a, one]: [number, tables.Message], [b, other]: [number, tables.Message]) =>
    one.visibleAtMs - other.visibleAtMs || a - b
  const shown = (message: tables.Message, maxBytes: number, now: number) => ({
    kind: message.workItem.split(`"`)[1] ?? "",
    workItem: tables.bytesOf([message.workItem]) <= maxBytes ? message.workItem : null,
    ...placeOf(message, now)
  })
  return {
    queueDepths: Effect.map(Clock.currentTimeMillis, (now) => {
      const depth = (rows: Iterable<tables.Queued>) =>
        [...rows].filter((row) => row.visibleAtMs <= now && tables.isFree(row, now)).length
      return { orchestratorQueue: depth(messages.values()), workerQueue: depth(activities.values()) }
    }),

    countMessagesBeforeStart: Effect.sync(() =>
      [...messages.values()].filter((message) => messagesOf.askedBy(store, message) === undefined).length
    ),

    readMessagesBeforeStart: ({ limit, maxBytes }) =>
      tables.statement((now) =>
        [...messages].filter(([, message]) => messagesOf.askedBy(store, message) === undefined)
          .sort(inOrderOfDelivery)
          .slice(0, limit)
          .map(([, message]) => ({ instanceId: message.instanceId, ...shown(message, maxBytes, now) }))
      ),

    readOrchestrationLoads: tables.statement((now) =>
      [...groupsOf(messages.values(), (message) => JSON.stringify(programOf(store, message))).values()]
        .map((rows) => ({
          ...programOf(store, rows[0]!),
          ...loadOf(rows, now, (row) => isDue(row, now) && row.waits === undefined, (row) => isLocked(row, now))
        }))
        .sort((a, b) =>
          inOrder(a.orchestration, b.orchestration, "last") || inOrder(a.version, b.version, "first") ||
          Number(a.isOfRust) - Number(b.isOfRust)
        )
    ),

    readActivityLoads: tables.statement((now) =>
      [...groupsOf(activities.values(), ({ name, tag }) => JSON.stringify([name, tag])).values()]
        .map((rows) => {
          const { name: activity, tag } = rows[0]!
          return {
            activity,
            tag,
            ...loadOf(rows, now, (row) => row.visibleAtMs <= now, (row) => !tables.isFree(row, now)),
            limited: rows.filter(limits.isParked).length
          }
        })
        .sort((a, b) => inOrder(a.activity, b.activity, "last") || inOrder(a.tag, b.tag, "first"))
    ),

    listProcesses: tables.statement((now) =>
      [...store.processes.values()]
        .map(({ slotsInUse, ...process }) => ({
          ...process,
          seenMs: now,
          isAlive: true,
          slotsInUse: { ...slotsInUse(), atMs: now }
        }))
        .sort((a, b) => a.sinceMs - b.sinceMs || (a.id < b.id ? -1 : 1))
    ),

    readMessages: ({ instanceId, limit, maxBytes }) =>
      tables.statement((now) => {
        const ofInstance = [...messages].filter(([, message]) => message.instanceId === instanceId)
          .sort(inOrderOfDelivery)
          .map(([, message]) => message)
        const others = ofInstance.filter(({ workItem }) => !texts.isTimer(workItem)).slice(0, limit)
        return ofInstance.filter((message) => texts.isTimer(message.workItem) || others.includes(message))
          .map((message) => shown(message, maxBytes, now))
      }),

    readLimitWait: (instanceId) => Effect.sync(() => limitedInstances.waitOf(store, instanceId)),

    readActivities: (instanceId) =>
      tables.statement((now) =>
        [...activities.values()].flatMap((activity) => {
          const { activityId: eventId, executionId } = activity
          return activity.instanceId !== instanceId || executionId === null || eventId === null
            ? []
            : [{ executionId, eventId, ...placeOf(activity, now), waitsForLimit: limits.waitOf(store, activity) }]
        })
      )
  } satisfies Partial<AdminDriver["Service"]>
}

const limitsOf = (store: tables.Tables) =>
  ({
    setLimit: ({ changes, kind, name, replaces }) =>
      tables.statement((now) => {
        if (store.limits[kind].has(name) && !replaces) return false
        limits.set(store, kind, name, changes, now)
        tables.announce(store)
        return true
      }),

    removeLimit: ({ kind, name }) =>
      tables.statement((now) => {
        const isRemoved = limits.remove(store, kind, name, now)
        if (isRemoved) tables.announce(store)
        return isRemoved
      }),

    readLimits: ({ key, mostKeys, of }) =>
      tables.statement((now) =>
        kinds.filter((kind) => of === null || of.kind === kind).flatMap((kind) =>
          [...store.limits[kind].keys()].sort()
            .filter((name) => of === null || name === of.name)
            .flatMap((name) => limits.read(store, kind, name, key, mostKeys, now) ?? [])
        )
      )
  }) satisfies Partial<AdminDriver["Service"]>

const pauses = (store: tables.Tables) => {
  const announce = () => tables.announce(store)
  return {
    pause: ({ reason, target }) =>
      tables.statement((now): PauseOutcome => {
        if (target._tag === "Instance") {
          const { instanceId } = target
          if (!store.instances.has(instanceId)) return "NotFound"
          if (deletions.hasEnded(store, instanceId)) return "Ended"
          const lock = store.locks.get(instanceId)
          if (lock !== undefined && lock.token !== "") {
            for (const [, message] of messagesOf.batchOf(store, instanceId, lock.token)) {
              // A holder that died before counts.
              tables.abandon(message, lock.untilMs > now)
            }
          }
          store.locks.set(instanceId, { token: "", untilMs: tables.noEndMs })
        }
        const row = keyOf(target)
        const key = tables.pausedKey(row)
        store.paused.set(key, { ...row, reason, sinceMs: store.paused.get(key)?.sinceMs ?? now })
        announce()
        return "Paused"
      }),

    resume: (target) =>
      Effect.sync(() => {
        if (target._tag === "Instance") {
          const lock = store.locks.get(target.instanceId)
          if (lock?.token === "" && lock.untilMs >= tables.noEndMs) store.locks.delete(target.instanceId)
        }
        const wasPaused = store.paused.delete(tables.pausedKey(keyOf(target)))
        if (wasPaused) announce()
        return wasPaused
      }),

    readPaused: Effect.sync(() => tables.pausesOf(store)),

    countPausedInstances: Effect.sync(() =>
      [...store.paused.values()].filter(({ target }) => target === "instance").length
    )
  } satisfies Partial<AdminDriver["Service"]>
}

const actions = ({ actions }: tables.Tables) => ({
  recordAction: (action) =>
    tables.statement((now) => void actions.push({ ...action, id: `${actions.length + 1}`, atMs: now })),

  listActions: ({ before, limit }) =>
    Effect.sync(() =>
      actions.slice(0, before === null ? undefined : Math.max(0, Number(before) - 1)).toReversed().slice(0, limit)
    )
} satisfies Partial<AdminDriver["Service"]>)

const ofDeletions = (store: tables.Tables) => {
  const { executions, history, instances, locks } = store
  return {
    holdInstances: ({ holdForMs, instanceIds, mustHaveEnded }) =>
      Effect.map(Clock.currentTimeMillis, (now): HoldOutcome => {
        const running = mustHaveEnded.find((id) => !deletions.hasEnded(store, id))
        if (running !== undefined) return { _tag: "StillRunning", instanceId: running }
        for (const id of instanceIds) {
          // No claim hands out such a token.
          const isPaused = locks.get(id)?.token === "" && locks.get(id)!.untilMs >= tables.noEndMs
          if (!deletions.hasEnded(store, id) && !isPaused) locks.set(id, { token: "held", untilMs: now + holdForMs })
        }
        return {
          _tag: "Held",
          childIds: [
            ...new Set([...deletions.childrenOf(store, instanceIds), ...deletions.queuedChildrenOf(store, instanceIds)])
          ]
        }
      }),

    deleteInstances: ({ instanceIds, mustHaveEnded, updatedAtMs }) =>
      Effect.sync((): DeleteOutcome => {
        const isChanged = (id: string, i: number) =>
          updatedAtMs !== undefined && instances.has(id) && instances.get(id)!.updatedAtMs !== updatedAtMs[i]
        const running = mustHaveEnded.find((id, i) => !deletions.hasEnded(store, id) || isChanged(id, i))
        if (running !== undefined) return { _tag: "StillRunning", instanceId: running }
        const left = [...deletions.childrenOf(store, instanceIds), ...deletions.queuedChildrenOf(store, instanceIds)]
          .find((id) => !instanceIds.includes(id))
        return left === undefined ? deletions.remove(store, instanceIds) : { _tag: "ChildLeftBehind", instanceId: left }
      }),

    cutHistory: (cut) =>
      tables.statement((now): CutOutcome => {
        const { executionId, instanceId, keep } = cut
        const lock = locks.get(instanceId)
        if (lock !== undefined && lock.token !== "" && lock.untilMs > now) return "Locked"
        const instance = instances.get(instanceId)
        const isRead = instance?.executionId === executionId && cut.lastEventId > 0 &&
          tables.lastEventId(store, instanceId, executionId) === cut.lastEventId &&
          tables.executionOf(store, instanceId, executionId)?.status === cut.status
        if (!isRead) return "Changed"
        // The tasks of a test are not here.
        if (cut.tasks.length > 0) return "TaskMissing"
        // An operator's pause stays.
        if (lock?.untilMs !== tables.noEndMs) locks.delete(instanceId)
        store.blocks.delete(instanceId)
        store.attributes.delete(instanceId)
        tables.changeAttributes(store, instanceId, cut.attributes)
        if (instance.customStatus !== cut.customStatus) instance.customStatusVersion++
        instance.customStatus = cut.customStatus
        instance.updatedAtMs = now
        delete instance.limitName
        Object.assign(instance, limitedInstances.counted(store, instance.name))
        const execution = tables.executionOf(store, instanceId, executionId)
        if (execution !== undefined) Object.assign(execution, { status: "Running", output: null, completedAtMs: null })
        const events = history.get(instanceId)?.get(executionId)
        for (const eventId of events?.keys() ?? []) if (eventId > keep) events!.delete(eventId)
        tables.addEvents(store, instanceId, executionId, [cut.event])
        if (cut.stored !== null) {
          store.stored.set(instanceId, new Map(cut.stored.map(({ key, ...value }) => [key, value])))
        }
        store.changed.set(instanceId, new Map(cut.changed.map(({ key, ...value }) => [key, value])))
        for (const [id, activity] of store.activities) {
          const isCancelled = activity.instanceId === instanceId && activity.executionId === executionId &&
            cut.cancelledActivities.includes(activity.activityId ?? 0)
          if (isCancelled) limits.drop(store, id)
        }
        for (const [id, message] of store.messages) {
          const isWithdrawn = message.instanceId === instanceId && cut.withdrawn.includes(message.workItem)
          if (isWithdrawn) store.messages.delete(id)
        }
        for (const workItem of cut.messages.toReversed()) {
          store.messages.set(-(++store.lastRowId), {
            instanceId,
            workItem,
            visibleAtMs: now,
            createdAtMs: now,
            lock: null,
            attemptCount: 0
          })
        }
        return "Cut"
      }),

    forkInstance: ({ executionId, instanceId, ...fork }) =>
      tables.statement((now) => {
        const isTaken = instances.has(instanceId) || executions.has(instanceId) || history.has(instanceId) ||
          locks.has(instanceId) || [...store.messages.values()].some((message) => message.instanceId === instanceId) ||
          [store.stored, store.changed].some((values) => (values.get(instanceId)?.size ?? 0) > 0)
        if (isTaken) return false
        instances.set(instanceId, {
          ...tables.newInstance(fork.orchestrationName, now),
          version: fork.orchestrationVersion,
          asksFor: fork.orchestrationVersion,
          executionId,
          customStatus: fork.customStatus,
          customStatusVersion: fork.customStatus === null ? 0 : 1,
          limitKey: instances.get(fork.of)?.limitKey ?? "",
          ...limitedInstances.counted(store, fork.orchestrationName)
        })
        tables.changeAttributes(store, instanceId, fork.attributes)
        tables.createExecution(store, instanceId, executionId, now).pinned = fork.pinnedVersion
        tables.addEvents(store, instanceId, executionId, fork.history)
        store.stored.set(instanceId, new Map(fork.stored.map(({ key, ...value }) => [key, value])))
        store.changed.set(instanceId, new Map(fork.changed.map(({ key, ...value }) => [key, value])))
        for (const workItem of fork.messages) {
          messagesOf.insert(store, { instanceId, workItem, visibleAtMs: null, delayMs: null }, now)
        }
        return true
      }),

    pruneExecutions: ({ completedBeforeMs, instanceId, keepLast }) =>
      Effect.sync(() => {
        const ofInstance = executions.get(instanceId)
        const current = instances.get(instanceId)?.executionId
        const newest = [...ofInstance?.keys() ?? []].sort((a, b) => b - a).slice(0, keepLast ?? 0)
        let executionsDeleted = 0
        let eventsDeleted = 0
        for (const [executionId, { completedAtMs, status }] of ofInstance ?? []) {
          const ended = completedBeforeMs === null || (completedAtMs !== null && completedAtMs < completedBeforeMs)
          if (executionId === current || status === "Running" || newest.includes(executionId) || !ended) continue
          ofInstance!.delete(executionId)
          executionsDeleted++
          eventsDeleted += history.get(instanceId)?.get(executionId)?.size ?? 0
          history.get(instanceId)?.delete(executionId)
        }
        // An empty map would count as an execution.
        if (ofInstance?.size === 0) executions.delete(instanceId)
        return { executionsDeleted, eventsDeleted }
      })
  } satisfies Partial<AdminDriver["Service"]>
}

// internal

const inOrder = (a: string | null, b: string | null, nulls: "first" | "last"): number =>
  a === b ? 0 : a === null || b === null ? (a === null) === (nulls === "first") ? -1 : 1 : a < b ? -1 : 1

const loadOf = <Row extends tables.Queued>(
  rows: ReadonlyArray<Row>,
  now: number,
  isDue: (row: Row) => boolean,
  isLocked: (row: Row) => boolean
): QueueLoad => {
  const due = rows.filter(isDue)
  const waiting = due.filter((row) => !isLocked(row))
  return {
    waiting: waiting.length,
    running: due.length - waiting.length,
    later: rows.length - due.length,
    oldestAgeMs: waiting.length === 0 ? null : now - Math.min(...waiting.map(({ visibleAtMs }) => visibleAtMs))
  }
}

/** Which code a message asks for. */
const programOf = (store: tables.Tables, message: tables.Message) => {
  const asked = messagesOf.askedBy(store, message)
  const version = asked?.asksFor ?? null
  const pinned = tables.currentOf(store, message.instanceId)?.pinned ?? null
  return {
    orchestration: asked?.name ?? null,
    version: version === null || asked?.takesNewer !== true ? version : `>=${version}`,
    isOfRust: pinned !== null && pinned.major < 1000
  }
}

const placeOf = (row: tables.Queued, now: number): QueuePlace => ({
  visibleAtMs: limits.isParked(row) ? row.createdAtMs : row.visibleAtMs,
  lockedUntilMs: tables.isFree(row, now) ? null : row.lock!.untilMs,
  attemptCount: row.attemptCount,
  isDue: row.visibleAtMs <= now
})

const positionOf = ({ instances }: tables.Tables, instanceId: string): ListPosition => ({
  createdAtUs: instances.get(instanceId)!.createdAtMs * 1000,
  instanceId
})

const orders: { readonly [Order in ListOrder]: (a: ListPosition, b: ListPosition) => number } = {
  newest: (a, b) => orders.oldest(b, a),
  oldest: (a, b) => a.createdAtUs - b.createdAtUs || orders.id(a, b),
  id: (a, b) => a.instanceId < b.instanceId ? -1 : a.instanceId > b.instanceId ? 1 : 0
}

/** All that follow the position, in order. */
const listed = (store: tables.Tables, listing: Listing): ReadonlyArray<string> => {
  const { after, orderBy } = listing
  return [...store.instances.keys()]
    .filter((id) => isListed(store, id, listing))
    .map((id) => positionOf(store, id))
    .filter((position) => after === null || orders[orderBy](position, after) > 0)
    .sort(orders[orderBy])
    .map(({ instanceId }) => instanceId)
}

const isRetrying = (store: tables.Tables, instanceId: string): boolean => {
  const { executionId } = store.instances.get(instanceId)!
  const events = tables.historyOf(store, instanceId, executionId).map((text) => JSON.parse(text))
  return [...store.activities.values()].some((row) =>
    row.instanceId === instanceId && row.executionId === executionId &&
    (row.attemptCount > 1 || row.workItem.includes("\"try_number\":"))
  ) || [...store.messages.values()].some(({ instanceId: owner, workItem }) => {
    if (owner !== instanceId || !texts.isTimer(workItem)) return false
    const { id } = JSON.parse(workItem).TimerFired
    return events.findLast(({ event_id, type }) => event_id < id && type !== "TimerCreated")?.type === "ActivityFailed"
  })
}

const isListed = (store: tables.Tables, instanceId: string, listing: Listing): boolean => {
  const { asksFor, createdAtMs, customStatus, name, parentInstanceId, takesNewer, updatedAtMs, version } = store
    .instances
    .get(instanceId)!
  const status = tables.statusOf(store, instanceId)
  const execution = tables.currentOf(store, instanceId)
  const contains = (text: string | null | undefined, part: string) =>
    text?.toLowerCase().includes(part.toLowerCase()) === true
  const isBetween = (ms: number, from: number | null, before: number | null) =>
    (from === null || ms >= from) && (before === null || ms < before)
  return (listing.status === null ||
    (listing.status === "Blocked"
      ? tables.blockOf(store, instanceId) !== undefined
      : listing.status === "Paused"
      ? status === "Running" && tables.stateOf(store, instanceId)?.pause !== null
      : listing.status === "Ended"
      ? status !== "Running"
      : status === listing.status)) &&
    (listing.orchestrationName === null || name === listing.orchestrationName) &&
    (listing.orchestrationVersion === null ||
      (version ?? (takesNewer ? null : asksFor)) === listing.orchestrationVersion) &&
    (listing.parentInstanceId === null || parentInstanceId === listing.parentInstanceId) &&
    (!listing.isRoot || parentInstanceId === null) &&
    (!listing.isRetrying || isRetrying(store, instanceId)) &&
    (listing.idPrefix === null || instanceId.startsWith(listing.idPrefix)) &&
    isBetween(createdAtMs, listing.createdFromMs, listing.createdBeforeMs) &&
    isBetween(updatedAtMs, listing.updatedFromMs, listing.updatedBeforeMs) &&
    (listing.endedBeforeMs === null || (execution?.completedAtMs ?? Infinity) < listing.endedBeforeMs) &&
    (!listing.exceptDuroxide || isOurs(execution)) &&
    meetsAll(store, instanceId, listing.attributes) &&
    (listing.customStatus === null || contains(customStatus, listing.customStatus)) &&
    (listing.error === null ||
      contains(
        status === "Failed" || status === "Cancelled"
          ? execution?.output?.replace(/^canceled: /, "")
          : tables.blockOf(store, instanceId)?.problem,
        listing.error
      ))
}

/** Whether this package runs it. */
const isOurs = (execution: ReturnType<typeof tables.currentOf>): boolean =>
  (execution?.pinned?.major ?? 0) >= coreVersion.supported.min.major

const meetsAll = (store: tables.Tables, instanceId: string, conditions: ReadonlyArray<Condition>): boolean =>
  conditions.every((condition) => meets(store.attributes.get(instanceId), condition))

const matches = (store: tables.Tables, instanceId: string, selection: Selection) => {
  const execution = tables.currentOf(store, instanceId)
  const completedAtMs = execution?.completedAtMs ?? null
  return (selection.status === null || tables.statusOf(store, instanceId) === selection.status) &&
    (!selection.exceptDuroxide || isOurs(execution)) &&
    (selection.instanceIds?.includes(instanceId) ?? true) &&
    (selection.completedBeforeMs === null ||
      (completedAtMs !== null && completedAtMs < selection.completedBeforeMs)) &&
    (!selection.endedRootsOnly ||
      (store.instances.get(instanceId)?.parentInstanceId === null && deletions.hasEnded(store, instanceId)))
}
