/**
 * What callers may pass, checked before anything is sent: whatever no store can hold or act on is `InvalidInput`, the
 * same with every driver.
 *
 * Texts hold no NUL and no half of a surrogate pair. What is stored under a name, is stored under one that an index can
 * hold; a name that nothing is stored under may be looked up. Ids and counts are whole numbers up to 2^53 - 1. Lengths of time
 * are rounded up to whole milliseconds; none is negative, and none reaches beyond the year 9999, as an endless one
 * would. Leases are longer than nothing. How long to wait for work is anybody's choice.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Event from "../../model/Event.ts"
import type { CoreVersion, VersionRange } from "../../model/Instance.ts"
import {
  maxGivenIdBytes,
  maxNameBytes,
  maxTagBytes,
  problemOfId,
  problemOfKey
} from "../../model/internal/identifiers.ts"
import { problemOf } from "../../model/internal/text.ts"
import * as WorkItem from "../../model/WorkItem.ts"
import type { Admin } from "../Admin.ts"
import type { Provider } from "../Provider.ts"
import { InvalidInput, ProviderError } from "../ProviderError.ts"
import { Unstorable } from "./encoding.ts"

type Problem = readonly [field: string, problem: string] | undefined

/** Calls with bad input fail with `InvalidInput`; so do items that cannot be encoded. */
const guard = <A>(
  operation: string,
  problems: ReadonlyArray<Problem>,
  call: () => Effect.Effect<A, ProviderError>
): Effect.Effect<A, ProviderError> => {
  const found = problems.find((problem) => problem !== undefined)
  if (found !== undefined) return refuse(operation, found)
  return Effect.catchDefect(
    Effect.suspend(call),
    (defect) => defect instanceof Unstorable ? refuse(operation, ["item", defect.problem]) : Effect.die(defect)
  )
}

const refuse = (operation: string, [field, problem]: readonly [string, string]) =>
  Effect.fail(new ProviderError({ operation, reason: new InvalidInput({ field, problem }) }))

// -- single values ---------------------------------------------------------------------------------

const text = (field: string, value: string | undefined): Problem => {
  const problem = value === undefined ? undefined : problemOf(value)
  return problem === undefined ? undefined : [field, problem]
}

const texts = (field: string, values: ReadonlyArray<string>): Problem =>
  values.map((value) => text(field, value)).find((problem) => problem !== undefined)

const id = (field: string, value: string | null | undefined, maxBytes?: number): Problem => {
  const problem = value === null || value === undefined ? undefined : problemOfId(value, maxBytes)
  return problem === undefined ? undefined : [field, problem]
}

/** The name or the version of a definition. */
const name = (field: string, value: string | null | undefined): Problem => id(field, value, maxNameBytes)

const activity = (item: WorkItem.Of<"ActivityExecute">): Problem =>
  id("instance", item.instance) ?? name("name", item.name) ?? id("sessionId", item.sessionId, maxGivenIdBytes) ??
    id("tag", item.tag, maxTagBytes)

const message = (item: WorkItem.WorkItem): Problem =>
  id("instance", WorkItem.target(item)) ?? (
    item._tag === "StartOrchestration" || item._tag === "ContinueAsNew"
      ? name("orchestration", item.orchestration) ?? name("version", item.version)
      : undefined
  )

const keyOf = (event: Event.Event): Problem => {
  if (event._tag !== "KeyValueSet" && event._tag !== "KeyValueCleared") return undefined
  const problem = problemOfKey(event.key)
  return problem === undefined ? undefined : ["key", problem]
}

const whole = (field: string, value: number | undefined, least = 0, most = Number.MAX_SAFE_INTEGER): Problem =>
  value === undefined || (Number.isInteger(value) && value >= least && value <= most)
    ? undefined
    : [field, `it is ${value}, but must be a whole number from ${least} to ${most}`]

