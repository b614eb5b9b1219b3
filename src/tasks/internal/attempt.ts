/**
 * The attempt that a handler makes; `Task` exports it.
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type { PayloadMismatch, PayloadTooLarge } from "../../model/shared/payload.ts"
import type { TransactionConnection } from "../../model/shared/transactionConnection.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import type { StaleAttempt } from "../shared/errors.ts"

/**
 * The attempt that a handler makes.
 *
 * **Example** (Rows and result in one transaction)
 *
 * ```ts
 * const attempt = yield* Pay.attempt
 * yield* Effect.promise(() =>
 *   prisma.$transaction(async (tx) => {
 *     await tx.invoice.update({ where: { id }, data: { paid: true } })
 *     await Effect.runPromise(attempt.commit(tx, { paid: true }))
 *   })
 * )
 * ```
 *
 * @category context
 * @since 0.2.0
 */
export class Attempt extends Context.Service<Attempt, {
  readonly taskName: string
  readonly taskId: string
  /** From 1. */
  readonly attempt: number
  /** Identifies the task: all its attempts share it, and no other task has it. */
  readonly idempotencyKey: string
  /** Id of the worker. */
  readonly workerId: string
  /**
   * Completes the task within the handler's own transaction, of the database of the worker. Fails with `StaleAttempt`
   * if this is no longer the newest attempt, or the task has ended: roll back then.
   *
   * **Details**
   *
   * It locks the task until the transaction ends. If that rolls back, the task is not completed, and the attempt has
   * failed however the handler ends. What the handler returns is not used.
   *
   * If the answer to the commit of the transaction is lost, repeating the transaction is safe: if the first one was
   * committed, the second `commit` fails with `StaleAttempt`, and the task is completed.
   *
   * The result is checked against the task's Schema: `PayloadMismatch`.
   */
  readonly commit: (
    connection: TransactionConnection,
    result: unknown
  ) => Effect.Effect<void, StaleAttempt | PayloadMismatch | PayloadTooLarge | ProviderError>
  /**
   * Locks the task within the handler's own transaction, until it ends: no other attempt begins meanwhile. Fails with
   * `StaleAttempt` as `commit` does. For outputs that are committed before the task ends.
   */
  readonly lock: (connection: TransactionConnection) => Effect.Effect<void, StaleAttempt | ProviderError>
}>()("duroxide-prisma/tasks/Task/Attempt") {}
