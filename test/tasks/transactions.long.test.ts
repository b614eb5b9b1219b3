import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration } from "duroxide-prisma"
import { PgQueue, Transaction } from "duroxide-prisma/prisma"
import { Task, Tasks } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Schema from "effect/Schema"
import type * as pg from "pg"
import { connect } from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import { gate, Job, makeCalls, open, queues } from "./utils/tasks.ts"

const server = PgQueue.layer({ queues })

const test = (
  title: string,
  body: (app: Effect.Success<ReturnType<typeof open>>) => Effect.Effect<void, unknown, any>
) => it.live(title, () => Effect.scoped(Effect.flatMap(open(server), body)) as Effect.Effect<void, unknown>)

const payload = { n: 1 }

/** Runs `body` in a transaction that commits if it succeeds. */
const transaction = <A, E>(client: pg.Client, body: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.promise(() => client.query("BEGIN")).pipe(
    Effect.andThen(body),
    Effect.tap(Effect.promise(() => client.query("COMMIT"))),
    Effect.tapError(() => Effect.promise(() => client.query("ROLLBACK")))
  )

const insert = (client: pg.Client, attempt: number) =>
  Effect.promise(() => client.query("INSERT INTO outputs VALUES ($1)", [attempt]))

const prepare = Effect.fnUntraced(function*(app: Effect.Success<ReturnType<typeof open>>) {
  yield* app.sql("CREATE TABLE outputs (attempt integer)")
  yield* app.publisher
  return {
    client: yield* connect(app.url),
    other: yield* connect(app.url),
    outputs: Effect.map(
      app.sql<{ attempt: number }>("SELECT attempt FROM outputs ORDER BY 1"),
      (rows) => rows.map(({ attempt }) => attempt)
    )
  }
})

describe("Tasks: a handler's own transaction", () => {
  test("commits its rows and the end of the task together", (app) =>
    Effect.gen(function*() {
      const { client, outputs } = yield* prepare(app)
      const inside = makeCalls<string>()
      yield* app.jobWorker((_, attempt) =>
        Effect.as(
          Effect.orDie(transaction(
            client,
            Effect.gen(function*() {
              yield* insert(client, attempt.attempt)
              yield* attempt.commit(client, 11)
              // Not before the commit.
              yield* inside.add((yield* Effect.orDie(app.tasks.status(attempt.taskId)))._tag)
            })
          )),
          -1
        )
      )
      const id = yield* app.tasks.create(Job, { payload })
      assert.strictEqual(yield* app.tasks.wait(Job, id), 11)
      assert.deepStrictEqual(inside.calls, ["Running"])
      assert.deepStrictEqual(yield* outputs, [1])
      assert.deepStrictEqual(yield* app.outcomes(id), ["Completed"])
    }))

  test("that holds its task delays a cancellation until it ends", (app) =>
    Effect.gen(function*() {
      const { client } = yield* prepare(app)
      const held = makeCalls<number>()
      const end = gate()
      yield* app.jobWorker((_, attempt) =>
        Effect.as(
          Effect.orDie(transaction(
            client,
            attempt.lock(client).pipe(Effect.andThen(held.add(attempt.attempt)), Effect.andThen(end.await))
          )),
          1
        ).pipe(Effect.andThen(Effect.never))
      )
      const id = yield* app.tasks.create(Job, { payload })
      yield* held.until(1)
      const cancelling = yield* Effect.forkChild(app.tasks.cancel(id, "not needed"))
      // It is sent again and again: no statement waits longer than 50 ms for a row.
      yield* waitUntil(Effect.map(app.statementCounts, ({ cancelTasks = 0 }) => cancelTasks >= 3))
      assert.strictEqual((yield* app.tasks.status(id))._tag, "Running")
      yield* end.open
      assert.isTrue(yield* Fiber.join(cancelling))
      assert.deepStrictEqual(yield* app.outcomes(id), ["Cancelled"])
    }))

  test("that is repeated because the answer to its commit was lost is refused: its rows are stored once", (app) =>
    Effect.gen(function*() {
      const { client, outputs } = yield* prepare(app)
      const refusals = makeCalls<string>()
      yield* app.jobWorker((_, attempt) => {
        const once = transaction(
          client,
          Effect.andThen(insert(client, attempt.attempt), attempt.commit(client, attempt.attempt))
        )
        return Effect.orDie(once).pipe(
          // The handler believes that it failed.
          Effect.andThen(Effect.catch(once, ({ _tag }) => refusals.add(_tag))),
          Effect.as(-1)
        )
      })
      const id = yield* app.tasks.create(Job, { payload })
      assert.strictEqual(yield* app.tasks.wait(Job, id), 1)
      yield* refusals.until(1)
      assert.deepStrictEqual(refusals.calls, ["StaleAttempt"])
      assert.deepStrictEqual(yield* outputs, [1])
      assert.deepStrictEqual(yield* app.outcomes(id), ["Completed"])
    }))

  test("that is rolled back leaves the task to its next attempt, also when the handler ends well", (app) =>
    Effect.gen(function*() {
      const { client, outputs } = yield* prepare(app)
      yield* app.jobWorker((_, attempt) =>
        transaction(
          client,
          Effect.gen(function*() {
            yield* insert(client, attempt.attempt)
            yield* attempt.commit(client, attempt.attempt)
            if (attempt.attempt === 1) return yield* Effect.fail("rolled back")
          })
        ).pipe(Effect.ignore, Effect.as(-1))
      )
      const id = yield* app.tasks.create(Job, { payload })
      assert.strictEqual(yield* app.tasks.wait(Job, id), 2)
      assert.deepStrictEqual(yield* outputs, [2])
      assert.deepStrictEqual(yield* app.outcomes(id), ["Died", "Completed"])
    }))

  test("that has committed stands, even if the handler fails afterwards", (app) =>
    Effect.gen(function*() {
      const { client, outputs } = yield* prepare(app)
      yield* app.jobWorker((_, attempt) =>
        Effect.andThen(
          Effect.orDie(transaction(client, Effect.andThen(insert(client, 1), attempt.commit(client, 12)))),
          Effect.die(new Error("too late"))
        )
      )
      const id = yield* app.tasks.create(Job, { payload })
      assert.strictEqual(yield* app.tasks.wait(Job, id), 12)
      assert.deepStrictEqual(yield* outputs, [1])
      assert.deepStrictEqual(yield* app.outcomes(id), ["Completed"])
    }))

  test("of a zombie is refused, so that each output is committed once, by the newest attempt", (app) =>
    Effect.gen(function*() {
      const { client, other, outputs } = yield* prepare(app)
      const running = makeCalls<number>()
      const refused = makeCalls<string>()
      const awake = gate()
      yield* app.jobWorker((_, attempt) =>
        Effect.gen(function*() {
          yield* running.add(attempt.attempt)
          const mine = attempt.attempt === 1 ? client : other
          if (attempt.attempt === 1) yield* awake.await
          yield* transaction(mine, Effect.andThen(insert(mine, attempt.attempt), attempt.commit(mine, attempt.attempt)))
          return -1
        }).pipe(
          Effect.tapError((error) => refused.add(error._tag)),
          Effect.orDie
        )
      )
      const id = yield* app.tasks.create(Job, { payload })
      yield* running.until(1)
      yield* app.endLease(id)
      yield* app.statusIs(id, "Completed")
      yield* awake.open
      yield* refused.until(1)
      assert.deepStrictEqual(refused.calls, ["StaleAttempt"])
      assert.deepStrictEqual(yield* outputs, [2])
      assert.strictEqual(yield* app.tasks.wait(Job, id), 2)
    }))

  test("of a zombie, refused within a promise, is a warning and not the death of the handler", (app) =>
    Effect.gen(function*() {
      const { client, outputs } = yield* prepare(app)
      const running = makeCalls<number>()
      const awake = gate()
      const end = gate()
      yield* app.jobWorker((_, attempt) =>
        Effect.gen(function*() {
          yield* running.add(attempt.attempt)
          if (attempt.attempt === 2) return yield* Effect.as(end.await, 2)
          yield* awake.await
          // As `$transaction` of Prisma.
          yield* Effect.promise(async () => {
            await client.query("BEGIN")
            try {
              await client.query("INSERT INTO outputs VALUES (1)")
              await Effect.runPromise(attempt.commit(client, 1))
            } catch (error) {
              await client.query("ROLLBACK")
              throw error
            }
          })
          return 1
        })
      )
      const id = yield* app.tasks.create(Job, { payload })
      yield* running.until(1)
      yield* app.endLease(id)
      yield* running.until(2)
      yield* awake.open
      yield* waitUntil(Effect.sync(() => app.linesOf("attempt").length > 0))
      yield* end.open
      assert.strictEqual(yield* app.tasks.wait(Job, id), 2)
      const [line, ...others] = app.linesOf("a stale attempt was refused")
      assert.deepInclude(line, { logLevel: "Warn", task_id: id, attempt: 1, error_type: "StaleAttempt" })
      assert.lengthOf(others, 0)
      assert.deepStrictEqual(app.linesOf("handler died"), [])
      assert.deepStrictEqual(yield* outputs, [])
      assert.deepStrictEqual(yield* app.outcomes(id), ["Lost", "Completed"])
    }))

  test("that was rolled back leaves its attempt to be interrupted, as by a cancellation", (app) =>
    Effect.gen(function*() {
      const { client, outputs } = yield* prepare(app)
      const steps = makeCalls<string>()
      yield* app.jobWorker((_, attempt) =>
        Effect.gen(function*() {
          yield* Effect.promise(() => client.query("BEGIN"))
          yield* insert(client, 1)
          yield* attempt.commit(client, 1)
          yield* Effect.promise(() => client.query("ROLLBACK"))
          yield* steps.add("rolled back")
          return yield* Effect.never
        }).pipe(Effect.orDie, Effect.onInterrupt(() => steps.add("interrupted")))
      )
      const id = yield* app.tasks.create(Job, { payload })
      yield* steps.until(1)
      yield* app.tasks.cancel(id, "no longer wanted")
      yield* steps.until(2)
      assert.deepStrictEqual(steps.calls, ["rolled back", "interrupted"])
      assert.deepStrictEqual(yield* outputs, [])
      assert.deepStrictEqual(yield* app.outcomes(id), ["Cancelled"])
    }))

  test("locks its attempt: no other one begins before it ends, and a stale one gets no lock", (app) =>
    Effect.gen(function*() {
      const { client, other } = yield* prepare(app)
      const running = makeCalls<number>()
      const locked = makeCalls<string>()
      const awake = gate()
      yield* app.jobWorker((_, attempt) =>
        Effect.gen(function*() {
          yield* running.add(attempt.attempt)
          if (attempt.attempt === 2) return 2
          yield* Effect.promise(() => client.query("BEGIN"))
          yield* attempt.lock(client)
          yield* locked.add("locked")
          yield* awake.await
          yield* Effect.promise(() => client.query("COMMIT"))
          return 1
        }).pipe(Effect.orDie)
      )
      const id = yield* app.tasks.create(Job, { payload })
      yield* locked.until(1)
      const [claim] = yield* app.sql(
        `SELECT out_outcome AS outcome FROM dx_claim_tasks($1, '{Job}', '{1000}', 'w', p_now_ms => 9e15::bigint)`,
        [[id]]
      )
      assert.deepStrictEqual(claim, { outcome: "Locked" })
      yield* awake.open
      assert.strictEqual(yield* app.tasks.wait(Job, id), 1)
      const lockAgain = yield* Effect.promise(() => other.query("SELECT dx_lock_attempt($1, 1) AS is_newest", [id]))
      assert.deepStrictEqual(lockAgain.rows, [{ is_newest: false }])
    }))

  test("that spans a heartbeat keeps its lease: the next one comes soon after it", (app) =>
    Effect.gen(function*() {
      const { client } = yield* prepare(app)
      const Slow = Task.make("Slow", { lease: "6 seconds" })
      const ended = gate()
      const isOlderThan = (age: string) =>
        Effect.map(
          app.sql("SELECT FROM queue_tasks WHERE clock_timestamp() > started_at + $1::interval", [age]),
          ({ length }) => length === 1
        )
      yield* app.worker(
        { gracePeriod: 0, tasks: [Slow] },
        Slow.toLayer(() =>
          Effect.gen(function*() {
            const attempt = yield* Task.Attempt
            yield* Effect.orDie(transaction(
              client,
              attempt.lock(client).pipe(Effect.andThen(waitUntil(isOlderThan("3.5 seconds"))))
            ))
            yield* ended.await
          })
        )
      )
      const id = yield* app.tasks.create(Slow, {})
      const heartbeat = app.sql<{ seconds: number }>(
        `SELECT extract(epoch FROM heartbeat_at - started_at)::float8 AS seconds FROM queue_tasks
        WHERE heartbeat_at > started_at + interval '3 seconds'`
      )
      yield* waitUntil(Effect.map(heartbeat, ({ length }) => length === 1))
      // Without that, when the lease ends.
      assert.isBelow((yield* heartbeat)[0]!.seconds, 5)
      yield* ended.open
      yield* app.tasks.wait(Slow, id)
      assert.deepStrictEqual(yield* app.outcomes(id), ["Completed"])
    }))

  test("is refused a result that is not of the Schema, and the task has its next attempt", (app) =>
    Effect.gen(function*() {
      const { client } = yield* prepare(app)
      const errors = makeCalls<string>()
      yield* app.jobWorker((_, attempt) =>
        attempt.attempt === 2 ? Effect.succeed(2) : attempt.commit(client, "text").pipe(
          Effect.tapError((error) => errors.add(error._tag)),
          Effect.orDie,
          Effect.as(1)
        )
      )
      const id = yield* app.tasks.create(Job, { payload })
      assert.strictEqual(yield* app.tasks.wait(Job, id), 2)
      assert.deepStrictEqual(errors.calls, ["PayloadMismatch"])
    }))

  test("starts an orchestration and creates a task with the rows and the end of its own", (app) =>
    Effect.gen(function*() {
      const { client, outputs } = yield* prepare(app)
      const Next = Orchestration.make("Next", { payload: Schema.Number })
      const Follow = Task.make("Follow")
      yield* app.jobWorker((_, attempt) =>
        Effect.as(
          transaction(
            client,
            Effect.gen(function*() {
              yield* insert(client, attempt.attempt)
              yield* Client.within(Transaction.make(client, { schema: "public" })).start(Next, {
                instanceId: attempt.taskId,
                payload: 1
              })
              yield* Tasks.within(Transaction.make(client, { schema: "public" })).create(Follow, {
                key: attempt.taskId
              })
              yield* attempt.commit(client, 1)
              if (attempt.attempt === 1) return yield* Effect.fail("rolled back")
            })
          ).pipe(Effect.ignore),
          1
        )
      )
      const id = yield* app.tasks.create(Job, { payload })
      yield* app.tasks.wait(Job, id)
      assert.deepStrictEqual(yield* outputs, [2])
      assert.deepStrictEqual(yield* app.sql("SELECT instance_id FROM orchestrator_queue"), [{ instance_id: id }])
      assert.deepStrictEqual(yield* app.sql("SELECT key FROM queue_tasks WHERE name = 'Follow'"), [{ key: id }])
    }))
})

describe("Tasks: the outbox", () => {
  test("the core publishes nothing: it writes rows of the outbox in the transactions of the tasks", (app) =>
    Effect.gen(function*() {
      // Without a publisher.
      const ids = yield* app.tasks.createMany(Job, [{ payload }, { payload, delay: "1 hour" }])
      yield* app.jobWorker((_, { attempt }) => attempt === 1 ? Effect.die("once") : Effect.succeed(attempt))
      const written = app.sql(`SELECT t.id = (o.payload ->> 'task_id')::uuid AS is_own, o.sent_at IS NULL AS is_unsent,
          o.deliver_at = t.run_at AS is_on_time, o.xmin = t.xmin AS is_of_one_transaction
        FROM queue_outbox AS o JOIN queue_tasks AS t ON t.id::text = o.payload ->> 'task_id'`)
      const own = { is_own: true, is_unsent: true, is_on_time: true, is_of_one_transaction: true }
      assert.deepStrictEqual(yield* written, [own, own])
      assert.deepStrictEqual(yield* app.sql("SELECT FROM queue_messages"), [])
      assert.deepStrictEqual(app.counting.published, [])

      yield* app.publisher
      assert.strictEqual(yield* app.tasks.wait(Job, ids[0]!), 2)
      yield* app.tasks.cancel(ids[1]!, "enough")
      // The first wake-up and that of the retry.
      assert.lengthOf(app.counting.published, 2)
      app.counting.assertOnlyPublisher()
    }))
})
