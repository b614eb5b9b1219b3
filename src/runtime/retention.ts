/**
 * Deletes instances that ended longer ago than they are kept.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"
import * as Result from "effect/Result"
import type * as Scope from "effect/Scope"
import * as Event from "../model/Event.ts"
import { aboutInstance } from "../model/shared/logging.ts"
import { Admin } from "../provider/Admin.ts"
import type { InstanceInfo } from "../provider/Admin.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { endOf } from "../provider/shared/endOf.ts"
import type { Policy } from "./retentionPolicy.ts"
import type { Supervisor } from "./supervisor.ts"

/** Looks for the first time within the interval: processes that start together do not look together. */
export const run = Effect.fnUntraced(function*(
  policy: Policy,
  supervisor: Supervisor
): Effect.fn.Return<void, never, Scope.Scope> {
  const found = yield* Effect.serviceOption(Admin)
  const keeps = Object.values(policy.keepMs).some(Number.isFinite)
  if (found._tag === "None" || !keeps) return
  const admin = found.value
  const look = Effect.gen(function*() {
    const living = (yield* admin.listProcesses).filter(({ isAlive, orchestrations }) =>
      isAlive && orchestrations.length > 0
    ).length
    // On average one of them looks; two do no harm.
    if ((yield* Random.next) * living >= 1) return
    const { deleted, failed, first } = yield* expire(admin, policy)
    if (deleted > 0) {
      yield* Effect.logInfo("Retention: instances deleted that had ended long ago").pipe(
        Effect.annotateLogs({ deleted })
      )
    }
    if (first !== undefined) {
      yield* Effect.logWarning(
        "Retention: some trees could not be deleted, the next look tries again; instance_id is the root of the first"
      ).pipe(aboutInstance({ failed, instance_id: first.instanceId, problem: first.error.message }))
    }
  }).pipe(
    Effect.catchCause((cause) =>
      Effect.logWarning("Retention: instances not deleted yet, the next look tries again", cause)
    )
  )
  const loop = Effect.andThen(
    Effect.flatMap(Random.next, (part) => Effect.sleep(part * policy.intervalMs)),
    Effect.forever(
      Effect.andThen(
        look,
        Effect.flatMap(Random.nextBetween(0.8, 1.2), (factor) => Effect.sleep(factor * policy.intervalMs))
      )
    )
  )
  yield* Effect.forkScoped(supervisor.watch("retention", loop))
})

/** Deletes all that is too old. Returns how many instances that were, and how many trees were refused. */
const expire = Effect.fnUntraced(function*(admin: Admin["Service"], policy: Policy) {
  const nowMs = yield* Clock.currentTimeMillis
  let deleted = 0
  let failed = 0
  let first: Batch["failed"][number] | undefined
  for (const status of ["Completed", "Failed", "Cancelled"] as const) {
    const keepMs = policy.keepMs[status]
    if (keepMs === Infinity) continue
    const filter = {
      status,
      completedBeforeMs: Math.floor(nowMs - keepMs),
      exceptDuroxide: true,
      isWholeTreeEnded: true,
      limit: batch
    }
    if (filter.completedBeforeMs < 0) continue
    let cursor: string | null = null
    do {
      const [took, page]: readonly [number, Batch] = yield* timed(
        policy.export === undefined
          ? admin.deleteInstanceBulk({ ...filter, cursor: cursor ?? undefined })
          : exported(admin, policy.export, { ...filter, cursor: cursor ?? undefined })
      )
      deleted += page.instancesDeleted
      failed += page.failed.length
      first ??= page.failed[0]
      cursor = page.next
      if (cursor !== null) yield* Effect.sleep(took * pauseFactor)
    } while (cursor !== null)
  }
  return { deleted, failed, first }
})

// internal

/** Roots in each batch. */
const batch = 100

/** A batch is followed by a pause of so many times its length: retention takes a fifth of one connection at most. */
const pauseFactor = 4

type Batch = Effect.Success<ReturnType<Admin["Service"]["deleteInstanceBulk"]>>

type Filter = Parameters<Admin["Service"]["deleteInstanceBulk"]>[0]

const timed = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function*() {
    const begin = yield* Clock.currentTimeMillis
    const result = yield* effect
    return [(yield* Clock.currentTimeMillis) - begin, result] as const
  })

/** Another process has deleted it meanwhile. */
const isGone = ({ reason }: ProviderError) => reason._tag === "InstanceNotFound"

const exported = Effect.fnUntraced(function*(
  admin: Admin["Service"],
  receive: NonNullable<Policy["export"]>,
  { completedBeforeMs, cursor, exceptDuroxide, limit, status }: Filter
): Effect.fn.Return<Batch, unknown> {
  const { instances, next } = yield* admin.list({
    status,
    isRoot: true,
    endedBeforeMs: completedBeforeMs,
    createdBeforeMs: completedBeforeMs,
    exceptDuroxide,
    orderBy: "oldest",
    cursor,
    limit
  })
  const lines: Array<string> = []
  const instanceIds: Array<string> = []
  const updatedAtMs = new Map<string, number>()
  const failed: Array<Batch["failed"][number]> = []
  for (const { instanceId } of instances) {
    const tree = yield* Effect.result(linesOf(admin, instanceId))
    if (Result.isSuccess(tree)) {
      if (tree.success === undefined) continue
      instanceIds.push(instanceId)
      lines.push(...tree.success.lines)
      for (const state of tree.success.states) updatedAtMs.set(state.instanceId, state.updatedAtMs)
    } else if (tree.failure.reason._tag === "DataCorrupted") failed.push({ instanceId, error: tree.failure })
    else if (!isGone(tree.failure)) return yield* tree.failure
  }
  if (lines.length > 0) yield* receive(lines)
  // Meanwhile one of them may have been retried, or deleted and started again: that has not been exported.
  const deleted = yield* admin.deleteInstanceBulk({ instanceIds, updatedAtMs })
  return { ...deleted, failed: [...failed, ...deleted.failed], next }
})

/** The lines of a tree, unless an instance in it runs. */
const linesOf = Effect.fnUntraced(function*(admin: Admin["Service"], rootId: string) {
  const { allIds } = yield* admin.getInstanceTree(rootId)
  const states = yield* Effect.forEach(allIds, admin.getInstanceInfo)
  if (states.some((state) => endOf(state) === undefined)) return undefined
  return { states, lines: yield* Effect.forEach(states, (state) => lineOf(admin, state)) }
})

/** An instance with the histories of all its executions, as `replayHistory` reads them. */
const lineOf = Effect.fnUntraced(function*(
  admin: Admin["Service"],
  state: InstanceInfo
): Effect.fn.Return<string, ProviderError> {
  const { instanceId } = state
  const events: Array<string> = []
  for (const executionId of yield* admin.listExecutions(instanceId)) {
    for (const event of yield* admin.readHistoryWithExecutionId(instanceId, executionId)) {
      events.push(Event.encode(event))
    }
  }
  const { block: _, failure: __, pause: ___, ...fields } = state
  return `${JSON.stringify(fields).slice(0, -1)},"history":[${events.join(",")}]}`
})
