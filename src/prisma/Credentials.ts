/**
 * Where the password of a login comes from, if it is not that of the URL: from a file, from a function of the
 * application, or from the platform as a short-lived token.
 *
 * An optional service. Everything that opens a connection (the pool, the connection that listens, migrations, the check
 * of `directUrl`) takes it from the context, and then ignores the password of its URL. A password matters only at
 * login: open connections stay open when it runs out.
 *
 * @since 0.2.0
 */
import * as Clock from "effect/Clock"
import * as Config from "effect/Config"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as fs from "node:fs/promises"
import * as ProviderError from "../provider/ProviderError.ts"
import * as Environment from "./internal/environment.ts"
import * as Passwords from "./internal/passwords.ts"
import * as Tokens from "./internal/tokens.ts"

/**
 * A login that needs a password.
 *
 * @category models
 * @since 0.2.0
 */
export interface Request {
  readonly host: string
  readonly port: number
  readonly user: string
  readonly database: string
  /** The password that the server refused last. Who would return it again asks for a new one first. */
  readonly refused?: Redacted.Redacted<string> | undefined
}

/**
 * Passwords for logins.
 *
 * @category services
 * @since 0.2.0
 */
export class Credentials extends Context.Service<Credentials, {
  /** What the passwords are, for messages: "a token of Microsoft Entra". */
  readonly kind: string
  /**
   * Whether the server gets the password itself, not a hash: it is then sent only over TLS with a verified certificate.
   * Defaults to false.
   */
  readonly requiresTls?: boolean | undefined
  /** A password that is valid now. Asked for by each new connection. */
  readonly password: (request: Request) => Effect.Effect<Redacted.Redacted<string>, ProviderError.ProviderError>
}>()("duroxide-prisma/prisma/Credentials") {}

/**
 * How a password is obtained, and how long it is used.
 *
 * @category options
 * @since 0.2.0
 */
export interface Options<E = never, R = never> {
  /**
   * Obtains the password: a call of a secret store, or a variable of the environment with
   * `Config.Redacted("POSTGRES_PASSWORD")`. Interrupted after a minute;
   * a connection waits for 8 seconds.
   */
  readonly password: Effect.Effect<Redacted.Redacted<string>, E, R>
  /** How long a password is used, more than 0. Defaults to 1 hour. */
  readonly timeToLive?: Duration.Input | undefined
  /**
   * A new password is obtained this long before the old one runs out; if that fails, the old one is used until then. At
   * most half of `timeToLive`, the default.
   */
  readonly refreshBefore?: Duration.Input | undefined
}

/**
 * Passwords that a function returns.
 *
 * **Details**
 *
 * All connections share one call. It is repeated before `timeToLive` is over, or at once if the server refuses the
 * password, which may have been changed early. If a call fails while the last password is still valid, that one is used
 * and a warning logged; otherwise connecting fails with `ProviderError`, reason `Unavailable`, or
 * `ConfigurationInvalid` if the call returned no password.
 *
 * @category layers
 * @since 0.2.0
 */
export const layer = <E, R>(
  options: Options<E, R>
): Layer.Layer<Credentials, ProviderError.ProviderError, R> =>
  Layer.effect(
    Credentials,
    Effect.gen(function*() {
      const timeToLiveMs = yield* milliseconds("timeToLive", options.timeToLive ?? "1 hour")
      const refreshBeforeMs = options.refreshBefore === undefined
        ? timeToLiveMs / 2
        : yield* milliseconds("refreshBefore", options.refreshBefore)
      const context = yield* Effect.context<R>()
      return yield* issued({
        kind: "a password of the application's function",
        keyOf: () => "",
        refreshBeforeMs,
        issue: () =>
          Effect.gen(function*() {
            const password = yield* options.password
            return { password, expiresAtMs: (yield* Clock.currentTimeMillis) + timeToLiveMs }
          }).pipe(
            Effect.catchDefect((defect) => Effect.fail(defect)),
            Effect.mapError(ofFunction),
            Effect.provide(context)
          )
      })
    })
  )

/**
 * The password in a file, as Kubernetes and Docker mount secrets; without the line break at its end.
 *
 * **Details**
 *
 * Read for each new connection, so a new password needs no restart. Connecting fails with `ConfigurationInvalid` if the
 * file cannot be read or is empty.
 *
 * @category layers
 * @since 0.2.0
 */
export const layerFile = (path: string): Layer.Layer<Credentials> =>
  Layer.succeed(Credentials, {
    kind: "a password file",
    password: () =>
      Effect.tryPromise({
        try: () => fs.readFile(path, "utf8"),
        catch: (thrown) => invalid(`the password file ${path} cannot be read (${codeOf(thrown)})`)
      }).pipe(
        Effect.map((text) => text.replace(/\r?\n$/, "")),
        Effect.filterOrFail((text) => text !== "", () => invalid(`the password file ${path} is empty`)),
        Effect.map((text) => Redacted.make(text)),
        Effect.mapError(connecting)
      )
  })

/**
 * What obtains tokens of Microsoft Entra, as in `@azure/identity`.
 *
 * @category models
 * @since 0.2.0
 */
export interface TokenCredential {
  readonly getToken: (
    scope: string,
    options: { readonly abortSignal: AbortSignal }
  ) => Promise<{ readonly token: string; readonly expiresOnTimestamp: number } | null>
}

/**
 * Everything has a default.
 *
 * @category options
 * @since 0.2.0
 */
