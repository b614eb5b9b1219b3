import { assert, describe, it } from "@effect/vitest"
import { Metrics } from "duroxide-prisma"
import { PgQueue } from "duroxide-prisma/prisma"
import { Task } from "duroxide-prisma/tasks"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import { connect } from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import { Declined, gate, Job, makeCalls, open, queues } from "./utils/tasks.ts"

const server = PgQueue.layer({ queues })

const test = (
  title: string,
  body: (app: App) => Effect.Effect<void, unknown, any>
) => it.live(title, () => Effect.scoped(Effect.flatMap(open(server), body)) as Effect.Effect<void, unknown>)

const payload = { n: 1 }

type App = Effect.Success<ReturnType<typeof open>>

/** Waits until workers have met that many tasks that they do not serve. */
const unserved = (app: App, count: number) =>
  waitUntil(Effect.map(
    app.sql("SELECT FROM queue_tasks WHERE unserved_at IS NOT NULL"),
    (rows) => rows.length === count
  ))

/** The wake-ups of all tasks are gone, and the next sweep is an hour away. */
const loseWakeups = (app: App) =>
  Effect.andThen(
    app.sql("DELETE FROM queue_messages"),
    app.sql("UPDATE queue_tasks SET look_at = clock_timestamp() + interval '1 hour'")
  )

