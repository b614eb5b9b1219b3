/**
 * The management operations over their driver: which errors a caller gets, and in which steps trees are deleted.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import type { PauseTarget } from "../../model/Pause.ts"
import * as WorkItem from "../../model/WorkItem.ts"
import { Hint } from "../../waking/Notifier.ts"
import type { Notifier } from "../../waking/Notifier.ts"
import type { Admin, DeletionFilter, FailedDeletion, InstanceFilter, PruneOptions, Served } from "../Admin.ts"
import type { AdminDriver, Deleted, QueueLoad, Selection, StoredMessage } from "../AdminDriver.ts"
import {
  ChildLeftBehind,
  ExecutionNotFound,
  InstanceEnded,
  InstanceHasParent,
  InstanceNotFound,
  InstanceRunning,
  ProviderError
} from "../ProviderError.ts"
import type { Reason } from "../ProviderError.ts"
import { serversOfActivity, serversOfOrchestration } from "../shared/served.ts"
import { retried } from "../shared/statement.ts"
import { actions } from "./actions.ts"
import * as check from "./check.ts"
import { checked } from "./check.ts"
import { explains } from "./explain.ts"
import { forks } from "./fork.ts"
import * as limits from "./limits.ts"
import { cursorOf, everything, lists, positionOf, withAttributes } from "./lists.ts"
import { readWithExecution } from "./reads.ts"
import { retries } from "./retry.ts"
import { streams } from "./streamReads.ts"

type Service = Admin["Service"]
type Driver = AdminDriver["Service"]

export const make = (driver: Driver, notifier?: Notifier["Service"]): Service => {
  const views = { ...reads(driver), ...queues(driver), ...pauses(driver, notifier), ...limits.make(driver, notifier) }
  return {
    ...views,
    ...lists(driver),
    ...actions(driver),
    ...explains(views),
    ...deletions(driver),
    ...prunings(driver),
    ...forks(driver),
    ...retries(driver)
  }
}

// -- reads -----------------------------------------------------------------------------------------

const reads = (driver: Driver) => {
  const readExecution = readWithExecution({ readHistory: (history) => retried(driver.readHistory(history)) })

  const listExecutions: Service["listExecutions"] = (instanceId) =>
    checked("listExecutions", [check.text("instanceId", instanceId)], () => driver.listExecutions(instanceId))

  const latestExecutionId: Service["latestExecutionId"] = (instanceId) =>
    Effect.map(readOne(driver, "latestExecutionId", instanceId), ({ executionId }) => executionId)

  const readHistory: Service["readHistory"] = (instanceId) =>
    Effect.flatMap(
      readOne(driver, "readHistory", instanceId),
      ({ executionId }) => readExecution(instanceId, executionId)
    )

  const readHistoryWithExecutionId: Service["readHistoryWithExecutionId"] = (instanceId, executionId) =>
    checked(
      "readHistoryWithExecutionId",
      [check.text("instanceId", instanceId), check.whole("executionId", executionId)],
      () => readExecution(instanceId, executionId)
    )

  const getExecutionInfo: Service["getExecutionInfo"] = (instanceId, executionId) =>
    checked(
      "getExecutionInfo",
      [check.text("instanceId", instanceId), check.whole("executionId", executionId)],
      () =>
        Effect.flatMap(driver.readExecution({ instanceId, executionId }), (info) =>
          info === null
            ? fail("getExecutionInfo", new ExecutionNotFound({ instanceId, executionId }))
            : Effect.succeed(info))
    )

  const listChildren: Service["listChildren"] = (instanceId) =>
    checked("listChildren", [check.text("instanceId", instanceId)], () => driver.listChildren([instanceId]))

  const getParentId: Service["getParentId"] = (instanceId) =>
    Effect.map(
      readOne(driver, "getParentId", instanceId),
      ({ parentInstanceId }) => Option.fromNullOr(parentInstanceId)
    )

  const getInstanceTree: Service["getInstanceTree"] = (instanceId) =>
    checked(
      "getInstanceTree",
      [check.text("instanceId", instanceId)],
      () => Effect.map(walk(instanceId, driver.listChildren), (allIds) => ({ rootId: instanceId, allIds }))
    )

  return {
    listExecutions,
    latestExecutionId,
    readHistory,
    readHistoryWithExecutionId,
    getInstanceInfo: (instanceId: string) =>
      Effect.map(
        Effect.flatMap(readOne(driver, "getInstanceInfo", instanceId), (state) => withAttributes(driver, [state])),
        ([info]) => info!
      ),
    ...streams(driver),
    getExecutionInfo,
    getSystemMetrics: driver.systemMetrics,
    listChildren,
    getParentId,
    getInstanceTree
  }
}

/** Fails with `InstanceNotFound`. */
const readOne = (driver: Driver, operation: string, instanceId: string) =>
  checked(operation, [check.text("instanceId", instanceId)], () =>
    Effect.flatMap(
      driver.readInstances([instanceId]),
      ([state]) => state === undefined ? fail(operation, new InstanceNotFound({ instanceId })) : Effect.succeed(state)
    ))

