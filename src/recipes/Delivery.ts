/**
 * Webhooks to other parties, as tasks: an event is written in the transaction that makes it necessary, and posted to
 * its endpoint later, until the endpoint has accepted it or refuses it for good.
 *
 * Delivery is at-least-once: a receiver may get an event twice, with the same `webhook-id`. Requests are signed by the
 * Standard Webhooks specification, and `verify` checks them on the other side.
 *
 * @since 0.2.0
 */
import * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Metrics from "../model/Metrics.ts"
import { wholeMs } from "../model/shared/durations.ts"
import { seriesOf } from "../model/shared/labelled.ts"
import type { PayloadMismatch, PayloadTooLarge } from "../model/shared/payload.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import * as Task from "../tasks/Task.ts"
import * as Tasks from "../tasks/Tasks.ts"
import * as signature from "./internal/signature.ts"
import * as webhook from "./internal/webhookPost.ts"

/**
 * An event, and who receives it.
 *
 * @category models
 * @since 0.2.0
 */
export interface Event {
  /** The name by which `endpoints` of `layer` finds address and secret. */
  readonly endpoint: string
  /** What happened, such as `dataset.activated`; the `type` of the body. */
  readonly event: string
  /** What is known of it; the `data` of the body. Defaults to null. */
  readonly data?: Schema.Json | undefined
}

/**
 * How a delivery is created.
 *
 * @category options
 * @since 0.2.0
 */
export interface CreateOptions {
  /** Makes the creation idempotent, as for `Tasks.create`. */
  readonly key?: string | undefined
  /** The first attempt begins no earlier. Defaults to none; up to 10 years. */
  readonly delay?: Duration.Input | undefined
}

/**
 * An attempt that the endpoint has not accepted.
 *
 * @category errors
 * @since 0.2.0
 */
export class DeliveryFailed extends Schema.TaggedError<DeliveryFailed>("duroxide-prisma/DeliveryFailed")(
  "DeliveryFailed",
  {
    /** Status of the response; null without one. */
    status: Schema.NullOr(Schema.Number),
    problem: Schema.String,
    /** Whether no other attempt follows. */
    isPermanent: Schema.Boolean,
    /** For how long the endpoint asked to wait, milliseconds, at most 6 hours; null if it did not. */
    retryAfterMs: Schema.NullOr(Schema.Number)
  }
) {
  override get message() {
    return this.status === null ? this.problem : `status ${this.status}: ${this.problem}`
  }
}

/** The longest pause between two attempts, also one that an endpoint asks for. */
const longestPause = Duration.hours(6)

const Name = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(256))

const pauses = Schedule.exponential("5 seconds").pipe(
  Schedule.modifyDelay(({ duration }) => Effect.succeed(Duration.min(duration, longestPause))),
  Schedule.jittered,
  Schedule.modifyDelay(({ duration, input }) =>
    Effect.succeed(
      input instanceof DeliveryFailed ? Duration.max(duration, Duration.millis(input.retryAfterMs ?? 0)) : duration
    )
  )
)

/**
 * The queue of deliveries, to be declared in the layer of the `Queue`.
 *
 * @category constants
 * @since 0.2.0
 */
export const queue = "deliveries"

/**
 * The task that posts an event, for `TaskWorker.layer`.
 *
 * **Details**
 *
 * It is tried 20 times within about two days: 5 seconds after the first attempt, then doubled up to 6 hours, each 20
 * percent more or less, and not before the time that the endpoint asks for by `retry-after`, up to 6 hours. It is dead
 * after the last attempt, and at once after a status that says that no attempt can succeed: 4xx, 410 among them, except
 * 408, 425 and 429. A redirect is not followed, and is a failure like others. The attempts show the status.
 *
 * @category tasks
 * @since 0.2.0
 */
export const Webhook = Object.assign(
  Task.make("webhook", {
    payload: {
      endpoint: Name,
      event: Name,
      /** When it happened: that of the creation. */
      timestamp: Schema.String,
      data: Schema.Json
    },
    success: { status: Schema.Number },
    error: DeliveryFailed,
    queue,
    retry: {
      maxAttempts: 20,
      while: (outcome) => outcome._tag !== "DeliveryFailed" || !outcome.isPermanent,
      schedule: pauses
    }
  }),
  { wakeupKind: "delivery" }
)

