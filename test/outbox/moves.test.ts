/**
 * Publishers of several queues, and those whose queues are tables beside the outbox.
 */
import { assert, describe, it } from "@effect/vitest"
import { Metrics } from "duroxide-prisma"
import { Outbox } from "duroxide-prisma/outbox"
import { Database, PgQueue } from "duroxide-prisma/prisma"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as CountingQueue from "../queue/utils/countingQueue.ts"
import { counts, isolated } from "../utils/metrics.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitForStatement, waitUntil } from "../utils/waitUntil.ts"
import * as Boxes from "./utils/outbox.ts"

interface Stored {
  readonly queue: string
  readonly n: number
  readonly max_attempts: number
}

/** A publisher on `PgQueue`, in one process with it. */
const moving = (url: string, options?: Outbox.PublisherOptions) =>
  Layer.provideMerge(
    Outbox.publisher(options).pipe(
      Layer.provide(PgQueue.layer({ queues: { jobs: {}, orders: { maxAttempts: 3 } } }))
    ),
    Boxes.process(url)
  )

const stored = ({ sql }: Boxes.Open) =>
  sql<Stored>("SELECT queue, (payload->>'n')::int AS n, max_attempts FROM queue_messages ORDER BY queue, n")

describe("a publisher of several queues:", () => {
  it.live("a backlog of one queue does not delay the messages of another", () =>
    Effect.gen(function*() {
      const { fill, untilAllSent, url } = yield* Boxes.open
      const queue = CountingQueue.make(CountingQueue.sink(["jobs", "orders"]))
      yield* fill(5000, "jobs")
      yield* fill(3, "orders")
      yield* Layer.build(Boxes.publishing(url, queue))
      yield* untilAllSent
      const places = queue.published.flatMap(({ queue }, place) => queue === "orders" ? [place] : [])
      assert.lengthOf(places, 3)
      assert.isBelow(places[2]!, 200, "with the first batches")
    }).pipe(Effect.scoped))

  it.live("queues share a claim; a queue that needs less leaves the rest to the next one", () =>
    Effect.gen(function*() {
      const { fill, sql } = yield* Boxes.open
      yield* fill(30, "jobs")
      yield* fill(30, "orders")
      yield* fill(2, "reminders")
      const claim = Effect.map(
        sql<{ of: Readonly<Record<string, number>>; is_full: boolean }>(
          `SELECT out_is_full AS is_full, (
             SELECT jsonb_object_agg(one.queue, one.count) FROM (
               SELECT m.queue, count(*) FROM jsonb_to_recordset(out_messages) AS m (queue text) GROUP BY 1
             ) AS one
           ) AS of FROM dx_claim_outbox(30, 60000, 'me', '{jobs,orders,reminders,none}')`
        ),
        ([row]) => row!
      )
      assert.deepStrictEqual(yield* claim, { is_full: true, of: { jobs: 10, orders: 10, reminders: 2 } })
      assert.deepStrictEqual(yield* claim, { is_full: true, of: { jobs: 15, orders: 15 } })
      assert.deepStrictEqual(yield* claim, { is_full: false, of: { jobs: 5, orders: 5 } })
    }).pipe(Effect.scoped))

  it.live("with fewer places than queues the oldest messages come first", () =>
    Effect.gen(function*() {
      const { fill, sql } = yield* Boxes.open
      for (const queue of ["jobs", "orders", "reminders"]) yield* fill(2, queue)
      yield* sql("UPDATE queue_outbox SET deliver_at = now() - interval '1 minute' WHERE queue = 'orders'")
      const [row] = yield* sql<{ queues: ReadonlyArray<string> }>(
        `SELECT jsonb_path_query_array(out_messages, '$[*].queue') AS queues
         FROM dx_claim_outbox(1, 60000, 'me', '{jobs,orders,reminders}')`
      )
      assert.deepStrictEqual(row!.queues, ["orders"])
    }).pipe(Effect.scoped))
})

