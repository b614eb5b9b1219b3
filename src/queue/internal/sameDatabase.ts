/**
 * Finds out whether a queue stores its messages in the database of the caller: then what would be two statements is one.
 *
 * The operations of `PgQueue` themselves are the proof. A queue that wraps one of them, to count, to delay or to fail calls, is
 * called through that wrapper as every other server is.
 */
import type { Database } from "../../prisma/Database.ts"
import type { Queue } from "../Queue.ts"

/** What a queue in this schema says of itself. */
export interface Stored {
  readonly database: Database["Service"]
  /** The clock that decides what is visible. */
  readonly clock: "database" | "effect"
  readonly maxAttempts: Readonly<Record<string, number>>
}

type Operation = Queue["Service"]["publish"] | Queue["Service"]["ack"]

/** Called once, by the queue itself. */
export const register = ({ ack, publish }: Queue["Service"], stored: Stored): void => {
  for (const operation of [publish, ack]) known.set(operation, stored)
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
