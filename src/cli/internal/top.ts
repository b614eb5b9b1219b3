/**
 * What `top` shows: one look at what happens in a store.
 */
import * as Effect from "effect/Effect"
import { age, count, counted } from "../../model/shared/quantities.ts"
import * as Counts from "../../operating/counts.ts"
import * as Live from "../../operating/live.ts"
import { isoTime, time } from "../../operating/times.ts"
import type { Database } from "../../prisma/Database.ts"
import type * as LiveReport from "../../prisma/shared/liveReport.ts"
import type { Admin } from "../../provider/Admin.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { definitionOf } from "../../provider/shared/unserved.ts"
import { slotColumns, slotsJson } from "../commands/processes.ts"
import { pauseJson, shownPause } from "./instances.ts"
import type { Style } from "./Output.ts"
import type { Target } from "./settings.ts"
import { fields, fitted, shortened } from "./table.ts"
import type { Column, Field } from "./table.ts"
import { servedBy } from "./work.ts"

export interface Report extends Live.Report {
  readonly address: string
  readonly schema: string
}

export const read = (
  { address, schema }: Pick<Target, "address" | "schema">,
  since: LiveReport.Since
): Effect.Effect<Report, ProviderError, Admin | Database> =>
  Effect.map(Live.read(since), (live) => ({ ...live, address, schema }))

export const toJson = (report: Report) => {
  const { all, orchestrations } = Live.activityOf(report)
  const total = Counts.sum(report.counts)
  return {
    address: report.address,
    schema: report.schema,
    at: isoTime(report.nowMs),
    seconds: report.seconds,
    instances: Object.fromEntries(Live.byStatus(report).map((one) => [one.key, one.instances])),
    instancesAreEstimates: total.isEstimate,
    blocked: report.blocked,
    paused: { targets: report.pauses.targets.map(pauseJson), instances: report.pauses.instances },
    deadTasks: report.deadTasks,
    perSecond: all,
    orchestrations: orchestrations.map(({ orchestration, running, ...perSecond }) => ({
      orchestration,
      running: running.instances,
      isEstimate: running.isEstimate,
      perSecond
    })),
    due: Live.dueOf(report).map((
      { isMore, kind, name, oldestAgeMs, paused, running, servedBy, tag, version, waiting }
    ) => ({
      kind,
      name,
      version,
      tag,
      waiting,
      running,
      isMore,
      oldestAgeMs,
      servedBy,
      paused
    })),
    processes: report.processes.map((process) => ({
      host: process.host,
      pid: process.pid,
      build: process.build,
      alive: process.isAlive,
      ...slotsJson(process)
    }))
  }
}

