/**
 * The heartbeat of a worker: renews the leases of its running attempts, in sets, when half of a lease has passed.
 *
 * No database error loses a lease: only the store's own answer does.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import type * as Scope from "effect/Scope"
import { InBackground } from "../../model/shared/inBackground.ts"
import { ours } from "../../model/shared/logging.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import * as dueLoop from "../../waking/dueLoop.ts"
import type { TaskDriver } from "../TaskDriver.ts"

export interface Held {
  readonly taskId: string
  readonly attempt: number
  readonly leaseMs: number
  /** A newer attempt has begun, or the task has ended. */
  readonly onLost: () => void
  /** Monotonic milliseconds of the next renewal. */
  dueMs: number
  /** Monotonic milliseconds until which it is live, or its task was locked. */
  untilMs: number
}

export interface Leases {
  /** Keeps a lease until it is released. It began no earlier than `sinceMs`, monotonic milliseconds. */
  readonly hold: (lease: Omit<Held, "dueMs" | "untilMs">, sinceMs: number) => Held
  readonly release: (lease: Held) => void
  /** Renews the lease of the task's newest attempt here at once, to learn whether it is lost. */
  readonly check: (taskId: string) => void
  /**
   * Waits while a lease is not renewed and about to end. Otherwise the first claim after an outage would take tasks
   * whose handlers run here, or whose results wait here to be stored.
   */
  readonly inTouch: Effect.Effect<void>
}

export const make = Effect.fnUntraced(function*(
  store: Pick<TaskDriver["Service"], "renew">
): Effect.fn.Return<Leases, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const leases = new Set<Held>()
  const newest = new Map<string, Held>()
  /** Opened when a renewal was answered, or a lease is released. */
  const kept = Latch.makeUnsafe()
  const soonMs = ({ leaseMs }: Held) => monotonicMs(clock) + Math.min(leaseMs / 10, longestRetryMs)
  const renew = (due: ReadonlyArray<Held>) =>
    Effect.suspend(() => {
      const startMs = monotonicMs(clock)
      return store.renew(due.map(({ attempt, leaseMs, taskId }) => ({ taskId, attempt, leaseMs })))
        .pipe(
          Effect.map((outcomes) => {
            for (const [i, lease] of due.entries()) {
              if (!leases.has(lease)) continue
              const outcome = outcomes[i]
              // A locked task cannot be taken, but when its transaction ends: its lease may have ended by then.
              lease.dueMs = outcome === "Locked" ? soonMs(lease) : startMs + lease.leaseMs / 2
              lease.untilMs = startMs + lease.leaseMs
              if (outcome !== "Lost") continue
              leases.delete(lease)
              lease.onLost()
            }
            kept.openUnsafe()
          }),
          Effect.catch((error) => {
            for (const lease of due) lease.dueMs = soonMs(lease)
            return Effect.logWarning("Task worker: leases not renewed yet").pipe(
              ours({ leases: due.length, error: error.message })
            )
          })
        )
    })

  const loop = yield* dueLoop.make({
    nextMs: () => Math.min(...[...leases].map(({ dueMs }) => dueMs)),
    act: Effect.suspend(() => {
      // Leases that are due soon are renewed by the same statement.
      const nowMs = monotonicMs(clock)
      const due = [...leases].filter(({ dueMs, leaseMs }) => dueMs <= nowMs + leaseMs / 8)
      return renew(due.slice(0, mostPerStatement))
    })
  }).pipe(Effect.provideService(InBackground, true))

  const inTouch: Effect.Effect<void> = Effect.suspend(() => {
    const nowMs = monotonicMs(clock)
    let isEnding = false
    for (const { leaseMs, untilMs } of leases) isEnding ||= untilMs - leaseMs / 4 <= nowMs
    if (!isEnding) return Effect.void
    kept.closeUnsafe()
    return Effect.andThen(kept.await, inTouch)
  })

  return {
    inTouch,
    hold: ({ attempt, leaseMs, onLost, taskId }, sinceMs) => {
      const held: Held = { taskId, attempt, leaseMs, onLost, dueMs: sinceMs + leaseMs / 2, untilMs: sinceMs + leaseMs }
      leases.add(held)
      loop.wake(held.dueMs)
      newest.set(held.taskId, held)
      return held
    },
    release: (held) => {
      leases.delete(held)
      kept.openUnsafe()
      if (newest.get(held.taskId) === held) newest.delete(held.taskId)
    },
    check: (taskId) => {
      const held = newest.get(taskId)
      if (held === undefined || !leases.has(held)) return
      held.dueMs = 0
      loop.wake()
    }
  }
})

// internal

const mostPerStatement = 1000

/** Longest pause before another try: after an outage, holders renew their leases before others sweep. */
const longestRetryMs = 1_000
