/**
 * The operations of a driver: how often each is sent, its name in metrics, and what its answer means for the locks that
 * this process holds.
 */
import type * as Effect from "effect/Effect"
import type { Queue } from "../../waking/Notifier.ts"
import type { HandedOver, HandOver, ProviderDriver, Settled, WorkItemRenewed } from "../ProviderDriver.ts"
import type { HeldLocks } from "./heldLocks.ts"

type Driver = ProviderDriver["Service"]

/** The locks that this process holds, in both queues. */
export interface Locks extends Record<Queue, Pick<HeldLocks, "expect" | "hold" | "release">> {
  /** A statement may have stored or taken work, and its answer has not arrived. */
  readonly lostAnswer: () => void
  /** Waits, at most 5 seconds, until the others know when to look for what is about to be stored; see `HeldLocks`. */
  readonly known: () => Effect.Effect<void> | undefined
}

export interface Operation<Input, Answer> {
  /** Name in metrics, as in Duroxide's observability guide. Defaults to the operation in snake case. */
  readonly label?: string
  /**
   * `claim`: it takes work and its locks. `renewal`: it extends locks. `write`: it stores work that others may take, or
   * settles what was claimed. `plain`: a read, or housekeeping.
   */
  readonly kind: "claim" | "renewal" | "write" | "plain"
  /** The queue of a claim or a renewal. */
  readonly queue?: Queue
  /**
   * Whether a retryable failure is repeated. `set`: with two exceptions. If one of several items may have caused it,
   * each is sent alone. If another transaction locks what it writes, `coalescer.ts` tries again after longer pauses.
   * Defaults to `never`.
   */
  readonly repeats?: "always" | "set" | "never"
  /** Each send of an item after its first is counted. Defaults to false. */
  readonly countsRepeats?: boolean
  /** Length of the locks that a claim or a renewal asks for. */
  lockTimeoutMs?(input: Input): number
  /** Called before each send of a write: an activity that its answer hands over may end the process. */
  sends?(input: Input, locks: Locks): void
  answered?(input: Input, answer: Answer, locks: Locks): void
  /** The connection was lost: the locks that it may have taken stay with this process. */
  lost?(input: Input, locks: Locks): void
}

type Call<K extends keyof Driver> = NonNullable<Driver[K]>
type Input<K extends keyof Driver> = Call<K> extends (input: infer I) => unknown ? I : undefined
type Answer<K extends keyof Driver> = Call<K> extends (input: never) => Effect.Effect<infer A, unknown> ? A
  : Call<K> extends Effect.Effect<infer A, unknown> ? A
  : never

type Operations = { readonly [K in Exclude<keyof Driver, "name" | "pauseListeners">]-?: Operation<Input<K>, Answer<K>> }

// -- what answers mean -----------------------------------------------------------------------------

/** Stands for locks whose tokens have not arrived. */
const unknownToken = "unknown"

const claims = (queue: Queue) => ({
  kind: "claim" as const,
  queue,
  lockTimeoutMs: ({ lockTimeoutMs }: { readonly lockTimeoutMs: number }) => lockTimeoutMs,
  answered: (
    { lockTimeoutMs }: { readonly lockTimeoutMs: number },
    claimed: ReadonlyArray<{ readonly lockToken: string }>,
    locks: Locks
  ) => {
    for (const { lockToken } of claimed) locks[queue].hold(lockToken, lockTimeoutMs)
  },
  lost: ({ lockTimeoutMs }: { readonly lockTimeoutMs: number }, locks: Locks) =>
    locks[queue].hold(unknownToken, lockTimeoutMs)
})

const settles = (queue: Queue) => ({
  kind: "write" as const,
  answered: (
    items: ReadonlyArray<{ readonly lockToken: string }>,
    answers: ReadonlyArray<Settled>,
    locks: Locks
  ) => {
    // After a duplicate event the claim is still there.
    items.forEach(({ lockToken }, i) => answers[i] !== "DuplicateEvent" && locks[queue].release(lockToken))
  }
})

interface Renewed {
  readonly lockToken: string
  readonly extendForMs: number
  readonly sufficientMs?: number
}

