import { assert, describe, it } from "@effect/vitest"
import { Metrics } from "duroxide-prisma"
import { Outbox } from "duroxide-prisma/outbox"
import { Database, Transaction } from "duroxide-prisma/prisma"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Scope from "effect/Scope"
import { deferralMs } from "../../src/outbox/internal/publisher.ts"
import { PayloadTooLarge, QueueError, QueueNotFound, Unavailable } from "../../src/queue/QueueError.ts"
import * as CountingQueue from "../queue/utils/countingQueue.ts"
import { counts, isolated, values } from "../utils/metrics.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Boxes from "./utils/outbox.ts"

const placed = { kind: "order_placed" }

const failure = (queue: string, reason: QueueError["reason"]) => new QueueError({ operation: "publish", queue, reason })

const unavailable = failure("jobs", new Unavailable({ problem: "no answer" }))

const numbers = (queue: CountingQueue.CountingQueue) => queue.published.map(({ payload }) => payload.n)

describe("the publisher:", () => {
  it.live("a message is published when its transaction has committed, and not before", () =>
    Effect.gen(function*() {
      const { schema, sql, untilAllSent, url } = yield* Boxes.open
      const queue = CountingQueue.make()
      yield* Layer.build(Boxes.publishing(url, queue))
      const client = yield* PgServer.connect(url.replace(/\?.*$/, ""))
      yield* Effect.promise(() => client.query("BEGIN"))
      yield* Outbox.within(Transaction.make(client, { schema })).add("orders", placed)
      // The publisher looks after this message was written, and finds the other one only.
      yield* sql(`SELECT dx_add_to_outbox('[{"queue":"orders","payload":{"kind":"other"}}]')`)
      yield* queue.until(1)
      assert.deepStrictEqual(queue.published, [{ queue: "orders", payload: { kind: "other" } }])
      yield* Effect.promise(() => client.query("COMMIT"))
      yield* queue.until(2)
      assert.deepStrictEqual(queue.published[1], { queue: "orders", payload: placed })
      yield* untilAllSent
    }).pipe(Effect.scoped))

  it.live("three publishers send 2,000 messages, each of them once, and mark them", () =>
    Effect.gen(function*() {
      const { fill, rows, untilAllSent, url } = yield* Boxes.open
      const queue = CountingQueue.make()
      yield* fill(2000)
      const services = yield* Layer.build(Boxes.publishing(url, queue))
      yield* Layer.build(Layer.fresh(Boxes.publishing(url, queue)))
      yield* Layer.build(Layer.fresh(Boxes.publishing(url, queue)))
      yield* untilAllSent
      assert.strictEqual(new Set(numbers(queue)).size, 2000)
      assert.strictEqual(queue.published.length, 2000)
      const all = yield* rows
      assert.isTrue(
        all.every(({ attempts, is_leased, last_error }) => attempts === 1 && !is_leased && last_error === null)
      )
      const { markSent = 0 } = yield* Context.get(services, Database.Database).statementCounts
      assert.isAtMost(markSent, 20, "a statement for a batch, not for a message")
    }).pipe(Effect.scoped))

  it.live("a delayed message stays in PostgreSQL until it is due, also beyond the longest delay of the queue", () =>
    Effect.gen(function*() {
      const { rows, sql, untilAllSent, url } = yield* Boxes.open
      const queue = CountingQueue.make()
      const services = yield* Layer.build(Boxes.publishing(url, queue))
      const { add } = Context.get(services, Outbox.Outbox)
      yield* add("jobs", { kind: "job", n: 1 }, { delay: "2 hours" })
      yield* add("jobs", { kind: "job", n: 2 }, { delay: "600 millis" })
      yield* add("jobs", { kind: "job", n: 3 })
      yield* queue.until(2)
      assert.deepStrictEqual(numbers(queue), [3, 2])
      const [late] = yield* rows
      assert.isFalse(late!.is_sent)
      // Nothing wakes the publisher when a row is changed by hand, so that is done before another message.
      yield* sql("UPDATE queue_outbox SET deliver_at = deliver_at - interval '2 hours' WHERE sent_at IS NULL")
      yield* add("jobs", { kind: "job", n: 4 })
      yield* untilAllSent
      assert.sameMembers(numbers(queue), [1, 2, 3, 4])
    }).pipe(Effect.scoped))

  it.live("idle, it sends no statements", () =>
    Effect.gen(function*() {
      const { url } = yield* Boxes.open
      const queue = CountingQueue.make()
      const services = yield* Layer.build(Boxes.publishing(url, queue))
      const { add } = Context.get(services, Outbox.Outbox)
      yield* add("jobs", placed)
      yield* add("jobs", placed, { delay: "1 hour" })
      yield* queue.until(1)
      const { statementCounts } = Context.get(services, Database.Database)
      const total = Effect.map(statementCounts, (all) => Object.values(all).reduce((sum, count) => sum + count, 0))
      // The statements that follow from the work above have ended when there are none for a second.
      let before = -1
      yield* waitUntil(Effect.gen(function*() {
        const now = yield* total
        const isQuiet = now === before
        before = now
        yield* Effect.sleep(1000)
        return isQuiet
      }))
      yield* Effect.sleep(2000)
      assert.strictEqual(yield* total, before)
    }).pipe(Effect.scoped))

  it.live("a publisher that is closed lets its batch end, and leaves no lease", () =>
    Effect.gen(function*() {
      const { fill, rows, url } = yield* Boxes.open
      const go = yield* Deferred.make<void>()
      const queue = CountingQueue.make(undefined, ({ payload }) => payload.n === 2 ? Deferred.await(go) : Effect.void)
      yield* fill(3)
      const scope = yield* Scope.make()
      yield* Layer.buildWithScope(Boxes.publishing(url, queue), scope)
      yield* queue.until(3)
      yield* Effect.forkChild(Effect.andThen(Effect.sleep(100), Deferred.succeed(go, undefined)))
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(
        (yield* rows).map(({ is_leased, is_sent }) => [is_sent, is_leased]),
        [[true, false], [true, false], [true, false]]
      )
    }).pipe(Effect.scoped))

  it.live("a row that another transaction locks is marked later, and does not delay the others", () =>
    Effect.gen(function*() {
      const { fill, rows, untilAllSent, url } = yield* Boxes.open
      const go = yield* Deferred.make<void>()
      const queue = CountingQueue.make(undefined, () => Deferred.await(go))
      yield* fill(3)
      yield* Layer.build(Boxes.publishing(url, queue))
      yield* queue.until(3)
      const client = yield* PgServer.connect(url.replace(/\?.*$/, ""))
      yield* Effect.promise(() => client.query("BEGIN; SELECT FROM queue_outbox WHERE payload->>'n' = '2' FOR UPDATE"))
      yield* Deferred.succeed(go, undefined)
      const sent = Effect.map(rows, (all) => all.map(({ is_sent }) => is_sent))
      yield* waitUntil(Effect.map(sent, (all) => all[0]!))
      assert.deepStrictEqual(yield* sent, [true, false, true])
      yield* Effect.promise(() => client.query("COMMIT"))
      yield* untilAllSent
      assert.strictEqual(queue.published.length, 3, "none was sent again")
    }).pipe(Effect.scoped))

  it.live("rows of plain SQL that are due never, or always were, hold nothing up", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* Boxes.open
      const queue = CountingQueue.make()
      yield* sql(
        `INSERT INTO queue_outbox (queue, payload, created_at, deliver_at) VALUES
           ('orders', '{"kind": "never"}', now(), 'infinity'), ('orders', '{"kind": "always"}', now(), '-infinity')`
      )
      yield* Layer.build(Boxes.publishing(url, queue))
      yield* queue.until(1)
      yield* sql(`SELECT dx_add_to_outbox('[{"queue":"orders","payload":{"kind":"later"}}]')`)
      yield* queue.until(2)
      assert.deepStrictEqual(queue.published.map(({ payload }) => payload.kind), ["always", "later"])
    }).pipe(Effect.scoped))

  it.live("a lease that ran out is taken over; while it holds, the message is not sent again", () =>
    Effect.gen(function*() {
      const { fill, sql, untilAllSent, url } = yield* Boxes.open
      const queue = CountingQueue.make()
      yield* fill(2)
      yield* sql(
        `UPDATE queue_outbox SET lease_token = 'dead', attempts = 1,
           lease_until = floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + CASE payload->>'n' WHEN '1' THEN 1200 ELSE 0 END`
      )
      yield* Layer.build(Boxes.publishing(url, queue))
      yield* queue.until(1)
      assert.deepStrictEqual(numbers(queue), [2])
      yield* untilAllSent
      assert.deepStrictEqual(numbers(queue), [2, 1])
    }).pipe(Effect.scoped))
})

