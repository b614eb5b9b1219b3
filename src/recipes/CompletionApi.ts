/**
 * The HTTP interface of completions: a group for an `HttpApi` of the application, and its handlers.
 *
 * Anyone who has a token may use it, so no other login is needed. GET only reads the status of a call, because mail
 * scanners and browsers send GET requests by themselves.
 *
 * @since 0.3.0
 */
import * as Effect from "effect/Effect"
import type * as HttpApi from "effect/http-api/HttpApi"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiGroup from "effect/http-api/HttpApiGroup"
import type * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { PayloadMismatch, PayloadTooLarge } from "../model/shared/payload.ts"
import { ProviderError } from "../provider/ProviderError.ts"
import { AlreadyCompleted, Completion, CompletionExpired, NotAwaited, TokenInvalid } from "./Completion.ts"

/**
 * The result, error or details do not fit the Schema of the activity, or are too large. Status 400.
 *
 * @category errors
 * @since 0.3.0
 */
export class Unfit extends Schema.TaggedError<Unfit>("duroxide-prisma/recipes/CompletionApi/Unfit")(
  "Unfit",
  { message: Schema.String },
  { httpApiStatus: 400 }
) {}

/**
 * The store did not answer, or the instance is full: send it again. Status 503.
 *
 * @category errors
 * @since 0.3.0
 */
export class Unavailable extends Schema.TaggedError<Unavailable>("duroxide-prisma/recipes/CompletionApi/Unavailable")(
  "Unavailable",
  { message: Schema.String },
  { httpApiStatus: 503 }
) {}

/** The token is in the query, or in the header, which logs of requests do not have. */
const query = { token: Schema.optionalKey(Schema.String) }

const headers = { authorization: Schema.optionalKey(Schema.String) }

const refusals = [TokenInvalid, AlreadyCompleted, CompletionExpired, NotAwaited, Unavailable] as const

const Completed = Schema.Struct({ state: Schema.Literals(["taken", "stored"]) })

/**
 * `GET /status?token=…` reads how a call stands; `POST /complete?token=…` takes `{ "result": … }`, `/fail` takes
 * `{ "error": … }`, and `/heartbeat` takes `{ "details": … }`. So the address of a callback has all that it needs.
 * Callers that can send headers send `Authorization: Bearer <token>` instead.
 *
 * **Details**
 *
 * Status 200: the instance has received it (`taken`), or will receive it (`stored`). 400: it does not fit the Schema.
 * 401: the token is not valid. 409: another completion has ended the call. 410: the call has expired, or the instance
 * no longer waits for it. 503: send it again.
 *
 * **Gotchas**
 *
 * Logs and traces of servers and proxies often have the query of a request, and with it the token.
 *
 * **Example** (In an interface of the application)
 *
 * ```ts
 * const Api = HttpApi.make("expenses").add(CompletionApi.group.prefix("/completions"))
 *
 * const ServerLive = HttpApiBuilder.layer(Api).pipe(
 *   Layer.provide(CompletionApi.layer(Api)),
 *   Layer.provide(Completion.layer({ activities: [Approve] })),
 *   Layer.provide(Completion.layerKeysConfig)
 * )
 * ```
 *
 * @category groups
 * @since 0.3.0
 */
export const group = HttpApiGroup.make("completions").add(
  HttpApiEndpoint.get("status", "/status", {
    query,
    headers,
    success: Schema.Struct({
      activityName: Schema.String,
      state: Schema.Literals(["open", "completed", "failed"]),
      /** Milliseconds since the Unix epoch. */
      expiresAtMs: Schema.Number
    }),
    error: refusals
  }),
  HttpApiEndpoint.post("complete", "/complete", {
    query,
    headers,
    payload: Schema.Struct({ result: Schema.optionalKey(Schema.Unknown) }),
    success: Completed,
    error: [...refusals, Unfit]
  }),
  HttpApiEndpoint.post("fail", "/fail", {
    query,
    headers,
    payload: Schema.Struct({ error: Schema.optionalKey(Schema.Unknown) }),
    success: Completed,
    error: [...refusals, Unfit]
  }),
  HttpApiEndpoint.post("heartbeat", "/heartbeat", {
    query,
    headers,
    payload: Schema.Struct({ details: Schema.optionalKey(Schema.Unknown) }),
    success: Schema.Struct({ expiresAtMs: Schema.Number }),
    error: [...refusals, Unfit]
  })
)

/**
 * The handlers of the group, for an interface that has it.
 *
 * @category layers
 * @since 0.3.0
 */
export const layer = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>
): Layer.Layer<HttpApiGroup.Service<Id, "completions">, never, Completion> =>
  HttpApiBuilder.group(
    // The prefix of the group and its middleware change its type, not what its handlers get.
    api as unknown as HttpApi.HttpApi<Id, typeof group>,
    "completions",
    Effect.fnUntraced(function*(handlers) {
      const completion = yield* Completion
      return handlers.handleAll({
        status: (request) =>
          Effect.map(answered(completion.status(tokenOf(request))), ({ activityName, expiresAtMs, state }) => ({
            activityName,
            expiresAtMs,
            state
          })),
        complete: (request) => checked(completion.complete(tokenOf(request), request.payload.result)),
        fail: (request) => checked(completion.fail(tokenOf(request), request.payload.error)),
        heartbeat: (request) => checked(completion.heartbeat(tokenOf(request), request.payload.details))
      })
    })
  )

// internal

/** Without one, what no key has signed. */
const tokenOf = ({ headers: { authorization = "" }, query: { token } }: {
  readonly query: { readonly token?: string }
  readonly headers: { readonly authorization?: string }
}) => token ?? /^Bearer (\S+)$/i.exec(authorization)?.[1] ?? ""

const checked = <A, E>(effect: Effect.Effect<A, E | PayloadMismatch | PayloadTooLarge | ProviderError>) =>
  answered(Effect.catchIf(
    effect,
    (error): error is PayloadMismatch | PayloadTooLarge =>
      error instanceof PayloadMismatch || error instanceof PayloadTooLarge,
    ({ message }) => Effect.fail(new Unfit({ message }))
  ))

/** What the store says is for the log. */
const answered = <A, E>(effect: Effect.Effect<A, E | ProviderError>) =>
  Effect.catchIf(
    effect,
    (error): error is ProviderError => error instanceof ProviderError,
    (error) =>
      Effect.andThen(
        Effect.logError("Completion: not stored", error.message),
        Effect.fail(new Unavailable({ message: "the completion was not stored, send it again" }))
      )
  )
