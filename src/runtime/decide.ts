/**
 * Decides what a delivery comes to. Pure: the dispatchers carry the decisions out.
 *
 * A claimed instance runs, fails for good, is dropped or is abandoned; an activity runs, fails for good or is
 * abandoned. What happens when the store does not take a turn or an outcome is decided here as well.
 */
import * as Duration from "effect/Duration"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import type { Block, BlockReport } from "../model/Block.ts"
import * as ErrorDetails from "../model/ErrorDetails.ts"
import type { PayloadMismatch } from "../model/shared/payload.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import type { Claimed, OrchestrationItem, Turn } from "../provider/Provider.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { verdict } from "../provider/shared/unstored.ts"
import type { WarmProgram } from "../replay/turn.ts"
import * as batches from "./batch.ts"
import { failedTurn, poisonedActivity, poisonedInstance, refusedByStore } from "./failing.ts"
import type { NotCommitted, Within } from "./handlers.ts"
import type { Registration, Registry } from "./registry.ts"
import type { Settings } from "./settings.ts"

/** The claim is abandoned: the work will be delivered again. */
export interface Abandon<Because extends string> {
  readonly _tag: "Abandon"
  readonly because: Because
  /** Pause before the next delivery; `growing` pauses double with each failure in a row. */
  readonly pause: Duration.Duration | "none" | "growing"
  /** Whether the delivery counts towards `maxAttempts`, after which work is poison. */
  readonly counts: boolean
  /** Whether the next batch of the instance begins with what begins its execution, without a pause if that is due. */
  readonly beginsFirst?: boolean
  /** For the log. */
  readonly problem?: string
  /** Set when no build like this one can run the turn: the instance is blocked. */
  readonly block?: Omit<BlockReport, "build">
}

/** For work that is not at fault. */
export const postponed = <Because extends string>(because: Because, problem?: string): Abandon<Because> => ({
  _tag: "Abandon",
  because,
  pause: "growing",
  counts: false,
  ...(problem !== undefined && { problem })
})

/**
 * For an instance whose turn this code cannot run. A program that never rests takes seconds of processor time at each
 * try, so it is tried seldom.
 */
export const blocked = ({ eventId, problem, reason }: Omit<BlockReport, "build">): Abandon<"Blocked"> => ({
  _tag: "Abandon",
  because: "Blocked",
  pause: reason === "Endless" ? Duration.minutes(10) : "growing",
  counts: false,
  problem,
  block: { reason, problem: problem.slice(0, maxProblemLength), eventId }
})

/** What happens to a signal that blocks its instance, for people. */
export const untilSetAside = ({ unreadableSignalTimeout }: Pick<Settings, "unreadableSignalTimeout">): string =>
  Duration.isFinite(unreadableSignalTimeout)
    ? `; the signal is set aside if no process reads it within ${Duration.format(unreadableSignalTimeout)} ` +
      "(unreadableSignalTimeout)"
    : ""

/** Whether an instance continues without a signal that it cannot read; `block` is what blocks it so far. */
export const maySetAside = (
  { arrivedAtMs, eventId }: { readonly eventId: number; readonly arrivedAtMs: number },
  block: Pick<Block, "eventId" | "reason" | "sinceMs"> | null,
  nowMs: number,
  { unreadableSignalTimeout }: Pick<Settings, "unreadableSignalTimeout">
): boolean => {
  const isBlocked = block?.reason === "DataUnreadable" && block.eventId === eventId
  // Something else may have blocked it before the signal came.
  const blockedMs = isBlocked ? nowMs - Math.max(block.sinceMs, arrivedAtMs) : 0
  return blockedMs >= Duration.toMillis(unreadableSignalTimeout)
}

/** For work that may be at fault: its handling threw. */
export const broken: Abandon<"Broke"> = { _tag: "Abandon", because: "Broke", pause: "growing", counts: true }

// -- instances -------------------------------------------------------------------------------------

export type InstanceDecision =
  /** The warm program resumes. */
  | { readonly _tag: "Resume"; readonly batch: batches.Run; readonly warm: WarmProgram }
  /** The item has no history, and no warm program can resume without it. */
  | { readonly _tag: "ReadHistory" }
  | { readonly _tag: "Replay"; readonly batch: batches.Run; readonly registration: Registration }
  /** The instance has ended: its messages are deleted, and parents whose child could not start are notified. */
  | { readonly _tag: "Drop"; readonly rejections: ReadonlyArray<WorkItem.WorkItem> }
  | { readonly _tag: "FailAsPoison"; readonly turn: Turn; readonly deliveries: number }
  | Abandon<"HistoryUnreadable" | "Early" | "Unserved" | "Paused">

/** Why the claim of an instance is abandoned. */
export type InstanceAbandoned =
  | "HistoryUnreadable"
  | "HistoryNotRead"
  | "Early"
  | "Unserved"
  | "Paused"
  | "TurnNotStored"
  | "MessagesNotDropped"
  | "Blocked"
  | "Broke"

