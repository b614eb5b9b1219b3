/**
 * Activities whose handlers run in a transaction of the application, which stores the result as well.
 *
 * The last statement before the commit acknowledges the activity, fenced by its lock: the effects of the handler and
 * its result are committed together, or neither is. A transaction that was rolled back has had no effect, so the
 * handler may run again; a lost answer to the commit is found out by a look at the activity.
 */
import * as Cause from "effect/Cause"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as ErrorDetails from "../model/ErrorDetails.ts"
import { logDeath, SealsDefects } from "../model/shared/defect.ts"
import type { Transactions } from "../model/shared/transactionConnection.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { isOutage, outageIn } from "../provider/shared/outage.ts"
import type { Call } from "./activityCall.ts"
import { NotCommitted, Within } from "./handlers.ts"
import type { Settlement, Stored } from "./handlers.ts"

/** A handler that runs in a transaction. */
export interface Transactional<P, A, E, R> {
  readonly run: (payload: P, encoded: Encoded<A, E, R>) => Run
}

/** Makes the outcome of a handler a text. */
type Encoded<A, E, R> = (handled: Effect.Effect<A, E, R>) => Effect.Effect<string, ErrorDetails.ErrorDetails, unknown>

type Failed = ErrorDetails.ErrorDetails | NotCommitted

/** `context` is that of the handler. */
type Run = (context: Context.Context<Call>, settlement: Settlement) => Effect.Effect<Within, Failed>

/** A function for `toLayer`, which finds in it how the handler runs. */
export const make = <Tx, P, A, E, R>(
  transactions: Transactions<Tx>,
  handler: (payload: P, tx: Tx) => Effect.Effect<A, E, R>
): (payload: P) => Effect.Effect<A, E, R> =>
  Object.assign(
    () => Effect.die(new Error("a transactional handler must be given to `toLayer` as it is")),
    { [key]: { run: runner(transactions, handler) } }
  )

export const of = <P, A, E, R>(
  handler: (payload: P) => Effect.Effect<A, E, R>
): Transactional<P, A, E, R> | undefined => key in handler ? handler[key] as Transactional<P, A, E, R> : undefined

/** Records and logs a defect. */
export const died = (defect: unknown): Effect.Effect<never, ErrorDetails.ErrorDetails> =>
  Effect.andThen(logDeath("Worker dispatcher: activity died", defect), Effect.fail(ErrorDetails.died(defect)))

// internal

const key = "~duroxide-prisma/Activity/transactional"

const runner = <Tx, P, A, E, R>(
  transactions: Transactions<Tx>,
  handler: (payload: P, tx: Tx) => Effect.Effect<A, E, R>
): Transactional<P, A, E, R>["run"] =>
(payload, encoded) =>
(context, settlement) => {
  let stored: Stored | undefined
  /** How the last run of the handler ended. */
  let last: Exit.Exit<void, Failed | StoreFailed> | undefined
  const inTransaction = (tx: Tx) =>
    Effect.suspend(() => {
      stored = undefined
      return Effect.catchDefect(encoded(Effect.suspend(() => handler(payload, tx))), (defect) => unavailable(defect))
    }).pipe(
      Effect.flatMap((result) =>
        Effect.matchEffect(Effect.suspend(() => settlement.store(transactions.connection(tx), result)), {
          onSuccess: (its) => Effect.sync(() => void (stored = its)),
          onFailure: (error) => Effect.fail(new StoreFailed(error))
        })
      ),
      Effect.onExit((exit) => Effect.sync(() => void (last = exit)))
    )

  const ended = (exit: Exit.Exit<void, unknown>): Effect.Effect<Within, Failed> => {
    if (Exit.isSuccess(exit)) {
      return stored === undefined
        ? died(
          new Error("the transaction has committed although its handler has failed: `run` must pass on rejections")
        )
        : Effect.as(stored.committed, new Within("Stored"))
    }
    const problem = errorOf(exit.cause)
    if (last === undefined) return unavailable(problem, false)
    if (Exit.isSuccess(last)) return foundOut(stored!, problem, settlement)
    const failure = errorOf(last.cause)
    return failure instanceof StoreFailed
      ? unstored(failure.error, settlement)
      : Effect.failCause(last.cause as Cause.Cause<Failed>)
  }

  return Effect.uninterruptibleMask((restore) =>
    Effect.flatMap(Effect.exit(restore(begun(transactions, inTransaction, context))), (exit) => {
      if (Exit.isSuccess(exit) || errorOf(exit.cause) !== undefined) return restore(ended(exit))
      // Interrupted, perhaps while its commit was under way.
      return Effect.andThen(stored === undefined ? Effect.void : stored.committed, exit)
    })
  ) as Effect.Effect<Within, Failed>
}

