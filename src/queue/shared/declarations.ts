/**
 * The queues that an application declares, for servers that this package brings.
 */
import * as Effect from "effect/Effect"
import { InvalidInput } from "../QueueError.ts"
import type { QueueError } from "../QueueError.ts"
import * as check from "./check.ts"

/** Settings of a queue. All have defaults. */
export interface Declaration {
  /**
   * After this many deliveries without an ack a message goes to the dead letters, 1 to 1,000,000. A message keeps the
   * number of the process that published it. Defaults to 20.
   */
  readonly maxAttempts?: number | undefined
}

/** Ten years. */
export const maxDelayMs = 3_650 * 86_400_000

/** Limit of all kinds of queues in bytes, so that each takes the payloads of the others. SQS takes 1 MiB. */
export const maxPayloadBytes = 262_144

/** The declarations with their defaults. Fails with `InvalidInput`. */
export const read = Effect.fnUntraced(function*(
  queues: Readonly<Record<string, Declaration>>
): Effect.fn.Return<Readonly<Record<string, Required<Declaration> & { readonly maxAttempts: number }>>, QueueError> {
  for (const [name, { maxAttempts = 1 }] of Object.entries(queues)) {
    const problem = check.queueName(name)
    if (problem !== undefined) return yield* invalid(name, "queues", problem)
    if (!Number.isInteger(maxAttempts) || maxAttempts < 1 || maxAttempts > mostAttempts) {
      return yield* invalid(name, "maxAttempts", `it must be a whole number from 1 to ${mostAttempts}`)
    }
  }
  return Object.fromEntries(
    Object.entries(queues).map(([name, { maxAttempts = 20 }]) => [name, { maxAttempts }])
  )
})

// internal

const mostAttempts = 1_000_000

const invalid = (queue: string, field: string, problem: string) =>
  check.fail("open", queue, new InvalidInput({ field, problem }))
