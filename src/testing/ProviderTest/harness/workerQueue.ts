/**
 * Verbs of the worker queue.
 */
import { assert } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { BlockReport } from "../../../model/Block.ts"
import type { TagFilter } from "../../../model/Instance.ts"
import type * as WorkItem from "../../../model/WorkItem.ts"
import { Provider } from "../../../provider/Provider.ts"
import type { Claimed } from "../../../provider/Provider.ts"
import { none, some } from "./expectations.ts"
import { activityItem } from "./items.ts"
import type { Fields } from "./items.ts"
import { duration } from "./time.ts"

export const enqueueWork = (item: WorkItem.Of<"ActivityExecute">) =>
  Effect.flatMap(Provider, (provider) => provider.enqueueForWorker(item))

/** Enqueues activity `id` of the instance. */
export const enqueueActivity = (instance: string, id: number, fields?: Fields<WorkItem.Of<"ActivityExecute">>) =>
  enqueueWork(activityItem(instance, id, fields))

export interface FetchWork {
  readonly lockTimeout?: Duration.Input
  readonly pollTimeout?: Duration.Input
  /** Defaults to activities without a tag. */
  readonly tags?: TagFilter
  readonly session?: { readonly workerId: string; readonly lockTimeout?: Duration.Input; readonly maxNew?: number }
  readonly activities?: ReadonlyArray<string>
}

export type ClaimedWork = Claimed<WorkItem.Of<"ActivityExecute">>

export const fetchWork = (options: FetchWork = {}) =>
  Effect.flatMap(Provider, (provider) =>
    provider.fetchWorkItems({
      lockTimeout: Duration.fromInputUnsafe(options.lockTimeout ?? "30 seconds"),
      pollTimeout: Duration.fromInputUnsafe(options.pollTimeout ?? 0),
      tags: options.tags ?? { _tag: "DefaultOnly" },
      session: Option.map(Option.fromUndefinedOr(options.session), ({ lockTimeout, maxNew, workerId }) => ({
        workerId,
        lockTimeout: Duration.fromInputUnsafe(lockTimeout ?? "30 seconds"),
        ...(maxNew !== undefined && { maxNew: () => maxNew })
      })),
      activities: options.activities
    })).pipe(Effect.map(([claimed]) => Option.fromUndefinedOr(claimed)))

export const claimWork = (options?: FetchWork) =>
  Effect.map(fetchWork(options), (found) => some(found, "an activity to claim"))

/** Claims, and requires that it is the activity with this id. */
export const claimActivity = (id: number, options?: FetchWork) =>
  Effect.map(claimWork(options), (claimed) => {
    assert.strictEqual(claimed.item.id, id)
    return claimed
  })

export const expectNoWork = (options?: FetchWork) =>
  Effect.map(fetchWork(options), (found) => none(found, ({ item }) => `activity ${item.id}`))

/** Without a completion the activity is deleted only. */
export const ackWork = (
  lockToken: string,
  completion?: WorkItem.Of<"ActivityCompleted"> | WorkItem.Of<"ActivityFailed">
) => Effect.flatMap(Provider, (provider) => provider.ackWorkItem(lockToken, Option.fromUndefinedOr(completion)))

export const abandonWork = (
  lockToken: string,
  options: { readonly delay?: Duration.Input; readonly ignoreAttempt?: boolean; readonly block?: BlockReport } = {}
) =>
  Effect.flatMap(Provider, (provider) =>
    provider.abandonWorkItem({
      lockToken,
      delay: duration(options.delay),
      ignoreAttempt: options.ignoreAttempt ?? false,
      block: options.block
    }))

export const renewWork = (lockToken: string, extendFor: Duration.Input) =>
  Effect.flatMap(
    Provider,
    (provider) => provider.renewWorkItemLock({ lockToken, extendFor: Duration.fromInputUnsafe(extendFor) })
  )
