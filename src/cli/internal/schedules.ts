/**
 * Schedules and their runs as the command line shows them.
 */
import * as Duration from "effect/Duration"
import { time } from "../../operating/times.ts"
import type { RunInfo, ScheduleInfo } from "../../schedules/Schedules.ts"
import { targetText, timingText } from "../../schedules/shared/describe.ts"
import type { Style } from "./Output.ts"
import { fitted, oneLine } from "./table.ts"

export const timing = ({ definition }: ScheduleInfo): string =>
  definition === undefined ? "?" : timingText(definition.timing)

export const target = ({ definition }: ScheduleInfo): string =>
  definition === undefined ? "?" : targetText(definition.target)

export const marked = (state: ScheduleInfo["state"], text: string, style: Style): string =>
  state === "Overdue" ? style.red(text) : state === "Paused" ? style.yellow(text) : text

export const lastText = (run: RunInfo | undefined): string =>
  run === undefined ? "-" : `${run.outcome} ${time(run.occurrence.getTime())}`

/** Dates become texts of ISO 8601. */
export const scheduleJson = (
  { definition, lastRun, pause, problem, queued, ...schedule }: ScheduleInfo
): object => ({
  ...schedule,
  problem: problem ?? null,
  definition: definition ?? null,
  pause: pause === undefined ? null : { since: pause.since, reason: pause.reason ?? null },
  queued: queued ?? null,
  lastRun: lastRun === undefined ? null : runJson(lastRun)
})

export const runJson = ({ instanceId, note, since, taskId, ...run }: RunInfo): object => ({
  ...run,
  since: since ?? null,
  note: note ?? null,
  instanceId: instanceId ?? null,
  taskId: taskId ?? null
})

export const fields = (schedule: ScheduleInfo, style: Style): ReadonlyArray<string> => {
  const { definition, isCode, isRunning, name, next, pause, problem, queued, requests, state } = schedule
  const rows: Array<readonly [string, string]> = [
    ["schedule", name],
    ["state", marked(state, state, style)],
    ["timing", timing(schedule)],
    ["starts", target(schedule)]
  ]
  if (problem !== undefined) rows.push(["problem", problem])
  if (pause !== undefined) {
    rows.push(["paused", `${time(pause.since.getTime())}${pause.reason === undefined ? "" : `: ${pause.reason}`}`])
  }
  if (definition !== undefined) {
    const { catchUp, jitterMs, overlap } = definition
    rows.push(["overlap", overlap], ["catch-up", catchUpText(catchUp)])
    if (jitterMs > 0) rows.push(["jitter", Duration.format(Duration.millis(jitterMs))])
  }
  if (isCode) rows.push(["payload", "made by code"])
  if (isRunning) rows.push(["running", "the last run has not ended"])
  if (queued !== undefined) rows.push(["queued", time(queued.getTime())])
  if (requests > 0) rows.push(["requests", String(requests)])
  for (const [i, at] of next.entries()) rows.push([i === 0 ? "next" : "", time(at.getTime())])
  const width = Math.max(...rows.map(([title]) => title.length))
  return rows.map(([title, value]) => `${style.dim(title.padEnd(width))}  ${oneLine(value)}`)
}

export const runTable = (runs: ReadonlyArray<RunInfo>, style: Style, columns: number): ReadonlyArray<string> =>
  fitted(
    runs,
    [
      { title: "RUN", align: "right", value: ({ number }) => String(number) },
      {
        title: "OCCURRENCE",
        value: ({ occurrence, since }) =>
          since === undefined || since.getTime() === occurrence.getTime()
            ? time(occurrence.getTime())
            : `${time(since.getTime())} to ${time(occurrence.getTime())}`
      },
      { title: "KIND", value: ({ kind }) => kind, dropped: 1 },
      {
        title: "OUTCOME",
        value: ({ outcome }) => outcome,
        mark: ({ outcome }, text) =>
          outcome === "Refused" ? style.red(text) : outcome === "Missed" ? style.yellow(text) : text
      },
      { title: "STARTED", shrinks: "end", value: ({ instanceId, note, taskId }) => instanceId ?? taskId ?? note ?? "-" }
    ],
    style,
    columns
  )

// internal

const catchUpText = (catchUp: NonNullable<ScheduleInfo["definition"]>["catchUp"]): string =>
  catchUp._tag === "None"
    ? "none"
    : catchUp._tag === "Last"
    ? "the last one"
    : `all within ${Duration.format(Duration.millis(catchUp.ms))}`
