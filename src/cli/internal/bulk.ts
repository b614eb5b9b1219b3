/**
 * Commands that do the same to many instances: those that are named, or those that a filter selects.
 *
 * They show what they will do, and ask. Then they take the instances in groups, so that memory does not grow with their
 * number, and continue behind one that is refused. Stopped half way, the same command takes up the rest.
 */
import * as Argument from "effect/cli/Argument"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Stream from "effect/Stream"
import { count, counted } from "../../model/shared/quantities.ts"
import * as Admin from "../../provider/Admin.ts"
import type { InstanceSearch } from "../../provider/Admin.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { CommandError, misused } from "./failure.ts"
import * as Filters from "./filters.ts"
import { Output } from "./Output.ts"
import * as Progress from "./Progress.ts"
import { oneLine } from "./table.ts"

export const flags = {
  ids: Argument.String("id").pipe(Argument.withDescription("Ids of the instances"), Argument.variadic()),
  ...Filters.flags,
  limit: Flag.Int("limit").pipe(
    Flag.withMetavar("<n>"),
    Flag.withDescription("Most instances to take. Defaults to all that the filters select"),
    Flag.filter((n) => n >= 1, (n) => `a number of at least 1, not ${n}`),
    Flag.optional
  ),
  dryRun: Flag.Boolean("dry-run").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Only say how many instances there are, and name the first"),
    Flag.withDefault(false)
  ),
  yes: Flag.Boolean("yes").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Do not ask for a confirmation"),
    Flag.withDefault(false)
  )
}

/** What the flags above say. */
export interface Flags extends Filters.Filter {
  readonly ids: ReadonlyArray<string>
  readonly limit: Option.Option<number>
  readonly dryRun: boolean
  readonly yes: boolean
}

/** What is done to each instance, in words. */
export interface Words {
  readonly verb: string
  readonly done: string
  /** What the sentence about the outcome ends with. Defaults to nothing. */
  readonly outcome?: string
}

/** What is done to each instance. */
export interface Action<R> extends Words {
  /** Statuses that a filter may ask for, and those that it has if it asks for none, searched one after the other. */
  readonly statuses: ReadonlyArray<Status>
  readonly defaults: ReadonlyArray<Status | undefined>
  /** Whether only roots of this status are selected, unless the filter names a parent. */
  readonly rootsOnly?: (status: Status | undefined) => boolean
  /** Whether it asks about instances that are named. Defaults to false. */
  readonly asksAboutNamed?: boolean
  /** Fails if the instance of this id cannot be taken. Those that a filter selects are not looked at again. */
  readonly check: (id: string) => Effect.Effect<void, Refusal, Admin.Admin>
  readonly run: (id: string) => Effect.Effect<void, Refusal, R>
}

type Status = NonNullable<InstanceSearch["status"]>

type Refusal = ProviderError | CommandError

/** The one id, if nothing but that is said: the command does it without a list. */
export const onlyId = ({ dryRun, ids, ...flags }: Flags): string | undefined =>
  ids.length === 1 && !dryRun && !isFilter(flags) ? ids[0] : undefined

/** Asks, unless `yes`; fails if the answer is no, or if there is no one to answer. */
export const confirm = Effect.fnUntraced(function*(question: string, yes: boolean) {
  if (yes) return
  yield* canConfirm
  if (yield* (yield* Output).ask(`${oneLine(question)}?`)) return
  return yield* new CommandError({ code: "Unconfirmed", message: "not confirmed: nothing was changed", exit: "no" })
})