describe("Tasks: what is lost", () => {
  test("an attempt whose worker is gone is found after its lease, and made again", (app) =>
    Effect.gen(function*() {
      yield* app.publisher
      const running = makeCalls<number>()
      yield* app.jobWorker(
        (_, { attempt }) => Effect.andThen(running.add(attempt), attempt === 1 ? Effect.never : Effect.succeed(5)),
        { workerId: "w" }
      )
      const id = yield* app.tasks.create(Job, { payload })
      yield* running.until(1)
      yield* app.endLease(id)
      assert.strictEqual(yield* app.tasks.wait(Job, id), 5)
      const [first, second] = yield* app.tasks.attempts(id)
      assert.deepInclude(first, { attempt: 1, workerId: "w", outcome: "Lost" })
      assert.deepInclude(second, { attempt: 2, outcome: "Completed" })
    }))

  test("a lost attempt counts if it is the only one: the task is dead", (app) =>
    Effect.gen(function*() {
      yield* app.publisher
      const running = makeCalls<number>()
      yield* app.jobWorker((_, { attempt }) => Effect.andThen(running.add(attempt), Effect.never), { concurrency: 10 })
      const id = yield* app.tasks.create(Job, { payload })
      yield* app.sql("UPDATE queue_tasks SET max_attempts = 1")
      yield* running.until(1)
      yield* app.endLease(id)
      const error = yield* Effect.flip(app.tasks.wait(Job, id))
      assert.deepStrictEqual(
        error,
        new Task.TaskDied({ taskName: "Job", problem: "the worker of its last attempt was lost" })
      )
      assert.deepStrictEqual(running.calls, [1])
      assert.deepStrictEqual(yield* app.outcomes(id), ["Lost"])
    }))

  test("a task whose wake-up is lost is woken by a new row of the outbox", (app) =>
    Effect.gen(function*() {
      const id = yield* app.tasks.create(Job, { payload })
      yield* app.sql("DELETE FROM queue_outbox")
      yield* app.sql("UPDATE queue_tasks SET look_at = clock_timestamp() - interval '1 second'")
      yield* app.publisher
      // Its first sweep finds the task.
      yield* app.jobWorker(() => Effect.succeed(1))
      yield* app.tasks.wait(Job, id)
      assert.lengthOf(yield* app.sql("SELECT FROM queue_outbox"), 1)
      app.counting.assertOnlyPublisher()
    }))

  test("a sweeper wakes tasks that wait and attempts that are lost, where no worker runs", (app) =>
    Effect.gen(function*() {
      const [waiting, lost] = yield* app.tasks.createMany(Job, [{ payload }, { payload: { n: 2 } }])
      yield* app.sql("DELETE FROM queue_outbox")
      yield* app.sql("SELECT FROM dx_claim_tasks($1, '{Job}', '{1000}', 'gone')", [[lost]])
      yield* app.sql("UPDATE queue_tasks SET lease_until = 0 WHERE id = $1", [lost])
      yield* app.sql("UPDATE queue_tasks SET look_at = clock_timestamp() - interval '1 minute'")
      yield* app.publisher
      yield* app.sweeper
      yield* waitUntil(Effect.map(app.sql("SELECT FROM queue_messages"), (rows) => rows.length === 2))
      // Only now a worker comes.
      yield* app.jobWorker(() => Effect.succeed(1))
      assert.strictEqual(yield* app.tasks.wait(Job, waiting!), 1)
      assert.strictEqual(yield* app.tasks.wait(Job, lost!), 1)
      assert.deepStrictEqual(yield* app.outcomes(lost!), ["Lost", "Completed"])
      app.counting.assertOnlyPublisher()
    }))

  test("a wake-up that comes while another transaction has locked the task is not lost", (app) =>
    Effect.gen(function*() {
      const id = yield* app.tasks.create(Job, { payload })
      const client = yield* connect(app.url)
      yield* Effect.promise(() => client.query("BEGIN; SELECT FROM queue_tasks FOR UPDATE"))
      yield* app.publisher
      yield* app.jobWorker(() => Effect.succeed(1))
      // It came, went back, and came again.
      yield* waitUntil(Effect.map(
        app.sql("SELECT FROM queue_messages WHERE attempts >= 2"),
        (rows) => rows.length === 1
      ))
      yield* Effect.promise(() => client.query("COMMIT"))
      yield* app.tasks.wait(Job, id)
      // Not by the sweep.
      assert.lengthOf(yield* app.sql("SELECT FROM queue_outbox"), 1)
    }))

  test("a wake-up that no worker serves comes back nearly at once a few times, then ever later, and then no more", (app) =>
    Effect.gen(function*() {
      const Elsewhere = Task.make("Elsewhere")
      const deliveries = 15
      let received = 0
      const delays = new Map<number, number>()
      // One task for each delivery count, as if each had come so often.
      const counts = new Map<string, number>()
      const acked: Array<number> = []
      yield* app.publisher
      yield* app.worker({ tasks: [Job] }, Job.toLayer(() => Effect.succeed(1)), (queue) => ({
        ...queue,
        receive: (name, options) =>
          Effect.map(queue.receive(name, options), (messages) =>
            messages.map((message) => {
              const deliveryCount = Math.min(++received, deliveries)
              counts.set(message.receipt, deliveryCount)
              return { ...message, deliveryCount }
            })),
        extendVisibility: (name, receipt, timeout) => {
          const count = counts.get(receipt)!
          if (!delays.has(count)) delays.set(count, Duration.toMillis(timeout))
          return queue.extendVisibility(name, receipt, timeout)
        },
        ack: (name, receipt) =>
          Effect.andThen(Effect.sync(() => acked.push(counts.get(receipt)!)), queue.ack(name, receipt))
      }))
      yield* app.tasks.createMany(Elsewhere, Array.from({ length: deliveries }, () => ({})))
      yield* waitUntil(Effect.sync(() => delays.size === deliveries - 1 && acked.length > 0))
      const inOrder = [...delays].sort(([a], [b]) => a - b).map(([, delay]) => delay)
      // The first give-backs together take less than the shortest pause that a person notices.
      assert.isBelow(inOrder.slice(0, 4).reduce((sum, delay) => sum + delay, 0), 500)
      assert.isAbove(inOrder[1]!, 0)
      assert.deepStrictEqual(inOrder, [...inOrder].sort((a, b) => a - b))
      assert.strictEqual(inOrder.at(-1), 25_600)
      // The dead letters are for what a person has to look at.
      assert.deepStrictEqual([...new Set(acked)], [deliveries])
    }))

  test("a task is taken by a worker that serves it, although its wake-up is with one that does not", (app) =>
    Effect.gen(function*() {
      const Elsewhere = Task.make("Elsewhere")
      yield* app.publisher
      const [cancelled, id, next] = yield* app.tasks.createMany(Elsewhere, [{}, {}, {}])
      yield* waitUntil(Effect.map(app.sql("SELECT FROM queue_messages"), (rows) => rows.length === 3))
      const take = (names: string, queue = "tasks", limit = 5) =>
        Effect.map(
          app.sql<{ tasks: ReadonlyArray<ReadonlyArray<string>> | null; left: number }>(
            `SELECT out_tasks AS tasks, COALESCE(cardinality(out_ids), 0) AS left
             FROM dx_take_tasks($3, $1, 'token', 30000, $2, '{60000}', 'w', 1)`,
            [queue, names, limit]
          ),
          (rows) => ({
            ids: rows.flatMap(({ tasks }) => tasks?.[0] ?? []),
            left: rows.reduce((sum, { left }) => sum + left, 0)
          })
        )
      assert.deepStrictEqual(yield* take("{Job}"), { ids: [], left: 3 })
      assert.deepStrictEqual(yield* take("{Elsewhere}"), { ids: [], left: 0 })
      yield* app.sql("SELECT FROM dx_claim_tasks($1::uuid[], '{Job}', '{1000}', 'w', 1)", [[cancelled, id, next]])
      yield* app.tasks.cancel(cancelled!, "no longer needed")
      assert.deepStrictEqual(yield* take("{Elsewhere}", "other"), { ids: [], left: 0 })
      // None that cannot begin or that another transaction holds takes the place of one that can.
      const client = yield* connect(app.url)
      yield* Effect.promise(() => client.query("BEGIN"))
      yield* Effect.promise(() => client.query("SELECT FROM queue_tasks WHERE id = $1 FOR UPDATE", [id]))
      assert.deepStrictEqual(yield* take("{Elsewhere}", "tasks", 1), { ids: [next], left: 0 })
      yield* Effect.promise(() => client.query("ROLLBACK"))
      assert.deepStrictEqual(yield* take("{Elsewhere}"), { ids: [id], left: 0 })
      assert.deepStrictEqual(yield* take("{Elsewhere}"), { ids: [], left: 0 })
      assert.lengthOf(yield* app.sql("SELECT FROM queue_messages"), 3)
      // Nor do those whose orchestrations have ended: they are cancelled.
      const ids = yield* app.tasks.createMany(Elsewhere, Array.from({ length: 4 }, () => ({})))
      yield* waitUntil(Effect.map(app.sql("SELECT FROM queue_messages"), (rows) => rows.length === 7))
      yield* app.sql("UPDATE queue_tasks SET unserved_at = now() WHERE id = ANY ($1::uuid[])", [ids])
      yield* app.sql(
        "UPDATE queue_tasks SET reply_instance_id = 'ended', reply_execution_id = 1 WHERE id = ANY ($1::uuid[])",
        [ids.slice(0, 3)]
      )
      yield* app.sql("DELETE FROM queue_messages")
      assert.deepStrictEqual(yield* take("{Elsewhere}", "tasks", 2), { ids: ids.slice(3), left: 0 })
      assert.deepStrictEqual(
        yield* app.sql("SELECT DISTINCT status FROM queue_tasks WHERE id = ANY ($1::uuid[])", [ids.slice(0, 3)]),
        [{ status: "Cancelled" }]
      )
      // However many they are: the next look comes soon, not with the next hint.
      yield* app.sql(`INSERT INTO queue_tasks (id, name, payload, status, max_attempts, run_at, unserved_at, queue,
          reply_instance_id, reply_execution_id, created_at, updated_at)
        SELECT gen_random_uuid(), 'Elsewhere', '{}', 'Pending', 3, now(), now(), 'tasks', 'ended', 1, now(), now()
        FROM generate_series(1, 250)`)
      const left = Effect.map(
        app.sql<{ count: string }>("SELECT count(*) FROM queue_tasks WHERE unserved_at IS NOT NULL"),
        ([row]) => Number(row!.count)
      )
      const counts: Array<number> = []
      for (let look = 0; look < 3; look++) {
        const [row] = yield* app.sql<{ soon: boolean }>(
          `SELECT out_next_ms <= out_now_ms AS soon
           FROM dx_take_tasks(2, 'tasks', 'token', 30000, '{Elsewhere}', '{60000}', 'w', 1)`
        )
        assert.isTrue(row!.soon)
        counts.push(yield* left)
      }
      assert.deepStrictEqual(counts, [148, 46, 0])
    }))

  test("a worker wakes the tasks of its names that no worker has served before, when it starts", (app) =>
    Effect.gen(function*() {
      const Elsewhere = Task.make("Elsewhere")
      yield* app.publisher
      yield* app.worker({ tasks: [Job] }, Job.toLayer(() => Effect.succeed(1)))
      const id = yield* app.tasks.create(Elsewhere, {})
      const other = yield* app.tasks.create(Task.make("Other"), {})
      yield* unserved(app, 2)
      yield* loseWakeups(app)
      yield* app.worker({ tasks: [Elsewhere] }, Elsewhere.toLayer(() => Effect.void))
      yield* app.tasks.wait(Elsewhere, id)
      assert.deepStrictEqual(
        yield* app.sql("SELECT id::text FROM queue_tasks WHERE unserved_at IS NOT NULL"),
        [{ id: other }]
      )
      assert.lengthOf(yield* app.sql("SELECT FROM queue_dead"), 0)
    }))

  test("a worker wakes tasks of its names that have a limit and that no worker has served before, when it starts", (app) =>
    Effect.gen(function*() {
      const Elsewhere = Task.make("Elsewhere")
      yield* app.sql("INSERT INTO limits (kind, name, concurrency, since) VALUES ('task', 'Elsewhere', 1, now())")
      yield* app.publisher
      yield* app.worker({ tasks: [Job] }, Job.toLayer(() => Effect.succeed(1)))
      const id = yield* app.tasks.create(Elsewhere, {})
      yield* unserved(app, 1)
      yield* loseWakeups(app)
      yield* app.worker({ tasks: [Elsewhere] }, Elsewhere.toLayer(() => Effect.void))
      yield* app.tasks.wait(Elsewhere, id)
      assert.deepStrictEqual(yield* app.outcomes(id), ["Completed"])
    }))

  test("of the tasks that no worker has served, a start does not wake those that others refuse later", (app) =>
    Effect.gen(function*() {
      const Elsewhere = Task.make("Elsewhere")
      const id = yield* app.tasks.create(Elsewhere, {})
      const nowMs = Date.now() + 60_000
      const refuseAt = (ms: number) =>
        app.sql("SELECT FROM dx_claim_tasks(ARRAY[$1::uuid], '{Job}', '{1000}', 'w', 1, '{1}', $2)", [
          id,
          nowMs + ms
        ])
      const sweep = (sinceMs: number, ms: number) =>
        Effect.map(
          app.sql(
            "SELECT out_woken, out_has_unserved FROM dx_sweep_tasks(10, 10, '{Elsewhere}', $1, $2)",
            [sinceMs, nowMs + ms]
          ),
          ([row]) => row
        )
      yield* refuseAt(0)
      assert.deepStrictEqual(yield* sweep(0, 1_000), { out_woken: 1, out_has_unserved: false })
      yield* refuseAt(1_500)
      assert.deepStrictEqual(yield* sweep(1_000, 2_000), { out_woken: 0, out_has_unserved: false })
      // Another worker starts.
      assert.deepStrictEqual(yield* sweep(0, 3_000), { out_woken: 1, out_has_unserved: false })
    }))

  test("a task that another transaction holds while a worker starts is woken once it is free", (app) =>
    Effect.gen(function*() {
      const Elsewhere = Task.make("Elsewhere")
      yield* app.publisher
      const { stop } = yield* app.worker({ tasks: [Job] }, Job.toLayer(() => Effect.succeed(1)))
      const [held, free] = yield* app.tasks.createMany(Elsewhere, [{}, {}])
      yield* unserved(app, 2)
      yield* stop
      yield* loseWakeups(app)
      const client = yield* connect(app.url)
      yield* Effect.promise(() => client.query("BEGIN"))
      yield* Effect.promise(() => client.query("SELECT FROM queue_tasks WHERE id = $1 FOR UPDATE", [held]))
      yield* app.worker({ tasks: [Elsewhere] }, Elsewhere.toLayer(() => Effect.void))
      yield* app.tasks.wait(Elsewhere, free!)
      yield* Effect.promise(() => client.query("ROLLBACK"))
      yield* app.tasks.wait(Elsewhere, held!)
      assert.deepStrictEqual(yield* app.outcomes(held!), ["Completed"])
    }))

  test("a sweep wakes all lost attempts, and a hundred of the tasks that wait", (app) =>
    Effect.gen(function*() {
      yield* app.tasks.createMany(Job, Array.from({ length: 500 }, () => ({ payload })))
      yield* app.sql(`UPDATE queue_tasks SET look_at = clock_timestamp() - interval '1 second', attempt = n / 400,
          status = CASE WHEN n > 400 THEN 'Running' ELSE 'Pending' END,
          run_at = CASE WHEN n < 10 THEN clock_timestamp() + interval '1 day' ELSE clock_timestamp() - interval '5 minutes' END,
          lease_until = CASE WHEN n > 450 THEN 0 WHEN n > 400 THEN 9e15 END
        FROM (SELECT id, row_number() OVER () AS n FROM queue_tasks) AS numbered WHERE numbered.id = queue_tasks.id`)
      yield* app.sql("DELETE FROM queue_outbox")
      const [swept] = yield* app.sql("SELECT out_lost, out_woken, out_is_full FROM dx_sweep_tasks(1000, 100)")
      assert.deepStrictEqual(swept, { out_lost: 50, out_woken: 100, out_is_full: false })
      assert.lengthOf(yield* app.sql("SELECT FROM queue_outbox"), 150)
      // The next looks: those that wait after their age, those that run after their lease, delayed ones after their
      // time.
      const [next] = yield* app.sql(`SELECT
          bool_and(look_at BETWEEN now() + interval '4 minutes' AND now() + interval '6 minutes')
            FILTER (WHERE status = 'Pending' AND run_at < now()) AS waiting,
          bool_and(look_at > run_at) FILTER (WHERE run_at > now()) AS delayed,
          bool_and(look_at > '2200-01-01') FILTER (WHERE lease_until > 0) AS running
        FROM queue_tasks`)
      assert.deepStrictEqual(next, { waiting: true, delayed: true, running: true })
      const [again] = yield* app.sql("SELECT out_lost, out_woken FROM dx_sweep_tasks(1000, 100)")
      assert.deepStrictEqual(again, { out_lost: 0, out_woken: 0 })
    }))

  test("a worker without anything to do wakes all tasks whose wake-ups were lost", (app) =>
    Effect.gen(function*() {
      const ids = yield* app.tasks.createMany(Job, Array.from({ length: 2500 }, (_, n) => ({ payload: { n } })))
      yield* app.sql("UPDATE queue_outbox SET sent_at = now(); UPDATE queue_tasks SET look_at = now()")
      yield* app.publisher
      yield* app.jobWorker(() => Effect.succeed(1))
      const results = yield* Effect.forEach(ids, (id) => app.tasks.wait(Job, id), { concurrency: "unbounded" })
      assert.isTrue(results.every((result) => result === 1))
    }))

  test("tasks of plain SQL that are due never, or always were, do not keep others from being found", (app) =>
    Effect.gen(function*() {
      const [never, always, lost] = yield* app.tasks.createMany(Job, [{ payload }, { payload }, { payload }])
      yield* app.sql(
        `DELETE FROM queue_outbox;
         UPDATE queue_tasks SET run_at = 'infinity', look_at = 'infinity' WHERE id = '${never}';
         UPDATE queue_tasks SET run_at = '-infinity', look_at = '-infinity' WHERE id = '${always}';
         UPDATE queue_tasks SET look_at = now() WHERE id = '${lost}'`
      )
      yield* app.publisher
      yield* app.jobWorker(() => Effect.succeed(1))
      assert.strictEqual(yield* app.tasks.wait(Job, lost!), 1)
      assert.strictEqual(yield* app.tasks.wait(Job, always!), 1)
    }))

  test("ended tasks are deleted after their retention, with their attempts and keys", (app) =>
    Effect.gen(function*() {
      yield* app.publisher
      yield* app.jobWorker(({ n }) => n === 1 ? Effect.succeed(1) : Effect.fail(new Declined({ code: 0 })))
      const done = yield* app.tasks.create(Job, { payload, key: "k" })
      const dead = yield* app.tasks.create(Job, { payload: { n: 2 } })
      yield* app.tasks.wait(Job, done)
      yield* app.statusIs(dead, "Dead")
      const clean = (keepEnded: number, keepDead: number) =>
        app.sql<{ deleted: number }>("SELECT dx_clean_tasks($1, $2, 100) AS deleted", [keepEnded, keepDead])
      assert.deepStrictEqual(yield* clean(1e9, 1e9), [{ deleted: 0 }])
      assert.deepStrictEqual(yield* clean(0, 1e9), [{ deleted: 1 }])
      assert.deepStrictEqual(yield* app.tasks.status(done), { _tag: "NotFound" })
      assert.notStrictEqual(yield* app.tasks.create(Job, { payload, key: "k", delay: "1 hour" }), done)
      assert.deepStrictEqual(yield* clean(0, 0), [{ deleted: 1 }])
      assert.deepStrictEqual(yield* app.sql("SELECT FROM queue_task_attempts"), [])
    }))
})

