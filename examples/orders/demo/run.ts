/**
 * What happens in the demo: orders come in, the worker is killed half way, another one carries on.
 */
import { Client } from "duroxide-prisma"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import { Approval, Fulfil } from "../fulfil.ts"
import { totalCents } from "../orders.ts"
import * as Shop from "../shop.ts"
import type { Book, Entry } from "./book.ts"
import * as Workers from "./workers.ts"

export interface Options {
  readonly book: Book
  readonly url: string | Redacted.Redacted<string>
  /** Holds the tables of shop and store. */
  readonly schema: string
  /** The compiled `worker.ts`. */
  readonly workerFile: string
  /** Receives each event, `atMs` after the beginning. */
  readonly tell: (atMs: number, event: Event) => void
}

export type Event =
  | { readonly _tag: "WorkerStarted"; readonly worker: number; readonly pid: number }
  | { readonly _tag: "WorkerKilled"; readonly worker: number; readonly kill: Kill }
  | { readonly _tag: "WorkerStopped"; readonly worker: number }
  | { readonly _tag: "Answered"; readonly entry: Entry }
  | Progress

/** Number of orders at each stage: `placed`, … while they are under way, `done` at the end. */
export interface Progress {
  readonly _tag: "Progress"
  readonly stages: Readonly<Record<string, number>>
}

/** What a kill interrupted, as the database shows it. */
export interface Kill {
  readonly pid: number
  readonly afterMs: number
  /** Orders that had ended, and those that were under way. */
  readonly ended: number
  readonly underWay: number
  /** Turns that were being decided or stored. */
  readonly turns: number
  readonly activities: ReadonlyArray<{
    readonly orderId: string
    readonly activityId: number
    readonly attempt: number
    /** The effect was in the database, and the store did not know of it yet. */
    readonly tookEffect: boolean
  }>
}

export interface Run {
  /** Each run has a warehouse of its own, and its orders are named after that: runs do not get into each other's way. */
  readonly warehouse: string
  /** By order id: `Shipped`, the tag of a typed failure, or the message of any other. */
  readonly outcomes: ReadonlyMap<string, string>
  readonly kills: ReadonlyArray<Kill>
  /** Process id of the worker that carried on. */
  readonly survivor: number
  /** The last of what the workers logged. */
  readonly log: string
  readonly elapsedMs: number
}

export const orderId = (warehouse: string, { number }: Entry) => `${warehouse}/${number}`

