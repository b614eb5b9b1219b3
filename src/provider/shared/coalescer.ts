/**
 * Lets calls that are in flight at the same time travel in one statement.
 *
 * There is no timer: a flush starts in the same tick in which a lane is free, and takes whatever is waiting then, so a
 * single call leaves at once and twenty activities that end together leave together. While all lanes are busy, calls
 * gather.
 *
 * A set that fails because of one of its items is sent again item by item, beside the lanes: the one that is refused,
 * or held by a transaction of others, neither fails nor delays the others, nor later sets.
 *
 * An item that is held is tried again and again, in short tries with growing pauses, until its time is over, also when
 * it then waits for its next try. At most four items are tried alone at once: first those that were not tried alone
 * yet, in the order of their calls, then the held ones in turn.
 */
import type * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FiberSet from "effect/FiberSet"
import type * as Scope from "effect/Scope"
import type * as Tracer from "effect/Tracer"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import * as tracing from "../../model/shared/tracing.ts"

export interface Options<Item, A, E> {
  /** Sets that may be under way at once. */
  readonly lanes: number
  /** Most items in one set. */
  readonly maxBatch: number
  /** A set takes no further item once it has this many bytes. */
  readonly maxBytes: number
  /** Bytes of one item, roughly. */
  readonly sizeOf: (item: Item) => number
  /** Sends one set. Answers are in the order of the items; a failure means that no item was stored. */
  readonly send: (items: ReadonlyArray<Item>) => Effect.Effect<ReadonlyArray<A>, E>
  /** True when a single item may have made the set fail. */
  readonly splitOn: (error: E) => boolean
  /** True when an item of the set is held, so that a later try may go well. */
  readonly isHeld: (error: E) => boolean
  /** How long after its call an item that is held fails; not before its first try alone. */
  readonly patience: Duration.Duration
  /** The failure of calls that are under way when the scope is closed, or come later. */
  readonly closed: E
}

interface Waiting<Item, A, E> {
  readonly item: Item
  readonly resume: (exit: Exit.Exit<A, E>) => void
  /** Monotonic milliseconds. */
  readonly untilMs: number
  /** Span of the caller, a parent of the statement's span. */
  readonly span: Tracer.AnySpan | undefined
  isInterrupted: boolean
}

/** An item that is tried alone. */
interface Alone<Item, A, E> {
  readonly entry: Waiting<Item, A, E>
  /** Failure of its last try, in its set or alone. */
  failure: Cause.Cause<E>
  /** Before its next try, should it be held. */
  pauseMs: number
}

/**
 * A function that sends one item and answers for that item alone.
 *
 * A call that is interrupted before its flush is not sent. If it is interrupted later, it is sent anyway and its answer
 * is dropped; it is not retried while another transaction blocks it.
 */
