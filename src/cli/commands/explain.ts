import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { age, counted } from "../../model/shared/quantities.ts"
import * as Reasons from "../../operating/reasons.ts"
import { isoTime, time } from "../../operating/times.ts"
import { Admin } from "../../provider/Admin.ts"
import { misused } from "../internal/failure.ts"
import * as Filters from "../internal/filters.ts"
import { placeJson } from "../internal/instances.ts"
import { noLessThan } from "../internal/numbers.ts"
import { Output } from "../internal/Output.ts"
import * as Progress from "../internal/Progress.ts"
import * as Store from "../internal/store.ts"
import { oneLine, shortened, table } from "../internal/table.ts"
import { orMessages } from "../internal/unstarted.ts"

export const explain = Command.make("explain", {
  id: Argument.String("id").pipe(Argument.withDescription("Id of the instance"), Argument.optional),
  ...Filters.flags,
  limit: Flag.Int("limit").pipe(
    Flag.withMetavar("<n>"),
    Flag.withDescription("Most instances to look at, without an id. Defaults to 1000, the oldest"),
    noLessThan(1),
    Flag.withDefault(1000)
  ),
  hidePayloads: Flag.Boolean("hide-payloads").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Do not show what the last heartbeat of an outside activity said"),
    Flag.withDefault(false)
  )
}, (flags) => Effect.provide(run(flags), Store.layer)).pipe(
  Command.withShortDescription("Say why an instance, or each of many, does not continue"),
  Command.withDescription(
    "Say in a sentence why an instance does not continue: what it waits for and since when, who could continue it, what " +
      "happens next. \"show\" has the details. Without an id: what running instances wait for, in groups, or those that " +
      "filters select."
  ),
  Command.withExamples([
    { command: "duroxide-prisma explain order-17" },
    { command: "duroxide-prisma explain", description: "What all that runs waits for" },
    { command: "duroxide-prisma explain --name Order --created-before 2d", description: "What old orders wait for" }
  ])
)

// internal

const longestReason = 72

const run = Effect.fnUntraced(function*({ hidePayloads, id, limit, ...filter }: Filters.Filter & {
  readonly hidePayloads: boolean
  readonly id: Option.Option<string>
  readonly limit: number
}) {
  if (Option.isNone(id)) return yield* runMany(filter, limit)
  if (Filters.isGiven(filter)) {
    return yield* misused("name one instance by its id, or select many with filters, not both")
  }
  return yield* runOne(id.value, hidePayloads)
})

const runMany = Effect.fnUntraced(function*(filter: Filters.Filter, limit: number) {
  const { answer, style } = yield* Output
  const progress = yield* Progress.make
  const { groups, instances, isMore } = yield* Reasons.explainMany({
    search: yield* Filters.searchOf(filter),
    limit,
    onProgress: (looked) => progress.report(`looked at ${counted(looked, "instance")}`, { looked })
  })
  const nowMs = yield* Clock.currentTimeMillis
  yield* answer({
    json: {
      instances,
      isMore,
      groups: groups.map(({ nextMs, sinceMs, ...group }) => ({
        ...group,
        since: sinceMs === null ? null : isoTime(sinceMs),
        next: nextMs === null ? null : isoTime(nextMs)
      }))
    },
    text: groups.length === 0 ? ["no instances"] : [
      ...table(groups, [
        { title: "INSTANCES", align: "right", value: ({ instanceIds }) => `${instanceIds.length}` },
        { title: "ORCHESTRATION", value: ({ orchestration }) => orchestration },
        { title: "REASON", value: ({ reason }) => shortened(reason, longestReason) },
        { title: "OLDEST", align: "right", value: ({ sinceMs }) => sinceMs === null ? "-" : age(nowMs - sinceMs) },
        { title: "NEXT", value: ({ nextMs }) => nextMs === null ? "-" : time(nextMs) },
        { title: "ONE OF THEM", value: ({ instanceIds }) => instanceIds[0]! }
      ], style),
      ...(isMore ? ["", `More follow: these are the oldest ${limit}. --limit looks at more`] : [])
    ]
  })
})

const runOne = Effect.fnUntraced(function*(id: string, hidePayloads: boolean) {
  const { cause, instanceId, interruption, sentence, status, untaken, waits } = yield* (yield* Admin).explain(id)
    .pipe(orMessages(id))
  const { answer } = yield* Output
  const heartbeat = cause._tag === "Completion" ? cause.heartbeat : null
  const said = hidePayloads || heartbeat?.details === "null" ? undefined : heartbeat?.details
  const { _tag, ...parts } = heartbeat === null
    ? cause
    : { ...cause, heartbeat: { ...heartbeat, details: said ?? null } }
  yield* answer({
    json: {
      instanceId,
      status,
      sentence,
      cause: _tag,
      parts,
      waits: waits.map(({ eventId, instanceId, kind, name, place, sinceMs, tag }) => ({
        kind,
        name,
        instanceId,
        tag,
        eventId,
        since: isoTime(sinceMs),
        ...placeJson(place)
      })),
      untaken: untaken.map(({ eventId, name, sinceMs }) => ({ name, eventId, since: isoTime(sinceMs) })),
      interrupted: interruption === null ? null : { since: isoTime(interruption.sinceMs), reason: interruption.reason }
    },
    text: [oneLine(sentence), ...(said === undefined ? [] : [oneLine(`The last heartbeat said ${said}`)])]
  })
})
