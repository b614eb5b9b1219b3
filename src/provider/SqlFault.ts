/**
 * Classifies thrown values: anything `pg`, the Prisma adapter or the Prisma client throws becomes one `ProviderError`
 * reason, which states whether the same call may succeed later.
 *
 * A pure function over one table of SQLSTATEs. The message of a reason names conditions and objects, never values: no
 * password, no URL, no payload.
 *
 * @since 0.1.0
 */
import * as Predicate from "effect/Predicate"
import * as ProviderError from "./ProviderError.ts"

/**
 * The reason for a thrown value.
 *
 * **Details**
 *
 * Accepts the errors of raw and of model queries, of transactions (a failed COMMIT arrives without a code), of `pg`
 * itself and of sockets. An unknown error is `Unexpected`, not retryable, with the scrubbed error as `cause`.
 *
 * An error of the server is classified by its SQLSTATE, never by its text, whose language depends on `lc_messages`.
 * Only errors of PgBouncer are classified by their English text, because most share one code.
 *
 * **Gotchas**
 *
 * A cancelled statement (57014) is retryable, even if a person has cancelled it: an expired statement timeout has the
 * same code.
 *
 * @category conversions
 * @since 0.1.0
 */
export const classify = (thrown: unknown): ProviderError.Reason => {
  if (thrown instanceof ProviderError.ProviderError) return thrown.reason // of `Credentials`
  const cause = adapterCause(thrown)
  const sql = sqlError(cause) ?? sqlError(thrown)
  if (sql !== undefined) return fromSqlState(sql, thrown)
  if (cause !== undefined) return fromAdapter(cause, thrown)
  const code = text(thrown, "code") ?? text(thrown, "errorCode")
  return (code === undefined ? undefined : fromCode(code, thrown)) ?? fromMessage(thrown)
}

/**
 * Errors that our stored functions raise for a whole call, by SQLSTATE.
 *
 * **Details**
 *
 * Each is raised with the fields of the reason in `DETAIL`, as JSON text, for example
 * `RAISE EXCEPTION 'bad limit' USING ERRCODE = 'DX003', DETAIL = '{"field":"limit","problem":"must be at least 1"}'`.
 * A function that takes items which can fail separately returns an outcome per item, and raises nothing.
 *
 * @category models
 * @since 0.1.0
 */
export const refusals: Readonly<
  Record<string, (fields: Readonly<Record<string, unknown>>) => ProviderError.Reason>
> = {
  DX001: (fields) => new ProviderError.LockLost({ lockToken: String(fields.lockToken) }),
  DX002: (fields) =>
    new ProviderError.DuplicateEvent({
      instanceId: String(fields.instanceId),
      executionId: Number(fields.executionId)
    }),
  DX003: (fields) => new ProviderError.InvalidInput({ field: String(fields.field), problem: String(fields.problem) }),
  DX004: (fields) => new ProviderError.InstanceNotFound({ instanceId: String(fields.instanceId) })
}

// -----------------------------------------------------------------------------
// internal: answers of the server
// -----------------------------------------------------------------------------

interface SqlError {
  readonly sqlState: string
  /** The function of the server that failed, as `pg` gives it; the adapter of an application leaves it out. */
  readonly routine: string | undefined
  readonly message: string
  readonly detail: string | undefined
}

