/**
 * Tasks in PostgreSQL: each operation is one call of one stored function, for a set of tasks.
 */
import * as Effect from "effect/Effect"
import { isUuid } from "../../../model/shared/identifiers.ts"
import type { TransactionConnection } from "../../../model/shared/transactionConnection.ts"
import type { Lease } from "../../../queue/shared/stored.ts"
import type {
  AttemptEnd,
  Claim,
  Completed,
  Completion,
  Created,
  EndedTask,
  NewTask,
  Renewal,
  Serves,
  TakenTask,
  TaskDriver,
  Within
} from "../../../tasks/TaskDriver.ts"
import type { Database } from "../../Database.ts"
import { Prisma } from "../client.ts"
import { leased, leasing } from "../queue/leased.ts"
import type { LeasedRow } from "../queue/leased.ts"
import { json } from "../rows.ts"
import * as statements from "../statements.ts"
import type { Statements } from "../statements.ts"
import { statementsOn } from "../transactionQuery.ts"
import * as reads from "./reads.ts"

export const make = (database: Database["Service"]): TaskDriver["Service"] => {
  const on = statements.make(database)
  const { answer, collected, rows } = on
  return {
    database,
    problems: new Set(),
    ...creating(on),
    claim: (taskIds, serves, { claimId, suspects }) =>
      Effect.map(
        collected<ClaimRow>("claimTasks", "dx_claim_tasks", [
          // What is not a UUID names no task.
          Prisma.sql`${taskIds.map((id) => isUuid(id) ? id : null)}::text[]::uuid[]`,
          ...servesArgs(serves),
          Prisma.sql`${claimId}::integer`,
          Prisma.sql`${[...suspects]}::integer[]`
        ], { items: taskIds.length }),
        (claims) => claims.map(claimOf)
      ),
    take: (serves) => {
      const served = servesArgs(serves)
      return (lease: Lease, { claimedMs, claimId }) =>
        Effect.map(
          rows<TakenRow>("takeTasks", "dx_take_tasks", [...leasing(lease), ...served, Prisma.sql`${claimId}::integer`]),
          (found) => ({
            taken: found.flatMap(({ out_tasks }) => out_tasks === null ? [] : takenTasks(out_tasks, claimedMs)),
            left: leased(found.at(-1)!)
          })
        )
    },
    returnClaims: (workerId, claimIds) =>
      answer<ReadonlyArray<number>>("returnTasks", "dx_return_tasks", [
        Prisma.sql`${workerId}::text`,
        Prisma.sql`${[...claimIds]}::integer[]`
      ], { isQuiet: true }),
    renew: (leases) =>
      answer<ReadonlyArray<"Done" | "Locked" | "Lost">>(
        "renewTasks",
        "dx_renew_tasks",
        [json(leases.map(renewalRow))],
        {
          items: leases.length,
          isRenewal: true
        }
      ),
    complete: (completions) => complete(on, completions, false),
    fail: (ends) =>
      answer<ReadonlyArray<"Retried" | "Dead" | "Stale">>("failTasks", "dx_fail_tasks", [json(ends.map(endRow))], {
        items: ends.length,
        isQuiet: true
      }),
    within: (connection) => within(connection, database.schema),
    cancel: (ids, reason, replies) =>
      answer<ReadonlyArray<"Cancelled" | "Ended" | "Missing">>("cancelTasks", "dx_cancel_tasks", [
        Prisma.sql`${[...ids]}::text[]`,
        Prisma.sql`${reason}::text`,
        Prisma.sql`${replies}::boolean`
      ]),
    await: (ids) =>
      Effect.map(
        rows<{ readonly dx_await_tasks: EndedColumns }>("awaitTasks", "dx_await_tasks", [
          Prisma.sql`${[...ids]}::uuid[]`
        ], { items: ids.length }),
        (parts) => parts.flatMap((part) => endedTasks(part.dx_await_tasks))
      ),
    join: (taskId, { executionId, instanceId, signal }) =>
      Effect.map(
        answer<readonly [status: string, result: string | null, error: string | null] | null>(
          "joinTask",
          "dx_join_task",
          [
            Prisma.sql`${taskId}::uuid`,
            Prisma.sql`${instanceId}::text`,
            Prisma.sql`${executionId}::bigint`,
            Prisma.sql`${signal}::text`
          ]
        ),
        (end) => end === null ? null : { status: end[0], result: end[1], error: end[2] }
      ),
    recall: (taskId, { executionId, instanceId, signal }) =>
      answer<boolean>("recallTask", "dx_recall_tasks", [
        Prisma.sql`${instanceId}::text`,
        Prisma.sql`${executionId}::bigint`,
        json([{ id: taskId, signal }]),
        Prisma.sql`false`
      ]),
    redrive: (ids, name, limit) =>
      answer<ReadonlyArray<string>>("redriveTasks", "dx_redrive_tasks", [
        Prisma.sql`${ids === null ? null : [...ids]}::text[]`,
        Prisma.sql`${name}::text`,
        Prisma.sql`${limit}::integer`
      ], { isQuiet: true }),
    sweep: (limit, wakeups, serving) =>
      Effect.map(
        rows<SweptRow>("sweepTasks", "dx_sweep_tasks", [
          Prisma.sql`${limit}::integer`,
          Prisma.sql`${wakeups}::integer`,
          Prisma.sql`${serving === undefined ? null : [...serving.names]}::text[]`,
          Prisma.sql`${serving?.sinceMs ?? 0}::bigint`
        ], { isQuiet: true }),
        ([row]) => ({
          lost: row!.out_lost,
          woken: row!.out_woken,
          isFull: row!.out_is_full,
          hasUnserved: row!.out_has_unserved,
          nextMs: row!.out_next_ms === null ? null : Number(row!.out_next_ms),
          backlog: {
            pending: Number(row!.out_pending),
            running: Number(row!.out_running),
            dead: Number(row!.out_dead),
            oldestAgeMs: Number(row!.out_oldest_age_ms)
          }
        })
      ),
    clean: (keepEndedMs, keepDeadMs, limit) =>
      answer<number>("cleanTasks", "dx_clean_tasks", [
        Prisma.sql`${keepEndedMs}::bigint`,
        Prisma.sql`${keepDeadMs}::bigint`,
        Prisma.sql`${limit}::integer`
      ]),
    ...reads.make(database)
  }
}

