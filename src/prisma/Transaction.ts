/**
 * What joins a transaction of the application, on its connection: the rows of the application and the start of an
 * orchestration, a message of the outbox or a task commit together or not at all.
 *
 * Each call is one statement on that connection. It commits nothing, is never retried, and is not batched with others.
 *
 * @since 0.1.0
 */
import type * as pg from "pg"
import type { TransactionConnection, Transactions } from "../model/shared/transactionConnection.ts"
import type { OutboxDriver } from "../outbox/OutboxDriver.ts"
import * as sealedOutbox from "../outbox/shared/sealed.ts"
import * as FromDriver from "../provider/FromDriver.ts"
import type { PayloadCodec } from "../provider/PayloadCodec.ts"
import type { Provider } from "../provider/Provider.ts"
import type { DatasetDriver } from "../recipes/DatasetDriver.ts"
import * as sealedDatasets from "../recipes/shared/sealedDatasets.ts"
import * as sealedTasks from "../tasks/shared/sealedDriver.ts"
import type { TaskDriver } from "../tasks/TaskDriver.ts"
import * as datasetDrivers from "./internal/datasets/driver.ts"
import * as drivers from "./internal/driver.ts"
import * as outboxDrivers from "./internal/outbox/driver.ts"
import * as taskDrivers from "./internal/tasks/driver.ts"
import { statementsOn } from "./internal/transactionQuery.ts"

export type { TransactionConnection, Transactions } from "../model/shared/transactionConnection.ts"

/**
 * Where the tables are.
 *
 * @category options
 * @since 0.1.0
 */
export interface Options {
  /**
   * The schema that holds the tables of this package, in the database of the connection. No setting of the provider
   * applies here: what is written into another schema waits there until a runtime serves it.
   */
  readonly schema: string
  /**
   * Encodes the payloads of what joins the transaction: the codec of the runtimes that read it. Defaults to none, which
   * stores plain text.
   */
  readonly payloads?: PayloadCodec["Service"] | undefined
}

/**
 * The operations that join a transaction.
 *
 * @category models
 * @since 0.2.0
 */
export interface Joined extends
  Pick<
    Provider["Service"],
    "startOrchestration" | "startOrchestrations" | "enqueueForOrchestrator" | "enqueueForWorker"
  >
{
  readonly outbox: Pick<OutboxDriver["Service"], "add">
  readonly tasks: Pick<TaskDriver["Service"], "create">
  readonly datasets: DatasetDriver["Service"]
}

/**
 * The operations on the connection, for `within` of `Client`, `Outbox`, `Tasks`, `Delivery` and `Dataset`.
 *
 * **Details**
 *
 * They fail as outside of a transaction. After a `ProviderError` of the database the transaction is aborted, as after
 * every failed statement in PostgreSQL: until a rollback (also to a savepoint), every call fails with
 * `TransactionAborted`. `AlreadyExists` and `InvalidInput` are not failed statements; the transaction stays usable.
 *
 * The role of the connection needs `USAGE` on the schema, and the same rights on its tables as the role of the runtime.
 *
 * **Gotchas**
 *
 * - The caller must begin the transaction: on a plain client or a pool, every call commits on its own.
 * - The commit notifies the processes that listen, once for all that the transaction starts and sends. PostgreSQL
 *   commits transactions that notify one at a time, and refuses `PREPARE TRANSACTION` after a notification: `SET LOCAL
 *   duroxide.notify = off` prevents it. Processes that listen then find the work with their next fallback look, up to
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
  { payloads, schema }: Options
): Joined => ({
  ...FromDriver.makeEnqueue(drivers.make(statementsOn(connection, schema)), payloads),
  outbox: sealedOutbox.adding(outboxDrivers.addingOn(connection, schema), payloads),
  tasks: sealedTasks.creating(taskDrivers.creatingOn(connection, schema), payloads),
  datasets: sealedDatasets.publishing(datasetDrivers.makeOn(connection, schema), payloads)
})

/**
 * Transactions on connections of a `pg.Pool`, for `Activity.transactional`.
 *
 * **Details**
 *
 * A connection whose transaction did not end as asked is closed, not used again. `begin` is the statement that begins a
 * transaction; defaults to `BEGIN`.
 *
 * @category constructors
 * @since 0.3.0
 */
export const ofPool = (
  pool: Pick<pg.Pool, "connect">,
  { begin = "BEGIN" }: { readonly begin?: string | undefined } = {}
): Transactions<pg.PoolClient> => ({
  connection: (client) => client,
  run: async (body) => {
    const client = await pool.connect()
    // Without a listener, a connection that breaks between two statements ends the process.
    let fault: Error | undefined
    const onError = (error: Error) => void (fault = error)
    client.on("error", onError)
    try {
      await client.query(begin)
      const result = await body(client)
      const { command } = await client.query("COMMIT")
      if (command !== "COMMIT") throw new Error("the transaction was rolled back: a statement of it had failed before")
      return result
    } catch (error) {
      await client.query("ROLLBACK").catch((thrown: Error) => void (fault = thrown))
      throw error
    } finally {
      client.off("error", onError)
      client.release(fault)
    }
  }
})

/**
 * Interactive transactions of a Prisma client, for `Activity.transactional`. `options` are those of `$transaction`: its
 * `timeout` (5 seconds by default) is the longest run of the handler, `maxWait` (2 seconds) the longest wait for a
 * connection of its pool.
 *
 * @category constructors
 * @since 0.3.0
 */
export const ofPrisma = <Tx extends TransactionConnection, Options>(
  prisma: {
    readonly $transaction: (body: (tx: Tx) => Promise<any>, options?: Options) => Promise<any>
  },
  options?: Options
): Transactions<Tx> => ({
  connection: (tx) => tx,
  run: (body) => prisma.$transaction(body, options)
})