/** Lines for people, within a width and a number of lines. */
export const shown = (
  report: Report,
  { columns: width, rows, style }: { readonly style: Style; readonly columns: number; readonly rows: number }
): ReadonlyArray<string> => {
  const { all, orchestrations } = Live.activityOf(report)
  const due = Live.dueOf(report)
  const [oldest] = due.filter(({ oldestAgeMs }) => oldestAgeMs !== null).sort((a, b) => b.oldestAgeMs! - a.oldestAgeMs!)
  const waiting = due.reduce((sum, one) => sum + one.waiting, 0)
  const alive = report.processes.filter(({ isAlive }) => isAlive)
  const dead = report.processes.filter(({ isAlive }) => !isAlive)
  const total = Counts.sum(report.counts)
  const { instances: paused, targets } = report.pauses
  const states: ReadonlyArray<Field> = [
    ["database", `${report.address}, schema ${report.schema}, at ${time(report.nowMs)}`],
    [
      "instances",
      total.instances === 0
        ? "none"
        : `${Counts.shown(total)}: ${Live.byStatus(report).map((one) => `${Counts.shown(one)} ${one.key}`).join(", ")}`
    ],
    ["per second", `${rate(all.started)} started, ${rate(Live.ended(all))} ended, ${rate(all.failed)} failed`],
    [
      "waiting",
      oldest === undefined
        ? "nothing"
        : `${count(waiting)}${due.some(({ isMore }) => isMore) ? " or more" : ""}, the oldest for ${
          age(oldest.oldestAgeMs!)
        }: ${definitionOf(oldest)}`
    ],
    ...(report.blocked === 0 ? [] : [["blocked", counted(report.blocked, "instance"), style.red] as const]),
    ...(targets.length + paused === 0 ? [] : [
      [
        "paused",
        [
          ...targets.map((pause) => shownPause(pause, report.nowMs)),
          ...(paused === 0 ? [] : [counted(paused, "instance")])
        ].join("; "),
        style.red
      ] as const
    ]),
    ...(report.deadTasks === 0
      ? []
      : [["dead", `${counted(report.deadTasks, "task")}; see tasks --status dead`, style.red] as const]),
    ["processes", `${count(alive.length)} alive${dead.length === 0 ? "" : `, ${count(dead.length)} dead`}`]
  ]
  const lines = fields(states, style, width)
  const tables = [
    section("orchestration", orchestrations, { style, width }, [
      { title: "ORCHESTRATION", shrinks: "middle", value: ({ orchestration }) => orchestration },
      { title: "RUNNING", align: "right", value: ({ running }) => Counts.shown(running) },
      { title: "STARTED/S", align: "right", dropped: 2, value: ({ started }) => rate(started) },
      { title: "ENDED/S", align: "right", dropped: 3, value: (one) => rate(Live.ended(one)) },
      {
        title: "FAILED/S",
        align: "right",
        dropped: 1,
        value: ({ failed }) => rate(failed),
        mark: ({ failed }, text) => failed > 0 ? style.red(text) : text
      }
    ]),
    section("due definition", due, { style, width }, [
      { title: "DUE", shrinks: "middle", value: definitionOf },
      { title: "WAITING", align: "right", value: ({ isMore, waiting }) => `${count(waiting)}${isMore ? "+" : ""}` },
      { title: "RUNNING", align: "right", dropped: 2, value: ({ running }) => count(running) },
      {
        title: "OLDEST",
        align: "right",
        dropped: 1,
        value: ({ oldestAgeMs }) => oldestAgeMs === null ? "-" : age(oldestAgeMs)
      },
      servedBy(style)
    ]),
    section("process", [...alive, ...dead], { style, width }, [
      { title: "PROCESS", shrinks: "middle", value: ({ host, pid }) => `${host}/${pid}` },
      { title: "BUILD", dropped: 3, value: ({ build }) => shortened(build, 20) },
      {
        title: "STATE",
        value: ({ isAlive }) => isAlive ? "alive" : "dead",
        mark: ({ isAlive }, text) => isAlive ? style.green(text) : style.red(text)
      },
      { title: "STARTED", dropped: 2, value: ({ sinceMs }) => `${age(report.nowMs - sinceMs)} ago` },
      ...slotColumns.map((column) => ({ ...column, dropped: 1 }))
    ])
  ].filter(({ entries }) => entries > 0)
  return [...lines, ...within(rows - lines.length, tables, style)]
}

// internal

/** Two digits. */
const rate = (perSecond: number): string =>
  perSecond === 0 || perSecond >= 10 ? count(Math.round(perSecond)) : perSecond.toFixed(1)

interface Section {
  /** What an entry is. */
  readonly noun: string
  readonly entries: number
  /** An empty line, the titles, and so many lines of entries; the last one says how many are left out. */
  readonly lines: (most: number) => ReadonlyArray<string>
}

const section = <Row>(
  noun: string,
  rows: ReadonlyArray<Row>,
  { style, width }: { readonly style: Style; readonly width: number },
  columns: ReadonlyArray<Column<Row>>
): Section => ({
  noun,
  entries: rows.length,
  lines: (most) => {
    const shown = rows.length <= most ? rows : rows.slice(0, most - 1)
    const others = rows.length - shown.length
    return [
      "",
      ...fitted(shown, columns, style, width),
      ...(others > 0 ? [style.dim(`and ${count(others)} more`)] : [])
    ]
  }
})

/** The sections that fit into so many lines: what is due stays longest, processes are left out first. */
const within = (rows: number, sections: ReadonlyArray<Section>, style: Style): ReadonlyArray<string> => {
  const shown = sections.map((section) => ({ section, most: Math.min(section.entries, 2) }))
  const omitted: Array<Section> = []
  const free = () => rows - shown.reduce((sum, { most }) => sum + 2 + most, 0) - (omitted.length > 0 ? 1 : 0)
  while (shown.length > 0 && free() < 0) {
    const last = shown.length === 3 || shown.at(-1)!.section.noun === "process" ? shown.length - 1 : 0
    omitted.unshift(...shown.splice(last, 1).map(({ section }) => section))
  }
  for (let left = free(); left > 0; left--) {
    const [next] = shown.filter(({ most, section }) => most < section.entries).sort((a, b) => a.most - b.most)
    if (next === undefined) break
    next.most++
  }
  return [
    ...shown.flatMap(({ most, section }) => section.lines(most)),
    ...(omitted.length === 0 ? [] : [
      style.dim(`and ${omitted.map(({ entries, noun }) => counted(entries, noun, pluralOf(noun))).join(", ")}`)
    ])
  ]
}

const pluralOf = (noun: string) => noun.endsWith("s") ? `${noun}es` : `${noun}s`
