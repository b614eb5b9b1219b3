/**
 * One item for many processes on PostgreSQL: how many of them look for it.
 */
import { assert, describe, it } from "@effect/vitest"
import { FromDriver, Provider } from "duroxide-prisma/provider"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Database from "../../src/prisma/Database.ts"
import * as PgNotifier from "../../src/prisma/PgNotifier.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Starts from "../utils/starts.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const processes = 20

/** A process that listens, with a pool of its own. */
const start = Effect.fnUntraced(function*(url: string) {
  const services = yield* Layer.build(
    FromDriver.layer({ longPolling: { notifyDeliveryTimeout: "1 minute" } }).pipe(
      Layer.provide(PrismaDriver.layer()),
      Layer.provide(PgNotifier.layer({ url })),
      Layer.provideMerge(Database.layer({ url, maxConnections: 1 }))
    )
  )
  const { statementCounts } = Context.get(services, Database.Database)
  return {
    provider: Context.get(services, Provider.Provider),
    looks: Effect.map(statementCounts, ({ fetchOrchestrationItems = 0 }) => fetchOrchestrationItems),
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
        const before = yield* untilQuiet
        const starts = 5
        for (let i = 0; i < starts; i++) {
          yield* sender.provider.startOrchestration(Starts.start(`${i}`))
          yield* waitUntil(Effect.sync(() => dropped.length > i))
          yield* untilQuiet
        }
        assert.lengthOf(dropped, starts)
        const looks = (yield* sum) - before
        assert.isAtLeast(looks, starts)
        // Four on average, and a few that learn of it too late; without that, all twenty.
        assert.isBelow(looks, starts * 13)
      }).pipe(Effect.scoped, Effect.provide(Logger.layer([]))),
    60_000
  )
})
