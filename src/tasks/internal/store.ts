/**
 * Tasks in PostgreSQL: each operation is one call of one stored function, for a set of tasks.
 */
import * as Effect from "effect/Effect"
import { randomInt } from "node:crypto"
import { Prisma } from "../../prisma/internal/client.ts"
import type * as statements from "../../prisma/internal/statements.ts"
import { statementsOn } from "../../prisma/internal/transactionQuery.ts"
import type { TransactionConnection } from "../../prisma/Transaction.ts"

/** A task to create; the fields are those of `dx_create_tasks`. */
export interface NewTask {
  readonly id?: string | undefined
  readonly name: string
  readonly key?: string | undefined
  readonly payload: string
  readonly max_attempts: number
  readonly queue: string
  readonly wakeup?: object | undefined
  readonly delay_ms?: number | undefined
  readonly run_at_ms?: number | undefined
  readonly reply_instance_id?: string | undefined
  readonly reply_execution_id?: number | undefined
  readonly reply_name?: string | undefined
  readonly trace_context?: string | undefined
}

export interface Created {
  readonly out_id: string
  readonly out_is_new: boolean
}

export type Claim =
  | { readonly out_outcome: "Missing" | "Busy" | "Locked" | "Ended" }
  | { readonly out_outcome: "Suspect"; readonly out_lost: number }
  | {
    readonly out_outcome: "Claimed"
    readonly out_id: string
    readonly out_name: string
    readonly out_attempt: number
    readonly out_counted: number
    readonly out_lost: number
    readonly out_payload: string
    readonly out_trace_context: string | null
  }
  | { readonly out_outcome: "NotDue"; readonly out_due_ms: number }
  | { readonly out_outcome: "Unserved" | "Exhausted"; readonly out_id: string; readonly out_name: string }

export type Suspect = Extract<Claim, { readonly out_outcome: "Suspect" }>

export type Claimed = Extract<Claim, { readonly out_outcome: "Claimed" }>

/** What a wake-up names: a task by its id, or the batch of one. */
export type Wakeup = { readonly taskId: string } | {
  readonly batch: { readonly dataset_uuid: string; readonly dataset_version: number; readonly batch_uri: string }
}

export interface Serves {
  readonly names: ReadonlyArray<string>
  readonly leaseMs: ReadonlyArray<number>
  readonly workerId: string
}

/** As arguments of the functions that claim. */
export const servesArgs = ({ leaseMs, names, workerId }: Serves): ReadonlyArray<Prisma.Sql> => [
  Prisma.sql`${[...names]}::text[]`,
  Prisma.sql`${[...leaseMs]}::bigint[]`,
  Prisma.sql`${workerId}::text`
]

/** One claim of a worker. */
export interface ClaimOptions {
  /** Repeats the claim, or gives it back, if its answer is lost. */
  readonly claimId: number
  /** How many suspects it may take, by their losses. */
  readonly suspects: ReadonlyArray<number>
}

/** Unique among the claims of a worker. */
export const makeClaimId = () => randomInt(2 ** 31)

/** What a worker that has started serves. */
export interface Serving {
  readonly names: ReadonlyArray<string>
  /** How long, milliseconds. */
  readonly sinceMs: number
}

export interface Renewal {
  readonly task_id: string
  readonly attempt: number
  readonly lease_ms: number
}

export interface Completion {
  readonly task_id: string
  readonly attempt: number
  readonly result: string | null
  /** The handler has completed it in its own transaction. */
  readonly is_committed: boolean
}

export type Completed = "Done" | "Stale" | "Uncommitted"

export interface AttemptEnd {
  readonly task_id: string
  readonly attempt: number
  readonly outcome: "Failed" | "Died" | "Unavailable" | "TimedOut" | "GivenBack"
  readonly error: string | null
  /** Before the next attempt; null: there is none. */
  readonly delay_ms: number | null
  readonly counts: boolean
}

/** The execution of a call, and the mailbox that the end of its task arrives in. */
export interface Caller {
  readonly instanceId: string
  readonly executionId: number
  readonly mailbox: string
}

