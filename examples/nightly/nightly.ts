/**
 * Starts a report each night by the clock of a time zone, also over the days on which that clock is changed. A night is
 * left out when the report of the one before still runs; of nights that fell into an outage, the last one is made up for.
 */
import { Activity, Orchestration, Runtime } from "duroxide-prisma"
import { Schedules } from "duroxide-prisma/schedules"
import { Context, DateTime, Effect, Layer, Schema } from "effect"

/** What makes the reports. */
export class Reports extends Context.Service<Reports, {
  readonly make: (night: string) => Effect.Effect<void>
}>()("examples/nightly/Reports") {}

export const MakeReport = Activity.make("MakeReport", { payload: Schema.String })

/** One report; the night it is for is its payload. */
export const Report = Orchestration.make("Report", { payload: Schema.String })

const ReportLive = Report.toLayer((night) => MakeReport.execute(night))

const MakeReportLive = MakeReport.toLayer((night) => Effect.flatMap(Reports, (reports) => reports.make(night)))

const zone = DateTime.zoneMakeNamedUnsafe("Europe/Berlin")

/** With six fields, the first one is seconds. */
export const nightly = (cron = "30 2 * * *") =>
  Schedules.make("nightly", {
    timing: Schedules.cron(cron, { timeZone: "Europe/Berlin" }),
    start: Report,
    payload: ({ at }) => DateTime.formatIsoZoned(DateTime.setZone(DateTime.fromDateUnsafe(at), zone)),
    overlap: "skip"
  })

/** Serves the reports and fires the schedule, in one process or in many. */
export const layer = (schedule: Schedules.Schedule) =>
  Layer.merge(
    Runtime.layer({ orchestrations: [Report], activities: [MakeReport] }).pipe(
      Layer.provide([ReportLive, MakeReportLive])
    ),
    Schedules.layer([schedule])
  )
