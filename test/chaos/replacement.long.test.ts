import { assert, describe, it } from "@effect/vitest"
import { Client, Runtime } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { Calls, Endless, ReportsLive } from "../programs/reports.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"

describe("The replacement of the only worker, which was killed,", () => {
  it.live(
    "takes its activity over when the lock has run out, although its own locks are longer",
    () =>
      Effect.gen(function*() {
        const { sql, url } = yield* PgServer.database
        const holder = yield* ChildProcess.start("holder", url, "4000")
        const store = PrismaProvider.layer({ url, migrate: "verify" })
        yield* Effect.provide(
          Effect.flatMap(Client.Client, (client) => client.start(Calls, { instanceId: "c" })),
          Client.layer.pipe(Layer.provide(store))
        )
        yield* holder.printed("running")
        yield* holder.kill
        const [lock] = yield* sql<{ until: number }>("SELECT locked_until::float8 AS until FROM worker_queue")

        const begun = yield* Deferred.make<number>()
        const replacement = Runtime.layer({ orchestrations: [Calls], activities: [Endless] }).pipe(
          Layer.provide([
            ReportsLive,
            Endless.toLayer(() => Effect.asVoid(Deferred.complete(begun, storeNow)))
          ]),
          Layer.provideMerge(Client.layer),
          Layer.provide(store)
        )
        const storeNow = Effect.map(
          sql<{ now: number }>("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS now"),
          ([row]) => row!.now
        )
        yield* Effect.provide(Effect.flatMap(Client.Client, (client) => client.wait(Calls, "c")), replacement)
        const lateMs = (yield* Deferred.await(begun)) - lock!.until
        assert.isAtLeast(lateMs, 0)
        // A second on a quiet machine. By its own lock timeout it would look after half a minute.
        assert.isBelow(lateMs, 20_000)
      }).pipe(Effect.scoped, Effect.provide(Logger.layer([])))
  )
})
