/**
 * Callers that wait for a change of something in the store: for the end, a status or a value of an instance, for the
 * end of a task.
 *
 * All callers that wait for the same thing share a watch. What this process stores reaches them without a statement.
 * For what other processes store the store is asked, in one statement at a time for all watches that are due:
 *
 * - a caller asks once when it begins to wait;
 * - a hint of another process is followed by one look for all watches it names;
 * - while no hints arrive, or others do not know yet that this process waits, the pauses of a watch grow from 20 to 500
 *   milliseconds, and further with the number of watches: the looks cost the same with 10,000 as with 100,000;
 * - while others announce all changes, each watch is looked at seldom, in case a hint is lost: after 5 seconds and then
 *   after pauses that double, up to that of the looks for work.
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import { monotonicMs } from "../model/shared/monotonic.ts"
import * as dueLoop from "./dueLoop.ts"

/** What a table of watches learns of other processes. */
export interface Changes {
  /** Until the returned function is called, other processes announce to this one what its callers wait for. */
  readonly watch: (id: string, watcher: Watcher) => () => void
  /**
   * Time from which other processes announce changes here, monotonic milliseconds; infinite if they do not.
   */
  readonly announcedSinceMs: () => number
}

/** None of the functions throws or waits. */
export interface Watcher {
  /** Another process says that the instance has changed. */
  readonly changed: () => void
  /** Any instance may have changed: hints were lost, or are lost from now on. */
  readonly doubted: () => void
}

/** How the watches of all kinds look. */
export interface Looking<E> {
  /** Longest pause between two looks at a watch while other processes announce all changes. */
  readonly fallbackPollMs: number
  /** From a look that found nothing to the next one that follows a hint, milliseconds. Defaults to 50. */
  readonly hintPauseMs?: number
  /** Lets callers that ask at the same time share a look, for at most that many watches. */
  readonly shared: <A>(
    operation: string,
    look: (asked: ReadonlyArray<A>) => Effect.Effect<ReadonlyArray<void>, E>,
    maxBatch: number
  ) => Effect.Effect<(one: A) => Effect.Effect<void, E>, never, Scope.Scope>
  /** The failure of callers that wait when the scope is closed, or come later. */
  readonly closed: (operation: string) => E
}

export interface Options<State, E> extends Looking<E> {
  readonly operation: string
  /** Reads all of them with one statement, in order; undefined if `Watch.state` is still true. */
  readonly read: (watches: ReadonlyArray<Watch<State>>) => Effect.Effect<ReadonlyArray<State | undefined>, E>
  /** Reads watches that were looked at before. A failure fails their callers. Defaults to `read`. */
  readonly readAgain?: Options<State, E>["read"]
  /** Whether other processes announce changes of such an instance. Defaults to all. */
  readonly announces?: (state: State) => boolean
}

export interface Watch<State> extends Watcher {
  readonly id: string
  /** Key of a value; empty for the instance or task itself. */
  readonly key: string
  /** State as far as it is known; undefined: not at all. */
  readonly state: State | undefined
}

export interface Wait<State, A, E> {
  readonly id: string
  /** Key of a value. Defaults to empty, for the instance or task itself. */
  readonly key?: string
  /** What the caller waits for, once the state has it. */
  readonly select: (state: State) => Option.Option<A>
  readonly timeout: Duration.Duration | undefined
  /** Run before the wait, so that nothing that follows it is missed. */
  readonly start?: Effect.Effect<unknown, E> | undefined
  /**
   * When this process started the instance, if it did so lately, monotonic milliseconds. The instance has not ended
   * before, so the first look can wait.
   */
  readonly startedMs?: () => number | undefined
}

export interface Watches<State, E> {
  /** Waits until `select` has an answer; none after the timeout. */
  readonly wait: <A, E2>(wait: Wait<State, A, E2>) => Effect.Effect<Option.Option<A>, E2 | E>
  readonly of: (id: string) => ReadonlyArray<Watch<State>>
  /** What this process has stored itself. */
  readonly learn: (id: string, key: string, state: State) => void
  /** What callers wait for will probably be stored by this process. */
  readonly runsHere: (id: string) => void
}

