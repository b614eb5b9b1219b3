/**
 * A task worker whose database role may not claim, as that of a client: what its process says of it.
 */
import { assert, describe, it } from "@effect/vitest"
import { Health } from "duroxide-prisma/observability"
import { Database, PgQueue, PrismaDriver, PrismaProvider } from "duroxide-prisma/prisma"
import { ProviderError } from "duroxide-prisma/provider"
import { MemoryQueue, Queue } from "duroxide-prisma/queue"
import { Task, TaskWorker } from "duroxide-prisma/tasks"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as References from "effect/References"
import * as TestClock from "effect/testing/TestClock"
import * as claimRights from "../../src/tasks/internal/claimRights.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const Mail = Task.make("Mail")

const denied = (operation: string) =>
  new ProviderError.ProviderError({
    operation,
    reason: new ProviderError.PermissionDenied({ problem: "permission denied for table queue_messages" })
  })

const nothing = {
  out_tasks: null,
  out_ids: null,
  out_payloads: null,
  out_attempts: null,
  out_died: 0,
  out_now_ms: 0n,
  out_next_ms: null
}

const aMessage = { ...nothing, out_ids: [1n], out_payloads: ["{\"kind\":\"other\"}"], out_attempts: [1] }

/** A worker on a database that refuses all statements but claims that have an `answer`. */
const start = Effect.fnUntraced(function*(
  options: { readonly queue?: Layer.Layer<Queue.Queue, unknown>; readonly answer?: () => object | undefined }
) {
  const { url } = yield* PgServer.database
  const sent: Array<string> = []
  /** When, in virtual milliseconds. */
  const refusals: Array<number> = []
  const lines: Array<string> = []
  const logger = Logger.make(({ fiber, logLevel, message }) => {
    const { error = "" } = fiber.getRef(References.CurrentLogAnnotations)
    lines.push(`${logLevel} ${String(message)} ${String(error)}`)
  })
  const refusing = Layer.effect(
    Database.Database,
    Effect.map(Database.Database, (database) => ({
      ...database,
      query: <Row>(operation: string) =>
        Effect.flatMap(Clock.currentTimeMillis, (nowMs) => {
          sent.push(operation)
          const answer = operation === "takeTasks" ? options.answer?.() : undefined
          if (answer !== undefined) return Effect.succeed([answer as Row])
          if (operation === "takeTasks") refusals.push(nowMs)
          return Effect.fail(denied(operation))
        })
    }))
  )
  const database = yield* Layer.build(
    Layer.provideMerge(PrismaDriver.layerTasks(), refusing).pipe(
      Layer.provideMerge(PrismaProvider.layerDatabase({ url, migrate: "none", longPolling: { enabled: false } })),
      Layer.provide(Logger.layer([]))
    )
  )
  const queue = yield* Layer.build(
    (options.queue ?? PgQueue.layer({ queues: { tasks: {} } })).pipe(Layer.provide(Layer.succeedContext(database)))
  )
  const health = yield* Layer.build(Health.layerTasks().pipe(Layer.provide(Layer.succeedContext(database))))
  const worker = yield* Effect.forkScoped(
    Effect.flip(TaskWorker.launch(TaskWorker.layer({ tasks: [Mail] }))).pipe(
      Effect.provide([Mail.toLayer(() => Effect.void), Layer.succeedContext(queue), Layer.succeedContext(database)]),
      Effect.provide(Logger.layer([logger]))
    ),
    { startImmediately: true }
  )
  const hasFailed = () => worker.pollUnsafe() !== undefined
  const problems = Effect.map(
    Context.get(health, Health.TaskHealth).check,
    ({ problems }) => problems.filter((problem) => problem.includes("task worker"))
  ).pipe(Effect.provide(Logger.layer([])))
  return {
    queue: Context.get(queue, Queue.Queue),
    worker,
    sent,
    lines,
    hasFailed,
    received: waitLive(Effect.sync(() => sent.includes("takeTasks"))),
    problems,
    /** Waits, without virtual time, until its first claim has been refused. */
    refused: waitLive(Effect.map(problems, ({ length }) => length > 0)),
    /** Its claims are refused for longer than a worker of the wrong role takes to fail. */
    refusedForLong: Effect.suspend(() => {
      const first = refusals.length
      return passing(Effect.sync(() => hasFailed() || refusals.at(-1)! - refusals[first]! > 20_000))
    })
  }
})