describe("publishers with different queues:", () => {
  it.live("each sends the messages of its own queues; none is refused or waits", () =>
    Effect.gen(function*() {
      const { rows, sql, untilAllSent, url } = yield* Boxes.open
      const tasks = CountingQueue.make(CountingQueue.sink(["tasks"]))
      const deliveries = CountingQueue.make(CountingQueue.sink(["deliveries"]))
      yield* Layer.build(Boxes.publishing(url, tasks))
      yield* Layer.build(Layer.fresh(Boxes.publishing(url, deliveries)))
      yield* sql(
        `SELECT dx_add_to_outbox(jsonb_agg(jsonb_build_object('queue', queue, 'payload', '{"kind":"job"}'::jsonb) ORDER BY n))
         FROM generate_series(1, 20) AS n, unnest('{tasks,deliveries}'::text[]) AS queue`
      )
      yield* Effect.all([tasks.until(20), deliveries.until(20)])
      assert.deepStrictEqual([...new Set(tasks.published.map(({ queue }) => queue))], ["tasks"])
      assert.deepStrictEqual([...new Set(deliveries.published.map(({ queue }) => queue))], ["deliveries"])
      yield* untilAllSent
      assert.isTrue((yield* rows).every(({ attempts, last_error }) => attempts === 1 && last_error === null))
    }).pipe(Effect.scoped))

  it.live("messages that no publisher takes stay; a gauge counts them, and the log names their queue once", () =>
    isolated(Effect.gen(function*() {
      const { fill, rows, sql, url } = yield* Boxes.open
      const queue = CountingQueue.make(CountingQueue.sink(["jobs"]))
      const { into, lines } = Boxes.logged()
      const warned = () => lines.filter(({ text }) => text.includes("a queue that this publisher does not know"))
      yield* fill(2, "elsewhere")
      yield* fill(2, "recent")
      yield* sql("UPDATE queue_outbox SET deliver_at = now() - interval '2 minutes' WHERE queue = 'elsewhere'")
      yield* into(Layer.build(Boxes.publishing(url, queue)))
      yield* waitUntil(Effect.sync(() => warned().length > 0))
      // Each of these leads to a look.
      for (const n of [1, 2]) {
        yield* fill(1)
        yield* queue.until(n)
      }
      const left = (yield* rows).filter(({ queue }) => queue !== "jobs")
      assert.isTrue(left.length === 4 && left.every(({ attempts, is_leased }) => attempts === 0 && !is_leased))
      assert.deepStrictEqual(
        warned().map(({ annotations, level }) => [level, annotations.queue]),
        [["Warn", "elsewhere"]]
      )
      yield* waitUntil(Effect.map(values(Metrics.outboxMessages), ({ waiting }) => waiting! >= 4))
    })).pipe(Effect.scoped))

  it.live("the next look does not come sooner for messages of other queues", () =>
    Effect.gen(function*() {
      const { fill, sql } = yield* Boxes.open
      const nextIn = (queues: string) =>
        Effect.map(
          sql<{ ms: number | null }>(
            `SELECT (out_next_ms - out_now_ms)::float8 AS ms FROM dx_claim_outbox(10, 1000, 'me', '${queues}')`
          ),
          ([row]) => row!.ms
        )
      yield* fill(1, "due")
      yield* fill(1, "later")
      yield* sql("UPDATE queue_outbox SET deliver_at = now() + interval '1 hour' WHERE queue = 'later'")
      assert.isNull(yield* nextIn("{jobs}"))
      assert.isAbove((yield* nextIn("{jobs,later}"))!, 3_000_000)
      yield* nextIn("{due}")
      assert.isNull(yield* nextIn("{jobs}"), "the lease of another queue's message")
    }).pipe(Effect.scoped))
})