// -- queues ----------------------------------------------------------------------------------------

const queues = (driver: Driver) => {
  const getQueuedWork: Service["getQueuedWork"] = (instanceId) =>
    checked("getQueuedWork", [check.text("instanceId", instanceId)], () =>
      Effect.gen(function*() {
        const messages = yield* driver.readMessages({ instanceId, limit: mostMessages, maxBytes: longestMessage })
        return {
          messages: messages.map(decodeMessage),
          activities: yield* driver.readActivities(instanceId),
          waitsForLimit: yield* driver.readLimitWait(instanceId)
        }
      }))

  const getQueueLoads: Service["getQueueLoads"] = Effect.gen(function*() {
    const orchestrations = yield* driver.readOrchestrationLoads
    const activities = yield* driver.readActivityLoads
    const processes = yield* driver.listProcesses
    return {
      orchestrations: orchestrations.map((load) => ({
        ...load,
        servedBy: load.orchestration === null || load.isOfRust
          ? null
          : serversOfOrchestration(processes, load.orchestration, load.version)
      })),
      activities: activities.map((load) => ({
        ...load,
        servedBy: serversOfActivity(processes, load.activity, load.tag)
      }))
    }
  })

  const findUnserved: Service["findUnserved"] = Effect.map(getQueueLoads, ({ activities, orchestrations }) => {
    const isUnserved = ({ servedBy, waiting }: Served & QueueLoad) => servedBy === 0 && waiting > 0
    const withLimited = activities.map((load) => ({ ...load, waiting: load.waiting + load.limited }))
    return [
      ...orchestrations.filter(isUnserved).map(({ oldestAgeMs, orchestration, version, waiting }) => ({
        kind: "orchestration" as const,
        name: orchestration!,
        version,
        tag: null,
        waiting,
        oldestAgeMs
      })),
      ...withLimited.filter(isUnserved).map(({ activity, oldestAgeMs, tag, waiting }) => ({
        kind: "activity" as const,
        name: activity,
        version: null,
        tag,
        waiting,
        oldestAgeMs
      }))
    ]
  })

  return {
    getQueueDepths: driver.queueDepths,
    countMessagesBeforeStart: driver.countMessagesBeforeStart,
    listMessagesBeforeStart: ({ limit }: { readonly limit: number }) =>
      checked("listMessagesBeforeStart", [check.whole("limit", limit, 1, 1000)], () =>
        Effect.map(
          driver.readMessagesBeforeStart({ limit, maxBytes: longestMessage }),
          (messages) => messages.map(decodeMessage)
        )),
    listProcesses: driver.listProcesses,
    getQueueLoads,
    findUnserved,
    getQueuedWork
  }
}

/** Most messages to read besides timers. */
const mostMessages = 50

/** Bytes of a message that is read. */
const longestMessage = 65_536

const decodeMessage = <Message extends StoredMessage>({ workItem, ...message }: Message) => ({
  ...message,
  item: workItem === null ? null : Option.getOrNull(Result.getSuccess(WorkItem.decode(workItem)))
})

// -- pauses ----------------------------------------------------------------------------------------

const pauses = (driver: Driver, notifier: Notifier["Service"] | undefined) => {
  /** The store says it to those that listen to it. Who does not hear it, finds it with the next look. */
  const announce = Effect.suspend(() => notifier === undefined ? Effect.void : notifier.announce([Hint.Paused()])).pipe(
    Effect.ignore
  )

  const pause: Service["pause"] = (target, options) =>
    checked(
      "pause",
      [...problemsOf(target), check.text("reason", options?.reason)],
      () =>
        Effect.flatMap(driver.pause({ target, reason: options?.reason ?? null }), (outcome) => {
          if (outcome === "Paused" || target._tag !== "Instance") return announce
          const { instanceId } = target
          return fail(
            "pause",
            outcome === "Ended" ? new InstanceEnded({ instanceId }) : new InstanceNotFound({ instanceId })
          )
        })
    )

  return {
    pause,
    resume: (target: PauseTarget) =>
      checked(
        "resume",
        problemsOf(target),
        () => Effect.tap(driver.resume(target), (wasPaused) => wasPaused ? announce : Effect.void)
      ),
    getPauses: Effect.gen(function*() {
      return { targets: yield* driver.readPaused, instances: yield* driver.countPausedInstances }
    })
  }
}