const fromSqlState = ({ detail, message, routine, sqlState }: SqlError, thrown: unknown): ProviderError.Reason => {
  const problem = scrub(message)
  const refusal = refusals[sqlState]
  if (refusal !== undefined) {
    const fields = parseFields(detail)
    return fields === undefined ? unexpected(thrown, problem, sqlState) : refusal(fields)
  }
  switch (sqlState) {
    case "40001": // serialization failure
    case "40P01": // deadlock
    case "55P03": // lock not available
      return new ProviderError.Contention({ sqlState, problem })
    case "0A000": // the server has no such feature, or a migration changed the result of a prepared statement
      return routine === "RevalidateCachedQuery" // the retry prepares the statement anew
        ? new ProviderError.Contention({ sqlState, problem })
        : unexpected(thrown, problem, sqlState)
    case "25P02": // an earlier statement of the transaction failed, one of ours or the application's
      return new ProviderError.TransactionAborted()
    case "25006": // read-only transaction: a fail-over left us on a standby
    case "25P03": // idle in transaction too long, connection closed
    case "25P04": // transaction timeout
    case "57014": // cancelled: by a statement timeout, or by a person
    case "57P01": // administrator stops the server or the backend
    case "57P02": // crash shutdown
    case "57P03": // starting up, shutting down
    case "57P05": // idle session timeout
      return new ProviderError.Unavailable({ sqlState, problem })
    case "40003": // completion unknown
      return new ProviderError.ConnectionLost({ problem: `${problem} (${sqlState})` })
    case "3D000": // no such database
      return databaseMissing(problem)
    case "57P04": // the database was dropped
      return new ProviderError.ConfigurationInvalid({ problem })
    case "26000": // prepared statement does not exist
    case "42P05": // prepared statement already exists
      return poolerWithoutStatements(problem)
    case "42501":
      return new ProviderError.PermissionDenied({ problem })
    case "08P01":
      return fromProtocolViolation(problem)
    case "3F000": // no such schema
      return new ProviderError.SchemaMismatch({ sqlState, problem })
  }
  switch (sqlState.slice(0, 2)) {
    case "54": // a limit of PostgreSQL, such as the length of an index entry
      return new ProviderError.DataRefused({ sqlState, problem })
    case "08": // connection
      return new ProviderError.ConnectionLost({ problem: `${problem} (${sqlState})` })
    case "22": // data; the server's message may quote the value, in as many ways as there are languages
      return new ProviderError.DataRefused({ sqlState, problem: dataProblems[sqlState] ?? "invalid data" })
    case "23": // integrity
      return new ProviderError.DataRefused({ sqlState, problem })
    case "28": // authorization
      return new ProviderError.AuthenticationFailed({
        // An advice for most readers; the reason is the same in each language.
        problem: /no encryption|SSL off/.test(message)
          ? `${problem}. The server demands TLS: add sslmode=verify-full to the URL`
          : problem
      })
    case "42": // missing or wrong tables, columns, functions
      return new ProviderError.SchemaMismatch({ sqlState, problem })
    case "53": // connections, memory, disk
      return new ProviderError.Unavailable({ sqlState, problem })
  }
  return unexpected(thrown, problem, sqlState)
}

/** What is wrong with the data: conditions of appendix A of PostgreSQL's manual. */
const dataProblems: Readonly<Record<string, string>> = {
  "22001": "a text is too long for its column",
  "22003": "a number is out of range",
  "22004": "null is not allowed",
  "22007": "a date or time cannot be read",
  "22008": "a date or time is out of range",
  "22012": "division by zero",
  "22021": "a text has bytes that are no characters of its encoding",
  "22023": "a parameter has an invalid value",
  "22030": "a JSON object has a key twice",
  "22032": "a text is not JSON",
  "22P02": "a text cannot be read as a value of its type",
  "22P03": "a binary value cannot be read",
  "22P05": "a text has a character that the database cannot store"
}

/** PgBouncer uses this one code for most errors. */
const fromProtocolViolation = (problem: string): ProviderError.Reason =>
  /no such database|database .* does not exist/i.test(problem)
    ? databaseMissing(problem)
    : /unsupported startup parameter/i.test(problem)
    ? new ProviderError.ConfigurationInvalid({ problem })
    : /no such user|authentication failed/i.test(problem)
    ? new ProviderError.AuthenticationFailed({ problem })
    : /prepared statement/i.test(problem)
    ? poolerWithoutStatements(problem)
    : /query_wait_timeout|too many|no more connections/i.test(problem)
    ? new ProviderError.Unavailable({ sqlState: "08P01", problem })
    : new ProviderError.ConnectionLost({ problem: `${problem} (08P01)` })

