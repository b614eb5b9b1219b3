/**
 * Compares what a run left in the database with what `orders.json` expects.
 */
import * as Effect from "effect/Effect"
import * as Shop from "../shop.ts"
import type { Book } from "./book.ts"
import { expected } from "./book.ts"
import type { Run } from "./run.ts"
import { orderId } from "./run.ts"

export interface Report {
  /** Orders by what became of them, as expected; `different` ended in another way. */
  readonly orders: {
    readonly completed: number
    readonly failed: number
    readonly compensated: number
    readonly different: number
  }
  readonly effects: ReadonlyArray<{ readonly effect: string; readonly expected: number; readonly applied: number }>
  readonly turns: number
  /** Calls of activities, and how often one was handed to a worker. */
  readonly calls: number
  readonly attempts: number
  /** Calls that were handed out more than once, and those of them whose first attempt had taken effect. */
  readonly repeated: number
  readonly recognised: number
  /** One line per deviation; none when all is as it should be. */
  readonly problems: ReadonlyArray<string>
}

export const audit = Effect.fn("demo.audit")(function*(book: Book, run: Run) {
  const { query } = yield* Shop.Shop
  const mine = [`${run.warehouse}/`]
  const problems: Array<string> = []
  const compare = (what: string, found: unknown, wanted: unknown) => {
    if (found !== wanted) problems.push(`${what} is ${String(found)}, expected ${String(wanted)}`)
  }

  // Each order ended as expected.
  const orders = { completed: 0, failed: 0, compensated: 0, different: 0 }
  for (const entry of book.orders) {
    const outcome = run.outcomes.get(orderId(run.warehouse, entry))
    compare(`outcome of ${entry.number}`, outcome, entry.expect)
    if (outcome !== entry.expect) orders.different++
    else if (outcome === "Shipped") orders.completed++
    else if (expected(book, entry).effects.release > 0) orders.compensated++
    else orders.failed++
  }

  // Each side effect happened exactly once: by the counters of the order, to which every step adds, …
  const rows = yield* query<Record<string, unknown>>("SELECT * FROM orders WHERE starts_with(order_id, $1)", mine)
  const rowOf = new Map(rows.map((row) => [row["order_id"], row]))
  compare("number of rows in orders", rows.length, book.orders.length)
  for (const entry of book.orders) {
    const row = rowOf.get(orderId(run.warehouse, entry))
    for (const [column, wanted] of Object.entries(expected(book, entry).row)) {
      compare(`${column} of ${entry.number}`, row?.[column], wanted)
    }
  }
  // … by the steps recorded with them, …
  const steps = yield* query<{
    order_id: string
    effect: string
    answer: string
    activity_id: number
    attempt: number
    last_attempt: number
  }>(
    `SELECT order_id, effect, answer, activity_id::int AS activity_id, attempt, last_attempt
     FROM order_effects WHERE starts_with(order_id, $1)`,
    mine
  )
  const totals = new Map<string, { expected: number; applied: number }>()
  for (const entry of book.orders) {
    const id = orderId(run.warehouse, entry)
    for (const [effect, wanted] of Object.entries(expected(book, entry).effects)) {
      const applied = steps.filter((s) => s.order_id === id && s.effect === effect && s.answer === "done").length
      compare(`number of effects "${effect}" for ${entry.number}`, applied, wanted)
      const total = totals.get(effect) ?? { expected: 0, applied: 0 }
      totals.set(effect, { expected: total.expected + wanted, applied: total.applied + applied })
    }
  }
  // … and by what is left in the warehouse.
  const stock = yield* query<{ sku: string; available: number }>(
    "SELECT sku, available FROM stock WHERE warehouse = $1",
    [run.warehouse]
  )
  for (const { available, sku } of stock) {
    const sold = book.orders.flatMap(({ expect, lines }) => expect === "Shipped" ? lines : [])
      .reduce((sum, line) => line.sku === sku ? sum + line.quantity : sum, 0)
    compare(`stock of ${sku}`, available, (book.stock[sku] ?? 0) - sold)
  }

  // The store is in order: histories without gaps, one result for each activity, nothing left to do.
  const [store] = yield* query<Record<keyof typeof storeState, number>>(
    `SELECT ${Object.entries(storeState).map(([name, sql]) => `(${sql}) AS "${name}"`).join(", ")}`,
    mine
  )
  const { calls, laterTimers, turns, ...counts } = store!
  compare("number of instances", counts.instances, book.orders.length)
  compare("number of histories with gaps", counts.gaps, 0)
  compare("number of activities with two results", counts.twice, 0)
  compare("number of messages left in orchestrator_queue", counts.messages, 0)
  compare("number of activities left in worker_queue", counts.activities, 0)
  compare("number of locks left in instance_locks", counts.locks, 0)
  compare("number of activity calls that left their key", steps.length, calls)
  // The timeout of an approval that came in time lies in the queue until it is due.
  const answered = book.orders.filter(({ manager }) => manager !== undefined).length
  if (laterTimers > answered) compare("number of timers left in orchestrator_queue", laterTimers, answered)

  // The kill interrupted work, and that work was done again.
  const interrupted = run.kills.flatMap(({ activities }) => activities)
  for (const { activityId, orderId, tookEffect } of interrupted) {
    const step = steps.find((s) => s.order_id === orderId && s.activity_id === activityId)
    const name = `activity ${activityId} of ${orderId}, which the kill interrupted,`
    if (step === undefined || step.last_attempt < 2) problems.push(`${name} was not repeated`)
    else if (tookEffect && step.attempt === step.last_attempt) problems.push(`${name} took effect again`)
  }
  if (!interrupted.some(({ tookEffect }) => tookEffect)) {
    problems.push("no kill came between an effect and its acknowledgement: this run shows nothing, start another one")
  }

  return {
    orders,
    effects: [...totals].map(([effect, total]) => ({ effect, ...total })),
    turns,
    calls,
    attempts: steps.reduce((sum, step) => sum + step.last_attempt, 0),
    repeated: steps.filter((step) => step.last_attempt > 1).length,
    recognised: steps.filter((step) => step.attempt < step.last_attempt).length,
    problems
  } satisfies Report
})

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const isLaterTimer = `visible_at > now() AND work_item LIKE '{"TimerFired"%'`

