/**
 * The option `directUrl`: it must lead to the database of `url` or of the pool, or one database would be migrated and
 * another one used. Errors name the option, because both can have the same faults.
 */
import * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import * as ProviderError from "../../provider/ProviderError.ts"
import type * as MigrationError from "../MigrationError.ts"
import * as Session from "../shared/directSession.ts"
import type * as Login from "./login.ts"

export interface Urls extends Login.Place {
  readonly directUrl: string | Redacted.Redacted<string>
}

/** Adds the name of the option to a reason. Faults of statements stay as they are. */
export const named = <R extends MigrationError.Reason>(reason: R): R | ProviderError.Reason => {
  switch (reason._tag) {
    case "ConnectionLost":
      return new ProviderError.ConnectionLost({ problem: ofOption(reason.problem) })
    case "AuthenticationFailed":
      return new ProviderError.AuthenticationFailed({ problem: ofOption(reason.problem) })
    case "ConfigurationInvalid":
      return new ProviderError.ConfigurationInvalid({ problem: ofOption(reason.problem) })
    case "PermissionDenied":
      return new ProviderError.PermissionDenied({ problem: ofOption(reason.problem) })
    case "Unavailable":
      return new ProviderError.Unavailable({ sqlState: reason.sqlState, problem: ofOption(reason.problem) })
    default:
      return reason
  }
}

/**
 * Why `directUrl` cannot be used with `url`; undefined if both lead to one database. Sends one statement to each.
 *
 * Fails with the reason if `url` cannot be reached.
 */
export const problemOf = Effect.fnUntraced(
  function*({ directUrl, pool, tls, url }: Urls): Effect.fn.Return<
    ProviderError.Reason | undefined,
    ProviderError.Reason,
    Scope.Scope
  > {
    const used = yield* identify({ url, pool, tls })
    return yield* identify({ url: directUrl, tls }).pipe(
      Effect.match({
        onSuccess: (direct) =>
          isSame(used, direct) ? undefined : named(
            new ProviderError.ConfigurationInvalid({
              problem: `it leads to ${direct.address}, which is another database than that of ${
                pool === undefined ? "url" : "the pool"
              }, ${used.address}`
            })
          ),
        onFailure: named
      })
    )
  }
)

// internal

const ofOption = (problem: string) => `directUrl: ${problem}`

const identify = Effect.fnUntraced(function*(options: Login.Options) {
  const { address, run } = yield* Session.connect(options)
  const [row] = yield* run(withServer).pipe(
    Effect.catchIf(({ _tag }) => _tag === "PermissionDenied" || _tag === "SchemaMismatch", () => run(withoutServer))
  )
  return { address, database: row!["database"], server: row!["server"] }
})

type Identity = Effect.Success<ReturnType<typeof identify>>

const isSame = (one: Identity, other: Identity) =>
  one.database === other.database && (one.server === null || other.server === null || one.server === other.server)

const database = "SELECT concat(datname, ' ', oid) AS database"
const from = "FROM pg_database WHERE datname = current_database()"
/** The identifier of a server's data is that of its standbys, too. */
const withServer = `${database}, (SELECT system_identifier::text FROM pg_control_system()) AS server ${from}`
/** For roles that may not read it. */
const withoutServer = `${database}, NULL AS server ${from}`
