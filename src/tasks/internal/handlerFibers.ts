/**
 * Runs the handlers of claimed tasks, each in a fiber of its own and under a lease that is renewed.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as FiberSet from "effect/FiberSet"
import * as Metric from "effect/Metric"
import * as References from "effect/References"
import type * as Scope from "effect/Scope"
import * as Metrics from "../../model/Metrics.ts"
import { harmlessIn } from "../../model/shared/logging.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import * as tracing from "../../model/shared/tracing.ts"
import type { Served } from "../shared/code.ts"
import { StaleAttempt } from "../shared/errors.ts"
import type { Claimed, TaskDriver } from "../TaskDriver.ts"
import { Attempt } from "./attempt.ts"
import type { Leases } from "./leases.ts"
import { described } from "./settlement.ts"
import type { Running, Settlement } from "./settlement.ts"

/** Runs the handler of a claimed task. `ended` may be called before this returns. */
export type Start = (claimed: Claimed, claimedMs: number, ended: (attempt: Running) => void) => Running

export const make = Effect.fnUntraced(function*({ driver, isStale, leases, release, served, workerId }: {
  readonly driver: Pick<TaskDriver["Service"], "within">
  readonly isStale: Settlement["isStale"]
  readonly leases: Pick<Leases, "hold" | "release">
  /** The handler has ended. */
  readonly release: (claimed: Claimed) => void
  readonly served: ReadonlyMap<string, Served>
  readonly workerId: string
}): Effect.fn.Return<Start, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const context = harmlessIn(yield* Effect.context<never>())
  const inBackground = yield* FiberSet.makeRuntime<never, void, never>()

  const serviceOf = ({ attempt, id: taskId, name: taskName }: Claimed, committing: () => void) => {
    const stale = Effect.suspend(() =>
      Effect.andThen(Metric.update(Metrics.taskStaleCommits, 1), Effect.fail(new StaleAttempt({ taskId, attempt })))
    )
    return Attempt.of({
      taskName,
      taskId,
      attempt,
      idempotencyKey: taskId,
      workerId,
      commit: (connection, result) =>
        Effect.gen(function*() {
          const text = yield* served.get(taskName)!.code.encodeResult(result)
          committing()
          if ((yield* driver.within(connection).complete(taskId, attempt, text)) !== "Done") return yield* stale
        }),
      lock: (connection) =>
        Effect.flatMap(
          driver.within(connection).lockAttempt(taskId, attempt),
          (isNewest) => isNewest ? Effect.void : stale
        )
    })
  }

  const spanOf = (claimed: Claimed, services: Context.Context<never>) =>
    tracing.openUnsafe(services, () => ({
      name: `task ${claimed.name}`,
      traceparent: claimed.traceContext ?? undefined,
      kind: "consumer",
      describe: (span) => {
        span.attribute("duroxide.task_name", claimed.name)
        span.attribute("duroxide.task_id", claimed.id)
        span.attribute("duroxide.attempt", claimed.attempt)
      }
    }))

  const bases = new Map(
    [...served].map(([name, { code }]) => [name, Context.merge(context, code.services)])
  )

  const lose = (running: Running, fiber: Fiber.Fiber<unknown, unknown>) => {
    if (running.isCommitted) {
      // It has ended itself, unless the transaction in which it did was rolled back.
      return void inBackground(loseUnlessCommitted(running, fiber))
    }
    running.isLost = true
    fiber.interruptUnsafe()
  }

  const loseUnlessCommitted = (running: Running, fiber: Fiber.Fiber<unknown, unknown>) =>
    Effect.ignore(
      Effect.map(isStale(running), (isStale) => {
        if (!isStale || running.exit !== undefined) return
        running.isLost = true
        fiber.interruptUnsafe()
      })
    )

  return (claimed, claimedMs, ended) => {
    const { code, leaseMs } = served.get(claimed.name)!
    const base = bases.get(claimed.name)!
    const lease = leases.hold({
      taskId: claimed.id,
      attempt: claimed.attempt,
      leaseMs,
      onLost: () => lose(running, fiber)
    }, claimedMs)
    const running: Running = {
      claimed,
      startMs: monotonicMs(clock),
      endMs: 0,
      exit: undefined,
      isCommitted: false,
      isLost: false,
      isStopped: false,
      stop: () => {
        running.isStopped = true
        fiber.interruptUnsafe()
      },
      release: () => leases.release(lease)
    }
    const annotated = Context.add(base, References.CurrentLogAnnotations, {
      ...Context.get(base, References.CurrentLogAnnotations),
      ...described(claimed)
    })
    const span = spanOf(claimed, context)
    const services = Context.add(
      tracing.withSpan(annotated, span),
      Attempt,
      serviceOf(claimed, () => {
        running.isCommitted = true
      })
    )
    const fiber = Effect.runForkWith(services)(code.run(claimed.payload, claimed.counted))
    fiber.addObserver((exit) => {
      running.exit = exit
      release(claimed)
      running.endMs = monotonicMs(clock)
      if (span !== undefined) tracing.endUnsafe(span, running.isLost ? Exit.interrupt() : exit, clock)
      ended(running)
    })
    return running
  }
})