describe("Tasks: leases", () => {
  test("a handler that runs longer than its lease keeps it by heartbeats", (app) =>
    Effect.gen(function*() {
      const Short = Task.make("Short", { lease: "1 second" })
      yield* app.publisher
      const end = gate()
      yield* app.worker({ tasks: [Short] }, Short.toLayer(() => end.await))
      const id = yield* app.tasks.create(Short, {})
      yield* app.statusIs(id, "Running")
      const [{ until }] = (yield* app.sql("SELECT lease_until AS until FROM queue_tasks")) as [{ until: string }]
      yield* waitUntil(Effect.map(
        app.sql("SELECT FROM queue_tasks WHERE heartbeat_at > started_at AND lease_until > $1::bigint + 1000", [until]),
        (rows) => rows.length === 1
      ))
      yield* end.open
      yield* app.tasks.wait(Short, id)
      assert.lengthOf(yield* app.tasks.attempts(id), 1)
    }))

  test("a worker that stops gives its tasks back, without counting the attempt", (app) =>
    Effect.gen(function*() {
      yield* app.publisher
      const running = makeCalls<number>()
      const interrupted = makeCalls<number>()
      const first = yield* app.jobWorker((_, { attempt }) =>
        Effect.andThen(running.add(attempt), Effect.onInterrupt(Effect.never, () => interrupted.add(attempt)))
      )
      const id = yield* app.tasks.create(Job, { payload })
      yield* running.until(1)
      yield* first.stop
      assert.deepStrictEqual(interrupted.calls, [1])
      assert.deepStrictEqual(yield* app.outcomes(id), ["GivenBack"])
      yield* app.jobWorker((_, { attempt }) => Effect.fail(new Declined({ code: attempt })))
      // Three attempts that count.
      assert.deepStrictEqual(yield* Effect.flip(app.tasks.wait(Job, id)), new Declined({ code: 4 }))
    }))

  test("a worker that stops lets its handlers end within the grace period", (app) =>
    Effect.gen(function*() {
      yield* app.publisher
      const running = makeCalls<number>()
      const end = gate()
      const worker = yield* app.jobWorker(() => Effect.andThen(running.add(1), Effect.as(end.await, 3)), {
        gracePeriod: "1 minute"
      })
      const id = yield* app.tasks.create(Job, { payload })
      yield* running.until(1)
      yield* Effect.all([worker.stop, end.open], { concurrency: "unbounded" })
      assert.deepInclude(yield* app.tasks.status(id), { _tag: "Completed", result: "3" })
    }))

  test("a handler that interrupts itself has failed", (app) =>
    Effect.gen(function*() {
      yield* app.publisher
      yield* app.jobWorker((_, { attempt }) => attempt === 1 ? Effect.interrupt : Effect.succeed(1))
      const id = yield* app.tasks.create(Job, { payload })
      yield* app.tasks.wait(Job, id)
      assert.deepStrictEqual(yield* app.outcomes(id), ["Died", "Completed"])
    }))
})

