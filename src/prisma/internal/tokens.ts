/**
 * Tokens of cloud platforms that are passwords of a database: obtained by packages of the platform, which the
 * application installs if it needs them.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import * as Redacted from "effect/Redacted"
import * as ProviderError from "../../provider/ProviderError.ts"
import * as SqlFault from "../../provider/SqlFault.ts"
import type { Issued } from "./passwords.ts"

/** Shape of `Credentials.TokenCredential`, where it is documented. */
interface TokenCredential {
  readonly getToken: (
    scope: string,
    options: { readonly abortSignal: AbortSignal }
  ) => Promise<{ readonly token: string; readonly expiresOnTimestamp: number } | null>
}

/** Credential of the application's identity. Fails with `ConfigurationInvalid` if the package is not installed. */
export const azureIdentity = (clientId: string | undefined) =>
  Effect.map(
    installed("@azure/identity", async () => {
      // Bundlers leave the import alone if the package is not installed, because it stands in a `try`.
      try {
        return await import("@azure/identity")
      } catch (thrown) {
        throw loadFailure(thrown)
      }
    }),
    ({ DefaultAzureCredential }): TokenCredential =>
      new DefaultAzureCredential(
        clientId === undefined ? {} : { managedIdentityClientId: clientId, workloadIdentityClientId: clientId }
      )
  )

/** Obtains a token. */
export const entra = (credential: TokenCredential, scope: string) => {
  let isKnown = false
  return () =>
    Effect.tryPromise({
      try: (abortSignal) => credential.getToken(scope, { abortSignal }),
      catch: (thrown) =>
        // An identity that had a token is known, and lacks one for a while.
        !isKnown && isRefused(thrown)
          ? invalid(
            `no token of Microsoft Entra: ${messageOf(thrown)}. Check that the process has an identity ` +
              "(AZURE_CLIENT_ID for one of several) or that someone has logged in with az login"
          )
          : unavailable(`no token of Microsoft Entra: ${messageOf(thrown)}`)
    }).pipe(
      Effect.filterOrFail(Predicate.isNotNullish, () => invalid("the credential of Microsoft Entra returned no token")),
      Effect.map(({ expiresOnTimestamp, token }): Issued => {
        isKnown = true
        return { password: Redacted.make(token), expiresAtMs: expiresOnTimestamp }
      })
    )
}

/** Makes tokens from the credentials of AWS. Fails with `ConfigurationInvalid` if the package is not installed. */
export const rdsSigner = Effect.map(
  installed("@aws-sdk/rds-signer", async () => {
    try {
      return await import("@aws-sdk/rds-signer")
    } catch (thrown) {
      throw loadFailure(thrown)
    }
  }),
  ({ Signer }) => Signer
)

/** Shape of `Credentials.RdsOptions`, where they are documented. */
interface RdsOptions {
  readonly region?: string | undefined
  readonly hostname?: string | undefined
  readonly port?: number | undefined
}

/** Makes a token, which is valid for 15 minutes. */
export const rds = (Signer: Effect.Success<typeof rdsSigner>, { hostname, port, region }: RdsOptions) => {
  let isKnown = false
  return (request: { readonly host: string; readonly port: number; readonly user: string }) =>
    Effect.gen(function*() {
      const signedAtMs = yield* Clock.currentTimeMillis
      const token = yield* Effect.tryPromise({
        try: () =>
          new Signer({
            hostname: hostname ?? request.host,
            port: port ?? request.port,
            username: request.user,
            ...(region === undefined ? {} : { region })
          }).getAuthToken(),
        catch: (thrown) =>
          !isKnown && isRefused(thrown)
            ? invalid(
              `no token of AWS IAM: ${messageOf(thrown)}. Check that the process has credentials of AWS and a region ` +
                "(AWS_REGION)"
            )
            : unavailable(`no token of AWS IAM: ${messageOf(thrown)}`)
      })
      isKnown = true
      return { password: Redacted.make(token), expiresAtMs: signedAtMs + rdsLifetimeMs } satisfies Issued
    })
}

export const invalid = (problem: string) => new ProviderError.ConfigurationInvalid({ problem })

export const unavailable = (problem: string) => new ProviderError.Unavailable({ sqlState: null, problem })

/** Reason for an error that a function of the application threw. */
export const failed = (thrown: unknown) => unavailable(`the function for the password failed: ${messageOf(thrown)}`)

/** Message of what a package or a function of the application threw, without URLs, which may have secrets. */
export const messageOf = (thrown: unknown): string =>
  SqlFault.scrub((thrown instanceof Error ? thrown.message || thrown.name : String(thrown)).replace(/\s*\n\s*/g, " "))
    .replace(/\.$/, "")

// internal

const rdsLifetimeMs = 900_000

/** Failures that end when someone changes the settings; by the names that the packages give to their errors. */
const isRefused = (thrown: unknown): boolean => {
  const name = thrown instanceof Error ? thrown.name : ""
  const errors = Predicate.hasProperty(thrown, "errors") && Array.isArray(thrown.errors) ? thrown.errors : []
  const status = Predicate.hasProperty(thrown, "statusCode") ? Number(thrown.statusCode) : 0
  return name === "CredentialUnavailableError" || name === "CredentialsProviderError" ||
    (status >= 400 && status < 500 && status !== 408 && status !== 429) ||
    (errors.length > 0 && errors.every(isRefused)) ||
    (thrown instanceof Error && thrown.message.startsWith("Region is missing"))
}

class NotInstalled extends Error {}

const loadFailure = (thrown: unknown) =>
  // As Node says it in ES modules, and in bundles of CommonJS.
  Predicate.hasProperty(thrown, "code") && /^(ERR_)?MODULE_NOT_FOUND$/.test(String(thrown.code))
    ? new NotInstalled()
    : thrown

function installed<Module>(name: string, load: () => Promise<Module>) {
  return Effect.tryPromise({
    try: load,
    catch: (thrown) =>
      thrown instanceof NotInstalled
        ? invalid(`the package ${name} is not installed: npm install ${name}`)
        : invalid(`the package ${name} cannot be loaded: ${messageOf(thrown)}`)
  })
}
