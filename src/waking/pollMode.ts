/**
 * Whether a queue is looked at because something woke its process, or because time has passed. Pure: time is an
 * argument.
 *
 * **LongPoll**: hints of other processes are trusted. Without one, a look every `fallbackPollMs` finds what was missed.
 * **Aggressive**: hints may be missing, so there is a look every `aggressivePollMs`.
 *
 * What wakes a process for one look does not make it poll: a hint that arrived, a time that has come, work that it has
 * stored itself. It polls only with a reason to distrust its hints or its store (`Reason`), for `aggressiveDurationMs`
 * at least, and until `aggressiveExitThreshold` looks in a row have found nothing. Work or a failure begins that count
 * again.
 */

/** `LongPolling`, with times in milliseconds. */
export interface Settings {
  readonly isEnabled: boolean
  readonly fallbackPollMs: number
  readonly maxWaitMs: number
  readonly timerGraceMs: number
  readonly aggressiveDurationMs: number
  readonly aggressiveExitThreshold: number
  readonly notifyDeliveryTimeoutMs: number
  readonly aggressivePollMs: number
}

/** Why a queue is polled. */
export type Reason =
  /** No hint arrives: there is no notifier, or it is not connected. As long as that lasts, the queue is polled. */
  | "ListenerDisconnected"
  /** Hints could not be sent to others, or found no room in this process. */
  | "ChannelSendFailed"
  /** A look that nothing had asked for has found work: a hint was lost. */
  | "FallbackTimeout"
  /** A look has failed, or another statement: what it has stored may be known to no process. */
  | "FetchError"

/** Why there is a look. */
export type LookReason =
  /** This process has stored work, or may claim now what it could not claim before. */
  | "Stored"
  /** The last look may have left some. */
  | "More"
  /** Another process has announced work. */
  | "NotifyReceived"
  /** Work is due. */
  | "TimerFired"
  /** Locks that were not renewed have run out. */
  | "LocksExpired"
  /** Hints arrive from now on. */
  | "Connected"
  /** The first look with a filter, or the first one again after looks with others. */
  | "Filter"
  /** A caller does not wait. */
  | "Asked"
  /** `aggressivePollMs` have passed in Aggressive mode. */
  | "Poll"
  /** `fallbackPollMs` have passed in LongPoll mode. */
  | "FallbackTimeout"

export type Outcome = "Found" | "Empty" | "Failed"

export type Event =
  | { readonly _tag: "Connected" }
  | { readonly _tag: "Disconnected" }
  /** Hints could not be sent to others, or found no room in this process. */
  | { readonly _tag: "Unreliable" }
  /** A statement that stores work, or asks when some is due next, has not been answered. */
  | { readonly _tag: "Failed" }
  | { readonly _tag: "Looked"; readonly reason: LookReason; readonly outcome: Outcome }

export type State = LongPoll | Aggressive

interface LongPoll {
  readonly mode: "LongPoll"
}

interface Aggressive {
  readonly mode: "Aggressive"
  readonly reason: Reason
  readonly isConnected: boolean
  /** Whether hints never arrived so far, so that none can have been lost. */
  readonly isFirst: boolean
  /** When the mode was entered. */
  readonly sinceMs: number
  /** Looks in a row that have found nothing. */
  readonly emptyLooks: number
}

/** State of a queue whose process has not connected yet. */
export const initial = (nowMs: number): State => ({
  mode: "Aggressive",
  reason: "ListenerDisconnected",
  isConnected: false,
  isFirst: true,
  sinceMs: nowMs,
  emptyLooks: 0
})

export const next = (state: State, event: Event, nowMs: number, settings: Settings): State => {
  switch (event._tag) {
    case "Connected":
      if (state.mode === "LongPoll" || state.isFirst) return longPoll
      return { ...state, isConnected: true, emptyLooks: 0 }
    case "Disconnected":
      return { ...enter(state, "ListenerDisconnected", nowMs), isConnected: false }
    case "Unreliable":
      return enter(state, "ChannelSendFailed", nowMs)
    case "Failed":
      return enter(state, "FetchError", nowMs)
    case "Looked":
      return looked(state, event, nowMs, settings)
  }
}

// internal

const longPoll: State = { mode: "LongPoll" }

/** A further reason begins the count of looks again, but not the time. */
const enter = (state: State, reason: Reason, nowMs: number): Aggressive =>
  state.mode === "Aggressive"
    ? { ...state, reason: state.isConnected ? reason : state.reason, emptyLooks: 0 }
    : { mode: "Aggressive", reason, isConnected: true, isFirst: false, sinceMs: nowMs, emptyLooks: 0 }

const looked = (
  state: State,
  { outcome, reason }: Extract<Event, { readonly _tag: "Looked" }>,
  nowMs: number,
  { aggressiveDurationMs, aggressiveExitThreshold }: Settings
): State => {
  if (outcome === "Failed") return enter(state, "FetchError", nowMs)
  if (state.mode === "LongPoll") {
    return outcome === "Found" && reason === "FallbackTimeout" ? enter(state, "FallbackTimeout", nowMs) : state
  }
  const emptyLooks = outcome === "Empty" ? state.emptyLooks + 1 : 0
  const isOver = state.isConnected && emptyLooks >= aggressiveExitThreshold &&
    nowMs - state.sinceMs >= aggressiveDurationMs
  return isOver ? longPoll : { ...state, emptyLooks }
}
