/**
 * One item for many processes on PostgreSQL: how many of them look for it, and that processes which only start and wait
 * delay none of them.
 */
import { assert, describe, it } from "@effect/vitest"
import { FromDriver, Provider } from "duroxide-prisma/provider"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as TestClock from "effect/testing/TestClock"
import * as Database from "../../src/prisma/Database.ts"
import { Prisma } from "../../src/prisma/internal/client.ts"
import * as PgNotifier from "../../src/prisma/PgNotifier.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Starts from "../utils/starts.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const processes = 20

/** A process that listens, with a pool of its own. */
const start = Effect.fnUntraced(function*(url: string) {
  const services = yield* Layer.build(
    FromDriver.layer().pipe(
      Layer.provide(PrismaDriver.layer()),
      Layer.provide(PgNotifier.layer({ url })),
      Layer.provideMerge(Database.layer({ url, maxConnections: 1 }))
    )
  )
  const { query, statementCounts } = Context.get(services, Database.Database)
  return {
    provider: Context.get(services, Provider.Provider),
    looks: Effect.map(statementCounts, ({ fetchOrchestrationItems = 0 }) => fetchOrchestrationItems),
    /** It has counted the others: its only connection has answered what was sent before. */
    hasCounted: Effect.map(
      Effect.tap(statementCounts, () => query("test", Prisma.sql`SELECT 1`)),
      ({ countListeners = 0 }) => countListeners > 0
    ),
    isConnected: Effect.map(statementCounts, ({ readNextDue = 0 }) => readNextDue > 0)
  }
})

describe("One start on PostgreSQL", () => {
  it.live(
    `${processes} processes that could run it: one claims it, and most of the others are spared their look`,
    () =>
      Effect.gen(function*() {
        const { url } = yield* PgServer.database
        const servers = yield* Effect.forEach(Array.from({ length: processes }), () => start(url), { concurrency: 4 })
        const dropped: Array<string> = []
        for (const { provider } of servers) {
          const claim = Effect.gen(function*() {
            const claimed = Option.getOrUndefined(
              yield* provider.fetchOrchestrationItem({
                lockTimeout: Duration.seconds(30),
                pollTimeout: Duration.seconds(30),
                versions: Option.none()
              })
            )
            if (claimed === undefined) return
            dropped.push(claimed.item.instanceId)
            yield* provider.dropOrchestrationItem(claimed.lockToken)
          })
          // With callers to spare, a claim shows that there is no more.
          for (let i = 0; i < 2; i++) yield* Effect.forkScoped(Effect.forever(claim))
        }
        const sender = yield* start(url)
        const sum = Effect.map(
          Effect.forEach(servers, ({ looks }) => looks),
          (all) => all.reduce((sum, one) => sum + one, 0)
        )
        yield* waitUntil(Effect.map(
          Effect.forEach(servers, ({ isConnected }) => isConnected),
          (all) => all.every((isConnected) => isConnected)
        ))
        /** Looks until nothing has happened for longer than any late look may take. */
        const untilQuiet: Effect.Effect<number> = Effect.gen(function*() {
          const before = yield* sum
          yield* Effect.sleep("1200 millis")
          return (yield* sum) === before ? before : yield* untilQuiet
        })
        let before = yield* untilQuiet
        const looks: Array<number> = []
        // Four look on average, and those that learn of the claim too late, which are many on a busy machine: one start
        // that spares the others is enough. Without that, each start has all twenty.
        for (let i = 0; i < 40 && !(Math.min(...looks) < 13); i++) {
          yield* sender.provider.startOrchestration(Starts.start(`${i}`))
          yield* waitUntil(Effect.sync(() => dropped.length > i))
          const after = yield* untilQuiet
          looks.push(after - before)
          before = after
        }
        assert.lengthOf(dropped, looks.length)
        for (const count of looks) assert.isAtLeast(count, 1)
        assert.isBelow(Math.min(...looks), 13)
      }).pipe(Effect.scoped, Effect.provide(Logger.layer([])))
  )

  it.live(
    "one worker among 30 processes that only start: it looks at once",
    () =>
      Effect.gen(function*() {
        const { url } = yield* PgServer.database
        const shared = yield* Layer.build(
          PrismaDriver.layer().pipe(
            Layer.provideMerge(Database.layer({ url, maxConnections: 2 }))
          )
        )
        const client = Effect.map(
          Layer.build(Layer.fresh(
            FromDriver.layer().pipe(
              Layer.provide(PgNotifier.layer({ url })),
              Layer.provide(Layer.succeedContext(shared))
            )
          )),
          (services) => Context.get(services, Provider.Provider)
        )
        const clients = yield* Effect.forEach(Array.from({ length: 30 }), () => client)
        const { query } = Context.get(shared, Database.Database)
        yield* waitUntil(Effect.map(
          query<{ readonly count: number }>(
            "test",
            Prisma.sql`SELECT count(*)::integer AS count FROM pg_stat_activity
              WHERE datname = current_database() AND starts_with(application_name, 'duroxide-prisma listener')`
          ),
          ([row]) => row!.count === clients.length
        ))
        // Its clock stands still: a look that is put off never comes. It always draws the latest moment.
        const worker = yield* start(url).pipe(
          Effect.provide(TestClock.layer()),
          Effect.provideService(Random.Random, { nextDoubleUnsafe: () => 1 - 2 ** -53, nextIntUnsafe: () => 0 })
        )
        const claim = yield* Effect.forkScoped(worker.provider.fetchOrchestrationItem({
          lockTimeout: Duration.seconds(30),
          pollTimeout: Duration.seconds(30),
          versions: Option.none()
        }))
        yield* waitUntil(worker.isConnected)
        yield* waitUntil(worker.hasCounted)
        yield* clients[0]!.startOrchestration(Starts.start("one"))
        const claimed = Option.flatten(yield* Effect.timeoutOption(Fiber.join(claim), "60 seconds"))
        assert.strictEqual(Option.getOrUndefined(claimed)?.item.instanceId, "one")
      }).pipe(Effect.scoped, Effect.provide(Logger.layer([])))
  )
})
