/**
 * What creates tasks from outside: the clock, and webhooks of other systems.
 *
 * A trigger only writes the task and its row of the outbox, in one statement. It is idempotent as long as the task is
 * kept: an instant of a cron expression, and the id of a webhook, create one task however often they arrive.
 *
 * The dispatcher serves `handler`, an HTTP endpoint. A scheduler process (`scheduler`) calls it at the instants of the
 * cron expressions; so can any other scheduler that sends HTTP requests.
 *
 * @since 0.2.0
 */
import * as EffectCron from "effect/Cron"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { harmlessIn } from "../model/shared/logging.ts"
import { PayloadMismatch } from "../model/shared/payload.ts"
import type { PayloadSchema } from "../model/shared/payload.ts"
import { describeThrown } from "../model/shared/schemaIssue.ts"
import { InvalidInput, ProviderError } from "../provider/ProviderError.ts"
import { invalid } from "../tasks/shared/newTask.ts"
import type { Task } from "../tasks/Task.ts"
import { Tasks } from "../tasks/Tasks.ts"
import type { Topics } from "../waking/Topics.ts"
import * as cronInstants from "./internal/cronInstants.ts"
import * as schedulers from "./internal/scheduler.ts"
import * as signature from "./internal/signature.ts"
import * as requests from "./internal/triggerRequests.ts"
import type { Cron, Webhook, WebhookEvent } from "./internal/triggers.ts"
import type { TriggerDriver } from "./TriggerDriver.ts"

export type { CatchUp } from "./internal/cronInstants.ts"
export { run } from "./internal/triggers.ts"
export type { Cron, Failure, Webhook, WebhookEvent } from "./internal/triggers.ts"

/**
 * Defines a task that is created at each instant of a cron expression.
 *
 * **Details**
 *
 * `name` has 1 to 100 letters, digits, hyphens and underscores, and is part of the keys of the tasks,
 * `cron/<name>/<instant>`: do not change it. `cron` has five fields, or six with seconds. `timeZone` is a name such as
 * `Europe/Berlin`, and defaults to UTC; when its clocks change, a time that does not exist fires at the next one that
 * does, and a time that comes twice fires the first time, or both times if the field of hours begins with `*`.
 * `payload` gets the instant.
 *
 * **Gotchas**
 *
 * Throws a `RangeError` if name, expression or time zone cannot work. An instant leads to one task while that task is
 * kept: firing it by hand after the retention of ended tasks creates another one.
 *
 * **Example** (A report every morning)
 *
 * ```ts
 * const Nightly = Trigger.cron("nightly-report", {
 *   cron: "0 4 * * *",
 *   timeZone: "Europe/Berlin",
 *   task: Report,
 *   payload: (scheduledAt) => ({ day: scheduledAt.toISOString().slice(0, 10) })
 * })
 * ```
 *
 * @category constructors
 * @since 0.2.0
 */
export const cron = <
  P extends PayloadSchema,
  S extends PayloadSchema,
  E extends PayloadSchema,
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- else literals of the payload become texts
  const A extends P["Type"]
>(
  name: string,
  options: {
    readonly cron: string
    readonly timeZone?: string | undefined
    /** Which instants fire of those that are more than a minute old. Defaults to `latest`, the newest of them. */
    readonly catchUp?: cronInstants.CatchUp | undefined
    readonly task: Task<any, P, S, E>
    readonly payload: (scheduledAt: Date) => A
  }
): Cron => {
  checkName(name)
  const schedule = parse(name, options.cron, options.timeZone ?? "UTC")
  const create: Cron["create"] = (tasks, instants) =>
    Effect.suspend(() =>
      tasks.createMany(
        options.task,
        instants.map((instant) => ({
          key: `cron/${name}/${instant.toISOString()}`,
          payload: options.payload(instant)
        }))
      )
    )
  return {
    name,
    schedule,
    catchUp: options.catchUp ?? "latest",
    create,
    fire: (scheduledAt) =>
      Effect.gen(function*() {
        if (!cronInstants.isInstant(schedule, scheduledAt)) {
          return yield* invalid("fireTrigger", "scheduledAt", `the trigger "${name}" does not have this instant`)
        }
        const [id] = yield* create(yield* Tasks, [scheduledAt])
        return id!
      })
  }
}

