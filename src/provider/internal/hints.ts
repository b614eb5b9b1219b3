/**
 * Hints to and from other processes, on their way between the notifier and those of this provider that need them.
 *
 * **Announcing** never waits and never fails. The first hint leaves at once; those of the next 20 milliseconds leave
 * together, merged: a process under full load sends 50 notifications a second, however many rows it writes. In
 * PostgreSQL a notification takes a lock at its commit that all notifying commits of the server share, so it must not be
 * part of the statements that store work.
 *
 * **Receiving**: at most 64 hints wait for their turn. One that finds no place is dropped, and one that waited too long is
 * late; both are reported, because then this process is too busy to rely on hints alone.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import * as Metric from "effect/Metric"
import type * as Scope from "effect/Scope"
import { monotonicMs } from "../../model/internal/monotonic.ts"
import * as Metrics from "../../model/Metrics.ts"
import { Hint } from "../Notifier.ts"
import type { Notifier, Queue, Received } from "../Notifier.ts"

export interface Hints {
  /** Whether hints of others arrive. False without a notifier. */
  readonly isConnected: () => boolean
  readonly announce: (hint: Hint) => void
  /** Until the provider is closed. */
  readonly subscribe: (subscriber: Subscriber) => void
}

/** All functions are optional; none may throw. */
export interface Subscriber {
  readonly received?: (received: Received) => void
  /** Hints arrive from now on; anything may have happened before. */
  readonly connected?: () => void
  readonly disconnected?: (problem: string) => void
  /** A hint was dropped, came late, or could not be sent. */
  readonly unreliable?: (reason: "ChannelSendFailed" | "NotifyDeliveryTimeout") => void
}

export interface Options {
  /** A hint that has waited longer in this process is late. */
  readonly notifyDeliveryTimeoutMs: number
}

/** Listens until the scope is closed. Without a notifier nothing is ever connected, sent or received. */
export const make = Effect.fnUntraced(function*(
  notifier: Notifier["Service"] | undefined,
  { notifyDeliveryTimeoutMs }: Options
): Effect.fn.Return<Hints, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const subscribers: Array<Subscriber> = []
  const report = (reason: "ChannelSendFailed" | "NotifyDeliveryTimeout") => {
    for (const { unreliable } of subscribers) unreliable?.(reason)
  }
  if (notifier === undefined) {
    return {
      isConnected: () => false,
      announce: () => {},
      subscribe: (subscriber) => void subscribers.push(subscriber)
    }
  }

  // -- receiving ---------------------------------------------------------------------------------

  const inbox: Array<{ readonly received: Received; readonly atMs: number }> = []
  const arrived = Latch.makeUnsafe()
  let isConnected = false

  const deliver = Effect.forever(Effect.suspend(() => {
    arrived.closeUnsafe()
    const letters = inbox.splice(0)
    if (letters.length === 0) return arrived.await
    const isLate = monotonicMs(clock) - letters[0]!.atMs > notifyDeliveryTimeoutMs
    if (isLate) report("NotifyDeliveryTimeout")
    for (const { received } of letters) for (const subscriber of subscribers) subscriber.received?.(received)
    return Effect.void
  }))

  // -- announcing --------------------------------------------------------------------------------

  const outbox = new Outbox()
  const waiting = Latch.makeUnsafe()

  const send = Effect.forever(Effect.suspend(() => {
    waiting.closeUnsafe()
    const hints = outbox.take()
    if (hints.length === 0) return waiting.await
    return notifier.announce(hints).pipe(
      Effect.catch((error) =>
        Effect.logDebug("Provider: hints to other processes were not sent").pipe(
          Effect.annotateLogs({ package: "duroxide-prisma", error: error.message }),
          Effect.andThen(Effect.sync(() => report("ChannelSendFailed")))
        )
      ),
      Effect.andThen(Effect.sleep(betweenAnnouncementsMs))
    )
  }))

  const context = yield* Effect.context<never>()
  Metrics.listenerConnected.updateUnsafe(0, context)
  yield* Effect.addFinalizer(() => Effect.sync(() => Metric.removeUnsafe(Metrics.listenerConnected, context)))
  yield* Effect.forkScoped(deliver)
  yield* Effect.forkScoped(send)
  yield* notifier.listen({
    connected: () => {
      isConnected = true
      Metrics.listenerConnected.updateUnsafe(1, context)
      for (const { connected } of subscribers) connected?.()
    },
    disconnected: (problem) => {
      isConnected = false
      Metrics.listenerConnected.updateUnsafe(0, context)
      for (const { disconnected } of subscribers) disconnected?.(problem)
    },
    receive: (received) => {
      if (inbox.length >= maxInbox) return report("ChannelSendFailed")
      inbox.push({ received, atMs: monotonicMs(clock) })
      arrived.openUnsafe()
    }
  })

  return {
    isConnected: () => isConnected,
    announce: (hint) => {
      outbox.add(hint)
      waiting.openUnsafe()
    },
    subscribe: (subscriber) => {
      subscribers.push(subscriber)
      if (isConnected) subscriber.connected?.()
    }
  }
})

// internal

const maxInbox = 64

const betweenAnnouncementsMs = 20

/** Hints that wait to be sent, merged. */
class Outbox {
  private readonly work = new Map<string, Hint>()
  private readonly locks = new Map<Queue, Hint>()
  private readonly changed = new Set<string>()
  private isWaiting = false
  private isSampled = false
  private isHello = false

  add(hint: Hint): void {
    switch (hint._tag) {
      case "Work":
        return void this.work.set(`${hint.queue}${hint.visibleAtMs}`, hint)
      case "Locks":
        return void this.locks.set(hint.queue, hint)
      case "Changed":
        return hint.fingerprints.forEach((fingerprint) => this.changed.add(fingerprint))
      case "Waiting":
        return void (this.isWaiting = true)
      case "Sampled":
        return void (this.isSampled = true)
      case "Hello":
        return void (this.isHello = true)
    }
  }

  take(): ReadonlyArray<Hint> {
    const hints = [
      ...(this.isHello ? [Hint.Hello()] : []),
      ...this.work.values(),
      ...this.locks.values(),
      ...(this.changed.size > 0 ? [Hint.Changed({ fingerprints: [...this.changed] })] : []),
      ...(this.isWaiting ? [Hint.Waiting()] : []),
      ...(this.isSampled ? [Hint.Sampled()] : [])
    ]
    this.work.clear()
    this.locks.clear()
    this.changed.clear()
    this.isWaiting = this.isSampled = this.isHello = false
    return hints
  }
}
