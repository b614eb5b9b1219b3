/**
 * Reads a connection URL the way people write it for Prisma, and checks the name of a schema.
 *
 * Prisma's own parameters (`schema`, `pgbouncer`, …) are used or dropped here; everything else in the URL is left to
 * `pg`. Of the URL, only host, port and database are ever shown.
 */
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import * as pg from "pg"
import * as ProviderError from "../../provider/ProviderError.ts"

/** A connection URL, parsed for `pg`. */
export interface Connection {
  /** For `pg.Pool` and `pg.Client`; its keys override sibling settings. */
  readonly connectionString: string
  /** The schema that holds the tables. */
  readonly schema: string
  /** The URL names a pooler, not the server itself. */
  readonly pooled: boolean
  /** `host:port/database`, fit for messages. */
  readonly address: string
}

/** Fails with `ConfigurationInvalid`. `schema` defaults to the URL's `schema` parameter, then to `public`. */
export const parse = (
  url: string | Redacted.Redacted<string>,
  schema: string | undefined
): Result.Result<Connection, ProviderError.ConfigurationInvalid> =>
  Result.gen(function*() {
    const given = Redacted.isRedacted(url) ? Redacted.value(url) : url
    // `process.env.DATABASE_URL!` is undefined where the variable is not set.
    if (typeof given !== "string" || given.trim() === "") {
      return yield* invalid("no connection URL (is DATABASE_URL set?)")
    }
    const parsed = yield* Result.try({
      try: () => {
        const parsed = new URL(given.replace("@/", "@localhost/")) // no host: `?host=` names a socket directory
        decodeURIComponent(parsed.username + parsed.password + parsed.pathname)
        return parsed
      },
      catch: () => problem("the connection URL cannot be read; special characters in its parts must be percent-encoded")
    })
    if (!/^postgres(ql)?:$/.test(parsed.protocol)) {
      return yield* invalid(`the connection URL must start with postgresql://, not ${parsed.protocol}//`)
    }
    const name = yield* checkSchema(schema ?? parsed.searchParams.get("schema") ?? "public")
    const pooled = parsed.searchParams.get("pgbouncer") === "true"
    for (const key of prismaParameters) parsed.searchParams.delete(key)
    const host = parsed.searchParams.get("host") ?? (parsed.hostname === "" ? "localhost" : parsed.hostname)
    return {
      connectionString: parsed.toString(),
      schema: name,
      pooled,
      address: `${host}:${parsed.port === "" ? 5432 : parsed.port}${decodeURIComponent(parsed.pathname)}`
    }
  })

/**
 * A name PostgreSQL can give to a schema: 1 to 63 bytes of UTF-8 without NUL, not reserved (`pg_…`). Quoting makes any
 * other character work.
 */
export const checkSchema = (name: string): Result.Result<string, ProviderError.ConfigurationInvalid> => {
  const bytes = new TextEncoder().encode(name)
  return name === "" || bytes.length > 63
    ? invalid(`a schema name has 1 to 63 bytes, this one has ${bytes.length}`)
    : name.includes("\0") || new TextDecoder().decode(bytes) !== name
    ? invalid("the schema name contains a character PostgreSQL cannot store")
    : name.startsWith("pg_")
    ? invalid(`the schema name ${name} is reserved by PostgreSQL`)
    : Result.succeed(name)
}

/** The name as SQL writes it. */
export const quoted = (schema: string): string => pg.escapeIdentifier(schema)

/** Adds the address that did not answer. */
export const located = (reason: ProviderError.Reason, address: string): ProviderError.Reason =>
  reason._tag === "ConnectionLost"
    ? new ProviderError.ConnectionLost({ problem: `${address}: ${reason.problem}` })
    : reason

const prismaParameters = [
  "schema",
  "pgbouncer",
  "connection_limit",
  "pool_timeout",
  "socket_timeout",
  "statement_cache_size"
]

const problem = (text: string) => new ProviderError.ConfigurationInvalid({ problem: text })
const invalid = (text: string) => Result.fail(problem(text))
