/**
 * The storage contract over plain data and `Clock`: for tests in virtual time, and as the contract's second statement.
 *
 * Nothing survives the process, and only one process can use it. Every operation is one synchronous step, so what a
 * database needs locks for holds by itself; leases, visibility, attempts and order are those of the contract.
 *
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Result from "effect/Result"
import * as SemVer from "effect/SemVer"
import * as Stream from "effect/Stream"
import type { CoreVersion, TagFilter, VersionRange } from "../model/Instance.ts"
import * as WorkItem from "../model/WorkItem.ts"
import { AdminDriver } from "./AdminDriver.ts"
import { makeAdmin } from "./internal/memory/admin.ts"
import * as tables from "./internal/memory/tables.ts"
import { ProviderDriver, suspectAfter } from "./ProviderDriver.ts"
import type {
  ActivityKey,
  ClaimedInstance,
  ClaimedWorkItem,
  EncodedActivity,
  EncodedMessage,
  FetchOrchestrationItems,
  FetchWorkItems,
  OrchestrationAck,
  Settled,
  StartedInstance
} from "./ProviderDriver.ts"
import { DuplicateEvent, ProviderError } from "./ProviderError.ts"

/**
 * An empty store.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (): ProviderDriver["Service"] => makeOver(tables.make())

const makeOver = (store: tables.Tables): ProviderDriver["Service"] => {
  const { activities, changed, executions, instances, leases, messages, sessions, stored } = store
  let lastId = 0
  let lastToken = 0

  /** One statement: everything it does happens at one time of the clock. */
  const statement = <A>(f: (now: number) => A) => Effect.map(Clock.currentTimeMillis, (now) => f(Math.floor(now)))

  const createExecution = (instanceId: string, executionId: number, now: number) => {
    const ofInstance = tables.entry(executions, instanceId, () => new Map<number, tables.Execution>())
    return tables.entry(ofInstance, executionId, (): tables.Execution => ({
      status: "Running",
      output: null,
      startedAtMs: now,
      completedAtMs: null,
      pinned: null
    }))
  }

  const eventsOf = (instanceId: string, executionId: number) =>
    tables.entry(
      tables.entry(store.history, instanceId, () => new Map<number, Map<number, string>>()),
      executionId,
      () => new Map<number, string>()
    )
  const isTaken = (instanceId: string, executionId: number, history: OrchestrationAck["history"]) => {
    const known = store.history.get(instanceId)?.get(executionId)
    const ids = history.map(({ eventId }) => eventId)
    return new Set(ids).size < ids.length || ids.some((id) => known?.has(id))
  }

  const enqueueMessage = (message: EncodedMessage, now: number) => {
    const visibleAtMs = Math.max(message.visibleAtMs ?? 0, now + (message.delayMs ?? 0))
    const { instanceId, workItem } = message
    messages.set(++lastId, { instanceId, workItem, createdAtMs: now, visibleAtMs, lock: null, attemptCount: 0 })
  }
  /** What begins an execution is in its first batch, however many messages wait for it. */
  const earliest = (instanceId: string) =>
    Math.min(
      ...[...messages.values()].filter((message) => message.instanceId === instanceId && message.lock === null)
        .map(({ visibleAtMs }) => visibleAtMs - 1)
    )
  /** A message for an instance that has not begun waits for a start that is not due yet. */
  const waitForStart = (message: tables.Message) => {
    if (!instances.has(message.instanceId) || store.history.has(message.instanceId)) return
    for (const { instanceId, visibleAtMs, workItem } of messages.values()) {
      if (instanceId !== message.instanceId || !isStart(workItem)) continue
      if (visibleAtMs > message.visibleAtMs) message.visibleAtMs = visibleAtMs + 1
    }
  }
  const queuedStarts = () =>
    new Set([...messages.values()].filter(({ workItem }) => isStart(workItem)).map(({ instanceId }) => instanceId))
  const startInstance = (
    instanceId: string,
    start: StartedInstance,
    now: number,
    queued: ReadonlySet<string> = queuedStarts()
  ) => {
    if (instances.has(instanceId) || executions.has(instanceId) || queued.has(instanceId)) return false
    instances.set(instanceId, {
      ...newInstance(start.orchestrationName, now),
      asksFor: start.orchestrationVersion,
      parentInstanceId: start.parentInstanceId
    })
    createExecution(instanceId, 1, now).pinned = start.pinnedVersion
    return true
  }
  const enqueueActivity = (activity: EncodedActivity, now: number) =>
    activities.set(++lastId, { ...activity, visibleAtMs: now, lock: null, attemptCount: 0 })

  /** The lease of a token as it was handed out, `<secret>.<instance>`; expired ones only where that does not matter. */
  const leaseOf = (lockToken: string, now: number | "any time") => {
    const instanceId = lockToken.slice(lockToken.indexOf(".") + 1)
    const lease = leases.get(instanceId)
    const isOurs = lease?.token === lockToken && (now === "any time" || lease.untilMs > now)
    return isOurs ? { instanceId, lease } : undefined
  }
  const batchOf = (instanceId: string, token: string) =>
    [...messages].filter(([, message]) => message.instanceId === instanceId && message.lock?.token === token)

  /** The row of a token as it was handed out, `<row id>.<secret>`. */
  const activityOf = (lockToken: string, now: number | "any time") => {
    const id = Number(lockToken.slice(0, lockToken.indexOf(".")))
    const activity = activities.get(id)
    const isOurs = activity?.lock?.token === lockToken && (now === "any time" || activity.lock.untilMs > now)
    return isOurs ? { id, activity } : undefined
  }
  const stampSession = (activity: tables.Activity, now: number) => {
    const session = activity.sessionId === null ? undefined : sessions.get(activity.sessionId)
    if (session !== undefined && session.untilMs > now) session.lastActivityAtMs = now
  }

  const claim = (
    instanceId: string,
    now: number,
    { historyLimit, lockTimeoutMs }: FetchOrchestrationItems,
    maxBytes: number
  ): ClaimedInstance | undefined => {
    const batch = upTo(
      maxBytes,
      [...messages].filter(([, message]) =>
        message.instanceId === instanceId && message.visibleAtMs <= now && tables.isFree(message, now)
      )
    )
    if (batch.length === 0) return undefined
    const lease = { token: `${++lastToken}.${instanceId}`, untilMs: now + lockTimeoutMs }
    leases.set(instanceId, lease)
    for (const [, message] of batch) {
      message.lock = lease
      message.attemptCount++
    }
    const instance = instances.get(instanceId)
    const executionId = instance?.executionId ?? Math.max(1, tables.newestExecution(store, instanceId))
    const history = tables.historyOf(store, instanceId, executionId)
    const isWholeHistory = historyLimit === undefined || instance === undefined ||
      (tables.lastEventId(store, instanceId, executionId) <= historyLimit && sumOfBytes(history) <= maxBytes)
    return {
      instanceId,
      lockToken: lease.token,
      nowMs: now,
      instance: instance === undefined
        ? null
        : { orchestrationName: instance.name, orchestrationVersion: instance.version },
      executionId,
      history: isWholeHistory ? history : history.slice(-1),
      isWholeHistory,
      messages: batch.map(([id, { attemptCount, createdAtMs, workItem }]) => ({
        id,
        workItem,
        enqueuedAtMs: createdAtMs,
        attemptCount
      })),
      keyValues: [...stored.get(instanceId) ?? []].map(([key, { lastUpdatedAtMs, value }]) => ({
        key,
        value,
        lastUpdatedAtMs
      }))
    }
  }

  const ackAll = (acks: ReadonlyArray<OrchestrationAck>, now: number): ReadonlyArray<Settled> => {
    const done: Array<StoredTurn> = []
    const queued = queuedStarts()
    const answers = acks.map((turn) => ack(turn, done, now))
    // In steps over the whole set, as one statement does it: no turn sees another one half stored.
    for (const { turn } of done) turn.cancelledActivities.forEach(cancelActivity)
    for (const { instanceId, turn } of done) {
      if (turn.status !== null && turn.status !== "Running") dropMessages(instanceId, now, isTimer)
    }
    for (const { turn } of done) {
      for (const { instanceId, start } of turn.orchestratorItems) {
        if (start !== undefined) startInstance(instanceId, start, now, queued)
      }
    }
    const before = new Map(
      done.flatMap(({ turn }) => turn.orchestratorItems).map(({ instanceId }) => [instanceId, earliest(instanceId)])
    )
    for (const { turn } of done) {
      for (const item of turn.orchestratorItems) {
        const { instanceId } = item
        sendMessage(item, now, instances.has(instanceId) ? before.get(instanceId)! : earliest(instanceId))
      }
    }
    for (const { instanceId, turn: { cancelledTimers = [] } } of done) {
      dropMessages(instanceId, now, (workItem) => cancelledTimers.includes(workItem))
    }
    return answers
  }

  const ack = (turn: OrchestrationAck, done: Array<StoredTurn>, now: number): Settled => {
    const found = leaseOf(turn.lockToken, now)
    if (found === undefined) return "LockLost"
    const { instanceId, lease } = found
    if (turn.executionId !== null) {
      if (isTaken(instanceId, turn.executionId, turn.history)) return "DuplicateEvent"
      storeTurn(turn, instanceId, turn.executionId, now)
      done.push({ turn, instanceId })
    }
    for (const [id, message] of batchOf(instanceId, lease.token)) {
      if (turn.left?.includes(id) !== true) messages.delete(id)
      else {
        message.lock = null
        message.attemptCount = 0
      }
    }
    leases.delete(instanceId)
    return "Done"
  }

  const storeTurn = (turn: OrchestrationAck, instanceId: string, executionId: number, now: number) => {
    if (turn.orchestrationName !== null && turn.orchestrationVersion !== null) {
      const instance = tables.entry(instances, instanceId, () => newInstance(turn.orchestrationName!, now))
      instance.name = turn.orchestrationName
      instance.version = turn.orchestrationVersion
      instance.parentInstanceId ??= turn.parentInstanceId
    }
    const isNew = tables.executionOf(store, instanceId, executionId) === undefined
    const execution = createExecution(instanceId, executionId, now)
    const instance = instances.get(instanceId)
    if (instance !== undefined) {
      instance.executionId = Math.max(instance.executionId, executionId)
      instance.updatedAtMs = now
      if (isNew || turn.orchestrationName !== null || turn.pinnedVersion !== null) {
        instance.asksFor = instance.version
        instance.takesNewer = false
      }
      if (turn.status === "ContinuedAsNew") {
        instance.takesNewer = (turn.nextVersion ?? null) === null
        instance.asksFor = turn.nextVersion ?? instance.version
      }
      if (turn.customStatus !== null) {
        instance.customStatus = turn.customStatus.value
        instance.customStatusVersion++
      }
    }
    for (const { eventData, eventId } of turn.history) eventsOf(instanceId, executionId).set(eventId, eventData)
    if (turn.status !== null) {
      execution.status = turn.status
      execution.output = turn.output
      execution.completedAtMs = turn.status === "Running" ? null : now
    }
    execution.pinned = turn.pinnedVersion ?? execution.pinned
    changeKeyValues(turn, instanceId, executionId, now)
    for (const item of turn.workerItems) enqueueActivity(item, now)
  }

  const cancelActivity = (key: ActivityKey) => {
    for (const [id, activity] of activities) if (isActivity(activity, key)) activities.delete(id)
  }

  const sendMessage = (item: EncodedMessage, now: number, before: number) => {
    enqueueMessage(item, now)
    const message = messages.get(lastId)!
    // In an ack a time in the past is kept as it is.
    if (item.visibleAtMs !== null && item.delayMs === null) message.visibleAtMs = item.visibleAtMs
    if (message.visibleAtMs <= now && (isStart(item.workItem) || isContinueAsNew(item.workItem))) {
      message.visibleAtMs = Math.min(message.visibleAtMs, before)
    }
  }

  /** Of what is not due yet. */
  const dropMessages = (instanceId: string, now: number, isMeant: (workItem: string) => boolean) => {
    for (const [id, message] of messages) {
      const isDue = message.visibleAtMs <= now
      if (message.instanceId === instanceId && !isDue && isMeant(message.workItem)) messages.delete(id)
    }
  }

  const changeKeyValues = (turn: OrchestrationAck, instanceId: string, executionId: number, now: number) => {
    const changes = tables.entry(changed, instanceId, () => new Map<string, tables.ChangedValue>())
    const values = tables.entry(stored, instanceId, () => new Map<string, tables.StoredValue>())
    for (const change of turn.keyValues) {
      if (change.action === "set") {
        changes.set(change.key, { value: change.value, lastUpdatedAtMs: change.lastUpdatedAtMs })
      } else {
        const keys = change.action === "clear_key" ? [change.key] : [...changes.keys(), ...values.keys()]
        for (const key of keys) changes.set(key, { value: null, lastUpdatedAtMs: now })
      }
    }
    if (turn.status === null || turn.status === "Running") return
    for (const [key, { lastUpdatedAtMs, value }] of changes) {
      if (value === null) values.delete(key)
      else values.set(key, { value, lastUpdatedAtMs, executionId })
    }
    changes.clear()
  }

  /** Whether the owner may take the activity, and, when it may, its session with it. */
  const takeSession = (
    activity: tables.Activity,
    request: FetchWorkItems["session"],
    now: number,
    bound: Set<string>
  ) => {
    if (activity.sessionId === null) return true
    if (request === null) return false
    const session = sessions.get(activity.sessionId)
    const isLive = session !== undefined && session.untilMs > now
    if (isLive && session.workerId !== request.workerId) return false
    if (!isLive && !bound.has(activity.sessionId)) {
      if (bound.size >= (request.maxNew ?? Infinity)) return false
      bound.add(activity.sessionId)
    }
    sessions.set(activity.sessionId, {
      workerId: request.workerId,
      untilMs: now + request.lockTimeoutMs,
      lastActivityAtMs: now
    })
    return true
  }

  /** Whether a process that serves `served` may take the message; undefined when nothing says what it is for. */
  const isServed = (
    { instanceId, workItem }: tables.Message,
    served: FetchOrchestrationItems["serves"]
  ): boolean | undefined => {
    const asked = instances.get(instanceId) ?? asks(workItem)
    if (asked === undefined) return undefined
    return served === undefined || served.some(({ name, versions }) =>
      name === asked.name && (
        asked.asksFor === null || versions.includes(asked.asksFor) ||
        (asked.takesNewer && versions.some((version) => !isOlder(version, asked.asksFor!)))
      )
    )
  }

  return ProviderDriver.of({
    name: "memory",

    fetchOrchestrationItems: (options) =>
      statement((now) => {
        const {
          limit,
          maxBytes = defaultMaxBytes,
          orphans = false,
          serves,
          suspects = true,
          takesOver = true,
          versions
        } = options
        const visible = [...messages]
          .filter(([, message]) =>
            message.visibleAtMs <= now && (
              isServed(message, serves) ??
                (serves === undefined && (orphans || store.history.has(message.instanceId)))
            )
          )
          .sort(([a, one], [b, other]) => one.visibleAtMs - other.visibleAtMs || a - b)
        const candidates = new Set(visible.map(([, { instanceId }]) => instanceId))
        const claimed: Array<ClaimedInstance> = []
        let bytes = 0
        for (const instanceId of candidates) {
          if (claimed.length === limit || bytes >= maxBytes) break
          const lease = leases.get(instanceId)
          const pinned = tables.executionOf(store, instanceId, instances.get(instanceId)?.executionId ?? 0)?.pinned ??
            null
          if (lease !== undefined && (lease.untilMs > now || !takesOver && lease.token !== "")) continue
          if (versions !== null && pinned !== null && !isWithin(pinned, versions)) continue
          const first = visible.find(([, message]) => message.instanceId === instanceId)!
          const isSuspect = first[1].attemptCount >= suspectAfter
          if (isSuspect && (!suspects || claimed.length > 0)) continue
          const item = claim(instanceId, now, options, maxBytes - bytes)
          if (item === undefined) continue
          claimed.push(item)
          bytes += sumOfBytes(item.messages.map(({ workItem }) => workItem))
          if (isSuspect) break
        }
        return claimed
      }),

    ackOrchestrationItems: (acks) => statement((now) => ackAll(acks, now)),

    abandonOrchestrationItems: (items) =>
      statement((now) =>
        items.map(({ delayMs, ignoreAttempt, lockToken }) => {
          const found = leaseOf(lockToken, "any time")
          if (found === undefined) return "LockLost"
          const isPaused = delayMs !== null && delayMs > 0
          for (const [, message] of batchOf(found.instanceId, lockToken)) {
            giveBack(message, ignoreAttempt)
          }
          // A pause is a lock without a holder: what comes meanwhile waits behind the batch.
          if (isPaused) leases.set(found.instanceId, { token: "", untilMs: now + delayMs })
          else leases.delete(found.instanceId)
          return "Done"
        })
      ),

    renewOrchestrationItemLocks: (items) =>
      statement((now) =>
        items.map(({ extendForMs, lockToken }) => {
          const found = leaseOf(lockToken, "any time")
          if (found === undefined) return "LockLost"
          found.lease.untilMs = now + extendForMs
          return "Done"
        })
      ),

    deferMessages: (items) =>
      statement((now) =>
        items.map(({ delayMs, ids, lockToken }) => {
          const found = leaseOf(lockToken, "any time")
          if (found === undefined) return "LockLost"
          for (const [id, message] of batchOf(found.instanceId, lockToken)) {
            if (!ids.includes(id)) continue
            giveBack(message, true)
            message.visibleAtMs = now + delayMs
          }
          return "Done"
        })
      ),

    enqueueForOrchestrator: (items) =>
      statement((now) =>
        items.forEach((item) => {
          const begins = isStart(item.workItem) || isContinueAsNew(item.workItem)
          const before = earliest(item.instanceId)
          enqueueMessage(item, now)
          const message = messages.get(lastId)!
          if (!begins) waitForStart(message)
          else if (message.visibleAtMs <= now) message.visibleAtMs = Math.min(message.visibleAtMs, before)
        })
      ),

    enqueueForWorker: (items) => statement((now) => items.forEach((item) => enqueueActivity(item, now))),

    startOrchestrations: (starts) =>
      statement((now) =>
        starts.map(({ delayMs, instanceId, workItem, ...start }) => {
          const before = earliest(instanceId)
          const earlier = [...messages.values()].filter((message) =>
            message.instanceId === instanceId && message.lock === null
          )
          if (!startInstance(instanceId, { ...start, parentInstanceId: null }, now)) return "AlreadyExists"
          enqueueMessage({ instanceId, workItem, visibleAtMs: null, delayMs }, now)
          const first = messages.get(lastId)!
          if (first.visibleAtMs <= now) first.visibleAtMs = Math.min(now, before)
          for (const message of earlier) message.visibleAtMs = Math.max(message.visibleAtMs, first.visibleAtMs + 1)
          return "Started"
        })
      ),

    sweepMessages: ({ maxAgeMs }) =>
      statement((now) => {
        let deleted = 0
        const begun = queuedStarts()
        for (const [id, message] of messages) {
          const { instanceId, visibleAtMs } = message
          if (visibleAtMs > now - maxAgeMs || store.history.has(instanceId) || begun.has(instanceId)) continue
          if (isServed(message, undefined) !== undefined) continue
          messages.delete(id)
          deleted++
        }
        return { deleted, next: null }
      }),

    fetchWorkItems: ({ activities: names, limit, lockTimeoutMs, session, suspects = true, tags, takesOver = true }) =>
      statement((now) => {
        const claimed: Array<ClaimedWorkItem> = []
        const bound = new Set<string>()
        const inOrder = [...activities].sort(([a, one], [b, other]) => one.visibleAtMs - other.visibleAtMs || a - b)
        for (const [id, activity] of inOrder) {
          if (claimed.length === limit) break
          if (activity.visibleAtMs > now || !tables.isFree(activity, now) || !accepts(tags, activity.tag)) continue
          if (!takesOver && activity.lock !== null) continue
          if (names !== undefined && !names.includes(activity.name)) continue
          const isSuspect = activity.attemptCount >= suspectAfter
          if (isSuspect && (!suspects || claimed.length > 0)) continue
          if (!takeSession(activity, session, now, bound)) continue
          const lockToken = `${id}.${++lastToken}`
          activity.lock = { token: lockToken, untilMs: now + lockTimeoutMs }
          activity.attemptCount++
          claimed.push({ workItem: activity.workItem, lockToken, attemptCount: activity.attemptCount })
          if (isSuspect) break
        }
        return claimed
      }),

    ackWorkItems: (items) =>
      statement((now) =>
        items.map(({ completion, lockToken }) => {
          const found = activityOf(lockToken, now)
          if (found === undefined) return "LockLost"
          activities.delete(found.id)
          stampSession(found.activity, now)
          if (completion !== null) enqueueMessage({ ...completion, visibleAtMs: null, delayMs: null }, now)
          return "Done"
        })
      ),

    abandonWorkItems: (items) =>
      statement((now) =>
        items.map(({ delayMs, ignoreAttempt, lockToken }) => {
          const found = activityOf(lockToken, "any time")
          if (found === undefined) return "LockLost"
          giveBack(found.activity, ignoreAttempt)
          if (delayMs !== null && delayMs > 0) found.activity.visibleAtMs = now + delayMs
          return "Done"
        })
      ),

    renewWorkItemLocks: (items) =>
      statement((now) =>
        items.map(({ lockToken, sufficientMs = Infinity, ...item }) => {
          const found = activityOf(lockToken, "any time")
          const isSufficient = found?.activity.sessionId === null && found.activity.lock!.untilMs - now >= sufficientMs
          return { ...item, found, isSufficient }
        }).map(({ extendForMs, found, isSufficient }) => {
          if (found === undefined) return "LockLost"
          if (isSufficient) return "Done"
          found.activity.lock!.untilMs = now + extendForMs
          stampSession(found.activity, now)
          return "Done"
        })
      ),

    readHistory: ({ executionId, instanceId }) =>
      Effect.sync(() =>
        tables.historyOf(store, instanceId, executionId ?? Math.max(1, tables.newestExecution(store, instanceId)))
      ),

    appendHistory: ({ executionId, history, instanceId }) =>
      Effect.suspend(() => {
        if (isTaken(instanceId, executionId, history)) {
          const reason = new DuplicateEvent({ instanceId, executionId })
          return Effect.fail(new ProviderError({ operation: "appendHistory", reason }))
        }
        for (const { eventData, eventId } of history) eventsOf(instanceId, executionId).set(eventId, eventData)
        return Effect.void
      }),

    readInstances: (instanceIds) =>
      Effect.sync(() => instanceIds.flatMap((instanceId) => tables.stateOf(store, instanceId) ?? [])),

    readKeyValues: ({ instanceId, key }) =>
      Effect.sync(() =>
        [...tables.visibleValues(store, instanceId)]
          .filter(([name]) => key === null || name === key)
          .map(([key, value]) => ({ key, value }))
      ),

    readInstanceStats: (instanceId) =>
      Effect.sync(() => {
        const instance = instances.get(instanceId)
        if (instance === undefined) return null
        const history = tables.historyOf(store, instanceId, instance.executionId)
        const values = [...tables.visibleValues(store, instanceId).values()]
        return {
          eventCount: history.length,
          historyBytes: sumOfBytes(history),
          firstEvent: history[0] ?? null,
          keyCount: values.length,
          valueBytes: sumOfBytes(values)
        }
      }),

    renewSessionLocks: ({ extendForMs, idleTimeoutMs, workerIds }) =>
      statement((now) => {
        const live = [...sessions.values()].filter((session) =>
          workerIds.includes(session.workerId) && session.untilMs > now &&
          session.lastActivityAtMs > now - idleTimeoutMs
        )
        for (const session of live) session.untilMs = now + extendForMs
        return live.length
      }),

    cleanupOrphanedSessions: statement((now) => {
      const needed = new Set([...activities.values()].map(({ sessionId }) => sessionId))
      const orphans = [...sessions].filter(([id, session]) => session.untilMs < now && !needed.has(id))
      for (const [id] of orphans) sessions.delete(id)
      return orphans.length
    }),

    wakeups: Stream.never
  })
}

