/**
 * Where every wake-up inside the process passes: a queue has work, an instance has ended, activities were cancelled.
 *
 * The operations report here what they stored, and `Hints` brings in what other processes announce. A wake-up is a
 * hint: without it, polling and renewals find the same later.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as WorkItem from "../../model/WorkItem.ts"
import type { Provider, Turn } from "../Provider.ts"
import type { Ends } from "./ends.ts"
import type { FetchPump } from "./fetchPump.ts"
import type { Hints } from "./hints.ts"
import type { LockedInstances } from "./locks.ts"
import * as locks from "./locks.ts"

/** The pumps of one queue. */
export class Queue {
  private readonly pumps: Array<Pick<FetchPump<never, never>, "wake" | "wakeAt">> = []

  add(pump: Pick<FetchPump<never, never>, "wake" | "wakeAt">): void {
    this.pumps.push(pump)
  }

  wake(): void {
    for (const pump of this.pumps) pump.wake()
  }

  /** Milliseconds since the Unix epoch. */
  wakeAt(timeMs: number): void {
    for (const pump of this.pumps) pump.wakeAt(timeMs)
  }
}

export interface Wakeups extends Pick<Provider["Service"], "onCancelled">, Pick<Ends, "started"> {
  readonly orchestrators: Queue
  readonly workers: Queue
  /** Instances whose turns are under way: the wake-up for one of them is kept until its turn is settled. */
  readonly locked: LockedInstances
  /** The instance has a message, visible from that time on, milliseconds since the Unix epoch; null: now. */
  readonly messageSent: (instanceId: string, visibleAtMs: number | null) => void
  /** With the number of its activities that this process holds already. */
  readonly turnStored: (turn: Turn, handedOver: number) => void
}

export const make = Effect.fnUntraced(function*(
  hints: Pick<Hints, "subscribe">,
  ends: Pick<Ends, "started" | "turnStored">
): Effect.fn.Return<Wakeups> {
  const clock = yield* Clock.Clock
  const orchestrators = new Queue()
  const workers = new Queue()
  const locked = locks.makeInstances()
  const cancelListeners = new Set<(activities: Turn["cancelledActivities"]) => void>()
  const isLater = (timeMs: number | null): timeMs is number =>
    timeMs !== null && timeMs > clock.currentTimeMillisUnsafe()

  const messageSent = (instanceId: string, visibleAtMs: number | null) => {
    if (isLater(visibleAtMs)) orchestrators.wakeAt(visibleAtMs)
    else if (!locked.keepWakeup(instanceId)) orchestrators.wake()
  }

  hints.subscribe({
    received: ({ hint }) => {
      if (hint._tag !== "Work") return
      const queue = hint.queue === "worker" ? workers : orchestrators
      if (isLater(hint.visibleAtMs)) queue.wakeAt(hint.visibleAtMs)
      else queue.wake()
    },
    connected: () => {
      orchestrators.wake()
      workers.wake()
    }
  })

  return {
    orchestrators,
    workers,
    locked,
    messageSent,
    started: ends.started,
    turnStored: (turn, handedOver) => {
      const { cancelledActivities, orchestratorItems, workerItems } = turn
      if (workerItems.length > handedOver) workers.wake()
      for (const item of orchestratorItems) {
        messageSent(WorkItem.target(item), item._tag === "TimerFired" ? item.fireAtMs : null)
      }
      ends.turnStored(turn)
      if (cancelledActivities.length > 0) { for (const listener of cancelListeners) listener(cancelledActivities) }
    },

    onCancelled: (listener) =>
      Effect.acquireRelease(
        Effect.sync(() => {
          // A new function each time, because one listener may be added twice.
          const entry = (activities: Turn["cancelledActivities"]) => listener(activities)
          cancelListeners.add(entry)
          return entry
        }),
        (entry) => Effect.sync(() => cancelListeners.delete(entry))
      ).pipe(Effect.asVoid)
  }
})