const renews = (queue: Queue) => ({
  kind: "renewal" as const,
  queue,
  repeats: "set" as const,
  lockTimeoutMs: (items: ReadonlyArray<Renewed>) => Math.max(...items.map(({ extendForMs }) => extendForMs)),
  answered: (items: ReadonlyArray<Renewed>, answers: ReadonlyArray<Settled | WorkItemRenewed>, locks: Locks) => {
    items.forEach(({ extendForMs, lockToken, sufficientMs = extendForMs }, i) => {
      if (answers[i] === "Done") locks[queue].hold(lockToken, Math.min(sufficientMs, extendForMs))
      else if (answers[i] !== "Locked") locks[queue].release(lockToken)
    })
  }
})

/** A statement that may hand activities over. */
const handsOver = <Item>(handOverOf: (item: Item) => HandOver | null | undefined) => ({
  kind: "write" as const,
  sends: (items: ReadonlyArray<Item>, { worker }: Locks) => {
    for (const item of items) {
      const handOver = handOverOf(item)
      if (handOver) worker.expect(handOver.lockTimeoutMs)
    }
  },
  lost: (items: ReadonlyArray<Item>, { worker }: Locks) => {
    for (const item of items) {
      const handOver = handOverOf(item)
      if (handOver) worker.hold(unknownToken, handOver.lockTimeoutMs)
    }
  }
})

const hold = (tokens: ReadonlyArray<HandedOver>, handOver: HandOver | null | undefined, { worker }: Locks) => {
  if (handOver) { for (const { lockToken } of tokens) worker.hold(lockToken, handOver.lockTimeoutMs) }
}

// -- table -----------------------------------------------------------------------------------------

const plain = { kind: "plain" } as const

const read = { kind: "plain", repeats: "always" } as const

export const operations: Operations = {
  // Its caller repeats it: each try asks for as many bytes as may travel in time.
  fetchOrchestrationItems: { ...claims("orchestrator"), label: "fetch" },
  ackOrchestrationItems: { ...settles("orchestrator"), label: "ack_orch", repeats: "set", countsRepeats: true },
  abandonOrchestrationItems: { ...settles("orchestrator"), label: "abandon_orch" },
  wakeBlocked: { kind: "write", repeats: "always" },
  registerProcess: plain,
  removeProcess: plain,
  renewOrchestrationItemLocks: { ...renews("orchestrator"), label: "renew_orch" },
  deferMessages: plain,

  enqueueForOrchestrator: { kind: "write", label: "enqueue" },
  enqueueForWorker: { kind: "write", label: "enqueue_worker" },
  startOrchestrations: {
    ...handsOver(({ firstTurn }) => firstTurn?.handOver),
    label: "enqueue",
    answered: (starts, answers, locks) =>
      answers.forEach((answer, i) => {
        if (typeof answer === "string" || answer._tag !== "Begun") return
        hold(answer.handedOver, starts[i]!.firstTurn?.handOver, locks)
      })
  },
  advanceOrchestrations: {
    ...handsOver(({ handOver }) => handOver),
    label: "advance_orch",
    answered: (turns, answers, locks) =>
      answers.forEach((answer, i) => {
        for (const { lockToken } of turns[i]!.results) locks.worker.release(lockToken)
        if (answer._tag === "Advanced") hold(answer.handedOver, turns[i]!.handOver, locks)
      })
  },

  fetchWorkItems: { ...claims("worker"), label: "dequeue_worker", repeats: "always" },
  ackWorkItems: { ...settles("worker"), label: "ack_worker" },
  // Its locks are released after the commit.
  ackWorkItemWithin: { kind: "write", label: "ack_worker" },
  abandonWorkItems: { ...settles("worker"), label: "abandon_worker" },
  renewWorkItemLocks: { ...renews("worker"), label: "renew_worker" },
  renewSessionLocks: { kind: "plain", repeats: "always" },
  cleanupOrphanedSessions: plain,

  // Their caller repeats them, and says which may be stored already.
  appendChunks: plain,
  readChunks: { kind: "plain", repeats: "set" },
  resumeChunks: read,

  readHistory: read,
  readInstances: { kind: "plain", repeats: "set" },
  readEnds: read,
  readProgress: read,
  readKeyValues: read,
  readInstanceStats: read,
  readBacklog: read,
  readNextDue: read,
  readLocks: read,
  readPaused: read,
  appendHistory: plain,
  sweepMessages: { kind: "plain", repeats: "always" }
}
