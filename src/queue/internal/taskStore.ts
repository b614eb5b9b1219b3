/**
 * Tasks in PostgreSQL: each operation is one call of one stored function, for a set of tasks.
 */
import * as Effect from "effect/Effect"
import { Prisma } from "../../prisma/internal/client.ts"
import type { Statements } from "../../prisma/internal/transactionQuery.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"

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
  | { readonly out_outcome: "Missing" | "Busy" | "Ended" }
  | {
    readonly out_outcome: "Claimed"
    readonly out_id: string
    readonly out_name: string
    readonly out_attempt: number
    readonly out_counted: number
    readonly out_max_attempts: number
    readonly out_payload: string
    readonly out_trace_context: string | null
  }
  | { readonly out_outcome: "NotDue"; readonly out_due_ms: bigint }
  | { readonly out_outcome: "Unserved" | "Exhausted"; readonly out_id: string; readonly out_name: string }

export interface Serves {
  readonly names: ReadonlyArray<string>
  readonly leaseMs: ReadonlyArray<number>
  readonly workerId: string
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

export interface AttemptEnd {
  readonly task_id: string
  readonly attempt: number
  readonly outcome: "Failed" | "Died" | "TimedOut" | "GivenBack"
  readonly error: string | null
  /** Before the next attempt; null: there is none. */
  readonly delay_ms: number | null
  readonly counts: boolean
}

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
  readonly out_next_ms: bigint | null
  readonly out_pending: bigint
  readonly out_running: bigint
  readonly out_dead: bigint
  readonly out_oldest_age_ms: bigint
}

export type TaskStore = ReturnType<typeof make>

/** On the pool, or within a transaction. */
export const make = ({ query, schemaSql }: Statements) => {
  const rows = <Row>(operation: string, name: string, args: ReadonlyArray<Prisma.Sql>) =>
    query<Row>(operation, Prisma.sql`SELECT * FROM ${schemaSql}.${Prisma.raw(name)}(${Prisma.join(args)})`)
  const answer = <A>(operation: string, name: string, args: ReadonlyArray<Prisma.Sql>) =>
    Effect.map(
      query<{ readonly answer: A }>(
        operation,
        Prisma.sql`SELECT ${schemaSql}.${Prisma.raw(name)}(${Prisma.join(args)}) AS answer`
      ),
      (rows) => rows[0]!.answer
    )
  /** One outcome per item. */
  const settle =
    <Outcome extends string>(operation: string, name: string, wrap: (args: Prisma.Sql, items: number) => Prisma.Sql) =>
    <Item extends object>(items: ReadonlyArray<Item>) =>
      answer<ReadonlyArray<Outcome>>(operation, name, [wrap(json(items), items.length)])

  return {
    create: (tasks: ReadonlyArray<NewTask>): Effect.Effect<ReadonlyArray<Created>, ProviderError> =>
      rows<Created>("createTasks", "dx_create_tasks", [json(tasks)]),
    /** The caller wakes the publishers itself, after the commit. */
    createQuietly: (tasks: ReadonlyArray<NewTask>): Effect.Effect<ReadonlyArray<Created>, ProviderError> =>
      rows<Created>("createTasks", "dx_create_tasks", [quietly(json(tasks))]),
    claim: (wakeups: ReadonlyArray<object>, { leaseMs, names, workerId }: Serves) =>
      rows<Claim>("claimTasks", "dx_claim_tasks", [
        quietly(json(wakeups)),
        Prisma.sql`${[...names]}::text[]`,
        Prisma.sql`${[...leaseMs]}::bigint[]`,
        Prisma.sql`${workerId}::text`
      ]),
    // What a crash of the server undoes is a heartbeat: the lease is shorter.
    renew: settle<"Done" | "Lost">(
      "renewTasks",
      "dx_renew_tasks",
      (items) => Prisma.sql`CASE WHEN set_config('synchronous_commit', 'off', true) IS NOT NULL THEN ${items} END`
    ),
    complete: settle<"Done" | "Stale" | "Uncommitted">("completeTasks", "dx_complete_tasks", impatiently),
    completeWithin: settle<"Done" | "Stale" | "Uncommitted">("completeTasks", "dx_complete_tasks", (items) => items),
    fail: settle<"Retried" | "Dead" | "Stale">("failTasks", "dx_fail_tasks", impatiently),
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
      rows<EndedTask>("awaitTasks", "dx_await_tasks", [Prisma.sql`${[...ids]}::uuid[]`]),
    sweep: (limit: number, wakeups: number) =>
      Effect.map(
        rows<Swept>("sweepTasks", "dx_sweep_tasks", [
          Prisma.sql`${limit}::integer`,
          Prisma.sql`${wakeups}::integer`
        ]),
        (rows) => rows[0]!
      ),
    redrive: (ids: ReadonlyArray<string> | null, name: string | null, limit: number) =>
      answer<ReadonlyArray<string>>("redriveTasks", "dx_redrive_tasks", [
        Prisma.sql`${ids === null ? null : [...ids]}::text[]`,
        Prisma.sql`${name}::text`,
        Prisma.sql`${limit}::integer`
      ]),
    clean: (keepEndedMs: number, keepDeadMs: number, limit: number) =>
      answer<number>("cleanTasks", "dx_clean_tasks", [
        Prisma.sql`${keepEndedMs}::bigint`,
        Prisma.sql`${keepDeadMs}::bigint`,
        Prisma.sql`${limit}::integer`
      ])
  }
}

// internal

const json = (value: unknown) => Prisma.sql`${JSON.stringify(value)}::jsonb`

// The settings end with the statement; `CASE` evaluates its condition first.

const quietly = (args: Prisma.Sql) =>
  Prisma.sql`CASE WHEN set_config('duroxide.quiet', 'on', true) IS NOT NULL THEN ${args} END`

/** A transaction that holds one task must not delay the others of the set: each is tried again alone. */
const impatiently = (args: Prisma.Sql, items: number) =>
  Prisma.sql`CASE WHEN set_config(
    'lock_timeout',
    COALESCE(NULLIF(current_setting('lock_timeout'), '0'), ${items > 1 ? "200" : "50"}::text),
    true
  ) IS NOT NULL THEN ${args} END`
