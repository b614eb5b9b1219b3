/**
 * Schedulers of real processes' parts: their loops, hints, and what they wait for.
 */
import { assert, describe, it } from "@effect/vitest"
import { Client, Metrics, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Database, PrismaDriver, PrismaProvider } from "duroxide-prisma/prisma"
import { Schedules } from "duroxide-prisma/schedules"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import { counts, isolated } from "../utils/metrics.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const Tick = Orchestration.make("Tick", { payload: { at: Schema.String } })
const Go = Signal.make("Go")
const Patient = Orchestration.make("Patient")

/** A process with a scheduler and, unless it only schedules, a runtime; counts its statements by name. */
const open = Effect.fnUntraced(function*(url: string, schedules: ReadonlyArray<Schedules.Schedule>, runs = true) {
  const statements = new Map<string, number>()
  const database = Layer.effect(
    Database.Database,
    Effect.map(Database.Database, (database) => ({
      ...database,
      query: <Row>(...args: Parameters<typeof database.query>) => {
        statements.set(args[0], (statements.get(args[0]) ?? 0) + 1)
        return database.query<Row>(...args)
      }
    }))
  )
  const runtime = Runtime.layer({ orchestrations: [Tick, Patient], activities: [] }).pipe(
    Layer.provide([Tick.toLayer(() => Effect.void), Patient.toLayer(() => Go.wait)])
  )
  const services = yield* Layer.build(
    Layer.mergeAll(Schedules.layer(schedules), runs ? runtime : Layer.empty).pipe(
      Layer.provideMerge(Client.layer),
      Layer.provide(Layer.provideMerge(PrismaDriver.layerTasks(), database)),
      Layer.provideMerge(PrismaProvider.layer({ url, migrate: "none" })),
      Layer.provide(Logger.layer([]))
    )
  )
  return {
    schedules: Context.get(services, Schedules.Schedules),
    client: Context.get(services, Client.Client),
    count: (name: string) => statements.get(name) ?? 0,
    /** Whether its connection that listens has been found to work. */
    hasListened: Effect.map(
      Context.get(services, Database.Database).statementCounts,
      (counts) => JSON.stringify(counts).includes("checkNotifications")
    )
  }
})

const everySecond = Schedules.make("seconds", {
  timing: Schedules.every("1 second"),
  start: Tick,
  payload: ({ at }) => ({ at: at.toISOString() }),
  overlap: "allow"
})

/** Without a hint, a look comes after a minute. */
const beforeFallback = Effect.timeout("45 seconds")

/** Looks of a process in a span of time. */
const looksIn = Effect.fnUntraced(function*(
  { count }: { readonly count: (name: string) => number },
  span: Duration.Input
) {
  const before = count("claimSchedules")
  yield* Effect.sleep(span)
  return count("claimSchedules") - before
})

