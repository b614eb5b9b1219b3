/**
 * The management service over its driver: which errors a caller gets, and in which steps trees are deleted.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import type { Admin, FailedDeletion, InstanceFilter, PruneOptions } from "../Admin.ts"
import type { AdminDriver, Selection } from "../AdminDriver.ts"
import type { Provider } from "../Provider.ts"
import { ExecutionNotFound, InstanceHasParent, InstanceNotFound, ProviderError } from "../ProviderError.ts"
import type { Reason } from "../ProviderError.ts"
import { deleteTogether, deleteTree, nothingDeleted, sum, treeOf } from "./deleteTree.ts"
import { guardAdmin } from "./input.ts"

export const make = (
  driver: AdminDriver["Service"],
  provider: Pick<Provider["Service"], "readWithExecution">
): Admin["Service"] => {
  const instance = (operation: string, instanceId: string) =>
    Effect.flatMap(
      driver.readInstances([instanceId]),
      ([state]) => state === undefined ? fail(operation, new InstanceNotFound({ instanceId })) : Effect.succeed(state)
    )

  const select = (filter: InstanceFilter, endedRootsOnly: boolean) =>
    driver.selectInstances(selection(filter, endedRootsOnly))

  const prune = (instanceId: string, options: PruneOptions) =>
    driver.pruneExecutions({
      instanceId,
      keepLast: options.keepLast ?? null,
      completedBeforeMs: options.completedBeforeMs ?? null
    })

  return guardAdmin({
    listInstances: driver.listInstances(null),
    listInstancesByStatus: (status) => driver.listInstances(status),
    listExecutions: driver.listExecutions,
    latestExecutionId: (instanceId) =>
      Effect.map(instance("latestExecutionId", instanceId), ({ executionId }) => executionId),
    readHistory: (instanceId) =>
      Effect.flatMap(
        instance("readHistory", instanceId),
        ({ executionId }) => provider.readWithExecution(instanceId, executionId)
      ),
    readHistoryWithExecutionId: provider.readWithExecution,
    getInstanceInfo: (instanceId) => instance("getInstanceInfo", instanceId),
    getExecutionInfo: (instanceId, executionId) =>
      Effect.flatMap(driver.readExecution({ instanceId, executionId }), (info) =>
        info === null
          ? fail("getExecutionInfo", new ExecutionNotFound({ instanceId, executionId }))
          : Effect.succeed(info)),
    getSystemMetrics: driver.systemMetrics,
    getQueueDepths: driver.queueDepths,
    listChildren: (instanceId) => driver.listChildren([instanceId]),
    getParentId: (instanceId) =>
      Effect.map(instance("getParentId", instanceId), ({ parentInstanceId }) => Option.fromNullOr(parentInstanceId)),
    getInstanceTree: (instanceId) =>
      Effect.map(treeOf(driver, instanceId), (allIds) => ({ rootId: instanceId, allIds })),

    deleteInstance: Effect.fn("Admin.deleteInstance")(function*(instanceId, options) {
      const { parentInstanceId } = yield* instance("deleteInstance", instanceId)
      if (parentInstanceId !== null) {
        return yield* fail("deleteInstance", new InstanceHasParent({ instanceId, parentInstanceId }))
      }
      return yield* deleteTree(driver, "deleteInstance", instanceId, options?.force === true ? "none" : "all")
    }),

    deleteInstancesAtomic: (instanceIds, options) =>
      instanceIds.length === 0
        ? Effect.succeed(nothingDeleted)
        : deleteTogether(driver, "deleteInstancesAtomic", instanceIds, options?.force === true ? [] : instanceIds),

    deleteInstanceBulk: Effect.fn("Admin.deleteInstanceBulk")(function*(filter) {
      let deleted = nothingDeleted
      const failed: Array<FailedDeletion> = []
      for (const instanceId of yield* select(filter, true)) {
        const result = yield* Effect.result(deleteTree(driver, "deleteInstanceBulk", instanceId, "root"))
        if (Result.isSuccess(result)) deleted = sum(deleted, result.success)
        else if (concernsAll(result.failure.reason)) return yield* Effect.fail(result.failure)
        // `InstanceRunning` means that it runs again since it was selected.
        else if (result.failure.reason._tag !== "InstanceRunning") failed.push({ instanceId, error: result.failure })
      }
      return { ...deleted, failed }
    }),

    pruneExecutions: (instanceId, options) =>
      Effect.andThen(
        instance("pruneExecutions", instanceId),
        Effect.map(prune(instanceId, options), (pruned) => ({ instancesProcessed: 1, ...pruned }))
      ),

    pruneExecutionsBulk: Effect.fn("Admin.pruneExecutionsBulk")(function*(filter, options) {
      const instanceIds = yield* select(filter, false)
      const pruned = yield* Effect.forEach(
        instanceIds,
        (instanceId) => prune(instanceId, options)
      )
      return {
        instancesProcessed: instanceIds.length,
        executionsDeleted: pruned.reduce((sum, one) => sum + one.executionsDeleted, 0),
        eventsDeleted: pruned.reduce((sum, one) => sum + one.eventsDeleted, 0)
      }
    })
  })
}

// internal

/** Errors that the next tree would meet as well. */
const concernsAll = ({ _tag }: Reason): boolean =>
  _tag === "ConnectionLost" || _tag === "AuthenticationFailed" || _tag === "PermissionDenied" ||
  _tag === "SchemaMismatch" || _tag === "Closed"

const fail = (operation: string, reason: Reason) => Effect.fail(new ProviderError({ operation, reason }))

const selection = (filter: InstanceFilter, endedRootsOnly: boolean): Selection => ({
  instanceIds: filter.instanceIds ?? null,
  completedBeforeMs: filter.completedBeforeMs ?? null,
  limit: filter.limit ?? 1000,
  endedRootsOnly
})