/** `warm` is the program of this instance that waits in memory, if there is one. */
export const instance = (
  { attemptCount, item }: Pick<Claimed<OrchestrationItem>, "attemptCount" | "item">,
  { isPaused, maxAttempts, registry, warm }: {
    readonly registry: Pick<Registry, "resolve">
    readonly isPaused: (name: string, version: string) => boolean
    readonly maxAttempts: number
    readonly warm: WarmProgram | undefined
  }
): InstanceDecision => {
  const earlierDeliveries = attemptCount - 1
  if (item.isKnownHistory) {
    const batch = warm === undefined || earlierDeliveries >= maxAttempts ? undefined : batches.read(item, warm.started)
    if (batch?._tag === "Run" && isPaused(warm!.started.name, warm!.started.version)) return postponed("Paused")
    return batch?._tag === "Run" ? { _tag: "Resume", batch, warm: warm! } : { _tag: "ReadHistory" }
  }
  const batch = batches.read(item)
  // An instance that has ended stays as it ended, however often its messages were delivered.
  if (batch._tag === "Drop") return { _tag: "Drop", rejections: batch.rejections }
  if (earlierDeliveries >= maxAttempts) {
    const turn = failedTurn(item, batch, poisonedInstance(item, earlierDeliveries, maxAttempts))
    return { _tag: "FailAsPoison", turn, deliveries: earlierDeliveries }
  }
  // Another release may be able to read it.
  if (Option.isSome(item.historyError)) return unreadableHistory(item.historyError.value)
  // The start of the execution is not visible yet, or behind more messages than one batch holds.
  if (batch._tag === "Early") return { ...postponed("Early"), beginsFirst: true }
  const registration = registry.resolve(batch.started.name, batch.version)
  if (registration === undefined) return unserved(`${batch.started.name}@${batch.started.version}`)
  return isPaused(registration.name, registration.version)
    ? postponed("Paused")
    : { _tag: "Replay", batch, registration }
}

/** What happens to an instance when the store does not take its turn. */
export type UnstoredTurn =
  | { readonly _tag: "Replay" }
  | { readonly _tag: "Fail"; readonly turn: Turn }
  /** Another process may have the instance. If its lock has only expired, the delivery does not count. */
  | { readonly _tag: "Release" }
  | Abandon<"TurnNotStored">

/** What made the turn that the store has not taken: a warm program, a replay (or poison), or an earlier refusal. */
export type TurnOrigin = "Resume" | "Replay" | "Refusal"

export const unstoredTurn = (error: ProviderError, origin: TurnOrigin, item: OrchestrationItem): UnstoredTurn => {
  const answer = verdict(error)
  if (answer === "Lost") return { _tag: "Release" }
  if (answer === "Kept" || origin === "Refusal") return postponed("TurnNotStored", error.message)
  // The store will refuse the turn of the replay as well, but only a replay can fail the instance.
  if (origin === "Resume") return { _tag: "Replay" }
  // The store will never take what this turn stores, so running it again would only repeat that.
  return { _tag: "Fail", turn: failedTurn(item, batches.read(item), refusedByStore(error)) }
}

// -- turns without a claim -------------------------------------------------------------------------

/** The item that a claim of the start would hand out at once, and how it runs; undefined: the claim decides. */
export const firstTurn = (
  start: WorkItem.Of<"StartOrchestration">,
  nowMs: number,
  registry: Pick<Registry, "resolve">,
  isPaused: (name: string, version: string) => boolean
):
  | { readonly item: OrchestrationItem; readonly batch: batches.Run; readonly registration: Registration }
  | undefined =>
{
  const item: OrchestrationItem = {
    instanceId: start.instance,
    orchestrationName: start.orchestration,
    orchestrationVersion: start.version ?? "unknown",
    executionId: 1,
    nowMs,
    history: [],
    isKnownHistory: false,
    historyError: Option.none(),
    messages: [start],
    messageIds: [0],
    enqueuedAtMs: [nowMs],
    keyValues: new Map()
  }
  const decision = instance({ attemptCount: 1, item }, { registry, isPaused, maxAttempts: 1, warm: undefined })
  return decision._tag === "Replay" ? { item, ...decision } : undefined
}

/**
 * Whether an outcome can be stored together with the turn it leads to. The outcome of a second delivery is stored
 * first: a turn that kills its process must not make the activity run again and again.
 */
export const canAdvance = (
  { attemptCount, item }: Pick<Claimed<Activity>, "attemptCount" | "item">,
  warm: WarmProgram
): boolean =>
  attemptCount === 1 && warm.isSound() && warm.executionId === item.executionId &&
  // The instance may have been deleted, and started again with the same id.
  warm.started.timestampMs === item.startedAtMs

/** The time of a turn without a claim. Time does not run backwards in a history. */
export const optimisticTime = (storeNowMs: number, warm: WarmProgram): number =>
  Math.max(storeNowMs, warm.lastEvent.timestampMs)

/** How many activities of a turn may be handed over to this process, at most: the store looks at their tags as well. */
export const mayBeHandedOver = ({ forRust, workerItems }: Turn, activities: ReadonlySet<string>): number =>
  workerItems.filter((item) => item.sessionId === undefined && activities.has(item.name) && forRust?.has(item) !== true)
    .length