// They wait most of the time.
describe.concurrent("schedulers:", () => {
  it.live("one process, without a queue: occurrences start orchestrations, which complete", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      yield* open(url, [everySecond])
      yield* waitUntil(Effect.map(
        sql("SELECT FROM instances WHERE instance_id LIKE 'schedule/seconds/%' AND status = 'Completed'"),
        ({ length }) => length >= 3
      ))
      assert.deepStrictEqual(yield* sql("SELECT FROM queue_tasks"), [])
    }).pipe(Effect.scoped))

  it.live("several processes: each occurrence once", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const all = yield* Effect.all([open(url, [everySecond]), open(url, [everySecond]), open(url, [everySecond])], {
        concurrency: "unbounded"
      })
      const runs = Effect.map(
        sql<{ at: string }>("SELECT occurrence_at::text AS at FROM schedule_runs ORDER BY number"),
        (rows) => rows.map(({ at }) => at)
      )
      yield* waitUntil(Effect.map(runs, ({ length }) => length >= 4))
      const occurrences = yield* runs
      assert.deepStrictEqual(occurrences, [...new Set(occurrences)])
      // A late statement fires several.
      yield* waitUntil(Effect.sync(() => all.reduce((sum, { count }) => sum + count("fireSchedules"), 0) >= 4))
    }).pipe(Effect.scoped))

  it.live("while nothing is due, it sends no statement; a schedule of another process wakes it", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const rare = Schedules.make("rare", { timing: Schedules.cron("0 0 1 1 *"), start: Tick, payload: { at: "" } })
      const idle = yield* open(url, [rare])
      yield* waitUntil(Effect.map(sql("SELECT FROM schedules WHERE next_at IS NOT NULL"), ({ length }) => length === 1))
      yield* waitUntil(idle.hasListened)
      // What it looks for then ends when the machine has time.
      yield* Effect.repeat(looksIn(idle, "2 seconds"), { until: (looks) => looks === 0 })

      const other = yield* Effect.provide(
        Effect.provide(Schedules.Schedules, Schedules.layerClient),
        yield* Layer.build(
          PrismaProvider.layerDatabase({ url, migrate: "none" }).pipe(Layer.provide(Logger.layer([])))
        )
      )
      yield* other.create(
        Schedules.make("now", { timing: Schedules.every("1 second"), start: Tick, payload: { at: "" } })
      )
      yield* waitUntil(Effect.map(
        sql("SELECT FROM instances WHERE instance_id LIKE 'schedule/now/%' AND status = 'Completed'"),
        ({ length }) => length >= 1
      )).pipe(beforeFallback)
      const id = yield* other.runNow("rare")
      yield* waitUntil(Effect.map(
        sql("SELECT FROM instances WHERE instance_id = $1 AND status = 'Completed'", [id]),
        ({ length }) => length === 1
      )).pipe(beforeFallback)
    }).pipe(Effect.scoped))

  it.live("an occurrence that waits starts when the run ends, also if the process that queued it has closed; without polling", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const schedule = Schedules.make("patient", {
        timing: Schedules.cron("0 0 1 1 *"),
        start: Patient,
        overlap: "queue"
      })
      const scope = yield* Scope.make()
      const first = yield* Scope.provide(open(url, [schedule], false), scope)
      const second = yield* open(url, [schedule])
      const one = yield* first.schedules.runNow("patient")
      const two = yield* first.schedules.runNow("patient")
      const outcomes = Effect.map(
        sql<{ outcome: string }>("SELECT outcome FROM schedule_runs ORDER BY number"),
        (rows) => rows.map(({ outcome }) => outcome)
      )
      yield* waitUntil(Effect.map(outcomes, (all) => all.join() === "Started,Queued"))
      yield* Scope.close(scope, Exit.void)
      // What it looks for then ends when the machine has time.
      yield* Effect.repeat(looksIn(second, "3 seconds"), { until: (looks) => looks === 0 })
      const looks = second.count("claimSchedules")
      yield* second.client.send(Go, one)
      yield* waitUntil(Effect.map(outcomes, (all) => all.join() === "Started,Started")).pipe(beforeFallback)
      assert.strictEqual((yield* second.client.status(two))._tag, "Running")
      assert.isAtMost(second.count("claimSchedules") - looks, 4)
    }).pipe(Effect.scoped))

  it.live("hundreds that are due in one second all start, once, and share their statements", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const due = new Date(Math.ceil((Date.now() + 8000) / 1000) * 1000)
      const schedules = Array.from(
        { length: 600 },
        (_, n) =>
          Schedules.make(`due-${n}`, { timing: Schedules.dates([due]), start: Tick, payload: { at: String(n) } })
      )
      const fleet = yield* Effect.all([open(url, schedules, false), open(url, schedules, false)], {
        concurrency: "unbounded"
      })
      const before = fleet.reduce((sum, { count }) => sum + count("fireSchedules"), 0)
      yield* waitUntil(Effect.map(
        sql<{ count: number }>("SELECT count(*)::int AS count FROM instances"),
        ([row]) => row!.count === 600
      ))
      assert.lengthOf(yield* sql("SELECT FROM schedule_runs WHERE outcome = 'Started'"), 600)
      assert.isAtMost(fleet.reduce((sum, { count }) => sum + count("fireSchedules"), 0) - before, 60)
    }).pipe(Effect.scoped))

  it.live("occurrences are counted by their outcome", () =>
    isolated(
      Effect.gen(function*() {
        const { sql, url } = yield* PgServer.database
        const { schedules } = yield* open(url, [Schedules.make("once", {
          timing: Schedules.cron("0 0 1 1 *"),
          start: Patient
        })])
        yield* schedules.runNow("once")
        yield* schedules.runNow("once")
        yield* waitUntil(Effect.map(sql("SELECT FROM schedule_runs"), ({ length }) => length === 2))
        yield* waitUntil(Effect.map(counts(Metrics.scheduleRuns), (all) => Object.keys(all).length === 2))
        assert.deepStrictEqual(yield* counts(Metrics.scheduleRuns), { Started: 1, Skipped: 1 })
      }).pipe(Effect.scoped)
    ))

  it.live("an outage of the store delays occurrences, and nothing else", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      yield* open(url, [everySecond])
      const started = Effect.map(
        sql("SELECT FROM instances WHERE instance_id LIKE 'schedule/seconds/%'"),
        ({ length }) => length
      )
      yield* waitUntil(Effect.map(started, (count) => count >= 1))
      yield* sql("ALTER TABLE schedules RENAME TO gone")
      yield* Effect.sleep("2500 millis")
      const before = yield* started
      yield* sql("ALTER TABLE gone RENAME TO schedules")
      yield* waitUntil(Effect.map(started, (count) => count >= before + 4))
      const gaps = yield* sql(`
        SELECT FROM (
          SELECT occurrence_at - lag(occurrence_at) OVER (ORDER BY occurrence_at) AS gap FROM schedule_runs
        ) AS gaps WHERE gap <> interval '1 second'`)
      assert.deepStrictEqual(gaps, [])
    }).pipe(Effect.scoped))
})
