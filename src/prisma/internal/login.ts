/**
 * How connections log in: with the password of the URL, or with that of `Credentials`, and under which protection.
 *
 * Everything that connects goes through here.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as pg from "pg"
import * as ProviderError from "../../provider/ProviderError.ts"
import * as SqlFault from "../../provider/SqlFault.ts"
import { Credentials } from "../Credentials.ts"
import type { Request } from "../Credentials.ts"
import * as Connection from "./connection.ts"
import * as Parsers from "./parsers.ts"
import * as Passwords from "./passwords.ts"
import { Pool } from "./pool.ts"
import * as PoolLogin from "./poolLogin.ts"
import type { ApplicationPool } from "./sharedPool.ts"
import * as Tls from "./tls.ts"
import * as Tokens from "./tokens.ts"

/** Where to log in: at a URL, or as a pool of the application does. */
export interface Place {
  readonly url?: string | Redacted.Redacted<string> | undefined
  readonly pool?: ApplicationPool | undefined
  /** For `url`. */
  readonly tls?: Tls.Options | undefined
}

export interface Options extends Place {
  readonly schema?: string | undefined
}

export interface Login extends Connection.Connection {
  readonly config: pg.ClientConfig
  /** Undefined for that of a pool, which its connections show. */
  readonly protection: Tls.Protection["name"] | undefined
  /** Passwords come from `Credentials`, so the next one may be another. */
  readonly hasCredentials: boolean
  /** To be used with `config`. */
  readonly Client: typeof pg.Client
  /** To be used with `config` and `Client`. */
  readonly Pool: typeof Pool
  /**
   * Runs an attempt once more if the server refuses its password. The second one logs in with a new password, which may
   * have been changed before the old one ran out.
   */
  readonly onceMore: <A, E extends { readonly _tag: string }, R>(
    attempt: Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E, R>
}

/** Logs in at a URL with the `Credentials` in the context, if any. Fails with `ConfigurationInvalid`. */
export const make = Effect.fnUntraced(
  function*(options: Options): Effect.fn.Return<Login, ProviderError.ConfigurationInvalid> {
    const { pool, url } = options
    if (pool !== undefined) {
      if (url !== undefined) {
        return yield* new ProviderError.ConfigurationInvalid({ problem: "either `url` or `pool` is given, not both" })
      }
      const login = yield* Effect.fromResult(PoolLogin.of(pool, options.schema))
      return { ...login, protection: undefined, Pool, onceMore: (attempt) => attempt }
    }
    const connection = yield* Effect.fromResult(Connection.parse(url, options.schema))
    const credentials = Option.getOrUndefined(yield* Effect.serviceOption(Credentials))
    const protection = yield* Effect.fromResult(Tls.resolve({
      host: connection.host,
      parameters: connection.parameters,
      options: options.tls,
      secret: credentials?.requiresTls === true ? credentials.kind : undefined
    }))
    const ssl = protection.ssl
    const isDirect = connection.parameters.get("sslnegotiation") === "direct"
    const config = {
      ...connection.config,
      ssl,
      types: Parsers.ours,
      ...(isDirect ? { sslnegotiation: "direct" as const } : {})
    }
    const common = { ...connection, protection: protection.name, hasCredentials: credentials !== undefined }
    if (credentials === undefined) {
      const Client = clientOf(undefined)
      return { ...common, config, Client, Pool, onceMore: (attempt) => attempt }
    }
    const run = Effect.runPromiseWith(yield* Effect.context<never>())
    const Client = clientOf((request) => run(askOnce(credentials, request)))
    return {
      ...common,
      config: { ...config, password: undefined },
      Client,
      Pool: RepeatingPool,
      onceMore: (attempt) => Effect.catchIf(attempt, ({ _tag }) => _tag === "AuthenticationFailed", () => attempt)
    }
  }
)

// internal

/** The service may be the application's own. */
const askOnce = (credentials: Credentials["Service"], request: Request) =>
  Effect.suspend(() => credentials.password(request)).pipe(
    Effect.catchDefect((defect) => Effect.fail(connecting(Tokens.failed(defect)))),
    Effect.tap((password) => Effect.mapError(Passwords.check(credentials.kind, password), connecting))
  )

const connecting = (reason: ProviderError.Reason) => new ProviderError.ProviderError({ operation: "connect", reason })

const isRefusal = (thrown: unknown) =>
  // Not one of `Credentials`, which has nothing better.
  !(thrown instanceof ProviderError.ProviderError) && SqlFault.classify(thrown)._tag === "AuthenticationFailed"

/**
 * Clients that ask for their password, if not that of the URL, and say which one was refused when the next one asks.
 *
 * They ask before they connect: the server does not wait, and compares with what is valid when the login begins.
 */
const clientOf = (
  ask: ((request: Request) => Promise<Redacted.Redacted<string>>) | undefined
): typeof pg.Client => {
  let refused: Redacted.Redacted<string> | undefined
  return class extends pg.Client {
    #sent: Redacted.Redacted<string> | undefined

    override connect(): Promise<this>
    override connect(callback: ConnectCallback): void
    override connect(callback?: ConnectCallback): Promise<this> | void {
      if (callback === undefined) {
        return new Promise((resolve, reject) =>
          this.connect((error: Error | null) => (error === null ? resolve(this) : reject(error)))
        )
      }
      // Called at once, not in a later microtask: the pool handles errors from then on.
      const done = (error: Error | null) => {
        if (error !== null) {
          if (isRefusal(error)) refused = this.#sent
          // A server that gets no password would wait for it, a minute long.
          void this.end().catch(() => {})
        }
        ;(callback as (error: Error | null, client: pg.Client) => void)(error, this)
      }
      const connect = () => super.connect((error: Error | null) => done(error))
      if (ask === undefined) return connect()
      const { database = "", host, port, user = "" } = this
      void ask({ host, port, user, database, refused }).then((password) => {
        if (this.connection.stream.destroyed) return done(new Error("Connection terminated"))
        this.#sent = password
        // As `pg` has defined it, it is hidden from whatever prints the client.
        this.password = Redacted.value(password)
        connect()
      }, done)
    }
  }
}

type ConnectCallback = Parameters<pg.Client["connect"]>[0]

type PoolCallback = Parameters<pg.Pool["connect"]>[0]

/** A pool in which a login that is refused is tried once more. */
class RepeatingPool extends Pool {
  override connect(): Promise<pg.PoolClient>
  override connect(callback: PoolCallback): void
  override connect(callback?: PoolCallback): Promise<pg.PoolClient> | void {
    const connected = super.connect().catch((error: unknown) => {
      if (isRefusal(error)) return super.connect()
      throw error
    })
    if (callback === undefined) return connected
    connected.then(
      (client) => callback(undefined, client, (release) => client.release(release)),
      (error: Error) => callback(error, undefined, () => {})
    )
  }
}
