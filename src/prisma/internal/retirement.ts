/**
 * Retires the connections of pools when one of them fails: all that were opened before.
 *
 * After a failover pools are full of connections to a server that takes no writes any longer, or that is gone. Each of
 * them would fail a statement before it is replaced, and one that only reads would keep reading old rows.
 */
import type * as pg from "pg"
import * as SqlFault from "../../provider/SqlFault.ts"

/**
 * Watches the pools of one database from their beginning.
 *
 * **Details**
 *
 * All connections are retired when the server answers that it takes no writes (25006), even inside a transaction; when
 * a connection ends under a statement; when a statement gets no answer; and when the server shuts down. Idle
 * connections are closed at once, busy ones when their statement or transaction ends. `onRetired` is called after that.
 */
export const watch = (pools: ReadonlyArray<pg.Pool>, onRetired: () => void): void => {
  const idle = new Set<pg.PoolClient>()
  const busy = new Set<pg.PoolClient>()
  const retired = new WeakSet<pg.PoolClient>()

  /** A connection that was retired already says nothing about those that were opened since. */
  const retireAll = (because: pg.PoolClient) => {
    if (retired.has(because)) return
    retired.add(because)
    for (const client of busy) retired.add(client)
    for (const client of idle) {
      // The pool removes an idle connection that reports an error.
      client.emit("error", new Error("the connection was retired"))
      abandon(client)
    }
    onRetired()
  }

  for (const pool of pools) {
    pool.on("connect", (client) => {
      client.connection.on("errorMessage", ({ code }: { readonly code?: string }) => {
        if (code === readOnly) retireAll(client)
      })
    })
    pool.on("acquire", (client) => {
      idle.delete(client)
      busy.add(client)
    })
    pool.on("release", (error: unknown, client) => {
      busy.delete(client)
      // The pool removes a connection that failed, and one that is ending.
      if (error) return void (isLost(error) && retireAll(client))
      if (!retired.has(client)) return void idle.add(client)
      void client.end()
      abandon(client)
    })
    pool.on("remove", (client) => {
      idle.delete(client)
      busy.delete(client)
    })
  }
}

/** Whether the connection that failed with this error, and all that are as old, may be those of a lost server. */
export const isLost = (error: unknown): boolean => {
  const reason = SqlFault.classify(error)
  return reason._tag === "ConnectionLost" || (reason._tag === "Unavailable" && stops.has(reason.sqlState))
}

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** The transaction, and so the server, takes no writes. */
const readOnly = "25006"

/** Besides, an administrator ends the session, the server shuts down or crashes. */
const stops = new Set<string | null>([readOnly, "57P01", "57P02", "57P03"])

/** For the goodbye, which a half-open connection never answers. */
const farewellMs = 1000

const abandon = ({ connection: { stream } }: pg.PoolClient) => {
  setTimeout(() => stream.destroy(), farewellMs).unref()
}
