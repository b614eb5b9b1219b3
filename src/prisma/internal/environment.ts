/**
 * The environment variables of the database and of the provider. Each option that is not for tests alone has one.
 */
import * as Config from "effect/Config"
import * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import * as Environment from "../../model/shared/environment.ts"
import * as Connection from "./connection.ts"

const url = Environment.secret({
  allowed: "a URL such as postgresql://user:password@host:5432/database, special characters percent-encoded",
  read: (text) => Result.isSuccess(Connection.parse(text, "public")) ? text : undefined
})

const schema: Environment.Kind<string> = {
  allowed: "the name of a schema: 1 to 63 bytes, not beginning with pg_",
  read: (text) => Result.isSuccess(Connection.checkSchema(text)) ? text : undefined
}

/** What a timer of Node can wait, less the time that the server gets to answer. */
const wait = Environment.duration(1, 24 * 86_400_000)

const pg = <A>(option: string, kind: Environment.Kind<A>) => Environment.variable("DUROXIDE_PG_", option, kind)

export const database = {
  url: [{ name: "DATABASE_URL", ...url }],
  directUrl: [{ name: "DIRECT_URL", ...url }],
  schema: pg("schema", schema),
  maxConnections: [
    { name: "POSTGRES_MAX_CONNECTIONS", ...Environment.count(1) },
    { name: "DUROXIDE_PG_POOL_MAX", ...Environment.count(1) }
  ],
  checkoutTimeout: pg("checkoutTimeout", wait),
  statementTimeout: pg("statementTimeout", wait),
  idleTimeout: pg("idleTimeout", wait),
  maxLifetime: pg("maxLifetime", wait),
  applicationName: pg("applicationName", Environment.text),
  preparedStatements: pg("preparedStatements", Environment.flag),
  migrate: pg("migrate", Environment.choice("apply", "verify", "adopt", "none")),
  allowAhead: pg("allowAhead", Environment.flag)
}

const polling = <A>(option: string, kind: Environment.Kind<A>) =>
  Environment.variable("DUROXIDE_LONG_POLLING_", option, kind)

/** Options of `longPolling`, by their full names. */
export const longPolling = {
  "longPolling.enabled": [{ name: "DUROXIDE_LONG_POLLING", ...Environment.flag }],
  "longPolling.fallbackPollInterval": polling("fallbackPollInterval", Environment.duration(1)),
  "longPolling.maxWaitTime": polling("maxWaitTime", Environment.duration(0)),
  "longPolling.timerGracePeriod": polling("timerGracePeriod", Environment.duration(0)),
  "longPolling.aggressivePollDuration": polling("aggressivePollDuration", Environment.duration(0)),
  "longPolling.aggressiveExitThreshold": polling("aggressiveExitThreshold", Environment.count(1)),
  "longPolling.notifyDeliveryTimeout": polling("notifyDeliveryTimeout", Environment.duration(0)),
  "longPolling.aggressivePollInterval": polling("aggressivePollInterval", Environment.duration(1))
}

export const provider = {
  ...database,
  lanes: Environment.variable("DUROXIDE_", "lanes", Environment.count(1)),
  maxBatch: Environment.variable("DUROXIDE_", "maxBatch", Environment.count(1))
}

export const credentials = {
  credentials: pg("credentials", Environment.choice("url", "file", "entra", "rds")),
  passwordFile: pg("passwordFile", Environment.text),
  entraScope: pg("entraScope", Environment.text)
}

/** What chooses the `Credentials`. */
export const credentialsConfig = Config.mapEffect(Environment.config(credentials), ({ options }) => {
  const { passwordFile } = options
  const kind = options.credentials ?? (passwordFile === undefined ? "url" : "file")
  return kind === "file" && passwordFile === undefined
    ? Environment.refused(["DUROXIDE_PG_PASSWORD_FILE is not set; DUROXIDE_PG_CREDENTIALS=file needs it"])
    : passwordFile !== undefined && kind !== "file"
    ? Environment.refused([`DUROXIDE_PG_PASSWORD_FILE is set, and DUROXIDE_PG_CREDENTIALS=${kind} does not use it`])
    : Effect.succeed({ ...options, credentials: kind })
})

interface Place {
  readonly url?: string | Redacted.Redacted<string> | undefined
  readonly pool?: object | undefined
}

interface Polling extends Place {
  readonly longPolling?: object | undefined
}

/** The options of `PrismaProvider.layer`. What no variable sets is that of `defaults`. */
export const providerConfig = <Options extends Polling>(defaults?: Partial<Options>) =>
  configOf<Options>({ ...provider, ...longPolling }, defaults)

/** The options of `PrismaProvider.layerDatabase`. */
export const databaseConfig = <Options extends Polling>(defaults?: Partial<Options>) =>
  configOf<Options>({ ...database, "longPolling.enabled": longPolling["longPolling.enabled"] }, defaults)

// internal

const prefix = "longPolling."

/** Variables that do not matter to a pool of the application, which may be made with them. */
const ofOwnPools: ReadonlySet<string> = new Set([
  "url",
  "maxConnections",
  "idleTimeout",
  "maxLifetime",
  "applicationName"
])

const configOf = <Options extends Polling>(
  variables: Parameters<typeof Environment.config>[0],
  defaults: Partial<Options> = {}
) =>
  Config.mapEffect(Environment.config(defaults.pool === undefined ? variables : ofPool(variables)), ({
    options,
    origins
  }) => {
    const given = Object.entries(options)
    const polling = given.flatMap(([name, value]) =>
      name.startsWith(prefix) ? [[name.slice(prefix.length), value]] : []
    )
    return Effect.map(
      withPlace<Options>({
        ...defaults,
        ...Object.fromEntries(given.filter(([name]) => !name.startsWith(prefix))),
        longPolling: { ...defaults.longPolling, ...Object.fromEntries(polling) }
      }),
      (options) => ({ options, origins })
    )
  })

const ofPool = <Variables extends object>(variables: Variables) =>
  Object.fromEntries(Object.entries(variables).filter(([option]) => !ofOwnPools.has(option))) as Variables

/** `DATABASE_URL` must be set unless the application has a URL or a pool. */
const withPlace = <Options extends Place>(options: Partial<Options>): Effect.Effect<Options, Config.ConfigError> =>
  options.url === undefined && options.pool === undefined
    ? Environment.refused([`DATABASE_URL is not set; it must be ${url.allowed}`])
    : Effect.succeed(options as Options)