/**
 * An empty store for as long as the layer lives.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<ProviderDriver | AdminDriver> = Layer.unwrap(
  Effect.sync(() => layerOver(tables.make()))
)

/**
 * Over tables that somebody else looks into, too.
 *
 * @internal
 */
export const layerOver = (store: tables.Tables): Layer.Layer<ProviderDriver | AdminDriver> =>
  Layer.succeedContext(Context.make(ProviderDriver, makeOver(store)).pipe(Context.add(AdminDriver, makeAdmin(store))))

// internal

/** The lost timers of an ended execution would wait for their time, wake the instance, and be dropped then. */
const isTimer = (workItem: string) => workItem.startsWith(`{"TimerFired"`)

const isContinueAsNew = (workItem: string) => workItem.startsWith(`{"ContinueAsNew"`)

const isStart = (workItem: string) => workItem.startsWith(`{"StartOrchestration"`)

/** What a start or a continue-as-new asks for. */
const asks = (workItem: string) => {
  if (!isStart(workItem) && !isContinueAsNew(workItem)) return undefined
  const item = Result.getOrUndefined(WorkItem.decode(workItem))
  return item?._tag === "StartOrchestration" || item?._tag === "ContinueAsNew"
    ? { name: item.orchestration, asksFor: item.version, takesNewer: false }
    : undefined
}

