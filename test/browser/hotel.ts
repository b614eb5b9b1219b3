/**
 * A hotel with work in every state, and the dashboard. One of its workers is killed again and again.
 */
import { Client } from "duroxide-prisma"
import { Dashboard } from "duroxide-prisma/dashboard"
import { Admin } from "duroxide-prisma/provider"
import { Schedules } from "duroxide-prisma/schedules"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import { serve } from "../../src/cli/internal/httpServer.ts"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import { Approved, Audit, Booking, Clean, Concierge, Errands, Quote } from "../programs/hotel.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

export const tokens = { operate: "o".repeat(24), read: "r".repeat(24) }

export interface Hotel {
  readonly base: string
  readonly admin: Admin.Admin["Service"]
  readonly client: Client.Client["Service"]
  readonly schedules: Schedules.Schedules["Service"]
  readonly sql: PgServer.TestDatabase["sql"]
  /** How often a worker was killed. */
  readonly kills: () => number
}

/** A booking whose id and guest are as hostile as they may be. */
export const hostile = {
  id: "<img src=x onerror=\"globalThis.hacked=1\">",
  text: "</script><script>globalThis.hacked=1</script><b>bold</b>"
}

export const open = Effect.gen(function*() {
  const { sql, url } = yield* PgServer.database
  const services = yield* Layer.build(
    Layer.merge(Client.layer, Schedules.layerClient).pipe(
      Layer.provideMerge(PrismaProvider.layer({ url, migrate: "verify" })),
      Layer.provideMerge(Logger.layer([]))
    )
  )
  const client = Context.get(services, Client.Client)
  const admin = Context.get(services, Admin.Admin)
  const book = (instanceId: string, guest: string, amount: number) =>
    client.start(Booking, { instanceId, payload: { guest, room: 7, amount }, attributes: { guest } })

  const waiting = (count: number) =>
    waitUntil(Effect.map(
      sql("SELECT FROM instances WHERE custom_status = 'waits for approval'"),
      (rows) => rows.length === count
    ))
  // Begun by another build, which is gone.
  const edited = yield* ChildProcess.start("hotel", url, "edited")
  yield* edited.printed("started")
  yield* book("stuck", "Dora", 800)
  yield* waiting(1)
  yield* edited.kill

  const stays = yield* ChildProcess.start("hotel", url, "original")
  yield* stays.printed("started")
  yield* client.send(Approved, "stuck", { by: "Eve", limit: 1, urgent: false, level: "manager" })
  yield* book("done", "Ada", 100)
  yield* book("declined", "Ben", 13)
  yield* book("waits", "Cleo", 900)
  yield* book(hostile.id, hostile.text, 700)
  yield* client.start(Audit, { instanceId: "long", payload: { activities: 5000 } })
  const until = (instanceId: string, status: string) =>
    waitUntil(Effect.map(client.status(instanceId), ({ _tag }) => _tag === status))
  yield* until("declined", "Failed")
  yield* until("done", "Completed")
  yield* until("long", "Completed")
  yield* waiting(3)
  yield* waitUntil(Effect.map(admin.list({ status: "Blocked" }), ({ instances }) => instances.length === 1))
  const schedules = Context.get(services, Schedules.Schedules)
  yield* schedules.create(Schedules.make(hostile.id, {
    timing: Schedules.every("1 hour"),
    start: Clean,
    payload: { room: 1 }
  }))
  yield* schedules.create(Schedules.make("left-alone", {
    timing: Schedules.cron("*/5 * * * *"),
    start: Clean,
    // No worker has this code.
    payload: () => ({ room: 2 })
  }))
  yield* sql("UPDATE schedules SET look_at = now() - interval '10 minutes' WHERE name = 'left-alone'")
  yield* schedules.pause(hostile.id, { reason: hostile.text })
  yield* schedules.runNow("clean-rooms")
  yield* schedules.runNow("monthly-invoices")
  yield* waitUntil(Effect.map(schedules.runs("monthly-invoices"), (runs) => runs.length > 0))
  yield* waitUntil(Effect.map(schedules.runs("clean-rooms"), (runs) => runs.length > 0))
  yield* admin.setLimit("activity", "Deliver", {
    total: { rate: { count: 600, per: "1 minute", burst: 20 } },
    eachKey: { concurrency: 1 },
    keys: { Ada: { concurrency: 2 } }
  })
  for (const guest of ["Ada", "Ben", hostile.text]) {
    yield* client.start(Errands, { instanceId: `errands of ${guest.slice(0, 3)}`, payload: { guest, count: 4 } })
  }
  yield* client.start(Concierge, { instanceId: "concierge" })
  yield* client.request(Quote, "concierge", { nights: 3, breakfast: true })
  yield* Effect.flip(client.request(Quote, "concierge", { nights: 31, breakfast: false }))
  yield* sql(children)
  yield* sql(queues)

  let kills = 0
  // One worker stays, the other one is killed again and again.
  yield* Effect.forkScoped(Effect.forever(
    Effect.scoped(Effect.gen(function*() {
      const dies = yield* ChildProcess.start("hotel", url, "original")
      yield* dies.printed("started")
      yield* Effect.sleep("2 seconds")
      yield* dies.kill
      kills++
    }))
  ))
  let bookings = 0
  yield* Effect.forkScoped(Effect.forever(
    Effect.andThen(
      Effect.suspend(() => Effect.ignore(book(`booking-${++bookings}`, "Fay", bookings % 7 === 0 ? 13 : 50))),
      Effect.sleep("100 millis")
    )
  ))
  const port = yield* serve(
    Dashboard.layer({
      path: "/hotel",
      access: Dashboard.bearer([
        { name: "ada", role: "operate", token: Redacted.make(tokens.operate) },
        { name: "ben", role: "read", token: Redacted.make(tokens.read) }
      ]),
      orchestrations: [Booking, Audit],
      signals: [Approved],
      requests: [Quote]
    }).pipe(Layer.provide(Layer.succeedContext(services))),
    { host: "127.0.0.1", port: 0 }
  )
  const hotel: Hotel = { base: `http://127.0.0.1:${port}/hotel/`, admin, client, schedules, sql, kills: () => kills }
  return hotel
})

