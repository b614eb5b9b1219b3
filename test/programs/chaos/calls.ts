// How a client of a chaos run notes its calls.
import * as Effect from "effect/Effect"

/** Notes a call before it is made, and its outcome; whether it was acknowledged. */
export type Acknowledged = <A, E extends { readonly message: string }, R>(
  call: object,
  effect: Effect.Effect<A, E, R>
) => Effect.Effect<boolean, never, R>

export const calls = (note: (line: object) => void): Acknowledged => (call, effect) =>
  Effect.suspend(() => {
    note({ event: "call", ...call })
    return effect
  }).pipe(
    Effect.matchEffect({
      onSuccess: () => Effect.sync(() => (note({ event: "acknowledged", ...call }), true)),
      onFailure: ({ message }) =>
        Effect.as(
          Effect.andThen(Effect.sync(() => note({ event: "failed", ...call, message })), Effect.sleep(200)),
          false
        )
    })
  )
