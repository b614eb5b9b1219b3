/**
 * Callers that wait for the end of an instance.
 *
 * A turn that this process stores hands the outcome to those who wait: no statement reads it again. What other processes
 * store is found by looking: one statement at a time for all instances that callers wait for, whose pauses grow with the
 * time they have been waited for. With more instances the pauses grow further, so that the looks cost the same with
 * 10,000 as with 100,000.
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Latch from "effect/Latch"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import type * as Scope from "effect/Scope"
import type * as ErrorDetails from "../../model/ErrorDetails.ts"
import * as Event from "../../model/Event.ts"
import type { InstanceState } from "../../model/Instance.ts"
import { monotonicMs } from "../../model/internal/monotonic.ts"
import type { End, Provider, Turn } from "../Provider.ts"
import type { ProviderDriver } from "../ProviderDriver.ts"
import type { ProviderError } from "../ProviderError.ts"
import * as check from "./check.ts"
import { checked } from "./check.ts"
import type { Hints } from "./hints.ts"
import { closed, retried, shared } from "./statement.ts"
import type { Sharing } from "./statement.ts"

export interface Ends extends Pick<Provider["Service"], "awaitEnd"> {
  /** This process has stored the start of an instance. */
  readonly started: (instanceId: string) => void
  /** This process has stored a turn. */
  readonly turnStored: (turn: Pick<Turn, "historyDelta" | "metadata">) => void
}

/** How the instance has ended; undefined: it has not. */
export const endOf = (state: Pick<InstanceState, "status" | "output" | "failure">): End | undefined => {
  if (state.status === "Completed") return { _tag: "Completed", output: state.output ?? "null" }
  if (state.status !== "Failed") return undefined
  const event = state.failure === null ? undefined : Result.getOrUndefined(Event.decode(state.failure))
  const details: ErrorDetails.ErrorDetails = event?._tag === "OrchestrationFailed"
    ? event.details
    // An unreadable failure must not be mistaken for a typed failure of the program.
    : { _tag: "Infrastructure", operation: "readInstance", message: state.output ?? "", retryable: false }
  return { _tag: "Failed", details }
}

