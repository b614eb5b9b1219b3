/**
 * Calls that are refused with `InvalidInput`.
 */
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"
import {
  ack,
  activity,
  cancel,
  delay,
  each,
  envelope,
  event,
  noDelays,
  noIds,
  noKeys,
  noLeases,
  second,
  session,
  start,
  tags,
  texts,
  tooLong,
  turn,
  versions,
  zero
} from "./values.ts"
import type { Call } from "./values.ts"

export const refused: ReadonlyArray<[string, Call]> = [
  ...each(
    "fetchOrchestrationItem lockTimeout",
    noLeases,
    (lockTimeout) => ({ provider }) =>
      provider.fetchOrchestrationItem({ lockTimeout, pollTimeout: Duration.zero, versions })
  ),
  ...each("fetchOrchestrationItem versions", noIds, (major) => ({ provider }) =>
    provider.fetchOrchestrationItem({
      lockTimeout: second,
      pollTimeout: Duration.zero,
      versions: Option.some({ min: zero, max: { ...zero, major } })
    })),
  ...each(
    "ackOrchestrationItem lockToken",
    texts,
    (token) => ({ provider }) => provider.ackOrchestrationItem(token, turn({}))
  ),
  ...each("ackOrchestrationItem executionId", { ...noIds, "0": 0 }, (executionId) => ack({ executionId })),
  ...each(
    "ackOrchestrationItem eventId",
    { ...noIds, "0": 0 },
    (eventId) => ack({ historyDelta: [event({ eventId })] })
  ),
  ...each("ackOrchestrationItem timestampMs", noIds, (timestampMs) => ack({ historyDelta: [event({ timestampMs })] })),
  ...each("ackOrchestrationItem event", texts, (output) => ack({ historyDelta: [event({ output })] })),
  ...each("ackOrchestrationItem output", texts, (output) => ack({ metadata: { output } })),
  ...each(
    "ackOrchestrationItem name",
    { ...texts, ...tooLong },
    (orchestrationName) => ack({ metadata: { orchestrationName } })
  ),
  ...each(
    "ackOrchestrationItem version",
    { ...texts, ...tooLong },
    (orchestrationVersion) => ack({ metadata: { orchestrationVersion } })
  ),
  ...each("ackOrchestrationItem parent", texts, (parentInstanceId) => ack({ metadata: { parentInstanceId } })),
  ...each("ackOrchestrationItem parent", tooLong, (parentInstanceId) => ack({ metadata: { parentInstanceId } })),
  ...each(
    "ackOrchestrationItem key",
    { ...texts, ...noKeys },
    (key) => ack({ historyDelta: [{ ...envelope, _tag: "KeyValueSet", key, value: "", lastUpdatedAtMs: 0 }] })
  ),
  ...each(
    "ackOrchestrationItem cleared key",
    { ...texts, ...noKeys },
    (key) => ack({ historyDelta: [{ ...envelope, _tag: "KeyValueCleared", key }] })
  ),
  ...each(
    "ackOrchestrationItem instance of an activity",
    tooLong,
    (instance) => ack({ workerItems: [activity({ instance })] })
  ),
  ...each("ackOrchestrationItem session", tooLong, (sessionId) => ack({ workerItems: [activity({ sessionId })] })),
  ...each("ackOrchestrationItem tag", tooLong, (tag) => ack({ workerItems: [activity({ tag })] })),
  ...each("ackOrchestrationItem instance of a message", tooLong, (id) => ack({ orchestratorItems: [cancel(id)] })),
  ...each("ackOrchestrationItem pinned", noIds, (minor) => ack({ metadata: { pinnedVersion: { ...zero, minor } } })),
  ...each("ackOrchestrationItem activity", texts, (name) => ack({ workerItems: [activity({ name })] })),
  ...each("ackOrchestrationItem activity id", noIds, (id) => ack({ workerItems: [activity({ id })] })),
  ...each("ackOrchestrationItem message", texts, (text) => ack({ orchestratorItems: [cancel("b", text)] })),
  ...each(
    "ackOrchestrationItem cancelled",
    noIds,
    (activityId) => ack({ cancelledActivities: [{ instanceId: "a", executionId: 1, activityId }] })
  ),
  // Ids of requeued messages are negative.
  ...each("ackOrchestrationItem left", { ...noIds, "a negative number": -(2 ** 53) }, (id) => ack({ left: [id] })),
  ...each("ackOrchestrationItem requeued", noIds, (id) => ack({ requeued: [id] })),
  ...each("dropOrchestrationItem lockToken", texts, (token) => ({ provider }) => provider.dropOrchestrationItem(token)),
  ...each(
    "abandonOrchestrationItem delay",
    noDelays,
    (delay) => ({ provider }) =>
      provider.abandonOrchestrationItem({ lockToken: "t", delay: Option.some(delay), ignoreAttempt: false })
  ),
  ...each(
    "abandonOrchestrationItem lockToken",
    texts,
    (lockToken) => ({ provider }) => provider.abandonOrchestrationItem({ lockToken, delay, ignoreAttempt: false })
  ),
  ...each(
    "renewOrchestrationItemLock extendFor",
    noLeases,
    (extendFor) => ({ provider }) => provider.renewOrchestrationItemLock({ lockToken: "t", extendFor })
  ),
  ...each(
    "renewOrchestrationItemLock lockToken",
    texts,
    (lockToken) => ({ provider }) => provider.renewOrchestrationItemLock({ lockToken, extendFor: second })
  ),
  ...each(
    "enqueueForOrchestrator delay",
    noDelays,
    (delay) => ({ provider }) => provider.enqueueForOrchestrator({ message: cancel("a"), delay: Option.some(delay) })
  ),
  ...each(
    "enqueueForOrchestrator instance",
    { ...texts, ...tooLong },
    (id) => ({ provider }) => provider.enqueueForOrchestrator({ message: cancel(id), delay })
  ),
  ...each(
    "enqueueForOrchestrator reason",
    texts,
    (reason) => ({ provider }) => provider.enqueueForOrchestrator({ message: cancel("a", reason), delay })
  ),
  ...each(
    "enqueueForOrchestrator fireAtMs",
    noIds,
    (fireAtMs) => ({ provider }) =>
      provider.enqueueForOrchestrator({
        message: { _tag: "TimerFired", instance: "a", executionId: 1, id: 1, fireAtMs },
        delay
      })
  ),
  [
    "enqueueForOrchestrator item: an activity",
    ({ provider }) => provider.enqueueForOrchestrator({ message: activity({}), delay })
  ],
  [
    "enqueueForOrchestrator item: of no known kind",
    ({ provider }) => provider.enqueueForOrchestrator({ message: { ...cancel("a"), _tag: "Nonsense" } as never, delay })
  ],
  ...each(
    "enqueueForWorker name",
    { ...texts, ...tooLong },
    (name) => ({ provider }) => provider.enqueueForWorker(activity({ name }))
  ),
  ...each(
    "enqueueForWorker instance",
    { ...texts, ...tooLong },
    (instance) => ({ provider }) => provider.enqueueForWorker(activity({ instance }))
  ),
  ...each(
    "enqueueForWorker sessionId",
    { ...texts, ...tooLong },
    (sessionId) => ({ provider }) => provider.enqueueForWorker(activity({ sessionId }))
  ),
  ...each(
    "enqueueForWorker tag",
    { ...texts, ...tooLong },
    (tag) => ({ provider }) => provider.enqueueForWorker(activity({ tag }))
  ),
  ...each("enqueueForWorker id", noIds, (id) => ({ provider }) => provider.enqueueForWorker(activity({ id }))),
  ...each(
    "startOrchestration instance",
    { ...texts, ...tooLong },
    (instance) => ({ provider }) => provider.startOrchestration(start({ instance }))
  ),
  ...each(
    "startOrchestration parentInstance",
    { ...texts, ...tooLong },
    (parentInstance) => ({ provider }) => provider.startOrchestration(start({ parentInstance, parentId: 2 }))
  ),
  ...each(
    "startOrchestration orchestration",
    texts,
    (orchestration) => ({ provider }) => provider.startOrchestration(start({ orchestration }))
  ),
  ...each(
    "startOrchestration input",
    texts,
    (input) => ({ provider }) => provider.startOrchestration(start({ input }))
  ),
  ...each(
    "startOrchestration executionId",
    noIds,
    (executionId) => ({ provider }) => provider.startOrchestration(start({ executionId }))
  ),
  ...each(
    "startOrchestration pinnedVersion",
    noIds,
    (patch) => ({ provider }) => provider.startOrchestration({ ...start({}), pinnedVersion: { ...zero, patch } })
  ),
  ...each(
    "startOrchestration delay",
    noDelays,
    (delay) => ({ provider }) => provider.startOrchestration({ ...start({}), delay: Option.some(delay) })
  ),
  ...each(
    "fetchWorkItems lockTimeout",
    noLeases,
    (lockTimeout) => ({ provider }) =>
      provider.fetchWorkItems({ lockTimeout, pollTimeout: Duration.zero, tags, session })
  ),
  ...each("fetchWorkItems tags", texts, (tag) => ({ provider }) =>
    provider.fetchWorkItems({
      lockTimeout: second,
      pollTimeout: Duration.zero,
      tags: { _tag: "Tags", tags: ["fine", tag] },
      session
    })),
  ...each("fetchWorkItems workerId", texts, (workerId) => ({ provider }) =>
    provider.fetchWorkItems({
      lockTimeout: second,
      pollTimeout: Duration.zero,
      tags,
      session: Option.some({ workerId, lockTimeout: second })
    })),
  ...each("fetchWorkItems session.lockTimeout", noLeases, (lockTimeout) => ({ provider }) =>
    provider.fetchWorkItems({
      lockTimeout: second,
      pollTimeout: Duration.zero,
      tags,
      session: Option.some({ workerId: "o", lockTimeout })
    })),
  ...each("ackWorkItem lockToken", texts, (token) => ({ provider }) => provider.ackWorkItem(token, Option.none())),
  ...each(
    "ackWorkItem result",
    texts,
    (result) => ({ provider }) =>
      provider.ackWorkItem(
        "t",
        Option.some({ _tag: "ActivityCompleted", instance: "a", executionId: 1, id: 2, result })
      )
  ),
  ...each(
    "abandonWorkItem delay",
    noDelays,
    (delay) => ({ provider }) =>
      provider.abandonWorkItem({ lockToken: "t", delay: Option.some(delay), ignoreAttempt: false })
  ),
  ...each(
    "renewWorkItemLock extendFor",
    noLeases,
    (extendFor) => ({ provider }) => provider.renewWorkItemLock({ lockToken: "t", extendFor })
  ),
  ...each("read instanceId", texts, (id) => ({ provider }) => provider.read(id)),
  ...each("readWithExecution instanceId", texts, (id) => ({ provider }) => provider.readWithExecution(id, 1)),
  ...each("readWithExecution executionId", noIds, (id) => ({ provider }) => provider.readWithExecution("a", id)),
  ...each(
    "appendWithExecution instanceId",
    { ...texts, ...tooLong },
    (id) => ({ provider }) => provider.appendWithExecution(id, 1, [event({})])
  ),
  ...each(
    "appendWithExecution executionId",
    noIds,
    (id) => ({ provider }) => provider.appendWithExecution("a", id, [event({})])
  ),
  ...each(
    "appendWithExecution eventId",
    { ...noIds, "0": 0 },
    (eventId) => ({ provider }) => provider.appendWithExecution("a", 1, [event({ eventId })])
  ),
  ...each("readInstance instanceId", texts, (id) => ({ provider }) => provider.readInstance(id)),
  ...each("getCustomStatus instanceId", texts, (id) => ({ provider }) => provider.getCustomStatus(id, 0)),
  ...each(
    "getCustomStatus lastSeenVersion",
    { "NaN": NaN, "2^53": 2 ** 53 },
    (version) => ({ provider }) => provider.getCustomStatus("a", version)
  ),
  ...each("getKvValue instanceId", texts, (id) => ({ provider }) => provider.getKvValue(id, "k")),
  ...each("getKvValue key", texts, (key) => ({ provider }) => provider.getKvValue("a", key)),
  ...each("getKvAllValues instanceId", texts, (id) => ({ provider }) => provider.getKvAllValues(id)),
  ...each("getInstanceStats instanceId", texts, (id) => ({ provider }) => provider.getInstanceStats(id)),
  ...each(
    "renewSessionLock workerIds",
    texts,
    (id) => ({ provider }) =>
      provider.renewSessionLock({ workerIds: ["fine", id], extendFor: second, idleTimeout: second })
  ),
  ...each(
    "renewSessionLock extendFor",
    noLeases,
    (extendFor) => ({ provider }) => provider.renewSessionLock({ workerIds: ["o"], extendFor, idleTimeout: second })
  ),
  ...each(
    "renewSessionLock idleTimeout",
    noDelays,
    (idleTimeout) => ({ provider }) => provider.renewSessionLock({ workerIds: ["o"], extendFor: second, idleTimeout })
  ),

  ...(["name", "version", "parentId", "idPrefix", "customStatus", "error"] as const).flatMap((field) =>
    each(`list ${field}`, texts, (text) => ({ admin }) => admin.list({ [field]: text }))
  ),
  ...(["status", "orderBy", "cursor"] as const).flatMap((field) =>
    each(
      `list ${field}`,
      { ...texts, unknown: "unknown", empty: "" },
      (text) => ({ admin }) => admin.list({ [field]: text as never })
    )
  ),
  ...(["createdFromMs", "createdBeforeMs", "updatedFromMs", "updatedBeforeMs"] as const).flatMap((field) =>
    each(`list ${field}`, noIds, (ms) => ({ admin }) => admin.list({ [field]: ms }))
  ),
  ...each("list limit", { ...noIds, "0": 0, "1,001": 1001 }, (limit) => ({ admin }) => admin.list({ limit })),
  ...each("count name", texts, (name) => ({ admin }) => admin.count({ name })),
  ...each(
    "count status",
    { ...texts, Blocked: "Blocked" },
    (status) => ({ admin }) => admin.count({ status: status as never })
  ),
  ...([
    "listExecutions",
    "latestExecutionId",
    "readHistory",
    "getInstanceInfo",
    "getQueuedWork",
    "listChildren",
    "getParentId",
    "getInstanceTree",
    "deleteInstance"
  ] as const).flatMap((method) => each(`${method} instanceId`, texts, (id) => ({ admin }) => admin[method](id))),
  ...each(
    "readHistoryWithExecutionId executionId",
    noIds,
    (id) => ({ admin }) => admin.readHistoryWithExecutionId("a", id)
  ),
  ...each("getExecutionInfo instanceId", texts, (id) => ({ admin }) => admin.getExecutionInfo(id, 1)),
  ...each("getExecutionInfo executionId", noIds, (id) => ({ admin }) => admin.getExecutionInfo("a", id)),
  ...each("deleteInstancesAtomic instanceIds", texts, (id) => ({ admin }) => admin.deleteInstancesAtomic(["fine", id])),
  ...each(
    "deleteInstanceBulk instanceIds",
    texts,
    (id) => ({ admin }) => admin.deleteInstanceBulk({ instanceIds: [id] })
  ),
  ...each("deleteInstanceBulk limit", noIds, (limit) => ({ admin }) => admin.deleteInstanceBulk({ limit })),
  ...each(
    "deleteInstanceBulk completedBeforeMs",
    noIds,
    (completedBeforeMs) => ({ admin }) => admin.deleteInstanceBulk({ completedBeforeMs })
  ),
  ...each("pruneExecutions instanceId", texts, (id) => ({ admin }) => admin.pruneExecutions(id, {})),
  ...each("pruneExecutions keepLast", noIds, (keepLast) => ({ admin }) => admin.pruneExecutions("a", { keepLast })),
  ...each(
    "pruneExecutions completedBeforeMs",
    noIds,
    (completedBeforeMs) => ({ admin }) => admin.pruneExecutions("a", { completedBeforeMs })
  ),
  ...each("pruneExecutionsBulk limit", noIds, (limit) => ({ admin }) => admin.pruneExecutionsBulk({ limit }, {})),
  ...each(
    "pruneExecutionsBulk keepLast",
    noIds,
    (keepLast) => ({ admin }) => admin.pruneExecutionsBulk({}, { keepLast })
  )
]
