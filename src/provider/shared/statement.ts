/**
 * One statement of a driver: how calls share it, how often it is sent, what its answers mean.
 *
 * **How often**
 *
 * `retried` repeats a retryable failure after 50, 100 and 150 milliseconds, so its statement is sent up to four times;
 * other statements are sent once. `operations.ts` says which of a driver's are repeated. There are two exceptions. A
 * shared statement that fails because of one of its calls (`isOfOneCall`) is not repeated: each call is sent alone, and
 * the count begins again. A call whose rows another transaction has locked is sent until `patience` is over, with
 * pauses from 50 to 500 milliseconds (see `coalescer.ts`): that is `statementTimeout`, and half a second at most for
 * the ack of a turn.
 *
 * Some callers repeat more, each as its own comment says: deletions, reads of a replica, marks of the outbox, the
 * settling of messages, attempts and activities, and renewals.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import type { Turn } from "../Provider.ts"
import type { Settled } from "../ProviderDriver.ts"
import { Closed, DuplicateEvent, LockLost, ProviderError } from "../ProviderError.ts"
import * as coalescer from "./coalescer.ts"

// -- sending ---------------------------------------------------------------------------------------

const retryPolicy = Schedule.recurs(3).pipe(
  Schedule.addDelay(({ attempt }) => Effect.succeed(Duration.millis(50 * attempt)))
)

export const retried = <A>(
  call: Effect.Effect<A, ProviderError>,
  mayRepeat: (error: ProviderError) => boolean = () => true
) => Effect.retry(call, { schedule: retryPolicy, while: (error) => error.isRetryable && mayRepeat(error) })

/**
 * Whether a statement of several calls is repeated as it is. A failure that one call may have caused is repeated for
 * that call alone, and outside the lanes if its rows are locked.
 */
export const mayRepeatSet = ({ length }: ReadonlyArray<unknown>) => (error: ProviderError): boolean =>
  !isLockedElsewhere(error) && (length === 1 || !isOfOneCall(error))

/** How calls share statements. */
export interface Sharing {
  /** Statements of one kind under way at once. */
  readonly lanes: number
  /** Most calls in one statement. */
  readonly maxBatch: number
  /** How long a call keeps trying while another transaction locks what it writes. */
  readonly patience: Duration.Duration
}

/** Sends one item, and answers for it alone: items of one kind in flight at the same time share a statement. */
export const shared = <Item, A>(
  operation: string,
  send: (items: ReadonlyArray<Item>) => Effect.Effect<ReadonlyArray<A>, ProviderError>,
  options: Sharing & {
    /** Whether retryable failures are repeated. Defaults to false. */
    readonly repeats?: boolean
    /** Bytes, roughly. Defaults to none. */
    readonly sizeOf?: (item: Item) => number
  }
): Effect.Effect<(item: Item) => Effect.Effect<A, ProviderError>, never, Scope.Scope> => {
  const { lanes, maxBatch, patience, repeats, sizeOf } = options
  return coalescer.make<Item, A, ProviderError>({
    lanes,
    maxBatch,
    maxBytes: maxSetBytes,
    sizeOf: sizeOf ?? (() => 0),
    patience,
    send: repeats === true ? (items) => retried(send(items), mayRepeatSet(items)) : send,
    splitOn: isOfOneCall,
    isHeld: isLockedElsewhere,
    closed: closed(operation)
  })
}

/** Answers every item of a set alike. */
export const answeredAlike = <A>(items: ReadonlyArray<unknown>, call: Effect.Effect<A, ProviderError>) =>
  Effect.map(call, (answer) => items.map(() => answer))

/**
 * Bytes of texts in one statement that stores, after which it takes no further item. Then the bytes cost more than the
 * statement, and the process encodes the next one while the database stores this one.
 */
const maxSetBytes = 1024 * 1024

/** One call may be why a set of several failed: it is refused, or it waits for what another one holds. */
export const isOfOneCall = ({ isRetryable, reason }: ProviderError) =>
  !isRetryable || reason._tag === "Contention" ||
  (reason._tag === "Unavailable" && reason.sqlState === statementTimeout)

const statementTimeout = "57014"

/** Another transaction locks what the call writes. */
export const isLockedElsewhere = ({ reason }: ProviderError) =>
  reason._tag === "Contention" && reason.sqlState === lockTimeout

const lockTimeout = "55P03"

/** The server may have run the statement: its answer did not come, or could not be read. */
export const isAnswerLost = ({ reason }: ProviderError) =>
  reason._tag === "ConnectionLost" ? reason.isUnsent !== true : reason._tag === "Unexpected" && reason.sqlState === null

// -- answers ---------------------------------------------------------------------------------------

export const failUnlessDone = (operation: string, lockToken: string, settled: Settled, turn?: Turn) => {
  if (settled === "Done") return Effect.void
  const reason = settled === "LockLost"
    ? new LockLost({ lockToken })
    : new DuplicateEvent({
      instanceId: turn?.historyDelta[0]?.instanceId ?? "",
      executionId: turn?.executionId ?? 0
    })
  return Effect.fail(new ProviderError({ operation, reason }))
}

/** The failure of calls that come after the provider's scope was closed, or are under way then. */
export const closed = (operation: string) => new ProviderError({ operation, reason: new Closed({}) })