/** Does it to all, and prints what it came to. */
export const run = Effect.fnUntraced(function*<R>(flags: Flags, action: Action<R>) {
  const { answer } = yield* Output
  const isNamed = flags.ids.length > 0
  const found = isNamed ? yield* named(flags) : yield* selected(flags, action)
  const mustAsk = !flags.yes && (!isNamed || action.asksAboutNamed === true)
  if (mustAsk && !flags.dryRun) yield* canConfirm
  let total: number | undefined
  if (mustAsk || flags.dryRun) {
    const preview = yield* each(
      found,
      isNamed ? action.check : () => Effect.void,
      ({ done }) => `found ${instances(done)}`
    )
    total = preview.done
    const list = shownIds(preview)
    if (flags.dryRun || total === 0) {
      return yield* answer({
        json: toJson(action, preview, true),
        text: [
          ...(total === 0 ? ["no instances match"] : [`would ${action.verb} ${instances(total)}: ${list}`]),
          ...shownRefusals(preview)
        ]
      })
    }
    yield* confirm(`${action.verb} ${instances(total)}: ${list}`, false)
  }
  const all = total === undefined ? "" : ` of ${count(total)}`
  const tally = yield* each(
    found,
    (id) => isNamed ? Effect.andThen(action.check(id), action.run(id)) : action.run(id),
    ({ done, refusals }) =>
      `${action.done} ${count(done)}${all} instances${refusals === 0 ? "" : `, ${count(refusals)} refused`}`,
    action
  )
  yield* answer({
    json: toJson(action, tally, false),
    text: tally.done + tally.refusals === 0 ? ["no instances match"] : [
      `${action.done} ${instances(tally.done)}${tally.done === 0 ? "" : action.outcome ?? ""}`,
      ...shownRefusals(tally)
    ]
  })
  if (tally.refusals > 0) {
    return yield* new CommandError({
      code: "Refused",
      message: `${count(tally.refusals)} of ${instances(tally.done + tally.refusals)} were refused`,
      exit: "no"
    })
  }
})

// internal

interface Found {
  readonly instanceId: string
  readonly parentInstanceId: string | null
}

interface Tally {
  done: number
  refusals: number
  /** The first ids of all. */
  readonly ids: Array<string>
  /** The first ones of all. */
  readonly refused: Array<{ readonly instanceId: string; readonly code: string; readonly message: string }>
}

/** Instances that are taken at the same time. Sends of them share statements, and other calls wait for a connection. */
const concurrency = 16

/** Read before the first of them is taken. */
const groupSize = 500

const longestList = 5
const mostRefused = 1000

const instances = (number: number) => counted(number, "instance", "instances")

const isFilter = ({ ids: _ids, dryRun: _dryRun, yes: _yes, limit, ...filter }: Partial<Flags>) =>
  [...Object.values(filter), limit].some((value) =>
    Option.isOption(value) ? Option.isSome<unknown>(value) : value === true
  )

const canConfirm = Effect.flatMap(Output, ({ canAsk }) =>
  canAsk ? Effect.void : Effect.fail(
    new CommandError({
      code: "Unconfirmed",
      message: "there is no terminal to ask on: give --yes, or --dry-run to see what would be done",
      exit: "usage"
    })
  ))

const named = (flags: Flags) =>
  isFilter(flags)
    ? Effect.fail(misused("name instances by their ids, or select them with filters, not both"))
    : Effect.succeed(
      Stream.fromIterable([...new Set(flags.ids)].map((instanceId): Found => ({ instanceId, parentInstanceId: null })))
    )

/** Instances that match now. Those that are created later are not among them. */
const selected = Effect.fnUntraced(function*<R>(flags: Flags, action: Action<R>) {
  if (!isFilter({ ...flags, limit: Option.none() })) {
    return yield* misused("name instances by their ids, or select them with filters such as --status or --name")
  }
  const { limit, status } = flags
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
  const all = streams.reduce((all, stream) => Stream.concat(all, stream), Stream.empty as typeof streams[number])
  return Option.match(limit, { onNone: () => all, onSome: (limit) => Stream.take(all, limit) })
})