/** The status is `Missing` if there is no such task. */
export type Ended = readonly [status: string, result: string | null, error: string | null]

export interface EndedTask {
  readonly out_id: string
  /** `Missing` if there is no such task. */
  readonly out_status: string
  readonly out_result: string | null
  readonly out_error: string | null
}

export interface Swept {
  readonly out_lost: number
  readonly out_woken: number
  readonly out_is_full: boolean
  readonly out_has_unserved: boolean
  readonly out_next_ms: bigint | null
  readonly out_pending: bigint
  readonly out_running: bigint
  readonly out_dead: bigint
  readonly out_oldest_age_ms: bigint
}

export type TaskStore = ReturnType<typeof make>

/** On the pool, or within a transaction. */
export const make = ({ answer, collected, rows }: statements.Statements) => {
  /** One outcome per item. */
  const settle = <Outcome extends string>(
    operation: string,
    name: string,
    items: ReadonlyArray<object>,
    settings?: statements.Settings
  ) => answer<ReadonlyArray<Outcome>>(operation, name, [json(items)], { ...settings, items: items.length })

  return {
    create: (tasks: ReadonlyArray<NewTask>) =>
      collected<Created>("createTasks", "dx_create_tasks", [json(tasks)], { items: tasks.length, isQuiet: true }),
    claim: (wakeups: ReadonlyArray<Wakeup>, serves: Serves, { claimId, suspects }: ClaimOptions) =>
      collected<Claim>("claimTasks", "dx_claim_tasks", [
        // What is not a UUID names no task.
        Prisma.sql`${
          wakeups.map((one) => "taskId" in one && uuid.test(one.taskId) ? one.taskId : null)
        }::text[]::uuid[]`,
        json(wakeups.flatMap((one, i) => "batch" in one ? [{ position: i + 1, ...one.batch }] : [])),
        ...servesArgs(serves),
        Prisma.sql`${claimId}::integer`,
        Prisma.sql`${[...suspects]}::integer[]`
      ], { items: wakeups.length }),
    /** Gives back what claims without an answer have taken; those of them that had taken something. */
    returnClaims: (workerId: string, claimIds: ReadonlyArray<number>) =>
      answer<ReadonlyArray<number>>("returnTasks", "dx_return_tasks", [
        Prisma.sql`${workerId}::text`,
        Prisma.sql`${[...claimIds]}::integer[]`
      ], { isQuiet: true }),
    renew: (items: ReadonlyArray<Renewal>) =>
      settle<"Done" | "Lost">("renewTasks", "dx_renew_tasks", items, { isUnflushed: true }),
    /** One outcome per item. `isFirst`: rows of the application are committed with it, which must happen once. */
    complete: (items: ReadonlyArray<Completion>, isFirst = false) =>
      Effect.map(
        answer<ReadonlyArray<Completed> | null>("completeTasks", "dx_complete_tasks", [
          Prisma.sql`${items.map(({ task_id }) => task_id)}::text[]::uuid[]`,
          Prisma.sql`${items.map(({ attempt }) => attempt)}::integer[]`,
          Prisma.sql`${items.map(({ result }) => result)}::text[]`,
          Prisma.sql`${items.map(({ is_committed }) => is_committed)}::boolean[]`,
          Prisma.sql`${isFirst}::boolean`
        ], { items: items.length }),
        (outcomes) => outcomes ?? items.map(() => "Done" as const)
      ),
    fail: (items: ReadonlyArray<AttemptEnd>) =>
      settle<"Retried" | "Dead" | "Stale">("failTasks", "dx_fail_tasks", items, { isQuiet: true }),
    cancel: (ids: ReadonlyArray<string>, reason: string, replies: boolean) =>
      answer<ReadonlyArray<"Cancelled" | "Ended" | "Missing">>("cancelTasks", "dx_cancel_tasks", [
        Prisma.sql`${[...ids]}::text[]`,
        Prisma.sql`${reason}::text`,
        Prisma.sql`${replies}::boolean`
      ]),
    lockAttempt: (taskId: string, attempt: number) =>
      answer<boolean>("lockAttempt", "dx_lock_attempt", [
        Prisma.sql`${taskId}::uuid`,
        Prisma.sql`${attempt}::integer`
      ]),
    /** Those of the tasks that have ended. */
    await: (ids: ReadonlyArray<string>) =>
      Effect.map(
        rows<{ readonly dx_await_tasks: EndedColumns }>("awaitTasks", "dx_await_tasks", [
          Prisma.sql`${[...ids]}::uuid[]`
        ], { items: ids.length }),
        (parts) => parts.flatMap((part) => endedTasks(part.dx_await_tasks))
      ),
    /** The end, or null: it will arrive in the mailbox. */
    join: (taskId: string, { executionId, instanceId, mailbox }: Caller) =>
      answer<Ended | null>("joinTask", "dx_join_task", [
        Prisma.sql`${taskId}::uuid`,
        Prisma.sql`${instanceId}::text`,
        Prisma.sql`${executionId}::bigint`,
        Prisma.sql`${mailbox}::text`
      ]),
    sweep: (limit: number, wakeups: number, serving?: Serving) =>
      Effect.map(
        rows<Swept>("sweepTasks", "dx_sweep_tasks", [
          Prisma.sql`${limit}::integer`,
          Prisma.sql`${wakeups}::integer`,
          Prisma.sql`${serving === undefined ? null : [...serving.names]}::text[]`,
          Prisma.sql`${serving?.sinceMs ?? 0}::bigint`
        ], { isQuiet: true }),
        (rows) => rows[0]!
      ),
    redrive: (ids: ReadonlyArray<string> | null, name: string | null, limit: number) =>
      answer<ReadonlyArray<string>>("redriveTasks", "dx_redrive_tasks", [
        Prisma.sql`${ids === null ? null : [...ids]}::text[]`,
        Prisma.sql`${name}::text`,
        Prisma.sql`${limit}::integer`
      ], { isQuiet: true }),
    clean: (keepEndedMs: number, keepDeadMs: number, limit: number) =>
      answer<number>("cleanTasks", "dx_clean_tasks", [
        Prisma.sql`${keepEndedMs}::bigint`,
        Prisma.sql`${keepDeadMs}::bigint`,
        Prisma.sql`${limit}::integer`
      ])
  }
}

