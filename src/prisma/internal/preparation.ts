/**
 * What a process does with the schema before its first statement.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import { ConfigurationInvalid, ProviderError } from "../../provider/ProviderError.ts"
import { MigrationError } from "../MigrationError.ts"
import * as Migrator from "../Migrator.ts"
import * as DirectUrl from "./directUrl.ts"
import type * as Login from "./login.ts"
import * as PoolLogin from "./poolLogin.ts"

/** Options of `PrismaProvider.Options`, where they are documented. */
interface Options extends Login.Place {
  readonly directUrl?: string | Redacted.Redacted<string> | undefined
  readonly schema?: string | undefined
  readonly migrate?: "apply" | "verify" | "adopt" | "none" | undefined
  readonly allowAhead?: boolean | undefined
}

export const layer = (options: Options): Layer.Layer<never, ProviderError | MigrationError> => {
  const { directUrl, pool, tls, url } = options
  // Not that of `directUrl`, if the schema of the pool is another one.
  const schema = options.schema ?? (pool === undefined ? undefined : PoolLogin.schemaOf(pool))
  const migrate = options.migrate ?? "apply"
  const allowAhead = options.allowAhead ?? false
  if (migrate === "none") return Layer.empty
  if (!Object.hasOwn(migrators, migrate)) {
    const problem = "migrate must be `apply`, `verify`, `adopt` or `none`"
    return Layer.effectDiscard(
      new ProviderError({ operation: "connect", reason: new ConfigurationInvalid({ problem }) })
    )
  }
  const { operation, run } = migrators[migrate]
  if (directUrl === undefined) {
    return Layer.effectDiscard(
      run(pool === undefined ? { url: url!, tls, schema, allowAhead } : { pool, schema, allowAhead })
    )
  }
  const check = Effect.scoped(DirectUrl.problemOf({ url, pool, directUrl, tls })).pipe(
    Effect.mapError((reason) => new ProviderError({ operation: "connect", reason })),
    Effect.flatMap((reason) =>
      reason === undefined ? Effect.void : Effect.fail(new MigrationError({ operation, reason }))
    )
  )
  return Layer.effectDiscard(Effect.andThen(
    check,
    Effect.mapError(
      run({ url: directUrl, tls, schema, allowAhead }),
      ({ operation, reason }) => new MigrationError({ operation, reason: DirectUrl.named(reason) })
    )
  ))
}

// internal

const migrators = {
  apply: { operation: "migrate", run: Migrator.migrate },
  verify: { operation: "verify", run: Migrator.verify },
  adopt: { operation: "adopt", run: Migrator.adopt }
} as const
