/**
 * The definitions of triggers.
 */
import type * as Effect from "effect/Effect"
import type { PayloadMismatch, PayloadTooLarge } from "../../model/shared/payload.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import type { Creator } from "../../tasks/Tasks.ts"

/**
 * Why a task could not be created.
 *
 * @category models
 * @since 0.2.0
 */
export type Failure = PayloadMismatch | PayloadTooLarge | ProviderError

/**
 * An event that another system has sent, after its signature was verified.
 *
 * @category models
 * @since 0.2.0
 */
export interface WebhookEvent {
  /** The sender's id of the event, the same when it is sent again. */
  readonly id: string
  /** When it was sent, by the sender's clock. */
  readonly sentAt: Date
  /** The body, parsed as JSON. */
  readonly body: unknown
}

/**
 * A task for each event that another system sends.
 *
 * @category models
 * @since 0.2.0
 */
export interface Webhook {
  readonly name: string
  /** The keys of the sender's secrets. */
  readonly keys: ReadonlyArray<Uint8Array>
  /** Creates the task of an event, unless it exists already, and returns its id. */
  readonly create: (tasks: Pick<Creator, "create">, event: WebhookEvent) => Effect.Effect<string, Failure>
}
