/**
 * Requests to the endpoint of the triggers.
 *
 * No body is read before the request is authorized, except that of a webhook, which its signature covers: up to
 * 1 MiB.
 */
import * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import { problemOfName } from "../../model/shared/identifiers.ts"
import { ours } from "../../model/shared/logging.ts"
import { Tasks } from "../../tasks/Tasks.ts"
import type { Topics } from "../../waking/Topics.ts"
import type { TriggerDriver } from "../TriggerDriver.ts"
import { onTimeMs } from "./cronInstants.ts"
import * as signature from "./signature.ts"
import { run } from "./triggers.ts"
import type { Cron, Failure, Webhook } from "./triggers.ts"

export interface Options {
  readonly tokens: ReadonlyArray<string>
  readonly crons: ReadonlyMap<string, Cron>
  readonly webhooks: ReadonlyMap<string, Webhook>
}

/** Always answers. */
export const make =
  (options: Options, services: Context.Context<Tasks | TriggerDriver | Topics>) =>
  (request: Request): Promise<Response> => Effect.runPromiseWith(services)(answer(options, request))

// internal

type Services = Tasks | TriggerDriver | Topics

/** A request that is answered with a status other than 200. */
class Refused extends Data.TaggedError("Refused")<{ readonly status: number; readonly problem: string }> {}

/** A body of an authorized sender that nothing can be made of. */
class NotJson extends Data.TaggedError("NotJson")<{ readonly message: string }> {}

const refuse = (status: number, problem: string) => Effect.fail(new Refused({ status, problem }))

const answer = (options: Options, request: Request): Effect.Effect<Response, never, Services> =>
  route(options, request).pipe(
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
  options: Options,
  request: Request
): Effect.Effect<object, Refused | NotJson | Failure, Services> => {
  const [, kind, name = ""] = /\/(cron|webhooks)\/([A-Za-z0-9_-]{1,100})\/?$/.exec(new URL(request.url).pathname) ?? []
  if (kind === undefined) return refuse(404, "the path ends neither with /cron/<name> nor with /webhooks/<name>")
  if (request.method !== "POST") return refuse(405, "only POST is allowed")
  return kind === "cron" ? runCron(options, request, name) : receive(options.webhooks.get(name), request)
}

// -- cron ------------------------------------------------------------------------------------------

const runCron = Effect.fnUntraced(function*({ crons, tokens }: Options, request: Request, name: string) {
  const given = /^Bearer +(\S+)$/i.exec(request.headers.get("authorization") ?? "")?.[1] ?? ""
  // Each token is compared, so that the time does not say which one is near.
  if (!tokens.map((token) => signature.isSame(token, given)).includes(true)) {
    return yield* refuse(401, "the bearer token is wrong")
  }
  const trigger = crons.get(name)
  if (trigger === undefined) return yield* refuse(404, "there is no trigger of this name")
  const until = yield* untilOf(yield* read(request, maxCronBytes))
  const { hasMore, instants } = yield* run(trigger, { until })
  return { instants, hasMore }
})

/** From the body of a request; undefined without one. */
const untilOf = Effect.fnUntraced(function*(body: Uint8Array) {
  const given = body.length === 0 ? {} : yield* parse(body)
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    return yield* refuse(400, "the body is not a JSON object")
  }
  if (!("until" in given) || given.until === undefined) return undefined
  const until = typeof given.until === "string" && isTime(given.until) ? new Date(given.until) : undefined
  if (until === undefined || Number.isNaN(until.getTime())) {
    return yield* refuse(400, "until is not a time in the format of ISO 8601")
  }
  // The clocks of two machines differ.
  if (until.getTime() > (yield* Clock.currentTimeMillis) + onTimeMs) {
    return yield* refuse(400, "until is more than a minute in the future")
  }
  return until
})

/** `Date` takes the 30th of February for the 2nd of March. */
const isTime = (text: string) =>
  isoTime.test(text) && new Date(`${text.slice(0, 10)}T00:00Z`).toJSON()?.slice(0, 10) === text.slice(0, 10)

const isoTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)$/

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

const maxCronBytes = 1024

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
