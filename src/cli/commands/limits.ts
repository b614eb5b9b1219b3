import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { Bound, Limit, LimitChanges, LimitedKey, LimitKind, Rate } from "../../model/Limit.ts"
import { kinds, shownBound } from "../../model/shared/limits.ts"
import { age, count } from "../../model/shared/quantities.ts"
import { isoTime } from "../../operating/times.ts"
import { Admin } from "../../provider/Admin.ts"
import { serversOfOrchestration } from "../../provider/shared/served.ts"
import * as Durations from "../internal/durations.ts"
import { CommandError, misused } from "../internal/failure.ts"
import { Output } from "../internal/Output.ts"
import * as Store from "../internal/store.ts"
import { fitted, oneLine } from "../internal/table.ts"

const name = Argument.String("name").pipe(Argument.withDescription("Name of the definition"))

const kind = Flag.Literals("kind", kinds).pipe(
  Flag.withMetavar("<kind>"),
  Flag.withDescription("What it is a limit of: activity, orchestration or task")
)

const scope = {
  kind: kind.pipe(Flag.withDefault<LimitKind>("activity")),
  eachKey: Flag.Boolean("each-key").pipe(
    Flag.withoutNegation,
    Flag.withDescription("The bound of each key, in place of that of all together"),
    Flag.withDefault(false)
  ),
  key: Flag.String("key").pipe(
    Flag.withMetavar("<key>"),
    Flag.withDescription("The bound of this key alone"),
    Flag.optional
  )
}

const set = Command.make("set", {
  name,
  ...scope,
  concurrency: Flag.Int("concurrency").pipe(
    Flag.withMetavar("<n>"),
    Flag.withDescription("How many may be under way at once"),
    Flag.optional
  ),
  rate: Flag.String("rate").pipe(
    Flag.withMetavar("<n>/<duration>"),
    Flag.withDescription("How many may begin in this time, such as \"100/1 minute\""),
    Flag.optional
  ),
  burst: Flag.Int("burst").pipe(
    Flag.withMetavar("<n>"),
    Flag.withDescription("How many of these may begin at once; 1 unless given"),
    Flag.optional
  ),
  none: Flag.Boolean("none").pipe(
    Flag.withoutNegation,
    Flag.withDescription("No bound, such as for keys that only take turns"),
    Flag.withDefault(false)
  )
}, (flags) => Effect.provide(runSet(flags), Store.layerForChanges)).pipe(
  Command.withShortDescription("Set a bound of an activity, an orchestration or a task"),
  Command.withDescription(
    "Set a bound of a definition, in place of the one it had: of all together, of each key, or of one key. " +
      "The new bound replaces the old one as a whole: without --rate, it has no rate."
  ),
  Command.withExamples([
    { command: "duroxide-prisma limits set Charge --rate \"100/1 minute\" --burst 10" },
    { command: "duroxide-prisma limits set Charge --each-key --concurrency 3", description: "Each tenant's" },
    { command: "duroxide-prisma limits set Charge --key tenant-7 --concurrency 10", description: "One tenant's" },
    {
      command: "duroxide-prisma limits set Checkout --kind orchestration --concurrency 100",
      description: "Instances that run at once"
    }
  ])
)

const remove = Command.make(
  "remove",
  { name, ...scope },
  (flags) => Effect.provide(runRemove(flags), Store.layerForChanges)
).pipe(
  Command.withShortDescription("Remove the limits of a definition"),
  Command.withDescription(
    "Remove all limits of a definition: what waits begins. With --each-key or --key, only that bound."
  ),
  Command.withExamples([
    { command: "duroxide-prisma limits remove Charge" },
    { command: "duroxide-prisma limits remove Charge --key tenant-7", description: "It falls under the others' bound" }
  ])
)

export const limits = Command.make("limits", {
  name: Flag.String("name").pipe(
    Flag.withMetavar("<name>"),
    Flag.withDescription("Only what has this name, and its keys"),
    Flag.optional
  ),
  kind: Flag.optional(kind)
}, (flags) => Effect.provide(runList(flags), Store.layer)).pipe(
  Command.withShortDescription("Show or change limits of activities, orchestrations and tasks"),
  Command.withDescription(
    "Show the limits, how much of them is in use, and what waits. With --name only those of this name, of any kind " +
      "unless --kind is given, and their keys, the busiest first."
  ),
  Command.withExamples([
    { command: "duroxide-prisma limits" },
    { command: "duroxide-prisma limits --name Charge", description: "With its keys" }
  ]),
  Command.withSubcommands([set, remove])
)

