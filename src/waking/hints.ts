/**
 * Hints to and from other processes, on their way between the notifier and the parts that use them.
 *
 * **Announcing** never waits and never fails. Up to five announcements leave at once; then the hints of 20 milliseconds
 * leave together, merged (or of the notifier's `announceEvery`): a process under full load sends 50 times a second,
 * however many rows it writes. A hint whose caller waits for it leaves without that pause. What waits when the provider
 * is closed leaves then. In PostgreSQL a notification takes a lock at its commit that all notifying commits of the
 * server share, so it must not be part of the statements that store work.
 *
 * **Receiving**: at most 64 hints wait for their turn. Those that lead to the same count as one: all of work that is
 * visible already, all of locks of one sender, all of changes. One that finds no place is dropped and reported. One
 * that waited too long is not lost, so it only leads to a warning. A hint of work names its item until it is merged
 * with another one, when it is sent or received.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import * as Metric from "effect/Metric"
import type * as Scope from "effect/Scope"
import * as Metrics from "../model/Metrics.ts"
import { ours } from "../model/shared/logging.ts"
import { monotonicMs } from "../model/shared/monotonic.ts"
import { Hint } from "./Notifier.ts"
import type { Notifier, Queue, Received } from "./Notifier.ts"
import * as senders from "./sender.ts"

export interface Hints {
  /** Whether hints of others arrive. False without a notifier. */
  readonly isConnected: () => boolean
  /** `sent` is called when the hint has left, or could not leave. It must not throw. */
  readonly announce: (hint: Hint, sent?: () => void) => void
  /** Subscribes until the provider is closed. */
  readonly subscribe: (subscriber: Subscriber) => void
  /** How many connected processes look for work in the queue, as far as that is known; at least 1. */
  readonly processes: (queue: Queue) => number
}

/** All functions are optional; none may throw. */
export interface Subscriber {
  /** Takes a hint, and the time at which it arrived in this process, monotonic milliseconds. */
  readonly received?: (received: Received, arrivedMs: number) => void
  /** Hints arrive from now on; anything may have happened before. */
  readonly connected?: () => void
  readonly disconnected?: (problem: string) => void
  /** A hint was dropped, or could not be sent. */
  readonly unreliable?: () => void
}

export interface Options {
  /** A hint that has waited longer in this process is late, which leads to a warning. */
  readonly notifyDeliveryTimeoutMs: number
  /** The store's clock; undefined while it is not known. Defaults to the clock of the process. */
  readonly storeNowMs?: () => number | undefined
}

