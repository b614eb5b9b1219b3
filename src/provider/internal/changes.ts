/**
 * What processes say to each other of instances that have changed: ended, with a new status or value, or with
 * activities cancelled.
 *
 * A change is announced by the instance's fingerprint, so that no id leaves the store. Cancellations are always
 * announced, because they are rare. All other changes are announced only while another process has callers that wait:
 * it says so when the first one comes, and every five minutes from then on, and is believed for a little longer. A
 * process that has just connected, or is not connected, cannot know who waits, and announces all.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { hash } from "node:crypto"
import type * as Event from "../../model/Event.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import * as dueLoop from "../../waking/dueLoop.ts"
import type { Hints } from "../../waking/hints.ts"
import { Hint } from "../../waking/Notifier.ts"
import type * as watches from "../../waking/watches.ts"
import type { Watcher } from "../../waking/watches.ts"
import type { Provider, Turn } from "../Provider.ts"

export interface Changes extends Pick<Provider["Service"], "isNotified" | "onChanged">, watches.Changes {
  /** This process has stored a turn. */
  readonly turnStored: (turn: Turn) => void
  /** This process has stored something else for which watchers of this id may wait. */
  readonly announce: (id: string) => void
  /** This process may have stored something: all watchers are asked to look. */
  readonly lostAnswer: () => void
}

/** The first 8 hex digits of the SHA-256 of the id. */
export const fingerprint = (instanceId: string): string => hash("sha256", instanceId).slice(0, 8)

/** Whether callers may wait for what the turn stores. */
export const isNews = ({ historyDelta, metadata }: Pick<Turn, "historyDelta" | "metadata">): boolean =>
  metadata.status === "Completed" || metadata.status === "Failed" || historyDelta.some(({ _tag }) => news.has(_tag))