const databaseMissing = (problem: string): ProviderError.Reason =>
  new ProviderError.ConfigurationInvalid({
    problem: `${problem}. Correct the name in the URL, or create the database: CREATE DATABASE <name>`
  })

const poolerWithoutStatements = (problem: string): ProviderError.Reason =>
  new ProviderError.ConfigurationInvalid({
    problem: `${problem}. A pooler shares connections between clients: set preparedStatements to false`
  })

// -----------------------------------------------------------------------------
// internal: errors without an answer of the server
// -----------------------------------------------------------------------------

const fromAdapter = (cause: object, thrown: unknown): ProviderError.Reason => {
  const kind = text(cause, "kind")
  switch (kind) {
    case "DatabaseNotReachable": {
      const host = text(cause, "host")
      const port = Predicate.hasProperty(cause, "port") ? `:${String(cause.port)}` : ""
      return new ProviderError.ConnectionLost({
        problem: `nothing answers at ${host ?? "the given host"}${port}`,
        isUnsent: true
      })
    }
    case "ConnectionClosed":
      return new ProviderError.ConnectionLost({ problem: "the connection was reset" })
    case "SocketTimeout":
      return new ProviderError.ConnectionLost({ problem: "the connection timed out" })
    case "TlsConnectionError":
      return new ProviderError.ConfigurationInvalid({ problem: tlsProblem(text(cause, "reason") ?? "TLS failed") })
    case "UnsupportedNativeDataType":
      return unexpected(thrown, `a statement returns a column of type ${text(cause, "type")}, which cannot be read`)
  }
  return unexpected(thrown, `the database adapter reports ${kind ?? "an unknown error"}`)
}

const fromCode = (code: string, thrown: unknown): ProviderError.Reason | undefined => {
  switch (code) {
    case "P2028":
      return new ProviderError.Unavailable({ sqlState: null, problem: "the transaction ran out of time" })
    case "P2034":
      return new ProviderError.Contention({ sqlState: "40001", problem: "write conflict or deadlock" })
    case "ERR_INVALID_URL":
      return new ProviderError.ConfigurationInvalid({ problem: "the connection URL is not a URL" })
    case "EPROTO":
      return new ProviderError.ConfigurationInvalid({ problem: "the server does not answer TLS with TLS" })
  }
  // A file named in the URL (certificate, key) rather than a socket.
  if (text(thrown, "syscall") === "open") {
    return new ProviderError.ConfigurationInvalid({
      problem: `a file the connection URL names cannot be read (${code})`
    })
  }
  if (/^E[A-Z0-9]+$/.test(code)) return new ProviderError.ConnectionLost({ problem: `the socket reports ${code}` })
  if (/^(ERR_(TLS|SSL)_|CERT_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_)/.test(code)) {
    return new ProviderError.ConfigurationInvalid({ problem: tlsProblem(`TLS failed (${code})`) })
  }
  return undefined
}

/** `pg` and its pool throw plain errors; only the messages distinguish them. */
const fromMessage = (thrown: unknown): ProviderError.Reason => {
  const message = text(thrown, "message") ?? String(thrown)
  if (/^(Connection terminated|Client has encountered a connection error|Client was closed)/.test(message)) {
    return new ProviderError.ConnectionLost({ problem: message })
  }
  if (/^Query read timeout|^timeout expired/.test(message)) {
    return new ProviderError.ConnectionLost({ problem: "the server did not answer in time" })
  }
  if (/timeout exceeded when trying to connect/.test(message)) {
    return new ProviderError.Unavailable({
      sqlState: null,
      problem: "every connection of the pool stayed busy for the whole checkout timeout"
    })
  }
  if (/Cannot use a pool after calling end/.test(message)) return new ProviderError.Closed()
  if (/client password must be/.test(message)) {
    return new ProviderError.AuthenticationFailed({
      problem: "no password was given. Put it into the URL or PGPASSWORD, or provide Credentials"
    })
  }
  if (message.startsWith("SASL: ")) return new ProviderError.AuthenticationFailed({ problem: message })
  if (/does not support SSL|establishing an SSL connection/.test(message)) {
    return new ProviderError.ConfigurationInvalid({ problem: tlsProblem(message) })
  }
  return unexpected(thrown, scrub(message))
}