/** In a transaction of the application: each function with its own defaults. */
export const within = (connection: TransactionConnection, schema: string | undefined): TaskStore => {
  const { query, schemaSql } = statementsOn(connection, schema)
  const call = (name: string, args: ReadonlyArray<Prisma.Sql>) =>
    Prisma.sql`${schemaSql}.${Prisma.raw(name)}(${Prisma.join([...args])})`
  const rows = <Row>(operation: string, name: string, args: ReadonlyArray<Prisma.Sql>) =>
    query<Row>(operation, Prisma.sql`SELECT * FROM ${call(name, args)}`)
  return make({
    rows,
    collected: rows,
    answer: <A>(operation: string, name: string, args: ReadonlyArray<Prisma.Sql>) =>
      Effect.map(
        query<{ readonly answer: A }>(operation, Prisma.sql`SELECT ${call(name, args)} AS answer`),
        (rows) => rows[0]!.answer
      )
  })
}

// internal

type EndedColumns = readonly [
  ids: ReadonlyArray<string>,
  statuses: ReadonlyArray<string>,
  results: ReadonlyArray<string | null>,
  errors: ReadonlyArray<string | null>
]

const endedTasks = ([ids, statuses, results, errors]: EndedColumns): ReadonlyArray<EndedTask> =>
  ids.map((id, i) => ({ out_id: id, out_status: statuses[i]!, out_result: results[i]!, out_error: errors[i]! }))

const json = (value: unknown) => Prisma.sql`${JSON.stringify(value)}::jsonb`

const uuid = /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/i