export const make = Effect.fnUntraced(function*(
  driver: Pick<ProviderDriver["Service"], "readEnds">,
  options: Sharing & { readonly hints: Hints }
): Effect.fn.Return<Ends, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const bell = Latch.makeUnsafe()
  /** By id. Those looked at longest ago come first. */
  const watches = new Map<string, Watch>()
  /** When this process started them, monotonic milliseconds: the last ones, none of which is known to have ended. */
  const starts = new Map<string, number>()
  let isClosed = false
  /** Monotonic milliseconds, as all times here. */
  let lastLookMs = Number.NEGATIVE_INFINITY
  let wakesAtMs = Number.POSITIVE_INFINITY

  const read = (instanceIds: ReadonlyArray<string>) =>
    Effect.map(
      driver.readEnds(instanceIds),
      (ended) => new Map(ended.map((state) => [state.instanceId, endOf(state)]))
    )

  // -- watches -----------------------------------------------------------------------------------

  const join = (instanceId: string, waiter: Waiter) => {
    const watch = watches.get(instanceId) ?? { waiters: new Set(), dueMs: Infinity, pauseMs: Infinity }
    watches.set(instanceId, watch)
    watch.waiters.add(waiter)
    return () => {
      watch.waiters.delete(waiter)
      if (watch.waiters.size === 0 && watches.get(instanceId) === watch) watches.delete(instanceId)
    }
  }

  const settle = (instanceId: string, end: End) => {
    const watch = watches.get(instanceId)
    watches.delete(instanceId)
    watch?.waiters.forEach((waiter) => {
      waiter.end = end
      waiter.resume?.(Exit.succeed(Option.some(end)))
    })
  }

  const fail = (instanceId: string, cause: Cause.Cause<ProviderError>) => {
    const watch = watches.get(instanceId)
    if (watch === undefined) return
    watch.dueMs = Infinity
    for (const { resume } of watch.waiters) resume?.(Exit.failCause(cause))
  }

  /** Looks later again. */
  const postpone = (watch: Watch, pauseMs: number) => {
    watch.pauseMs = Math.min(pauseMs, longestPauseMs(watches.size))
    watch.dueMs = monotonicMs(clock) + watch.pauseMs
  }

  // -- looks -------------------------------------------------------------------------------------

  /** The instances that are due; and if these are few, some that soon will be. */
  const nextIds = () => {
    const nowMs = monotonicMs(clock)
    const due: Array<string> = []
    const soon: Array<string> = []
    for (const [instanceId, { dueMs, pauseMs }] of watches) {
      if (dueMs <= nowMs) due.push(instanceId)
      else if (soon.length < companions && dueMs - pauseMs / 2 <= nowMs) soon.push(instanceId)
      if (due.length === maxIds) break
    }
    return due.concat(soon.slice(0, Math.max(0, companions - due.length)))
  }

  const look = Effect.suspend(() => {
    lastLookMs = monotonicMs(clock)
    const ids = nextIds()
    for (const id of ids) {
      const watch = watches.get(id)!
      watches.delete(id)
      watches.set(id, watch)
    }
    return Effect.matchCause(retried(read(ids)), {
      onSuccess: (ends) => {
        for (const id of ids) {
          const end = ends.get(id)
          const watch = watches.get(id)
          if (end !== undefined) settle(id, end)
          else if (watch !== undefined && watch.dueMs !== Infinity) {
            postpone(watch, watch.dueMs <= lastLookMs ? 2 * watch.pauseMs : watch.pauseMs)
          }
        }
      },
      onFailure: (cause) => {
        for (const id of ids) fail(id, cause)
      }
    })
  })

  const untilNextLook = () => {
    let dueMs = Infinity
    for (const watch of watches.values()) dueMs = Math.min(dueMs, watch.dueMs)
    wakesAtMs = Math.max(dueMs, lastLookMs + betweenLooksMs(watches.size))
    return wakesAtMs - monotonicMs(clock)
  }

  yield* Effect.gen(function*() {
    while (true) {
      bell.closeUnsafe()
      const pauseMs = untilNextLook()
      if (pauseMs === Infinity) yield* bell.await
      else if (pauseMs > 0) yield* Effect.raceFirst(bell.await, Effect.sleep(pauseMs))
      else yield* look
    }
  }).pipe(Effect.forkScoped)

  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      isClosed = true
      for (const id of watches.keys()) fail(id, closedCause)
    })
  )

  // -- callers -----------------------------------------------------------------------------------

  const sendFirstLook = yield* shared(
    "awaitEnd",
    (instanceIds: ReadonlyArray<string>) =>
      Effect.map(
        read([...new Set(instanceIds)]),
        (ends) => instanceIds.map((id) => Option.fromUndefinedOr(ends.get(id)))
      ),
    { ...options, repeats: true }
  )

  /** From `startedMs` on, or now, the instance has not ended as far as this process knows. */
  const watched = (instanceId: string, waiter: Waiter, startedMs: number | undefined) =>
    Effect.callback<Option.Option<End>, ProviderError>((resume) => {
      if (waiter.end !== undefined) return resume(Effect.succeedSome(waiter.end))
      if (isClosed) return resume(Exit.failCause(closedCause))
      waiter.resume = resume
      const watch = watches.get(instanceId)!
      const pauseMs = startedMs === undefined ? firstPauseMs : pauseAfterStartMs
      watch.pauseMs = Math.min(watch.pauseMs, pauseMs)
      watch.dueMs = Math.min(watch.dueMs, (startedMs ?? monotonicMs(clock)) + pauseMs)
      if (watch.dueMs < wakesAtMs) bell.openUnsafe()
    })

  const startedLately = (instanceId: string) => {
    const startedMs = starts.get(instanceId)
    return startedMs === undefined || startedMs + pauseAfterStartMs <= monotonicMs(clock) ? undefined : startedMs
  }

  const untilEnded = Effect.fnUntraced(function*<E>(
    waiter: Waiter,
    { instanceId, start, timeout }: Parameters<typeof awaitEnd<E>>[0]
  ) {
    if (start !== undefined) yield* start
    const firstLook = checked("awaitEnd", [check.text("instanceId", instanceId)], () => sendFirstLook(instanceId))
    const startedMs = startedLately(instanceId)
    if (startedMs === undefined && waiter.end === undefined) {
      const end = yield* firstLook
      if (Option.isSome(end)) return end
    }
    const end = watched(instanceId, waiter, startedMs)
    if (timeout === undefined) return yield* end
    return yield* Effect.timeoutOrElse(end, {
      duration: timeout,
      // An end that was stored before the wait began is found, however short the wait.
      orElse: () => startedMs === undefined ? Effect.succeedNone : firstLook
    })
  })

  const awaitEnd: Ends["awaitEnd"] = (options) =>
    Effect.suspend(() => {
      const waiter: Waiter = { end: undefined, resume: undefined }
      return Effect.ensuring(untilEnded(waiter, options), Effect.sync(join(options.instanceId, waiter)))
    })

  return {
    awaitEnd,

    started: (instanceId) => {
      const nowMs = monotonicMs(clock)
      starts.set(instanceId, nowMs)
      for (const [oldest, startedMs] of starts) {
        if (starts.size <= maxStarts && startedMs + pauseAfterStartMs > nowMs) break
        starts.delete(oldest)
      }
    },

    turnStored: ({ historyDelta, metadata }) => {
      const instanceId = historyDelta[0]?.instanceId
      if (instanceId === undefined) return
      const end = endOfTurn(historyDelta, metadata)
      if (end !== undefined) {
        starts.delete(instanceId)
        return settle(instanceId, end)
      }
      // It runs here, so it will probably end here.
      const watch = watches.get(instanceId)
      if (watch !== undefined && watch.dueMs !== Infinity) postpone(watch, Infinity)
    }
  }
})