const waitLive = (holds: Effect.Effect<boolean>) => TestClock.withLive(waitUntil(holds))

/** Virtual time passes in steps, between which what has been answered is handled, until the condition holds. */
const passing = (holds: Effect.Effect<boolean>) =>
  Effect.andThen(TestClock.adjust("1 second"), TestClock.withLive(Effect.andThen(Effect.sleep("1 millis"), holds)))
    .pipe(
      Effect.repeat({ until: (holds) => holds })
    )

const advice =
  "permission denied for table queue_messages. A process with a task worker needs the role of workers (docs/postgresql.md#roles)"

describe("A task worker whose role may not claim", () => {
  it.effect("is a problem of health from the first claim, and fails after 10 seconds", () =>
    Effect.gen(function*() {
      const { hasFailed, lines, problems, refused, sent, worker } = yield* start({})
      yield* refused
      yield* TestClock.adjust("9 seconds")
      assert.isFalse(hasFailed())
      assert.deepStrictEqual(yield* problems, [
        `a task worker of this process may not claim tasks: the database role lacks a right: ${advice}`
      ])
      yield* passing(Effect.sync(hasFailed))
      assert.notInclude(sent, "receiveMessages")
      const error = yield* Fiber.join(worker)
      assert.instanceOf(error, TaskWorker.TaskWorkerFailed)
      assert.strictEqual(error.message, `the task worker has failed: the database role lacks a right: ${advice}`)
      assert.isTrue(lines.some((line) => line.startsWith("Fatal Task worker: its role may not claim")))
      sent.length = 0
      yield* TestClock.adjust("120 seconds")
      assert.deepStrictEqual(sent, [])
    }).pipe(Effect.scoped))

  it.effect("stays a problem of health once it has failed, however its last claims end", () =>
    Effect.gen(function*() {
      const problems = new Set<() => string | undefined>()
      const claims = yield* claimRights.make(problems)
      const refuse = Effect.flip(claims.watch(() => false)(Effect.fail(denied("takeTasks"))))
      yield* refuse
      yield* TestClock.adjust("10 seconds")
      yield* refuse
      yield* Effect.exit(claims.watch(() => false)(Effect.interrupt))
      yield* claims.watch(() => false)(Effect.void)
      assert.deepStrictEqual([...problems].map((problem) => problem()), [
        `a task worker of this process has failed: the database role lacks a right: ${advice}`
      ])
    }).pipe(Effect.scoped))

  it.effect("with queues elsewhere, fails with the claims of what it receives", () =>
    Effect.gen(function*() {
      const { hasFailed, problems, queue, refused, worker } = yield* start({
        queue: MemoryQueue.layer({ queues: { tasks: {} } })
      })
      yield* TestClock.adjust("60 seconds")
      assert.deepStrictEqual(yield* problems, [])
      yield* queue.publish("tasks", { kind: "task_wakeup", task_id: "0190163d-8694-739b-aea5-966c26f8ad91" })
      yield* refused
      assert.include((yield* problems).join(), "may not claim tasks")
      yield* passing(Effect.sync(hasFailed))
      assert.include((yield* Fiber.join(worker)).message, advice)
    }).pipe(Effect.scoped))

  it.effect("for a moment only, as while rights are granted anew, works on", () =>
    Effect.gen(function*() {
      let isRefused = true
      const { hasFailed, problems, refused } = yield* start({ answer: () => isRefused ? undefined : nothing })
      yield* refused
      isRefused = false
      yield* passing(Effect.map(problems, ({ length }) => length === 0))
      yield* TestClock.adjust("60 seconds")
      assert.isFalse(hasFailed())
    }).pipe(Effect.scoped))

  it.effect("after it has received something, stays and tries again", () =>
    Effect.gen(function*() {
      let answer: object | undefined = aMessage
      const { hasFailed, problems, received, refusedForLong } = yield* start({ answer: () => answer })
      yield* received
      answer = undefined
      yield* refusedForLong
      assert.lengthOf(yield* problems, 1)
      assert.isFalse(hasFailed())
    }).pipe(Effect.scoped))
})