/**
 * Creates a delivery in a transaction of its own, and returns its id: that of its task, and the `webhook-id` of all its
 * requests.
 *
 * Fails as `create` of `Tasks`. Names of endpoints and events have 1 to 256 characters.
 *
 * @category constructors
 * @since 0.2.0
 */
export const create = (
  event: Event,
  options?: CreateOptions
): Effect.Effect<string, PayloadMismatch | PayloadTooLarge | ProviderError, Tasks.Tasks> =>
  Effect.flatMap(Tasks.Tasks, (tasks) => createBy(tasks, event, options))

/**
 * Creates deliveries inside a transaction of the application; what `Tasks.within` says applies.
 *
 * @category constructors
 * @since 0.2.0
 */
export const within = (transaction: Parameters<typeof Tasks.within>[0]): {
  readonly create: (
    event: Event,
    options?: CreateOptions
  ) => Effect.Effect<string, PayloadMismatch | PayloadTooLarge | ProviderError>
} => {
  const tasks = Tasks.within(transaction)
  return { create: (event, options) => createBy(tasks, event, options) }
}

/**
 * Where events go.
 *
 * @category models
 * @since 0.2.0
 */
export interface Endpoint {
  /** `http:` or `https:`, without credentials. */
  readonly url: string | URL
  /**
   * `whsec_` and 24 to 64 bytes in base64. To change a secret, give the new and the old one until the receiver has the
   * new one: requests are then signed with both.
   */
  readonly secret: Redacted.Redacted<string> | ReadonlyArray<Redacted.Redacted<string>>
}

/**
 * How deliveries are sent.
 *
 * @category options
 * @since 0.2.0
 */
export interface Options<E, R> {
  /** Finds an endpoint by its name. Without one the delivery is dead; a failure is retried. */
  readonly endpoints: (name: string) => Effect.Effect<Option.Option<Endpoint>, E, R>
  /**
   * Whether a request may be sent to this address: refuse what people outside of your organisation can enter and should
   * not reach, such as addresses of your own network. Defaults to all.
   */
  readonly allow?: ((url: URL) => boolean) | undefined
  /** Longest wait for the head of a response. Defaults to 15 seconds. */
  readonly timeout?: Duration.Input | undefined
  /** Sends the requests. Defaults to the `fetch` of the platform. */
  readonly fetch?: typeof globalThis.fetch | undefined
}

/**
 * The handler of `Webhook`, for `TaskWorker.layer`.
 *
 * **Gotchas**
 *
 * `allow` sees the name of a host, not the addresses it leads to. If strangers choose the URLs, send the requests
 * through a proxy that checks addresses: give its `fetch`.
 *
 * **Example** (A worker that delivers)
 *
 * ```ts
 * const DeliveriesLive = TaskWorker.layer({ tasks: [Delivery.Webhook] }).pipe(
 *   Layer.provide(Delivery.layer({ endpoints: (name) => Endpoints.find(name) }))
 * )
 * ```
 *
 * @category layers
 * @since 0.2.0
 */
