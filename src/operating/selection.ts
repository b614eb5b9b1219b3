/**
 * Instances that a search selects for the same action.
 */
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import * as Admin from "../provider/Admin.ts"
import type { InstanceSearch } from "../provider/Admin.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import type { Item } from "./bulk.ts"

export type Status = NonNullable<InstanceSearch["status"]>

/** Which instances an action can be about. */
export interface Selectable {
  /** Statuses that a search may ask for. */
  readonly statuses: ReadonlyArray<Status>
  /** Those that it has if it asks for none, searched one after the other; undefined: every one. */
  readonly defaults: ReadonlyArray<Status | undefined>
  /** Whether only roots of this status are selected, unless the search names a parent. */
  readonly rootsOnly?: ((status: Status | undefined) => boolean) | undefined
}

export const toRetry: Selectable = {
  statuses: ["Failed", "Cancelled", "Blocked"],
  // What was retried and is blocked then is tried once more, which changes nothing.
  defaults: ["Failed", "Cancelled", "Blocked"],
  rootsOnly: (status) => status !== "Blocked"
}

/** Interruptions and terminations. */
export const toEnd: Selectable = { statuses: ["Running", "Blocked", "Paused"], defaults: ["Running"] }

/** Selects also instances that have not ended, with `force`. */
export const toDelete = (force: boolean): Selectable => ({
  statuses: force ? [...ended, "Running", "Blocked", "Paused"] : ended,
  defaults: force ? [undefined] : ended,
  rootsOnly: () => true
})

/** Instances that match now. Those that are created later are not among them. */
export const matching = Effect.fnUntraced(function*(
  search: InstanceSearch,
  { defaults, rootsOnly }: Selectable
): Effect.fn.Return<Stream.Stream<Item, ProviderError, Admin.Admin>, ProviderError, Admin.Admin> {
  const [newest] = (yield* (yield* Admin.Admin).list({ orderBy: "newest", limit: 1 })).instances
  const streams = (search.status === undefined ? defaults : [search.status]).map((status) =>
    Admin.stream({
      ...search,
      status,
      isRoot: search.isRoot === true || (search.parentId === undefined && rootsOnly?.(status) === true),
      createdBeforeMs: Math.min(search.createdBeforeMs ?? Infinity, (newest?.createdAtMs ?? 0) + 1),
      orderBy: search.idPrefix === undefined ? "oldest" : "id"
    })
  )
  return streams.reduce((all, stream) => Stream.concat(all, stream), Stream.empty as typeof streams[number]).pipe(
    Stream.map(({ instanceId, parentInstanceId }): Item => ({ id: instanceId, parentId: parentInstanceId }))
  )
})

// internal

const ended = ["Completed", "Failed", "Cancelled"] as const