// internal

interface Scope {
  readonly kind: LimitKind
  readonly name: string
  readonly eachKey: boolean
  readonly key: Option.Option<string>
}

const runList = Effect.fnUntraced(function*(
  { kind, name }: { readonly name: Option.Option<string>; readonly kind: Option.Option<LimitKind> }
) {
  const { answer, columns, style } = yield* Output
  const admin = yield* Admin
  const nowMs = yield* Clock.currentTimeMillis
  const shownKinds = Option.match(kind, { onNone: () => kinds, onSome: (kind) => [kind] })
  const found = Option.isNone(name)
    ? (yield* admin.getLimits).filter(({ kind }) => shownKinds.includes(kind))
    : (yield* Effect.forEach(shownKinds, (kind) => admin.getLimit(kind, name.value))).filter((one) => one !== null)
  const oldest = ({ oldestMs }: { readonly oldestMs: number | null }) => oldestMs === null ? "-" : age(nowMs - oldestMs)
  const ofLimits = fitted(
    found,
    [
      { title: "KIND", value: (one) => one.kind },
      { title: "NAME", value: (one) => one.name },
      { title: "IN ALL", value: (one) => shownBound(one.total) },
      { title: "EACH KEY", value: (one) => shownBound(one.eachKey) },
      { title: "IN USE", align: "right", value: (one) => count(one.inUse) },
      { title: "WAITING", align: "right", value: (one) => count(one.waiting) },
      { title: "OLDEST", align: "right", value: oldest },
      { title: "KEYS", align: "right", dropped: 1, value: (one) => count(one.keyCount) }
    ],
    style,
    columns
  )
  const keys = Option.isNone(name) ? [] : found.flatMap(({ keys, kind }) => keys.map((key) => ({ ...key, kind })))
  const ofKeys = keys.length === 0 ? [] : fitted(
    keys,
    [
      ...(found.length === 1 ? [] : [{ title: "KIND", value: ({ kind }: typeof keys[number]) => kind }]),
      { title: "KEY", shrinks: "middle", value: ({ key }) => key === "" ? "(none)" : key },
      { title: "OF ITS OWN", value: ({ own }) => own === null ? "-" : shownBound(own) },
      { title: "IN USE", align: "right", value: (one) => count(one.inUse) },
      { title: "WAITING", align: "right", value: (one) => count(one.waiting) },
      { title: "OLDEST", align: "right", value: oldest }
    ],
    style,
    columns
  )
  const none = Option.isSome(name)
    ? `${Option.isSome(kind) ? `${kind.value} ` : ""}${name.value} has no limits`
    : `no limits${Option.isSome(kind) ? ` of ${kind.value}s` : ""}`
  yield* answer({
    json: { limits: found.map(limitJson) },
    text: found.length === 0 ? [oneLine(none)] : [...ofLimits, ...(ofKeys.length === 0 ? [] : ["", ...ofKeys])]
  })
})

const runSet = Effect.fnUntraced(function*(
  { burst, concurrency, none, rate, ...scope }: Scope & {
    readonly concurrency: Option.Option<number>
    readonly rate: Option.Option<string>
    readonly burst: Option.Option<number>
    readonly none: boolean
  }
) {
  const { kind, name } = scope
  if (Option.isSome(burst) && Option.isNone(rate)) return yield* misused("--burst needs --rate")
  const hasBound = Option.isSome(concurrency) || Option.isSome(rate)
  if (none && hasBound) return yield* misused("--none goes with neither --concurrency nor --rate")
  if (!none && !hasBound) {
    return yield* misused(
      "give --concurrency or --rate, or --none for no bound; \"limits remove\" removes what is set"
    )
  }
  const bound: Bound = {
    concurrency: Option.getOrUndefined(concurrency),
    rate: yield* rateOf(Option.getOrUndefined(rate), Option.getOrUndefined(burst))
  }
  const admin = yield* Admin
  yield* admin.setLimit(kind, name, yield* changesOf(scope, bound))
  const stored = yield* admin.getLimit(kind, name, Option.getOrUndefined(scope.key))
  yield* warnIfUnknown(kind, name)
  const { answer } = yield* Output
  yield* answer({
    json: { action: "set", ...scopeJson(scope), limit: stored === null ? null : limitJson(stored) },
    text: [
      oneLine(`set the ${shownScope(scope)}: ${stored === null ? "no bound" : shownBound(boundIn(stored, scope))}`)
    ]
  })
})

