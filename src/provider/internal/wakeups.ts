/**
 * Every wake-up inside the process passes here: a queue has work, an instance has ended, activities were cancelled.
 *
 * The operations report here what they stored, and what others may take of it is announced to them. `Hints` brings in
 * what other processes announce. A wake-up may be lost: then polling and renewals find the same later.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"
import type * as Scope from "effect/Scope"
import { ours } from "../../model/shared/logging.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import * as WorkItem from "../../model/WorkItem.ts"
import * as alarmsOf from "../../waking/alarms.ts"
import type { Hints } from "../../waking/hints.ts"
import { Hint } from "../../waking/Notifier.ts"
import type { Queue } from "../../waking/Notifier.ts"
import type { Settings, State } from "../../waking/pollMode.ts"
import type { StoreClock } from "../../waking/storeClock.ts"
import * as takenItems from "../../waking/taken.ts"
import * as workQueue from "../../waking/workQueue.ts"
import { lookersAtOnce } from "../../waking/workQueue.ts"
import type { SinceChange, WorkQueue } from "../../waking/workQueue.ts"
import type { Provider, Turn } from "../Provider.ts"
import type { ProviderDriver } from "../ProviderDriver.ts"
import { encodeItem } from "./encoding.ts"
import type { Ends } from "./ends.ts"
import * as heldLocks from "./heldLocks.ts"
import * as leftLocks from "./leftLocks.ts"
import * as limitedSlots from "./limitedSlots.ts"
import type { LockedInstances } from "./locks.ts"
import * as locks from "./locks.ts"
import * as nextDue from "./nextDue.ts"
import type { Locks } from "./operations.ts"
import * as pollGauges from "./pollGauges.ts"
import type { Waits } from "./waits.ts"

export interface Wakeups extends Pick<Provider["Service"], "onCancelled">, Pick<Ends, "started"> {
  readonly orchestrators: WorkQueue
  readonly workers: WorkQueue
  /** Instances whose turns are under way: the wake-up for one of them is kept until its turn is settled. */
  readonly locked: LockedInstances
  /**
   * The instance has a message, visible that much later, or at a time of the store's clock; null: now. `text` is that
   * of the message.
   */
  readonly messageSent: (
    instanceId: string,
    delayMs: number | { readonly atMs: number } | null,
    text?: () => string
  ) => void
  /**
   * A call that stores work in the queue, and announces it here. Should the process die meanwhile, the others look. If
   * the call is interrupted, its work is stored or not: all look soon.
   */
  readonly storing: <A, E, R>(queue: Queue, call: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
  /** The queue has something that can be claimed at once; `text` of the item, if it is one. */
  readonly workStored: (queue: Queue, text?: () => string) => void
  /**
   * A claim is about to be sent. The returned function is called with the texts of the items that it has returned and
   * that this process keeps: others need not look for those that it knew of.
   */
  readonly claiming: (queue: Queue) => (texts: ReadonlyArray<string>) => void
  /**
   * Work was abandoned, and can be claimed that much later; null: at once. After a delay the others come first: the
   * process that gave it up must not be the first to get it again.
   */
  readonly workAbandoned: (queue: Queue, delayMs: number | null) => void
  /** The queue has something that can be claimed then, milliseconds since the Unix epoch by the store's clock. */
  readonly workDueAt: (queue: Queue, timeMs: number) => void
  /** A claim is about to be sent. The returned function is called with whether something waits for a slot. */
  readonly claimingSlots: (queue: Queue) => (isAwaited: boolean) => void
  /** A claimed activity has a slot of a limit. */
  readonly slotTaken: (lockToken: string, activity: WorkItem.Of<"ActivityExecute">) => void
  /** A claimed activity has ended: another one may have its slot. */
  readonly slotFreed: (lockToken: string) => void
  /** After `delayMs` a suspect of this process no longer counts, so that it may claim further ones. */
  readonly roomLater: (queue: Queue, delayMs: number) => void
  /** This process holds sessions, for that long from now. */
  readonly sessionsHeld: (forMs: number) => void
  /**
   * Changes when this process has stored work, or learnt that others have; and with each call while it cannot learn
   * that.
   */
  readonly activity: Effect.Effect<number>
  /** A look has left work that this process has no caller for. */
  readonly leftSome: (queue: Queue) => void
  /** A claim has left what a later one may find: the driver has called `onLocked`. */
  readonly metLocked: (queue: Queue) => void
  /** With the number of its activities that this process holds already. */
  readonly turnStored: (turn: Turn, handedOver: number) => void
  /** The turn of this token is settled, or its instance is no longer held. */
  readonly released: (lockToken: string) => void
}

