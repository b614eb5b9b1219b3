/**
 * A hotel and a browser, for all tests of a file.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Browser } from "playwright-core"
import * as Chromium from "./chromium.ts"
import * as Hotel from "./hotel.ts"

export class Lobby extends Context.Service<Lobby, Hotel.Hotel & { readonly browser: Browser }>()("test/Lobby") {}

export const layer = Layer.effect(
  Lobby,
  Effect.gen(function*() {
    const browser = yield* Chromium.launch
    return { ...yield* Hotel.open, browser }
  })
)
