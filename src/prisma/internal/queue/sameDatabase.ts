/**
 * Finds out whether a queue stores its messages in the database of the caller: then what would be two statements is one.
 *
 * The operations of `PgQueue` themselves are the proof. A queue that wraps one of them, to count, to delay or to fail calls, is
 * called through that wrapper as every other server is.
 */
import type * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { Queue } from "../../../queue/Queue.ts"
import type { QueueError } from "../../../queue/QueueError.ts"
import type { Watch } from "../../../tasks/internal/claims.ts"
import type { Claimed, Serves } from "../../../tasks/internal/store.ts"
import type { Taken } from "../../../tasks/internal/taken.ts"
import type { Database } from "../../Database.ts"
import type { Asking } from "./receivePump.ts"

/** What a queue in this schema says of itself. */
export interface Stored {
  readonly database: Database["Service"]
  /** The clock that decides what is visible. */
  readonly clock: "database" | "effect"
  readonly maxAttempts: Readonly<Record<string, number>>
  /** Receives for a worker: a statement claims the tasks as well. Until the scope is closed. */
  readonly taking: (queue: string, options: TakingOptions) => Effect.Effect<Take, never, Scope.Scope>
}

export interface TakingOptions {
  readonly serves: Serves
  /** Gives back tasks whose caller was interrupted meanwhile. */
  readonly giveBack: (claimed: Claimed) => Effect.Effect<void>
  /** Gives back what a claim has taken whose answer was lost. */
  readonly returnClaim: (claimId: number) => Effect.Effect<void>
  /** Of each statement. */
  readonly watch: Watch
}

export type Take = (asking: Asking) => Effect.Effect<ReadonlyArray<Taken>, QueueError>

type Operation = Queue["Service"]["publish"] | Queue["Service"]["receive"]

/** Called once, by the queue itself. */
export const register = ({ publish, receive }: Queue["Service"], stored: Stored): void => {
  for (const operation of [publish, receive]) known.set(operation, stored)
}

/** Undefined unless the messages are in this very database, by this clock. */
export const storedIn = (
  operation: Operation,
  database: Database["Service"],
  clock: "database" | "effect" = "database"
): Stored | undefined => {
  const stored = known.get(operation)
  return stored?.database === database && stored.clock === clock ? stored : undefined
}

// internal

const known = new WeakMap<Operation, Stored>()
