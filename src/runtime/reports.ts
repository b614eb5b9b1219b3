/**
 * Logs and metrics of turns.
 */
import * as Cause from "effect/Cause"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as ErrorDetails from "../model/ErrorDetails.ts"
import type * as Event from "../model/Event.ts"
import * as Metrics from "../model/Metrics.ts"
import { logDeath } from "../model/shared/defect.ts"
import { seriesOf } from "../model/shared/labelled.ts"
import { aboutInstance, isDebugging } from "../model/shared/logging.ts"
import type { Turn } from "../provider/Provider.ts"
import type * as turns from "../replay/turn.ts"
import type { WarmInstances } from "./warmInstances.ts"

export const component = "Orchestration dispatcher"

export const reportWarm = (warm: WarmInstances) =>
  Effect.andThen(
    Metric.update(Metrics.warmInstances, warm.count),
    Metric.update(Metrics.warmInstanceBytes, warm.bytes)
  )

/** The execution of a turn. */
interface Execution {
  readonly name: string
  readonly version: string
  /** The first event, unless it cannot be read. */
  readonly started?: Event.Event | undefined
}

/** The execution that begins with this event, or in this turn. */
export const executionOf = (
  name: string,
  first: Event.Event | undefined,
  { historyDelta }: Pick<Turn, "historyDelta">
): Execution => {
  const started = first ?? historyDelta[0]
  return started?._tag === "OrchestrationStarted"
    ? { name, version: started.version, started }
    : { name, version: "unknown" }
}

/** Counts a turn that is stored. */
export const countTurn = (execution: Execution, turn: Pick<Turn, "historyDelta">): Effect.Effect<void> =>
  Effect.contextWith((context: Context.Context<never>) => Effect.sync(() => count(execution, turn, context)))

/** Counts a turn of a program, and logs how it ended. */
export const report = (execution: Execution, ran: turns.Ran): Effect.Effect<void> =>
  Effect.contextWith((context: Context.Context<never>) => {
    const { lostSignals, requests, turn } = ran
    count(execution, turn, context)
    if (lostSignals > 0) lost(execution.name).updateUnsafe(lostSignals, context)
    const signals = requests.flatMap(({ action, event: { executionId } }) =>
      action._tag === "RecordSetAside" ? { ...action, executionId } : []
    )
    if (signals.length === 0 && isRoutine(ran.outcome) && !isDebugging(context)) return Effect.void
    const end = lineOf(ran)
    return Effect.annotateLogs(
      signals.length === 0 ? end : Effect.andThen(reportSetAside(execution.name, signals), end),
      { orchestration_name: execution.name, new_events: turn.historyDelta.length }
    )
  })

// internal

const count = (
  { name, started, version }: Execution,
  { historyDelta }: Pick<Turn, "historyDelta">,
  context: Context.Context<never>
): void => {
  turned(name).updateUnsafe(1, context)
  const [first] = historyDelta
  if (first?._tag === "OrchestrationStarted") starts(name, version, initiatorOf(first)).updateUnsafe(1, context)
  const last = historyDelta.at(-1)
  const status = last === undefined ? undefined : statusOf(last)
  if (status === undefined) return
  completions(name, version, status).updateUnsafe(1, context)
  historySizes(name).updateUnsafe(last!.eventId, context)
  if (started !== undefined) {
    // The clock of the store may have been set back meanwhile.
    const ms = Math.max(0, last!.timestampMs - started.timestampMs)
    durations(name, version, status).updateUnsafe(ms / 1_000, context)
  }
  if (status === "failed" && last!._tag === "OrchestrationFailed") {
    failures(name, version, errorTypes[last.details._tag]).updateUnsafe(1, context)
    if (isPoisonOf(last.details)) Metrics.orchestrationPoison.updateUnsafe(1, context)
  }
}

/** Whether the line about it is for debugging. */
const isRoutine = (outcome: turns.Outcome) => outcome._tag !== "Failed" || isExpected(outcome.details)

const lineOf = ({ diedOf, outcome }: turns.Ran): Effect.Effect<void> =>
  outcome._tag === "Waiting"
    ? Effect.logDebug(`${component}: turn stored, instance waits`)
    : outcome._tag !== "Failed"
    ? Effect.logDebug(`${component}: instance ${outcome._tag === "Completed" ? "completed" : "continues as new"}`)
    : isExpected(outcome.details)
    ? Effect.logDebug(`${component}: instance failed with an error of its Schema`)
    : diedOf !== undefined
    ? logDeath(`${component}: program died, its instance fails`, Cause.squash(diedOf))
    : isChangedCode(outcome.details)
    ? Effect.annotateLogs(
      Effect.logError(
        `${component}: instance failed, its code has changed, or reads time or chance outside of Effect: bring the old code back, or make the change a new version`
      ),
      { error: failureReason(outcome.details) }
    )
    : Effect.logWarning(`${component}: instance failed: ${failureReason(outcome.details)}`)

