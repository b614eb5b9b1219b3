/**
 * Where every wake-up inside the process passes: a queue has work, an instance has ended, activities were cancelled.
 *
 * The operations report here what they stored, and `ProviderDriver.wakeups` brings in those of the store. A wake-up is a
 * hint: without it, polling and renewals find the same later.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as WorkItem from "../../model/WorkItem.ts"
import type { Provider, Turn } from "../Provider.ts"
import type { ProviderDriver } from "../ProviderDriver.ts"
import type { Ends } from "./ends.ts"
import type { FetchPump } from "./fetchPump.ts"
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

/** Listens to the store until the scope is closed. */
export const make = Effect.fnUntraced(function*(
  notifications: ProviderDriver["Service"]["wakeups"],
  ends: Pick<Ends, "started" | "turnStored">
): Effect.fn.Return<Wakeups, never, Scope.Scope> {
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

  yield* notifications.pipe(
    Stream.runForEach((notification) =>
      Effect.sync(() => {
        if (notification.queue === "orchestrator" && notification.instanceId !== null) {
          return messageSent(notification.instanceId, notification.visibleAtMs)
        }
        const queue = notification.queue === "worker" ? workers : orchestrators
        if (isLater(notification.visibleAtMs)) queue.wakeAt(notification.visibleAtMs)
        else queue.wake()
      })
    ),
    Effect.ignore,
    Effect.forkScoped
  )

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
