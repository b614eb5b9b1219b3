/**
 * Requests to the endpoint of webhooks. The signature covers the body, so up to 1 MiB are read before it is verified.
 */
import * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import { problemOfName } from "../../model/shared/identifiers.ts"
import { ours } from "../../model/shared/logging.ts"
import { Tasks } from "../../tasks/Tasks.ts"
import * as signature from "./signature.ts"
import type { Failure, Webhook } from "./triggers.ts"

/** Always answers. */
export const make =
  (webhooks: ReadonlyMap<string, Webhook>, services: Context.Context<Tasks>) => (request: Request): Promise<Response> =>
    Effect.runPromiseWith(services)(answer(webhooks, request))

// internal

/** A request that is answered with a status other than 200. */
class Refused extends Data.TaggedError("Refused")<{ readonly status: number; readonly problem: string }> {}

/** A body of an authorized sender that nothing can be made of. */
class NotJson extends Data.TaggedError("NotJson")<{ readonly message: string }> {}

const refuse = (status: number, problem: string) => Effect.fail(new Refused({ status, problem }))

const answer = (webhooks: ReadonlyMap<string, Webhook>, request: Request): Effect.Effect<Response, never, Tasks> =>
  route(webhooks, request).pipe(
    Effect.map((body) => Response.json(body)),
    Effect.catchTags({
      Refused: ({ problem, status }) => Effect.as(logRefusal(request, status, problem), respond(status, problem)),
      NotJson: (error) => respondUnfit(request, error._tag, error.message),
      PayloadMismatch: (error) => respondUnfit(request, error._tag, error.message),
      PayloadTooLarge: (error) => respondUnfit(request, error._tag, error.message),
      ProviderError: (error) =>
        error.reason._tag === "InvalidInput"
          ? respondUnfit(request, error.reason._tag, error.message)
          : Effect.as(
            logFailure(request, error.reason._tag, error.message),
            respond(503, "the database is unavailable")
          )
    }),
    // Its text may quote the body.
    Effect.catchCause(() =>
      Effect.as(
        logFailure(request, "Defect", "the trigger failed in an unexpected way"),
        respond(500, "internal error")
      )
    )
  )

const route = (
  webhooks: ReadonlyMap<string, Webhook>,
  request: Request
): Effect.Effect<object, Refused | NotJson | Failure, Tasks> => {
  const [, name] = /\/webhooks\/([A-Za-z0-9_-]{1,100})\/?$/.exec(new URL(request.url).pathname) ?? []
  if (name === undefined) return refuse(404, "the path does not end with /webhooks/<name>")
  if (request.method !== "POST") return refuse(405, "only POST is allowed")
  return receive(webhooks.get(name), request)
}

// -- webhooks --------------------------------------------------------------------------------------

const receive = Effect.fnUntraced(function*(trigger: Webhook | undefined, request: Request) {
  if (trigger === undefined) return yield* refuse(404, "there is no trigger of this name")
  const body = yield* read(request, maxWebhookBytes)
  const verified = signature.verify(trigger.keys, request.headers, body, {
    nowMs: yield* Clock.currentTimeMillis,
    toleranceMs
  })
  if (typeof verified === "string") return yield* refuse(401, "the signature is wrong, missing or too old")
  const problem = problemOfName(verified.id, maxIdBytes)
  if (problem !== undefined) return yield* refuse(400, `webhook-id: ${problem}`)
  const taskId = yield* trigger.create(yield* Tasks, {
    id: verified.id,
    sentAt: new Date(verified.timestamp * 1000),
    body: yield* parse(body)
  })
  return { taskId }
})

/** Tolerance of the specification's libraries. */
const toleranceMs = 300_000

/** Part of the key of a task. */
const maxIdBytes = 512

// -- requests and answers --------------------------------------------------------------------------

const maxWebhookBytes = 1024 * 1024

const read = (request: Request, maxBytes: number): Effect.Effect<Uint8Array, Refused> =>
  Effect.flatMap(
    Effect.tryPromise({
      try: async () => {
        const chunks: Array<Uint8Array> = []
        let bytes = 0
        for await (const chunk of request.body ?? []) {
          bytes += chunk.length
          if (bytes > maxBytes) return undefined
          chunks.push(chunk)
        }
        return Buffer.concat(chunks)
      },
      catch: () => new Refused({ status: 400, problem: "the body cannot be read" })
    }),
    (body) => body === undefined ? refuse(413, `the body has more than ${maxBytes} bytes`) : Effect.succeed(body)
  )

const parse = (body: Uint8Array): Effect.Effect<unknown, NotJson> =>
  Effect.try({
    try: () => JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body)) as unknown,
    catch: () => new NotJson({ message: "the body is not JSON in UTF-8" })
  })

const respond = (status: number, error: string): Response =>
  Response.json({ error }, { status, ...(status === 503 && { headers: { "retry-after": "5" } }) })

const log = (line: Effect.Effect<void>, request: Request, annotations: Record<string, unknown>) =>
  line.pipe(
    ours({ path: new URL(request.url).pathname, ...annotations })
  )

/** Anyone can send requests, so these would fill the log. */
const logRefusal = (request: Request, status: number, error: string) =>
  log(Effect.logDebug("Trigger: a request is refused"), request, { status, error })

/**
 * Refuses a request of an authorized sender, whose events are lost until one of the two sides is changed. The error
 * never has the value.
 */
const respondUnfit = (request: Request, errorType: string, error: string) =>
  Effect.as(
    log(Effect.logWarning("Trigger: a request does not fit its task and is refused"), request, {
      error_type: errorType,
      error
    }),
    respond(400, error)
  )

const logFailure = (request: Request, errorType: string, error: string) =>
  log(Effect.logError("Trigger: the request failed"), request, { error_type: errorType, error })