export interface EntraOptions {
  /**
   * Obtains the tokens. Defaults to `DefaultAzureCredential` of `@azure/identity`: managed or workload identity, the
   * Azure CLI, …
   */
  readonly credential?: TokenCredential | undefined
  /** Client id of the managed or workload identity, if there are several. Defaults to `AZURE_CLIENT_ID`. */
  readonly clientId?: string | undefined
  /**
   * Scope of the tokens. Defaults to `https://ossrdbms-aad.database.windows.net/.default`; other clouds have another
   * one.
   */
  readonly scope?: string | undefined
  /** A new token is obtained this long before the old one runs out. Defaults to 10 minutes. */
  readonly refreshBefore?: Duration.Input | undefined
}

/**
 * Tokens of Microsoft Entra, for Azure Database for PostgreSQL. The user of the URL is the name of the principal.
 *
 * **Details**
 *
 * Needs the package `@azure/identity`, unless `credential` is given; opening fails with `ConfigurationInvalid` without
 * it. Tokens are replaced as the passwords of `layer`. If the very first one cannot be obtained because the identity is
 * refused or missing, connecting fails with `ConfigurationInvalid`; any other failure is `Unavailable`.
 *
 * @category layers
 * @since 0.2.0
 */
export const layerEntra = (options: EntraOptions = {}): Layer.Layer<Credentials, ProviderError.ProviderError> =>
  Layer.effect(
    Credentials,
    Effect.gen(function*() {
      const { clientId, scope = "https://ossrdbms-aad.database.windows.net/.default" } = options
      const credential = options.credential ?? (yield* Tokens.azureIdentity(clientId).pipe(Effect.mapError(connecting)))
      return yield* issued({
        kind: "a token of Microsoft Entra",
        requiresTls: true,
        keyOf: () => "",
        refreshBeforeMs: yield* milliseconds("refreshBefore", options.refreshBefore ?? "10 minutes"),
        issue: Tokens.entra(credential, scope)
      })
    })
  )

/**
 * Everything has a default.
 *
 * @category options
 * @since 0.2.0
 */
export interface RdsOptions {
  /** Region of the database. Defaults to that of the environment (`AWS_REGION`) or the profile. */
  readonly region?: string | undefined
  /**
   * Name of the database's endpoint, if the URL names another one, such as a tunnel. Defaults to the host of the URL.
   */
  readonly hostname?: string | undefined
  /** The port of that endpoint. Defaults to that of the URL. */
  readonly port?: number | undefined
  /**
   * A new token is made this long before the old one, which is valid for 15 minutes, runs out. Defaults to 5 minutes.
   */
  readonly refreshBefore?: Duration.Input | undefined
}

/**
 * Tokens of AWS IAM, for Amazon RDS and Aurora. The user of the URL is a role with `rds_iam`.
 *
 * **Details**
 *
 * Needs the package `@aws-sdk/rds-signer`; opening fails with `ConfigurationInvalid` without it. The credentials of AWS
 * come from where its SDK finds them: environment, files, container or instance role. Tokens are replaced as the
 * passwords of `layer`; each user and server has its own.
 *
 * @category layers
 * @since 0.2.0
 */
export const layerRds = (options: RdsOptions = {}): Layer.Layer<Credentials, ProviderError.ProviderError> =>
  Layer.effect(
    Credentials,
    Effect.gen(function*() {
      const signer = yield* Effect.mapError(Tokens.rdsSigner, connecting)
      return yield* issued({
        kind: "a token of AWS IAM",
        requiresTls: true,
        keyOf: ({ host, port, user }) => `${user}@${host}:${port}`,
        refreshBeforeMs: yield* milliseconds("refreshBefore", options.refreshBefore ?? "5 minutes"),
        issue: Tokens.rds(signer, options)
      })
    })
  )

/**
 * The credentials that environment variables choose. `DUROXIDE_PG_CREDENTIALS` is one of:
 *
 * - `url`, the default: those of the URL; nothing is provided.
 * - `file`: `layerFile` with `DUROXIDE_PG_PASSWORD_FILE`. The default if that is set.
 * - `entra`: `layerEntra`, with `DUROXIDE_PG_ENTRA_SCOPE` and the variables of `@azure/identity`.
 * - `rds`: `layerRds`, with the variables of the AWS SDK.
 *
 * @category layers
 * @since 0.2.0
 */
export const layerConfig: Layer.Layer<never, ProviderError.ProviderError | Config.ConfigError> = Layer.unwrap(
  Effect.map(
    Environment.credentialsConfig,
    ({ credentials, entraScope, passwordFile }): Layer.Layer<never, ProviderError.ProviderError> => {
      switch (credentials) {
        case "url":
          return Layer.empty
        case "file":
          return layerFile(passwordFile ?? "")
        case "entra":
          return layerEntra({ scope: entraScope })
        case "rds":
          return layerRds()
      }
    }
  )
)

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const connecting = (reason: ProviderError.Reason) => new ProviderError.ProviderError({ operation: "connect", reason })

const { invalid, messageOf } = Tokens

const ofFunction = (error: unknown): ProviderError.Reason =>
  error instanceof Config.ConfigError ? invalid(messageOf(error)) : Tokens.failed(error)

const codeOf = (error: unknown) => String((error as NodeJS.ErrnoException | undefined)?.code)

const issued = Effect.fnUntraced(function*(options: Passwords.Options<Request> & { readonly requiresTls?: boolean }) {
  const password = yield* Passwords.make(options)
  return Credentials.of({
    kind: options.kind,
    requiresTls: options.requiresTls,
    password: (request) => Effect.mapError(password(request), connecting)
  })
})

const milliseconds = (name: string, input: Duration.Input) => {
  const millis = Duration.toMillis(Duration.fromInputUnsafe(input))
  return millis > 0 && Number.isFinite(millis)
    ? Effect.succeed(millis)
    : Effect.fail(connecting(invalid(`${name} of Credentials must be more than 0 and have an end`)))
}
