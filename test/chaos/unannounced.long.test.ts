import { assert, describe, it } from "@effect/vitest"
import { Client, Runtime, RuntimeConfig } from "duroxide-prisma"
import { Database, PrismaProvider } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Semaphore from "effect/Semaphore"
import { Report, ReportsLive } from "../programs/reports.ts"
import { RoundsLive } from "../programs/rounds.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const lockTimeout = "2 seconds"

/** A process that lives, with locks of two seconds. Nothing but hints and the ends of locks make it look. */
const survivor = (url: string) =>
  Layer.mergeAll(
    RoundsLive,
    Runtime.layer({ orchestrations: [Report] }).pipe(Layer.provide(ReportsLive)),
    Client.layer
  ).pipe(
    Layer.provideMerge(
      PrismaProvider.layer({
        url,
        migrate: "verify",
        longPolling: { fallbackPollInterval: "1 hour" }
      })
    ),
    Layer.provide(RuntimeConfig.layer({ orchestrationLockTimeout: lockTimeout, workerLockTimeout: lockTimeout }))
  )

/** What it looks for after its start, for example the locks of before, is over. */
const quiet = Effect.gen(function*() {
  const { statementCounts } = yield* Database.Database
  const looks = Effect.map(statementCounts, (counts) => JSON.stringify(counts))
  yield* waitUntil(Effect.gen(function*() {
    const before = yield* looks
    yield* Effect.sleep("5 seconds")
    return (yield* looks) === before
  }))
})

/** They become quiet side by side, and die one after the other: hints of a process that starts may be a second late. */
const oneAtATime = Semaphore.makeUnsafe(1).withPermits(1)

describe.concurrent("Killed between a commit and its announcement, on a quiet system:", () => {
  const youngest = "(SELECT instance_id FROM instances ORDER BY created_at DESC LIMIT 1)"
  const hasEnded = `executions WHERE status = 'Completed' AND instance_id = ${youngest}`
  const moments = [
    { moment: "turn", what: "a turn that continues as new", seen: hasEnded },
    { moment: "start", what: "a start", seen: hasEnded },
    { moment: "served", what: "a start in a process that serves it", seen: hasEnded },
    { moment: "signal", what: "a signal", seen: "instances WHERE custom_status = 'first'" }
  ] as const
  for (const { moment, seen, what } of moments) {
    it.live(`what ${what} has stored is found when the locks run out`, () =>
      Effect.gen(function*() {
        const { sql, url } = yield* PgServer.database
        const found = Effect.map(sql(`SELECT FROM ${seen}`), ({ length }) => length > 0)
        // The others wait for one that hangs, so it says what it waits for.
        const said = (what: string) => Effect.sync(() => console.error(what))
        const left = Effect.map(
          sql(
            `SELECT 'message' AS what, instance_id, visible_at, lock_token, locked_until FROM orchestrator_queue
             UNION ALL SELECT 'activity', instance_id, visible_at, lock_token, locked_until FROM worker_queue
             UNION ALL SELECT 'lock', instance_id, now(), lock_token, locked_until FROM instance_locks`
          ),
          (rows) => `${moment}: not found: ${JSON.stringify(rows)}`
        )
        yield* Effect.gen(function*() {
          const client = yield* Client.Client
          if (moment === "signal") yield* client.start(Report, { instanceId: "r" })
          yield* quiet
          yield* oneAtATime(Effect.gen(function*() {
            const dying = yield* ChildProcess.start("dying", url, moment)
            yield* Effect.onInterrupt(dying.ended, () => said(`${moment}: it has not died: ${dying.output()}`))
            assert.isFalse(yield* found)
            const diedMs = Date.now()
            yield* Effect.onInterrupt(waitUntil(found), () =>
              Effect.flatMap(left, (left) => said(`${left}\n${dying.output()}`)))
            // Three seconds on a quiet machine; the next fallback look is an hour away.
            assert.isBelow(Date.now() - diedMs, 120_000)
          }))
        }).pipe(Effect.provide(survivor(url)))
      }).pipe(Effect.scoped, Effect.provide(Logger.layer([]))))
  }
})
