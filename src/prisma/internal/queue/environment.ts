/**
 * The environment variables of the database of queues, outbox and tasks.
 */
import * as Config from "effect/Config"
import * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import * as Environment from "../../../model/shared/environment.ts"
import * as databaseEnvironment from "../environment.ts"

/** The options of `QueueDatabase.layer`. `DATABASE_URL` must be set unless `defaults` have a URL. */
export const databaseConfig = <Options extends { readonly url: string | Redacted.Redacted<string> }>(
  defaults: Partial<Options> = {}
) => {
  const { "longPolling.enabled": listens } = databaseEnvironment.longPolling
  return Config.mapEffect(
    Environment.config({ ...databaseEnvironment.database, listens }),
    ({ options, origins }) =>
      Effect.map(
        databaseEnvironment.withUrl<Options>({ ...defaults, ...options }),
        (options) => ({ options, origins })
      )
  )
}
