/**
 * The seam that a storage of the outbox implements: messages that are written in transactions, and claimed by
 * publishers.
 *
 * One call is one atomic statement. A claim never waits for another claim, and sees what was committed: no message is
 * claimed before the rows that it belongs to are visible.
 *
 * @since 0.2.0
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type { ProviderError } from "../provider/ProviderError.ts"
import type { Payload } from "../queue/Queue.ts"

type Call<A> = Effect.Effect<A, ProviderError>

/**
 * The storage contract of the outbox.
 *
 * @category services
 * @since 0.2.0
 */
export class OutboxDriver extends Context.Service<OutboxDriver, {
  /** The database that it is built on: a queue built on the same one has its messages beside the outbox. */
  readonly database: object
  /** The clock that decides what is due. */
  readonly clock: "database" | "effect"
  readonly add: (messages: ReadonlyArray<NewMessage>) => Call<void>
  readonly claim: (options: ClaimOptions) => Call<Claim>
  /** Answers with the ids of those that another transaction has locked. */
  readonly markSent: (ids: ReadonlyArray<string>) => Call<ReadonlyArray<string>>
  /** Abandons messages of a claim, each until after a pause. */
  readonly defer: (token: string, deferrals: ReadonlyArray<Deferral>) => Call<void>
  /**
   * Deletes up to `limit` messages that were sent `keepMs` ago. `nextMs`: until the next one is due; null: there is
   * none.
   */
  readonly clean: (options: { readonly keepMs: number; readonly limit: number }) => Call<
    { readonly deleted: number; readonly nextMs: number | null }
  >
  readonly readBacklog: Call<Backlog>
}>()("duroxide-prisma/outbox/OutboxDriver") {}

/**
 * A message to write.
 *
 * @category models
 * @since 0.2.0
 */
export interface NewMessage {
  readonly queue: string
  /** JSON text. */
  readonly payload: string
  readonly delayMs: number
}

/**
 * What a publisher claims.
 *
 * @category models
 * @since 0.2.0
 */
export interface ClaimOptions {
  readonly limit: number
  readonly leaseMs: number
  readonly token: string
  /** Messages of other queues stay. */
  readonly queues: ReadonlyArray<string>
  /** Limit of deliveries of each queue, if all queues are in this database: then the statement moves the messages. */
  readonly maxAttempts: ReadonlyArray<number> | undefined
  /** Whether moved messages stay, marked as sent; else they are deleted. */
  readonly keeps: boolean
}

/**
 * A claimed message.
 *
 * @category models
 * @since 0.2.0
 */
export interface ClaimedMessage {
  readonly id: string
  readonly queue: string
  readonly payload: Payload
  /** This one included. */
  readonly attempts: number
}

/**
 * What a claim has found.
 *
 * @category models
 * @since 0.2.0
 */
export interface Claim {
  /** Messages to send. */
  readonly messages: ReadonlyArray<ClaimedMessage>
  /** How many messages of each queue were moved to it. */
  readonly moved: ReadonlyMap<string, number>
  /** There may be more now. */
  readonly isFull: boolean
  /** When to look again, milliseconds from now; null if there is nothing to wait for. */
  readonly nextMs: number | null
  /**
   * Queues that were not asked for, whose messages should have been claimed over a minute ago. Empty for a full claim.
   */
  readonly unclaimedQueues: ReadonlyArray<string>
}

/**
 * A message that was not sent. Without an error it was not tried.
 *
 * @category models
 * @since 0.2.0
 */
export interface Deferral {
  readonly id: string
  readonly pauseMs: number
  readonly error: string | null
}

/**
 * What waits in the outbox, of each queue of the 10,000 messages that are due first.
 *
 * @category models
 * @since 0.2.0
 */
export interface Backlog {
  readonly waiting: number
  readonly delayed: number
  readonly failing: number
  readonly oldestAgeMs: number
}
