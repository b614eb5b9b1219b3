/**
 * A pool as an application has it, which ends it with the scope.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as pg from "pg"

export const open = (options: pg.PoolConfig): Effect.Effect<pg.Pool, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => new pg.Pool(options)),
    (pool) =>
      Effect.promise(async () => {
        // An end does not wait for the server, and the database of a test is dropped with its sessions.
        pool.on("error", () => {})
        if (!pool.ended) await pool.end()
      })
  )
