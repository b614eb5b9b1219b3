/**
 * Publishes the outbox, and takes the calls of the scheduler. Several may run.
 */
import { Outbox } from "duroxide-prisma/outbox"
import { Trigger } from "duroxide-prisma/recipes/triggers"
import { Tasks } from "duroxide-prisma/tasks"
import { Effect, Layer } from "effect"
import * as Http from "../shared/http.ts"
import * as Platform from "../shared/platform.ts"
import { health, ready } from "../shared/process.ts"
import * as Settings from "../shared/settings.ts"
import { censusByCron } from "../shared/triggers.ts"

// Short, so that the demo is quick: what a dispatcher that died was about to send waits this long for the next one.
const Publisher = Outbox.publisher({ lease: "3 seconds" }).pipe(Layer.provide(Platform.queue()))

export const main = Effect.gen(function*() {
  yield* Layer.build(Publisher)
  const trigger = yield* Trigger.handler({ token: yield* Settings.triggerToken, crons: [yield* censusByCron] })
  const routes = Http.router({
    "GET /health": health,
    "POST /triggers/cron/:name": ({ request }) => Effect.promise(() => trigger(request))
  })
  return yield* ready(yield* Http.serve(routes, yield* Settings.port))
}).pipe(Effect.provide(Tasks.layer.pipe(Layer.provideMerge(Platform.stateStore("verify")))))
