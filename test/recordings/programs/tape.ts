/**
 * A storage that hands over one recorded delivery at a time, and reports what the runtime does with it.
 *
 * It takes the place of a database, below `FromDriver.make`, so that a recording is compared with the exact
 * texts that would be stored.
 */
import { Instance, Notifier, ProviderDriver, ProviderError } from "duroxide-prisma/provider"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import * as Layer from "effect/Layer"
import type { Batch } from "./recording.ts"

/** How a delivery was settled. */
export type Reaction =
  | { readonly _tag: "Stored"; readonly ack: ProviderDriver.OrchestrationAck }
  /** The batch is deleted; `enqueued` had been sent before. */
  | { readonly _tag: "Dropped"; readonly enqueued: ReadonlyArray<ProviderDriver.EncodedMessage> }
  | { readonly _tag: "GivenBack"; readonly delayMs: number | null; readonly counted: boolean }
  | { readonly _tag: "Completed"; readonly completion: string | null }
  /** It was not settled in time. */
  | { readonly _tag: "Kept" }
  /** Nothing was delivered: the versions that the claims requested. */
  | { readonly _tag: "Asked"; readonly versions: Instance.VersionRange | null | undefined }

export interface Tape {
  readonly layer: Layer.Layer<ProviderDriver.ProviderDriver | Notifier.Notifier>
  readonly deliver: (batch: Batch) => Effect.Effect<Reaction>
  readonly deliverActivity: (item: { readonly workItem: string; readonly attemptCount: number }) => Effect.Effect<
    Reaction
  >
  /** Ends when the lock of an activity could not be renewed twice. */
  readonly renewalsFailed: Effect.Effect<void>
  /** What the last claim asked for. */
  readonly asked: Effect.Effect<Reaction>
}

export const make: Effect.Effect<Tape> = Effect.gen(function*() {
  let listener: Notifier.Listener | undefined
  const waiting = new Map<string, Deferred.Deferred<Reaction>>()
  const instances: Array<ProviderDriver.ClaimedInstance> = []
  const activities: Array<ProviderDriver.ClaimedWorkItem> = []
  const enqueued: Array<ProviderDriver.EncodedMessage> = []
  const renewalsFailed = yield* Latch.make()
  let renewals = 0
  let versionsAsked: Instance.VersionRange | null | undefined
  let deliveries = 0

  const settle = (lockToken: string, reaction: Reaction): ProviderDriver.Settled => {
    const delivery = waiting.get(lockToken)
    if (delivery === undefined) return "LockLost"
    waiting.delete(lockToken)
    Deferred.doneUnsafe(delivery, Effect.succeed(reaction))
    return "Done"
  }
  const settleEach =
    <A extends { readonly lockToken: string }>(reaction: (item: A) => Reaction) => (items: ReadonlyArray<A>) =>
      Effect.sync(() => items.map((item) => settle(item.lockToken, reaction(item))))
  const givenBack = settleEach<ProviderDriver.Abandon>(({ delayMs, ignoreAttempt }) => ({
    _tag: "GivenBack",
    delayMs,
    counted: !ignoreAttempt
  }))
  const unused = (operation: string) => () => Effect.die(new Error(`${operation}: a recording holds all there is`))

  const offer = (put: (lockToken: string) => Notifier.Queue) =>
    Effect.gen(function*() {
      const delivery = yield* Deferred.make<Reaction>()
      const lockToken = `delivery-${++deliveries}`
      waiting.set(lockToken, delivery)
      const hint = Notifier.Hint.Work({ queue: put(lockToken), visibleAtMs: 0 })
      listener?.receive({ hint, sender: null })
      return yield* Deferred.await(delivery).pipe(
        Effect.timeoutOrElse({ duration: "10 seconds", orElse: () => Effect.succeed<Reaction>({ _tag: "Kept" }) })
      )
    })

  const driver: ProviderDriver.ProviderDriver["Service"] = {
    name: "tape",
    fetchOrchestrationItems: ({ versions }) =>
      Effect.sync(() => {
        versionsAsked = versions
        return instances.splice(0)
      }),
    ackOrchestrationItems: settleEach((ack) =>
      ack.executionId === null ? { _tag: "Dropped", enqueued: enqueued.splice(0) } : { _tag: "Stored", ack }
    ),
    abandonOrchestrationItems: givenBack,
    fetchWorkItems: () => Effect.sync(() => activities.splice(0)),
    ackWorkItems: settleEach(({ completion }) => ({ _tag: "Completed", completion: completion?.workItem ?? null })),
    abandonWorkItems: givenBack,
    renewOrchestrationItemLocks: (items) => Effect.succeed(items.map(() => "Done")),
    // The fault of one recording: the procedure is missing. The lock is not lost.
    renewWorkItemLocks: () =>
      Effect.suspend(() => {
        if (++renewals === 2) renewalsFailed.openUnsafe()
        return Effect.fail(
          new ProviderError.ProviderError({
            operation: "renewWorkItemLock",
            reason: new ProviderError.SchemaMismatch({ problem: "function does not exist", sqlState: "42883" })
          })
        )
      }),
    deferMessages: unused("deferMessages"),
    appendChunks: unused("appendChunks"),
    readChunks: unused("readChunks"),
    resumeChunks: unused("resumeChunks"),
    wakeBlocked: () => Effect.succeed(0),
    registerProcess: () => Effect.succeed(null),
    removeProcess: () => Effect.void,
    readPaused: Effect.succeed([]),
    enqueueForOrchestrator: (messages) =>
      Effect.sync(() => {
        enqueued.push(...messages)
        return messages.map(() => "Sent" as const)
      }),
    sweepMessages: () => Effect.succeed({ deleted: 0, next: null }),
    readBacklog: unused("readBacklog"),
    enqueueForWorker: unused("enqueueForWorker"),
    startOrchestrations: unused("startOrchestrations"),
    readHistory: unused("readHistory"),
    appendHistory: unused("appendHistory"),
    readInstances: unused("readInstances"),
    readEnds: unused("readEnds"),
    readProgress: unused("readProgress"),
    readKeyValues: unused("readKeyValues"),
    readInstanceStats: unused("readInstanceStats"),
    renewSessionLocks: unused("renewSessionLocks"),
    cleanupOrphanedSessions: Effect.suspend(unused("cleanupOrphanedSessions"))
  }

  const notifier = Notifier.Notifier.of({
    name: "tape",
    listen: (listening) =>
      Effect.sync(() => {
        listener = listening
        listening.connected()
      }),
    announce: () => Effect.void
  })

  return {
    layer: Layer.merge(Layer.succeed(ProviderDriver.ProviderDriver, driver), Notifier.layer(notifier)),
    deliver: (batch) =>
      offer((lockToken) => {
        instances.push({
          ...batch,
          lockToken,
          messages: batch.messages.map((workItem, index) => ({
            id: index + 1,
            workItem,
            enqueuedAtMs: batch.nowMs,
            attemptCount: batch.attemptCount
          })),
          isWholeHistory: true
        })
        return "orchestrator"
      }),
    deliverActivity: (item) =>
      offer((lockToken) => {
        activities.push({ ...item, lockToken })
        return "worker"
      }),
    renewalsFailed: renewalsFailed.await,
    asked: Effect.sync(() => ({ _tag: "Asked", versions: versionsAsked }))
  }
})
