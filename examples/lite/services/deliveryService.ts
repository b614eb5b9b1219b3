/**
 * Sends webhooks to the subscriber: the tasks that `Delivery` creates. With `EGRESS_URL` they leave through the egress gateway.
 */
import { Delivery } from "duroxide-prisma/recipes/deliveries"
import { TaskWorker } from "duroxide-prisma/tasks"
import { Effect, Layer, Option } from "effect"
import * as Platform from "../shared/platform.ts"
import { ready } from "../shared/process.ts"
import * as Settings from "../shared/settings.ts"

/** `fetch` through the egress gateway. */
const through = (egressUrl: string): typeof fetch => (input, init) => {
  const request = new Request(input, init)
  request.headers.set("x-egress-url", request.url)
  return fetch(egressUrl, {
    method: request.method,
    headers: request.headers,
    body: init?.body ?? null,
    signal: request.signal
  })
}

const Deliveries = Layer.unwrap(Effect.gen(function*() {
  const url = yield* Settings.subscriberUrl
  const secret = yield* Settings.webhookSecret
  const egressUrl = yield* Settings.egressUrl
  return Delivery.layer({
    endpoints: (name) => Effect.succeed(name === "subscriber" ? Option.some({ url, secret }) : Option.none()),
    fetch: Option.isSome(egressUrl) ? through(egressUrl.value) : fetch
  })
}))

const Worker = TaskWorker.layer({ tasks: [Delivery.Webhook], workerId: Platform.workerId("delivery_service") }).pipe(
  Layer.provide([Deliveries, Platform.queue()]),
  Layer.provide(Platform.stateStore("verify"))
)

export const main = Effect.andThen(Layer.build(Worker), ready())