/** An instance with 5,000 children, ended. */
const children = `
  INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at, status,
    parent_instance_id, route)
  SELECT 'family' || CASE WHEN n = 0 THEN '' ELSE '::' || lpad(n::text, 4, '0') END, 'Family', '1.0.0',
    now() - interval '1 hour' + n * interval '1 millisecond', now(), 'Completed',
    CASE WHEN n > 0 THEN 'family' END, '1000.1.0 =1.0.0 Family'
  FROM generate_series(0, 5000) AS n;
  INSERT INTO executions (instance_id, execution_id, status, output, started_at, completed_at, duroxide_version_major,
    duroxide_version_minor, duroxide_version_patch)
  SELECT i.instance_id, 1, 'Completed', 'null', i.created_at, now(), 1000, 1, 0
  FROM instances AS i WHERE i.orchestration_name = 'Family';
  INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
  SELECT i.instance_id, 1, 1, 'OrchestrationStarted', json_build_object(
    'type', 'OrchestrationStarted', 'event_id', 1, 'source_event_id', null, 'instance_id', i.instance_id,
    'execution_id', 1, 'timestamp_ms', 1795000000000, 'duroxide_version', '1000.1.0', 'name', 'Family',
    'version', '1.0.0', 'input', 'null', 'parent_instance', null, 'parent_id', null)::text, now()
  FROM instances AS i WHERE i.orchestration_name = 'Family'`

/** A dead letter, and a task that has died. */
const queues = `
  INSERT INTO queue_dead (id, queue, payload, created_at, died_at, attempts, max_attempts)
  VALUES (1000, 'mails', '{"kind":"mail"}', now(), now(), 20, 20);
  INSERT INTO queue_tasks
    (id, name, payload, status, max_attempts, run_at, queue, created_at, updated_at, look_at, ended_at, dead_at)
  VALUES ('c0000000-0000-4000-8000-000000000000', 'resize', '{}', 'Dead', 20, now(), 'tasks', now(), now(), NULL, NULL,
    now())`
