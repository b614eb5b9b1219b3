/**
 * A store with something of everything that the command line shows: instances in every state, queues, tasks.
 */
import { Activity, Client, KeyValue, Orchestration, Runtime, Signal } from "duroxide-prisma"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const Charge = Activity.make("Charge", {
  payload: Schema.Struct({ amount: Schema.Int }),
  success: Schema.String,
  error: Schema.String
})
const Collected = Signal.make("Collected")
const Label = KeyValue.make("label", Schema.String)
export const Delivery = Orchestration.make("Delivery", { payload: Schema.String })
export const Order = Orchestration.make("Order", {
  payload: Schema.Struct({ item: Schema.String, amount: Schema.Int }),
  success: Schema.String,
  error: Schema.String
})

export const DeliveryLive = Delivery.toLayer(() => Effect.asVoid(Effect.sleep("3 days")))

export const order = Effect.fn(function*({ amount, item }: typeof Order.payload.Type) {
  const receipt = yield* Charge.execute({ amount })
  if (item === "voucher") return receipt
  yield* Label.set(`${item}, ${amount} euros`)
  yield* Orchestration.setCustomStatus("on its way")
  yield* Delivery.startDetached({ instanceId: `${item}-delivery`, payload: item }).pipe(Effect.ignore)
  yield* Effect.all([Delivery.executeWithId({ instanceId: `${item}-return`, payload: item }), Collected.wait], {
    concurrency: "unbounded"
  })
  return receipt
})

const application = (url: string) =>
  Runtime.layer({ orchestrations: [Order, Delivery], activities: [Charge] }).pipe(
    Layer.provide([
      Charge.toLayer(({ amount }) => amount > 1000 ? Effect.fail("card declined") : Effect.succeed(`paid ${amount}`)),
      DeliveryLive,
      Order.toLayer(order)
    ]),
    Layer.provideMerge(Client.layer),
    Layer.provideMerge(PrismaProvider.layer({ url })),
    Layer.provideMerge(Logger.layer([]))
  )

/** Rows as services write them, without waiting for what these do with them. */
const queues = `
  INSERT INTO queue_messages (queue, payload, created_at, visible_at, lease_token)
  VALUES
    ('mails', '{"kind":"mail"}', now(), now() - interval '3 minutes', NULL),
    ('mails', '{"kind":"mail"}', now(), now() + interval '1 minute', 'token'),
    ('mails', '{"kind":"mail"}', now(), now() + interval '1 hour', NULL);
  INSERT INTO queue_dead (id, queue, payload, created_at, died_at, attempts, max_attempts)
  VALUES (1000, 'mails', '{"kind":"mail"}', now(), now(), 20, 20);
  INSERT INTO queue_outbox (queue, payload, created_at, deliver_at, last_error)
  VALUES
    ('invoices', '{}', now() - interval '20 seconds', now() - interval '20 seconds', NULL),
    ('invoices', '{}', now(), now() + interval '1 day', NULL);
  INSERT INTO queue_tasks
    (id, name, payload, status, max_attempts, run_at, queue, created_at, updated_at, look_at, ended_at, dead_at)
  SELECT
    gen_random_uuid(), 'resize', '{}', status, 20, now(), 'tasks', now(), now(),
    CASE WHEN status IN ('Pending', 'Running') THEN now() END,
    CASE WHEN status IN ('Completed', 'Cancelled') THEN now() END,
    CASE WHEN status = 'Dead' THEN now() END
  FROM unnest(ARRAY['Pending', 'Pending', 'Running', 'Completed', 'Dead', 'Cancelled']) AS status;
  INSERT INTO worker_queue (work_item, visible_at, created_at, instance_id, execution_id, activity_id, tag)
  VALUES
    ('{"ActivityExecute":{"name":"Render"}}', now() - interval '10 seconds', now() - interval '10 seconds', 'x', 1, 1, 'gpu'),
    ('{"ActivityExecute":{"name":"Render"}}', now() + interval '10 minutes', now(), 'x', 1, 2, NULL)
`

/** A process that lives, and one that has died. The session that inserts them holds the lock of the first. */
const processes = `
  INSERT INTO processes (
    id, build, host, pid, orchestrations, activities, untagged, tags, orchestration_slots, activity_slots, since,
    seen_at, listens, orchestrations_in_use, activities_in_use
  )
  SELECT
    id::uuid, build, host, 17, ARRAY['Order@1.0.0', 'Delivery@1.0.0'], ARRAY['Charge'], true, '{}', 16, 16, now(), now(),
    true, 2, 16
  FROM (VALUES
    ('a0000000-0000-4000-8000-000000000000', '3f9c2d1', 'worker-1'),
    ('b0000000-0000-4000-8000-000000000000', '77ab031', 'worker-2')
  ) AS one (id, build, host);
  SELECT pg_advisory_lock_shared(dx_process_key('a0000000-0000-4000-8000-000000000000'))
`

/** What a tool has recorded. */
const actions = `
  INSERT INTO operator_actions (actor, action, target, details, outcome)
  VALUES
    ('ada', 'terminate', 'order-3', 'out of stock', 'done'),
    ('ada', 'retry', 'order-1', 'it has completed', 'refused')
`

/** The store, after its process has ended. */
export class Shop extends Context.Service<Shop, PgServer.TestDatabase>()("test/Shop") {}

/** The waiting activity is ten seconds old again: the store is unhealthy when the tests before took a minute. */
export const refresh = Effect.flatMap(Shop, ({ sql }) =>
  sql(
    `UPDATE worker_queue SET visible_at = now() - interval '10 seconds', created_at = now() - interval '10 seconds'
     WHERE tag = 'gpu'`
  ))

/** A process that works on it, until the scope ends. */
export const running = Effect.flatMap(Shop, ({ url }) => Layer.build(application(url)))

export const make = Effect.gen(function*() {
  const test = yield* PgServer.database
  yield* Effect.gen(function*() {
    const client = yield* Client.Client
    const start = (instanceId: string, item: string, amount: number) =>
      client.start(Order, { instanceId, payload: { item, amount } })
    yield* start("order-1", "voucher", 25)
    yield* client.wait(Order, "order-1")
    yield* start("order-2", "lamp", 2500)
    yield* Effect.ignore(client.wait(Order, "order-2"))
    yield* start("order-3", "chair", 80)
    yield* client.waitForStatus("order-3")
    yield* client.terminate("order-3", "out of stock")
    yield* Effect.ignore(client.wait(Order, "order-3"))
    yield* start("order-4", "table", 300)
    yield* client.waitForStatus("order-4")
    // Its timer is the last thing that it stores. The end of the cancelled child of order-3 may be on its way, too.
    yield* waitUntil(
      Effect.map(
        test.sql(
          "SELECT FROM orchestrator_queue HAVING bool_or(instance_id = 'table-return') AND bool_and(visible_at > now())"
        ),
        (rows) => rows.length === 1
      )
    )
  }).pipe(Effect.provide(application(test.url)), Effect.orDie)
  yield* test.sql(queues)
  yield* test.sql(processes)
  yield* test.sql(actions)
  return test
})

export const layer = Layer.effect(Shop, make)
