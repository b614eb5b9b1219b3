/**
 * PostgreSQL commits transactions that notify one at a time, so a slow commit makes the others wait.
 */
import { assert, describe, it } from "@effect/vitest"
import { ProviderDriver } from "duroxide-prisma/provider"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { randomUUID } from "node:crypto"
import * as Database from "../../src/prisma/Database.ts"
import * as taskDrivers from "../../src/prisma/internal/tasks/driver.ts"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import * as ServerPair from "../utils/serverPair.ts"
import { waitUntil } from "../utils/waitUntil.ts"

describe("A commit that waits for its standby", () => {
  it.live("does not make the commits behind it fail", () =>
    Effect.gen(function*() {
      const { primary, standby } = yield* ServerPair.make
      yield* Effect.provide(Migrator.migrate({ url: primary.url }), Logger.layer([]))
      // Without a notifier, so starts notify in their transactions; and a trigger of the application that notifies.
      const services = yield* Layer.build(
        Layer.provideMerge(PrismaDriver.layer(), Database.layer({ url: primary.url }))
      )
      const driver = Context.get(services, ProviderDriver.ProviderDriver)
      const tasks = taskDrivers.make(Context.get(services, Database.Database))
      const taskId = randomUUID()
      yield* primary.sql(
        `CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NOTIFY tasks; RETURN NULL; END $$`
      )
      yield* primary.sql("CREATE TRIGGER tell AFTER UPDATE ON queue_tasks EXECUTE FUNCTION tell()")
      yield* primary.sql("SELECT FROM dx_create_tasks($1::jsonb)", [
        JSON.stringify([{ id: taskId, name: "Work", payload: "{}", max_attempts: 1, queue: "tasks", wakeup: "{}" }])
      ])
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
      const claim = yield* Effect.forkChild(
        tasks.claim([taskId], { workerId: "w", names: ["Work"], leaseMs: [30_000] }, {
          claimId: 1,
          suspects: [64, 16, 4, 1]
        }),
        { startImmediately: true }
      )
      yield* Effect.raceAllFirst([
        Fiber.join(behind),
        Fiber.join(claim),
        waitUntil(Effect.map(
          primary.sql(
            `SELECT FROM pg_locks WHERE locktype = 'object' AND waitstart < clock_timestamp() - interval '500 milliseconds'`
          ),
          ({ length }) => length === 2
        ))
      ])
      yield* standby.thaw
      assert.deepStrictEqual([yield* Fiber.join(first), yield* Fiber.join(behind)], [["Started"], ["Started"]])
      assert.deepStrictEqual((yield* Fiber.join(claim)).map(({ outcome }) => outcome), ["Claimed"])
    }).pipe(Effect.scoped))
})

const hasRow = (rows: Effect.Effect<ReadonlyArray<unknown>>) => Effect.map(rows, ({ length }) => length > 0)
