/**
 * What a queue that stores its messages in a database says of itself, so that a room with rows in the same database can
 * send one statement instead of two.
 *
 * A queue whose `publish` or `receive` is wrapped, to count, delay or fail calls, is treated as remote: it is called
 * through the wrapper.
 */
import type * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { ProviderError } from "../../provider/ProviderError.ts"
import type { Received } from "../internal/received.ts"
import type { QueueError } from "../QueueError.ts"

export interface Stored {
  /** The service that the queue is built on. */
  readonly database: object
  /** The clock that decides what is visible. */
  readonly clock: "database" | "effect"
  readonly maxAttempts: Readonly<Record<string, number>>
  /** The operations that it speaks for. */
  readonly publish: object
  readonly receive: object
  /** Receives by a statement of the same database. Until the scope is closed. */
  readonly receiveBy: <A extends object>(
    queue: string,
    by: ReceiveBy<A>
  ) => Effect.Effect<Receive<A | Received>, never, Scope.Scope>
}

export interface ReceiveBy<A> {
  /** Leases messages of the queue, and takes what it can of them. */
  readonly fetch: (lease: Lease) => Effect.Effect<Fetched<A>, ProviderError>
  /** Abandons what no caller saw. */
  readonly giveBack: (taken: A) => Effect.Effect<void>
}

export type Receive<M> = (asking: {
  readonly maxMessages: number
  readonly visibilityMs: number
  readonly waitMs: number
}) => Effect.Effect<ReadonlyArray<M>, QueueError>

/**
 * How a statement leases messages.
 *
 * @category models
 * @since 0.2.0
 */
export interface Lease {
  readonly queue: string
  readonly limit: number
  readonly token: string
  readonly visibilityMs: number
}

/**
 * What a statement answers with that leases messages and takes what it can of them.
 *
 * @category models
 * @since 0.2.0
 */
export interface Fetched<A> {
  /** Taken, their messages deleted. */
  readonly taken: ReadonlyArray<A>
  readonly left: Leased
}

/**
 * Messages that were leased.
 *
 * @category models
 * @since 0.2.0
 */
export interface Leased {
  /** Null: none. */
  readonly ids: ReadonlyArray<bigint> | null
  /** JSON texts. */
  readonly payloads: ReadonlyArray<string> | null
  readonly attempts: ReadonlyArray<number> | null
  /** How many were moved to the dead letters instead. */
  readonly died: number
  /** The time of the database, and when the next message becomes visible, milliseconds since the Unix epoch. */
  readonly nowMs: number
  readonly nextMs: number | null
}

/** Undefined unless the operation is that of a queue whose messages are in this very database, by its clock. */
export const storedIn = (
  operation: "publish" | "receive",
  queue: { readonly publish: object; readonly receive: object; readonly stored?: Stored | undefined },
  database: object,
  clock: "database" | "effect" = "database"
): Stored | undefined => {
  const { stored } = queue
  return stored?.database === database && stored.clock === clock && stored[operation] === queue[operation]
    ? stored
    : undefined
}
