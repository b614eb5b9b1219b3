/**
 * What an open database logs: its address, and the settings that were given, with the environment variable of each.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { ours } from "../../model/shared/logging.ts"
import { setting, SettingOrigins, shown } from "../../model/shared/settings.ts"
import { Credentials } from "../Credentials.ts"

/** Options of `PrismaProvider.Options`, where they are documented. */
interface Options {
  readonly url?: unknown
  readonly pool?: unknown
  readonly directUrl?: unknown
  readonly longPolling?: object | undefined
}

/** Adds the settings to the line. URLs are logged as `host:port/database` only. */
export const annotated = (
  { address, schema, tls }: { readonly address: string; readonly schema: string; readonly tls: string },
  options: Options
) =>
(line: Effect.Effect<void>): Effect.Effect<void> =>
  Effect.gen(function*() {
    const origins = yield* SettingOrigins
    const credentials = yield* Effect.serviceOption(Credentials)
    yield* line.pipe(
      ours({
        address,
        schema,
        tls,
        ...(Option.isSome(credentials) && options.pool === undefined ? { credentials: credentials.value.kind } : {}),
        settings: given(options).map(([name, value]) => setting(name, value, origins)).join(", ") || "defaults"
      })
    )
  })

// internal

type Setting = readonly [name: string, value: string]

const given = (options: Options): ReadonlyArray<Setting> => [
  ...entries(options, (name) => named.has(name)),
  ...(options.pool === undefined ? [] : [["pool", "given"] as const]),
  ...(options.directUrl === undefined ? [] : [["directUrl", "given"] as const]),
  ...entries(options.longPolling ?? {}).map(([name, value]) => [`longPolling.${name}`, value] as const)
]

const entries = (options: object, isWanted = (_name: string) => true): ReadonlyArray<Setting> =>
  Object.entries(options).flatMap(([name, value]) =>
    value === undefined || !isWanted(name) ? [] : [[name, shown(value)]]
  )

/** The caller's object may have more than these. Address and schema are annotations of their own. */
const named: ReadonlySet<string> = new Set([
  "migrate",
  "allowAhead",
  "maxConnections",
  "checkoutTimeout",
  "statementTimeout",
  "idleTimeout",
  "maxLifetime",
  "applicationName",
  "preparedStatements",
  "clock",
  "lanes",
  "maxBatch"
])