const problemsOf = (target: PauseTarget) => {
  switch (target._tag) {
    case "Instance":
      return [check.id("instanceId", target.instanceId)]
    case "Orchestration":
      return [check.given("name", target.name, check.name), check.given("version", target.version, check.name)]
    case "Activity":
      return [check.given("name", target.name, check.name)]
    case "Tag":
      return [check.given("tag", target.tag, check.tag)]
    case "Everything":
      return []
  }
}

// -- deletions -------------------------------------------------------------------------------------

const deletions = (driver: Driver) => {
  const deleteInstance: Service["deleteInstance"] = Effect.fn("Admin.deleteInstance")(function*(instanceId, options) {
    const { parentInstanceId } = yield* readOne(driver, "deleteInstance", instanceId)
    if (parentInstanceId !== null) {
      return yield* fail("deleteInstance", new InstanceHasParent({ instanceId, parentInstanceId }))
    }
    return yield* deleteTree(driver, "deleteInstance", instanceId, options?.force === true ? "none" : "all")
  })

  const deleteInstancesAtomic: Service["deleteInstancesAtomic"] = (instanceIds, options) =>
    checked(
      "deleteInstancesAtomic",
      [
        check.texts("instanceIds", instanceIds),
        check.whole("instanceIds.length", instanceIds.length, 0, mostAtOnce)
      ],
      () =>
        instanceIds.length === 0
          ? Effect.succeed(nothingDeleted)
          : deleteTogether(driver, "deleteInstancesAtomic", instanceIds, options?.force === true ? [] : instanceIds)
    )

  const deleteInstanceBulk: Service["deleteInstanceBulk"] = Effect.fn("Admin.deleteInstanceBulk")(function*(filter) {
    const { instanceIds, next } = yield* endedRoots(driver, filter)
    const { updatedAtMs } = filter
    const mustHaveEnded = filter.isWholeTreeEnded === true || updatedAtMs !== undefined ? "all" : "root"
    let deleted = nothingDeleted
    const failed: Array<FailedDeletion> = []
    for (let start = 0; start < instanceIds.length; start += together) {
      const roots = instanceIds.slice(start, start + together)
      const all = yield* Effect.result(deleteTrees(driver, roots, mustHaveEnded, updatedAtMs))
      if (Result.isSuccess(all) && all.success !== undefined) {
        deleted = sum(deleted, all.success)
        continue
      }
      if (Result.isFailure(all) && concernsAll(all.failure.reason)) return yield* Effect.fail(all.failure)
      for (const instanceId of roots) {
        const result = yield* Effect.result(
          deleteTree(driver, "deleteInstanceBulk", instanceId, mustHaveEnded, updatedAtMs)
        )
        if (Result.isSuccess(result)) deleted = sum(deleted, result.success)
        else if (concernsAll(result.failure.reason)) return yield* Effect.fail(result.failure)
        // The root runs again since it was selected, or a descendant does; or one of them has changed.
        else if (result.failure.reason._tag !== "InstanceRunning") failed.push({ instanceId, error: result.failure })
      }
    }
    return { ...deleted, failed, next }
  })

  return { deleteInstance, deleteInstancesAtomic, deleteInstanceBulk }
}

/** Each instance takes one of the 6,000 to 10,000 places that PostgreSQL's table of locks has by default. */
const mostAtOnce = 5000

/** Trees that are deleted in one transaction while they are small. */
const together = 100

/** All trees or nothing; undefined where they are too big for one transaction. */
const deleteTrees = Effect.fnUntraced(function*(
  driver: Driver,
  roots: ReadonlyArray<string>,
  mustHaveEnded: "all" | "root",
  updatedAtMs: UpdateTimes
) {
  const ids = new Set(roots)
  for (let level = roots; level.length > 0;) {
    level = (yield* driver.listChildren(level)).filter((id) => !ids.has(id))
    for (const id of level) ids.add(id)
    if (ids.size > slice) return undefined
  }
  const all = [...ids]
  return yield* deleteTogether(driver, "deleteInstanceBulk", all, mustHaveEnded === "all" ? all : roots, updatedAtMs)
})

