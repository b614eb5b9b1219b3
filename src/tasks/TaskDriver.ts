/**
 * The seam that a storage of tasks implements: sets of encoded tasks in, one answer per task out.
 *
 * A driver stores, says which tasks a claim may take, and when a task needs a look. Payloads, results and failures are
 * JSON texts that it does not read. Checks, retries, batching and waiting are done once, above it, by `Tasks` and
 * `TaskWorker`.
 *
 * **Promises every driver keeps**
 *
 * - One call is one atomic statement. A call that fails has changed nothing, unless the connection was lost.
 * - Answers stand in the order of the items. An attempt that is stale never fails its neighbours.
 * - Only the newest attempt at a task that has not ended may complete, fail or renew it.
 * - A task that can begin, now or later, and one that was retried, has a wake-up in the outbox of the same transaction,
 *   or in its queue.
 * - The end of a task and the messages to the executions that wait for it are one transaction.
 *
 * @since 0.2.0
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type { TransactionConnection } from "../model/shared/transactionConnection.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import type { Fetched, Lease } from "../queue/shared/stored.ts"

export type { Fetched, Lease, Leased } from "../queue/shared/stored.ts"

type Call<A> = Effect.Effect<A, ProviderError>

/**
 * The storage contract of tasks.
 *
 * @category services
 * @since 0.2.0
 */
export class TaskDriver extends Context.Service<TaskDriver, {
  /** The database that it is built on: a queue built on the same one has its messages beside the tasks. */
  readonly database: object
  /**
   * For health checks: each worker of this process that uses this driver adds a function, which says why it claims
   * nothing. A set of its own for each driver.
   */
  readonly problems: Set<() => string | undefined>

  /**
   * Creates tasks. One with the key of an existing task of its name is that task. `deliveries`: how often a message is
   * delivered at most, of each queue in the same database. A wake-up for now, without a payload of its own, is stored
   * there, and has no row of the outbox. Only given where a `PgQueue` is built on `database`.
   */
  readonly create: (
    tasks: ReadonlyArray<NewTask>,
    deliveries?: Readonly<Record<string, number>>
  ) => Call<ReadonlyArray<Created>>

  /** Claims the tasks that wake-ups name, by texts that need not be ids. */
  readonly claim: (
    taskIds: ReadonlyArray<string>,
    serves: Serves,
    options: ClaimOptions
  ) => Call<ReadonlyArray<Claim>>
  /**
   * Receives messages of a queue in the same database, claims the tasks that they name and deletes the messages of
   * these, all by one statement. Messages of which more must be known stay leased. Also claims, without their messages,
   * tasks of the queue whose messages went to workers that do not serve them. Only called where a `PgQueue` is built on
   * `database`.
   */
  readonly take: (serves: Serves) => (lease: Lease, claim: TakeOptions) => Call<Fetched<TakenTask>>
  /**
   * Abandons what claims have taken whose answers were lost, but for what another transaction has locked. Answers with
   * the ids of those that had taken something and now hold nothing.
   */
  readonly returnClaims: (workerId: string, claimIds: ReadonlyArray<number>) => Call<ReadonlyArray<number>>
  /**
   * Extends the leases of attempts. `Locked`: a transaction has locked the task, as that of its handler may have; the
   * lease was not extended, but no other attempt begins until that transaction ends.
   */
  readonly renew: (leases: ReadonlyArray<Renewal>) => Call<ReadonlyArray<"Done" | "Locked" | "Lost">>
  readonly complete: (completions: ReadonlyArray<Completion>) => Call<ReadonlyArray<Completed>>
  /** Ends attempts that have not succeeded. */
  readonly fail: (ends: ReadonlyArray<AttemptEnd>) => Call<ReadonlyArray<"Retried" | "Dead" | "Stale">>
  /** The operations of an attempt inside a transaction of its handler. */
  readonly within: (connection: TransactionConnection) => Within

  /** `replies`: the execution that has created the task learns of its end. */
  readonly cancel: (
    ids: ReadonlyArray<string>,
    reason: string,
    replies: boolean
  ) => Call<ReadonlyArray<"Cancelled" | "Ended" | "Missing">>
  /** Which of the tasks have ended. The others are marked as awaited: their ends are announced. */
  readonly await: (ids: ReadonlyArray<string>) => Call<ReadonlyArray<EndedTask>>
  /** The end of a task, or null: a signal of the caller will bring it. */
  readonly join: (taskId: string, caller: Caller) => Call<End | null>
  /**
   * The execution that has created the task waits for it again. A signal brings the end, also one that came before. A
   * task that was cancelled because its call had ended runs again.
   */
  readonly recall: (taskId: string, caller: Caller) => Call<unknown>
  /** Gives dead tasks all their attempts again; answers with their ids. */
  readonly redrive: (
    ids: ReadonlyArray<string> | null,
    name: string | null,
    limit: number
  ) => Call<ReadonlyArray<string>>

