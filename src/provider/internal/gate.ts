/**
 * The one gate between the operations of a provider and the statements of its driver. It repeats a statement as the
 * table in `operations.ts` says, and reports each send by itself: to the metrics, to the log of outages, and to the
 * locks that this process holds.
 */
import type * as Cause from "effect/Cause"
import type * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Metrics from "../../model/Metrics.ts"
import { seriesOf } from "../../model/shared/labelled.ts"
import { isDebugging, ours } from "../../model/shared/logging.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import type { ProviderDriver } from "../ProviderDriver.ts"
import type { ProviderError } from "../ProviderError.ts"
import { isOfTheCall } from "../shared/isOfTheCall.ts"
import { isLockedElsewhere, mayRepeatSet, retried } from "../shared/statement.ts"
import { operations } from "./operations.ts"
import type { Locks, Operation } from "./operations.ts"
import * as outages from "./outages.ts"
import * as takeovers from "./takeovers.ts"

type Driver = ProviderDriver["Service"]
type Call = (input: unknown) => Effect.Effect<unknown, ProviderError>

export interface Gate {
  /** The driver through the gate. */
  readonly store: Driver
  /** From now on its statements are reported to these locks. */
  readonly reportTo: (locks: Locks) => void
}

export const make = (driver: Driver, clock: Clock.Clock): Gate => {
  const log = outages.make(clock)
  const takeoversOf = { orchestrator: takeovers.make(), worker: takeovers.make() }
  let locks: Locks | undefined

  const through = (operation: string, call: Call): Call => {
    const its = (operations as Readonly<Record<string, Operation<unknown, unknown>>>)[operation] ?? unknownOperation
    const batchSize = batchSizes(labelOf(operation))
    const claimSize = its.kind === "claim" ? claimSizes(its.queue!) : undefined
    const taking = its.queue === undefined ? undefined : takeoversOf[its.queue]
    const sentBefore = its.countsRepeats === true ? new WeakSet<object>() : undefined

    const send: Call = (input) =>
      Effect.withFiber(({ context }) => {
        const begunMs = monotonicMs(clock)
        const items = Array.isArray(input) ? input.length : undefined
        const lockTimeoutMs = its.lockTimeoutMs?.(input) ?? 0
        if (items !== undefined) batchSize.updateUnsafe(items, context)
        if (sentBefore !== undefined) countRepeats(input as ReadonlyArray<object>, sentBefore, context)
        const sent = call(
          its.kind === "claim" ? { ...input as object, takesOver: taking!.allowed(lockTimeoutMs, begunMs) } : input
        )

        return Effect.matchCauseEffect(sent, {
          onSuccess: (answer) => {
            const claimed = claimSize !== undefined && Array.isArray(answer) ? answer.length : undefined
            if (claimed !== undefined) claimSize!.updateUnsafe(claimed, context)
            if (locks !== undefined) its.answered?.(input, answer, locks)
            taking?.succeeded(lockTimeoutMs, monotonicMs(clock))
            const news = log.succeeded(operation)
            // Claims that find nothing would fill the log.
            const answered = claimed !== 0 && isDebugging(context)
              ? debug("Provider: statement answered", operation, monotonicMs(clock) - begunMs, {
                ...(items !== undefined && { items }),
                ...(claimed !== undefined && { claimed })
              })
              : undefined
            return news === undefined && answered === undefined
              ? Effect.succeed(answer)
              : Effect.as(Effect.andThen(news ?? Effect.void, answered ?? Effect.void), answer)
          },
          onFailure: (cause) => {
            const error = errorOf(cause)
            if (error === undefined) return Effect.failCause(cause)
            if (
              locks !== undefined && (its.kind === "claim" || its.kind === "write") &&
              (error.reason._tag === "ConnectionLost" || error.reason._tag === "Unavailable")
            ) {
              its.lost?.(input, locks)
              locks.lostAnswer()
            }
            if (!isOfTheCall(error)) taking?.failed(begunMs)
            countFailure(operation, error, context)
            return Effect.andThen(
              log.failed(operation, error) ?? Effect.void,
              Effect.andThen(
                debug("Provider: statement failed", operation, monotonicMs(clock) - begunMs, {
                  error_type: error.reason._tag,
                  error: error.message
                }),
                Effect.failCause(cause)
              )
            )
          }
        })
      })

    const once: Call = its.kind !== "write" ? send : (input) =>
      Effect.suspend(() => {
        if (locks !== undefined) its.sends?.(input, locks)
        const known = locks?.known()
        return known === undefined ? send(input) : Effect.andThen(known, send(input))
      })

    switch (its.repeats) {
      case "always":
        return (input) => retried(once(input))
      case "set":
        return (input) => retried(once(input), mayRepeatSet(input as ReadonlyArray<unknown>))
      default:
        return once
    }
  }

  return {
    store: changed(driver, through),
    reportTo: (to) => void (locks = to)
  }
}

