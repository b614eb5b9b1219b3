/**
 * The time that ages are counted from.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { Provider } from "../../provider/Provider.ts"

/** That of the store's clock, as far as its last answers say; otherwise that of this process. */
export const storeNowMs: Effect.Effect<number, never, Provider> = Effect.flatMap(Provider, (provider) => {
  const nowMs = provider.storeNowMs()
  return nowMs === undefined ? Clock.currentTimeMillis : Effect.succeed(nowMs)
})
