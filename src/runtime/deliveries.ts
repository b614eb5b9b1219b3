/**
 * The deliveries of activities to this process: what happens to each, from its claim until that is settled.
 *
 * `decide.ts` says what a delivery leads to, `activitySlots.ts` which activity runs when; this module carries it out.
 * An activity costs one fiber: that of its handler, which then stores the outcome, outside of its slot.
 */
import type * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Latch from "effect/Latch"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as References from "effect/References"
import type * as Tracer from "effect/Tracer"
import * as Metrics from "../model/Metrics.ts"
import { logDeath } from "../model/shared/defect.ts"
import { linked } from "../model/shared/logging.ts"
import { monotonicMs } from "../model/shared/monotonic.ts"
import * as tracing from "../model/shared/tracing.ts"
import type { Claimed, Provider } from "../provider/Provider.ts"
import { ChunkPort } from "../replay/context.ts"
import { Call, held } from "./activityCall.ts"
import type { ActivitySlots } from "./activitySlots.ts"
import * as activityStreams from "./activityStreams.ts"
import * as decide from "./decide.ts"
import type { Activity, Completion } from "./decide.ts"
import type { ActivityCode, Settlement } from "./handlers.ts"
import { Held } from "./heldActivities.ts"
import type { HeldActivities } from "./heldActivities.ts"
import { component, count } from "./outcomes.ts"
import type { Outcomes } from "./outcomes.ts"
import type { Pauses } from "./pauses.ts"
import type { Sessions } from "./sessions.ts"
import type { Complete } from "./settings.ts"
import * as spans from "./spans.ts"
import type { Supervisor } from "./supervisor.ts"

export interface Deliveries {
  /** Takes charge of a claim that the store was asked for at `askedAtMs`, monotonic milliseconds. */
  readonly accept: (claimed: Claimed<Activity>, askedAtMs: number) => void
  /** Begins those that get a slot. */
  readonly beginNext: () => void
  /** Abandons one that is not at fault: another process, or a later claim, runs it. */
  readonly giveBack: (delivery: Delivery) => void
  /** Interrupts all at a shutdown: none is at fault, and the next process runs them again. */
  readonly interruptAll: () => ReadonlyArray<Effect.Effect<void>>
  /** Says that a slot, or room for a claim, may be free. */
  readonly changed: () => void
  /** Open when there may be room for another claim. */
  readonly room: Latch.Latch
  /** Open when an activity waits for a slot. */
  readonly queued: Latch.Latch
  /** Ends what it is given, then waits until no claim is left. */
  readonly allSettled: (first: () => Effect.Effect<void>) => Effect.Effect<void>
}

/** A claimed activity, until its claim is settled. */
export class Delivery extends Held {
  readonly claimSpan: Claimed<Activity>["claimSpan"]
  phase: "Waiting" | "Running" | "Cancelled" | "Interrupted" | "Settling" = "Waiting"
  handler: ActivityCode | undefined
  /** Runs the handler and settles the claim. */
  fiber: Fiber.Fiber<void> | undefined
  /** When its handler began, monotonic milliseconds. */
  begunAtMs = 0
  /** Whether it counts for its session. */
  isAdmitted = false

  constructor(claimed: Claimed<Activity>) {
    super(claimed)
    this.claimSpan = claimed.claimSpan
  }
}