export const run = Effect.fn("demo.run")(function*(options: Options) {
  const { book } = options
  const client = yield* Client.Client
  const { query } = yield* Shop.Shop
  const startedAt = yield* Clock.currentTimeMillis
  const elapsed = Effect.map(Clock.currentTimeMillis, (now) => now - startedAt)
  const tell = (event: Event) => Effect.map(elapsed, (atMs) => options.tell(atMs, event))
  const warehouse = `W${startedAt.toString(36)}`
  const mine = [`${warehouse}/`]
  const outcomes = new Map<string, string>()

  // The first failure of any background task ends the run.
  const trouble = yield* Deferred.make<never, unknown>()
  const inBackground = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.forkChild(Effect.tapCause(effect, (cause) => Deferred.failCause(trouble, cause)))

  /** A customer places an order and waits for its outcome. */
  const buy = Effect.fnUntraced(function*(entry: Entry) {
    const { expect: _, manager: __, number: ___, ...order } = entry
    const id = orderId(warehouse, entry)
    yield* query("INSERT INTO orders (order_id, total_cents) VALUES ($1, $2)", [id, totalCents(entry)])
    yield* client.start(Fulfil, { payload: { ...order, id, warehouse } })
    const outcome = yield* client.wait(Fulfil, id, { timeout: "60 seconds" }).pipe(
      Effect.as("Shipped"),
      Effect.catchTag(
        ["InstanceFailed", "InstanceCancelled", "WaitTimeout", "PayloadMismatch"],
        (error) => Effect.succeed(`"${error.message}"`)
      ),
      Effect.catchIf((error) => error._tag !== "ProviderError", (error) => Effect.succeed(error._tag))
    )
    outcomes.set(id, outcome)
  })

  /** The manager answers an order that asks for approval. */
  const answer = Effect.fnUntraced(function*(entry: Entry) {
    if (entry.manager === undefined) return
    const id = orderId(warehouse, entry)
    yield* until(Effect.map(
      query("SELECT FROM orders WHERE order_id = $1 AND approval_requests > 0", [id]),
      (rows) => rows.length > 0
    ))
    yield* client.send(Approval, id, entry.manager === "approves")
    yield* tell({ _tag: "Answered", entry })
  })

  const watch = Effect.flatMap(
    query<{ stage: string; count: number }>(
      `SELECT CASE WHEN e.status IN ('Completed', 'Failed') THEN 'done' ELSE o.status END AS stage, count(*)::int
       FROM orders AS o LEFT JOIN executions AS e ON e.instance_id = o.order_id
       WHERE starts_with(o.order_id, $1) GROUP BY 1`,
      mine
    ),
    (rows) => tell({ _tag: "Progress", stages: Object.fromEntries(rows.map(({ count, stage }) => [stage, count])) })
  )

  const workers: Array<Workers.Worker> = []
  const startWorker = Effect.gen(function*() {
    const worker = yield* Workers.start(options.workerFile, {
      DATABASE_URL: Redacted.isRedacted(options.url) ? Redacted.value(options.url) : options.url,
      ORDERS_SCHEMA: options.schema
    })
    yield* inBackground(worker.watch)
    workers.push(worker)
    yield* tell({ _tag: "WorkerStarted", worker: workers.length, pid: worker.pid })
    return worker
  })

  // The moment to kill: half of the orders have ended, and some activities have taken effect and not returned yet.
  const halfWay = Effect.map(
    query<{ ended: number; open: number }>(
      `SELECT (${endedOrders}) AS ended, (SELECT count(*)::int FROM (${openActivities}) AS open WHERE took_effect) AS open`,
      mine
    ),
    ([now]) => (now!.ended >= book.orders.length / 2 && now!.open >= 3) || outcomes.size === book.orders.length
  )

  const kills: Array<Kill> = []
  const killHalfWay = Effect.fnUntraced(function*(worker: Workers.Worker) {
    yield* worker.ready
    yield* until(halfWay)
    yield* worker.kill
    const afterMs = yield* elapsed
    // A statement the process had sent may still be carried out; then its connection is gone.
    yield* until(Effect.map(
      query("SELECT FROM pg_stat_activity WHERE application_name = $1", [`orders ${worker.pid}`]),
      (connections) => connections.length === 0
    )).pipe(Effect.timeoutOption("1 second"))
    const [counts] = yield* query<Pick<Kill, "ended" | "underWay" | "turns">>(
      `SELECT (${endedOrders}) AS ended, (${ordersUnderWay}) AS "underWay", (${openTurns}) AS turns`,
      mine
    )
    const open = yield* query<Kill["activities"][number]>(
      `SELECT order_id AS "orderId", activity_id AS "activityId", attempt, took_effect AS "tookEffect"
       FROM (${openActivities}) AS open`,
      mine
    )
    // The lock of a killed process stays in the table until another process takes the work over.
    const earlier = new Set(kills.flatMap(({ activities }) => activities.map(attemptOf)))
    const activities = open.filter((activity) => !earlier.has(attemptOf(activity)))
    const kill: Kill = { pid: worker.pid, afterMs, ...counts!, activities }
    kills.push(kill)
    yield* tell({ _tag: "WorkerKilled", worker: workers.length, kill })
  })

  const story = Effect.gen(function*() {
    yield* Shop.createTables
    yield* query(
      "INSERT INTO stock (warehouse, sku, available) SELECT $1, key, value::int FROM json_each_text($2)",
      [warehouse, JSON.stringify(book.stock)]
    )
    yield* inBackground(Effect.repeat(watch, Schedule.spaced("100 millis")))

    // From now on orders arrive one after another, whether a worker runs or not.
    const first = yield* startWorker
    yield* first.ready
    const customers = yield* inBackground(Effect.forEach(
      book.orders,
      (entry, i) => Effect.delay(buy(entry), i * 125),
      { concurrency: "unbounded", discard: true }
    ))
    yield* killHalfWay(first)
    // Answers also reach waiting orders while no worker runs.
    yield* inBackground(Effect.forEach(book.orders, answer, { concurrency: "unbounded", discard: true }))
    let worker = yield* startWorker
    // By chance, all that was seen to run may have ended in the last milliseconds: then once more.
    while (outcomes.size < book.orders.length && !kills.some(showsSomething)) {
      yield* killHalfWay(worker)
      worker = yield* startWorker
    }
    yield* Fiber.join(customers)
    yield* worker.stop
    yield* watch
    yield* tell({ _tag: "WorkerStopped", worker: workers.length })
    return {
      warehouse,
      outcomes,
      kills,
      survivor: worker.pid,
      log: workers.map(({ log }) => log()).join("").slice(-4000),
      elapsedMs: yield* elapsed
    } satisfies Run
  })

  return yield* Effect.raceFirst(story, Deferred.await(trouble))
}, Effect.scoped)

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const attemptOf = ({ activityId, attempt, orderId }: Kill["activities"][number]) =>
  `${orderId}/${activityId}/${attempt}`

const showsSomething = ({ activities }: Kill) => activities.some(({ tookEffect }) => tookEffect)

const until = <E, R>(condition: Effect.Effect<boolean, E, R>) =>
  Effect.repeat(condition, { until: (holds) => holds, schedule: Schedule.spaced("10 millis") })

// What the store holds stands in plain tables. `$1` is what the ids of the run's orders begin with.

const endedOrders = `
  SELECT count(*)::int FROM executions WHERE starts_with(instance_id, $1) AND status IN ('Completed', 'Failed')`

const ordersUnderWay = `
  SELECT count(*)::int FROM executions AS e
  WHERE starts_with(instance_id, $1) AND status = 'Running'
    AND EXISTS (SELECT FROM history AS h WHERE h.instance_id = e.instance_id)`

const openTurns = "SELECT count(*)::int FROM instance_locks WHERE starts_with(instance_id, $1)"

const openActivities = `
  SELECT w.instance_id AS order_id, w.activity_id::int AS activity_id, w.attempt_count AS attempt,
         EXISTS (
           SELECT FROM order_effects AS e WHERE e.order_id = w.instance_id AND e.activity_id = w.activity_id
         ) AS took_effect
  FROM worker_queue AS w
  WHERE starts_with(w.instance_id, $1) AND w.lock_token IS NOT NULL`
