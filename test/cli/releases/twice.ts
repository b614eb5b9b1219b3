/** Two programs of one version. */
import * as Effect from "effect/Effect"
import { Fulfil } from "./definitions.ts"

export const FulfilLive = Fulfil.toLayer(() => Effect.void)
export const FulfilMock = Fulfil.toLayer(() => Effect.void)
