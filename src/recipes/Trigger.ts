/**
 * Tasks that webhooks of other systems create.
 *
 * A trigger only writes the task and its row of the outbox, in one statement. It is idempotent as long as the task is
 * kept: the id of a webhook creates one task however often it arrives. `handler` is the HTTP endpoint.
 *
 * What the clock starts is a schedule: `duroxide-prisma/schedules`.
 *
 * @since 0.2.0
 */
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { harmlessIn } from "../model/shared/logging.ts"
import { PayloadMismatch } from "../model/shared/payload.ts"
import type { PayloadSchema } from "../model/shared/payload.ts"
import { describeThrown } from "../model/shared/schemaIssue.ts"
import { InvalidInput, ProviderError } from "../provider/ProviderError.ts"
import type { Task } from "../tasks/Task.ts"
import type { Tasks } from "../tasks/Tasks.ts"
import * as signature from "./internal/signature.ts"
import * as requests from "./internal/triggerRequests.ts"
import type { Webhook, WebhookEvent } from "./internal/triggers.ts"

export type { Failure, Webhook, WebhookEvent } from "./internal/triggers.ts"

/**
 * Defines a task that is created for each event of a sender that follows the
 * [Standard Webhooks](https://www.standardwebhooks.com) specification.
 *
 * **Details**
 *
 * `name` has 1 to 100 letters, digits, hyphens and underscores, and is part of the keys of the tasks,
 * `webhook/<name>/<webhook-id>`: do not change it. `secret` is `whsec_` and 24 to 64 bytes in base64; give several
 * while the sender changes its own. `payload` makes the payload of the task from the event; what it throws refuses the
 * event (status 400). For a `SchemaError`, answer and log name the field and what was expected, but not the value.
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
 * The endpoint of webhooks, for any server that knows the `Request` and `Response` of the Web API.
 *
 * **Details**
 *
 * `POST …/webhooks/<name>` with a signature creates the task of the event, and answers with its id.
 *
 * Status 200 says that everything is stored. 401: the signature is wrong, or more than five minutes old. 404: there is
 * no trigger of this name. 400, 405, 413: the request cannot be read, or does not fit the task. 503: the database is
 * unavailable; send it again. No answer contains a signature or a payload.
 *
 * **Gotchas**
 *
 * Throws a `RangeError` if two triggers have one name. Serve it by HTTPS.
 *
 * @category handlers
 * @since 0.2.0
 */
export const handler = (options: {
  readonly webhooks: ReadonlyArray<Webhook>
}): Effect.Effect<(request: Request) => Promise<Response>, never, Tasks> => {
  const webhooks = byName(options.webhooks)
  return Effect.map(
    Effect.context<Tasks>(),
    (services) => requests.make(webhooks, harmlessIn(services))
  )
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

/** What a function of the application throws may quote the body, so only the issue of a Schema is passed on. */
const bodyRefused = (name: string, thrown: unknown) =>
  Schema.isSchemaError(thrown)
    ? new PayloadMismatch({ of: `body of webhook "${name}"`, problem: describeThrown(thrown) })
    : new ProviderError({
      operation: "fireTrigger",
      reason: new InvalidInput({ field: "body", problem: `the webhook "${name}" does not accept it` })
    })

const listOf = <A>(one: A | ReadonlyArray<A>): ReadonlyArray<A> => Array.isArray(one) ? one : [one as A]

const byName = <T extends { readonly name: string }>(triggers: ReadonlyArray<T>): ReadonlyMap<string, T> => {
  const all = new Map<string, T>()
  for (const trigger of triggers) {
    if (all.has(trigger.name)) refuse(trigger.name, "name", "another trigger has it")
    all.set(trigger.name, trigger)
  }
  return all
}