/** Each a number; `$1` is what the ids of the run's orders begin with. */
const storeState = {
  instances: "SELECT count(DISTINCT instance_id)::int FROM history WHERE starts_with(instance_id, $1)",
  gaps: `SELECT count(*)::int FROM (
           SELECT FROM history WHERE starts_with(instance_id, $1) GROUP BY instance_id, execution_id
           HAVING min(event_id) <> 1 OR max(event_id) <> count(*)
         ) AS gap`,
  twice: `SELECT count(*)::int FROM (
            SELECT FROM history
            WHERE starts_with(instance_id, $1)
              AND event_data::jsonb ->> 'type' IN ('ActivityCompleted', 'ActivityFailed')
            GROUP BY instance_id, execution_id, event_data::jsonb ->> 'source_event_id' HAVING count(*) > 1
          ) AS two_results`,
  messages: `SELECT count(*)::int FROM orchestrator_queue WHERE starts_with(instance_id, $1) AND NOT (${isLaterTimer})`,
  laterTimers: `SELECT count(*)::int FROM orchestrator_queue WHERE starts_with(instance_id, $1) AND ${isLaterTimer}`,
  activities: "SELECT count(*)::int FROM worker_queue WHERE starts_with(instance_id, $1)",
  locks: "SELECT count(*)::int FROM instance_locks WHERE starts_with(instance_id, $1)",
  // A turn stores all of its events at one moment.
  turns: `SELECT count(DISTINCT (instance_id, execution_id, created_at))::int FROM history
          WHERE starts_with(instance_id, $1)`,
  calls: `SELECT count(*)::int FROM history
          WHERE starts_with(instance_id, $1) AND event_data::jsonb ->> 'type' = 'ActivityScheduled'`
}
