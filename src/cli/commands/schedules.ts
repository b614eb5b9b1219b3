import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { counted } from "../../model/shared/quantities.ts"
import { time, timeOf } from "../../operating/times.ts"
import * as Schedules from "../../schedules/Schedules.ts"
import * as Bulk from "../internal/bulk.ts"
import { CommandError, misused } from "../internal/failure.ts"
import { Output } from "../internal/Output.ts"
import * as Paging from "../internal/paging.ts"
import * as Shown from "../internal/schedules.ts"
import * as Store from "../internal/store.ts"
import { fitted, oneLine } from "../internal/table.ts"

const name = Argument.String("name").pipe(Argument.withDescription("Name of the schedule"))

const { dryRun, yes } = Bulk.flags

const show = Command.make("show", {
  name,
  next: Flag.Int("next").pipe(
    Flag.withMetavar("<n>"),
    Flag.withDescription("How many of the next occurrences, 0 to 100. Defaults to 5"),
    Flag.filter((n) => n >= 0 && n <= 100, (n) => `a number from 0 to 100, not ${n}`),
    Flag.withDefault(5)
  ),
  runs: Flag.Int("runs").pipe(
    Flag.withMetavar("<n>"),
    Flag.withDescription("How many of the last runs, 1 to 100. Defaults to 10"),
    Flag.filter((n) => n >= 1 && n <= 100, (n) => `a number from 1 to 100, not ${n}`),
    Flag.withDefault(10)
  )
}, (flags) => Effect.provide(runShow(flags), reading)).pipe(
  Command.withShortDescription("Show a schedule, its next occurrences and its last runs"),
  Command.withDescription("Show a schedule: its rules, its next occurrences, and what became of the last ones."),
  Command.withExamples([{ command: "duroxide-prisma schedules show nightly-report --next 10" }])
)

const pause = Command.make("pause", {
  name,
  reason: Flag.String("reason").pipe(
    Flag.withMetavar("<text>"),
    Flag.withDescription("Why, for those who look at it later"),
    Flag.optional
  )
}, (flags) => Effect.provide(runPause(flags), changing)).pipe(
  Command.withShortDescription("Pause a schedule"),
  Command.withDescription("Pause a schedule: occurrences do not start, neither now nor after it is resumed."),
  Command.withExamples([{ command: "duroxide-prisma schedules pause nightly-report --reason \"no data\"" }])
)

const resume = Command.make("resume", { name }, (flags) => Effect.provide(runResume(flags), changing)).pipe(
  Command.withShortDescription("Resume a schedule"),
  Command.withDescription("Resume a schedule that is paused. \"backfill\" starts what came meanwhile."),
  Command.withExamples([{ command: "duroxide-prisma schedules resume nightly-report" }])
)

const run = Command.make("run", { name, dryRun, yes }, (flags) => Effect.provide(runNow(flags), changing)).pipe(
  Command.withShortDescription("Run a schedule now"),
  Command.withDescription(
    "Run a schedule now, by its rule for overlaps; also one that is paused. A scheduler starts the run."
  ),
  Command.withExamples([{ command: "duroxide-prisma schedules run nightly-report --yes" }])
)

const backfill = Command.make("backfill", {
  name,
  from: Flag.String("from").pipe(
    Flag.withMetavar("<time>"),
    Flag.withDescription("The first time: 2026-12-01T08:00Z, or an age such as 2d")
  ),
  to: Flag.String("to").pipe(
    Flag.withMetavar("<time>"),
    Flag.withDescription("The last time. Defaults to now"),
    Flag.withDefault("now")
  ),
  dryRun,
  yes
}, (flags) => Effect.provide(runBackfill(flags), changing)).pipe(
  Command.withShortDescription("Start earlier occurrences of a schedule"),
  Command.withDescription(
    "Start occurrences of a schedule that did not start, beside each other. Those that did start nothing again while " +
      "their instances or tasks exist. At most 10,000."
  ),
  Command.withExamples([
    { command: "duroxide-prisma schedules backfill nightly-report --from 7d", description: "It counts them, and asks" }
  ])
)

