/**
 * A whole application on a private database: store, runtime and client, in this process.
 */
import { Client, RuntimeConfig } from "duroxide-prisma"
import type { Runtime } from "duroxide-prisma"
import { FromDriver, Provider } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Database from "../../src/prisma/Database.ts"
import type { MigrationError } from "../../src/prisma/MigrationError.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import * as PgServer from "./PgServer.ts"

export interface Options {
  readonly provider?: FromDriver.Options
  readonly runtime?: RuntimeConfig.Options
}

/** Store and client on `url`, without logs, because many tests provoke warnings. */
export const store = (url: string, options?: FromDriver.Options) =>
  Client.layer.pipe(
    Layer.provideMerge(FromDriver.layer(options)),
    Layer.provideMerge(PrismaDriver.layer()),
    Layer.provideMerge(Database.layer({ url })),
    Layer.provideMerge(Logger.layer([]))
  )

/**
 * Everything on a fresh database; `runtime` is a `Runtime.layer` with its handlers. Every turn is replayed and compared
 * with the warm program, unless a test is about these.
 */
export const layer = (
  runtime: Layer.Layer<Runtime.Runtime, never, Provider.Provider>,
  options: Options = {}
): Layer.Layer<
  Client.Client | Provider.Provider | Database.Database | Runtime.Runtime | PgServer.PgServer,
  MigrationError | Layer.Error<ReturnType<typeof store>>
> =>
  runtime.pipe(
    Layer.provide(RuntimeConfig.layer({ verifyReplay: true, ...options.runtime })),
    Layer.provideMerge(
      Layer.unwrap(Effect.map(PgServer.PgServer, ({ url }) => store(url, options.provider)))
    ),
    Layer.provideMerge(PgServer.layer)
  )
