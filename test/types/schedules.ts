// Deliberate mistakes that tsc must find.
/**
 * What does not compile with schedules: checked by `tsc`, never run.
 */
import { Orchestration } from "duroxide-prisma"
import { Schedules } from "duroxide-prisma/schedules"
import { Task } from "duroxide-prisma/tasks"
import * as Schema from "effect/Schema"

const Census = Task.make("Census", { payload: { reason: Schema.Literals(["cron", "webhook"]) } })
const Report = Orchestration.make("Report", { payload: { day: Schema.String }, success: Schema.Number })
const Sweep = Orchestration.make("Sweep")

const timing = Schedules.cron("0 4 * * *")

/** Payloads need no `as const`, and are checked. */
export const schedules = [
  Schedules.make("census", { timing, start: Census, payload: { reason: "cron" } }),
  Schedules.make("census", { timing, start: Census, payload: () => ({ reason: "cron" }) }),
  Schedules.make("report", { timing, start: Report, payload: ({ at }) => ({ day: at.toISOString() }) }),
  Schedules.make("sweep", { timing, start: Sweep }),
  // @ts-expect-error: not a reason
  Schedules.make("census", { timing, start: Census, payload: { reason: "whim" } }),
  // @ts-expect-error: not a reason
  Schedules.make("census", { timing, start: Census, payload: () => ({ reason: "whim" }) }),
  // @ts-expect-error: a payload is missing
  Schedules.make("report", { timing, start: Report }),
  // @ts-expect-error: not a text
  Schedules.make("report", { timing, start: Report, payload: ({ at }) => ({ day: at }) }),
  // @ts-expect-error: not a rule
  Schedules.make("sweep", { timing, start: Sweep, overlap: "cancel" }),
  // @ts-expect-error: a timing is made by a function of the module
  Schedules.make("sweep", { timing: "0 4 * * *", start: Sweep })
]