describe("the publisher and failures:", () => {
  it("pauses double from 1 second to 5 minutes; a refused message waits 5 minutes at once", () => {
    const refused = failure("jobs", new PayloadTooLarge({ bytes: 2, maxBytes: 1 }))
    assert.deepStrictEqual(
      [1, 2, 3, 9, 10, 2_000_000_000].map((attempts) => deferralMs(unavailable, attempts, 0)),
      [1000, 2000, 4000, 256_000, 300_000, 300_000]
    )
    assert.strictEqual(deferralMs(unavailable, 1, 1), 750)
    assert.strictEqual(deferralMs(refused, 1, 0.5), 300_000)
  })

  it.live("logs its start with its queues, and its end", () =>
    Effect.gen(function*() {
      const { url } = yield* Boxes.open
      const queue = CountingQueue.make(CountingQueue.sink(["jobs", "mails"]))
      const { into, lines } = Boxes.logged()
      yield* into(Effect.scoped(Layer.build(Boxes.publishing(url, queue))))
      assert.deepStrictEqual(
        lines.filter(({ text }) => text.startsWith("Outbox: publisher")).map(({ annotations, level, text }) => [
          level,
          text,
          annotations.queues
        ]),
        [["Info", "Outbox: publisher started", "jobs, mails"], ["Info", "Outbox: publisher stopped", undefined]]
      )
    }).pipe(Effect.scoped))

  it.live("a refused message does not block others; the log says so once, and a gauge counts it", () =>
    isolated(Effect.gen(function*() {
      const { fill, rows, url } = yield* Boxes.open
      const queue = CountingQueue.make(undefined, ({ queue }) =>
        queue === "missing"
          ? Effect.fail(failure(queue, new QueueNotFound({ queue })))
          : queue === "small"
          ? Effect.fail(failure(queue, new PayloadTooLarge({ bytes: 20, maxBytes: 10 })))
          : Effect.void)
      const { into, lines } = Boxes.logged()
      yield* fill(3, "missing")
      yield* fill(1, "small")
      yield* fill(5)
      const isSettled = Effect.map(rows, (all) => all.every(({ is_leased, is_sent }) => is_sent || !is_leased))
      yield* into(Layer.build(Boxes.publishing(url, queue)))
      yield* queue.until(9)
      yield* waitUntil(isSettled)
      const left = (yield* rows).filter(({ is_sent }) => !is_sent)
      assert.deepStrictEqual(left.map(({ queue }) => queue), ["missing", "missing", "missing", "small"])
      assert.isTrue(left.every(({ attempts, due_in_ms }) => attempts === 1 && due_in_ms > 200_000))
      assert.include(left[0]!.last_error, "QueueNotFound: ")
      assert.include(left[3]!.last_error, "PayloadTooLarge: ")
      const errors = lines.filter(({ level }) => level === "Error")
      assert.deepStrictEqual(errors.map(({ annotations }) => annotations.queue), ["missing", "small"])
      assert.deepStrictEqual(yield* counts(Metrics.outboxPublished), { jobs: 5 })
      assert.deepStrictEqual(yield* counts(Metrics.outboxFailures), { QueueNotFound: 3, PayloadTooLarge: 1 })
      yield* waitUntil(Effect.map(values(Metrics.outboxMessages), ({ failing }) => failing === 4))
      assert.deepStrictEqual(yield* values(Metrics.outboxMessages), { waiting: 0, delayed: 0, failing: 4 })
    })).pipe(Effect.scoped))

  it.live("an outage of the queue: messages wait, few are tried, all are sent when it is over", () =>
    Effect.gen(function*() {
      const { fill, rows, untilAllSent, url } = yield* Boxes.open
      let isOut = true
      const queue = CountingQueue.make(undefined, () => isOut ? Effect.fail(unavailable) : Effect.void)
      const { into, lines } = Boxes.logged()
      yield* fill(300)
      yield* into(Layer.build(Boxes.publishing(url, queue)))
      yield* queue.until(102) // a batch, then one at a time
      const during = yield* rows
      isOut = false
      assert.isAtMost(during.filter(({ last_error }) => last_error !== null).length, 110)
      assert.isTrue(during.every(({ is_sent }) => !is_sent))
      yield* untilAllSent
      assert.strictEqual(new Set(numbers(queue)).size, 300)
      const warnings = lines.filter(({ level, text }) => level === "Warn" && text.startsWith("Outbox: "))
      assert.strictEqual(warnings.length, 1)
      assert.isTrue(lines.some(({ text }) => text === "Outbox: messages are sent again"))
    }).pipe(Effect.scoped))

  it.live("a defect of the queue is a failure of the message, and its text is not stored", () =>
    Effect.gen(function*() {
      const { fill, rows, untilAllSent, url } = yield* Boxes.open
      let isBroken = true
      const queue = CountingQueue.make(undefined, () => isBroken ? Effect.die(new Error("s3cret")) : Effect.void)
      const { into, lines } = Boxes.logged()
      yield* fill(1)
      yield* into(Layer.build(Boxes.publishing(url, queue)))
      yield* waitUntil(Effect.map(rows, ([row]) => row!.last_error !== null))
      isBroken = false
      assert.notInclude((yield* rows)[0]!.last_error, "s3cret")
      assert.notInclude(JSON.stringify(lines), "s3cret")
      yield* untilAllSent
    }).pipe(Effect.scoped))

  it.live("a queue that does not answer fails the message within its lease, and delays no others", () =>
    Effect.gen(function*() {
      const { fill, rows, url } = yield* Boxes.open
      const queue = CountingQueue.make(undefined, ({ queue }) => queue === "slow" ? Effect.never : Effect.void)
      yield* fill(1, "slow")
      const services = yield* Layer.build(Boxes.publishing(url, queue, { lease: "1500 millis" }))
      yield* queue.until(1)
      yield* Context.get(services, Outbox.Outbox).add("jobs", placed)
      yield* queue.until(2)
      assert.strictEqual((yield* rows)[0]!.last_error, null, "the first one is still under way")
      yield* waitUntil(Effect.map(rows, ([row]) => row!.last_error !== null))
      assert.include((yield* rows)[0]!.last_error, "Unavailable: ")
    }).pipe(Effect.scoped))

  it.live("an outage of the database: it resumes by itself", () =>
    Effect.gen(function*() {
      const { sql, untilAllSent, url } = yield* Boxes.open
      const queue = CountingQueue.make()
      const { into, lines } = Boxes.logged()
      yield* into(Layer.build(Boxes.publishing(url, queue)))
      yield* sql(`SELECT dx_add_to_outbox('[{"queue":"jobs","payload":{"kind":"job","n":1}}]')`)
      yield* queue.until(1)
      yield* untilAllSent
      yield* sql("ALTER FUNCTION dx_claim_outbox RENAME TO dx_claim_outbox_away")
      yield* sql(`SELECT dx_add_to_outbox('[{"queue":"jobs","payload":{"kind":"job","n":2}}]')`)
      yield* waitUntil(
        Effect.sync(() => lines.some(({ text }) => text === "Outbox: the database cannot be used; messages wait"))
      )
      // Its connections are lost as well.
      yield* sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
      )
      yield* sql("ALTER FUNCTION dx_claim_outbox_away RENAME TO dx_claim_outbox")
      yield* queue.until(2)
      yield* untilAllSent
      assert.deepStrictEqual(numbers(queue), [1, 2])
      assert.isTrue(lines.some(({ text }) => text === "Outbox: the database can be used again"))
    }).pipe(Effect.scoped))

  it.live("what was sent and cannot be marked is sent again when its lease has ended, and the log says so", () =>
    Effect.gen(function*() {
      const { fill, sql, untilAllSent, url } = yield* Boxes.open
      const queue = CountingQueue.make()
      const { into, lines } = Boxes.logged()
      yield* sql("ALTER FUNCTION dx_mark_sent RENAME TO dx_mark_sent_away")
      yield* fill(2)
      yield* into(Layer.build(Boxes.publishing(url, queue, { lease: "1 second" })))
      yield* queue.until(2)
      yield* waitUntil(
        Effect.sync(() => lines.some(({ text }) => text.startsWith("Outbox: a batch could not be marked")))
      )
      yield* sql("ALTER FUNCTION dx_mark_sent_away RENAME TO dx_mark_sent")
      yield* untilAllSent
      assert.sameMembers(numbers(queue).slice(-2), [1, 2])
      assert.isAtLeast(queue.published.length, 4)
    }).pipe(Effect.scoped))

  it.live("every bad option has one typed error", () =>
    Effect.gen(function*() {
      const { url } = yield* Boxes.open
      const fieldOf = (options: Outbox.PublisherOptions) =>
        Effect.map(
          Effect.flip(Effect.scoped(Layer.build(Boxes.publishing(url, CountingQueue.make(), options)))),
          (error) =>
            error._tag === "QueueError" && error.reason._tag === "InvalidInput" ? error.reason.field : error._tag
        )
      assert.deepStrictEqual(
        yield* Effect.all([
          fieldOf({ batchSize: 0 }),
          fieldOf({ batchSize: 1001 }),
          fieldOf({ lease: "10 millis" }),
          fieldOf({ lease: "13 hours" })
        ]),
        ["batchSize", "batchSize", "lease", "lease"]
      )
    }).pipe(Effect.scoped))
})

describe("sent messages:", () => {
  it.live("are deleted after their retention, in batches; others stay", () =>
    Effect.gen(function*() {
      const { fill, rows, sql, url } = yield* Boxes.open
      yield* fill(2500)
      yield* sql("UPDATE queue_outbox SET sent_at = now() - interval '25 hours'")
      yield* sql("UPDATE queue_outbox SET sent_at = now() - interval '23 hours' WHERE payload->>'n' = '2000'")
      const services = yield* Layer.build(Boxes.publishing(url, CountingQueue.make()))
      yield* waitUntil(Effect.map(rows, (all) => all.length === 1))
      assert.deepStrictEqual((yield* rows).map(({ payload }) => payload.n), [2000])
      const { cleanOutbox } = yield* Context.get(services, Database.Database).statementCounts
      assert.strictEqual(cleanOutbox, 3)
    }).pipe(Effect.scoped))
})
