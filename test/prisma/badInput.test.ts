import { assert, describe, it } from "@effect/vitest"
import { Admin, FromDriver, MemoryDriver, Provider } from "duroxide-prisma/provider"
import type { Event, WorkItem } from "duroxide-prisma/provider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import { randomBytes } from "node:crypto"
import * as Database from "../../src/prisma/Database.ts"
import * as PrismaAdmin from "../../src/prisma/PrismaAdmin.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import type { ProviderError } from "../../src/provider/ProviderError.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Starts from "../utils/starts.ts"

type Services = {
  readonly provider: Provider.Provider["Service"]
  readonly admin: Admin.Admin["Service"]
}
type Call = (services: Services) => Effect.Effect<unknown, ProviderError>

const texts = { "NUL": "a\0b", "a lone high surrogate": "a\ud800b", "a lone low surrogate": "\udc00" }
const tooLong = { "2,049 bytes": `${"\u00e9".repeat(1024)}x`, "10,000 bytes": "x".repeat(10_000) }
const noKeys = { "2,561 bytes": `${"\u00e9".repeat(1280)}x` }
const noIds = { "a fraction": 1.5, "NaN": NaN, "Infinity": Infinity, "2^53": 2 ** 53, "a negative number": -1 }
const noDelays = {
  "negative": Duration.millis(-1),
  "endless": Duration.infinity,
  "beyond the year 9999": Duration.millis(2 ** 53)
}
const noLeases = { ...noDelays, "of no length": Duration.zero }

/** A text of that many bytes that does not compress. */
const most32 = { major: 2 ** 31 - 1, minor: 2 ** 31 - 1, patch: 2 ** 31 - 1 }

const randomText = (bytes: number) => randomBytes(bytes).toString("base64url").slice(0, bytes)

const second = Duration.seconds(1)
const delay = Option.none<Duration.Duration>()
const versions = Option.none()
const session = Option.none()
const tags = { _tag: "Any" } as const
const zero = { major: 0, minor: 0, patch: 0 }
const cancel = (instance: string, reason = "") => ({ _tag: "CancelInstance", instance, reason }) as const
const activity = (changes: Partial<WorkItem.Of<"ActivityExecute">>) =>
  ({ _tag: "ActivityExecute", instance: "a", executionId: 1, id: 2, name: "A", input: "1", ...changes }) as const
const start = (changes: Partial<WorkItem.Of<"StartOrchestration">>) => ({
  start: Starts.message("a", changes),
  pinnedVersion: zero,
  delay
})
const envelope = {
  eventId: 1,
  sourceEventId: null,
  instanceId: "a",
  executionId: 1,
  timestampMs: 0,
  duroxideVersion: ""
}
const event = (changes: Partial<Event.Event>) => ({
  _tag: "OrchestrationCompleted",
  eventId: 1,
  sourceEventId: null,
  instanceId: "a",
  executionId: 1,
  timestampMs: 0,
  duroxideVersion: "0.0.0",
  output: "1",
  ...changes
} as Event.Event)
const turn = (changes: Partial<Provider.Turn>): Provider.Turn => ({
  executionId: 1,
  historyDelta: [],
  workerItems: [],
  orchestratorItems: [],
  metadata: {},
  cancelledActivities: [],
  ...changes
})
const ack = (changes: Partial<Provider.Turn>): Call => ({ provider }) =>
  provider.ackOrchestrationItem("t", turn(changes))

/** `method parameter`: the values, and the call. */
const each = <A>(
  what: string,
  values: Readonly<Record<string, A>>,
  call: (value: A) => Call
): ReadonlyArray<[string, Call]> => Object.entries(values).map(([name, value]) => [`${what}: ${name}`, call(value)])

