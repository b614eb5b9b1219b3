/**
 * A pool that saves the server from logins it does not need. A login costs more than most statements, so a burst of
 * them, in every process of a fleet, slows down everything else.
 */
import * as Predicate from "effect/Predicate"
import * as pg from "pg"
import * as Parsers from "./parsers.ts"

/** Longest wait for the server to accept a connection and the login. */
export const connectTimeoutMs = 10_000

/** Logins that may be under way. */
const loginsAtOnce = 2

/** After this time a login no longer counts: while one server does not answer, the pool must try to reach another. */
const loginCountsMs = 1_000

/**
 * Differs from the pool of `pg` in four things:
 *
 * - It opens few connections at once. `pg` opens one for each statement that finds none free, although the first
 *   connections would have served a burst of statements before the others have logged in.
 * - It keeps a connection whose statement was refused. `pg` closes it after every error, so that waits for locks that
 *   end with 55P03 would make a login each.
 * - It gives up a connection that cannot be opened in ten seconds. `pg` has one limit for this and for the wait for a
 *   free connection. After a failover, tries that began before the name led to the new server would hold their places
 *   in the pool for up to `checkoutTimeout`.
 * - The parsers of our adapter's statements are not those that the application has set.
 */
export class Pool extends (pg.Pool as unknown as new(options: pg.PoolConfig) => pg.Pool & Internals) {
  private logins = 0

  constructor(options: pg.PoolConfig) {
    super(options)
    this.Client = clientOf(this.Client, () => this.begin(), () => this._pulseQueue())
  }

  override _isFull(): boolean {
    return super._isFull() || this.logins >= loginsAtOnce
  }

  override _release(client: pg.PoolClient, idleListener: unknown, error: unknown): void {
    super._release(
      client,
      idleListener,
      isRefusedStatement(error) && client.getTransactionStatus() === "I" ? undefined : error
    )
  }

  /** Counts a login until the returned function is called. */
  private begin(): () => void {
    this.logins++
    let isCounted = true
    const end = () => {
      if (!isCounted) return
      isCounted = false
      clearTimeout(timer)
      this.logins--
    }
    const timer = setTimeout(() => {
      end()
      this._pulseQueue()
    }, loginCountsMs).unref()
    return end
  }
}

/**
 * The server has refused the statement alone, and the connection serves the next one: bad data, a constraint, a
 * conflict, a missing right, a full disk, a lock or a statement that took too long, an exception that a function
 * raises.
 */
export const isRefusedStatement = (error: unknown): boolean =>
  // The pool of an application may have another copy of `pg`, and so another class.
  Predicate.hasProperty(error, "severity") && Predicate.hasProperty(error, "code") && refusals.test(String(error.code))

// internal

/** What `pg-pool` has beside its types. The tests of this pool fail when another version lacks it. */
interface Internals {
  Client: typeof pg.Client
  /** Gives a waiting statement an idle connection, or opens one for it. */
  _pulseQueue(): void
  /** Whether no connection may be opened now. */
  _isFull(): boolean
  /** Takes a connection back; with an error, closes it. */
  _release(client: pg.PoolClient, idleListener: unknown, error: unknown): void
}

type Callback = (error: Error | null) => void

/** Clients that count their logins; `proceed` is called after each. */
const clientOf = (Client: typeof pg.Client, begin: () => () => void, proceed: () => void): typeof pg.Client =>
  class extends Client {
    constructor(config?: string | pg.ClientConfig) {
      const given = typeof config === "object" ? config : {}
      const limit = Math.min(given.connectionTimeoutMillis ?? connectTimeoutMs, connectTimeoutMs)
      // `pg` hides the password from what prints the client: it is not enumerable, and stays so in a copied descriptor.
      super(Object.create(null, {
        ...Object.getOwnPropertyDescriptors(given),
        connectionTimeoutMillis: { value: limit, enumerable: true }
      }))
    }

    override readonly query = ((statement: string, values: Array<unknown>, callback: () => void): unknown =>
      super.query(Parsers.fixed(statement), values, callback)) as pg.Client["query"]

    override connect(): Promise<this>
    override connect(callback: Callback): void
    override connect(callback?: Callback): Promise<this> | void {
      // The pool always gives one.
      if (callback === undefined) {
        return super.connect() as Promise<this>
      }
      const end = begin()
      super.connect((error: Error | null) => {
        end()
        callback(error)
        proceed()
      })
    }
  }

/** SQLSTATEs. A statement whose plan is stale (0A000) needs another connection, which prepares it anew. */
const refusals = /^(22|23|40001|40P01|42501|53100|55P03|57014|DX|P0)/