  /**
   * Wakes tasks of lost workers and tasks whose wake-ups were lost, at most `limit`, of the latter at most `wakeups`.
   */
  readonly sweep: (limit: number, wakeups: number, serving?: Serving) => Call<Swept>
  /** Deletes ended tasks after their retention; answers with their number. */
  readonly clean: (keepEndedMs: number, keepDeadMs: number, limit: number) => Call<number>

  readonly readTask: (taskId: string) => Call<TaskState | null>
  /** The attempts at a task, in order. */
  readonly readAttempts: (taskId: string) => Call<ReadonlyArray<AttemptState>>
  /** Dead tasks, the last that died first. */
  readonly readDead: (name: string | null, limit: number) => Call<ReadonlyArray<DeadState>>
  readonly readBacklog: Call<TaskBacklog>
}>()("duroxide-prisma/tasks/TaskDriver") {}

/**
 * The operations of an attempt inside a transaction.
 *
 * @category models
 * @since 0.2.0
 */
export interface Within {
  /** Completes a task with the rows of the application, which must happen once: a repetition is stale. */
  readonly complete: (taskId: string, attempt: number, result: string) => Call<Completed>
  /** Locks the task until the end of the transaction; false unless this is its newest attempt. */
  readonly lockAttempt: (taskId: string, attempt: number) => Call<boolean>
}

/**
 * A task to create.
 *
 * @category models
 * @since 0.2.0
 */
export interface NewTask {
  /** Defaults to a new one. */
  readonly id?: string | undefined
  readonly name: string
  readonly key?: string | undefined
  /** Its key among the tasks of a limit. */
  readonly limitKey?: string | undefined
  readonly payload: string
  readonly maxAttempts: number
  /** The queue of its wake-ups. */
  readonly queue: string
  /** The payload of its wake-ups, which has its id as `task_id`. Defaults to the kind `task_wakeup` and that. */
  readonly wakeup?: object | undefined
  readonly delayMs?: number | undefined
  /** The execution that waits for its end. */
  readonly replyTo?: Caller | undefined
  /** Announce its end, as if `await` had asked for it already. Defaults to false. */
  readonly isAwaited?: boolean | undefined
  readonly traceContext?: string | undefined
}

/**
 * A task that was created, or found by its key.
 *
 * @category models
 * @since 0.2.0
 */
export interface Created {
  readonly id: string
  /** False if a task of the key existed. */
  readonly isNew: boolean
}

/**
 * What became of the claim of a task. `Limited`: it waits for a slot of its limit, and another wake-up follows. A
 * wake-up of a task with a limit stands for any task of its name, so the claimed one may be another.
 *
 * @category models
 * @since 0.2.0
 */
export type Claim =
  | Claimed
  | Suspect
  | { readonly outcome: "Missing" | "Busy" | "Locked" | "Ended" | "Limited" }
  | { readonly outcome: "NotDue"; readonly dueMs: number }
  | { readonly outcome: "Unserved" | "Exhausted"; readonly id: string; readonly name: string }

/**
 * A task that was claimed, with what its handler needs.
 *
 * @category models
 * @since 0.2.0
 */
export interface Claimed {
  readonly outcome: "Claimed"
  readonly id: string
  readonly name: string
  /** From 1. */
  readonly attempt: number
  /** Attempts that count, this one included. */
  readonly counted: number
  /** Attempts that were lost one after another before this one. */
  readonly lost: number
  readonly payload: string
  readonly traceContext: string | null
}

/**
 * A task whose attempts were lost, which this claim had no room for.
 *
 * @category models
 * @since 0.2.0
 */
export interface Suspect {
  readonly outcome: "Suspect"
  readonly lost: number
}

/**
 * A task that was claimed by the statement that received its message.
 *
 * @category models
 * @since 0.2.0
 */
export interface TakenTask {
  readonly claimed: Claimed
  /** When the claim was sent, monotonic milliseconds: its lease began no earlier. */
  readonly claimedMs: number
  /** The kind of its message. */
  readonly kind: string
}

/**
 * What a worker claims.
 *
 * @category models
 * @since 0.2.0
 */
export interface Serves {
  readonly names: ReadonlyArray<string>
  /** The lease of each name. */
  readonly leaseMs: ReadonlyArray<number>
  readonly workerId: string
}

/**
 * Options of a claim.
 *
 * @category models
 * @since 0.2.0
 */
export interface ClaimOptions {
  /** Repeats the claim, or gives it back, if its answer is lost. Unique among the claims of a worker. */
  readonly claimId: number
  /** How many suspects it may take, by their losses. */
  readonly suspects: ReadonlyArray<number>
}