/** Calls `act` for every instance. With words, what stops it says how far it came. */
const each = Effect.fnUntraced(function*<E, R, R2>(
  found: Stream.Stream<Found, E, R>,
  act: (id: string) => Effect.Effect<void, Refusal, R2>,
  shown: (tally: Tally) => string,
  words?: Words
) {
  const progress = yield* Progress.make
  const tally: Tally = { done: 0, refusals: 0, ids: [], refused: [] }
  const one = ({ instanceId }: Found) =>
    act(instanceId).pipe(
      Effect.matchEffect({
        onSuccess: () =>
          Effect.sync(() => {
            if (++tally.done <= longestList) tally.ids.push(instanceId)
          }),
        onFailure: (error) => {
          const { code, message } = reasonOf(error)
          if (!ofOneInstance.has(code)) return Effect.fail(error)
          return Effect.sync(() => {
            if (++tally.refusals <= mostRefused) tally.refused.push({ instanceId, code, message })
          })
        }
      }),
      Effect.andThen(
        Effect.suspend(() => progress.report(shown(tally), { done: tally.done, refused: tally.refusals }))
      )
    )
  const all = Stream.runForEachArray(
    Stream.rechunk(found, groupSize),
    (group) => Effect.forEach(parentsFirst(group), (wave) => Effect.forEach(wave, one, { concurrency, discard: true }))
  )
  yield* words === undefined ? all : stopping(all, words, tally)
  return tally
})

/** Children of an instance that is taken come after it: it learns of the request before it learns of their end. */
const parentsFirst = (group: ReadonlyArray<Found>): ReadonlyArray<ReadonlyArray<Found>> => {
  const waves: Array<ReadonlyArray<Found>> = []
  for (let rest = group; rest.length > 0;) {
    const ids = new Set(rest.map(({ instanceId }) => instanceId))
    const isLater = ({ parentInstanceId }: Found) => parentInstanceId !== null && ids.has(parentInstanceId)
    waves.push(rest.filter((one) => !isLater(one)))
    rest = rest.filter(isLater)
  }
  return waves
}

/** Says how far it came, where an error that all instances would meet stops it, or Ctrl-C. */
const stopping = <A, E, R>(
  all: Effect.Effect<A, E, R>,
  { done }: Words,
  tally: Tally
): Effect.Effect<A, E | CommandError, R | Output> => {
  const howFar = () =>
    `${done} ${instances(tally.done)} so far. Run the same command again: it takes up those that are left`
  return all.pipe(
    Effect.catch((error): Effect.Effect<never, E | CommandError> => {
      const { code, isRetryable, message } = reasonOf(error)
      return isRetryable
        ? Effect.fail(new CommandError({ code, message: `${message}; ${howFar()}`, exit: "again" }))
        : Effect.fail(error)
    }),
    Effect.onInterrupt(() =>
      Effect.flatMap(Output, ({ errorStyle, note }) => {
        const message = `interrupted; ${howFar()}`
        return note(`${errorStyle.red("error")}: ${message}`, { error: { code: "Interrupted", message } })
      })
    )
  )
}

/** The tagged reason of a `ProviderError`, or the error itself. */
const reasonOf = (error: unknown) => {
  const inner = Predicate.hasProperty(error, "reason") ? error.reason : error
  const text = (field: string) => Predicate.hasProperty(inner, field) ? String(inner[field]) : ""
  return {
    code: inner instanceof CommandError ? inner.code : text("_tag"),
    message: text("message"),
    isRetryable: text("isRetryable") === "true"
  }
}

/** Failures that say nothing about the next instance. */
const ofOneInstance: ReadonlySet<string> = new Set([
  "InstanceNotFound",
  "InstanceEnded",
  "InstanceRunning",
  "InstanceHasParent",
  "ChildLeftBehind",
  "InstanceFull",
  "RetryRefused",
  "InvalidInput",
  "DataCorrupted",
  "DataRefused",
  "Contention"
])

const toJson = ({ done }: Words, tally: Tally, dryRun: boolean) => ({
  action: done,
  matched: tally.done + tally.refusals,
  done: dryRun ? 0 : tally.done,
  refused: tally.refused,
  dryRun
})

const shownIds = ({ done, ids }: Tally) => {
  const others = done - ids.length
  return oneLine(ids.join(", ")) + (others === 0 ? "" : ` and ${counted(others, "other", "others")}`)
}

const shownRefusals = ({ refusals, refused }: Tally) => {
  if (refusals === 0) return []
  const shown = refused.slice(0, longestList)
  return [
    `${count(refusals)} refused:`,
    ...shown.map(({ message }) => `  ${oneLine(message)}`),
    ...(refusals === shown.length ? [] : [`  and ${counted(refusals - shown.length, "other", "others")}`])
  ]
}
