/**
 * Logs and metrics of turns.
 */
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as ErrorDetails from "../model/ErrorDetails.ts"
import { labelled } from "../model/internal/labelled.ts"
import * as Metrics from "../model/Metrics.ts"
import type * as turns from "../replay/turn.ts"
import type { WarmInstances } from "./warmInstances.ts"

export const component = "Orchestration dispatcher"

export const reportWarm = (warm: WarmInstances) =>
  Effect.andThen(
    Metric.update(Metrics.warmInstances, warm.count),
    Metric.update(Metrics.warmInstanceBytes, warm.bytes)
  )

const starts = labelled(Metrics.orchestrationStarts, ["orchestration_name"])
const turned = labelled(Metrics.orchestrationTurns, ["orchestration_name"])
const completions = labelled(Metrics.orchestrationCompletions, ["orchestration_name", "status"])

export const report = (name: string, { diedOf, outcome, turn }: turns.Ran) => {
  const isFirst = turn.historyDelta[0]?._tag === "OrchestrationStarted"
  const both = isFirst ? Effect.andThen(starts(name), turned(name)) : turned(name)
  if (outcome._tag === "Waiting") return both
  const status = outcome._tag === "Completed" ? "success" : outcome._tag === "Failed" ? "failed" : "continuedAsNew"
  return both.pipe(
    Effect.andThen(completions(name, status)),
    Effect.andThen(
      outcome._tag !== "Failed"
        ? Effect.logDebug(`${component}: instance ${outcome._tag === "Completed" ? "completed" : "continues as new"}`)
        : isExpected(outcome.details)
        ? Effect.logDebug(`${component}: instance failed with an error of its Schema`)
        : diedOf !== undefined
        ? Effect.logError(`${component}: program died, its instance fails`, diedOf)
        : Effect.logWarning(`${component}: instance failed: ${failureReason(outcome.details)}`)
    ),
    Effect.annotateLogs({ orchestration: name, newEvents: turn.historyDelta.length })
  )
}

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
      ).pipe(Effect.annotateLogs({ orchestration: name, instanceId })), { discard: true })
  )
}
