/**
 * What the sessions of a pool of the application are like, where nothing is set.
 */
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import type * as pg from "pg"
import * as ProviderError from "../../provider/ProviderError.ts"
import * as SqlFault from "../../provider/SqlFault.ts"
import * as ServerProcess from "./serverProcess.ts"
import type * as Protection from "./tls.ts"

export interface Session {
  readonly tls: Protection.Protection["name"]
  readonly isThroughPooler: boolean
  /** Whether functions and triggers notify. */
  readonly notifies: boolean
}

/** Looks at one session. Fails with `ConfigurationInvalid` if statements would go wrong in others like it. */
export const examine = Effect.fnUntraced(
  function*(pool: pg.Pool): Effect.fn.Return<Session, ProviderError.Reason> {
    const { client, row } = yield* Effect.tryPromise({
      try: async () => {
        const client = await pool.connect()
        try {
          return { client, row: (await client.query<Row>(settings)).rows[0]! }
        } finally {
          client.release()
        }
      },
      catch: SqlFault.classify
    })
    const problem = problemOf(row)
    if (problem !== undefined) {
      return yield* new ProviderError.ConfigurationInvalid({ problem: `the sessions of \`pool\` have ${problem}` })
    }
    return {
      tls: protectionOf(client.connection),
      isThroughPooler: !ServerProcess.isThat(client, row.pid),
      notifies: row.notify !== "off"
    }
  }
)

/** Functions and triggers would fail. */
export const mustNotNotify = new ProviderError.ConfigurationInvalid({
  problem:
    "the server or the role of `pool` refuses pg_notify: run ALTER ROLE … SET duroxide.notify = off, and reconnect"
})

// internal

interface Row {
  readonly pid: unknown
  readonly style: string
  readonly isolation: string
  readonly digits: string
  readonly notify: string | null
}

const settings = `SELECT
  pg_backend_pid() AS pid,
  current_setting('DateStyle') AS style,
  current_setting('default_transaction_isolation') AS isolation,
  current_setting('extra_float_digits') AS digits,
  current_setting('duroxide.notify', true) AS notify`

const problemOf = ({ digits, isolation, style }: Row): string | undefined =>
  // The functions read again after taking a lock; only this isolation level shows them what was committed meanwhile.
  isolation !== "read committed"
    ? `default_transaction_isolation = '${isolation}'; it must be 'read committed'. Set '${isolation}' only in the transactions that need it`
    : !style.startsWith("ISO")
    ? `DateStyle = '${style}'; it must begin with ISO`
    : Number(digits) < 1
    ? `extra_float_digits = ${digits}, which rounds numbers and times; it must be 1 or more. Set it for the role: ALTER ROLE … SET extra_float_digits = 1`
    : undefined

const protectionOf = ({ stream, ...connection }: pg.Connection): Protection.Protection["name"] =>
  !(Predicate.hasProperty(stream, "encrypted") && stream.encrypted === true)
    ? "off"
    : !(Predicate.hasProperty(stream, "authorized") && stream.authorized === true)
    ? "unverified"
    // The application decides which name the certificate must have.
    : Predicate.hasProperty(connection, "ssl") && Predicate.hasProperty(connection.ssl, "checkServerIdentity")
    ? "authority only"
    : "verified"
