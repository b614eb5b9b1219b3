/**
 * The spans of turns, and of attempts at activities.
 *
 * All turns of an instance continue the context that its start has brought, whatever execution they belong to. The
 * activities and children that a turn schedules continue that of the turn.
 */
import type * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Tracer from "effect/Tracer"
import type { ErrorDetails } from "../model/ErrorDetails.ts"
import type { PayloadMismatch } from "../model/shared/payload.ts"
import * as tracing from "../model/shared/tracing.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import type { Claimed, OrchestrationItem } from "../provider/Provider.ts"
import * as programSpans from "../replay/programSpans.ts"
import { Blocked } from "../replay/turn.ts"
import type { Outcome, Ran, WarmProgram } from "../replay/turn.ts"
import type { Activity } from "./decide.ts"
import type { NotCommitted } from "./handlers.ts"

// -- turns -----------------------------------------------------------------------------------------

/** What leads to a turn. */
export interface TurnCause extends Pick<Claimed<unknown>, "claimSpan"> {
  /** Deliveries so far; undefined for a turn without a claim. */
  readonly attemptCount?: number
  readonly name: string
  readonly instanceId: string
  readonly executionId: number
  /** Trace context of the instance. */
  readonly traceparent: string | undefined
  readonly messages: ReadonlyArray<WorkItem.WorkItem>
}

/** Describes a claimed instance. `warm` is its program, if it waits in memory. */
export const causeOf = (
  { attemptCount, claimSpan, item }: Claimed<OrchestrationItem>,
  warm: Pick<WarmProgram, "started"> | undefined
): TurnCause => {
  const { executionId, history, instanceId, messages, orchestrationName: name } = item
  const started = history[0] ?? warm?.started ??
    messages.find(({ _tag }) => _tag === "StartOrchestration" || _tag === "ContinueAsNew")
  const traceparent = started !== undefined && "traceparent" in started ? started.traceparent : undefined
  return { name, instanceId, executionId, traceparent, messages, claimSpan, attemptCount }
}

/** The span of one turn, where spans are made. */
export class TurnSpan {
  readonly span: Tracer.Span | undefined
  private outcome: Outcome | undefined

  constructor(span: Tracer.Span | undefined) {
    this.span = span
  }

  /** Says whether the program waits, or how it has ended. */
  ran({ outcome, turn }: Pick<Ran, "outcome" | "turn">): void {
    if (this.span?.sampled !== true) return
    this.outcome = outcome
    // After continue-as-new, that of the next execution.
    this.span.attribute("duroxide.execution_id", turn.executionId)
    this.span.attribute("duroxide.turn.outcome", outcome._tag)
    this.span.attribute("duroxide.turn.events", turn.historyDelta.length)
    if (outcome._tag === "Failed") this.span.attribute("error.type", tracing.errorType(outcome.details))
  }

  /** This code cannot run the turn. */
  blocked({ reason }: Blocked): void {
    if (this.span?.sampled !== true) return
    this.span.attribute("duroxide.turn.outcome", "Blocked")
    this.span.attribute("duroxide.turn.blocked", reason)
    this.notStored()
  }

  /** The turn is stored: spans of the program that ended in it are exported. */
  stored({ spans }: Pick<Ran, "spans">): Effect.Effect<void> {
    const { span } = this
    return span?.sampled !== true || spans.length === 0
      ? Effect.void
      : Effect.map(Effect.tracer, (tracer) => programSpans.exportTo(tracer, span, spans))
  }

  /** What a claim or another turn does instead. */
  notStored(): void {
    if (this.span?.sampled === true) this.span.attribute("duroxide.turn.stored", false)
  }

  /** An instance that fails is an error, a cancelled one is not. */
  end(exit: Exit.Exit<unknown>): Effect.Effect<void> {
    const { outcome, span } = this
    if (span?.sampled !== true) return span === undefined ? Effect.void : tracing.end(span, Exit.void)
    const type = outcome?._tag === "Failed" ? tracing.errorType(outcome.details) : "Cancelled"
    return tracing.end(span, Exit.isFailure(exit) || type === "Cancelled" ? exit : tracing.failure(type))
  }
}

/** Runs a turn in a span. */
export const inTurn = <A>(cause: TurnCause, turn: (span: TurnSpan) => Effect.Effect<A>): Effect.Effect<A> =>
  Effect.withFiber((fiber) => {
    const opened = openTurn(fiber.context, cause)
    return opened.span === undefined
      ? turn(opened)
      : Effect.onExit(tracing.within(opened.span)(turn(opened)), (exit) => opened.end(exit))
  })

