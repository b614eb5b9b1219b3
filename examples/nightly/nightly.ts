/**
 * Starts a report each night by the clock of a time zone, also over the days on which that clock is changed. A night is
 * left out when the report of the one before still runs; nights that fell into an outage are not made up for.
 */
import { Activity, Client, KeyValue, Orchestration, Runtime } from "duroxide-prisma"
import { Context, Cron, DateTime, Effect, Layer, Option, Schema } from "effect"

/** What makes the reports. */
export class Reports extends Context.Service<Reports, {
  readonly make: (night: string) => Effect.Effect<void>
}>()("examples/nightly/Reports") {}

export const MakeReport = Activity.make("MakeReport", { payload: Schema.String })

/** One report; the night it is for is its payload. */
export const Report = Orchestration.make("Report", { payload: Schema.String })

const ReportLive = Report.toLayer((night) => MakeReport.execute(night))

export const IsRunning = Activity.make("IsRunning", { payload: Schema.String, success: Schema.Boolean })

export class InvalidCron extends Schema.TaggedError<InvalidCron>()("InvalidCron", { problem: Schema.String }) {}

/** Nights so far. */
export const Nights = KeyValue.make("nights", Schema.Struct({ started: Schema.Int, skipped: Schema.Int }))

export const Nightly = Orchestration.make("Nightly", {
  payload: Schema.Struct({
    cron: Schema.String,
    zone: Schema.TimeZoneNamedFromString,
    /** The report started last, for the next execution. */
    latest: Schema.optionalKey(Schema.String)
  }),
  error: InvalidCron
})

const NightlyLive = Nightly.toLayer(Effect.fn(function*(plan) {
  const { instanceId } = yield* Orchestration.Instance
  // With the zone: without one, a cron expression means the clock of the machine, another one on each machine.
  const cron = yield* Effect.fromResult(Cron.parse(plan.cron, plan.zone)).pipe(
    Effect.mapError(({ message }) => new InvalidCron({ problem: message }))
  )
  // With the time: without one, `Cron.next` reads the clock of the machine, which is not recorded.
  const now = yield* DateTime.now
  const next = DateTime.setZone(DateTime.fromDateUnsafe(Cron.next(cron, now)), plan.zone)
  const night = DateTime.formatIsoZoned(next)
  yield* Orchestration.setCustomStatus(`next: ${night}`)
  yield* Effect.sleep(DateTime.distance(now, next))

  const { skipped, started } = Option.getOrElse(yield* Nights.get, () => ({ started: 0, skipped: 0 }))
  if (plan.latest !== undefined && (yield* IsRunning.execute(plan.latest))) {
    yield* Effect.logWarning(`no report for ${night}: ${plan.latest} still runs`)
    yield* Nights.set({ started, skipped: skipped + 1 })
    return yield* Nightly.continueAsNew(plan)
  }
  // Detached: it runs independently of this instance, which does not wait for it.
  const latest = `${instanceId}/${night}`
  yield* Report.startDetached({ instanceId: latest, payload: night })
  yield* Nights.set({ started: started + 1, skipped })
  return yield* Nightly.continueAsNew({ ...plan, latest })
}))

const MakeReportLive = MakeReport.toLayer((night) => Effect.flatMap(Reports, (reports) => reports.make(night)))

// An orchestration cannot look at others; an activity can, with a client.
const IsRunningLive = IsRunning.toLayer(Effect.fn(function*(instanceId) {
  const client = yield* Client.Client
  const { _tag } = yield* Effect.orDie(client.status(instanceId))
  return _tag === "Running"
}))

export const RuntimeLive = Runtime.layer({
  orchestrations: [Nightly, Report],
  activities: [MakeReport, IsRunning]
}).pipe(
  Layer.provide([NightlyLive, ReportLive, MakeReportLive, IsRunningLive])
)
