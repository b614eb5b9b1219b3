/**
 * Flags that select instances: the same words in every command.
 */
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { parseDefinition } from "../../operating/definitions.ts"
import { timeOf } from "../../operating/times.ts"
import type { CountOptions, InstanceSearch } from "../../provider/Admin.ts"
import * as Attributes from "./attributes.ts"
import { CommandError } from "./failure.ts"

const ends = [
  ["running", "Running"],
  ["completed", "Completed"],
  ["failed", "Failed"],
  ["cancelled", "Cancelled"]
] as const

/** What the flag `--status` of `count` accepts. */
export const endStatus = Flag.ChoiceWithValue("status", ends).pipe(
  Flag.withMetavar("<status>"),
  Flag.withDescription("Only running, completed, failed or cancelled ones"),
  Flag.optional
)

export const name = Flag.String("name").pipe(
  Flag.withMetavar("<name>"),
  Flag.withDescription("Only instances of this orchestration"),
  Flag.optional
)

/** All fields of a search. */
export const flags = {
  status: Flag.ChoiceWithValue("status", [...ends, ["blocked", "Blocked"], ["paused", "Paused"]] as const).pipe(
    Flag.withMetavar("<status>"),
    Flag.withDescription("Only running, completed, failed, cancelled, blocked or paused ones"),
    Flag.optional
  ),
  definition: Flag.String("name").pipe(
    Flag.withMetavar("<name>[@version]"),
    Flag.withDescription("Only instances of this orchestration, of one version or of all"),
    Flag.optional
  ),
  prefix: Flag.String("id-prefix").pipe(
    Flag.withMetavar("<text>"),
    Flag.withDescription("Only ids that begin so"),
    Flag.optional
  ),
  parent: Flag.String("parent").pipe(
    Flag.withMetavar("<id>"),
    Flag.withDescription("Only direct children of this instance"),
    Flag.optional
  ),
  roots: Flag.Boolean("roots").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Only instances without a parent"),
    Flag.withDefault(false)
  ),
  retrying: Flag.Boolean("retrying").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Only running ones that try an activity again"),
    Flag.withDefault(false)
  ),
  attributes: Attributes.wanted,
  createdAfter: time(
    "created-after",
    "Only those created since: a time such as 2026-11-27T08:00Z, or an age: 30m, 2h, 7d"
  ),
  createdBefore: time("created-before", "Only those created before that time, or longer ago"),
  updatedAfter: time("updated-after", "Only those that took a turn since"),
  updatedBefore: time("updated-before", "Only those that took no turn since"),
  customStatus: Flag.String("custom-status").pipe(
    Flag.withMetavar("<text>"),
    Flag.withDescription("Only those whose custom status contains this text"),
    Flag.optional
  ),
  error: Flag.String("error").pipe(
    Flag.withMetavar("<text>"),
    Flag.withDescription("Only failed, cancelled or blocked ones whose error or reason contains this text"),
    Flag.optional
  )
}

/** What the flags above say. */
export interface Filter {
  readonly status: Option.Option<NonNullable<InstanceSearch["status"]>>
  readonly definition: Option.Option<string>
  readonly prefix: Option.Option<string>
  readonly parent: Option.Option<string>
  readonly roots: boolean
  readonly retrying: boolean
  readonly attributes: ReadonlyArray<string>
  readonly createdAfter: Option.Option<string>
  readonly createdBefore: Option.Option<string>
  readonly updatedAfter: Option.Option<string>
  readonly updatedBefore: Option.Option<string>
  readonly customStatus: Option.Option<string>
  readonly error: Option.Option<string>
}

/** Fails with an attribute or a time that cannot be read. */
export const searchOf = Effect.fnUntraced(function*(filter: Filter): Effect.fn.Return<InstanceSearch, CommandError> {
  return {
    ...Option.match(filter.definition, { onNone: () => ({}), onSome: parseDefinition }),
    status: Option.getOrUndefined(filter.status),
    idPrefix: Option.getOrUndefined(filter.prefix),
    parentId: Option.getOrUndefined(filter.parent),
    isRoot: filter.roots,
    isRetrying: filter.retrying,
    attributes: yield* Attributes.conditionsOf(filter.attributes),
    createdFromMs: yield* msOf("created-after", filter.createdAfter),
    createdBeforeMs: yield* msOf("created-before", filter.createdBefore),
    updatedFromMs: yield* msOf("updated-after", filter.updatedAfter),
    updatedBeforeMs: yield* msOf("updated-before", filter.updatedBefore),
    customStatus: Option.getOrUndefined(filter.customStatus),
    error: Option.getOrUndefined(filter.error)
  }
})

/** Whether one of the flags is given. */
export const isGiven = (filter: Filter): boolean =>
  Object.keys(flags).some((name) => {
    const value = filter[name as keyof Filter]
    return typeof value === "boolean"
      ? value
      : Option.isOption(value)
      ? Option.isSome<unknown>(value)
      : value.length > 0
  })

export type CountStatus = NonNullable<CountOptions["status"]>

// internal

function time(flag: string, description: string) {
  return Flag.String(flag).pipe(Flag.withMetavar("<time>"), Flag.withDescription(description), Flag.optional)
}

/** Milliseconds since the Unix epoch. */
const msOf = Effect.fnUntraced(function*(flag: string, given: Option.Option<string>) {
  if (Option.isNone(given)) return undefined
  const text = given.value
  const ms = yield* timeOf(text)
  if (ms !== undefined && ms >= 0) return ms
  return yield* new CommandError({
    code: "Usage",
    message: `--${flag} is a time such as 2026-11-27T08:00Z, or an age such as 30m, 2h, 7d, not ${
      JSON.stringify(text)
    }`,
    exit: "usage"
  })
})