describe("a publisher whose queues are beside the outbox:", () => {
  it.live("one statement moves a batch and marks it as sent; each message keeps the settings of its queue", () =>
    isolated(Effect.gen(function*() {
      const box = yield* Boxes.open
      yield* box.fill(200, "jobs")
      yield* box.fill(10, "orders")
      const services = yield* Layer.build(moving(box.url))
      yield* box.untilAllSent
      const messages = yield* stored(box)
      assert.deepStrictEqual(
        messages,
        [
          ...Array.from({ length: 200 }, (_, i) => ({ queue: "jobs", n: i + 1, max_attempts: 20 })),
          ...Array.from({ length: 10 }, (_, i) => ({ queue: "orders", n: i + 1, max_attempts: 3 }))
        ]
      )
      assert.isTrue((yield* box.rows).every(({ attempts, is_leased }) => attempts === 1 && !is_leased))
      const statements = yield* Context.get(services, Database.Database).statementCounts
      assert.isUndefined(statements.publishMessages)
      assert.isUndefined(statements.markSent)
      assert.isAtMost(statements.claimOutbox!, 5)
      assert.deepStrictEqual(yield* counts(Metrics.outboxPublished), { jobs: 200, orders: 10 })
    })).pipe(Effect.scoped))

  it.live("where sent messages are not kept, the statement that moves them deletes them; those that stay are not sent", () =>
    Effect.gen(function*() {
      const box = yield* Boxes.open
      yield* box.sql(
        "INSERT INTO queue_outbox (queue, payload, created_at, deliver_at) VALUES ('jobs', '7', now(), now())"
      )
      yield* box.fill(20, "jobs")
      yield* box.fill(10, "orders")
      yield* Layer.build(moving(box.url, { keepSent: 0 }))
      yield* waitUntil(Effect.map(box.rows, (all) => all.length === 1 && all[0]!.last_error !== null))
      assert.strictEqual(yield* box.unsent, 1)
      assert.deepStrictEqual((yield* stored(box)).map(({ n, queue }) => `${queue} ${n}`), [
        ...Array.from({ length: 20 }, (_, i) => `jobs ${i + 1}`),
        ...Array.from({ length: 10 }, (_, i) => `orders ${i + 1}`)
      ])
    }).pipe(Effect.scoped))

  it.live("a message that the queue refuses stays in the outbox with the reason, alone", () =>
    Effect.gen(function*() {
      const box = yield* Boxes.open
      yield* box.fill(2)
      yield* box.sql(
        `INSERT INTO queue_outbox (queue, payload, created_at, deliver_at) VALUES
           ('jobs', '{"n": 1}', now(), now()), ('jobs', '7', now(), now()), ('jobs', '[]', now(), now()),
           ('jobs', jsonb_build_object('kind', 'large', 'text', repeat('x', 300000)), now(), now())`
      )
      yield* box.fill(2)
      yield* Layer.build(moving(box.url))
      yield* waitUntil(Effect.map(box.rows, (all) => all.filter(({ last_error }) => last_error !== null).length === 4))
      assert.strictEqual(yield* box.unsent, 4)
      assert.deepStrictEqual((yield* stored(box)).map(({ n }) => n), [1, 1, 2, 2])
      const errors = (yield* box.rows).flatMap(({ last_error }) =>
        last_error === null ? [] : [last_error.split(":")[0]]
      )
      assert.deepStrictEqual(errors, ["PayloadInvalid", "PayloadInvalid", "PayloadInvalid", "PayloadTooLarge"])
    }).pipe(Effect.scoped))

  it.live("a move that is cut off leaves neither messages nor marks, and is repeated as a whole", () =>
    Effect.gen(function*() {
      const box = yield* Boxes.open
      yield* box.fill(20)
      yield* box.sql(
        "CREATE FUNCTION wait_here() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$"
      )
      yield* box.sql(
        "CREATE TRIGGER wait_here AFTER INSERT ON queue_messages FOR EACH STATEMENT EXECUTE FUNCTION wait_here()"
      )
      yield* Effect.scoped(Effect.gen(function*() {
        const blocker = yield* PgServer.connect(box.url.replace(/\?.*$/, ""))
        yield* Effect.promise(() => blocker.query("SELECT pg_advisory_lock(7)"))
        yield* Layer.build(moving(box.url))
        yield* waitForStatement(box, "dx_claim_outbox", "Lock")
        yield* box.sql(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE datname = current_database() AND strpos(query, 'dx_claim_outbox') > 0 AND pid <> pg_backend_pid()`
        )
        assert.strictEqual(yield* box.unsent, 20)
        assert.lengthOf(yield* stored(box), 0)
      }))
      yield* box.sql("DROP TRIGGER wait_here ON queue_messages")
      yield* Layer.build(Layer.fresh(moving(box.url)))
      yield* box.untilAllSent
      assert.deepStrictEqual((yield* stored(box)).map(({ n }) => n), Array.from({ length: 20 }, (_, i) => i + 1))
    }).pipe(Effect.scoped))
})
