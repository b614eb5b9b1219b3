/**
 * The instances that a command is about: those that are named, or those that a filter selects.
 */
import * as Argument from "effect/cli/Argument"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import * as Admin from "../../provider/Admin.ts"
import type { InstanceSearch } from "../../provider/Admin.ts"
import * as Bulk from "./bulk.ts"
import { misused } from "./failure.ts"
import * as Filters from "./filters.ts"

export const flags = {
  ids: Argument.String("id").pipe(Argument.withDescription("Ids of the instances"), Argument.variadic()),
  ...Filters.flags,
  ...Bulk.flags
}

/** What the flags above say. */
export interface Flags extends Filters.Filter, Bulk.Flags {
  readonly ids: ReadonlyArray<string>
}

/** What is done to each instance. */
export interface Action<R> extends Omit<Bulk.Action<Admin.Admin, R>, "noun"> {
  /** Statuses that a filter may ask for, and those that it has if it asks for none, searched one after the other. */
  readonly statuses: ReadonlyArray<Status>
  readonly defaults: ReadonlyArray<Status | undefined>
  /** Whether only roots of this status are selected, unless the filter names a parent. */
  readonly rootsOnly?: (status: Status | undefined) => boolean
}

type Status = NonNullable<InstanceSearch["status"]>

/** The one id, if nothing but that is said: the command does it without a list. */
export const onlyId = ({ dryRun, ids, ...flags }: Flags): string | undefined =>
  ids.length === 1 && !dryRun && !Filters.isGiven(flags) && Option.isNone(flags.limit) ? ids[0] : undefined

/** Does it to all, and prints what it came to. */
export const run = Effect.fnUntraced(function*<R>(flags: Flags, action: Action<R>) {
  const isNamed = flags.ids.length > 0
  if (isNamed && (Filters.isGiven(flags) || Option.isSome(flags.limit))) {
    return yield* misused("name instances by their ids, or select them with filters, not both")
  }
  const found = isNamed ? Bulk.named(flags.ids) : yield* selected(flags, action)
  yield* Bulk.run(flags, found, { isNamed }, { ...action, noun: "instance" })
})

// internal

/** Instances that match now. Those that are created later are not among them. */
const selected = Effect.fnUntraced(function*<R>(flags: Flags, action: Action<R>) {
  if (!Filters.isGiven(flags)) {
    return yield* misused("name instances by their ids, or select them with filters such as --status or --name")
  }
  const { status } = flags
  if (Option.isSome(status) && !action.statuses.includes(status.value)) {
    return yield* misused(
      `there are no ${status.value.toLowerCase()} instances to ${action.verb}: --status may be ` +
        action.statuses.map((status) => status.toLowerCase()).join(", ")
    )
  }
  const search = yield* Filters.searchOf(flags)
  const [newest] = (yield* (yield* Admin.Admin).list({ orderBy: "newest", limit: 1 })).instances
  const streams = (Option.isSome(status) ? [status.value] : action.defaults).map((status) =>
    Admin.stream({
      ...search,
      status,
      isRoot: search.isRoot === true || (search.parentId === undefined && action.rootsOnly?.(status) === true),
      createdBeforeMs: Math.min(search.createdBeforeMs ?? Infinity, (newest?.createdAtMs ?? 0) + 1),
      orderBy: search.idPrefix === undefined ? "oldest" : "id"
    })
  )
  return streams.reduce((all, stream) => Stream.concat(all, stream), Stream.empty as typeof streams[number]).pipe(
    Stream.map(({ instanceId, parentInstanceId }): Bulk.Item => ({ id: instanceId, parentId: parentInstanceId }))
  )
})