/** With what to do about it; by the codes and the messages of Node. */
const tlsProblem = (message: string): string => {
  const advice = /ALTNAME|altnames/.test(message)
    ? "The server's certificate has another name: use that name in the URL, or set tls.serverName"
    : /EXPIRED|expired/.test(message)
    ? "The server's certificate is too old"
    : /SELF_SIGNED|self.signed|UNABLE_TO|unable to/.test(message)
    ? "The authority of the server's certificate is not known: name its file with sslrootcert in the URL, or set tls.ca " +
      "(Amazon RDS: global-bundle.pem of truststore.pki.rds.amazonaws.com)"
    : /does not support SSL/.test(message)
    ? "Add sslmode=disable to the URL if the network in between is trusted"
    : undefined
  return scrub(message) + (advice === undefined ? "" : `. ${advice}`)
}

// -----------------------------------------------------------------------------
// internal: shapes and texts
// -----------------------------------------------------------------------------

/** Errors of queries carry the adapter's error in `meta`; a failed COMMIT throws the adapter's error itself. */
const adapterCause = (thrown: unknown): object | undefined => {
  const adapterError = property(property(thrown, "meta"), "driverAdapterError") ??
    (text(thrown, "name") === "DriverAdapterError" ? thrown : undefined)
  const cause = property(adapterError, "cause")
  return Predicate.isObject(cause) ? cause : undefined
}

/** The server's fields, as the adapter renames them and as `pg` gives them. */
const sqlError = (value: unknown): SqlError | undefined => {
  const sqlState = text(value, "originalCode") ??
    (text(value, "severity") === undefined ? undefined : text(value, "code"))
  return sqlState === undefined || !/^[0-9A-Z]{5}$/.test(sqlState) ? undefined : {
    sqlState,
    routine: text(value, "routine"),
    message: text(value, "originalMessage") ?? text(value, "message") ?? "",
    detail: text(value, "detail")
  }
}

const unexpected = (thrown: unknown, problem: string, sqlState: string | null = null): ProviderError.Reason => {
  // The message and fields of the original may contain values: keep only the stack frames.
  const cause = new Error(problem)
  const stack = text(thrown, "stack")
  if (stack !== undefined) {
    cause.stack = [problem, ...stack.split("\n").filter((line) => /^\s+at /.test(line))].join("\n")
  }
  return new ProviderError.Unexpected({ sqlState, problem, cause })
}

/** The first line of a message, without URLs and passwords. */
export const scrub = (message: string): string => {
  const [first = ""] = message.split("\n")
  const clean = first.replace(/\b[a-z]+:\/\/\S+/gi, "<url>").replace(/password=\S+/gi, "password=<hidden>")
  return clean.length > 300 ? `${clean.slice(0, 300)}…` : clean
}

const parseFields = (detail: string | undefined): Readonly<Record<string, unknown>> | undefined => {
  try {
    const fields: unknown = JSON.parse(detail ?? "")
    return Predicate.isObject(fields) ? fields : undefined
  } catch {
    return undefined
  }
}

const property = (value: unknown, key: string): unknown =>
  Predicate.isObject(value) && key in value ? (value as Record<string, unknown>)[key] : undefined

const text = (value: unknown, key: string): string | undefined => {
  const found = property(value, key)
  return typeof found === "string" ? found : undefined
}
