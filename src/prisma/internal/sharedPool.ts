/**
 * A pool of the application, as our adapter uses it: it lends connections, and is never changed or ended here.
 *
 * Its sessions are those of the application, so nothing is set in them. What our own pools say to the server or to `pg`
 * is done for each statement instead: the limits of both waits, and the replacement of connections after a failover.
 */
import * as pg from "pg"
import * as ProviderError from "../../provider/ProviderError.ts"
import * as Parsers from "./parsers.ts"
import { isRefusedStatement } from "./pool.ts"
import * as Retirement from "./retirement.ts"
import * as ServerProcess from "./serverProcess.ts"

/** `Database.Pool`. */
export interface ApplicationPool {
  readonly options: object
  readonly totalCount: number
  readonly idleCount: number
  readonly waitingCount: number
  readonly connect: (callback: (error: Error | undefined, client: never) => void) => void
  readonly on: (event: "error", listener: (error: Error) => void) => unknown
  readonly removeListener: (event: "error", listener: (error: Error) => void) => unknown
}

export interface Options {
  readonly pool: ApplicationPool
  /** Longest wait for a connection. */
  readonly checkoutTimeoutMs: number
  /** Longest wait for the answer to a statement. */
  readonly answerTimeoutMs: number
  /** Called when a connection failed as after a failover. Those that are as old are closed when we are lent them. */
  readonly onRetired: () => void
  /** Called once, when a statement finds that the application has ended the pool. */
  readonly onEnded: () => void
}

/** What the adapter sends. */
type Statement = string | pg.QueryConfig

/** The adapter accepts subclasses of `pg.Pool` alone. This one has no connections of its own. */
export class SharedPool extends (pg.Pool as unknown as new() => pg.Pool) {
  private readonly shared: Options
  private readonly pool: pg.Pool
  /** Counts the failovers. */
  private age = 0
  /** How many there had been when it was opened; 0 for one that was open before. */
  private readonly ages = new WeakMap<pg.PoolClient, number>()
  private isClosed = false
  private isEnded = false

  constructor(options: Options) {
    super()
    this.shared = options
    this.pool = options.pool as pg.Pool
    this.pool.on("connect", this.opened)
    // The next statement replaces a connection that dies while idle. Unheard, its error event would end the process.
    this.pool.on("error", ignore)
  }

  /** Lends no connection from now on. Statements under way give theirs back when they end. */
  close(): void {
    this.isClosed = true
    this.pool.removeListener("connect", this.opened)
    this.pool.removeListener("error", ignore)
  }

  private readonly opened = (client: pg.PoolClient) => void this.ages.set(client, this.age)

  private isRetired(client: pg.PoolClient): boolean {
    return (this.ages.get(client) ?? 0) < this.age
  }

  private retireAll(because: pg.PoolClient): void {
    if (this.isRetired(because)) return
    this.age++
    this.shared.onRetired()
  }

  /** A connection, for one statement or a transaction. */
  override connect(): Promise<pg.PoolClient>
  override connect(callback: never): void
  override async connect(): Promise<pg.PoolClient> {
    let client = await this.checkout()
    while (this.isRetired(client)) {
      giveBack(client, true)
      client = await this.checkout()
    }
    return this.lent(client)
  }

  override query = (async (statement: Statement) => {
    const client = await this.connect()
    let failure: unknown
    try {
      return await client.query(statement)
    } catch (thrown) {
      failure = thrown
      throw thrown
    } finally {
      client.release(failure as Error | undefined)
    }
  }) as pg.Pool["query"]

  /** It belongs to the application. */
  override end(): Promise<void>
  override end(callback: never): void
  override async end(): Promise<void> {}

  private checkout(): Promise<pg.PoolClient> {
    const { pool, shared: { checkoutTimeoutMs } } = this
    return new Promise((resolve, reject) => {
      if (this.isClosed) return reject(closed())
      if (pool.ending) return reject(this.endedEarly())
      let isLate = false
      const timer = setTimeout(() => {
        isLate = true
        // As `pg` says it in both cases.
        const isBusy = pool.waitingCount > 0
        reject(
          new Error(
            isBusy ? "timeout exceeded when trying to connect" : "Connection terminated due to connection timeout"
          )
        )
      }, checkoutTimeoutMs).unref()
      // Not as a promise: the server may end the connection in the moment in which it is lent.
      pool.connect((error, client) => {
        clearTimeout(timer)
        if (client === undefined) return reject(error ?? closed())
        // While a connection is lent, its pool does not listen; a statement under way fails as well.
        client.on("error", ignore)
        if (isLate) giveBack(client)
        else resolve(client)
      })
    })
  }

  private endedEarly() {
    if (!this.isEnded) this.shared.onEnded()
    this.isEnded = true
    return closed("the application has ended the pool that it shares")
  }

  /** What is used of a connection. */
  private lent(client: pg.PoolClient): pg.PoolClient {
    const { answerTimeoutMs } = this.shared
    const query = async (given: Statement) => {
      const statement: Statement & object = typeof given === "string" ? { text: given } : given
      try {
        // Missing in the types of `pg`.
        const limit: object = { query_timeout: answerTimeoutMs }
        return await client.query({ types: Parsers.ours, ...Parsers.fixed(statement), ...limit })
      } catch (thrown) {
        if (Retirement.isLost(thrown)) this.retireAll(client)
        throw thrown
      }
    }
    const release = (failure?: Error | boolean) => {
      giveBack(client, isRefusedStatement(failure) && isUsable(client) ? undefined : failure)
    }
    return Object.assign(Object.create(null) as pg.PoolClient, {
      query,
      release,
      on: client.on.bind(client),
      removeListener: client.removeListener.bind(client),
      connection: client.connection,
      ...ServerProcess.of(client)
    })
  }
}

// internal

const ignore = () => {}

const giveBack = (client: pg.PoolClient, failure?: Error | boolean) => {
  client.removeListener("error", ignore)
  client.release(failure)
}

/** Older releases of `pg` do not say. */
const isUsable = (client: Partial<Pick<pg.PoolClient, "getTransactionStatus">>) =>
  client.getTransactionStatus?.() === "I"

const closed = (problem?: string) =>
  new ProviderError.ProviderError({
    operation: "connect",
    reason: new ProviderError.Closed(problem === undefined ? {} : { problem })
  })