const errorOf = <E>({ reasons }: Cause.Cause<E>): E | undefined =>
  reasons.find((reason) => reason._tag === "Fail")?.error

/** The store has not taken the result. */
class StoreFailed {
  readonly _tag = "StoreFailed"
  readonly error: ProviderError

  constructor(error: ProviderError) {
    this.error = error
  }
}

/** Rejects a transaction whose handler has failed. */
class HandlerFailed extends Error {
  override get name() {
    return "HandlerFailed"
  }
}

/**
 * Runs the transaction, and fails with what its promise was rejected with. An interruption ends the handler, and waits
 * for the end of the transaction.
 */
const begun = <Tx>(
  transactions: Transactions<Tx>,
  inTransaction: (tx: Tx) => Effect.Effect<void, unknown, any>,
  context: Context.Context<Call>
) =>
  Effect.callback<void, unknown>((resume) => {
    let fiber: Fiber.Fiber<void, unknown> | undefined
    let isInterrupted = false
    const body = (tx: Tx) =>
      new Promise<void>((resolve, reject) => {
        if (isInterrupted) return reject(new HandlerFailed())
        fiber = Effect.runForkWith(context)(inTransaction(tx))
        fiber.addObserver((exit) => Exit.isSuccess(exit) ? resolve() : reject(new HandlerFailed()))
      })
    const promise = Promise.resolve().then(() => transactions.run(body)).then(
      () => resume(Effect.void),
      (error) => resume(Effect.fail(error ?? new Error("the transaction was rejected without an error")))
    )
    return Effect.suspend(() => {
      isInterrupted = true
      fiber?.interruptUnsafe()
      return Effect.promise(() => promise)
    })
  })

/** The commit failed, or its answer was lost: whether the activity is still claimed says which. */
const foundOut = (
  stored: Stored,
  problem: unknown,
  settlement: Settlement
): Effect.Effect<Within, Failed> =>
  Effect.matchEffect(settlement.isHeld, {
    onSuccess: (isHeld) =>
      isHeld
        ? Effect.andThen(settlement.rolledBack, unavailable(problem))
        : Effect.as(stored.committed, new Within("Stored")),
    onFailure: died
  })

/** Rolled back, because the store has refused the statement. */
const unstored = (error: ProviderError, settlement: Settlement): Effect.Effect<Within, Failed> => {
  if (error.reason._tag !== "LockLost") return unavailable(error)
  return Effect.matchEffect(settlement.isHeld, {
    onSuccess: (isHeld) =>
      isHeld
        // It has expired and was revived, or the connection leads elsewhere. The delivery counts, so this ends.
        ? notCommitted(
          "the lock of the activity was not live on the connection of the transaction: does it lead to the database of " +
            "the provider?",
          true
        )
        : Effect.succeed(new Within("Lost")),
    onFailure: died
  })
}

/** Rolled back, or not begun, because of `problem`. What has not begun does not count: the handler has not run. */
const unavailable = (problem: unknown, hasBegun = true): Effect.Effect<never, Failed> => {
  const outage = outageIn(problem)
  if (outage === undefined) return died(problem)
  const counts = hasBegun && !isOutage(problem)
  return Effect.flatMap(SealsDefects, (seals) =>
    notCommitted(
      seals ? outage.errorType : outage.problem,
      counts,
      hasBegun || isOutage(problem) ? rolledBack : notBegun
    ))
}

const notCommitted = (
  problem: string,
  counts: boolean,
  what = rolledBack
) =>
  Effect.andThen(
    Effect.annotateLogs(what, { error: problem }),
    Effect.fail(new NotCommitted(problem, counts))
  )

const rolledBack = Effect.logWarning("Worker dispatcher: transaction of an activity not committed, it runs again")

const notBegun = Effect.logWarning(
  "Worker dispatcher: no transaction began for an activity, it runs again; each one that runs needs a connection of " +
    "the application's pool"
)
