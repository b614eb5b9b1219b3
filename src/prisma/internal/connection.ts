/**
 * Reads a connection URL the way people write it for Prisma, and checks the name of a schema.
 *
 * Prisma's own parameters (`schema`, `pgbouncer`, …) are used or dropped here; `tls.ts` reads the ones for TLS. Only
 * host, port and database of the URL are ever shown.
 */
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import * as pg from "pg"
import * as ProviderError from "../../provider/ProviderError.ts"

/** A connection URL, parsed for `pg`. */
export interface Connection {
  /** What the URL says to `pg`, without TLS. What it does not say is undefined, and `pg` looks in its environment. */
  readonly config: pg.ClientConfig
  /** The server's name or address, or the directory of its socket. */
  readonly host: string
  /** Parameters of the URL, decoded. */
  readonly parameters: URLSearchParams
  /** The schema that holds the tables. */
  readonly schema: string
  /** The URL names a pooler, not the server itself. */
  readonly pooled: boolean
  /** `host:port/database`, fit for messages. */
  readonly address: string
}

/** Fails with `ConfigurationInvalid`. `schema` defaults to the URL's `schema` parameter, then to `public`. */
export const parse = (
  url: string | Redacted.Redacted<string> | undefined,
  schema: string | undefined
): Result.Result<Connection, ProviderError.ConfigurationInvalid> =>
  Result.gen(function*() {
    const given = Redacted.isRedacted(url) ? Redacted.value(url) : url
    // `process.env.DATABASE_URL!` is undefined where the variable is not set.
    if (typeof given !== "string" || given.trim() === "") {
      return yield* invalid("no connection URL (is DATABASE_URL set?)")
    }
    // Without both slashes, the whole rest would be the name of the database, and shown as that.
    if (/^[\w+.-]+:/.test(given) && !/^postgres(ql)?:\/\//i.test(given)) {
      return yield* invalid("the connection URL must start with postgresql://")
    }
    // `URL` refuses a large port as it refuses anything else.
    const [, digits] = /^\w+:\/\/[^/?#]*:(\d+)(?:[/?#][^@]*)?$/.exec(given) ?? []
    if (digits !== undefined) yield* checkPort(digits)
    const parsed = yield* Result.try({
      try: () => {
        const parsed = new URL(given.replace("@/", "@localhost/")) // no host: `?host=` names a socket directory
        decodeURIComponent(parsed.username + parsed.password + parsed.hostname + parsed.pathname)
        // A slash in a password ends the host: the rest of the password would be part of the database's name.
        if (parsed.pathname.includes("@")) throw new Error()
        return parsed
      },
      catch: () => problem("the connection URL cannot be read; special characters in its parts must be percent-encoded")
    })
    const name = yield* checkSchema(schema ?? parsed.searchParams.get("schema") ?? "public")
    const pooled = parsed.searchParams.get("pgbouncer") === "true"
    const { searchParams: parameters } = parsed
    const part = (name: string, other: string) => parameters.get(name) || decodeURIComponent(other) || undefined
    const host = part("host", parsed.hostname.replace(/^\[(.+)\]$/, "$1")) ?? process.env["PGHOST"] ?? "localhost"
    const port = part("port", parsed.port)
    if (port !== undefined) yield* checkPort(port)
    return {
      config: {
        host,
        port: port === undefined ? undefined : Number(port),
        user: part("user", parsed.username),
        password: part("password", parsed.password),
        database: part("database", parsed.pathname.slice(1)),
        ...Object.fromEntries(
          passed.flatMap((name) => parameters.get(name) === null ? [] : [[name, parameters.get(name)]])
        )
      },
      host,
      parameters,
      schema: name,
      pooled,
      address: `${host}:${port ?? 5432}${decodeURIComponent(parsed.pathname)}`
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

const checkPort = (port: string) =>
  /^\d+$/.test(port) && Number(port) >= 1 && Number(port) <= 65_535
    ? Result.succeed(port)
    : invalid("the port of the connection URL must be a number from 1 to 65535")

/** Parameters that `pg` understands, besides those of TLS. */
const passed = [
  "application_name",
  "fallback_application_name",
  "client_encoding",
  "idle_in_transaction_session_timeout",
  "lock_timeout",
  "options",
  "query_timeout",
  "replication",
  "statement_timeout"
]

const problem = (text: string) => new ProviderError.ConfigurationInvalid({ problem: text })
const invalid = (text: string) => Result.fail(problem(text))