export const make = Effect.fnUntraced(function*<State, E>(
  changes: Changes,
  options: Options<State, E>
): Effect.fn.Return<Watches<State, E>, never, Scope.Scope> {
  const { announces = () => true, hintPauseMs: busyPauseMs = 50, operation, read, readAgain = read } = options
  /** From a look that found something. */
  const shortPauseMs = Math.min(busyPauseMs, 10)
  /** While others announce what they store: at most 300 watches per second. */
  const longestFallbackMs = (watches: number) => Math.max(options.fallbackPollMs, 3 * watches)
  const clock = yield* Clock.Clock
  const closedCause = Cause.fail(options.closed(operation))
  /** Watches in the order of their last looks, the oldest first. */
  const watches = new Set<Shared<State, E>>()
  const byId = new Map<string, Map<string, Shared<State, E>>>()
  const hinted = new Set<Shared<State, E>>()
  let isClosed = false
  // Monotonic milliseconds, as all times here.
  let lastLookMs = Number.NEGATIVE_INFINITY
  /** Time of the last look at watches that were due. */
  let lastDueLookMs = Number.NEGATIVE_INFINITY
  /** From the last look to the next one that follows a hint. */
  let hintPauseMs = busyPauseMs
  /** No watch is due before. */
  let earliestMs = Number.POSITIVE_INFINITY

  // -- watches -----------------------------------------------------------------------------------

  const setDue = (watch: Shared<State, E>, dueMs: number) => {
    watch.dueMs = dueMs
    earliestMs = Math.min(earliestMs, dueMs)
    loop.wake(dueMs)
  }

  /** Looks again after the pause. */
  const postpone = (watch: Shared<State, E>, pauseMs: number) => {
    const longestMs = watch.isAnnounced ? longestFallbackMs(watches.size) : longestPauseMs(watches.size)
    watch.pauseMs = Math.min(pauseMs, longestMs)
    setDue(watch, monotonicMs(clock) + watch.pauseMs)
  }

  /** Whether other processes have announced every change since `timeMs`. */
  const isAnnouncedSince = (watch: Shared<State, E>, timeMs: number) =>
    changes.announcedSinceMs() <= timeMs && watch.begunMs <= timeMs &&
    (watch.state === undefined || announces(watch.state))

  const begin = (id: string, key: string): Shared<State, E> => {
    const watch: Shared<State, E> = {
      id,
      key,
      begunMs: monotonicMs(clock),
      waiters: new Set(),
      state: undefined,
      learnedMs: Number.NEGATIVE_INFINITY,
      dueMs: Infinity,
      pauseMs: Infinity,
      isAnnounced: false,
      changed: () => {
        hinted.add(watch)
        loop.wake(lastLookMs + hintPauseMs)
      },
      doubted: () => {
        watch.isAnnounced = false
        watch.pauseMs = Math.min(watch.pauseMs, longestPauseMs(watches.size))
        if (watch.dueMs !== Infinity) setDue(watch, monotonicMs(clock))
      },
      end: () => {
        hinted.delete(watch)
        watches.delete(watch)
        release()
        const ofId = byId.get(id)
        ofId?.delete(key)
        if (ofId?.size === 0) byId.delete(id)
      }
    }
    const release = changes.watch(id, watch)
    watches.add(watch)
    byId.set(id, (byId.get(id) ?? new Map<string, Shared<State, E>>()).set(key, watch))
    return watch
  }

  const leave = (watch: Shared<State, E>, waiter: Waiter<State, E>) => {
    if (watch.waiters.delete(waiter) && watch.waiters.size === 0) watch.end()
  }

  const offer = (watch: Shared<State, E>, waiter: Waiter<State, E>) => {
    if (watch.state === undefined || waiter.exit !== undefined) return
    waiter.exit = selected(waiter, watch.state)
    if (waiter.exit === undefined) return
    waiter.resume?.(waiter.exit)
    leave(watch, waiter)
  }

  /** Returns whether the state ends a wait. */
  const learn = (watch: Shared<State, E>, state: State): boolean => {
    watch.state = state
    const before = watch.waiters.size
    for (const waiter of watch.waiters) offer(watch, waiter)
    return watch.waiters.size < before
  }

  /** Learns what a look has found that began at `begunMs`. Returns whether that ends a wait. */
  const found = (watch: Shared<State, E>, state: State | undefined, begunMs: number): boolean => {
    if (state === undefined || !watches.has(watch)) return false
    if (watch.learnedMs < begunMs) return learn(watch, state)
    // Read before or after what this process has stored meanwhile.
    watch.changed()
    return false
  }

  const fail = (watch: Shared<State, E>, cause: Cause.Cause<E>) => {
    watch.dueMs = Infinity
    for (const { resume } of watch.waiters) resume?.(Exit.failCause(cause))
  }

  // -- looks -------------------------------------------------------------------------------------

  const nextDueMs = () => Math.max(earliestMs, lastDueLookMs + betweenLooksMs(watches.size))

  /** Watches that hints name or that are due; if these are few, some that soon will be. */
  const next = (nowMs: number): ReadonlyArray<Shared<State, E>> => {
    const asked = new Set<Shared<State, E>>()
    for (const watch of hinted) {
      if (asked.size === maxIds) break
      asked.add(watch)
    }
    if (nextDueMs() > nowMs) return [...asked]
    const most = changes.announcedSinceMs() <= nowMs ? maxIds : companions
    const soon: Array<Shared<State, E>> = []
    earliestMs = Infinity
    for (const watch of watches) {
      const { dueMs, pauseMs } = watch
      if (dueMs <= nowMs && asked.size < maxIds) asked.add(watch)
      else earliestMs = Math.min(earliestMs, dueMs)
      if (dueMs > nowMs && soon.length < most && dueMs - pauseMs / 2 <= nowMs) soon.push(watch)
    }
    if (asked.size === 0) return []
    lastDueLookMs = nowMs
    return [...new Set([...asked, ...soon.slice(0, Math.max(0, most - asked.size))])]
  }

  const look = Effect.suspend(() => {
    const begunMs = monotonicMs(clock)
    const asked = next(begunMs)
    if (asked.length === 0) return Effect.void
    lastLookMs = begunMs
    for (const watch of asked) {
      hinted.delete(watch)
      watches.delete(watch)
      watches.add(watch)
    }
    return Effect.matchCause(readAgain(asked), {
      onSuccess: (states) => {
        hintPauseMs = busyPauseMs
        asked.forEach((watch, i) => {
          if (found(watch, states[i], begunMs)) hintPauseMs = shortPauseMs
          if (!watches.has(watch) || watch.dueMs === Infinity) return
          watch.isAnnounced = isAnnouncedSince(watch, begunMs)
          const pauseMs = watch.dueMs <= begunMs ? 2 * watch.pauseMs : watch.pauseMs
          postpone(watch, watch.isAnnounced ? Math.max(firstFallbackMs, pauseMs) : pauseMs)
        })
      },
      onFailure: (cause) => {
        for (const watch of asked) fail(watch, cause)
      }
    })
  })

  const loop = yield* dueLoop.make({
    nextMs: () => Math.min(hinted.size === 0 ? Infinity : lastLookMs + hintPauseMs, nextDueMs()),
    // One look for all watches that are named together: the loop is woken before the next one is.
    act: Effect.andThen(Effect.yieldNow, look)
  })

  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      isClosed = true
      for (const watch of watches) fail(watch, closedCause)
    })
  )

  // -- callers -----------------------------------------------------------------------------------

  const firstLook = yield* options.shared(
    operation,
    (asked: ReadonlyArray<Shared<State, E>>) =>
      Effect.suspend(() => {
        const begunMs = monotonicMs(clock)
        const unique = [...new Set(asked)]
        return Effect.map(read(unique), (states) => {
          unique.forEach((watch, i) => found(watch, states[i], begunMs))
          return asked.map(() => undefined)
        })
      }),
    maxIds
  )

  /** Until its next look is due, the caller misses only what others have stored since `sinceMs` and not announced. */
  const watched = (
    watch: Shared<State, E>,
    waiter: Waiter<State, E>,
    { dueMs, pauseMs, sinceMs }: { readonly sinceMs: number; readonly dueMs: number; readonly pauseMs: number }
  ) =>
    Effect.callback<Option.Option<any>, E>((resume) => {
      if (waiter.exit !== undefined) return resume(waiter.exit)
      if (isClosed) return resume(Exit.failCause(closedCause))
      waiter.resume = resume
      if (watch.dueMs !== Infinity && watch.isAnnounced) return
      watch.isAnnounced = isAnnouncedSince(watch, sinceMs)
      if (watch.isAnnounced) return postpone(watch, firstFallbackMs)
      watch.pauseMs = Math.min(watch.pauseMs, pauseMs)
      setDue(watch, Math.min(watch.dueMs, dueMs))
    })

  const untilAnswered = Effect.fnUntraced(function*<A, E2>(
    watch: Shared<State, E>,
    waiter: Waiter<State, E>,
    { start, startedMs, timeout }: Wait<State, A, E2>
  ) {
    const begunMs = monotonicMs(clock)
    if (start !== undefined) yield* start
    const lookMs = monotonicMs(clock)
    const look = Effect.map(firstLook(watch), () => offer(watch, waiter))
    const runsSinceMs = startedMs?.()
    if (runsSinceMs === undefined && waiter.exit === undefined) yield* look
    const answer = watched(
      watch,
      waiter,
      runsSinceMs === undefined
        ? { sinceMs: lookMs, dueMs: monotonicMs(clock) + firstPauseMs, pauseMs: firstPauseMs }
        : {
          // The answer of the start may have taken a while.
          sinceMs: start === undefined ? runsSinceMs : begunMs,
          dueMs: runsSinceMs + pauseAfterStartMs,
          pauseMs: pauseAfterStartMs
        }
    )
    if (timeout === undefined) return yield* answer
    return yield* Effect.timeoutOrElse(answer, {
      duration: timeout,
      // What was stored before the wait began is found, however short the wait.
      orElse: () =>
        runsSinceMs === undefined
          ? Effect.succeedNone
          : Effect.flatMap(look, () => waiter.exit ?? Effect.succeedNone)
    })
  })

  return {
    wait: (wait) =>
      Effect.suspend(() => {
        const { id, key = "", select } = wait
        const waiter: Waiter<State, E> = { select, exit: undefined, resume: undefined }
        const watch = byId.get(id)?.get(key) ?? begin(id, key)
        watch.waiters.add(waiter)
        return Effect.ensuring(untilAnswered(watch, waiter, wait), Effect.sync(() => leave(watch, waiter)))
      }),

    of: (id) => [...byId.get(id)?.values() ?? []],

    learn: (id, key, state) => {
      const watch = byId.get(id)?.get(key)
      if (watch === undefined) return
      watch.learnedMs = monotonicMs(clock)
      learn(watch, state)
    },

    runsHere: (id) => {
      for (const watch of byId.get(id)?.values() ?? []) {
        if (watch.dueMs !== Infinity) postpone(watch, Infinity)
      }
    }
  }
})

