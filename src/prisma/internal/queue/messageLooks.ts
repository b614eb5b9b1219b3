/**
 * When the pump of a queue looks for messages: when a hint came, when a message becomes visible, and once a minute for
 * hints that were lost; at short intervals while no connection listens.
 */
import type * as Clock from "effect/Clock"
import { monotonicMs } from "../../../model/shared/monotonic.ts"
import type { Options as PumpOptions } from "../../../waking/pump.ts"
import type { Subscriber } from "../../../waking/Topics.ts"
import type { Member } from "../../../waking/workQueue.ts"

export interface Options {
  readonly clock: Clock.Clock
  readonly isConnected: () => boolean
  /** The time of the store, milliseconds since the Unix epoch. */
  readonly storeNowMs: () => number
  /** Between looks while not connected, milliseconds. */
  readonly pollMs: number
  /** Between looks while connected, milliseconds. */
  readonly fallbackMs: number
}

export interface MessageLooks {
  readonly queue: PumpOptions<never, never>["queue"]
  /** Wakes the pump. */
  readonly subscriber: Subscriber
  /** A look has found that the next message becomes visible then, by the clock of the store. */
  readonly nextVisible: (atMs: number) => void
}

export const make = ({ clock, fallbackMs, isConnected, pollMs, storeNowMs }: Options): MessageLooks => {
  let pump: Member | undefined
  /** Monotonic milliseconds. */
  let dueMs = Number.POSITIVE_INFINITY
  const untilDue = () => dueMs - monotonicMs(clock)
  const dueIn = (ms: number) => {
    dueMs = Math.min(dueMs, monotonicMs(clock) + ms)
    pump?.ring()
  }
  return {
    queue: {
      add: (member) => void (pump = member),
      untilPoll: ({ lastLookMs }) => lastLookMs() + (isConnected() ? fallbackMs : pollMs) - monotonicMs(clock),
      untilDue,
      wakeForDue: () => {
        if (untilDue() <= 0) pump?.wake("TimerFired")
      },
      looking: () => void (dueMs = Number.POSITIVE_INFINITY),
      looked: () => {},
      state: () => ({ mode: isConnected() ? "LongPoll" : "Aggressive" })
    },
    subscriber: {
      received: (atMs) => {
        const untilMs = atMs - storeNowMs()
        if (untilMs > 0) dueIn(untilMs)
        else pump?.wake("NotifyReceived")
      },
      connected: () => pump?.wake("Connected"),
      disconnected: () => pump?.ring()
    },
    nextVisible: (atMs) => {
      const untilMs = atMs - storeNowMs()
      // A visible message that was not claimed is held by another transaction, which may fail.
      dueIn(untilMs > 0 ? untilMs : heldMs)
    }
  }
}

// internal

const heldMs = 1_000
