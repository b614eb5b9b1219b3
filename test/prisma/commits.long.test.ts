/**
 * PostgreSQL commits transactions that notify one at a time, so a slow commit makes the others wait.
 */
import { assert, describe, it } from "@effect/vitest"
import { ProviderDriver } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Database from "../../src/prisma/Database.ts"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import * as ServerPair from "../utils/serverPair.ts"
import { waitUntil } from "../utils/waitUntil.ts"

describe("A commit that waits for its standby", () => {
  it.live("does not make the commits behind it fail", () =>
    Effect.gen(function*() {
      const { primary, standby } = yield* ServerPair.make
      yield* Effect.provide(Migrator.migrate({ url: primary.url }), Logger.layer([]))
      // Without a notifier, so statements notify in their transactions.
      const driver = yield* Effect.provide(
        ProviderDriver.ProviderDriver,
        yield* Layer.build(PrismaDriver.layer().pipe(Layer.provide(Database.layer({ url: primary.url }))))
      )
      const start = (instanceId: string) =>
        Effect.forkChild(
          driver.startOrchestrations([{
            instanceId,
            orchestrationName: "flow",
            orchestrationVersion: null,
            workItem: `{"StartOrchestration":{"instance":"${instanceId}","orchestration":"flow","input":""}}`,
            pinnedVersion: { major: 0, minor: 1, patch: 30 },
            delayMs: null
          }]),
          { startImmediately: true }
        )
      yield* standby.freeze
      const first = yield* start("first")
      yield* waitUntil(hasRow(primary.sql("SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'")))
      const behind = yield* start("behind")
      yield* Effect.raceFirst(
        Fiber.join(behind),
        waitUntil(hasRow(primary.sql(
          `SELECT FROM pg_locks WHERE locktype = 'object' AND waitstart < clock_timestamp() - interval '500 milliseconds'`
        )))
      )
      yield* standby.thaw
      assert.deepStrictEqual([yield* Fiber.join(first), yield* Fiber.join(behind)], [["Started"], ["Started"]])
    }).pipe(Effect.scoped))
})

const hasRow = (rows: Effect.Effect<ReadonlyArray<unknown>>) => Effect.map(rows, ({ length }) => length > 0)