export interface Options {
  readonly hints: Hints
  readonly storeClock: StoreClock
  readonly settings: Settings
}

/** The wake-ups, and the locks that statements report to. They end with the scope. */
export const make = Effect.fnUntraced(function*(
  store: ProviderDriver["Service"],
  ends: Waits["stored"],
  { hints, settings, storeClock }: Options
): Effect.fn.Return<
  { readonly wakeups: Wakeups; readonly locks: Locks },
  never,
  Scope.Scope
> {
  const clock = yield* Clock.Clock
  const random = yield* Random.Random
  const alarms = yield* alarmsOf.make
  const run = Effect.runForkWith(yield* Effect.context<never>())
  // Without a caller, or with so many processes that some of them do not look, a hint may lead to no look.
  const slotsOf = (queue: Queue) => limitedSlots.make(() => byName(queue).hasCallers() && !areMany(queue))
  const slots = { orchestrator: slotsOf("orchestrator"), worker: slotsOf("worker") }
  const storeNowMs = () => storeClock.nowMs() ?? clock.currentTimeMillisUnsafe()
  const locked = locks.makeInstances()
  let activity = 0

  // -- queues ------------------------------------------------------------------------------------

  const finder = yield* nextDue.make(store.readNextDue, {
    answered: ({ nowMs, orchestratorMs, workerMs }) => {
      storeClock.heard(nowMs)
      orchestrators.nextDue(orchestratorMs, nowMs)
      workers.nextDue(workerMs, nowMs)
      dueDelayed()
    },
    // What is due may be seen late.
    failed: () => {
      allChanged({ _tag: "Failed" })
      dueDelayed()
    }
  })

  const left = yield* leftLocks.make(store.readLocks, {
    answered: ({ nowMs }) => storeClock.heard(nowMs),
    failed: () => allChanged({ _tag: "Failed" }),
    ranOut: (queue) => byName(queue).wake("LocksExpired")
  })

  const findNextDue = (isUrgent: boolean) => {
    if (hints.isConnected() && serves()) finder.find(isUrgent)
  }

  const queueOf = Effect.fnUntraced(function*(name: Queue) {
    const gauges = yield* pollGauges.make(name)
    return workQueue.make({
      name,
      clock,
      settings,
      alarms,
      storeNowMs: storeClock.nowMs,
      processes: () => hints.processes(name),
      onServe: () => {
        if (hints.isConnected()) hints.announce(Hint.Serves({ queue: name }))
      },
      onDue: () => {
        if (name === "orchestrator") locked.keepWakeups()
      },
      random: () => random.nextDoubleUnsafe(),
      findNextDue,
      findLeftLocks: () => {
        if (hints.isConnected()) left.follow()
      },
      // What it stored in the other queue may not be announced either, nor what is due later.
      othersRanOut: () => {
        for (const queue of queues) queue.wake("LocksExpired")
        findNextDue(true)
      },
      onLook: gauges.looked,
      onMode: (before, now, since) => void run(logMode(name, before, now, since))
    })
  })
  const orchestrators = yield* queueOf("orchestrator")
  const workers = yield* queueOf("worker")
  const queues = [orchestrators, workers]
  const serves = () => queues.some((queue) => queue.hasPumps())
  const byName = (queue: Queue) => queue === "worker" ? workers : orchestrators
  const allChanged: WorkQueue["changed"] = (event) => {
    for (const queue of queues) queue.changed(event)
  }

  // -- locks -------------------------------------------------------------------------------------

  const held = (queue: Queue) =>
    heldLocks.make({
      queue,
      clock,
      alarms,
      announce: hints.announce,
      storeNowMs,
      serves,
      ranOut: () => byName(queue).wake("LocksExpired")
    })
  const heldBy = { orchestrator: held("orchestrator"), worker: held("worker") }
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      for (const locks of Object.values(heldBy)) locks.close()
    })
  )

  // -- hints -------------------------------------------------------------------------------------

  const taken = { orchestrator: takenItems.make(), worker: takenItems.make() }

  hints.subscribe({
    received: (received, arrivedMs) => {
      const { hint } = received
      if (hint._tag === "Taken") return byName(hint.queue).received(received, arrivedMs)
      if (hint._tag !== "Work" && hint._tag !== "Locks") return
      activity++
      slots[hint.queue].stored()
      if (hint._tag === "Work" && hint.only !== undefined) taken[hint.queue].hinted(hint.only, monotonicMs(clock))
      if (hint._tag === "Work" && hint.queue === "orchestrator") locked.keepWakeups()
      byName(hint.queue).received(received, arrivedMs)
    },
    connected: () => {
      for (const queue of ["orchestrator", "worker"] as const) {
        slots[queue].stored()
        if (byName(queue).hasPumps()) hints.announce(Hint.Serves({ queue }))
      }
      allChanged({ _tag: "Connected" })
    },
    disconnected: () => allChanged({ _tag: "Disconnected" }),
    unreliable: () => allChanged({ _tag: "Unreliable" })
  })

  // -- what this process stores ------------------------------------------------------------------

  /** Defaults to now, whatever the clock of this process says. */
  const announce = (queue: Queue, visibleAtMs = 0) => hints.announce(Hint.Work({ queue, visibleAtMs }))

  /** Fewer processes look at once in any case. */
  const areMany = (queue: Queue) => hints.isConnected() && hints.processes(queue) > lookersAtOnce

  const workStored = (queue: Queue, text?: () => string) => {
    activity++
    slots[queue].stored()
    byName(queue).wake("Stored")
    if (text === undefined || !areMany(queue)) return announce(queue)
    const only = takenItems.itemOf(text())
    taken[queue].hinted(only, monotonicMs(clock))
    hints.announce(Hint.Work({ queue, visibleAtMs: 0, only }))
  }

  /** While it polls, a look that comes too early is repeated soon. */
  const afterNow = (delayMs: number) =>
    storeNowMs() + delayMs +
    (orchestrators.state().mode === "LongPoll" ? Math.min(settings.timerGraceMs, answerMs) : 0)

  const workDue = (queue: Queue, timeMs: number) => {
    activity++
    const isNews = byName(queue).isNews(timeMs)
    if (isNews) announce(queue, timeMs)
    return isNews
  }

  const messageDue = (instanceId: string, visibleAtMs: number | null, text?: () => string) => {
    if (visibleAtMs !== null && visibleAtMs > storeNowMs()) {
      orchestrators.wakeAt(visibleAtMs, workDue("orchestrator", visibleAtMs))
    } else if (!locked.keepWakeup(instanceId)) workStored("orchestrator", text)
  }

  /** Messages with a delay, sent while the store's clock was not known. */
  const delayed: Array<{
    readonly instanceId: string
    readonly sentMs: number
    readonly delayMs: number
    readonly announced: () => void
  }> = []
  const dueDelayed = () => {
    for (const { announced, delayMs, instanceId, sentMs } of delayed.splice(0)) {
      messageDue(instanceId, afterNow(delayMs - (monotonicMs(clock) - sentMs)))
      announced()
    }
  }

  const cancelListeners = new Set<(activities: Turn["cancelledActivities"]) => void>()
  const wakeups: Wakeups = {
    orchestrators,
    workers,
    locked,
    messageSent: (instanceId, delayMs, text) => {
      if (delayMs === null || delayMs === 0) return messageDue(instanceId, null, text)
      if (typeof delayMs === "object") return messageDue(instanceId, delayMs.atMs, text)
      if (storeClock.nowMs() !== undefined || !hints.isConnected() || store.readNextDue === undefined) {
        return messageDue(instanceId, afterNow(delayMs), text)
      }
      // The clock of this process may be wrong, and others would look by it. It may die before the store has said its.
      delayed.push({ instanceId, sentMs: monotonicMs(clock), delayMs, announced: heldBy.orchestrator.announcing() })
      finder.find(true)
    },
    storing: (queue, call) =>
      heldBy[queue].storing(
        Effect.onInterrupt(call, () => Effect.sync(() => wakeups.workAbandoned(queue, interruptedMs)))
      ),
    workStored,
    claiming: (queue) => {
      const known = taken[queue].known()
      return (texts) => {
        if (!areMany(queue)) return
        const ids = taken[queue].claimed(known, texts)
        if (ids.length > 0) hints.announce(Hint.Taken({ queue, ids }))
      }
    },
    roomLater: (queue, delayMs) => byName(queue).wakeAt(afterNow(Math.min(delayMs, longestProofMs)), false),
    sessionsHeld: (forMs) => {
      heldBy.worker.hold("sessions", forMs)
      // They are released: others may take their activities.
      if (forMs < releasedMs) announce("worker", storeNowMs() + forMs)
    },
    activity: Effect.sync(() => hints.isConnected() ? activity : ++activity),
    leftSome: (queue) => announce(queue),
    metLocked: (queue) => byName(queue).metLocked(),
    workAbandoned: (queue, delayMs) => {
      if (delayMs === null || delayMs === 0) return workStored(queue)
      const timeMs = afterNow(delayMs)
      const isNews = workDue(queue, timeMs)
      // Infinite in a process that never polls.
      const laterMs = timeMs + settings.aggressivePollMs
      if (laterMs !== Infinity) byName(queue).wakeAt(laterMs, isNews)
    },
    workDueAt: (queue, timeMs) => byName(queue).wakeAt(timeMs, workDue(queue, timeMs)),
    claimingSlots: (queue) => {
      const claimed = slots[queue].claiming()
      return (isAwaited) => {
        if (claimed(isAwaited)) workStored(queue)
      }
    },
    slotTaken: (lockToken, { executionId, id, instance }) =>
      slots.worker.taken(lockToken, activityOf(instance, executionId, id)),
    slotFreed: (lockToken) => {
      // Others may serve what waits for it.
      if (slots.worker.freed(lockToken)) workStored("worker")
    },
    released: (lockToken) => {
      if (!locked.release(lockToken)) return
      orchestrators.wake("Stored")
      // This process may be busy, or closing.
      if (!orchestrators.hasCallers()) announce("orchestrator")
    },
    started: ends.started,
    turnStored: (turn, handedOver) => {
      activity++
      const { cancelledActivities, left = [], metadata, orchestratorItems, workerItems } = turn
      if (left.length > 0) workStored("orchestrator")
      if (workerItems.length > handedOver) {
        workStored("worker", workerItems.length === 1 ? () => encodeItem(workerItems[0]!) : undefined)
      }
      for (const item of orchestratorItems) {
        messageDue(WorkItem.target(item), item._tag === "TimerFired" ? item.fireAtMs : null, () => encodeItem(item))
      }
      ends.turnStored(turn)
      // The slot of the instance, if it had one.
      const hasEnded = metadata.status === "Completed" || metadata.status === "Failed"
      if (hasEnded && slots.orchestrator.ended()) workStored("orchestrator")
      if (cancelledActivities.length === 0) return
      for (const listener of cancelListeners) listener(cancelledActivities)
      const gone = cancelledActivities.map(({ activityId, executionId, instanceId }) =>
        activityOf(instanceId, executionId, activityId)
      )
      if (slots.worker.cancelled(gone)) workStored("worker")
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

  const lostAnswer = () => {
    allChanged({ _tag: "Failed" })
    announce("orchestrator")
    announce("worker")
    ends.lostAnswer()
  }

  const known = () => {
    const ofOrchestrators = heldBy.orchestrator.known()
    const ofWorkers = heldBy.worker.known()
    return ofOrchestrators === undefined || ofWorkers === undefined
      ? ofOrchestrators ?? ofWorkers
      : Effect.all([ofOrchestrators, ofWorkers], { concurrency: "unbounded", discard: true })
  }

  return { wakeups, locks: { ...heldBy, lostAnswer, known } }
})

// internal

const activityOf = (instanceId: string, executionId: number, activityId: number) =>
  `${executionId} ${activityId} ${instanceId}`

/** By then the statement of an interrupted call is over. */
const interruptedMs = 2_000

/** A proof may last indefinitely. Later the looks that come anyway are often enough. */
const longestProofMs = 3_600_000

/** Sessions that are to end sooner are released. */
const releasedMs = 1_000

/** An estimate of the store's clock may differ by that much from the time at which a statement ran. */
const answerMs = 5

const logMode = (queue: Queue, before: State, now: State, { emptyLooks, modeMs, sinceHintMs }: SinceChange) =>
  (now.mode === "LongPoll"
    ? Effect.logDebug("Provider: leaves aggressive mode, hints wake it again")
    : Effect.logDebug("Provider: enters aggressive mode, it polls")).pipe(
      ours({
        queue,
        ...(now.mode === "Aggressive" && { reason: now.reason }),
        ...(before.mode === "Aggressive" && { reason: before.reason, duration_ms: modeMs, empty_looks: emptyLooks }),
        ...(sinceHintMs !== undefined && { since_hint_ms: sinceHintMs })
      })
    )