/** The end of the year 9999, milliseconds since the Unix epoch. */
const longestMs = 253_402_300_799_999

const length = (field: string, value: Duration.Duration, leastMs: 0 | 1): Problem => {
  const millis = wholeMillis(value)
  return millis >= leastMs && millis <= longestMs ? undefined : [
    field,
    `it is ${millis} ms, but must be ${leastMs === 0 ? "at least 0" : "more than 0"} and at most ${longestMs} ms`
  ]
}

const wholeMillis = (value: Duration.Duration) => Math.ceil(Duration.toMillis(value))
const rounded = (value: Duration.Duration) => Duration.millis(wholeMillis(value))

const delayed = (delay: Option.Option<Duration.Duration>): Problem =>
  Option.isSome(delay) ? length("delay", delay.value, 0) : undefined
const roundedOption = Option.map(rounded)

const version = (field: string, { major, minor, patch }: CoreVersion): Problem =>
  [major, minor, patch].map((part) => whole(field, part, 0, 2 ** 31 - 1)).find((problem) => problem !== undefined)

const versionRange = (versions: Option.Option<VersionRange>): Problem =>
  Option.isNone(versions)
    ? undefined
    : version("versions", versions.value.min) ?? version("versions", versions.value.max)

// -- services --------------------------------------------------------------------------------------

/** The calls that put something new into the store. */
export type Enqueue = Pick<
  Provider["Service"],
  "startOrchestration" | "enqueueForOrchestrator" | "enqueueForWorker"
>

export const guardEnqueue = (enqueue: Enqueue): Enqueue => ({
  startOrchestration: (options) =>
    guard("startOrchestration", [
      id("instance", options.start.instance),
      id("parentInstance", options.start.parentInstance),
      name("orchestration", options.start.orchestration),
      name("version", options.start.version),
      version("pinnedVersion", options.pinnedVersion),
      delayed(options.delay)
    ], () => enqueue.startOrchestration({ ...options, delay: roundedOption(options.delay) })),
  enqueueForOrchestrator: (item, delay) =>
    guard(
      "enqueueForOrchestrator",
      [message(item), delayed(delay)],
      () => enqueue.enqueueForOrchestrator(item, roundedOption(delay))
    ),
  enqueueForWorker: (item) => guard("enqueueForWorker", [activity(item)], () => enqueue.enqueueForWorker(item))
})

type Service = Provider["Service"]

