/**
 * What a client of the stack does: sends the data set in batches, some of them twice, waits for the webhook that reports
 * the active version, queries it, and sends a signed webhook twice.
 */
import { Delivery } from "duroxide-prisma/recipes/deliveries"
import { Clock, Data, Deferred, Effect, Option, Redacted, Schedule } from "effect"
import type { Summary } from "../services/queryService.ts"
import * as Http from "../shared/http.ts"
import type * as Source from "./source.ts"

export const dataset = "readings"

export interface Options {
  readonly source: Source.Source
  readonly gatewayUrl: string
  readonly queryUrl: string
  readonly secret: Redacted.Redacted<string>
  /** Pause between two batches. */
  readonly paceMs: number
  readonly subscriber: Subscriber
  /** Runs after each batch, with their number so far; the story continues when it has ended. */
  readonly afterBatch: (batches: number) => Effect.Effect<void>
}

export interface Run {
  readonly version: number
  readonly sentTwice: number
  readonly summary: Summary
  /** Webhooks received, and those whose signature was wrong. */
  readonly deliveries: ReadonlyArray<string>
  readonly forged: number
  readonly webhooksSent: number
  readonly elapsedMs: number
}

export class Refused extends Data.TaggedError("Refused")<{ readonly request: string; readonly answer: string }> {
  override get message() {
    return `${this.request} was refused: ${this.answer}`
  }
}

export const run = Effect.fn("lite.story")(function*(options: Options) {
  const { source, subscriber } = options
  const startedAt = yield* Clock.currentTimeMillis
  let sentTwice = 0

  /** Every request is safe to repeat, so a client repeats those without an answer. */
  const send = (method: string, url: string, body?: string, headers?: Record<string, string>) =>
    Effect.tryPromise(() => fetch(url, { method, ...(body === undefined ? {} : { body, headers: headers ?? {} }) }))
      .pipe(
        Effect.filterOrFail(({ status }) => status < 500),
        Effect.retry({ schedule: Schedule.spaced("250 millis"), times: 80 }),
        Effect.flatMap((response) =>
          Effect.flatMap(Effect.promise(() => response.text()), (text) =>
            response.ok
              ? Effect.succeed(text === "" ? null : JSON.parse(text) as unknown)
              : Effect.fail(new Refused({ request: `${method} ${url}`, answer: text })))
        )
      )

  yield* send("PUT", `${options.gatewayUrl}/meters`, JSON.stringify(source.meters))
  const opened = yield* send("POST", `${options.gatewayUrl}/datasets/${dataset}/versions`, "{}")
  const { version } = opened as { readonly version: number }
  const address = `${options.gatewayUrl}/datasets/${dataset}/versions/${version}`

  for (const [index, batch] of source.batches.entries()) {
    const put = send("PUT", `${address}/batches/${batch.id}`, batch.ndjson)
    if (index % 10 === 3) {
      sentTwice++
      yield* Effect.all([put, put], { concurrency: 2, discard: true })
    } else yield* put
    yield* options.afterBatch(index + 1)
    yield* Effect.sleep(options.paceMs)
  }
  yield* send("POST", `${address}/finish`, JSON.stringify({ batches: source.batches.length }))
  yield* Effect.timeoutOrElse(subscriber.activated, {
    duration: "90 seconds",
    orElse: () => Effect.fail(new Refused({ request: "the version", answer: "it is not active after 90 seconds" }))
  })

  const summary = (yield* send("GET", `${options.queryUrl}/datasets/${dataset}/summary`)) as Summary

  // Another party asks for a count, and because the first answer seems lost, asks again.
  const body = JSON.stringify({ reason: "webhook" })
  const headers = yield* Delivery.sign({ id: `msg-${startedAt}`, body, secret: options.secret })
  for (let i = 0; i < 2; i++) yield* send("POST", `${options.gatewayUrl}/webhooks/census`, body, { ...headers })

  return {
    version,
    sentTwice,
    summary,
    deliveries: subscriber.received,
    forged: subscriber.forged(),
    webhooksSent: 2,
    elapsedMs: (yield* Clock.currentTimeMillis) - startedAt
  } satisfies Run
})

export interface Subscriber {
  readonly port: number
  /** Events received, in order; deliveries that come twice have the same id and count once. */
  readonly received: ReadonlyArray<string>
  readonly forged: () => number
  /** Waits for the event `dataset.activated`. */
  readonly activated: Effect.Effect<void>
}

/** Receives webhooks, as another company would. */
export const subscribe = Effect.fnUntraced(function*(port: number, secret: Redacted.Redacted<string>) {
  const activated = yield* Deferred.make<void>()
  const seen = new Set<string>()
  const received: Array<string> = []
  let forged = 0
  const receive: Http.Route<never> = Effect.fnUntraced(function*({ request }) {
    const body = yield* Effect.promise(() => request.text())
    const verified = yield* Effect.option(Delivery.verify(request.headers, body, secret))
    if (Option.isNone(verified)) {
      forged++
      return new Response(null, { status: 400 })
    }
    const { id } = verified.value
    if (!seen.has(id)) {
      seen.add(id)
      const { type } = JSON.parse(body) as { readonly type: string }
      received.push(type)
      if (type === "dataset.activated") yield* Deferred.succeed(activated, undefined)
    }
    return new Response(null, { status: 204 })
  })
  const bound = yield* Http.serve(Http.router({ "POST /deliveries": receive }), port)
  return { port: bound, received, forged: () => forged, activated: Deferred.await(activated) } satisfies Subscriber
})
