/**
 * Processes on PostgreSQL that wait for activities: who is woken by what, and what each wait costs.
 */
import { assert, describe, it } from "@effect/vitest"
import { FromDriver, Provider } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Database from "../../src/prisma/Database.ts"
import * as PgNotifier from "../../src/prisma/PgNotifier.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import * as Listening from "../utils/listening.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Starts from "../utils/starts.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const silently = Effect.provide(Logger.layer([]))

/** A process that listens. */
const start = Effect.fnUntraced(function*(
  url: string,
  longPolling?: FromDriver.LongPolling,
  lockTimeout: Duration.Input = "30 seconds"
) {
  const services = yield* Layer.build(
    FromDriver.layer({ longPolling }).pipe(
      Layer.provide(PrismaDriver.layer()),
      Layer.provide(PgNotifier.layer({ url })),
      Layer.provideMerge(Database.layer({ url }))
    )
  )
  const { statementCounts } = Context.get(services, Database.Database)
  const provider = Context.get(services, Provider.Provider)
  const looks = Effect.map(statementCounts, ({ fetchWorkItems = 0 }) => fetchWorkItems)
  const fetch = Effect.map(
    provider.fetchWorkItems({
      lockTimeout: Duration.fromInputUnsafe(lockTimeout),
      pollTimeout: Duration.seconds(30),
      tags: { _tag: "DefaultOnly" },
      session: Option.none()
    }),
    ([claimed]) => claimed
  )
  return {
    provider,
    looks,
    /** Callers that wait, in a process that is woken: it has looked because it is connected. */
    waiting: Effect.fnUntraced(function*(count: number) {
      const fetches = yield* Effect.forEach(Array.from({ length: count }), () => Effect.forkChild(fetch))
      yield* waitUntil(Effect.map(statementCounts, ({ readNextDue = 0 }) => readNextDue > 0))
      const isQuiet = Effect.gen(function*() {
        const before = yield* looks
        // On a busy machine a look may take long, and another one follow it.
        yield* Effect.sleep("1 second")
        return (yield* looks) === before
      })
      yield* waitUntil(isQuiet)
      return fetches
    }),
    fetch
  }
})

/** What another program does. */
const insertAt = (visibleAt: string) =>
  `INSERT INTO worker_queue (work_item, visible_at, created_at) VALUES (
    '{"ActivityExecute":{"instance":"a","execution_id":1,"id":9,"name":"A","input":"1"}}', ${visibleAt}, now()
  )`

const activity = (id: number) =>
  ({ _tag: "ActivityExecute", instance: "a", executionId: 1, id, name: "A", input: "1" }) as const

describe("Long polling on PostgreSQL:", () => {
  it.live("work of another process is claimed by one statement, of one caller, and silence costs none", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const worker = yield* start(url)
      const sender = yield* start(url)
      const fetches = yield* worker.waiting(4)
      const before = yield* worker.looks
      yield* sender.provider.enqueueForWorker(activity(1))
      const claimed = yield* Fiber.join(yield* Effect.forkChild(Effect.raceAll(fetches.map(Fiber.join))))
      assert.strictEqual(claimed?.item.id, 1)
      yield* Effect.sleep("1 second")
      assert.lengthOf(fetches.filter((fetch) => fetch.pollUnsafe() !== undefined), 1)
      assert.strictEqual(yield* worker.looks, before + 1)
    }).pipe(silently))

  it.live("work of another program wakes a process, at once and when it is due", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const worker = yield* start(url)
      const [first] = yield* worker.waiting(1)
      yield* sql(insertAt("now()"))
      assert.isDefined(yield* Fiber.join(first!))
      const [second] = yield* worker.waiting(1)
      const begunMs = yield* Clock.currentTimeMillis
      yield* sql(insertAt("now() + interval '1 second'"))
      // Nothing else wakes it: the wait is shorter than the pause before a fallback look.
      assert.isDefined(yield* Fiber.join(second!))
      assert.isAtLeast((yield* Clock.currentTimeMillis) - begunMs, 990)
    }).pipe(silently))

  it.live("a notification that is lost is made up for by the fallback look", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const worker = yield* start(url, { fallbackPollInterval: "2 seconds" })
      const [fetch] = yield* worker.waiting(1)
      yield* sql(`SET LOCAL duroxide.notify = off; ${insertAt("now()")}`)
      assert.isDefined(yield* Fiber.join(fetch!))
    }).pipe(silently))

  it.live("the replacement of the only worker takes its activity over when its lock has run out", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      yield* sql(insertAt("now()"))
      yield* Effect.scoped(Effect.gen(function*() {
        const killed = yield* start(url, { enabled: false }, "4 seconds")
        assert.strictEqual((yield* killed.fetch)?.attemptCount, 1)
      }))
      const until = Effect.map(
        sql<{ until: number }>("SELECT locked_until::float8 AS until FROM worker_queue"),
        ([row]) => row!.until
      )
      const lockEnd = yield* until
      // Its own locks are shorter, so it would look too early, and then not before the fallback look.
      const worker = yield* start(url, {}, "1 second")
      assert.strictEqual((yield* worker.fetch)?.attemptCount, 2)
      const takenAt = (yield* until) - 1_000
      assert.isAtLeast(takenAt, lockEnd)
      assert.isAtMost(yield* worker.looks, 6)
    }).pipe(silently))

  it.live("messages beyond those that one claim takes are claimed after its turn", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const { provider } = yield* start(url, { fallbackPollInterval: "10 hours" })
      const taken: Array<number> = []
      const take = Effect.gen(function*() {
        const claimed = yield* provider.fetchOrchestrationItem({
          lockTimeout: Duration.minutes(10),
          pollTimeout: Duration.seconds(30),
          versions: Option.none()
        })
        const { item, lockToken } = Option.getOrThrow(claimed)
        taken.push(item.messages.length)
        if (taken.length === 1) {
          yield* sql(
            `INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
             SELECT 'a', '{"ExternalRaised":{"instance":"a","name":"E","data":"1"}}', now(), now() FROM generate_series(1, 5000)`
          )
        }
        yield* provider.dropOrchestrationItem(lockToken)
      })
      yield* provider.startOrchestration(Starts.start("a"))
      // More callers than there are instances, so that no claim asks for another one because it was full.
      const isDone = Effect.sync(() => taken.reduce((sum, count) => sum + count, 0) === 5_001)
      for (let i = 0; i < 3; i++) yield* Effect.forkChild(Effect.forever(take))
      yield* waitUntil(isDone)
      assert.isAtLeast(taken.length, 3)
    }).pipe(silently))

  it.live("work is found while the connection that listens is down", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const worker = yield* start(test.url)
      const sender = yield* start(test.url)
      const fetches = yield* worker.waiting(3)
      for (const [i, fetch] of fetches.entries()) {
        for (const { pid } of yield* Listening.backends(test)) {
          yield* test.sql("SELECT pg_terminate_backend($1)", [pid])
        }
        yield* sender.provider.enqueueForWorker(activity(i))
        assert.isDefined(yield* Fiber.join(fetch))
      }
    }).pipe(silently))
})
