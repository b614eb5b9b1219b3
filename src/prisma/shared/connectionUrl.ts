/**
 * Checks a connection URL before anything connects.
 */
import type * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import type { ConfigurationInvalid } from "../../provider/ProviderError.ts"
import * as Connection from "../internal/connection.ts"
import * as Tls from "../internal/tls.ts"

/** Where a URL leads to. */
export interface Place {
  /** `host:port/database`, fit for messages. */
  readonly address: string
  readonly schema: string
}

/**
 * Fails if the URL, what it says about TLS, or the name of the schema cannot be used. `schema` defaults to the URL's
 * `schema` parameter, then to `public`.
 */
export const check = (
  url: string | Redacted.Redacted<string>,
  schema: string | undefined
): Result.Result<Place, ConfigurationInvalid> =>
  Result.flatMap(
    Connection.parse(url, schema),
    ({ address, host, parameters, schema }) =>
      Result.map(
        Tls.resolve({ host, parameters, options: undefined, secret: undefined }),
        () => ({ address, schema })
      )
  )
