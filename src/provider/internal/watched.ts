/**
 * A driver whose statements are reported, each by itself, also those that a retry repeats: to the metrics, and to the log
 * of outages.
 */
import type * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as LogLevel from "effect/LogLevel"
import * as Metric from "effect/Metric"
import * as References from "effect/References"
import * as Metrics from "../../model/Metrics.ts"
import { seriesOf } from "../../model/shared/labelled.ts"
import { withHarmlessLoggers } from "../../model/shared/logging.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import type { ProviderDriver } from "../ProviderDriver.ts"
import type { ProviderError } from "../ProviderError.ts"
import type { Outages } from "./outages.ts"
import { isLockedElsewhere } from "./statement.ts"

type Driver = ProviderDriver["Service"]

/** The same driver. Its statements and what they carry are counted and logged, and `outages` learns of their outcomes. */
export const watched = (driver: Driver, outages: Outages, clock: Clock.Clock): Driver =>
  changed(driver, (operation, call, input) => {
    const sent = Array.isArray(input) ? input.length : undefined
    const batchSize = batchSizes(labelOf(operation))
    const claimSize = operation === "fetchOrchestrationItems"
      ? claimSizes("orchestrator")
      : operation === "fetchWorkItems"
      ? claimSizes("worker")
      : undefined
    return Effect.contextWith((context: Context.Context<never>) => {
      const isDebugging = LogLevel.isLessThanOrEqualTo(Context.get(context, References.MinimumLogLevel), "Debug")
      const begunMs = monotonicMs(clock)
      const tookMs = () => Math.round((monotonicMs(clock) - begunMs) * 1_000) / 1_000
      if (sent !== undefined) batchSize.updateUnsafe(sent, context)
      return call.pipe(
        Effect.tap((answer) => {
          const claimed = claimSize !== undefined && Array.isArray(answer) ? answer.length : undefined
          if (claimed !== undefined) claimSize!.updateUnsafe(claimed, context)
          // Claims that find nothing would fill the log.
          if (!isDebugging || claimed === 0) return outages.succeeded(operation)
          return Effect.andThen(
            outages.succeeded(operation),
            annotated(Effect.logDebug("Provider: statement answered"), {
              operation,
              duration_ms: tookMs(),
              ...(sent !== undefined && { items: sent }),
              ...(claimed !== undefined && { claimed })
            })
          )
        }),
        Effect.tapError((error) =>
          outages.failed(operation, error).pipe(
            Effect.andThen(countFailure(operation, error)),
            Effect.andThen(annotated(Effect.logDebug("Provider: statement failed"), {
              operation,
              duration_ms: tookMs(),
              error_type: error.reason._tag,
              error: error.message
            }))
          )
        )
      )
    })
  })

/** The same driver, with its failed statements counted. */
export const counted = <D extends object>(driver: D): D =>
  changed(driver, (operation, call) => Effect.tapError(call, (error) => countFailure(operation, error)))

/** The same sending of turns, with each send of a turn after its first counted. */
export const countingRepeats = <Turn extends object, A>(
  send: (turns: ReadonlyArray<Turn>) => Effect.Effect<A, ProviderError>
): typeof send => {
  const sent = new WeakSet<Turn>()
  return (turns) =>
    Effect.suspend(() => {
      const repeats = turns.filter((turn) => sent.has(turn)).length
      for (const turn of turns) sent.add(turn)
      return repeats === 0
        ? send(turns)
        : Effect.andThen(Metric.update(Metrics.ackOrchestrationRetries, repeats), send(turns))
    })
}

// internal

const annotated = (line: Effect.Effect<void>, fields: Record<string, unknown>) =>
  line.pipe(Effect.annotateLogs({ package: "duroxide-prisma", ...fields }), withHarmlessLoggers)

const changed = <D extends object>(
  driver: D,
  change: (
    operation: string,
    call: Effect.Effect<unknown, ProviderError>,
    input: unknown
  ) => Effect.Effect<unknown, ProviderError>
): D =>
  Object.fromEntries(
    Object.entries(driver).map(([operation, member]: [string, unknown]) => [
      operation,
      typeof member === "function"
        ? (input: unknown) => change(operation, Effect.suspend(() => member(input)), input)
        : Effect.isEffect(member)
        ? change(operation, member as Effect.Effect<unknown, ProviderError>, undefined)
        : member
    ])
  ) as D

const batchSizes = seriesOf(Metrics.statementBatchSize)
const claimSizes = seriesOf(Metrics.claimBatchSize)
const failures = seriesOf(Metrics.infrastructureErrors)

const countFailure = (operation: string, error: ProviderError) =>
  Metric.update(failures(labelOf(operation), errorType(error)), 1)

/** Names of Duroxide's observability guide, and the like of them. All others are the driver's names in snake case. */
const labels: { readonly [operation: string]: string } = {
  fetchOrchestrationItems: "fetch",
  ackOrchestrationItems: "ack_orch",
  advanceOrchestrations: "advance_orch",
  abandonOrchestrationItems: "abandon_orch",
  renewOrchestrationItemLocks: "renew_orch",
  startOrchestrations: "enqueue",
  enqueueForOrchestrator: "enqueue",
  enqueueForWorker: "enqueue_worker",
  fetchWorkItems: "dequeue_worker",
  ackWorkItems: "ack_worker",
  abandonWorkItems: "abandon_worker",
  renewWorkItemLocks: "renew_worker"
}

const labelOf = (operation: string) =>
  labels[operation] ?? operation.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

const errorType = (error: ProviderError) =>
  error.reason._tag !== "Contention"
    ? error.reason._tag === "ConnectionLost" || error.reason._tag === "Unavailable" ? "transaction_failed" : "unknown"
    : isLockedElsewhere(error)
    ? "lock_timeout"
    : "serialization_error"
