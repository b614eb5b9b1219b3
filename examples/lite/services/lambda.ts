/**
 * The triggers as an AWS Lambda function: calls of EventBridge Scheduler, and webhooks that arrive at the URL of the function,
 * become Web requests for the handler that dispatcher and gateway serve.
 */
import { Trigger } from "duroxide-prisma/recipes/triggers"
import { Tasks } from "duroxide-prisma/tasks"
import { Effect, Layer, ManagedRuntime, Redacted } from "effect"
import * as Platform from "../shared/platform.ts"
import * as Settings from "../shared/settings.ts"
import { censusByCron, censusByWebhook } from "../shared/triggers.ts"

/** The `Input` of a schedule; `until` is `<aws.scheduler.scheduled-time>`. */
export interface Scheduled {
  readonly trigger: string
  readonly until: string
}

/** What a function URL passes on, payload version 2.0. */
export interface UrlCall {
  readonly rawPath: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string
  readonly isBase64Encoded: boolean
  readonly requestContext: { readonly http: { readonly method: string } }
}

/** One runtime for all calls that this instance of the function receives. */
export const runtime = ManagedRuntime.make(Tasks.layer.pipe(Layer.provideMerge(Platform.stateStore("verify"))))

const triggers = Effect.gen(function*() {
  const token = yield* Settings.triggerToken
  const handle = yield* Trigger.handler({ token, crons: [yield* censusByCron], webhooks: [yield* censusByWebhook] })
  return { handle, token }
})

let started: Promise<Effect.Success<typeof triggers>> | undefined

export const handler = async (event: Scheduled | UrlCall) => {
  const { handle, token } = await (started ??= runtime.runPromise(triggers))
  if ("trigger" in event) {
    const response = await handle(
      new Request(`https://lambda/triggers/cron/${event.trigger}`, {
        method: "POST",
        headers: { authorization: `Bearer ${Redacted.value(token)}` },
        body: JSON.stringify({ until: event.until })
      })
    )
    // EventBridge repeats a call that has failed.
    if (!response.ok) throw new Error(`the trigger answered ${response.status}: ${await response.text()}`)
    return { statusCode: response.status }
  }
  const { body = "", headers, isBase64Encoded, rawPath, requestContext: { http: { method } } } = event
  const response = await handle(
    new Request(`https://lambda${rawPath}`, {
      method,
      headers,
      ...(method === "GET" || method === "HEAD" ? {} : { body: Buffer.from(body, isBase64Encoded ? "base64" : "utf8") })
    })
  )
  return { statusCode: response.status, headers: Object.fromEntries(response.headers), body: await response.text() }
}