/** All but the enqueues, which are guarded where they are made. */
export const guardProvider = (provider: Service): Service => {
  const abandon =
    (operation: "abandonOrchestrationItem" | "abandonWorkItem"): Service["abandonWorkItem"] => (options) =>
      guard(
        operation,
        [text("lockToken", options.lockToken), delayed(options.delay)],
        () => provider[operation]({ ...options, delay: roundedOption(options.delay) })
      )
  const renew =
    (operation: "renewOrchestrationItemLock" | "renewWorkItemLock"): Service["renewWorkItemLock"] => (options) =>
      guard(
        operation,
        [text("lockToken", options.lockToken), length("extendFor", options.extendFor, 1)],
        () => provider[operation]({ ...options, extendFor: rounded(options.extendFor) })
      )
  return {
    ...provider,

    fetchOrchestrationItem: (options) =>
      guard(
        "fetchOrchestrationItem",
        [length("lockTimeout", options.lockTimeout, 1), versionRange(options.versions)],
        () => provider.fetchOrchestrationItem({ ...options, lockTimeout: rounded(options.lockTimeout) })
      ),
    sweepMessages: (options) =>
      guard("sweepMessages", [length("maxAge", options.maxAge, 0)], () => provider.sweepMessages(options)),
    ackOrchestrationItem: (lockToken, turn) =>
      guard("ackOrchestrationItem", [
        text("lockToken", lockToken),
        whole("executionId", turn.executionId, 1),
        ...turn.historyDelta.map(({ eventId }) => whole("eventId", eventId, 1)),
        ...turn.historyDelta.map(keyOf),
        ...turn.workerItems.map(activity),
        ...turn.orchestratorItems.map(message),
        text("output", turn.metadata.output),
        name("orchestrationName", turn.metadata.orchestrationName),
        name("orchestrationVersion", turn.metadata.orchestrationVersion),
        id("parentInstanceId", turn.metadata.parentInstanceId),
        turn.metadata.pinnedVersion && version("pinnedVersion", turn.metadata.pinnedVersion),
        ...(turn.left ?? []).map((messageId) => whole("left", messageId)),
        ...turn.cancelledActivities.map(({ activityId, executionId, instanceId }) =>
          text("cancelledActivities", instanceId) ?? whole("cancelledActivities", executionId) ??
            whole("cancelledActivities", activityId)
        )
      ], () => provider.ackOrchestrationItem(lockToken, turn)),
    dropOrchestrationItem: (lockToken) =>
      guard(
        "dropOrchestrationItem",
        [text("lockToken", lockToken)],
        () => provider.dropOrchestrationItem(lockToken)
      ),
    abandonOrchestrationItem: abandon("abandonOrchestrationItem"),
    renewOrchestrationItemLock: renew("renewOrchestrationItemLock"),

    fetchWorkItem: (options) => {
      const session = Option.getOrUndefined(options.session)
      return guard("fetchWorkItem", [
        length("lockTimeout", options.lockTimeout, 1),
        "tags" in options.tags ? texts("tags", options.tags.tags) : undefined,
        session && text("ownerId", session.ownerId),
        session && length("session.lockTimeout", session.lockTimeout, 1)
      ], () =>
        provider.fetchWorkItem({
          ...options,
          lockTimeout: rounded(options.lockTimeout),
          session: Option.map(options.session, (session) => ({ ...session, lockTimeout: rounded(session.lockTimeout) }))
        }))
    },
    ackWorkItem: (lockToken, completion) =>
      guard(
        "ackWorkItem",
        [text("lockToken", lockToken)],
        () => provider.ackWorkItem(lockToken, completion)
      ),
    abandonWorkItem: abandon("abandonWorkItem"),
    renewWorkItemLock: renew("renewWorkItemLock"),

    read: (instanceId) => guard("read", [text("instanceId", instanceId)], () => provider.read(instanceId)),
    readWithExecution: (instanceId, executionId) =>
      guard(
        "readWithExecution",
        [text("instanceId", instanceId), whole("executionId", executionId)],
        () => provider.readWithExecution(instanceId, executionId)
      ),
    appendWithExecution: (instanceId, executionId, events) =>
      guard("appendWithExecution", [
        id("instanceId", instanceId),
        whole("executionId", executionId),
        ...events.map(({ eventId }) => whole("eventId", eventId, 1))
      ], () => provider.appendWithExecution(instanceId, executionId, events)),
    readInstance: (instanceId) =>
      guard("readInstance", [text("instanceId", instanceId)], () => provider.readInstance(instanceId)),
    getCustomStatus: (instanceId, lastSeenVersion) =>
      guard(
        "getCustomStatus",
        [text("instanceId", instanceId), whole("lastSeenVersion", lastSeenVersion, Number.MIN_SAFE_INTEGER)],
        () => provider.getCustomStatus(instanceId, lastSeenVersion)
      ),
    getKvValue: (instanceId, key) =>
      guard(
        "getKvValue",
        [text("instanceId", instanceId), text("key", key)],
        () => provider.getKvValue(instanceId, key)
      ),
    getKvAllValues: (instanceId) =>
      guard("getKvAllValues", [text("instanceId", instanceId)], () => provider.getKvAllValues(instanceId)),
    getInstanceStats: (instanceId) =>
      guard("getInstanceStats", [text("instanceId", instanceId)], () => provider.getInstanceStats(instanceId)),
    renewSessionLock: ({ extendFor, idleTimeout, ownerIds }) =>
      guard(
        "renewSessionLock",
        [
          texts("ownerIds", ownerIds),
          length("extendFor", extendFor, 1),
          length("idleTimeout", idleTimeout, 0)
        ],
        () => provider.renewSessionLock({ ownerIds, extendFor: rounded(extendFor), idleTimeout: rounded(idleTimeout) })
      )
  }
}

