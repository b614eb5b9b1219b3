/**
 * How a pool of the application logs in: for the connections of our own beside it, the one that listens and that of a
 * migration.
 */
import * as Predicate from "effect/Predicate"
import * as Result from "effect/Result"
import * as net from "node:net"
import * as pg from "pg"
import * as ProviderError from "../../provider/ProviderError.ts"
import * as Connection from "./connection.ts"
import * as Parsers from "./parsers.ts"
import type { ApplicationPool } from "./sharedPool.ts"

export interface PoolLogin extends Connection.Connection {
  readonly hasCredentials: boolean
  readonly Client: typeof pg.Client
}

/**
 * The login that the pool was made with: its client, TLS, password or function that returns one. `schema` defaults to
 * the parameter of its connection string, then to `public`. Fails with `ConfigurationInvalid`.
 */
export const of = (
  pool: ApplicationPool,
  schema: string | undefined
): Result.Result<PoolLogin, ProviderError.ConfigurationInvalid> =>
  Result.gen(function*() {
    if (!Predicate.hasProperty(pool, "options") || !Predicate.isObject(pool.options)) {
      return yield* invalid("`pool` must be a Pool of the package pg: it does not say how it connects")
    }
    const given: pg.PoolConfig = pool.options
    const parameters = parametersOf(given.connectionString)
    const config: pg.PoolConfig = {
      ...given,
      // Hidden from whatever prints the options, and so from a copy.
      password: given.password,
      // For statements of the application, and their answers.
      query_timeout: 0,
      types: Parsers.ours,
      pipeline: false
    }
    if (Predicate.hasProperty(given, "binary") && given.binary === true) {
      return yield* invalid("`pool` must not have the option `binary`: answers are read as text")
    }
    const Client = clientOf(pool)
    const probe = yield* Result.try({
      try: () => new Client({ ...config, stream: () => new net.Socket() }),
      catch: (thrown) =>
        new ProviderError.ConfigurationInvalid({
          problem: `the options of \`pool\` cannot be used: ${thrown instanceof Error ? thrown.name : "unknown"}`
        })
    })
    if (!Predicate.hasProperty(probe, "connection")) {
      return yield* invalid("`pool` must be one of the JavaScript client of pg, not of its native one")
    }
    const { database = "", host, port, user } = probe
    return {
      config: user === undefined ? config : { ...config, user },
      host,
      parameters,
      schema: yield* Connection.checkSchema(schema ?? parameters.get("schema") ?? "public"),
      pooled: parameters.get("pgbouncer") === "true",
      address: `${host}:${port}/${database}`,
      hasCredentials: typeof given.password === "function",
      Client
    }
  })

/** The schema that its connection string names. */
export const schemaOf = (pool: ApplicationPool): string | undefined =>
  Predicate.hasProperty(pool, "options") && Predicate.hasProperty(pool.options, "connectionString") &&
    typeof pool.options.connectionString === "string"
    ? parametersOf(pool.options.connectionString).get("schema") ?? undefined
    : undefined

// internal

const clientOf = (pool: ApplicationPool): typeof pg.Client =>
  Predicate.hasProperty(pool, "Client") && typeof pool.Client === "function"
    ? pool.Client as typeof pg.Client
    : pg.Client

/** It may be the name of a socket's directory. */
const parametersOf = (connectionString: string | undefined): URLSearchParams => {
  const at = connectionString?.indexOf("?") ?? -1
  return new URLSearchParams(at < 0 ? "" : connectionString!.slice(at))
}

const invalid = (problem: string) => Result.fail(new ProviderError.ConfigurationInvalid({ problem }))
