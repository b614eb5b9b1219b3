/** A module with a layer that must not be built, and without programs. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"

export const DatabaseLive = Layer.effectDiscard(Effect.die(new Error("built")))
export const settings = { url: "postgresql://someone:sesame@127.0.0.1/nothing", pauses: [1, 2] }
