/**
 * One instance, for all pages that look at it.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Admin } from "../../provider/Admin.ts"
import type { InstanceInfo } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"

/** Null once the instance is not there. */
export type Seen = InstanceInfo | null

/**
 * Publishes the state whenever it has changed, and now and then in any case, so that a connection which is gone is
 * noticed. Hints lead to a look at once, as for `Client.wait`; what has no hint, such as a turn that only schedules, is
 * seen within a second.
 */
export const instance = Effect.fnUntraced(function*(
  id: string,
  publish: (state: Seen) => Effect.Effect<void>
): Effect.fn.Return<never, never, Admin | Provider> {
  const admin = yield* Admin
  const provider = yield* Provider
  let last = ""
  let quietMs = 0
  const read: Effect.Effect<Seen, ProviderError> = Effect.catchIf(
    admin.getInstanceInfo(id),
    ({ reason }) => reason._tag === "InstanceNotFound",
    () => Effect.succeed(null)
  )
  const look = Effect.gen(function*() {
    const state = yield* read
    const text = JSON.stringify(state)
    if (text !== last || quietMs >= longestQuietMs) {
      quietMs = 0
      last = text
      yield* publish(state)
    }
    const hasEnded = state !== null && state.status !== "Running" && state.status !== "ContinuedAsNew"
    const pauseMs = state === null || hasEnded ? slowMs : fastMs
    quietMs += pauseMs
    // Asks for a later version than there is, so it ends with the next status, the end, or the pause. A replica that
    // lags does not know yet what the wait has found, so two looks never follow each other at once.
    yield* Effect.sleep(shortestMs)
    yield* hasEnded ? Effect.sleep(pauseMs) : Effect.raceFirst(
      Effect.sleep(pauseMs - shortestMs),
      provider.awaitProgress({
        instanceId: id,
        until: ({ statusVersion }) =>
          statusVersion > (state?.customStatusVersion ?? 0) ? Option.some(true) : Option.none()
      })
    )
  })
  return yield* Effect.forever(
    Effect.catch(
      look,
      (error) => Effect.andThen(Effect.logDebug("Dashboard: the store did not answer", error), Effect.sleep(slowMs))
    )
  )
})

/** Publishes what is read again and again, whenever `keyOf` it has changed, and now and then in any case. */
export const changes = <A, E, R>(
  read: Effect.Effect<A, E, R>,
  keyOf: (value: A) => string,
  publish: (value: A) => Effect.Effect<void>,
  every: Duration.Input = "2 seconds"
): Effect.Effect<never, never, R> => {
  const everyMs = Duration.toMillis(every)
  let last: string | undefined
  let quietMs = 0
  const look = Effect.flatMap(read, (value) => {
    const key = keyOf(value)
    quietMs += everyMs
    if (key === last && quietMs < longestQuietMs) return Effect.void
    quietMs = 0
    last = key
    return publish(value)
  })
  return Effect.forever(
    Effect.andThen(
      Effect.catch(look, (error) => Effect.logDebug("Dashboard: the store did not answer", error)),
      Effect.sleep(everyMs)
    )
  )
}

// internal

const shortestMs = 250
const fastMs = 1_000
const slowMs = 5_000
const longestQuietMs = 15_000