export const make = (options: {
  readonly provider: Provider["Service"]
  readonly handlers: ReadonlyMap<string, ActivityCode>
  readonly heldActivities: HeldActivities
  readonly outcomes: Outcomes
  readonly paused: Pauses
  readonly sessions: Sessions
  readonly settings: Complete
  readonly slots: ActivitySlots<Delivery>
  readonly supervisor: Supervisor
  /** Services of the runtime, for logs and effects of its own. */
  readonly services: Context.Context<never>
  readonly clock: Clock.Clock
}): Deliveries => {
  const {
    clock,
    handlers,
    heldActivities,
    outcomes,
    paused,
    provider,
    services,
    sessions,
    settings,
    slots,
    supervisor
  } = options
  const run = Effect.runForkWith(services)
  const inItsName = <A>({ item }: Delivery, effect: Effect.Effect<A>) =>
    Effect.annotateLogs(effect, annotationsOf(services, item))
  const streams = activityStreams.make(provider)
  // Merged here: a merge copies all services, and copies at each call were 8 % of what an orchestration of five
  // activities allocates. A handler's own annotations and those of the runtime are both in its log lines.
  const handlerServices = new Map(Array.from(handlers, ([name, own]) => [
    name,
    Context.merge(services, own.services).pipe(
      Context.add(References.CurrentLogAnnotations, {
        ...Context.get(own.services, References.CurrentLogAnnotations),
        ...Context.get(services, References.CurrentLogAnnotations)
      }),
      Context.add(ChunkPort, streams),
      Context.add(activityStreams.ActivityStreams, streams)
    )
  ]))
  const isStopping = () => Deferred.isDoneUnsafe(supervisor.stopping)
  const deliveries = new Set<Delivery>()
  const room = Latch.makeUnsafe()
  const queued = Latch.makeUnsafe()
  let idle: Deferred.Deferred<void> | undefined
  let isBeginning = false

  const accept = (claimed: Claimed<Activity>, askedAtMs: number) => {
    const delivery = new Delivery(claimed)
    deliveries.add(delivery)
    heldActivities.enter(delivery, askedAtMs)
    delivery.isAdmitted = sessions.admit(claimed.item)
    if (isStopping() || !delivery.isAdmitted) return settle(delivery, outcomes.abandon(delivery, givenBack))
    const decision = decide.activity(claimed, {
      handlers,
      isPaused: paused.isActivityPaused,
      maxAttempts: settings.maxAttempts
    })
    switch (decision._tag) {
      case "Run":
        delivery.handler = decision.handler
        delivery.onLost = () => withdraw(delivery)
        return slots.add(delivery)
      case "FailAsPoison":
        return settle(
          delivery,
          Effect.logError(`${component}: activity fails as poison, no delivery ended with an outcome`).pipe(
            Effect.annotateLogs({ attempts: decision.deliveries }),
            Effect.andThen(Metric.update(Metrics.activityPoison, 1)),
            Effect.andThen(outcomes.store(delivery, decision.completion))
          )
        )
      case "Abandon":
        return settle(delivery, outcomes.abandon(delivery, decision))
    }
  }

  /** Its claim has ended. */
  const leave = (delivery: Delivery) => {
    deliveries.delete(delivery)
    heldActivities.leave(delivery)
    slots.forget(delivery)
    if (delivery.isAdmitted) sessions.leave(delivery.item)
    changed()
  }

  /** What a statement under way hands over must still be given back. */
  const isIdle = () => deliveries.size === 0 && !slots.isReserved

  /** Cancelled before it began. */
  const withdraw = (delivery: Delivery) => {
    leave(delivery)
    run(inItsName(
      delivery,
      Effect.andThen(
        Effect.logDebug(`${component}: activity cancelled before it began`),
        Effect.suspend(() => count(delivery, "cancelled"))
      )
    ))
  }

  const changed = () => {
    room.openUnsafe()
    if (idle !== undefined && isIdle()) Deferred.doneUnsafe(idle, Effect.void)
    if (slots.mayBegin && !isBeginning) {
      isBeginning = true
      // Later: a handler that ends at once must not begin the next one inside its own fiber, and the turn that hands an
      // activity over must be done before the activity is.
      queueMicrotask(() => {
        isBeginning = false
        beginNext()
      })
    }
  }

  const beginNext = () => {
    for (let delivery = slots.next(); delivery !== undefined; delivery = slots.next()) {
      if (heldActivities.isFresh(delivery)) begin(delivery)
      else if (heldActivities.isLocked(delivery)) renewFirst(delivery)
      // A late answer, or something that blocked the event loop: another process may have it.
      else giveBackUnbegun(delivery)
    }
    if (slots.untilOverdueMs() !== undefined) queued.openUnsafe()
  }

  /** Its lock could end before the first renewal, which comes when half of a lock is left. */
  const renewFirst = (delivery: Delivery) => {
    const renewed = Effect.flatMap(Effect.exit(heldActivities.renew(delivery)), (exit) =>
      Effect.sync(() => {
        if (delivery.isLost) return
        if (Exit.isFailure(exit) || !heldActivities.isLocked(delivery) || isStopping()) return giveBackUnbegun(delivery)
        slots.begunLate(delivery)
        begin(delivery)
      }))
    delivery.fiber = run(inItsName(delivery, renewed))
  }

  const giveBackUnbegun = (delivery: Delivery) => {
    slots.notBegun(delivery)
    giveBack(delivery)
  }

  const begin = (delivery: Delivery) => {
    delivery.phase = "Running"
    delivery.begunAtMs = monotonicMs(clock)
    delivery.onLost = () => cancel(delivery)
    const { item } = delivery
    const annotations = annotationsOf(services, item)
    const context = annotated(services, annotations)
    const span = spans.openAttempt(context, delivery, sessions.workerId)
    const ofHandler = Context.add(
      annotated(handlerServices.get(item.name)!, annotations),
      Call,
      callOf(delivery, sessions.workerId)
    )
    const performed = perform(delivery, span, tracing.withSpan(ofHandler, span))
    const fiber = Effect.runForkWith(tracing.withSpan(context, span))(performed)
    delivery.fiber = fiber
    // Its handler cancelled it before there was a fiber to interrupt.
    if (delivery.isLost && delivery.phase === "Running") cancel(delivery)
  }

  /** Runs the handler in `context`, and settles its claim in that of the runtime. */
  const perform = (
    delivery: Delivery,
    span: Tracer.Span | undefined,
    context: Context.Context<Call>
  ): Effect.Effect<void> =>
    Effect.uninterruptibleMask((restore) =>
      Effect.flatMap(
        Effect.exit(
          restore(Effect.suspend(() => delivery.handler!.run(delivery.item.input, context, () => settlement(delivery))))
        ),
        (exit) => {
          if (span !== undefined) spans.endAttempt(span, exit, clock)
          delivery.ranMs = monotonicMs(clock) - delivery.begunAtMs
          // `cancel` or `interrupt`, which ended it, settles the claim.
          if (delivery.phase !== "Running") return Effect.void
          const decision = decide.handlerEnd(delivery.item, exit, settings.onMismatch === "block")
          if (decision._tag === "Within") return settled(delivery, outcomes.within(delivery, decision.outcome))
          return decision._tag === "Store"
            ? Effect.andThen(
              decision.unread === undefined ? Effect.void : logDeath(`${component}: activity died`, decision.unread),
              settled(delivery, restore(outcomes.store(delivery, decision.completion)), sizeOf(decision.completion))
            )
            : settled(delivery, restore(outcomes.abandon(delivery, decision)))
        }
      )
    )

  /** How the transaction of a handler settles its claim. */
  const settlement = (delivery: Delivery): Settlement => ({
    store: (connection, result) =>
      Effect.tap(
        provider.ackWorkItemWithin!({
          connection,
          lockToken: delivery.lockToken,
          completion: decide.completed(delivery.item, result)
        }),
        // The claim has ended with its result: that it is lost from now on is expected.
        () => Effect.sync(() => void (delivery.onLost = () => {}))
      ),
    isHeld: outcomes.isHeld(delivery),
    rolledBack: Effect.sync(() => {
      delivery.onLost = () => cancel(delivery)
      if (delivery.isLost && delivery.phase === "Running") cancel(delivery)
    })
  })

  /** Settles a claim with an outcome of `bytes`, and frees the slot of its handler at once. */
  const settled = (delivery: Delivery, settlement: Effect.Effect<void>, bytes = 0) => {
    delivery.phase = "Settling"
    delivery.onLost = () => {}
    slots.settling(delivery, bytes)
    changed()
    return Effect.flatMap(Effect.exit(settlement), (exit) => {
      // A shutdown has interrupted it.
      if (delivery.phase !== "Settling") return Effect.void
      if (Exit.isSuccess(exit)) return Effect.sync(() => leave(delivery))
      return Effect.logError(`${component}: activity broke`, exit.cause).pipe(
        Effect.andThen(outcomes.abandon(delivery, decide.broken)),
        Effect.catchCause((cause) =>
          Effect.logError(`${component}: claimed work not settled, its lock expires`, cause)
        ),
        Effect.ensuring(Effect.sync(() => leave(delivery)))
      )
    })
  }

  /** Settles the claim of an activity that does not run. */
  const settle = (delivery: Delivery, settlement: Effect.Effect<void>) => {
    delivery.fiber = run(inItsName(delivery, settled(delivery, settlement)))
  }

  const giveBack = (delivery: Delivery) => settle(delivery, outcomes.abandon(delivery, givenBack))

  const cancel = (delivery: Delivery) => {
    if (delivery.fiber === undefined) return
    delivery.phase = "Cancelled"
    run(
      Effect.logInfo(`${component}: activity cancelled, it is interrupted`).pipe(
        Effect.andThen(interruptWithin(delivery, settings.activityGracePeriod)),
        Effect.andThen(Effect.suspend(() => count(delivery, "cancelled"))),
        Effect.ensuring(Effect.sync(() => leave(delivery))),
        (cancelled) => inItsName(delivery, cancelled)
      )
    )
  }

  /** Shutdown: the activity is not at fault, and the next process runs it again. */
  const interrupt = (delivery: Delivery): Effect.Effect<void> => {
    if (delivery.phase === "Cancelled" || delivery.fiber === undefined) return Effect.void
    delivery.phase = "Interrupted"
    return interruptWithin(delivery, settings.activityGracePeriod).pipe(
      Effect.andThen(outcomes.abandon(delivery, givenBack)),
      Effect.ensuring(Effect.sync(() => leave(delivery))),
      (interrupted) => inItsName(delivery, interrupted)
    )
  }

  return {
    accept,
    beginNext,
    giveBack,
    interruptAll: () => Array.from(deliveries, interrupt),
    changed,
    room,
    queued,
    allSettled: (first) =>
      Effect.suspend(() => {
        const all = idle = Deferred.makeUnsafe<void>()
        return Effect.andThen(first(), Effect.suspend(() => isIdle() ? Effect.void : Deferred.await(all)))
      })
  }
}

