/**
 * The time that ages are counted from.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { Provider } from "../../provider/Provider.ts"

/** By the clock of the store, as far as its last answers say; otherwise by that of this process. */
export const storeNowMs: Effect.Effect<number, never, Provider> = Effect.flatMap(Provider, (provider) => {
  const nowMs = provider.storeNowMs()
  return nowMs === undefined ? Clock.currentTimeMillis : Effect.succeed(nowMs)
})
