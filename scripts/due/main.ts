/**
 * Many schedules that are due in one second: whether all start, and how late: `npm run due -- --schedules 10000
 * --schedulers 2`.
 *
 * The schedulers are layers of this process, each with a pool of its own. Runs on `DATABASE_URL`, else on an embedded
 * PostgreSQL, in a schema that it drops. The last line is one JSON object; times are seconds after the moment at which
 * all are due. Exit code 1: not all have started.
 */
import { Orchestration } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Schedules } from "duroxide-prisma/schedules"
import { DatabaseServer } from "duroxide-prisma/server"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import { parseArgs } from "node:util"
import * as pg from "pg"

const { values } = parseArgs({
  options: {
    schedules: { type: "string", default: "10000" },
    schedulers: { type: "string", default: "2" },
    /** A cron expression in a time zone costs more to compute than a date. */
    zone: { type: "string", default: "Europe/Berlin" }
  }
})
const [count, schedulers] = [Number(values.schedules), Number(values.schedulers)]
const schema = `due_${process.pid}`

const Tick = Orchestration.make("Tick", { payload: { number: Schema.Int } })

const main = Effect.gen(function*() {
  const server = yield* DatabaseServer.make({ directory: ".duroxide/due" })
  yield* Console.log(server.description)
  const url = Redacted.value(server.url)
  const client = new pg.Client(url)
  yield* Effect.acquireRelease(
    Effect.promise(() => client.connect()),
    () => Effect.promise(() => client.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`).then(() => client.end()))
  )
  const query = <Row>(sql: string) => Effect.promise(async () => (await client.query(sql)).rows as Array<Row>)
  const database = PrismaProvider.layer({ url, schema }).pipe(Layer.provide(Logger.layer([])))

  // The next minute that leaves time to store them.
  const due = new Date(Math.ceil((Date.now() + 5_000 + count) / 60_000) * 60_000)
  const cron = `0 ${due.getUTCMinutes()} * * * *`
  const definitions = Array.from({ length: count }, (_, number) =>
    Schedules.make(`due-${number}`, {
      timing: Schedules.cron(cron, { timeZone: values.zone }),
      start: Tick,
      payload: { number }
    }))
  const storing = Date.now()
  yield* Effect.provide(Schedules.runDue(definitions), database)
  yield* Console.log(`stored ${count} schedules in ${Date.now() - storing} ms; due at ${due.toISOString()}`)
  const processes = Array.from(
    { length: schedulers },
    () => Layer.build(Layer.fresh(Schedules.layer().pipe(Layer.provide(database))))
  )
  yield* Effect.all(processes, { concurrency: "unbounded" })

  const started = query<{ count: number; first: number; median: number; last: number }>(`
    SELECT count(*)::int, min(late)::float8 AS first, max(late)::float8 AS last,
      percentile_cont(0.5) WITHIN GROUP (ORDER BY late)::float8 AS median
    FROM (SELECT extract(epoch FROM created_at) - ${due.getTime() / 1000} AS late FROM ${schema}.instances) AS starts`)
  const [outcome] = yield* Effect.repeat(started, {
    until: ([row]) => row!.count >= count || Date.now() > due.getTime() + 300_000,
    schedule: Schedule.spaced("500 millis")
  })
  const twice = yield* query(`
    SELECT FROM ${schema}.schedule_runs WHERE outcome = 'Started' GROUP BY schedule_name, occurrence_at
    HAVING count(*) > 1`)
  yield* Console.log(JSON.stringify({ schedules: count, schedulers, ...outcome, twice: twice.length }))
  return outcome!.count === count && twice.length === 0
})

process.exit(await Effect.runPromise(Effect.scoped(main)) ? 0 : 1)