/**
 * Defines a task that is created for each event of a sender that follows the
 * [Standard Webhooks](https://www.standardwebhooks.com) specification.
 *
 * **Details**
 *
 * `name` is as for `cron`. `secret` is `whsec_` and 24 to 64 bytes in base64; give several while the sender changes its
 * own. `payload` makes the payload of the task from the event; what it throws refuses the event (status 400). For a
 * `SchemaError`, answer and log name the field and what was expected, but not the value. The task has the key
 * `webhook/<name>/<webhook-id>`.
 *
 * **Gotchas**
 *
 * Throws a `RangeError` if name or secret cannot work; the error does not contain the secret.
 *
 * **Example** (A payment that another system reports)
 *
 * ```ts
 * const Payments = Trigger.webhook("payments", {
 *   task: BookPayment,
 *   secret: Redacted.make(process.env.PAYMENTS_SECRET!),
 *   payload: ({ body }) => decodePayment(body)
 * })
 * ```
 *
 * @category constructors
 * @since 0.2.0
 */
export const webhook = <
  P extends PayloadSchema,
  S extends PayloadSchema,
  E extends PayloadSchema,
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- else literals of the payload become texts
  const A extends P["Type"]
>(
  name: string,
  options: {
    readonly task: Task<any, P, S, E>
    readonly secret: Redacted.Redacted<string> | ReadonlyArray<Redacted.Redacted<string>>
    readonly payload: (event: WebhookEvent) => A
  }
): Webhook => {
  checkName(name)
  const keys = listOf(options.secret).map((secret) => {
    const key = signature.keyOf(secret)
    return key ?? refuse(name, "secret", "it is not whsec_ and 24 to 64 bytes in base64")
  })
  if (keys.length === 0) refuse(name, "secret", "the list of secrets is empty")
  return {
    name,
    keys,
    create: (tasks, event) =>
      Effect.flatMap(
        Effect.try({ try: () => options.payload(event), catch: (thrown) => bodyRefused(name, thrown) }),
        (payload) => tasks.create(options.task, { key: `webhook/${name}/${event.id}`, payload })
      )
  }
}

/**
 * What a dispatcher serves.
 *
 * @category options
 * @since 0.2.0
 */
export interface HandlerOptions {
  /**
   * The bearer token of schedulers, at least 16 visible ASCII characters, no spaces; several while it is changed.
   * Required with `crons`; an endpoint without crons needs none.
   */
  readonly token?: Redacted.Redacted<string> | ReadonlyArray<Redacted.Redacted<string>> | undefined
  readonly crons?: ReadonlyArray<Cron> | undefined
  readonly webhooks?: ReadonlyArray<Webhook> | undefined
}

/**
 * The endpoint of the triggers, for any server that knows the `Request` and `Response` of the Web API.
 *
 * **Details**
 *
 * - `POST …/cron/<name>` with `Authorization: Bearer <token>`: runs the trigger, up to the time in the body,
 *   `{"until": "2026-03-01T04:00:00.000Z"}`, or up to now without a body. Answers with the instants that have fired.
 * - `POST …/webhooks/<name>` with a signature: creates the task of the event. Answers with its id.
 *
 * Status 200 says that everything is stored. 401: token or signature is wrong, or the signature is more than five
 * minutes old. 404: there is no trigger of this name. 400, 405, 413: the request cannot be read, or does not fit the
 * task. 503: the database is unavailable; send it again. No answer contains a token, a signature or a payload.
 *
 * **Gotchas**
 *
 * Throws a `RangeError` if a token cannot work, is missing beside `crons`, or two triggers of a kind have one name.
 * Serve it by HTTPS.
 *
 * @category handlers
 * @since 0.2.0
 */
export const handler = (
  options: HandlerOptions
): Effect.Effect<(request: Request) => Promise<Response>, never, Tasks | TriggerDriver | Topics> => {
  const settings = {
    tokens: options.token === undefined && (options.crons ?? []).length === 0 ? [] : tokensOf(options.token ?? []),
    crons: byName(options.crons ?? []),
    webhooks: byName(options.webhooks ?? [])
  }
  return Effect.map(
    Effect.context<Tasks | TriggerDriver | Topics>(),
    (services) => requests.make(settings, harmlessIn(services))
  )
}

