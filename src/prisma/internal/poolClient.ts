import * as pg from "pg"

/** Longest wait for the server to accept a connection and the login. */
const connectTimeoutMs = 10_000

/**
 * A connection of a pool, given up after ten seconds if it cannot be opened.
 *
 * The pool has one limit for this and for the wait for a free connection. After a failover, tries that began before the
 * name led to the new server would hold their places in the pool for as long.
 */
export class PoolClient extends pg.Client {
  constructor(config: pg.ClientConfig = {}) {
    const limit = Math.min(config.connectionTimeoutMillis ?? connectTimeoutMs, connectTimeoutMs)
    // What must not be printed is not enumerable, and has to stay so.
    super(Object.create(null, {
      ...Object.getOwnPropertyDescriptors(config),
      connectionTimeoutMillis: { value: limit, enumerable: true }
    }))
  }
}
