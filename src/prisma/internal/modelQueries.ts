/**
 * Queries of Prisma's models as effects.
 */
import * as Effect from "effect/Effect"
import { ProviderError } from "../../provider/ProviderError.ts"
import * as SqlFault from "../../provider/SqlFault.ts"

/** Runs model queries. Errors that `run` throws are classified like the failures of statements. */
export const models = <A>(operation: string, run: () => Promise<A>): Effect.Effect<A, ProviderError> =>
  Effect.tryPromise({
    try: run,
    catch: (thrown) =>
      thrown instanceof ProviderError
        ? thrown
        : new ProviderError({ operation, reason: SqlFault.classify(thrown) })
  })