/** Listens until the scope is closed. Without a notifier nothing is ever connected, sent or received. */
export const make = Effect.fnUntraced(function*(
  notifier: Notifier["Service"] | undefined,
  { notifyDeliveryTimeoutMs, storeNowMs = () => undefined }: Options
): Effect.fn.Return<Hints, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const subscribers: Array<Subscriber> = []
  const report = () => {
    for (const { unreliable } of subscribers) unreliable?.()
  }
  if (notifier === undefined) {
    return {
      isConnected: () => false,
      announce: (_, sent) => sent?.(),
      subscribe: (subscriber) => void subscribers.push(subscriber),
      processes: () => 1
    }
  }

  // -- receiving ---------------------------------------------------------------------------------

  /** Hints by what they lead to, in the order of their arrival. */
  const inbox = new Map<string, { readonly received: Received; readonly atMs: number }>()
  /** A look finds all the work that is visible, and the last time of a sender's locks is the one that counts. */
  const keyOf = ({ hint, sender }: Received): string => {
    if (hint._tag === "Changed") return "changed"
    if (hint._tag === "Paused") return "paused"
    if (hint._tag === "Locks") return `locks of ${sender}, ${hint.queue}`
    const isVisible = hint._tag === "Work" && hint.visibleAtMs <= (storeNowMs() ?? clock.currentTimeMillisUnsafe())
    return isVisible ? `work, ${hint.queue}` : JSON.stringify([sender, hint])
  }
  const arrived = Latch.makeUnsafe()
  let isConnected = false

  const deliver = Effect.forever(Effect.suspend(() => {
    arrived.closeUnsafe()
    const letters = [...inbox.values()]
    inbox.clear()
    if (letters.length === 0) return arrived.await
    const waitedMs = monotonicMs(clock) - letters[0]!.atMs
    for (const { atMs, received } of letters) {
      for (const subscriber of subscribers) subscriber.received?.(received, atMs)
    }
    return waitedMs > notifyDeliveryTimeoutMs ? warnOfDelay(waitedMs) : Effect.void
  }))

  let warnedMs = Number.NEGATIVE_INFINITY
  const warnOfDelay = (waitedMs: number) =>
    Effect.suspend(() => {
      const nowMs = monotonicMs(clock)
      if (nowMs - warnedMs < betweenWarningsMs) return Effect.void
      warnedMs = nowMs
      return Effect.logWarning(
        "Provider: a hint of another process waited too long in this one: something blocks its event loop, or its host lacks CPU"
      ).pipe(
        ours({ duration_ms: Math.round(waitedMs), notifyDeliveryTimeoutMs })
      )
    })

  // -- counting ----------------------------------------------------------------------------------

  let counted: Readonly<Record<Queue, number>> = { orchestrator: 1, worker: 1 }
  /** Senders that have begun to serve since that count. */
  const begun = { orchestrator: new Set<string | null>(), worker: new Set<string | null>() }
  let countedMs = Number.NEGATIVE_INFINITY
  const stale = Latch.makeUnsafe()

  const count = Effect.andThen(
    stale.await,
    Effect.suspend(() => {
      stale.closeUnsafe()
      return Effect.match(notifier.processes ?? Effect.succeed(counted), {
        onSuccess: (count) => {
          counted = count
          for (const since of Object.values(begun)) since.clear()
        },
        onFailure: () => {}
      })
    })
  )

  /** Only with hints at hand does the number matter, so an idle process does not count. */
  const countIfStale = () => {
    const nowMs = monotonicMs(clock)
    if (nowMs - countedMs < betweenCountsMs) return
    countedMs = nowMs
    stale.openUnsafe()
  }

  // -- announcing --------------------------------------------------------------------------------

  const outgoing = new Outgoing()
  /** Called when the hints that wait have left. */
  let callbacks: Array<() => void> = []
  /** Sends what waits, once. */
  const send = Effect.suspend(() => {
    const hints = outgoing.take(clock.currentTimeMillisUnsafe())
    if (hints.length === 0) return Effect.succeed("Nothing" as const)
    const called = callbacks
    callbacks = []
    return notifier.announce(hints).pipe(
      Effect.catch((error) =>
        Effect.logDebug("Provider: hints to other processes were not sent").pipe(
          ours({ error: error.message }),
          Effect.andThen(Effect.sync(() => report()))
        )
      ),
      Effect.ensuring(Effect.sync(() => called.forEach((sent) => sent()))),
      Effect.as("Done" as const)
    )
  })

  const context = yield* Effect.context<never>()
  Metrics.listenerConnected.updateUnsafe(0, context)
  yield* Effect.addFinalizer(() => Effect.sync(() => Metric.removeUnsafe(Metrics.listenerConnected, context)))
  yield* Effect.forkScoped(deliver)
  yield* Effect.forkScoped(Effect.forever(count))
  yield* notifier.listen({
    connected: () => {
      isConnected = true
      Metrics.listenerConnected.updateUnsafe(1, context)
      countIfStale()
      for (const { connected } of subscribers) connected?.()
    },
    disconnected: (problem) => {
      isConnected = false
      Metrics.listenerConnected.updateUnsafe(0, context)
      for (const { disconnected } of subscribers) disconnected?.(problem)
    },
    receive: (received) => {
      if (received.hint._tag === "Topic") return
      if (received.hint._tag === "Serves") return void begun[received.hint.queue].add(received.sender)
      if (received.hint._tag === "Work") countIfStale()
      const key = keyOf(received)
      const before = inbox.get(key)
      const isFull = inbox.size >= maxInbox && before === undefined
      // Without it, this process looks for what is gone.
      if (isFull && received.hint._tag === "Taken") return
      const letter = before === undefined ? received : merged(before.received, received)
      if (letter === undefined || isFull) return report()
      inbox.set(key, { received: letter, atMs: before?.atMs ?? monotonicMs(clock) })
      arrived.openUnsafe()
    }
  })
  const sendSoon = yield* senders.make({
    send,
    everyMs: Duration.toMillis(notifier.announceEvery ?? "20 millis"),
    farewellMs
  })

  return {
    isConnected: () => isConnected,
    announce: (hint, sent) => {
      outgoing.add(hint)
      // Callers do not wait for a notifier that gathers hints.
      if (notifier.announceEvery !== undefined) sent?.()
      else if (sent !== undefined) callbacks.push(sent)
      sendSoon(callbacks.length > 0)
    },
    subscribe: (subscriber) => {
      subscribers.push(subscriber)
      if (isConnected) subscriber.connected?.()
    },
    processes: (queue) => Math.max(1, counted[queue] + begun[queue].size)
  }
})