/**
 * Options of a receive that claims.
 *
 * @category models
 * @since 0.2.0
 */
export interface TakeOptions {
  /** `claimId` of `ClaimOptions`. The claim takes no suspects. */
  readonly claimId: number
  /** Now, monotonic milliseconds. */
  readonly claimedMs: number
}

/**
 * The lease of an attempt to extend, from now on.
 *
 * @category models
 * @since 0.2.0
 */
export interface Renewal {
  readonly taskId: string
  readonly attempt: number
  readonly leaseMs: number
}

/**
 * A task that its newest attempt completes.
 *
 * @category models
 * @since 0.2.0
 */
export interface Completion {
  readonly taskId: string
  readonly attempt: number
  readonly result: string | null
  /** The handler has completed it in its own transaction. */
  readonly isCommitted: boolean
}

/**
 * What became of a completion. `Uncommitted`: the transaction of the handler was rolled back.
 *
 * @category models
 * @since 0.2.0
 */
export type Completed = "Done" | "Stale" | "Uncommitted"

/**
 * The end of an attempt that has not succeeded.
 *
 * @category models
 * @since 0.2.0
 */
export interface AttemptEnd {
  readonly taskId: string
  readonly attempt: number
  readonly outcome: "Failed" | "Died" | "Unavailable" | "TimedOut" | "GivenBack"
  /** The failure as JSON text. */
  readonly error: string | null
  /** Pause before the next attempt; null if the task is dead. */
  readonly delayMs: number | null
  /** Whether it is one of the attempts that the task may have. */
  readonly counts: boolean
}

/**
 * The execution of a call, and the signal that brings the end of its task.
 *
 * @category models
 * @since 0.2.0
 */
export interface Caller {
  readonly instanceId: string
  readonly executionId: number
  readonly signal: string
}

/**
 * How a task has ended. `Missing`: there is no such task.
 *
 * @category models
 * @since 0.2.0
 */
export interface End {
  readonly status: string
  readonly result: string | null
  readonly error: string | null
}

/**
 * A task that has ended, or that does not exist.
 *
 * @category models
 * @since 0.2.0
 */
export interface EndedTask extends End {
  readonly id: string
}

/**
 * What a worker that has started serves.
 *
 * @category models
 * @since 0.2.0
 */
export interface Serving {
  readonly names: ReadonlyArray<string>
  /** How long, milliseconds. */
  readonly sinceMs: number
}

/**
 * What a sweep has found.
 *
 * @category models
 * @since 0.2.0
 */
export interface Swept {
  /** Attempts whose lease has ended. */
  readonly lost: number
  /** Tasks that got a wake-up. */
  readonly woken: number
  /** Whether the sweep took as much as it may, so that there may be more. */
  readonly isFull: boolean
  /** Whether it passed over tasks without a worker so far, because other transactions have locked them. */
  readonly hasUnserved: boolean
  /** Milliseconds until the next task needs a look; null: none does. */
  readonly nextMs: number | null
  readonly backlog: TaskBacklog
}

/**
 * Tasks that have not ended, and dead ones, up to 1,000 of each.
 *
 * @category models
 * @since 0.2.0
 */
export interface TaskBacklog {
  readonly pending: number
  readonly running: number
  readonly dead: number
  /** Since the oldest waiting task could have begun; 0 if none waits. */
  readonly oldestAgeMs: number
}

/**
 * A task as it is stored.
 *
 * @category models
 * @since 0.2.0
 */
export interface TaskState {
  readonly status: "Pending" | "Running" | "Completed" | "Dead" | "Cancelled"
  /** Attempts begun. */
  readonly attempt: number
  readonly runAt: Date
  readonly workerId: string | null
  readonly startedAt: Date | null
  readonly heartbeatAt: Date | null
  readonly leaseUntil: Date | null
  readonly result: string | null
  readonly error: string | null
  readonly endedAt: Date | null
}

/**
 * An attempt as it is stored.
 *
 * @category models
 * @since 0.2.0
 */
export interface AttemptState {
  readonly attempt: number
  readonly workerId: string
  readonly startedAt: Date
  readonly endedAt: Date | null
  readonly outcome:
    | "Running"
    | "Completed"
    | "Failed"
    | "Died"
    | "Unavailable"
    | "TimedOut"
    | "Lost"
    | "Cancelled"
    | "GivenBack"
  readonly error: string | null
}

/**
 * A dead task as it is stored.
 *
 * @category models
 * @since 0.2.0
 */
export interface DeadState {
  readonly id: string
  readonly name: string
  readonly key: string | null
  readonly attempt: number
  readonly error: string | null
  readonly diedAt: Date
}
