/**
 * Which protection a connection has: decided from the URL's `sslmode`, the options, and the host.
 *
 * The names are those of libpq. Two meanings are stricter: `require` verifies the certificate, and a URL without
 * `sslmode` asks for verified TLS unless the server runs on this machine.
 */
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import { readFileSync } from "node:fs"
import { isIP } from "node:net"
import * as tls from "node:tls"
import * as ProviderError from "../../provider/ProviderError.ts"

/** `Database.Tls`. */
export interface Options {
  /** Certificates of the authorities to trust, PEM; several in one text. Defaults to those that Node trusts. */
  readonly ca?: string | undefined
  /** Certificate of the client, PEM. */
  readonly cert?: string | undefined
  /** Private key of the client, PEM. */
  readonly key?: Redacted.Redacted<string> | undefined
  /** The name that the server's certificate must have. Defaults to the host of the URL. */
  readonly serverName?: string | undefined
}

export interface Wishes {
  /** Parameters of the URL, decoded. */
  readonly parameters: URLSearchParams
  readonly host: string
  readonly options: Options | undefined
  /** What may only be sent over verified TLS, for messages. */
  readonly secret: string | undefined
}

export interface Protection {
  readonly name: "off" | "unverified" | "authority only" | "verified"
  /** For `pg`. */
  readonly ssl: false | tls.ConnectionOptions
}

/** The parameters of the URL that are read here. */
const parameterNames = [
  "ssl",
  "sslmode",
  "sslrootcert",
  "sslcert",
  "sslkey",
  "sslnegotiation",
  "uselibpqcompat"
] as const

export const resolve = (wishes: Wishes): Result.Result<Protection, ProviderError.ConfigurationInvalid> =>
  Result.gen(function*() {
    const { host, options = {}, secret } = wishes
    const given = (name: typeof parameterNames[number]) => {
      const value = wishes.parameters.get(name) ?? process.env[`PG${name.toUpperCase()}`]
      return value === "" ? undefined : value
    }
    const rootFile = given("sslrootcert") === "system" ? undefined : given("sslrootcert")
    const hasAuthority = options.ca !== undefined || rootFile !== undefined
    const asksForTls = Object.values(options).some((value) => value !== undefined) ||
      given("sslnegotiation") === "direct" ||
      (["sslrootcert", "sslcert", "sslkey"] as const).some((name) => wishes.parameters.has(name))
    const byDefault = secret !== undefined || asksForTls || !isLocal(host) ? "verified" : "off"
    const name = yield* nameOf(given("sslmode") ?? modeOfSsl(given("ssl")), {
      byDefault,
      isWeak: given("uselibpqcompat") === "true",
      hasAuthority
    })
    if (secret !== undefined && (name === "off" || name === "unverified")) {
      return yield* invalid(
        `${secret} would be sent to a server that proves nothing. Use sslmode=verify-full, with sslrootcert if the ` +
          "server's authority is not a public one"
      )
    }
    if (name === "off") return { name, ssl: false }

    const ca = yield* textOf(options.ca, rootFile)
    const cert = yield* textOf(options.cert, given("sslcert"))
    const key = yield* textOf(options.key && Redacted.value(options.key), given("sslkey"))
    const { serverName } = options
    return {
      name,
      ssl: {
        // Read for each connection: files of certificates are renewed while a process runs.
        get ca() {
          return ca()
        },
        get cert() {
          return cert()
        },
        get key() {
          return key()
        },
        rejectUnauthorized: name !== "unverified",
        ...(name === "authority only"
          ? { checkServerIdentity: () => undefined }
          : serverName === undefined
          ? {}
          : {
            checkServerIdentity: (_: string, found: tls.PeerCertificate) => tls.checkServerIdentity(serverName, found)
          })
      }
    }
  })

// internal

/** The socket directory, or an address that never leaves the machine. */
const isLocal = (host: string) =>
  host.startsWith("/") || host === "localhost" || host === "::1" || (isIP(host) === 4 && host.startsWith("127."))

/** The parameter of `pg`. */
const modeOfSsl = (ssl: string | undefined) =>
  ssl === "true" || ssl === "1" ? "verify-full" : ssl === "false" || ssl === "0" ? "disable" : ssl

const nameOf = (
  mode: string | undefined,
  { byDefault, hasAuthority, isWeak }: {
    readonly byDefault: "verified" | "off"
    /** The URL asks for the meaning that `require` has in libpq. */
    readonly isWeak: boolean
    readonly hasAuthority: boolean
  }
): Result.Result<Protection["name"], ProviderError.ConfigurationInvalid> => {
  switch (mode) {
    case undefined:
    case "allow":
    case "prefer":
      return Result.succeed(byDefault)
    case "disable":
      return Result.succeed("off")
    case "no-verify":
      return Result.succeed("unverified")
    case "require":
      return Result.succeed(!isWeak ? "verified" : hasAuthority ? "authority only" : "unverified")
    case "verify-ca":
      return hasAuthority ? Result.succeed("authority only") : invalid(
        "sslmode=verify-ca needs sslrootcert, because public authorities issue certificates to everyone; " +
          "use verify-full with the public ones"
      )
    case "verify-full":
      return Result.succeed("verified")
    default:
      return invalid(`sslmode is one of disable, require, verify-ca, verify-full and no-verify, not ${mode}`)
  }
}

/** The given text, else that of the file; if the file cannot be read later on, the text it had. */
const textOf = (
  given: string | undefined,
  path: string | undefined
): Result.Result<() => string | undefined, ProviderError.ConfigurationInvalid> => {
  if (given !== undefined || path === undefined) return Result.succeed(() => given)
  const read = () =>
    Result.try({ try: () => readFileSync(path, "utf8"), catch: (thrown) => (thrown as NodeJS.ErrnoException).code })
  const first = read()
  if (Result.isFailure(first)) {
    return invalid(`the certificate or key ${path} cannot be read (${first.failure})`)
  }
  let text = first.success
  return Result.succeed(() => (text = Result.getOrElse(read(), () => text)))
}

const invalid = (problem: string) => Result.fail(new ProviderError.ConfigurationInvalid({ problem }))