// -- activities ------------------------------------------------------------------------------------

export type Activity = WorkItem.Of<"ActivityExecute">
export type Completion = WorkItem.Of<"ActivityCompleted"> | WorkItem.Of<"ActivityFailed">

export type ActivityDecision<Handler> =
  | { readonly _tag: "Run"; readonly handler: Handler }
  | { readonly _tag: "FailAsPoison"; readonly completion: Completion; readonly deliveries: number }
  | Abandon<"Unserved" | "Paused">

export const activity = <Handler>(
  { attemptCount, item }: Pick<Claimed<Activity>, "attemptCount" | "item">,
  { handlers, isPaused, maxAttempts }: {
    readonly handlers: ReadonlyMap<string, Handler>
    readonly isPaused: (name: string, tag: string | undefined) => boolean
    readonly maxAttempts: number
  }
): ActivityDecision<Handler> => {
  const earlierDeliveries = attemptCount - 1
  if (earlierDeliveries >= maxAttempts) {
    const completion = failed(item, poisonedActivity(item, earlierDeliveries, maxAttempts))
    return { _tag: "FailAsPoison", completion, deliveries: earlierDeliveries }
  }
  const handler = handlers.get(item.name)
  if (isPaused(item.name, item.tag)) return postponed("Paused")
  return handler === undefined ? unserved(item.name) : { _tag: "Run", handler }
}

export const completed = (
  { executionId, id, instance }: Activity,
  result: string
): WorkItem.Of<"ActivityCompleted"> => ({ _tag: "ActivityCompleted", instance, executionId, id, result })

/** What happens when a handler has ended. */
export type HandlerEnd =
  | {
    readonly _tag: "Store"
    readonly completion: Completion
    /** The handler never ran, because its Schema refuses the payload: to be logged as a death. */
    readonly unread?: PayloadMismatch
  }
  /** Its transaction has settled the claim, or the lock is lost. */
  | Within
  | Abandon<"HandlerInterrupted" | "Blocked" | "NotCommitted">

export const handlerEnd = (
  item: Activity,
  exit: Exit.Exit<string | Within, ErrorDetails.ErrorDetails | PayloadMismatch | NotCommitted>,
  mayBlock: boolean
): HandlerEnd => {
  if (Exit.isSuccess(exit)) {
    const { value } = exit
    return typeof value === "string" ? { _tag: "Store", completion: completed(item, value) } : value
  }
  const reason = exit.cause.reasons.find((reason) => reason._tag === "Fail")
  if (reason !== undefined) {
    const { error } = reason
    if (error._tag === "NotCommitted") {
      return { _tag: "Abandon", because: "NotCommitted", pause: "growing", counts: error.counts }
    }
    if (error._tag !== "PayloadMismatch") return { _tag: "Store", completion: failed(item, error) }
    // Only this package writes the start of the execution; others' activities fail as they do in Duroxide.
    return mayBlock && item.startedAtMs !== undefined
      ? blocked({ reason: "DataUnreadable", problem: error.message, eventId: item.id })
      : { _tag: "Store", completion: failed(item, ErrorDetails.died(error)), unread: error }
  }
  // The handler interrupted itself: its outcome is unknown.
  return { _tag: "Abandon", because: "HandlerInterrupted", pause: "none", counts: true }
}

/**
 * What happens to an activity when the store does not take its outcome. The handler runs again only if the store
 * refuses even the failure (`OutcomeRefused`).
 */
export type UnstoredOutcome =
  | { readonly _tag: "Retry" }
  | { readonly _tag: "Fail"; readonly completion: Completion }
  /** The activity was cancelled, runs in another process, or an earlier try has stored its outcome. */
  | { readonly _tag: "Leave" }
  | Abandon<"OutcomeRefused">

export const unstoredOutcome = (item: Activity, completion: Completion, error: ProviderError): UnstoredOutcome => {
  const answer = verdict(error)
  if (answer === "Lost") return { _tag: "Leave" }
  if (answer === "Kept") return { _tag: "Retry" }
  // The store will never take this outcome, so running the handler again would only repeat that.
  return completion._tag === "ActivityFailed" && completion.details._tag === "Infrastructure"
    ? { _tag: "Abandon", because: "OutcomeRefused", pause: "growing", counts: true }
    : { _tag: "Fail", completion: failed(item, refusedByStore(error)) }
}

// internal

/** Longest text of a problem that is stored, in UTF-16 code units. */
const maxProblemLength = 2_000

const unreadableHistory = (problem: string): Abandon<"HistoryUnreadable"> => ({
  ...blocked({ reason: "DataUnreadable", problem, eventId: 0 }),
  because: "HistoryUnreadable"
})

/** This process does not serve the work, and should not have received it. */
const unserved = (name: string): Abandon<"Unserved"> => ({
  _tag: "Abandon",
  because: "Unserved",
  pause: Duration.seconds(1),
  counts: false,
  problem: `this process does not serve ${name}`
})

const failed = (item: Activity, details: ErrorDetails.ErrorDetails): Completion => ({
  _tag: "ActivityFailed",
  instance: item.instance,
  executionId: item.executionId,
  id: item.id,
  details
})