const reportSetAside = (
  orchestrationName: string,
  signals: ReadonlyArray<{ readonly name: string; readonly signalId: number; readonly executionId: number }>
): Effect.Effect<void> =>
  Effect.forEach(
    signals,
    ({ executionId, name, signalId }) =>
      Effect.logError(
        `${component}: a signal that no process could read is set aside; deploy a build that reads it, and redrive it`
      ).pipe(
        // The turn may begin another execution than it was claimed for.
        Effect.annotateLogs({ signal: name, event_id: signalId, execution_id: executionId }),
        Effect.andThen(Metric.update(setAside(orchestrationName), 1))
      ),
    { discard: true }
  )

const starts = seriesOf(Metrics.orchestrationStarts)
const lost = seriesOf(Metrics.signalsLost)
const setAside = seriesOf(Metrics.signalsSetAside)
const turned = seriesOf(Metrics.orchestrationTurns)
const completions = seriesOf(Metrics.orchestrationCompletions)
const failures = seriesOf(Metrics.orchestrationFailures)
const durations = seriesOf(Metrics.orchestrationDuration)
const historySizes = seriesOf(Metrics.orchestrationHistorySize)

const initiatorOf = ({ executionId, parentInstance }: Event.Of<"OrchestrationStarted">) =>
  executionId > 1 ? "continueAsNew" : parentInstance === null ? "client" : "suborchestration"

/** Undefined: the execution has not ended. */
const statusOf = (last: Event.Event) =>
  last._tag === "OrchestrationCompleted"
    ? "success"
    : last._tag === "OrchestrationContinuedAsNew"
    ? "continuedAsNew"
    : last._tag !== "OrchestrationFailed"
    ? undefined
    : ErrorDetails.cancellationOf(last.details) !== undefined
    ? "cancelled"
    : "failed"

const errorTypes: { readonly [T in ErrorDetails.ErrorDetails["_tag"]]: string } = {
  Application: "app_error",
  Infrastructure: "infrastructure_error",
  Configuration: "config_error",
  Poison: "poison"
}

/** The instance itself, and not one of its activities. */
const isPoisonOf = (details: ErrorDetails.ErrorDetails) =>
  details._tag === "Poison" && !("Activity" in details.messageType)

const isChangedCode = (details: ErrorDetails.ErrorDetails) =>
  details._tag === "Configuration" && ErrorDetails.display(details).startsWith("nondeterministic")

// Errors of the program's own Schema and cancellations are outcomes that the application asked for.
const isExpected = (details: ErrorDetails.ErrorDetails) => details._tag === "Application" && details.kind !== "Panicked"

// The message of an application error is a payload. The message of an exceeded limit is written by this package.
const failureReason = (details: ErrorDetails.ErrorDetails) =>
  details._tag !== "Application"
    ? ErrorDetails.display(details)
    : details.kind === "Panicked"
    ? details.message
    : typeof details.kind === "string"
    ? details.kind
    : "Cancelled"

/** Programs that continue outside their turn; each is reported once. */
export class StrayReport {
  private readonly reported = new Set<string>()
  private readonly pending: Array<{ readonly name: string; readonly instanceId: string }> = []
  add(name: string, instanceId: string) {
    if (this.reported.has(name)) return
    this.reported.add(name)
    this.pending.push({ name, instanceId })
  }
  readonly flush: Effect.Effect<void> = Effect.suspend(() =>
    Effect.forEach(this.pending.splice(0), ({ instanceId, name }) =>
      Effect.logError(
        `${component}: program continues outside its turn: it awaits something that is not durable. Put it in an activity`
      ).pipe(aboutInstance({ orchestration_name: name, instance_id: instanceId })), { discard: true })
  )
}

/** Reading and replaying as many events takes about half a second, in which the process runs nothing else. */
const longHistory = 10_000

/** Instances whose history is long; each is reported once. */
export class LongHistoryReport {
  private readonly reported = new Set<string>()
  private readonly pending: Array<{ readonly name: string; readonly instanceId: string; readonly events: number }> = []
  add(name: string, { outcome, turn }: Pick<turns.Ran, "outcome" | "turn">) {
    const last = turn.historyDelta.at(-1)
    if (last === undefined || last.eventId < longHistory || outcome._tag !== "Waiting") return
    const { eventId: events, instanceId } = last
    if (this.reported.has(instanceId)) return
    // A process that has seen so many may repeat itself.
    if (this.reported.size >= mostReported) this.reported.clear()
    this.reported.add(instanceId)
    this.pending.push({ name, instanceId, events })
  }
  readonly flush: Effect.Effect<void> = Effect.suspend(() =>
    Effect.forEach(this.pending.splice(0), ({ events, instanceId, name }) =>
      Effect.logWarning(
        `${component}: the history of an instance is long, its replays get slow: its program should call continueAsNew`
      ).pipe(aboutInstance({ orchestration_name: name, instance_id: instanceId, events })), { discard: true })
  )
}

const mostReported = 10_000