const defaultMaxBytes = 16 * 1024 * 1024

/** The first ones to become visible, until they have so many bytes of text; at least one. In the order of ids. */
const upTo = (maxBytes: number, batch: ReadonlyArray<[number, tables.Message]>) => {
  let bytes = 0
  return [...batch].sort(([a, one], [b, other]) => one.visibleAtMs - other.visibleAtMs || a - b)
    .filter(([, { workItem }]) => {
      const isWithin = bytes < maxBytes
      bytes += sumOfBytes([workItem])
      return isWithin
    })
    .sort(([a], [b]) => a - b)
}

const isOlder = (version: string, than: string): boolean => {
  const [one, other] = [SemVer.parse(version), SemVer.parse(than)]
  return Result.isSuccess(other) && (Result.isFailure(one) || SemVer.isLessThan(one.success, other.success))
}

interface StoredTurn {
  readonly turn: OrchestrationAck
  readonly instanceId: string
}

const newInstance = (name: string, now: number): tables.Instance => ({
  name,
  version: null,
  parentInstanceId: null,
  executionId: 1,
  customStatus: null,
  customStatusVersion: 0,
  asksFor: null,
  takesNewer: false,
  createdAtMs: now,
  updatedAtMs: now
})

const giveBack = (row: tables.Queued, ignoreAttempt: boolean) => {
  row.lock = null
  if (ignoreAttempt) row.attemptCount = Math.max(0, row.attemptCount - 1)
}

const isActivity = (activity: tables.Activity, key: ActivityKey) =>
  activity.instanceId === key.instanceId && activity.executionId === key.executionId &&
  activity.activityId === key.activityId

const accepts = (filter: TagFilter, tag: string | null): boolean => {
  switch (filter._tag) {
    case "DefaultOnly":
      return tag === null
    case "Tags":
      return tag !== null && filter.tags.includes(tag)
    case "DefaultAnd":
      return tag === null || filter.tags.includes(tag)
    case "Any":
      return true
    case "None":
      return false
  }
}

const isWithin = (version: CoreVersion, { max, min }: VersionRange) =>
  order(min, version) <= 0 && order(version, max) <= 0

const order = (a: CoreVersion, b: CoreVersion) => a.major - b.major || a.minor - b.minor || a.patch - b.patch

const sumOfBytes = (texts: ReadonlyArray<string>) =>
  texts.reduce((sum, text) => sum + new TextEncoder().encode(text).length, 0)