/** Ended roots, the oldest first. */
const endedRoots = (driver: Driver, filter: DeletionFilter) => {
  const { completedBeforeMs, cursor, exceptDuroxide = false, instanceIds, limit = 1000, status } = filter
  const ended = check.oneOf("status", status, ["Completed", "Failed", "Cancelled"])
  if (instanceIds !== undefined) {
    return checked("deleteInstanceBulk", [
      ended,
      cursor === undefined ? undefined : ["cursor", "it comes with instanceIds: give one of them"]
    ], () =>
      Effect.map(
        select(driver, "deleteInstanceBulk", { ...filter, limit: filter.limit ?? instanceIds.length }, {
          endedRootsOnly: true,
          status: status ?? null,
          exceptDuroxide
        }),
        (ids) => ({ instanceIds: ids, next: null })
      ))
  }
  const after = cursor === undefined ? null : positionOf("oldest", cursor)
  return checked("deleteInstanceBulk", [
    check.whole("completedBeforeMs", completedBeforeMs),
    check.whole("limit", limit),
    ended,
    after === undefined ? ["cursor", "it is not one of a deletion"] : undefined
  ], () =>
    limit === 0 ? Effect.succeed({ instanceIds: [], next: null }) : Effect.map(
      driver.listInstances({
        ...everything,
        status: status ?? "Ended",
        isRoot: true,
        createdBeforeMs: completedBeforeMs ?? null,
        endedBeforeMs: completedBeforeMs ?? null,
        exceptDuroxide,
        orderBy: "oldest",
        after: after ?? null,
        limit
      }),
      ({ instanceIds, next }) => ({ instanceIds, next: next === null ? null : cursorOf("oldest", next) })
    ))
}

/** Errors that the next tree would meet as well. */
const concernsAll = ({ _tag }: Reason): boolean =>
  _tag === "ConnectionLost" || _tag === "AuthenticationFailed" || _tag === "PermissionDenied" ||
  _tag === "SchemaMismatch" || _tag === "Closed"

// -- prunings --------------------------------------------------------------------------------------

const prunings = (driver: Driver) => {
  const prune = (instanceId: string, options: PruneOptions) =>
    driver.pruneExecutions({
      instanceId,
      keepLast: options.keepLast ?? null,
      completedBeforeMs: options.completedBeforeMs ?? null
    })

  const pruneExecutions: Service["pruneExecutions"] = (instanceId, options) =>
    checked("pruneExecutions", pruning(options), () =>
      Effect.andThen(
        readOne(driver, "pruneExecutions", instanceId),
        Effect.map(prune(instanceId, options), (pruned) => ({ instancesProcessed: 1, ...pruned }))
      ))

  const pruneExecutionsBulk: Service["pruneExecutionsBulk"] = (filter, options) =>
    checked("pruneExecutionsBulk", pruning(options), () =>
      Effect.gen(function*() {
        const instanceIds = yield* select(driver, "pruneExecutionsBulk", filter, {
          endedRootsOnly: false,
          status: null,
          exceptDuroxide: false
        })
        const pruned = yield* Effect.forEach(instanceIds, (instanceId) => prune(instanceId, options))
        return {
          instancesProcessed: instanceIds.length,
          executionsDeleted: pruned.reduce((sum, one) => sum + one.executionsDeleted, 0),
          eventsDeleted: pruned.reduce((sum, one) => sum + one.eventsDeleted, 0)
        }
      }))

  return { pruneExecutions, pruneExecutionsBulk }
}

const pruning = (options: PruneOptions) => [
  check.whole("keepLast", options.keepLast),
  check.whole("completedBeforeMs", options.completedBeforeMs)
]

const select = (
  driver: Driver,
  operation: string,
  { completedBeforeMs, instanceIds, limit }: InstanceFilter,
  which: Pick<Selection, "endedRootsOnly" | "status" | "exceptDuroxide">
) =>
  checked(operation, [
    check.texts("instanceIds", instanceIds ?? []),
    check.whole("completedBeforeMs", completedBeforeMs),
    check.whole("limit", limit)
  ], () =>
    driver.selectInstances({
      instanceIds: instanceIds ?? null,
      completedBeforeMs: completedBeforeMs ?? null,
      limit: limit ?? 1000,
      ...which
    }))

// -- trees -----------------------------------------------------------------------------------------

