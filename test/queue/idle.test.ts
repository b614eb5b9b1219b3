/**
 * What processes cost that have nothing to do: the statements that they send.
 */
import { assert, describe, it } from "@effect/vitest"
import { Outbox } from "duroxide-prisma/outbox"
import { Database, PgQueue, PrismaDriver, PrismaProvider, QueueNotifier } from "duroxide-prisma/prisma"
import { Task, TaskWorker } from "duroxide-prisma/tasks"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as TestClock from "effect/testing/TestClock"
import * as Notifier from "../../src/waking/Notifier.ts"
import { Topics } from "../../src/waking/Topics.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const Idle = Task.make("Idle")

/** A database that knows when no statement is under way. */
const watched = (options: Omit<PrismaProvider.DatabaseOptions, "migrate">) => {
  const counts: Record<string, number> = {}
  let underWay = 0
  let turns = 0
  const watching = Layer.effect(
    Database.Database,
    Effect.map(Database.Database, (database) => ({
      ...database,
      query: <Row>(operation: string, sql: Parameters<typeof database.query>[1]) =>
        Effect.suspend(() => {
          counts[operation] = (counts[operation] ?? 0) + 1
          underWay++
          turns = 0
          return Effect.ensuring(database.query<Row>(operation, sql), Effect.sync(() => underWay--))
        })
    }))
  )
  /** Fibers that were woken have sent what they send, and its answers led to nothing else. */
  const rest = Effect.suspend(() => {
    turns = 0
    return Effect.callback<void>((resume) => {
      const look = () => {
        turns = underWay === 0 ? turns + 1 : 0
        if (turns < 20) setImmediate(look)
        else resume(Effect.void)
      }
      look()
    })
  })
  const layer = Layer.fresh(PrismaProvider.layerDatabase({ ...options, migrate: "none" }))
  return {
    counts,
    rest,
    layer: Layer.provideMerge(PrismaDriver.layerTasks(), watching).pipe(
      Layer.merge(Layer.effect(Topics, Topics)),
      Layer.provide(layer)
    )
  }
}

/** The statements of some minutes after a start, by operation. */
const idling = Effect.fnUntraced(function*(
  { counts, rest }: ReturnType<typeof watched>,
  isUp: Effect.Effect<boolean>,
  minutes: number
) {
  yield* TestClock.withLive(waitUntil(isUp))
  // In small steps: what a statement leads to begins when it has been answered.
  const pass = (seconds: number) =>
    Effect.forEach(Array.from({ length: seconds }), () => Effect.andThen(TestClock.adjust("1 second"), rest), {
      discard: true
    })
  yield* pass(90)
  for (const operation of Object.keys(counts)) counts[operation] = 0
  yield* pass(minutes * 60)
  return Object.fromEntries(Object.entries(counts).filter(([, count]) => count > 0))
})

describe("a process that has nothing to do:", () => {
  it.effect("task worker, publisher and consumed queues send a few statements a minute", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const database = watched({ url })
      const services = yield* Layer.build(
        TaskWorker.layer({ tasks: [Idle] }).pipe(
          Layer.provide(Idle.toLayer(() => Effect.void)),
          Layer.merge(Outbox.publisher()),
          Layer.provide(PgQueue.layer({ queues: { tasks: {} } })),
          Layer.provideMerge(database.layer),
          Layer.provide(Logger.layer([]))
        )
      )
      const { isConnected } = Context.get(services, Topics)
      const { checkNotifications = 0, ...others } = yield* idling(database, Effect.sync(isConnected), 10)
      assert.sameMembers(Object.keys(others).filter((operation) => !operation.startsWith("clean")), [
        "sweepTasks",
        "claimOutbox",
        "takeTasks"
      ])
      // One or two a minute; polling, 60. Virtual time can outrun the check of the connection, which then polls for a
      // while.
      for (const [operation, count] of Object.entries(others)) assert.isAtMost(count, 60, operation)
      assert.isAtMost(checkNotifications, 10)
    }).pipe(Effect.scoped))

  it.effect("a queue notifier renews its inbox once a minute; one that cannot listen looks once a second", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const database = watched({ url, longPolling: { enabled: false } })
      const services = yield* Layer.build(
        QueueNotifier.layer({ inboxes: ["hints"] }).pipe(
          Layer.provide(PgQueue.layer({ queues: { hints: {} } })),
          Layer.provide(database.layer),
          Layer.provide(Logger.layer([]))
        )
      )
      let state = ""
      yield* Context.get(services, Notifier.Notifier).listen({
        connected: () => void (state = "connected"),
        disconnected: (problem) => void (state = problem),
        receive: () => {}
      })
      const { receiveMessages = 0, ...others } = yield* idling(database, Effect.sync(() => state === "connected"), 2)
      assert.isAtMost(receiveMessages, 121)
      assert.deepStrictEqual(Object.keys(others), ["renewInbox"])
      assert.isAtMost(others.renewInbox!, 3)
    }).pipe(Effect.scoped))
})
