/**
 * A task as the command line shows it.
 */
import { age } from "../../model/shared/quantities.ts"
import { summaryOf } from "../../operating/tasks.ts"
import { isoTime } from "../../operating/times.ts"
import type { ListedTask } from "../../prisma/shared/taskReport.ts"
import type { Style } from "./Output.ts"
import { shortened } from "./table.ts"

export const toJson = (task: ListedTask): object => ({
  ...summaryOf(task),
  createdAt: isoTime(task.createdAtMs),
  runAt: isoTime(task.runAtMs),
  startedAt: task.startedAtMs === null ? null : isoTime(task.startedAtMs),
  endedAt: task.endedAtMs === null ? null : isoTime(task.endedAtMs),
  ...(task.payload !== null && { payload: shortened(task.payload, longestPayload) })
})

/** Columns of a payload, as in `show`. */
export const longestPayload = 200

/** Such as `due for 3 min`, `due in 5 s`, `waits for a slot for 3 min`, `runs for 2 s`, `died 3 h ago`. */
export const shownTime = (
  { endedAtMs, runAtMs, startedAtMs, status, waitingKey }: ListedTask,
  nowMs: number
): string => {
  if (endedAtMs !== null) return `${status === "Dead" ? "died" : "ended"} ${age(nowMs - endedAtMs)} ago`
  if (startedAtMs !== null) return `runs for ${age(nowMs - startedAtMs)}`
  if (waitingKey !== null) return `waits for a slot for ${age(nowMs - runAtMs)}`
  return runAtMs > nowMs ? `due in ${age(runAtMs - nowMs)}` : `due for ${age(nowMs - runAtMs)}`
}

/** Marks the name of a status. */
export const marked = ({ status }: ListedTask, text: string, style: Style): string =>
  status === "Dead"
    ? style.red(text)
    : status === "Completed"
    ? style.green(text)
    : status === "Cancelled"
    ? style.yellow(text)
    : text