// internal

const maxInbox = 64

/** Most fingerprints in all hints of changes that wait. */
const maxFingerprints = 10_000

/** One hint for two that lead to the same; undefined if it would be too large. */
const merged = ({ hint: before }: Received, { hint, sender }: Received): Received | undefined => {
  if (hint._tag === "Work") return { hint: Hint.Work({ queue: hint.queue, visibleAtMs: hint.visibleAtMs }), sender }
  if (before._tag !== "Changed" || hint._tag !== "Changed") return { hint, sender }
  const fingerprints = [...new Set([...before.fingerprints, ...hint.fingerprints])]
  return fingerprints.length > maxFingerprints ? undefined : { hint: Hint.Changed({ fingerprints }), sender }
}

const farewellMs = 500

const betweenCountsMs = 300_000

const betweenWarningsMs = 60_000

/** Later times of a queue in one announcement. Receivers ask the store for the next one when they have looked. */
const maxTimes = 16

/** Hints that wait to be sent, merged. */
class Outgoing {
  private readonly work = new Map<Queue, Set<number>>()
  /** The hint of work of a queue, as long as there is only one. */
  private readonly alone = new Map<Queue, Hint | undefined>()
  private readonly taken = new Map<Queue, Set<string>>()
  private readonly serves = new Set<Queue>()
  private readonly locks = new Map<Queue, Hint>()
  private readonly changed = new Set<string>()
  private isWaiting = false
  private isSampled = false
  private isPaused = false
  private isHello = false

  add(hint: Hint): void {
    switch (hint._tag) {
      case "Work":
        this.alone.set(hint.queue, this.alone.has(hint.queue) ? undefined : hint)
        return void this.work.set(hint.queue, (this.work.get(hint.queue) ?? new Set()).add(hint.visibleAtMs))
      case "Taken":
        return void this.taken.set(hint.queue, new Set([...this.taken.get(hint.queue) ?? [], ...hint.ids]))
      case "Serves":
        return void this.serves.add(hint.queue)
      case "Locks":
        return void this.locks.set(hint.queue, hint)
      case "Changed":
        return hint.fingerprints.forEach((fingerprint) => this.changed.add(fingerprint))
      case "Waiting":
        return void (this.isWaiting = true)
      case "Sampled":
        return void (this.isSampled = true)
      case "Paused":
        return void (this.isPaused = true)
      case "Hello":
        return void (this.isHello = true)
      case "Topic":
        return
    }
  }

  /** At this time of the clock: work that was announced for earlier times is visible, so one hint is enough for it. */
  take(nowMs: number): ReadonlyArray<Hint> {
    const hints = [
      ...(this.isHello ? [Hint.Hello()] : []),
      ...[...this.serves].map((queue) => Hint.Serves({ queue })),
      ...[...this.work].flatMap(([queue, times]) =>
        this.alone.get(queue) ?? timesOf(times, nowMs).map((visibleAtMs) => Hint.Work({ queue, visibleAtMs }))
      ),
      ...this.locks.values(),
      ...[...this.taken].map(([queue, ids]) => Hint.Taken({ queue, ids: [...ids] })),
      ...(this.changed.size > 0 ? [Hint.Changed({ fingerprints: [...this.changed] })] : []),
      ...(this.isWaiting ? [Hint.Waiting()] : []),
      ...(this.isSampled ? [Hint.Sampled()] : []),
      ...(this.isPaused ? [Hint.Paused()] : [])
    ]
    this.work.clear()
    this.alone.clear()
    this.taken.clear()
    this.serves.clear()
    this.locks.clear()
    this.changed.clear()
    this.isWaiting =
      this.isSampled =
      this.isPaused =
      this.isHello =
        false
    return hints
  }
}

/** The present, once, and the first later ones. */
const timesOf = (times: ReadonlySet<number>, nowMs: number): ReadonlyArray<number> => {
  const inOrder = [...times].sort((one, other) => one - other)
  const later = inOrder.findIndex((time) => time > nowMs)
  const first = later < 0 ? inOrder.length - 1 : Math.max(later - 1, 0)
  return inOrder.slice(first, first + maxTimes)
}