describe("Tasks: log lines", () => {
  test("a failed attempt is logged with the type of its failure, never its content", (app) =>
    Effect.gen(function*() {
      class Broken extends Error {}
      yield* app.publisher
      yield* app.jobWorker((_, { attempt }) =>
        attempt === 1
          ? Effect.fail(new Declined({ code: 1 }))
          : attempt === 2
          ? Effect.die({ name: "secret" })
          : Effect.die(new Broken("secret"))
      )
      const id = yield* app.tasks.create(Job, { payload })
      yield* app.statusIs(id, "Dead")
      yield* waitUntil(Effect.sync(() => app.linesOf("task is dead").length === 1))
      const typesOf = (text: string) => app.linesOf(text).map(({ attempt, error_type }) => [attempt, error_type])
      assert.deepStrictEqual(typesOf("another one follows"), [[1, "Declined"], [2, "Object"]])
      assert.deepStrictEqual(typesOf("task is dead"), [[3, "Broken"]])
    }))
})

describe("Tasks: metrics", () => {
  test("attempts are counted by their outcome, refused outputs apart, and tasks that have not ended by a sweep", (app) =>
    Effect.gen(function*() {
      const countOf = (outcome: string) =>
        Effect.map(
          Metric.value(Metric.withAttributes(Metrics.taskAttempts, { task_name: "Job", outcome })),
          ({ count }) => count
        )
      const stale = Effect.map(Metric.value(Metrics.taskStaleCommits), ({ count }) => count)
      const before = { completed: yield* countOf("completed"), failed: yield* countOf("failed"), stale: yield* stale }
      const running = makeCalls<number>()
      const end = gate()
      yield* app.publisher
      const id = yield* app.tasks.create(Job, { payload })
      const delayed = yield* app.tasks.create(Job, { payload, delay: "1 hour" })
      const worker = yield* app.jobWorker((_, { attempt }) =>
        attempt === 1
          ? Effect.fail(new Declined({ code: 1 }))
          : attempt === 2
          ? Effect.andThen(running.add(attempt), Effect.as(end.await, 1))
          : Effect.succeed(2), { gracePeriod: "1 minute" })
      yield* running.until(1)
      yield* app.endLease(id)
      yield* app.statusIs(id, "Completed")
      yield* end.open
      yield* worker.stop
      assert.strictEqual(yield* countOf("completed"), before.completed + 1)
      assert.strictEqual(yield* countOf("failed"), before.failed + 1)
      assert.strictEqual(yield* stale, before.stale + 1)
      const ran = yield* Metric.value(
        Metric.withAttributes(Metrics.taskDuration, { task_name: "Job", outcome: "completed", unit: "seconds" })
      )
      assert.isAtLeast(ran.count, 1)
      const gaugeOf = (status: string) =>
        Effect.map(Metric.value(Metric.withAttributes(Metrics.tasks, { status })), ({ value }) => value)
      const oldest = Effect.map(Metric.value(Metrics.taskOldestAge), ({ value }) => value)
      // A worker sweeps when it starts.
      const other = yield* app.jobWorker(() => Effect.succeed(1))
      yield* waitUntil(Effect.map(gaugeOf("pending"), (count) => count === 1))
      assert.strictEqual(yield* oldest, 0)
      yield* other.stop
      yield* app.sql("UPDATE queue_tasks SET run_at = now() - interval '1 hour' WHERE id = $1", [delayed])
      yield* app.jobWorker(() => Effect.succeed(1))
      yield* waitUntil(Effect.map(oldest, (seconds) => seconds >= 3600))
    }))
})
