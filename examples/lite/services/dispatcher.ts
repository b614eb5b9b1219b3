/**
 * Publishes the outbox. Several may run.
 */
import { Outbox } from "duroxide-prisma/outbox"
import { Effect, Layer } from "effect"
import * as Http from "../shared/http.ts"
import * as Platform from "../shared/platform.ts"
import { health, ready } from "../shared/process.ts"
import * as Settings from "../shared/settings.ts"

// Short, so that the demo is quick: what a dispatcher that died was about to send waits this long for the next one.
const Publisher = Outbox.publisher({ lease: "3 seconds" }).pipe(Layer.provide(Platform.queue()))

export const main = Effect.gen(function*() {
  yield* Layer.build(Publisher)
  const routes = Http.router({ "GET /health": health })
  return yield* ready(yield* Http.serve(routes, yield* Settings.port))
}).pipe(Effect.provide(Platform.stateStore("verify")))