export const make = Effect.fnUntraced(function*(hints: Hints): Effect.fn.Return<Changes, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const fingerprintOf = remembered(fingerprint)
  const watchers = new Map<string, Set<Watcher>>()
  const listeners = new Set<{ readonly notify: Parameters<Changes["onChanged"]>[0] }>()
  // Monotonic milliseconds, as all times here.
  let lastWaitingMs = Number.NEGATIVE_INFINITY
  let repeatAtMs = Number.NEGATIVE_INFINITY
  let announcedSinceMs = Number.POSITIVE_INFINITY
  let othersWaitUntilMs = Number.NEGATIVE_INFINITY

  // -- this process waits ------------------------------------------------------------------------

  const announceWaiting = () => {
    if (!hints.isConnected()) return
    const nowMs = monotonicMs(clock)
    if (announcedSinceMs === Infinity || nowMs - lastWaitingMs > believedMs - spreadMs) {
      announcedSinceMs = nowMs + spreadMs
    }
    lastWaitingMs = nowMs
    repeatAtMs = nowMs + repeatMs
    hints.announce(Hint.Waiting())
  }

  const loop = yield* dueLoop.make({
    nextMs: () => watchers.size === 0 || !hints.isConnected() ? Infinity : repeatAtMs,
    act: Effect.sync(announceWaiting)
  })

  /** What has been announced so far does not count, in either direction. */
  const doubt = () => {
    announcedSinceMs = Number.POSITIVE_INFINITY
    for (const ofInstance of watchers.values()) for (const watcher of ofInstance) watcher.doubted()
    for (const { notify } of listeners) notify(() => true)
  }

  // -- hints -------------------------------------------------------------------------------------

  hints.subscribe({
    connected: () => {
      // Those that connect later than this process ask it.
      othersWaitUntilMs = monotonicMs(clock) + spreadMs
      hints.announce(Hint.Hello())
      doubt()
      repeatAtMs = Number.NEGATIVE_INFINITY
      loop.wake()
    },
    disconnected: doubt,
    unreliable: () => {
      doubt()
      const nowMs = monotonicMs(clock)
      // What was lost may be that others wait; until they say so again, they do.
      othersWaitUntilMs = Math.max(othersWaitUntilMs, nowMs + repeatMs + spreadMs)
      // Not at once: it may be the announcements that fail.
      repeatAtMs = nowMs + spreadMs
      loop.wake()
    },
    received: ({ hint }) => {
      if (hint._tag === "Waiting") othersWaitUntilMs = monotonicMs(clock) + believedMs
      else if (hint._tag === "Hello") {
        if (watchers.size === 0) {
          // The next wait has to be announced again: the other one does not know of the last announcement.
          lastWaitingMs = Number.NEGATIVE_INFINITY
          announcedSinceMs = Number.POSITIVE_INFINITY
          return
        }
        announceWaiting()
        // This process may have been slow to answer: the other one believes after a second that it does not wait.
        for (const ofInstance of watchers.values()) for (const watcher of ofInstance) watcher.changed()
      } else if (hint._tag === "Changed") {
        for (const one of hint.fingerprints) for (const watcher of watchers.get(one) ?? []) watcher.changed()
        if (listeners.size === 0) return
        const changed = new Set(hint.fingerprints)
        for (const { notify } of listeners) notify((instanceId) => changed.has(fingerprintOf(instanceId)))
      }
    }
  })

  const othersWait = () => !hints.isConnected() || monotonicMs(clock) < othersWaitUntilMs

  return {
    watch: (instanceId, watcher) => {
      const key = fingerprintOf(instanceId)
      const ofInstance = watchers.get(key) ?? new Set()
      watchers.set(key, ofInstance.add(watcher))
      if (monotonicMs(clock) - lastWaitingMs > repeatMs - spareMs) announceWaiting()
      // Often the loop still sleeps for an earlier watcher: waits are short and follow each other.
      if (hints.isConnected()) loop.wake(repeatAtMs)
      return () => {
        ofInstance.delete(watcher)
        if (ofInstance.size === 0 && watchers.get(key) === ofInstance) watchers.delete(key)
      }
    },
    lostAnswer: () => {
      for (const ofInstance of watchers.values()) for (const watcher of ofInstance) watcher.doubted()
    },
    announcedSinceMs: () => announcedSinceMs,
    isNotified: hints.isConnected,
    onChanged: (notify) =>
      Effect.acquireRelease(
        Effect.sync(() => {
          const listener = { notify }
          listeners.add(listener)
          return listener
        }),
        (listener) => Effect.sync(() => listeners.delete(listener))
      ).pipe(Effect.asVoid),
    announce: (id) => {
      if (othersWait()) hints.announce(Hint.Changed({ fingerprints: [fingerprintOf(id)] }))
    },
    turnStored: (turn) => {
      const changed = new Set(turn.cancelledActivities.map(({ instanceId }) => instanceId))
      const instanceId = turn.historyDelta[0]?.instanceId
      if (othersWait() && instanceId !== undefined && isNews(turn)) changed.add(instanceId)
      if (changed.size > 0) hints.announce(Hint.Changed({ fingerprints: [...changed].map(fingerprintOf) }))
    }
  }
})

// internal

const news: ReadonlySet<Event.Event["_tag"]> = new Set([
  "CustomStatusUpdated",
  "KeyValueSet",
  "KeyValueCleared",
  "KeyValuesCleared"
])

/** How long a process that waits is believed after it said so. */
const believedMs = 330_000

/**
 * Pause between two hints that this process waits: with the looks of a wait and of two queues, one statement a minute.
 */
const repeatMs = 300_000

/** A process that begins to wait announces it, unless it did so within `repeatMs` less this. */
const spareMs = 5_000

/** Time after which all others know what a process announces. */
const spreadMs = 1_000

/** The function with its last results, because hints ask for the same ids again and again. */
const remembered = (compute: (id: string) => string) => {
  const results = new Map<string, string>()
  return (id: string): string => {
    const known = results.get(id)
    if (known !== undefined) return known
    if (results.size >= maxRemembered) results.clear()
    const result = compute(id)
    results.set(id, result)
    return result
  }
}

const maxRemembered = 4_096