/** Runs a turn in a span that stays open until the turn is stored, if it does not break. */
export const inOpenTurn = (
  cause: TurnCause,
  turn: Effect.Effect<Ran | Blocked>
): Effect.Effect<{ readonly ran: Ran | Blocked; readonly turnSpan: TurnSpan }> =>
  Effect.withFiber((fiber) => {
    const turnSpan = openTurn(fiber.context, cause)
    return tracing.within(turnSpan.span)(turn).pipe(
      Effect.map((ran) => {
        if (ran instanceof Blocked) turnSpan.blocked(ran)
        else turnSpan.ran(ran)
        return { ran, turnSpan }
      }),
      Effect.onError((cause) => turnSpan.end(Exit.failCause(cause)))
    )
  })

/** The statement that claimed it, and the spans that sent messages. */
const linksOf = (cause: TurnCause): ReadonlyArray<Tracer.AnySpan> => {
  const links = claimOf(cause)
  for (const message of cause.messages) {
    if (message._tag !== "ExternalRaised" && message._tag !== "QueueMessage" && message._tag !== "CancelInstance") {
      continue
    }
    const sender = tracing.spanOf(message.traceparent)
    if (sender !== undefined) links.push(sender)
  }
  return links
}

// -- activities ------------------------------------------------------------------------------------

/** Begins the span of one attempt; undefined where no spans are made. */
export const openAttempt = (
  context: Context.Context<never>,
  claimed: Pick<Claimed<Activity>, "attemptCount" | "claimSpan" | "item">,
  workerId: string
): Tracer.Span | undefined =>
  tracing.openUnsafe(context, () => {
    const { attemptCount, item: { executionId, id, instance, name, tag, traceparent, tryNumber } } = claimed
    return {
      name: `activity ${name}`,
      traceparent,
      kind: "consumer",
      describe: (span, clock) => {
        tracing.describeMessaging(span, context, {
          operation: "activity",
          type: "process",
          destination: name,
          instanceId: instance
        })
        span.attribute("messaging.client.id", workerId)
        span.attribute("messaging.message.id", String(id))
        span.attribute("duroxide.execution_id", executionId)
        span.attribute("duroxide.activity.try", tryNumber ?? 1)
        span.attribute("duroxide.activity.delivery", attemptCount)
        if (tag !== undefined) span.attribute("duroxide.activity.tag", tag)
        markRedelivery(span, clock, attemptCount)
      },
      links: () => claimOf({ claimSpan: claimed.claimSpan, traceparent })
    }
  })

/** Ends it with its handler: what follows is stored in statements of their own. */
export const endAttempt = (
  span: Tracer.Span,
  exit: Exit.Exit<unknown, ErrorDetails | PayloadMismatch | NotCommitted>,
  clock: Clock.Clock
): void => {
  const reason = Exit.isFailure(exit) ? exit.cause.reasons.find((reason) => reason._tag === "Fail") : undefined
  if (reason === undefined) return tracing.endUnsafe(span, exit, clock)
  const { error } = reason
  const isDetails = error._tag !== "PayloadMismatch" && error._tag !== "NotCommitted"
  const type = isDetails ? tracing.errorType(error) : error._tag
  if (span.sampled) span.attribute("error.type", type)
  tracing.endUnsafe(span, tracing.failure(type), clock)
}

// internal

/** Begins the span of a turn. */
const openTurn = (context: Context.Context<never>, cause: TurnCause): TurnSpan =>
  new TurnSpan(tracing.openUnsafe(context, () => {
    const { attemptCount, executionId, instanceId, messages, name, traceparent } = cause
    return {
      name: `turn ${name}`,
      traceparent,
      kind: "consumer",
      describe: (span, clock) => {
        tracing.describeMessaging(span, context, {
          operation: "turn",
          type: "process",
          destination: name,
          instanceId
        })
        span.attribute("messaging.batch.message_count", messages.length)
        span.attribute("duroxide.execution_id", executionId)
        markRedelivery(span, clock, attemptCount)
      },
      links: () => linksOf(cause)
    }
  }))

/**
 * The span of a delivery that a crash has ended is lost with its process, so the next delivery says that there was one.
 */
const markRedelivery = (span: Tracer.Span, clock: Clock.Clock, attemptCount = 1): void => {
  if (attemptCount <= 1) return
  span.event("duroxide.redelivery", clock.currentTimeNanosUnsafe(), {
    "duroxide.unsettled_deliveries": attemptCount - 1
  })
}

/** The statement that claimed the work: in the trace of the work, unless it is in that of other work. */
const claimOf = (
  { claimSpan, traceparent }: Pick<TurnCause, "claimSpan" | "traceparent">
): Array<Tracer.AnySpan> => {
  const parent = claimSpan === undefined ? undefined : tracing.spanOf(traceparent)
  return parent?.sampled === true ? [claimSpan!(parent)] : []
}