// internal

/** All callers that wait for one instance. */
interface Watch {
  readonly waiters: Set<Waiter>
  /** Of the next look, monotonic milliseconds; infinite while each of them is busy with its start or its first look. */
  dueMs: number
  /** From the last look to the next. */
  pauseMs: number
}

interface Waiter {
  /** Set when the end comes to be known, also before `resume` is. */
  end: End | undefined
  resume: ((exit: Exit.Exit<Option.Option<End>, ProviderError>) => void) | undefined
}

const endOfTurn = (history: Turn["historyDelta"], { output, status }: Turn["metadata"]): End | undefined => {
  if (status === "Completed") return { _tag: "Completed", output: output ?? "null" }
  const failed = status === "Failed" && history.findLast((event) => event._tag === "OrchestrationFailed")
  return failed ? { _tag: "Failed", details: failed.details } : undefined
}

const closedCause = Cause.fail(closed("awaitEnd"))

/** After the first look; each later pause is twice as long. */
const firstPauseMs = 20

/** Before the first look at an instance that this process has just started, and will probably end itself. */
const pauseAfterStartMs = 100

/** At about 4,000 ids per second, a few percent of one core, in this process and in PostgreSQL together. */
const longestPauseMs = (watches: number) => Math.max(500, watches / 4)

/** So there are at most 20 statements per second, and 4 where there is much to look at. */
const betweenLooksMs = (watches: number) => Math.min(Math.max(50, watches / 8), 250)

/** Most ids in one statement. */
const maxIds = 1_000

/** Ids that a statement takes along before they are due, so that a few callers share their statements. */
const companions = 64

/** Most starts to remember; within `pauseAfterStartMs` there are seldom as many. */
const maxStarts = 1_000
