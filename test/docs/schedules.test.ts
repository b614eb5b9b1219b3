import { assert, it } from "@effect/vitest"
import { Activity, Orchestration, Runtime } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Schedules } from "duroxide-prisma/schedules"
import { TestRuntime } from "duroxide-prisma/testing"
import { TestSchedules } from "duroxide-prisma/testing/schedules"
import * as Config from "effect/Config"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

const MakeReport = Activity.make("MakeReport", { payload: Schema.String })

const Report = Orchestration.make("Report", { payload: { day: Schema.String } })

const ReportLive = Report.toLayer(({ day }) => MakeReport.execute(day))

const MakeReportLive = MakeReport.toLayer(() => Effect.void)

const Nightly = Schedules.make("nightly-report", {
  timing: Schedules.cron("0 4 * * *", { timeZone: "Europe/Berlin" }),
  start: Report,
  payload: ({ at }) => ({ day: at.toISOString().slice(0, 10) })
})

const Worker = Layer.merge(
  Runtime.layer({ orchestrations: [Report], activities: [MakeReport] }).pipe(
    Layer.provide([ReportLive, MakeReportLive])
  ),
  Schedules.layer([Nightly])
).pipe(
  Layer.provide(PrismaProvider.layerConfig({ url: Config.Redacted("DATABASE_URL") }))
)

const Sync = Schedules.make("sync", {
  timing: Schedules.every("10 minutes"),
  start: Report,
  payload: { day: "today" },
  overlap: "queue",
  jitter: "1 minute",
  catchUp: { within: "2 hours" }
})

const perCustomer = Effect.fn(function*(customer: string) {
  const schedules = yield* Schedules.Schedules
  yield* schedules.create(
    Schedules.make(`report/${customer}`, {
      timing: Schedules.cron("0 6 * * MON"),
      start: Report,
      payload: { day: "monday" },
      jitter: "30 minutes"
    }),
    { ifExists: "replace" }
  )
})

const repair = Effect.gen(function*() {
  const schedules = yield* Schedules.Schedules
  yield* schedules.pause("nightly-report", { reason: "the source is down" })
  yield* schedules.resume("nightly-report")
  yield* schedules.backfill("nightly-report", { from: new Date("2026-03-01"), to: new Date("2026-03-08") })
  const id = yield* schedules.runNow("nightly-report")
  const runs = yield* schedules.runs("nightly-report", { limit: 10 })
  return { id, runs }
})

const onTick = () =>
  Schedules.runDue([Nightly]).pipe(
    Effect.provide(PrismaProvider.layerDatabase({ url: process.env.DATABASE_URL! })),
    Effect.runPromise
  )

const reports: Array<string> = []
const MakeReportMock = MakeReport.toLayer((day) => Effect.sync(() => void reports.push(day)))

const Test = TestRuntime.layer(
  Layer.merge(
    Runtime.layer({ orchestrations: [Report], activities: [MakeReport] }).pipe(
      Layer.provide([ReportLive, MakeReportMock])
    ),
    Schedules.layer([Nightly])
  ).pipe(Layer.provide(TestSchedules.layer))
)

it.effect("a report each night", () =>
  Effect.gen(function*() {
    yield* TestRuntime.advance("7 days")
    assert.lengthOf(reports, 7)
  }).pipe(Effect.provide(Test)))

it("docs/schedules.md: its examples are those tested here", () => {
  const here = Docs.withoutIndentation(Docs.read("test/docs/schedules.test.ts"))
  const examples = Docs.blocks(Docs.read("docs/schedules.md"), "ts")
  assert.lengthOf(examples, 8)
  for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
  assert.isTrue(Layer.isLayer(Worker))
  assert.strictEqual(Sync.name, "sync")
})

it.live("docs/schedules.md: what is done at run time", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.database
    const services = yield* Layer.build(
      Schedules.layerClient.pipe(
        Layer.provideMerge(PrismaProvider.layerDatabase({ url, migrate: "none" })),
        Layer.provide(Logger.layer([]))
      )
    )
    yield* Effect.provide(Schedules.runDue([Nightly]), services)
    yield* Effect.provide(perCustomer("c-1"), services)
    yield* Effect.provide(perCustomer("c-1"), services)
    const { id } = yield* Effect.provide(repair, services)
    process.env.DATABASE_URL = url
    const { nextAt, started } = yield* Effect.promise(onTick)
    assert.strictEqual(started, 8)
    assert.isAbove(nextAt!.getTime(), Date.now())
    const ids = yield* sql<{ id: string }>("SELECT instance_id AS id FROM instances")
    assert.includeMembers(ids.map(({ id }) => id), [id, "schedule/nightly-report/2026-03-01T03:00:00.000Z"])
  }).pipe(Effect.scoped))