const deletion = Command.make(
  "delete",
  { name, dryRun, yes },
  (flags) => Effect.provide(runDelete(flags), changing)
).pipe(
  Command.withShortDescription("Delete a schedule"),
  Command.withDescription(
    "Delete a schedule and the list of its runs. What they have started continues. A process that defines the schedule " +
      "creates it anew when it starts."
  ),
  Command.withExamples([{ command: "duroxide-prisma schedules delete nightly-report" }])
)

export const schedules = Command.make("schedules", {
  cursor: Paging.cursor,
  limit: Paging.limitOf("schedules")
}, (flags) => Effect.provide(runList(flags), reading)).pipe(
  Command.withShortDescription("List schedules; show, pause, resume, run, backfill and delete one"),
  Command.withDescription(
    "List schedules by name: when the next occurrence is, and what became of the last one. A schedule whose occurrence " +
      "is more than a minute late is Overdue."
  ),
  Command.withExamples([
    { command: "duroxide-prisma schedules" },
    { command: "duroxide-prisma schedules pause nightly-report" }
  ]),
  Command.withSubcommands([show, pause, resume, run, backfill, deletion])
)

// internal

const reading = Layer.provideMerge(Schedules.layerClient, Store.layer)

const changing = Layer.provideMerge(Schedules.layerClient, Store.layerForChanges)

const runList = Effect.fnUntraced(function*({ cursor, limit }: {
  readonly cursor: Option.Option<string>
  readonly limit: number
}) {
  const { answer, columns, style } = yield* Output
  const { next, schedules } = yield* (yield* Schedules.Schedules).list({ after: Option.getOrUndefined(cursor), limit })
  yield* answer({
    json: { schedules: schedules.map(Shown.scheduleJson), next: next ?? null },
    text: schedules.length === 0 ? ["no schedules"] : [
      ...fitted(
        schedules,
        [
          { title: "NAME", value: ({ name }) => name },
          { title: "STATE", value: ({ state }) => state, mark: ({ state }, text) => Shown.marked(state, text, style) },
          { title: "NEXT", value: ({ next: [at] }) => at === undefined ? "-" : time(at.getTime()) },
          { title: "LAST", value: ({ lastRun }) => Shown.lastText(lastRun) },
          { title: "TIMING", value: Shown.timing, dropped: 1 },
          { title: "STARTS", shrinks: "end", value: Shown.target }
        ],
        style,
        columns
      ),
      ...(next === undefined ? [] : ["", `More follow: repeat the command with --cursor ${next}`])
    ]
  })
})

const runShow = Effect.fnUntraced(function*({ name, next, runs: limit }: {
  readonly name: string
  readonly next: number
  readonly runs: number
}) {
  const { answer, columns, style } = yield* Output
  const service = yield* Schedules.Schedules
  const found = yield* service.get(name, { next })
  if (Option.isNone(found)) return yield* notFound(name)
  const runs = yield* named(service.runs(name, { limit }))
  yield* answer({
    json: { ...Shown.scheduleJson(found.value), runs: runs.map(Shown.runJson) },
    text: [
      ...Shown.fields(found.value, style),
      ...(runs.length === 0 ? [] : ["", ...Shown.runTable(runs, style, columns)])
    ]
  })
})

const runPause = Effect.fnUntraced(function*({ name, reason }: {
  readonly name: string
  readonly reason: Option.Option<string>
}) {
  const isNew = yield* named((yield* Schedules.Schedules).pause(name, { reason: Option.getOrUndefined(reason) }))
  if (!isNew) return yield* unchanged("SchedulePaused", `schedule ${name} is paused already`)
  yield* done({ action: "paused", schedule: name, reason: Option.getOrNull(reason) }, `paused ${name}`)
})