const runRemove = Effect.fnUntraced(function*(scope: Scope) {
  const { kind, name } = scope
  const admin = yield* Admin
  const before = yield* admin.getLimit(kind, name)
  const isWhole = !scope.eachKey && Option.isNone(scope.key)
  if (before === null || (!isWhole && boundIn(before, scope) === null)) {
    return yield* new CommandError({
      code: "NotLimited",
      message: `there is no ${isWhole ? `limit of ${kind} ${name}` : shownScope(scope)}`,
      exit: "no"
    })
  }
  yield* isWhole ? admin.removeLimit(kind, name) : admin.setLimit(kind, name, yield* changesOf(scope, null))
  const { answer } = yield* Output
  yield* answer({
    json: { action: "removed", ...scopeJson(scope) },
    text: [oneLine(`removed the ${isWhole ? `limits of ${kind} ${name}` : shownScope(scope)}`)]
  })
})

const changesOf = (
  { eachKey, key }: Scope,
  bound: Bound | null
): Effect.Effect<LimitChanges, CommandError> =>
  eachKey && Option.isSome(key)
    ? Effect.fail(misused("name one of --each-key and --key"))
    : Effect.succeed(
      Option.isSome(key) ? { keys: { [key.value]: bound } } : eachKey ? { eachKey: bound } : { total: bound }
    )

const boundIn = ({ eachKey, keys, total }: Limit, scope: Scope) =>
  Option.isSome(scope.key)
    ? keys.find(({ key }) => key === Option.getOrUndefined(scope.key))?.own ?? null
    : scope.eachKey
    ? eachKey
    : total

const shownScope = ({ eachKey, key, kind, name }: Scope) =>
  Option.isSome(key)
    ? `bound of key ${key.value} of ${kind} ${name}`
    : eachKey
    ? `bound of each key of ${kind} ${name}`
    : `bound of ${kind} ${name}`

const scopeJson = ({ eachKey, key, kind, name }: Scope) => ({ kind, name, eachKey, key: Option.getOrNull(key) })

/** Such as `100/1m`. */
const rateOf = (
  text: string | undefined,
  burst: number | undefined
): Effect.Effect<Rate | undefined, CommandError> => {
  if (text === undefined) return Effect.succeed(undefined)
  const [, counted = "", per = ""] = /^\s*(\d+)\s*\/\s*(.+?)\s*$/.exec(text) ?? []
  const duration = Durations.read(per)
  return duration === undefined
    ? Effect.fail(misused("--rate: write a number and a duration, such as 100/1m or \"100/1 minute\""))
    : Effect.succeed({ count: Number(counted), per: duration, burst })
}

/**
 * The name may be wrong. The limit is kept: the definition may come with the next deploy. Processes do not say which
 * tasks they run.
 */
const warnIfUnknown = Effect.fnUntraced(function*(kind: LimitKind, name: string) {
  if (kind === "task") return
  const admin = yield* Admin
  const processes = yield* admin.listProcesses
  const loads = yield* admin.getQueueLoads
  const isKnown = kind === "activity"
    ? processes.some(({ activities, isAlive }) => isAlive && activities.includes(name)) ||
      loads.activities.some(({ activity }) => activity === name)
    : serversOfOrchestration(processes, name, null) > 0 ||
      loads.orchestrations.some(({ orchestration }) => orchestration === name)
  if (isKnown) return
  yield* (yield* Output).warn(oneLine(`${kind} ${name} is unknown: no living process serves it, and none is queued`))
})

const limitJson = ({ keys, oldestMs, sinceMs, ...limit }: Limit) => ({
  ...limit,
  since: isoTime(sinceMs),
  oldest: timeOrNull(oldestMs),
  keys: keys.map(keyJson)
})

const keyJson = ({ oldestMs, ...key }: LimitedKey) => ({ ...key, oldest: timeOrNull(oldestMs) })

const timeOrNull = (ms: number | null) => ms === null ? null : isoTime(ms)