/** Counts the failed statements of a driver. */
export const counted = <D extends object>(driver: D): D =>
  changed(driver, (operation, call) => (input) =>
    Effect.tapError(
      call(input),
      (error) => Effect.contextWith((context) => Effect.sync(() => countFailure(operation, error, context)))
    ))

/** Adds the duration of a call to the histogram, even when it fails. */
export const measured = <A>(
  histogram: Metric.Metric<number, unknown>,
  call: Effect.Effect<A, ProviderError>
) =>
  Effect.clockWith((clock) => {
    const start = monotonicMs(clock)
    return Effect.onExit(call, () => Effect.suspend(() => Metric.update(histogram, monotonicMs(clock) - start)))
  })

// internal

/** A member of a driver that the contract does not have. */
const unknownOperation: Operation<unknown, unknown> = { kind: "plain" }

/** A member that takes no input is an effect. */
const changed = <D extends object>(driver: D, change: (operation: string, call: Call) => Call): D =>
  Object.fromEntries(
    Object.entries(driver).map(([operation, member]: [string, unknown]) => [
      operation,
      typeof member === "function"
        ? change(operation, (input) => Effect.suspend(() => member(input)))
        : Effect.isEffect(member)
        ? change(operation, () => member as Effect.Effect<unknown, ProviderError>)(undefined)
        : member
    ])
  ) as D

const errorOf = ({ reasons }: Cause.Cause<ProviderError>) => {
  for (const reason of reasons) if (reason._tag === "Fail") return reason.error
  return undefined
}

const debug = (line: string, operation: string, tookMs: number, fields: object) =>
  Effect.logDebug(line).pipe(
    ours({
      operation,
      duration_ms: Math.round(tookMs * 1_000) / 1_000,
      ...fields
    })
  )

const batchSizes = seriesOf(Metrics.statementBatchSize)
const claimSizes = seriesOf(Metrics.claimBatchSize)
const failures = seriesOf(Metrics.infrastructureErrors)

const countFailure = (operation: string, error: ProviderError, context: Context.Context<never>) =>
  failures(labelOf(operation), errorType(error)).updateUnsafe(1, context)

const countRepeats = (items: ReadonlyArray<object>, sentBefore: WeakSet<object>, context: Context.Context<never>) => {
  let repeats = 0
  for (const item of items) {
    if (sentBefore.has(item)) repeats++
    else sentBefore.add(item)
  }
  if (repeats > 0) Metrics.ackOrchestrationRetries.updateUnsafe(repeats, context)
}

const labelOf = (operation: string) =>
  (operations as Readonly<Record<string, Operation<unknown, unknown>>>)[operation]?.label ??
    operation.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

const errorType = (error: ProviderError) =>
  error.reason._tag !== "Contention"
    ? error.reason._tag === "ConnectionLost" || error.reason._tag === "Unavailable" ? "transaction_failed" : "unknown"
    : isLockedElsewhere(error)
    ? "lock_timeout"
    : "serialization_error"
