import * as Command from "effect/cli/Command"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { age, count } from "../../model/shared/quantities.ts"
import { tagsOf } from "../../operating/processes.ts"
import { isoTime } from "../../operating/times.ts"
import * as ProcessReport from "../../prisma/shared/processReport.ts"
import { Admin } from "../../provider/Admin.ts"
import type { ProcessInfo } from "../../provider/AdminDriver.ts"
import { Output } from "../internal/Output.ts"
import * as Store from "../internal/store.ts"
import { shortened, table } from "../internal/table.ts"
import type { Column } from "../internal/table.ts"

export const processes = Command.make("processes", {}, () => Effect.provide(run, Store.layer)).pipe(
  Command.withShortDescription("Show which processes run work, and what they serve"),
  Command.withDescription(
    "Show which processes of this package run orchestrations and activities: their build, their host, whether they are " +
      "alive, how many of their slots were in use within the last minute, and what they serve. Those that died without " +
      "closing are listed for a day."
  ),
  Command.withExamples([
    { command: "duroxide-prisma processes", description: "Every process, those that are alive first" }
  ])
)

/** Slots in use and how many there are, such as `2 of 16`; `-` for what it does not serve. */
export const slotColumns: ReadonlyArray<Column<ProcessInfo>> = [
  {
    title: "TURNS",
    value: ({ orchestrationSlots, orchestrations, slotsInUse }) =>
      slotsOf(orchestrations, slotsInUse?.orchestrations, orchestrationSlots)
  },
  {
    title: "ACTIVITIES",
    value: ({ activities, activitySlots, slotsInUse }) => slotsOf(activities, slotsInUse?.activities, activitySlots)
  }
]

export const slotsJson = ({ activitySlots, orchestrationSlots, slotsInUse }: ProcessInfo) => ({
  slots: { orchestrations: orchestrationSlots, activities: activitySlots },
  slotsInUse: slotsInUse === null ? null : {
    orchestrations: slotsInUse.orchestrations,
    activities: slotsInUse.activities,
    at: isoTime(slotsInUse.atMs)
  }
})

// internal

const isoTimeOf = (ms: number | undefined) => ms === undefined ? null : isoTime(ms)

/** Columns of what a process serves, where output has no width. */
const longestList = 60

const run = Effect.gen(function*() {
  const { answer, columns, style } = yield* Output
  const all = yield* (yield* Admin).listProcesses
  const found = [...all.filter(({ isAlive }) => isAlive), ...all.filter(({ isAlive }) => !isAlive)]
  const deaths = yield* ProcessReport.readDeaths
  const hasDead = found.some(({ isAlive }) => !isAlive)
  const nowMs = yield* Clock.currentTimeMillis
  yield* answer({
    json: found.map((process) => ({
      id: process.id,
      alive: process.isAlive,
      build: process.build,
      host: process.host,
      pid: process.pid,
      since: isoTime(process.sinceMs),
      seenAt: isoTime(process.seenMs),
      foundDeadAt: isoTimeOf(deaths.get(process.id)),
      listening: process.isListening,
      orchestrations: process.orchestrations,
      activities: process.activities,
      tags: tagsOf(process.tags),
      ...slotsJson(process)
    })),
    text: found.length === 0 ? ["no processes"] : table(found, [
      { title: "BUILD", value: ({ build }) => shortened(build, 20) },
      { title: "HOST", value: ({ host, pid }) => `${host}/${pid}` },
      {
        title: "STATE",
        value: ({ isAlive, isListening }) => isAlive ? isListening ? "alive" : "alive, polls" : "dead",
        mark: ({ isAlive }, text) => isAlive ? style.green(text) : style.red(text)
      },
      { title: "STARTED", value: ({ sinceMs }) => `${age(nowMs - sinceMs)} ago` },
      ...(hasDead
        ? [{
          title: "FOUND DEAD",
          // Those that no other process has found yet are found by this look.
          value: ({ id, isAlive }: ProcessInfo) => isAlive ? "-" : `${age(nowMs - (deaths.get(id) ?? nowMs))} ago`
        }]
        : []),
      ...slotColumns,
      { title: "SERVES", value: (process) => shortened(servedBy(process), Math.max(longestList, columns - 70)) }
    ], style)
  })
})

const slotsOf = (served: ReadonlyArray<string>, inUse: number | undefined, limit: number | null): string =>
  served.length === 0 ? "-" : `${inUse === undefined ? "?" : count(inUse)} of ${limit === null ? "any" : count(limit)}`

const servedBy = ({ activities, orchestrations, tags }: ProcessInfo): string => {
  const taken = tagsOf(tags)
  const tagged = taken === null
    ? " (any tag)"
    : taken.every((tag) => tag === null)
    ? ""
    : ` (tags ${taken.map((tag) => tag ?? "none").join(", ")})`
  return [...orchestrations, ...activities.map((name) => `${name}${tagged}`)].join(", ") || "-"
}
