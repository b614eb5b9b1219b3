/**
 * Deletion of an instance with all its descendants: in one transaction while they are few, in several beyond that, because
 * a transaction takes an entry in the server's lock table for each of them, and that table is small.
 */
import * as Effect from "effect/Effect"
import type { AdminDriver, Deleted } from "../AdminDriver.ts"
import { ChildLeftBehind, InstanceRunning, ProviderError } from "../ProviderError.ts"

/** Most instances one transaction holds or deletes. */
export const slice = 1000

/** How long an instance stays away from claims when its deletion stops half way. */
const holdForMs = 600_000

/** The ids of a tree, parents before their children. */
export const treeOf = (
  { listChildren }: Pick<AdminDriver["Service"], "listChildren">,
  rootId: string
): Effect.Effect<ReadonlyArray<string>, ProviderError> => walk(rootId, listChildren)

/** Which instances of a tree must have ended: otherwise nothing is deleted, and the call fails with `InstanceRunning`. */
export type MustHaveEnded = "all" | "root" | "none"

type Driver = Pick<AdminDriver["Service"], "deleteInstances" | "holdInstances" | "listChildren">

/** Children that appear between looking and deleting make it start over. */
export const deleteTree = Effect.fnUntraced(function*(
  driver: Driver,
  operation: string,
  rootId: string,
  mustHaveEnded: MustHaveEnded
) {
  const obliged = (ids: ReadonlyArray<string>) =>
    mustHaveEnded === "all" ? ids : mustHaveEnded === "root" ? ids.filter((id) => id === rootId) : []

  let deleted = nothingDeleted
  const attempt = Effect.gen(function*() {
    const few = yield* treeOf(driver, rootId)
    const ids = few.length <= slice ? few : yield* hold(driver, operation, rootId, obliged)
    for (let end = ids.length; end > 0; end -= slice) {
      const part = ids.slice(Math.max(0, end - slice), end)
      deleted = sum(deleted, yield* deleteTogether(driver, operation, part, obliged(part)))
    }
  })
  yield* Effect.retry(attempt, { times: 5, while: (error) => error.reason._tag === "ChildLeftBehind" })
  return deleted
})

/** All of them or nothing. */
export const deleteTogether = (
  { deleteInstances }: Pick<AdminDriver["Service"], "deleteInstances">,
  operation: string,
  instanceIds: ReadonlyArray<string>,
  mustHaveEnded: ReadonlyArray<string>
): Effect.Effect<Deleted, ProviderError> =>
  Effect.flatMap(deleteInstances({ instanceIds, mustHaveEnded }), (outcome) => {
    switch (outcome._tag) {
      case "Deleted":
        return Effect.succeed(outcome.deleted)
      case "StillRunning":
        return fail(operation, new InstanceRunning({ instanceId: outcome.instanceId }))
      case "ChildLeftBehind":
        return fail(operation, new ChildLeftBehind({ instanceId: outcome.instanceId }))
    }
  })

export const nothingDeleted: Deleted = {
  instancesDeleted: 0,
  executionsDeleted: 0,
  eventsDeleted: 0,
  queueMessagesDeleted: 0
}

export const sum = (a: Deleted, b: Deleted): Deleted => ({
  instancesDeleted: a.instancesDeleted + b.instancesDeleted,
  executionsDeleted: a.executionsDeleted + b.executionsDeleted,
  eventsDeleted: a.eventsDeleted + b.eventsDeleted,
  queueMessagesDeleted: a.queueMessagesDeleted + b.queueMessagesDeleted
})

// internal

/** As `treeOf`, but holds each instance, so that none takes a turn. Fails before anything is deleted. */
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

const fail = (operation: string, reason: ChildLeftBehind | InstanceRunning) =>
  Effect.fail(new ProviderError({ operation, reason }))