export const layer = <E, R>(options: Options<E, R>): Layer.Layer<Task.Handler<"webhook">, never, R> => {
  const timeoutMs = wholeMs(options.timeout ?? "15 seconds")
  if (timeoutMs === undefined || timeoutMs === 0 || timeoutMs === Infinity) {
    throw new RangeError("timeout of the deliveries is refused: it is not a finite duration of more than 0")
  }
  const timeout = Duration.millis(timeoutMs)
  const fetch = options.fetch ?? globalThis.fetch
  const post = (services: Context.Context<R>) =>
    Effect.fnUntraced(function*({ data, endpoint: name, event, timestamp }: typeof Webhook.payload.Type) {
      const { taskId } = yield* Task.Attempt
      const found = yield* options.endpoints(name).pipe(
        Effect.provideContext(services),
        Effect.mapError(() => failed("the endpoint could not be looked up"))
      )
      if (Option.isNone(found)) return yield* Effect.fail(refusedFor("there is no such endpoint"))
      const url = webhook.checkUrl(found.value.url)
      if (typeof url === "string") {
        return yield* Effect.fail(refusedFor(`the address of the endpoint is refused: ${url}`))
      }
      if (options.allow?.(url) === false) {
        return yield* Effect.fail(refusedFor("the address of the endpoint is not allowed"))
      }
      const body = JSON.stringify({ type: event, timestamp, data })
      const signed = yield* sign({ id: taskId, body, secret: found.value.secret }).pipe(
        Effect.mapError(() => failed("a secret of the endpoint is not `whsec_` and 24 to 64 bytes in base64"))
      )
      const headers = { "content-type": "application/json", "user-agent": "duroxide-prisma", ...signed }
      const { retryAfter, status } = yield* webhook.post({ url, headers, body, timeout, fetch }).pipe(
        Effect.mapError((reason) =>
          failed(
            reason === "timeout" ? `no response within ${Duration.format(timeout)}` : "the endpoint was not reached"
          )
        )
      )
      if (status >= 200 && status < 300) return { status }
      const nowMs = yield* Clock.currentTimeMillis
      return yield* Effect.fail(
        new DeliveryFailed({
          status,
          problem: webhook.isPermanent(status)
            ? "the endpoint refuses the event"
            : "the endpoint has not accepted the event",
          isPermanent: webhook.isPermanent(status),
          retryAfterMs: webhook.retryAfterMs(retryAfter, nowMs, Duration.toMillis(longestPause)) ?? null
        })
      )
    })
  return Layer.unwrap(Effect.map(Effect.context<R>(), (services) => {
    const attempt = post(services)
    return Webhook.toLayer<Task.Attempt>((event) => counted(attempt(event)))
  }))
}

/**
 * The headers that sign a request by the Standard Webhooks specification, at the current time. Fails with
 * `SecretInvalid`.
 *
 * @category signatures
 * @since 0.2.0
 */
export const sign = (request: {
  /** Stays the same each time the event is sent. */
  readonly id: string
  readonly body: string | Uint8Array
  readonly secret: Endpoint["secret"]
}): Effect.Effect<
  { readonly "webhook-id": string; readonly "webhook-timestamp": string; readonly "webhook-signature": string },
  SecretInvalid
> =>
  Effect.gen(function*() {
    const keys = yield* keysOf(request.secret)
    const timestamp = Math.floor((yield* Clock.currentTimeMillis) / 1000)
    const { body, id } = request
    return {
      "webhook-id": id,
      "webhook-timestamp": String(timestamp),
      "webhook-signature": keys.map((key) => signature.sign(key, { id, timestamp, body })).join(" ")
    }
  })

/**
 * Headers of a request: those of the Web's `Request`, or of Node's.
 *
 * @category models
 * @since 0.2.0
 */
export type RequestHeaders =
  | { readonly get: (name: string) => string | null }
  | { readonly [name: string]: string | ReadonlyArray<string> | undefined }

/**
 * Checks that a request comes from a holder of the secret, and was signed at most 5 minutes ago. Returns the
 * `webhook-id`: a receiver that has seen it before ignores the request. Any sender that signs by the Standard Webhooks
 * specification can be checked.
 *
 * **Details**
 *
 * `body` is the body as it came, before it is parsed. Several secrets let the sender change it: one that fits is
 * enough. Takes as long for a signature that is nearly right. Fails with `WebhookRefused` or `SecretInvalid`.
 *
 * @category signatures
 * @since 0.2.0
 */
export const verify = (
  headers: RequestHeaders,
  body: string | Uint8Array,
  secret: Endpoint["secret"]
): Effect.Effect<{ readonly id: string; readonly signedMs: number }, WebhookRefused | SecretInvalid> =>
  Effect.gen(function*() {
    const keys = yield* keysOf(secret)
    const nowMs = yield* Clock.currentTimeMillis
    const answer = signature.verify(keys, webHeaders(headers), body, { nowMs, toleranceMs })
    return typeof answer === "string"
      ? yield* Effect.fail(new WebhookRefused({ problem: answer }))
      : { id: answer.id, signedMs: answer.timestamp * 1000 }
  })