/**
 * How a scheduler reaches the dispatcher.
 *
 * @category options
 * @since 0.2.0
 */
export interface SchedulerOptions {
  /** Where the dispatcher serves `handler`, such as `https://dispatcher.internal/triggers`. */
  readonly url: string
  /** The bearer token of `handler`. */
  readonly token: Redacted.Redacted<string>
  readonly crons: ReadonlyArray<Pick<Cron, "name" | "schedule">>
  /** Sends the requests. Defaults to the global `fetch`. */
  readonly fetch?: typeof globalThis.fetch | undefined
}

/**
 * Calls the dispatcher at each instant of the cron expressions, until the layer is closed. It keeps nothing: a
 * scheduler that starts calls at once, and the dispatcher knows which instants were missed. Any number may run; an
 * instant fires once.
 *
 * A call that fails is repeated after 1 second, then after twice as long each time, up to a minute.
 *
 * Throws a `RangeError` if the URL or the token cannot work.
 *
 * @category layers
 * @since 0.2.0
 */
export const scheduler = (options: SchedulerOptions): Layer.Layer<never> => {
  if (!URL.canParse(options.url) || !/^https?:$/.test(new URL(options.url).protocol)) {
    throw new RangeError("url of the scheduler is refused: it is not an http or https URL")
  }
  const [token] = tokensOf(options.token)
  return Layer.effectDiscard(schedulers.make({ ...options, token: token! }))
}

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const refuse = (name: string, option: string, problem: string): never => {
  throw new RangeError(`${option} of trigger "${name}" is refused: ${problem}`)
}

const checkName = (name: string) => {
  if (/^[A-Za-z0-9_-]{1,100}$/.test(name)) return
  throw new RangeError(
    `name of trigger ${JSON.stringify(name)} is refused: it must have 1 to 100 letters, digits, hyphens and underscores`
  )
}

const parse = (name: string, expression: string, timeZone: string): EffectCron.Cron => {
  const parsed = cronInstants.parse(expression, timeZone)
  if (Result.isFailure(parsed)) {
    return refuse(name, `cron ${JSON.stringify(expression)}, ${timeZone}`, parsed.failure.message)
  }
  try {
    EffectCron.next(parsed.success)
  } catch {
    refuse(name, `cron ${JSON.stringify(expression)}`, "no date fits it")
  }
  return parsed.success
}

/** What a function of the application throws may quote the body, so only the issue of a Schema is passed on. */
const bodyRefused = (name: string, thrown: unknown) =>
  Schema.isSchemaError(thrown)
    ? new PayloadMismatch({ of: `body of webhook "${name}"`, problem: describeThrown(thrown) })
    : new ProviderError({
      operation: "fireTrigger",
      reason: new InvalidInput({ field: "body", problem: `the webhook "${name}" does not accept it` })
    })

type Secrets = Redacted.Redacted<string> | ReadonlyArray<Redacted.Redacted<string>>

const listOf = <A>(one: A | ReadonlyArray<A>): ReadonlyArray<A> => Array.isArray(one) ? one : [one as A]

const byName = <T extends { readonly name: string }>(triggers: ReadonlyArray<T>): ReadonlyMap<string, T> => {
  const all = new Map<string, T>()
  for (const trigger of triggers) {
    if (all.has(trigger.name)) refuse(trigger.name, "name", "another trigger has it")
    all.set(trigger.name, trigger)
  }
  return all
}

const leastTokenLength = 16

const tokensOf = (given: Secrets): ReadonlyArray<string> => {
  const tokens = listOf(given).map((token) => Redacted.value(token))
  if (tokens.length > 0 && tokens.every((token) => /^[\x21-\x7e]+$/.test(token) && token.length >= leastTokenLength)) {
    return tokens
  }
  throw new RangeError(
    `token of the triggers is refused: it must have at least ${leastTokenLength} visible ASCII characters and no spaces`
  )
}