const runResume = Effect.fnUntraced(function*({ name }: { readonly name: string }) {
  const isNew = yield* named((yield* Schedules.Schedules).resume(name))
  if (!isNew) return yield* unchanged("ScheduleNotPaused", `schedule ${name} is not paused`)
  yield* done({ action: "resumed", schedule: name }, `resumed ${name}`)
})

interface Careful {
  readonly name: string
  readonly dryRun: boolean
  readonly yes: boolean
}

const runNow = Effect.fnUntraced(function*({ dryRun, name, yes }: Careful) {
  const service = yield* Schedules.Schedules
  const { isRunning } = yield* existing(name)
  const what = isRunning ? `${name}, whose last run has not ended` : name
  if (dryRun) return yield* done({ action: "run", dryRun: true, schedule: name }, `would run ${what}`)
  yield* Bulk.confirm(`Run ${what}, now`, yes)
  const id = yield* named(service.runNow(name))
  yield* done({ action: "run", schedule: name, id }, `asked for a run of ${name}: ${id}`)
})

const runBackfill = Effect.fnUntraced(function*({ dryRun, from, name, to, yes }: Careful & {
  readonly from: string
  readonly to: string
}) {
  const service = yield* Schedules.Schedules
  const range = { from: yield* dateOf("from", from), to: yield* dateOf("to", to) }
  if (range.from.getTime() > range.to.getTime()) return yield* misused("--from is later than --to")
  const all = yield* named(service.occurrences(name, range))
  const nowMs = yield* Clock.currentTimeMillis
  const { length } = all.filter((at) => at.getTime() <= nowMs)
  const occurrences = (count: number) => `${counted(count, "occurrence", "occurrences")} of ${name}`
  const json = { action: "backfill", schedule: name, from: range.from, to: range.to }
  if (dryRun || length === 0) {
    return yield* done({ ...json, occurrences: length, dryRun: true }, `would start ${occurrences(length)}`)
  }
  yield* Bulk.confirm(`Start ${occurrences(length)}`, yes)
  const asked = yield* named(service.backfill(name, range))
  yield* done({ ...json, occurrences: asked }, `asked for ${occurrences(asked)}`)
})

const runDelete = Effect.fnUntraced(function*({ dryRun, name, yes }: Careful) {
  const service = yield* Schedules.Schedules
  yield* existing(name)
  if (dryRun) return yield* done({ action: "delete", dryRun: true, schedule: name }, `would delete ${name}`)
  yield* Bulk.confirm(`Delete the schedule ${name}`, yes)
  yield* named(service.delete(name))
  yield* done({ action: "deleted", schedule: name }, `deleted ${name}`)
})

const existing = Effect.fnUntraced(function*(name: string) {
  const found = yield* (yield* Schedules.Schedules).get(name, { next: 0 })
  return Option.isSome(found) ? found.value : yield* notFound(name)
})

const done = (json: object, text: string) =>
  Effect.flatMap(Output, ({ answer }) => answer({ json, text: [oneLine(text)] }))

const notFound = (name: string) =>
  new CommandError({ code: "ScheduleNotFound", message: `schedule ${name} not found`, exit: "no" })

const unchanged = (code: string, message: string) => Effect.fail(new CommandError({ code, message, exit: "no" }))

const named = <A, E, R>(
  call: Effect.Effect<A, E | Schedules.ScheduleNotFound, R>
): Effect.Effect<A, Exclude<E, Schedules.ScheduleNotFound> | CommandError, R> =>
  Effect.mapError(
    call,
    (error) =>
      error instanceof Schedules.ScheduleNotFound
        ? notFound(error.schedule)
        : error as Exclude<E, Schedules.ScheduleNotFound>
  )

const dateOf = Effect.fnUntraced(function*(flag: string, text: string) {
  const ms = yield* timeOf(text)
  return ms === undefined
    ? yield* misused(`--${flag}: write a time such as 2026-12-01T08:00Z, or an age such as 2d`)
    : new Date(ms)
})
