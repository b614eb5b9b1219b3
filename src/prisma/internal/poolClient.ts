import type * as pg from "pg"

/** Longest wait for the server to accept a connection and the login. */
const connectTimeoutMs = 10_000

/**
 * Connections of a pool, each given up after ten seconds if it cannot be opened.
 *
 * The pool has one limit for this and for the wait for a free connection. After a failover, tries that began before the
 * name led to the new server would hold their places in the pool for as long.
 */
export const poolClientOf = (Client: typeof pg.Client): typeof pg.Client =>
  class extends Client {
    constructor(config?: string | pg.ClientConfig) {
      const given = typeof config === "object" ? config : {}
      const limit = Math.min(given.connectionTimeoutMillis ?? connectTimeoutMs, connectTimeoutMs)
      // What must not be printed is not enumerable, and has to stay so.
      super(Object.create(null, {
        ...Object.getOwnPropertyDescriptors(given),
        connectionTimeoutMillis: { value: limit, enumerable: true }
      }))
    }
  }
