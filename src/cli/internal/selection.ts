/**
 * The instances that a command is about: those that are named, or those that a filter selects.
 */
import * as Argument from "effect/cli/Argument"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Items from "../../operating/bulk.ts"
import * as Selection from "../../operating/selection.ts"
import type { Admin } from "../../provider/Admin.ts"
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
export interface Action<R> extends Omit<Bulk.Action<Admin, R>, "noun"> {
  /** The instances that filters may select. */
  readonly selectable: Selection.Selectable
}

/** The one id, if nothing but that is said: the command does it without a list. */
export const onlyId = ({ dryRun, ids, ...flags }: Flags): string | undefined =>
  ids.length === 1 && !dryRun && !Filters.isGiven(flags) && Option.isNone(flags.limit) ? ids[0] : undefined

/** Does it to all, and prints what it came to. */
export const run = Effect.fnUntraced(function*<R>(flags: Flags, action: Action<R>) {
  const isNamed = flags.ids.length > 0
  if (isNamed && (Filters.isGiven(flags) || Option.isSome(flags.limit))) {
    return yield* misused("name instances by their ids, or select them with filters, not both")
  }
  const found = isNamed ? Items.named(flags.ids) : yield* selected(flags, action)
  yield* Bulk.run(flags, found, { isNamed }, { ...action, noun: "instance" })
})

// internal

const selected = Effect.fnUntraced(function*<R>(flags: Flags, { selectable, verb }: Action<R>) {
  if (!Filters.isGiven(flags)) {
    return yield* misused("name instances by their ids, or select them with filters such as --status or --name")
  }
  const { status } = flags
  if (Option.isSome(status) && !selectable.statuses.includes(status.value)) {
    return yield* misused(
      `there are no ${status.value.toLowerCase()} instances to ${verb}: --status may be ` +
        selectable.statuses.map((status) => status.toLowerCase()).join(", ")
    )
  }
  return yield* Selection.matching(yield* Filters.searchOf(flags), selectable)
})
