/**
 * Creates tasks, waits for their ends, and manages them.
 *
 * Creating a task writes its row and a row of the outbox in one statement: a publisher (`Outbox.publisher`) sends the wake-up
 * later. A process that only creates tasks needs no queue and no handlers.
 *
 * @since 0.2.0
 */
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type { PayloadMismatch, PayloadSchema, PayloadTooLarge } from "../model/internal/payload.ts"
import { statementsOn } from "../prisma/internal/transactionQuery.ts"
import type { Options as TransactionOptions, TransactionConnection } from "../prisma/Transaction.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { newTask, refused } from "./internal/newTask.ts"
import * as stores from "./internal/taskStore.ts"
import type { NewTask } from "./internal/taskStore.ts"
import type * as Task from "./Task.ts"

/**
 * How a task is created.
 *
 * @category options
 * @since 0.2.0
 */
export type CreateOptions<Payload> = {
  /**
   * Makes the creation idempotent: with a key that a task of this name has already, also one that has ended, the id of that
   * task is returned and nothing is stored. At most 1,024 bytes. A key is free again when its task is deleted after its
   * retention.
   */
  readonly key?: string | undefined
  /** The first attempt begins no earlier. Defaults to none; up to 10 years. */
  readonly delay?: Duration.Input | undefined
} & ([Payload] extends [void] ? { readonly payload?: Payload } : { readonly payload: Payload })

/**
 * The operations that create tasks.
 *
 * @category models
 * @since 0.2.0
 */
export interface Creator {
  /** Creates a task and returns its id, a UUID. When this returns, the task will run even if this process ends. */
  readonly create: <P extends PayloadSchema, S extends PayloadSchema, E extends PayloadSchema>(
    task: Task.Task<any, P, S, E>,
    options: CreateOptions<P["Type"]>
  ) => Effect.Effect<string, PayloadMismatch | PayloadTooLarge | ProviderError>
  /** Creates tasks in one statement, all or none; returns their ids in the order of the options. At most 10,000. */
  readonly createMany: <P extends PayloadSchema, S extends PayloadSchema, E extends PayloadSchema>(
    task: Task.Task<any, P, S, E>,
    options: ReadonlyArray<CreateOptions<P["Type"]>>
  ) => Effect.Effect<ReadonlyArray<string>, PayloadMismatch | PayloadTooLarge | ProviderError>
}

/**
 * Creates tasks on a connection of the application, inside its transaction: the rows of the application and the tasks commit
 * together or not at all.
 *
 * **Details**
 *
 * Each call is one statement on that connection, as in `Transaction.make`, whose details and gotchas apply. Until the commit,
 * another creation with the same key waits for the outcome.
 *
 * **Example** (An order and the task that confirms it)
 *
 * ```ts
 * await prisma.$transaction(async (tx) => {
 *   await tx.order.create({ data: { id: "o-1", totalCents: 4200 } })
 *   const tasks = Tasks.within(tx, { schema: "duroxide" })
 *   await Effect.runPromise(tasks.create(Confirm, { payload: { order: "o-1" }, key: "o-1" }))
 * })
 * ```
 *
 * @category constructors
 * @since 0.2.0
 */
export const within = (connection: TransactionConnection, options?: TransactionOptions): Creator =>
  creator(stores.make(statementsOn(connection, options?.schema)).create)

// internal

/** Rows of one statement. */
const mostTasks = 10_000

const creator = (
  send: (tasks: ReadonlyArray<NewTask>) => Effect.Effect<ReadonlyArray<stores.Created>, ProviderError>
): Creator => {
  const ids = (tasks: ReadonlyArray<NewTask>) => Effect.map(send(tasks), (rows) => rows.map(({ out_id }) => out_id))
  return {
    create: (task, options) => Effect.flatMap(newTask(task, options), (row) => Effect.map(ids([row]), ([id]) => id!)),
    createMany: (task, many) =>
      many.length === 0
        ? Effect.succeed([])
        : many.length > mostTasks
        ? refused("tasks", `there are ${many.length}, the limit is ${mostTasks}`)
        : Effect.flatMap(Effect.forEach(many, (options) => newTask(task, options)), ids)
  }
}
