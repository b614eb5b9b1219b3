/**
 * What a person sees: on a terminal a line that is redrawn, anywhere else a line per second; then the table.
 */
import { styleText } from "node:util"
import type { Report } from "./audit.ts"
import type { Event, Progress, Run } from "./run.ts"

export interface Screen {
  readonly line: (text: string) => void
  readonly tell: (atMs: number, event: Event) => void
  /** Takes the redrawn line away. */
  readonly clear: () => void
}

export const make = (orders: number): Screen => {
  const { stdout } = process
  let isDrawn = false
  let shown = ""
  let shownAtMs = -1000

  const clear = () => {
    if (isDrawn) stdout.write("\r\u001b[K")
    isDrawn = false
  }
  const line = (text: string) => {
    clear()
    stdout.write(`${text}\n`)
  }
  const progress = (atMs: number, { stages }: Progress) => {
    const { done = 0 } = stages
    const counts = stageNames.flatMap((name) => stages[name] === undefined ? [] : [`${stages[name]} ${name}`])
    const what = [`${done}/${orders} done`, ...counts].join(", ")
    const text = `${time(atMs)}  ${what}`
    if (stdout.isTTY) {
      // A line that wraps could not be redrawn.
      const room = (stdout.columns || 80) - 1 - text.length
      const bar = room < 15 ? "" : `  [${"#".repeat(Math.floor(10 * done / orders)).padEnd(10, ".")}]`
      stdout.write(`\r\u001b[K${(text + bar).slice(0, (stdout.columns || 80) - 1)}`)
      isDrawn = true
    } else if (what !== shown && atMs - shownAtMs >= 1000) {
      shown = what
      shownAtMs = atMs
      line(text)
    }
  }

  return {
    line,
    clear,
    tell: (atMs, event) => {
      const say = (text: string) => line(`${time(atMs)}  ${text}`)
      switch (event._tag) {
        case "Progress":
          return progress(atMs, event)
        case "WorkerStarted":
          return say(`worker ${event.worker} starts: process ${event.pid}`)
        case "WorkerKilled": {
          const { activities, ended, underWay } = event.kill
          return say(red(
            `worker ${event.worker} is killed (SIGKILL): ${ended} orders done, ${underWay} under way, ` +
              `${activities.length} activities running`
          ))
        }
        case "WorkerStopped":
          return say(`worker ${event.worker} stopped: no work left`)
        case "Answered":
          return say(`the manager ${event.entry.manager} order ${event.entry.number}`)
      }
    }
  }
}

/** The table at the end. */
export const table = (run: Run, report: Report): string => {
  const { effects, orders } = report
  const interrupted = run.kills.flatMap(({ activities }) => activities)
  const sum = (numbers: ReadonlyArray<number>) => numbers.reduce((a, b) => a + b, 0)
  const rule = "-".repeat(78)
  const row = (name: string, value: string | number, note = "") =>
    `${name.padEnd(24)}${String(value).padStart(8)}  ${note}`.trimEnd()
  return [
    rule,
    row("orders", sum(Object.values(orders))),
    row("  completed", orders.completed, "shipped"),
    row("  failed as expected", orders.failed, "there was nothing to undo"),
    row("  compensated", orders.compensated, "failed as expected, what was done is undone"),
    ...(orders.different > 0 ? [row("  NOT as expected", orders.different)] : []),
    rule,
    row("turns", report.turns),
    row("activities", report.calls, `${report.attempts} attempts`),
    row("effects", sum(effects.map(({ applied }) => applied))),
    ...effects.map(({ applied, effect, expected }) =>
      row(`  ${effect}`, applied, applied === expected ? "as expected" : `NOT as expected: ${expected}`)
    ),
    rule,
    ...run.kills.map(({ afterMs, pid }) => row("SIGKILL after", seconds(afterMs), `process ${pid}`)),
    row(
      "  orders under way",
      Math.max(...run.kills.map(({ underWay }) => underWay)),
      `process ${run.survivor} carried on`
    ),
    row("  turns interrupted", sum(run.kills.map(({ turns }) => turns)), "taken over"),
    row("  activities interrupted", interrupted.length, `${report.repeated} ran twice`),
    row(
      "    after their effect",
      interrupted.filter(({ tookEffect }) => tookEffect).length,
      `${report.recognised} recognised by their key, not applied again`
    ),
    rule,
    row("time", seconds(run.elapsedMs)),
    rule
  ].join("\n")
}

/** For the eye, where there is one. */
export const green = (text: string) => coloured("green", text)
export const red = (text: string) => coloured("red", text)

const coloured = (colour: "green" | "red", text: string) =>
  process.stdout.isTTY && !process.env["NO_COLOR"] ? styleText(colour, text) : text

/** What was done last for an order that is under way. */
const stageNames = ["placed", "reserved", "charged", "in approval", "cancelled", "shipped"]

const seconds = (millis: number) => `${(millis / 1000).toFixed(1)} s`
const time = (millis: number) => seconds(millis).padStart(7)