/** Creates tasks on a connection of the application. */
export const creatingOn = (connection: TransactionConnection, schema: string) =>
  creating(statements.make(statementsOn(connection, schema)))

/** A task as `dx_create_tasks` reads it. */
export const taskRow = (
  { delayMs, id, isAwaited, key, limitKey, maxAttempts, name, payload, queue, replyTo, traceContext, wakeup }: NewTask
): object => ({
  id,
  name,
  key,
  limit_key: limitKey,
  payload,
  max_attempts: maxAttempts,
  queue,
  wakeup,
  delay_ms: delayMs,
  reply_instance_id: replyTo?.instanceId,
  reply_execution_id: replyTo?.executionId,
  reply_name: replyTo?.signal,
  is_awaited: isAwaited,
  trace_context: traceContext
})

/** Created tasks, as the functions answer. */
export interface CreatedRow {
  readonly out_id: string
  readonly out_is_new: boolean
}

// internal

const createdOf = ({ out_id, out_is_new }: CreatedRow): Created => ({ id: out_id, isNew: out_is_new })

/** On the pool, or within a transaction. */
const creating = ({ collected }: Pick<Statements, "collected">): Pick<TaskDriver["Service"], "create"> => ({
  create: (tasks, deliveries = {}) =>
    Effect.map(
      collected<CreatedRow>("createTasks", "dx_create_tasks", [
        json(tasks.map(taskRow)),
        Prisma.sql`${Object.keys(deliveries)}::text[]`,
        Prisma.sql`${Object.values(deliveries)}::integer[]`
      ], {
        items: tasks.length,
        isQuiet: true
      }),
      (created) => created.map(createdOf)
    )
})

const complete = ({ answer }: Pick<Statements, "answer">, completions: ReadonlyArray<Completion>, isFirst: boolean) =>
  Effect.map(
    answer<ReadonlyArray<Completed> | null>("completeTasks", "dx_complete_tasks", [
      Prisma.sql`${completions.map(({ taskId }) => taskId)}::text[]::uuid[]`,
      Prisma.sql`${completions.map(({ attempt }) => attempt)}::integer[]`,
      Prisma.sql`${completions.map(({ result }) => result)}::text[]`,
      Prisma.sql`${completions.map(({ isCommitted }) => isCommitted)}::boolean[]`,
      Prisma.sql`${isFirst}::boolean`
    ], { items: completions.length }),
    (outcomes) => outcomes ?? completions.map(() => "Done" as const)
  )

