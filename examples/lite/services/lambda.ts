/**
 * Schedules and webhooks as an AWS Lambda function: EventBridge Scheduler calls it when something may be due, and webhooks
 * that arrive at its URL become Web requests for the handler that the gateway serves.
 */
import { Trigger } from "duroxide-prisma/recipes/triggers"
import { Schedules } from "duroxide-prisma/schedules"
import { Tasks } from "duroxide-prisma/tasks"
import { Effect, Layer, ManagedRuntime } from "effect"
import * as Platform from "../shared/platform.ts"
import { census, censusByWebhook } from "../shared/triggers.ts"

/** The `Input` of a schedule of EventBridge. */
export interface Scheduled {
  readonly schedules: "due"
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

const webhooks = Effect.flatMap(censusByWebhook, (webhook) => Trigger.handler({ webhooks: [webhook] }))

let started: Promise<Effect.Success<typeof webhooks>> | undefined

export const handler = async (event: Scheduled | UrlCall) => {
  if ("schedules" in event) {
    // EventBridge repeats a call that has failed.
    const due = await runtime.runPromise(Effect.flatMap(census, (schedule) => Schedules.runDue([schedule])))
    return { statusCode: 200, body: JSON.stringify(due) }
  }
  const handle = await (started ??= runtime.runPromise(webhooks))
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