// internal

/** All callers that wait for the same thing. */
interface Shared<State, E> extends Watch<State> {
  state: State | undefined
  readonly begunMs: number
  readonly waiters: Set<Waiter<State, E>>
  /** When this process last stored a state itself, monotonic milliseconds. */
  learnedMs: number
  /** Time of the next look, monotonic milliseconds; infinite while each waiter is busy with its start or first look. */
  dueMs: number
  /** Milliseconds from the last look to the next. */
  pauseMs: number
  /** Whether others have announced whatever they stored since the last look. */
  isAnnounced: boolean
  readonly end: () => void
}

interface Waiter<State, E> {
  readonly select: (state: State) => Option.Option<any>
  /** Set when the answer comes to be known, also before `resume` is. */
  exit: Exit.Exit<Option.Option<any>> | undefined
  resume: ((exit: Exit.Exit<Option.Option<any>, E>) => void) | undefined
}

/** Undefined: not yet. A caller's function that throws is a defect of its wait alone. */
const selected = <State, E>({ select }: Waiter<State, E>, state: State) => {
  try {
    const answer = select(state)
    return Option.isSome(answer) ? Exit.succeed(answer) : undefined
  } catch (defect) {
    return Exit.die(defect)
  }
}

/** Pause after the first look, while others do not announce what they store; each later one is twice as long. */
const firstPauseMs = 20

/** Pause before the first look at an instance that this process has just started, and will probably end itself. */
export const pauseAfterStartMs = 100

/** Longest pause: 4,000 watches per second cost a few percent of a core, in this process and PostgreSQL together. */
const longestPauseMs = (watches: number) => Math.max(500, watches / 4)

/** Pause after the first look while others announce what they store; each later one is twice as long. */
const firstFallbackMs = 5_000

/** Pause between two statements: at most 20 per second, and 4 where there is much to look at. */
const betweenLooksMs = (watches: number) => Math.min(Math.max(50, watches / 8), 250)

/** Most watches in one statement. */
const maxIds = 1_000

/** Watches that a statement takes along before they are due, so that a few callers share their statements. */
const companions = 64