const within = (connection: TransactionConnection, schema: string): Within => {
  const on = statements.make(statementsOn(connection, schema))
  return {
    complete: (taskId, attempt, result) =>
      Effect.map(complete(on, [{ taskId, attempt, result, isCommitted: false }], true), ([outcome]) => outcome!),
    lockAttempt: (taskId, attempt) =>
      on.answer<boolean>("lockAttempt", "dx_lock_attempt", [
        Prisma.sql`${taskId}::uuid`,
        Prisma.sql`${attempt}::integer`
      ], { isTimeless: true })
  }
}

// -- arguments -------------------------------------------------------------------------------------

const servesArgs = ({ leaseMs, names, workerId }: Serves): ReadonlyArray<Prisma.Sql> => [
  Prisma.sql`${[...names]}::text[]`,
  Prisma.sql`${[...leaseMs]}::bigint[]`,
  Prisma.sql`${workerId}::text`
]

const renewalRow = ({ attempt, leaseMs, taskId }: Renewal) => ({ task_id: taskId, attempt, lease_ms: leaseMs })

const endRow = ({ attempt, counts, delayMs, error, outcome, taskId }: AttemptEnd) => ({
  task_id: taskId,
  attempt,
  outcome,
  error,
  delay_ms: delayMs,
  counts
})

// -- rows ------------------------------------------------------------------------------------------

interface ClaimRow {
  readonly out_outcome: Claim["outcome"]
  readonly out_id: string
  readonly out_name: string
  readonly out_attempt: number
  readonly out_counted: number
  readonly out_lost: number
  readonly out_payload: string
  readonly out_trace_context: string | null
  readonly out_due_ms: number
}

const claimOf = (row: ClaimRow): Claim => {
  switch (row.out_outcome) {
    case "Claimed":
      return {
        outcome: "Claimed",
        id: row.out_id,
        name: row.out_name,
        attempt: row.out_attempt,
        counted: row.out_counted,
        lost: row.out_lost,
        payload: row.out_payload,
        traceContext: row.out_trace_context
      }
    case "Suspect":
      return { outcome: "Suspect", lost: row.out_lost }
    case "NotDue":
      return { outcome: "NotDue", dueMs: row.out_due_ms }
    case "Unserved":
    case "Exhausted":
      return { outcome: row.out_outcome, id: row.out_id, name: row.out_name }
    default:
      return { outcome: row.out_outcome }
  }
}

interface TakenRow extends LeasedRow {
  readonly out_tasks: TaskColumns | null
}

/** Tasks as `dx_take_tasks` answers with them. */
type TaskColumns = readonly [
  ids: ReadonlyArray<string>,
  names: ReadonlyArray<string>,
  attempts: ReadonlyArray<number>,
  counted: ReadonlyArray<number>,
  payloads: ReadonlyArray<string>,
  traceContexts: ReadonlyArray<string | null>,
  kinds: ReadonlyArray<string>
]

const takenTasks = (
  [ids, names, attempts, counted, payloads, traceContexts, kinds]: TaskColumns,
  claimedMs: number
): ReadonlyArray<TakenTask> =>
  ids.map((id, i) => ({
    claimed: {
      outcome: "Claimed",
      id,
      name: names[i]!,
      attempt: attempts[i]!,
      counted: counted[i]!,
      // It takes no suspects.
      lost: 0,
      payload: payloads[i]!,
      traceContext: traceContexts[i]!
    },
    claimedMs,
    kind: kinds[i]!
  }))

type EndedColumns = readonly [
  ids: ReadonlyArray<string>,
  statuses: ReadonlyArray<string>,
  results: ReadonlyArray<string | null>,
  errors: ReadonlyArray<string | null>
]

const endedTasks = ([ids, statuses, results, errors]: EndedColumns): ReadonlyArray<EndedTask> =>
  ids.map((id, i) => ({ id, status: statuses[i]!, result: results[i]!, error: errors[i]! }))

interface SweptRow {
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
