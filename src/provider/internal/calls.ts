/**
 * What every provider call shares: retries, measuring, and turning a driver's answer into the typed outcome.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Metric from "effect/Metric"
import * as Schedule from "effect/Schedule"
import { monotonicMs } from "../../model/internal/monotonic.ts"
import * as Metrics from "../../model/Metrics.ts"
import type { Turn } from "../Provider.ts"
import type { Settled } from "../ProviderDriver.ts"
import { Closed, DuplicateEvent, InvalidInput, LockLost, ProviderError } from "../ProviderError.ts"

/** Contract 10.3: three more tries of a retryable failure, after 50, 100 and 150 milliseconds. */
const retryPolicy = Schedule.recurs(3).pipe(
  Schedule.addDelay(({ attempt }) => Effect.succeed(Duration.millis(50 * attempt)))
)

export const retried = <A>(
  call: Effect.Effect<A, ProviderError>,
  options?: {
    readonly onRetry?: Effect.Effect<void>
    readonly while?: (error: ProviderError) => boolean
  }
) =>
  Effect.retry(call, {
    schedule: Schedule.tap(retryPolicy, () => options?.onRetry ?? Effect.void),
    while: (error) => error.isRetryable && (options?.while?.(error) ?? true)
  })

/** One item may be what a set of several failed of: it is refused, or it waits for what another one holds. */
export const isOfOneItem = ({ isRetryable, reason }: ProviderError) =>
  !isRetryable || reason._tag === "Contention" ||
  (reason._tag === "Unavailable" && reason.sqlState === statementTimeout)

const statementTimeout = "57014"

/** Another transaction holds what the call writes. */
export const isHeld = ({ reason }: ProviderError) => reason._tag === "Contention" && reason.sqlState === lockTimeout

const lockTimeout = "55P03"

export const closed = (operation: string) => new ProviderError({ operation, reason: new Closed({}) })

export const measured = <A>(
  operation: string,
  histogram: Metric.Metric<number, unknown>,
  call: Effect.Effect<A, ProviderError>
) =>
  Effect.clockWith((clock) => {
    const start = monotonicMs(clock)
    return Effect.onExit(call, (exit) =>
      Effect.suspend(() => {
        const duration = Metric.update(histogram, monotonicMs(clock) - start)
        const reason = Exit.isFailure(exit) ? exit.cause.reasons[0] : undefined
        return reason?._tag !== "Fail" ? duration : Effect.andThen(
          duration,
          Metric.update(
            Metric.withAttributes(Metrics.infrastructureErrors, { operation, error_type: errorType(reason.error) }),
            1
          )
        )
      }))
  })

const errorType = ({ reason }: ProviderError) =>
  reason._tag !== "Contention"
    ? reason._tag === "ConnectionLost" || reason._tag === "Unavailable" ? "transaction_failed" : "unknown"
    : reason.sqlState === lockTimeout
    ? "lock_timeout"
    : "serialization_error"

export const refused = (operation: string, field: string, problem: string) =>
  Effect.fail(new ProviderError({ operation, reason: new InvalidInput({ field, problem }) }))

export const settle = (operation: string, lockToken: string, settled: Settled, turn?: Turn) => {
  if (settled === "Done") return Effect.void
  const reason = settled === "LockLost"
    ? new LockLost({ lockToken })
    : new DuplicateEvent({
      instanceId: turn?.historyDelta[0]?.instanceId ?? "",
      executionId: turn?.executionId ?? 0
    })
  return Effect.fail(new ProviderError({ operation, reason }))
}

export const answeredAlike = <A>(items: ReadonlyArray<unknown>, call: Effect.Effect<A, ProviderError>) =>
  Effect.map(call, (answer) => items.map(() => answer))