type AdminService = Admin["Service"]

/** Of the some 6,000 to 10,000 places in PostgreSQL's table of locks, by default, each takes one. */
const mostAtOnce = 5000

export const guardAdmin = (admin: AdminService): AdminService => {
  const one = <A>(
    operation: string,
    instanceId: string,
    call: (instanceId: string) => Effect.Effect<A, ProviderError>
  ) => guard(operation, [text("instanceId", instanceId)], () => call(instanceId))
  const filtered = (filter: Parameters<AdminService["deleteInstanceBulk"]>[0]): ReadonlyArray<Problem> => [
    texts("instanceIds", filter.instanceIds ?? []),
    whole("completedBeforeMs", filter.completedBeforeMs),
    whole("limit", filter.limit)
  ]
  const pruning = (options: Parameters<AdminService["pruneExecutions"]>[1]): ReadonlyArray<Problem> => [
    whole("keepLast", options.keepLast),
    whole("completedBeforeMs", options.completedBeforeMs)
  ]
  return {
    ...admin,
    listInstancesByStatus: (status) =>
      guard("listInstancesByStatus", [text("status", status)], () => admin.listInstancesByStatus(status)),
    listExecutions: (instanceId) => one("listExecutions", instanceId, admin.listExecutions),
    latestExecutionId: (instanceId) => one("latestExecutionId", instanceId, admin.latestExecutionId),
    readHistory: (instanceId) => one("readHistory", instanceId, admin.readHistory),
    readHistoryWithExecutionId: (instanceId, executionId) =>
      guard(
        "readHistoryWithExecutionId",
        [text("instanceId", instanceId), whole("executionId", executionId)],
        () => admin.readHistoryWithExecutionId(instanceId, executionId)
      ),
    getInstanceInfo: (instanceId) => one("getInstanceInfo", instanceId, admin.getInstanceInfo),
    getExecutionInfo: (instanceId, executionId) =>
      guard(
        "getExecutionInfo",
        [text("instanceId", instanceId), whole("executionId", executionId)],
        () => admin.getExecutionInfo(instanceId, executionId)
      ),
    listChildren: (instanceId) => one("listChildren", instanceId, admin.listChildren),
    getParentId: (instanceId) => one("getParentId", instanceId, admin.getParentId),
    getInstanceTree: (instanceId) => one("getInstanceTree", instanceId, admin.getInstanceTree),
    deleteInstance: (instanceId, options) =>
      one("deleteInstance", instanceId, () => admin.deleteInstance(instanceId, options)),
    deleteInstancesAtomic: (instanceIds, options) =>
      guard(
        "deleteInstancesAtomic",
        [texts("instanceIds", instanceIds), whole("instanceIds.length", instanceIds.length, 0, mostAtOnce)],
        () => admin.deleteInstancesAtomic(instanceIds, options)
      ),
    deleteInstanceBulk: (filter) =>
      guard("deleteInstanceBulk", filtered(filter), () => admin.deleteInstanceBulk(filter)),
    pruneExecutions: (instanceId, options) =>
      guard(
        "pruneExecutions",
        [text("instanceId", instanceId), ...pruning(options)],
        () => admin.pruneExecutions(instanceId, options)
      ),
    pruneExecutionsBulk: (filter, options) =>
      guard(
        "pruneExecutionsBulk",
        [...filtered(filter), ...pruning(options)],
        () => admin.pruneExecutionsBulk(filter, options)
      )
  }
}
