/**
 * The shop's own tables, in the application's database, through the application's own connections.
 *
 * `orders` counts what was done for each order, and every step adds to its counter: a step that takes effect twice
 * shows. `order_effects` remembers the answer of each step under its idempotency key.
 */
import { Activity } from "duroxide-prisma"
import { Transaction } from "duroxide-prisma/prisma"
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as pg from "pg"

/** Runs one statement and returns its rows. */
export type Query = <Row = Record<string, unknown>>(
  text: string,
  values?: ReadonlyArray<unknown>
) => Effect.Effect<ReadonlyArray<Row>, DatabaseTrouble>

export class DatabaseTrouble extends Data.TaggedError("DatabaseTrouble")<{ readonly cause: unknown }> {
  override get message() {
    return this.cause instanceof Error ? this.cause.message : String(this.cause)
  }
}

export class Shop extends Context.Service<Shop, {
  readonly query: Query
  /** All of it happens, or nothing. */
  readonly transaction: <A, E>(use: (query: Query) => Effect.Effect<A, E>) => Effect.Effect<A, E | DatabaseTrouble>
  /** Runs activities whose result commits with their rows. */
  readonly transactions: Activity.Transactions<pg.PoolClient>
}>()("examples/orders/Shop") {}

export interface Options {
  readonly url: string | Redacted.Redacted<string>
  /** Holds the shop's tables. */
  readonly schema: string
}

export const layer = ({ schema, url }: Options): Layer.Layer<Shop> =>
  Layer.effect(
    Shop,
    Effect.gen(function*() {
      const pool = yield* Effect.acquireRelease(
        Effect.sync(() => {
          const pool = new pg.Pool({
            connectionString: Redacted.isRedacted(url) ? Redacted.value(url) : url,
            application_name: `orders ${process.pid}`,
            onConnect: (client) => client.query(`SET search_path = ${pg.escapeIdentifier(schema)}`)
          })
          pool.on("error", () => {}) // a connection that breaks while idle is replaced when the next one is needed
          return pool
        }),
        (pool) => Effect.promise(() => pool.end())
      )
      return Shop.of({
        query: queryOf(pool),
        transactions: Transaction.ofPool(pool),
        transaction: (use) =>
          Effect.acquireUseRelease(
            attempt(() => pool.connect()),
            (client) => {
              const query = queryOf(client)
              return query("BEGIN").pipe(Effect.andThen(use(query)), Effect.tap(query("COMMIT")))
            },
            // A connection that did not get as far as COMMIT is closed, which rolls back.
            (client, exit) => Effect.sync(() => client.release(Exit.isFailure(exit)))
          )
      })
    })
  )

const queryOf = (client: pg.Pool | pg.PoolClient): Query => <Row>(text: string, values?: ReadonlyArray<unknown>) =>
  attempt(async () => (await client.query(text, values && [...values])).rows as ReadonlyArray<Row>)

const attempt = <A>(run: () => Promise<A>) =>
  Effect.tryPromise({ try: run, catch: (cause) => new DatabaseTrouble({ cause }) })

/**
 * One step for an order: `apply` takes effect exactly once, however often the activity that calls it is run.
 *
 * The idempotency key is the same for all tries and deliveries of one activity call. It is stored in the same transaction as the
 * effect, so both are there or neither is: an attempt that finds the key knows that an earlier one, perhaps of a process
 * that died before it could say so, has done the work, and returns what that one found out. An attempt that runs at
 * the same time waits at the key until the other has committed.
 */
export const once = Effect.fn("Shop.once")(
  function*<Answer extends string>(
    step: { readonly orderId: string; readonly effect: string; readonly subject: string },
    apply: (query: Query) => Effect.Effect<Answer, DatabaseTrouble>
  ) {
    const { activityId, deliveryNumber: attempt, idempotencyKey } = yield* Activity.Call
    const shop = yield* Shop
    return yield* shop.transaction(Effect.fnUntraced(function*(query) {
      const mine = yield* query(
        `INSERT INTO order_effects (idempotency_key, order_id, effect, subject, activity_id, attempt, last_attempt)
         VALUES ($1, $2, $3, $4, $5, $6, $6)
         ON CONFLICT (idempotency_key) DO NOTHING
         RETURNING 1`,
        [idempotencyKey, step.orderId, step.effect, step.subject, activityId, attempt]
      )
      if (mine.length === 0) {
        const [known] = yield* query<{ answer: Answer }>(
          "UPDATE order_effects SET last_attempt = $2 WHERE idempotency_key = $1 RETURNING answer",
          [idempotencyKey, attempt]
        )
        return known!.answer
      }
      const answer = yield* apply(query)
      yield* query("UPDATE order_effects SET answer = $2 WHERE idempotency_key = $1", [idempotencyKey, answer])
      return answer
    }))
  },
  // Safe for the same reason: whether or not a lost connection had committed, the key knows.
  Effect.retry({ schedule: Schedule.exponential("100 millis"), times: 5 }),
  // What no orchestration could handle is a defect.
  Effect.orDie
)

/**
 * The same for a transactional activity, with less: its result commits in the transaction of its effect, so it never
 * runs again after that. The row is there for the audit of the demo.
 */
export const within = Effect.fnUntraced(
  function*(
    client: pg.PoolClient,
    step: { readonly orderId: string; readonly effect: string; readonly subject: string },
    apply: (query: Query) => Effect.Effect<string, DatabaseTrouble>
  ) {
    const { activityId, deliveryNumber, idempotencyKey } = yield* Activity.Call
    const query = queryOf(client)
    const answer = yield* apply(query)
    yield* query(
      `INSERT INTO order_effects (idempotency_key, order_id, effect, subject, answer, activity_id, attempt, last_attempt)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $7)`,
      [idempotencyKey, step.orderId, step.effect, step.subject, answer, activityId, deliveryNumber]
    )
  },
  Effect.orDie
)

/** Creates what is missing. Any number of processes may do so at once. */
export const createTables: Effect.Effect<void, DatabaseTrouble, Shop> = Effect.flatMap(
  Shop,
  (shop) =>
    shop.transaction(Effect.fnUntraced(function*(query) {
      yield* query("SELECT pg_advisory_xact_lock(hashtext('orders: create tables'))")
      yield* query(tables)
    }))
)

const tables = `
  CREATE TABLE IF NOT EXISTS stock (
    warehouse text NOT NULL,
    sku text NOT NULL,
    available integer NOT NULL CHECK (available >= 0),
    PRIMARY KEY (warehouse, sku)
  );
  CREATE TABLE IF NOT EXISTS orders (
    order_id text PRIMARY KEY,
    status text NOT NULL DEFAULT 'placed',
    total_cents integer NOT NULL,
    reserved_units integer NOT NULL DEFAULT 0,
    released_units integer NOT NULL DEFAULT 0,
    charged_cents integer NOT NULL DEFAULT 0,
    refunded_cents integer NOT NULL DEFAULT 0,
    approval_requests integer NOT NULL DEFAULT 0,
    parcels integer NOT NULL DEFAULT 0,
    placed_at timestamptz NOT NULL DEFAULT now()
  );
  CREATE TABLE IF NOT EXISTS order_effects (
    idempotency_key text PRIMARY KEY,
    order_id text NOT NULL REFERENCES orders,
    effect text NOT NULL,        -- reserve, release, charge, refund, request approval, ship
    subject text NOT NULL,       -- what of the order
    answer text,                 -- done, or why not
    activity_id bigint NOT NULL,
    attempt integer NOT NULL,    -- the one that took effect
    last_attempt integer NOT NULL
  );
`