// An instance is deleted with all its descendants: in one transaction while they are few, in several beyond that,
// because a transaction takes an entry in the server's lock table for each of them, and that table is small.

/** Most instances one transaction holds or deletes. */
const slice = 1000

/** How long an instance stays away from claims when its deletion stops half way. */
const holdForMs = 600_000

/**
 * Which instances of a tree must have ended: otherwise nothing is deleted, and the call fails with `InstanceRunning`.
 */
type MustHaveEnded = "all" | "root" | "none"

type UpdateTimes = DeletionFilter["updatedAtMs"]

/** Children that appear between looking and deleting make it start over. */
const deleteTree = Effect.fnUntraced(function*(
  driver: Driver,
  operation: string,
  rootId: string,
  mustHaveEnded: MustHaveEnded,
  updatedAtMs?: UpdateTimes
) {
  const obliged = (ids: ReadonlyArray<string>) =>
    mustHaveEnded === "all" ? ids : mustHaveEnded === "root" ? ids.filter((id) => id === rootId) : []

  let deleted = nothingDeleted
  const attempt = Effect.gen(function*() {
    const few = yield* walk(rootId, driver.listChildren)
    const ids = few.length <= slice ? few : yield* hold(driver, operation, rootId, obliged)
    for (let end = ids.length; end > 0; end -= slice) {
      const part = ids.slice(Math.max(0, end - slice), end)
      deleted = sum(deleted, yield* deleteTogether(driver, operation, part, obliged(part), updatedAtMs))
    }
  })
  yield* Effect.retry(attempt, { times: 5, while: (error) => error.reason._tag === "ChildLeftBehind" })
  return deleted
})

/** All of them or nothing. */
const deleteTogether = (
  { deleteInstances }: Driver,
  operation: string,
  instanceIds: ReadonlyArray<string>,
  mustHaveEnded: ReadonlyArray<string>,
  updatedAtMs?: UpdateTimes
): Effect.Effect<Deleted, ProviderError> =>
  Effect.flatMap(
    deleteInstances({
      instanceIds,
      mustHaveEnded,
      updatedAtMs: updatedAtMs && mustHaveEnded.map((id) => updatedAtMs.get(id) ?? -1)
    }),
    (outcome) => {
      switch (outcome._tag) {
        case "Deleted":
          return Effect.succeed(outcome.deleted)
        case "StillRunning":
          return fail(operation, new InstanceRunning({ instanceId: outcome.instanceId }))
        case "ChildLeftBehind":
          return fail(operation, new ChildLeftBehind({ instanceId: outcome.instanceId }))
      }
    }
  )

const nothingDeleted: Deleted = {
  instancesDeleted: 0,
  executionsDeleted: 0,
  eventsDeleted: 0,
  queueMessagesDeleted: 0
}

const sum = (a: Deleted, b: Deleted): Deleted => ({
  instancesDeleted: a.instancesDeleted + b.instancesDeleted,
  executionsDeleted: a.executionsDeleted + b.executionsDeleted,
  eventsDeleted: a.eventsDeleted + b.eventsDeleted,
  queueMessagesDeleted: a.queueMessagesDeleted + b.queueMessagesDeleted
})

/** Walks a tree and holds each instance, so that none takes a turn. Fails before anything is deleted. */
const hold = (
  { holdInstances }: Driver,
  operation: string,
  rootId: string,
  obliged: (ids: ReadonlyArray<string>) => ReadonlyArray<string>
) =>
  walk(rootId, (ids) =>
    Effect.flatMap(
      holdInstances({ instanceIds: ids, mustHaveEnded: obliged(ids), holdForMs }),
      (outcome) =>
        outcome._tag === "Held"
          ? Effect.succeed(outcome.childIds)
          : fail(operation, new InstanceRunning({ instanceId: outcome.instanceId }))
    ))

/** The ids of a tree, parents before their children. */
const walk = Effect.fnUntraced(function*(
  rootId: string,
  childrenOf: (ids: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<string>, ProviderError>
) {
  const known = new Set([rootId])
  const ids = [rootId]
  for (let next = 0; next < ids.length;) {
    const parents = ids.slice(next, next + slice)
    next += parents.length
    for (const childId of yield* childrenOf(parents)) {
      if (known.has(childId)) continue
      known.add(childId)
      ids.push(childId)
    }
  }
  return ids
})

// internal

const fail = (operation: string, reason: Reason) => Effect.fail(new ProviderError({ operation, reason }))