const refused: ReadonlyArray<[string, Call]> = [
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

  ...each(
    "listInstancesByStatus status",
    texts,
    (status) => ({ admin }) => admin.listInstancesByStatus(status as never)
  ),
  ...(["status", "orchestrationName", "parentInstanceId", "idPrefix"] as const).flatMap((field) =>
    each(`findInstances ${field}`, texts, (text) => ({ admin }) => admin.findInstances({ [field]: text }))
  ),
  ...each(
    "findInstances limit",
    { ...noIds, "0": 0, "1,001": 1001 },
    (limit) => ({ admin }) => admin.findInstances({ limit })
  ),
  ...([
    "listExecutions",
    "latestExecutionId",
    "readHistory",
    "getInstanceInfo",
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

const most = Number.MAX_SAFE_INTEGER
const strange = "'; DROP TABLE instances; -- \u{1F600} \u2028 %_"
const token = (lockToken: string): ReadonlyArray<[string, Call, unknown]> => [
  [
    `ackOrchestrationItem ${lockToken}`,
    ({ provider }) => provider.ackOrchestrationItem(lockToken, turn({})),
    "LockLost"
  ],
  [`dropOrchestrationItem ${lockToken}`, ({ provider }) => provider.dropOrchestrationItem(lockToken), "LockLost"],
  [
    `abandonOrchestrationItem ${lockToken}`,
    ({ provider }) => provider.abandonOrchestrationItem({ lockToken, delay, ignoreAttempt: true }),
    "LockLost"
  ],
  [
    `renewOrchestrationItemLock ${lockToken}`,
    ({ provider }) => provider.renewOrchestrationItemLock({ lockToken, extendFor: second }),
    "LockLost"
  ],
  [`ackWorkItem ${lockToken}`, ({ provider }) => provider.ackWorkItem(lockToken, Option.none()), "LockLost"],
  [
    `abandonWorkItem ${lockToken}`,
    ({ provider }) => provider.abandonWorkItem({ lockToken, delay, ignoreAttempt: true }),
    "LockLost"
  ],
  [
    `renewWorkItemLock ${lockToken}`,
    ({ provider }) => provider.renewWorkItemLock({ lockToken, extendFor: second }),
    "LockLost"
  ]
]
const nothing = { instancesDeleted: 0, executionsDeleted: 0, eventsDeleted: 0, queueMessagesDeleted: 0 }
const nothingInBulk = { ...nothing, failed: [] }
const nothingPruned = { instancesProcessed: 0, executionsDeleted: 0, eventsDeleted: 0 }

/** Unusual calls with a result: a value, or the tag of a reason. */
const answered: ReadonlyArray<[string, Call, unknown]> = [
  ...["", "unknown", "0.unknown", "99999999999999999999.x", "-1.x", strange, "x".repeat(10_000)].flatMap(token),
  ...["", "unknown", strange, "x".repeat(10_000)].flatMap((id): ReadonlyArray<[string, Call, unknown]> => [
    [`read ${id}`, ({ provider }) => provider.read(id), []],
    [`readWithExecution ${id}`, ({ provider }) => provider.readWithExecution(id, most), []],
    [`readInstance ${id}`, ({ provider }) => provider.readInstance(id), Option.none()],
    [`getCustomStatus ${id}`, ({ provider }) => provider.getCustomStatus(id, -1), Option.none()],
    [`getKvValue ${id}`, ({ provider }) => provider.getKvValue(id, id), Option.none()],
    [`getKvAllValues ${id}`, ({ provider }) => provider.getKvAllValues(id), new Map()],
    [`getInstanceStats ${id}`, ({ provider }) => provider.getInstanceStats(id), Option.none()],
    [`listExecutions ${id}`, ({ admin }) => admin.listExecutions(id), []],
    [`latestExecutionId ${id}`, ({ admin }) => admin.latestExecutionId(id), "InstanceNotFound"],
    [`readHistory ${id}`, ({ admin }) => admin.readHistory(id), "InstanceNotFound"],
    [`readHistoryWithExecutionId ${id}`, ({ admin }) => admin.readHistoryWithExecutionId(id, most), []],
    [`getInstanceInfo ${id}`, ({ admin }) => admin.getInstanceInfo(id), "InstanceNotFound"],
    [`getExecutionInfo ${id}`, ({ admin }) => admin.getExecutionInfo(id, most), "ExecutionNotFound"],
    [`listChildren ${id}`, ({ admin }) => admin.listChildren(id), []],
    [`getParentId ${id}`, ({ admin }) => admin.getParentId(id), "InstanceNotFound"],
    [`getInstanceTree ${id}`, ({ admin }) => admin.getInstanceTree(id), { rootId: id, allIds: [id] }],
    [`deleteInstance ${id}`, ({ admin }) => admin.deleteInstance(id, { force: true }), "InstanceNotFound"],
    [`deleteInstancesAtomic ${id}`, ({ admin }) => admin.deleteInstancesAtomic([id, id]), nothing],
    [`deleteInstanceBulk ${id}`, ({ admin }) => admin.deleteInstanceBulk({ instanceIds: [id] }), nothingInBulk],
    [`pruneExecutions ${id}`, ({ admin }) => admin.pruneExecutions(id, {}), "InstanceNotFound"],
    [`pruneExecutionsBulk ${id}`, ({ admin }) => admin.pruneExecutionsBulk({ instanceIds: [id] }, {}), nothingPruned],
    [`listInstancesByStatus ${id}`, ({ admin }) => admin.listInstancesByStatus(id as never), []]
  ]),
  [
    "fetchOrchestrationItem pollTimeout negative",
    ({ provider }) =>
      provider.fetchOrchestrationItem({ lockTimeout: second, pollTimeout: Duration.millis(-1), versions }),
    Option.none()
  ],
  ["fetchOrchestrationItem versions the wrong way round", ({ provider }) =>
    provider.fetchOrchestrationItem({
      lockTimeout: second,
      pollTimeout: Duration.zero,
      versions: Option.some({ min: { ...zero, major: 9 }, max: zero })
    }), Option.none()],
  [
    "fetchWorkItems no tags",
    ({ provider }) =>
      provider.fetchWorkItems({
        lockTimeout: second,
        pollTimeout: Duration.zero,
        tags: { _tag: "Tags", tags: [] },
        session
      }),
    []
  ],
  ["fetchWorkItems fractional times", ({ provider }) =>
    provider.fetchWorkItems({
      lockTimeout: Duration.micros(1500n),
      pollTimeout: Duration.micros(500n),
      tags,
      session: Option.some({ workerId: strange, lockTimeout: Duration.nanos(1n) })
    }), []],
  [
    "renewSessionLock no owners",
    ({ provider }) => provider.renewSessionLock({ workerIds: [], extendFor: second, idleTimeout: second }),
    0
  ],
  [
    "renewSessionLock fractional times",
    ({ provider }) =>
      provider.renewSessionLock({ workerIds: ["o"], extendFor: Duration.micros(1n), idleTimeout: Duration.micros(1n) }),
    0
  ],
  ["appendWithExecution no events", ({ provider }) => provider.appendWithExecution("a", most, []), undefined],
  ["deleteInstancesAtomic nothing", ({ admin }) => admin.deleteInstancesAtomic([]), nothing],
  ["deleteInstanceBulk none", ({ admin }) => admin.deleteInstanceBulk({ instanceIds: [] }), nothingInBulk],
  ["deleteInstanceBulk limit 0", ({ admin }) => admin.deleteInstanceBulk({ limit: 0 }), nothingInBulk],
  [
    "deleteInstanceBulk largest numbers",
    ({ admin }) => admin.deleteInstanceBulk({ limit: most, completedBeforeMs: most }),
    nothingInBulk
  ],
  [
    "pruneExecutionsBulk largest numbers",
    ({ admin }) => admin.pruneExecutionsBulk({ limit: most }, { keepLast: most, completedBeforeMs: most }),
    nothingPruned
  ]
]

/** Unusual values that are stored unchanged. */
const stored: ReadonlyArray<[string, Call]> = [
  [
    "a delay of 1.5 ms",
    ({ provider }) =>
      provider.enqueueForOrchestrator({ message: cancel("a"), delay: Option.some(Duration.micros(1500n)) })
  ],
  [
    "a delay of 5000 years",
    ({ provider }) =>
      provider.enqueueForOrchestrator({ message: cancel("a"), delay: Option.some(Duration.days(5000 * 365)) })
  ],
  [
    "a timer at 2^53 - 1",
    ({ provider }) =>
      provider.enqueueForOrchestrator({
        message: { _tag: "TimerFired", instance: "a", executionId: 1, id: 1, fireAtMs: most },
        delay
      })
  ],
  [
    "an escaped NUL",
    ({ provider }) => provider.enqueueForOrchestrator({ message: cancel("a", "\\u0000 \\ud800"), delay })
  ],
  [
    "payloads with an escaped NUL",
    ({ provider }) =>
      provider.enqueueForWorker(activity({ input: JSON.stringify("\0\ud800"), tag: strange, sessionId: "" }))
  ],
  ["ids at 2^53 - 1", ({ provider }) => provider.enqueueForWorker(activity({ executionId: most, id: most }))],
  ["an id of strange letters", ({ provider }) => provider.startOrchestration(start({ instance: strange }))],
  ["an empty id", ({ provider }) => provider.startOrchestration(start({ instance: "" }))],
  ["ids and keys of the greatest length", ({ provider }) =>
    Effect.gen(function*() {
      const [instance, parentInstance, sessionId, tag] = [
        randomText(2048),
        randomText(2048),
        randomText(1024),
        randomText(256)
      ]
      const [name, orchestrationName, orchestrationVersion] = [randomText(1024), randomText(1024), randomText(1024)]
      yield* provider.startOrchestration(start({ instance, parentInstance, parentId: 2 }))
      const claimed = yield* provider.fetchOrchestrationItem({
        lockTimeout: second,
        pollTimeout: Duration.zero,
        versions
      })
      const { lockToken } = Option.getOrThrow(claimed)
      const [set, cleared] = [randomText(512), randomText(512)]
      const turned = turn({
        historyDelta: [
          { ...envelope, instanceId: instance, _tag: "KeyValueSet", key: set, value: "1", lastUpdatedAtMs: 0 },
          { ...envelope, instanceId: instance, eventId: 2, _tag: "KeyValueCleared", key: cleared }
        ],
        metadata: { orchestrationName, orchestrationVersion, parentInstanceId: parentInstance, pinnedVersion: most32 },
        workerItems: [activity({ name, instance, executionId: most, id: most, sessionId, tag })],
        orchestratorItems: [cancel(instance)]
      })
      yield* provider.ackOrchestrationItem(lockToken, turned)
      const claim = { lockTimeout: second, pollTimeout: Duration.zero, tags: { _tag: "Tags", tags: [tag] } } as const
      const taken = yield* provider.fetchWorkItems({
        ...claim,
        session: Option.some({ workerId: randomText(2048), lockTimeout: second })
      })
      assert.lengthOf(taken, 1)
      const ended = yield* provider.fetchOrchestrationItem({
        lockTimeout: second,
        pollTimeout: Duration.zero,
        versions
      })
      yield* provider.ackOrchestrationItem(
        Option.getOrThrow(ended).lockToken,
        turn({ metadata: { status: "Completed" } })
      )
      assert.deepStrictEqual(yield* provider.getKvAllValues(instance), new Map([[set, "1"]]))
    })]
]

const prisma = Layer.unwrap(
  Effect.map(PgServer.PgServer, ({ url }) =>
    FromDriver.layerAdmin.pipe(
      Layer.provideMerge(FromDriver.layer()),
      Layer.provideMerge(PrismaAdmin.layer()),
      Layer.provideMerge(PrismaDriver.layer()),
      Layer.provideMerge(Database.layer({ url }))
    ))
).pipe(Layer.provideMerge(PgServer.layer), Layer.provideMerge(Logger.layer([])))

const memory = FromDriver.layerAdmin.pipe(
  Layer.provideMerge(FromDriver.layer()),
  Layer.provideMerge(MemoryDriver.layer),
  Layer.provideMerge(Logger.layer([]))
)

const services = Effect.gen(function*() {
  return { provider: yield* Provider.Provider, admin: yield* Admin.Admin }
})

const rows = `SELECT (SELECT count(*) FROM instances)::int + (SELECT count(*) FROM executions)::int
  + (SELECT count(*) FROM history)::int + (SELECT count(*) FROM orchestrator_queue)::int
  + (SELECT count(*) FROM worker_queue)::int + (SELECT count(*) FROM sessions)::int AS count`

const refuses = Effect.gen(function*() {
  const all = yield* services
  for (const [name, call] of refused) {
    const error = yield* Effect.flip(call(all)).pipe(
      Effect.catchCause((cause) => Effect.die(new Error(`${name}: ${String(cause)}`)))
    )
    assert.strictEqual(error.reason._tag, "InvalidInput", `${name}: ${error.message}`)
    assert.strictEqual(error.operation, name.split(" ")[0], name)
    const isTooLong = /: [\d,]+ bytes$/.test(name)
    if (isTooLong) {
      assert.match(error.message, /it has \d+ bytes, the limit is (2048|1024|256|\d+: with .* may have 2560)$/, name)
    }
    assert.isFalse(error.isRetryable, name)
  }
})

const answers = Effect.gen(function*() {
  const all = yield* services
  for (const [name, call, expected] of answered) {
    const answer = yield* Effect.match(call(all), {
      onSuccess: (value) => value,
      onFailure: ({ reason }) => reason._tag
    })
    assert.deepStrictEqual(answer, expected, name.slice(0, 200))
  }
})

describe("Bad input:", () => {
  describe("PostgreSQL", () => {
    it.live(
      `${refused.length} calls are refused with InvalidInput, and nothing is written`,
      () =>
        Effect.gen(function*() {
          const { sql } = yield* PgServer.PgServer
          const { statementCounts } = yield* Database.Database
          yield* refuses
          assert.deepStrictEqual(yield* sql(rows), [{ count: 0 }])
          assert.deepStrictEqual(yield* statementCounts, {})
        }).pipe(Effect.provide(prisma))
    )

    it.live(`${answered.length} unusual calls have an answer`, () =>
      Effect.gen(function*() {
        const { sql } = yield* PgServer.PgServer
        yield* answers
        assert.deepStrictEqual(yield* sql(rows), [{ count: 0 }])
      }).pipe(Effect.provide(prisma)))

    for (const [name, call] of stored) {
      it.live(`stored as it is: ${name}`, () =>
        Effect.gen(function*() {
          const { sql } = yield* PgServer.PgServer
          yield* call(yield* services)
          const [row] = yield* sql<{ count: number }>(rows)
          assert.isAtLeast(row!.count, 1)
        }).pipe(Effect.provide(prisma)))
    }
  })

  describe("memory", () => {
    it.live(`${refused.length} calls are refused with InvalidInput`, () => Effect.provide(refuses, memory))

    it.live(`${answered.length} unusual calls have the same answer`, () => Effect.provide(answers, memory))
  })
})
