/**
 * The enqueue operations on a connection of the application, inside its transaction: the rows of the application and
 * the start of an orchestration commit together or not at all.
 *
 * Each call is one statement on that connection. It commits nothing, is never retried, and is not batched with others.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as enqueue from "../provider/internal/enqueue.ts"
import { counted } from "../provider/internal/gate.ts"
import type { Provider } from "../provider/Provider.ts"
import * as drivers from "./internal/driver.ts"
import { statementsOn } from "./internal/transactionQuery.ts"
import type { TransactionConnection } from "./internal/transactionQuery.ts"

export type { TransactionConnection } from "./internal/transactionQuery.ts"

/**
 * Where the tables are.
 *
 * @category options
 * @since 0.1.0
 */
export interface Options {
  /** The schema that holds the tables of this package, in the database of the connection. Defaults to `public`. */
  readonly schema?: string | undefined
}

/**
 * The enqueue operations of `Provider` on the connection, for `Client.within`.
 *
 * **Details**
 *
 * Fails as `Provider` does. After a `ProviderError` of the database the transaction is aborted, as after every failed
 * statement in PostgreSQL: until a rollback (also to a savepoint), every call fails with `TransactionAborted`.
 * `AlreadyExists` and `InvalidInput` are not failed statements; the transaction stays usable.
 *
 * The role of the connection needs `USAGE` on the schema, and the same rights on its tables as the role of the runtime.
 *
 * **Gotchas**
 *
 * - The caller must begin the transaction: on a plain client or a pool, every call commits on its own.
 * - The commit notifies the processes that listen, once for all that the transaction starts and sends. PostgreSQL commits
 *   transactions that notify one at a time, and refuses `PREPARE TRANSACTION` after a notification: with `SET LOCAL
 *   duroxide.notify = off` there is none, and processes that listen find the work with their next fallback look, up to
 *   `fallbackPollInterval` (5 minutes) later.
 * - Until the commit, another start of the same instance id waits for the outcome. Keep the transaction short, and
 *   start several instances in the order of their ids, or two such transactions may deadlock.
 * - An interrupted call may still run its statement. Roll back the transaction in this case.
 *
 * **Example** (An order and the orchestration that fulfils it)
 *
 * ```ts
 * await prisma.$transaction(async (tx) => {
 *   await tx.order.create({ data: { id: "o-1", totalCents: 4200 } })
 *   const client = Client.within(Transaction.make(tx, { schema: "duroxide" }))
 *   await Effect.runPromise(client.start(Fulfil, { instanceId: "order-o-1", payload: "o-1" }))
 * })
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (
  connection: TransactionConnection,
  options?: Options
): Pick<Provider["Service"], "startOrchestration" | "enqueueForOrchestrator" | "enqueueForWorker"> => {
  const driver = counted(drivers.make(statementsOn(connection, options?.schema)))
  return enqueue.make({
    sendStart: (start) => Effect.map(driver.startOrchestrations([start]), ([answer]) => answer!),
    sendMessage: (message) => driver.enqueueForOrchestrator([message]),
    sendActivity: (activity) => driver.enqueueForWorker([activity])
  })
}