/**
 * The request is not signed by a holder of the secret, or was signed too long ago.
 *
 * @category errors
 * @since 0.2.0
 */
export class WebhookRefused
  extends Schema.TaggedError<WebhookRefused>("duroxide-prisma/WebhookRefused")("WebhookRefused", {
    problem: Schema.Literals([
      "HeadersMissing",
      "TimestampInvalid",
      "TimestampTooOld",
      "TimestampTooNew",
      "SignatureWrong"
    ])
  })
{
  override get message() {
    return `the webhook is refused: ${this.problem}`
  }
}

/**
 * A secret is not `whsec_` and 24 to 64 bytes in base64.
 *
 * @category errors
 * @since 0.2.0
 */
export class SecretInvalid
  extends Schema.TaggedError<SecretInvalid>("duroxide-prisma/SecretInvalid")("SecretInvalid", {})
{
  override get message() {
    return "a secret of webhooks is not `whsec_` and 24 to 64 bytes in base64"
  }
}

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const toleranceMs = 5 * 60_000

const createBy = (tasks: Tasks.Creator, { data, endpoint, event }: Event, options: CreateOptions | undefined) =>
  Effect.flatMap(Clock.currentTimeMillis, (nowMs) => {
    const timestamp = new Date(nowMs).toISOString()
    return tasks.create(Webhook, { ...options, payload: { endpoint, event, timestamp, data: data ?? null } })
  })

const keysOf = (secret: Endpoint["secret"]): Effect.Effect<ReadonlyArray<Uint8Array>, SecretInvalid> =>
  Effect.suspend(() => {
    const secrets = Redacted.isRedacted(secret) ? [secret] : secret
    const keys = secrets.flatMap((one) => signature.keyOf(one) ?? [])
    return keys.length === 0 || keys.length < secrets.length ? Effect.fail(new SecretInvalid({})) : Effect.succeed(keys)
  })

const webHeaders = (headers: RequestHeaders): { readonly get: (name: string) => string | null } => {
  if (typeof headers.get === "function") return { get: (name) => (headers as Headers).get(name) }
  const entries = Object.entries(headers as Record<string, string | ReadonlyArray<string> | undefined>)
  const byName = new Map(entries.map(([name, value]) => [name.toLowerCase(), value]))
  return {
    get: (name) => {
      const value = byName.get(name)
      return typeof value === "string" ? value : value?.join(", ") ?? null
    }
  }
}

/** Another attempt may succeed. */
const failed = (problem: string) =>
  new DeliveryFailed({ status: null, problem, isPermanent: false, retryAfterMs: null })

/** No attempt can succeed. */
const refusedFor = (problem: string) =>
  new DeliveryFailed({ status: null, problem, isPermanent: true, retryAfterMs: null })

const attempts = seriesOf(Metrics.deliveryAttempts)
const durations = seriesOf(Metrics.deliveryDuration)

/** Interrupted attempts are not counted: they run again. */
const counted = <R>(attempt: Effect.Effect<{ readonly status: number }, DeliveryFailed, R>) =>
  Effect.gen(function*() {
    const beganNanos = yield* Clock.currentTimeNanos
    const ended = (outcome: "delivered" | "failed" | "refused", status: number | null) =>
      Effect.gen(function*() {
        const seconds = Number((yield* Clock.currentTimeNanos) - beganNanos) / 1e9
        yield* Metric.update(attempts(outcome, status === null ? "none" : `${Math.floor(status / 100)}xx`), 1)
        yield* Metric.update(durations(outcome), seconds)
      })
    return yield* attempt.pipe(
      Effect.tap(({ status }) => ended("delivered", status)),
      Effect.tapError(({ isPermanent, status }) => ended(isPermanent ? "refused" : "failed", status))
    )
  })