// internal

/** Roughly, in bytes. The text of a result is at hand: it is not encoded once more. */
const sizeOf = (completion: Completion) =>
  completion._tag === "ActivityCompleted"
    ? completion.result.length
    : completion.details._tag === "Application"
    ? completion.details.message.length
    : 0

/** How an activity is abandoned that has not run, or was interrupted by a shutdown. */
const givenBack = { pause: "none", counts: false } as const

const annotationsOf = (context: Context.Context<never>, { executionId, id, instance, name }: Activity) =>
  linked(context, {
    instance_id: instance,
    execution_id: executionId,
    activity_id: id,
    activity_name: name
  })

/** Adds to the log lines of a call what it is. */
const annotated = (services: Context.Context<never>, annotations: Readonly<Record<string, unknown>>) =>
  Context.add(services, References.CurrentLogAnnotations, {
    ...Context.get(services, References.CurrentLogAnnotations),
    ...annotations
  })

const callOf = (delivery: Delivery, workerId: string): Call["Service"] => {
  const { attemptCount, item } = delivery
  return {
    activityName: item.name,
    instanceId: item.instance,
    executionId: item.executionId,
    activityId: item.id,
    tryNumber: item.tryNumber ?? 1,
    deliveryNumber: attemptCount,
    idempotencyKey: keyOf(item),
    sessionId: Option.fromUndefinedOr(item.sessionId),
    tag: Option.fromUndefinedOr(item.tag),
    workerId,
    [held]: delivery
  }
}

/** Rust does not send the start time of the execution. */
const keyOf = ({ executionId, firstTryId, id, instance, startedAtMs }: Activity) =>
  [instance, executionId, ...(startedAtMs === undefined ? [] : [startedAtMs]), firstTryId ?? id].join("/")

/** Interrupts a handler, or the settlement of its claim. */
const interruptWithin = ({ fiber }: Delivery, gracePeriod: Duration.Duration) =>
  Effect.timeoutOption(Fiber.interrupt(fiber!), gracePeriod).pipe(
    Effect.flatMap((ended) =>
      Option.isSome(ended)
        ? Effect.void
        : Effect.andThen(
          Effect.logWarning(
            `${component}: interrupted activity has not ended within its grace period, its slot is freed`
          ),
          countUntilEnded(fiber!)
        )
    )
  )

/** Counts a handler that ignores its interruption, while it runs. */
const countUntilEnded = (fiber: Fiber.Fiber<void>) =>
  Effect.contextWith((context: Context.Context<never>) => {
    Metrics.uninterruptedHandlers.modifyUnsafe(1, context)
    fiber.addObserver(() => Metrics.uninterruptedHandlers.modifyUnsafe(-1, context))
    return Effect.void
  })