export const make = Effect.fnUntraced(function*<Item, A, E>(
  options: Options<Item, A, E>
): Effect.fn.Return<(item: Item) => Effect.Effect<A, E>, never, Scope.Scope> {
  const run = yield* FiberSet.makeRuntime<never, void, never>()
  const clock = yield* Clock.Clock
  const patienceMs = Duration.toMillis(options.patience)
  const waiting: Array<Waiting<Item, A, E>> = []
  const sent = new Set<Waiting<Item, A, E>>()
  // Items to be tried alone: for the first time, and again after they were held.
  const untried: Array<Alone<Item, A, E>> = []
  const held: Array<Alone<Item, A, E>> = []
  let busyLanes = 0
  let busyPlaces = 0
  let isClosed = false

  const answer = (entry: Waiting<Item, A, E>, exit: Exit.Exit<A, E>) => {
    sent.delete(entry)
    entry.resume(exit)
  }

  const failsWith = (cause: Cause.Cause<E>, is: (error: E) => boolean) => {
    const reason = cause.reasons[0]
    return reason?._tag === "Fail" && is(reason.error)
  }

  const isOver = ({ isInterrupted, untilMs }: Waiting<Item, A, E>) => isInterrupted || monotonicMs(clock) >= untilMs

  const send = (entries: ReadonlyArray<Waiting<Item, A, E>>) =>
    tracing.onBehalfOf(entries.map(({ span }) => span), options.send(entries.map(({ item }) => item)))

  /** Settles the items of a set, unless they are to be tried alone: then it returns why the set failed. */
  const sendAll = (entries: ReadonlyArray<Waiting<Item, A, E>>): Effect.Effect<Cause.Cause<E> | undefined> =>
    Effect.matchCause(Effect.suspend(() => send(entries)), {
      onSuccess: (answers) => {
        entries.forEach((entry, i) => answer(entry, Exit.succeed(answers[i]!)))
        return undefined
      },
      onFailure: (cause) => {
        const isTriedAgain = entries.length > 1
          ? failsWith(cause, options.splitOn)
          : failsWith(cause, options.isHeld) && !isOver(entries[0]!)
        if (isTriedAgain) return cause
        entries.forEach((entry) => answer(entry, Exit.failCause(cause)))
        return undefined
      }
    })

  /**
   * Settles held items whose time is over before their next try. Every other item gets its first try alone, even after
   * its time.
   */
  const expire = () => {
    for (const one of held.filter(({ entry }) => isOver(entry))) {
      held.splice(held.indexOf(one), 1)
      answer(one.entry, Exit.failCause(one.failure))
    }
  }

  const place = Effect.gen(function*() {
    while (true) {
      expire()
      const next = untried.shift() ?? held.shift()
      if (next === undefined) return
      const failure = yield* sendAll([next.entry])
      if (failure !== undefined) run(pause(next, failure))
    }
  }).pipe(Effect.ensuring(Effect.sync(() => busyPlaces--)))

  const tryAlone = (one: Alone<Item, A, E>, queue: typeof untried) => {
    queue.push(one)
    if (busyPlaces >= aloneAtOnce) return
    busyPlaces++
    run(place)
  }

  /** Without a connection of the store between two tries. */
  const pause = (one: Alone<Item, A, E>, failure: Cause.Cause<E>) =>
    Effect.suspend(() => {
      const ms = Math.min(one.pauseMs, one.entry.untilMs - monotonicMs(clock))
      one.failure = failure
      one.pauseMs = Math.min(2 * one.pauseMs, longestPauseMs)
      return Effect.delay(Effect.sync(() => tryAlone(one, held)), ms)
    })

  /** The first of those that wait, as many as fit. */
  const nextSet = () => {
    let bytes = 0
    let count = 0
    while (count < Math.min(waiting.length, options.maxBatch) && (count === 0 || bytes < options.maxBytes)) {
      bytes += options.sizeOf(waiting[count]!.item)
      count++
    }
    const entries = waiting.splice(0, count)
    for (const entry of entries) sent.add(entry)
    return entries
  }

  const lane = Effect.gen(function*() {
    // Calls made by the same tick are still to come.
    yield* Effect.yieldNow
    while (waiting.length > 0) {
      const entries = nextSet()
      const failure = yield* sendAll(entries)
      if (failure === undefined) continue
      const alone = entries.map((entry) => ({ entry, failure, pauseMs: firstPauseMs }))
      if (alone.length === 1) run(pause(alone[0]!, failure))
      else for (const one of alone) tryAlone(one, untried)
    }
  }).pipe(Effect.ensuring(Effect.sync(() => busyLanes--)))

  // Before the lanes are interrupted, as the finalizer that does so was added first.
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      isClosed = true
      for (const entry of [...waiting.splice(0), ...sent]) answer(entry, Exit.fail(options.closed))
    })
  )

  const call = (item: Item, span: Tracer.AnySpan | undefined) =>
    Effect.callback<A, E>((resume) => {
      if (isClosed) return resume(Exit.fail(options.closed))
      const untilMs = monotonicMs(clock) + patienceMs
      const entry: Waiting<Item, A, E> = { item, resume, untilMs, span, isInterrupted: false }
      waiting.push(entry)
      // One lane is started per call at most; a lane that finds nothing left simply ends.
      if (busyLanes < options.lanes) {
        busyLanes++
        run(lane)
      }
      return Effect.sync(() => {
        entry.isInterrupted = true
        const index = waiting.indexOf(entry)
        if (index >= 0) waiting.splice(index, 1)
      })
    })

  return (item) => Effect.flatMap(tracing.currentSpan, (span) => call(item, span))
})

// internal

/** Items tried alone at once. */
const aloneAtOnce = 4

const firstPauseMs = 50

/** How late an item may be after the transaction that held it. */
const longestPauseMs = 500
