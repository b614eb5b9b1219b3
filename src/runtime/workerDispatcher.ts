/**
 * Claims activities and gives them slots; `deliveries.ts` runs their handlers and settles the claims.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type * as Scope from "effect/Scope"
import { ours } from "../model/shared/logging.ts"
import { monotonicMs } from "../model/shared/monotonic.ts"
import type { Provider } from "../provider/Provider.ts"
import { ActivitySlots } from "./activitySlots.ts"
import * as claims from "./claims.ts"
import * as deliveriesOf from "./deliveries.ts"
import type { Delivery } from "./deliveries.ts"
import type { ActivityCode } from "./handlers.ts"
import type { HeldActivities } from "./heldActivities.ts"
import type { HandOverSlots } from "./optimisticTurns.ts"
import { component } from "./outcomes.ts"
import type { Outcomes } from "./outcomes.ts"
import type { Pauses } from "./pauses.ts"
import * as sessionsOf from "./sessions.ts"
import type { Complete } from "./settings.ts"
import type { Dispatcher } from "./shutdown.ts"
import type { Supervisor } from "./supervisor.ts"

export interface WorkerDispatcher extends Dispatcher {
  readonly handOverSlots: HandOverSlots
  readonly slotsInUse: () => number
  /** Names of the activities whose handlers run, for logs. */
  readonly running: () => Iterable<string>
}

/** Most activities that are claimed ahead of a free slot. Tests in virtual time change it: no time passes for them. */
export const MostAhead = Context.Reference<number>("duroxide-prisma/internal/MostAhead", { defaultValue: () => 5_000 })

export const make = Effect.fnUntraced(function*(options: {
  readonly provider: Provider["Service"]
  readonly handlers: ReadonlyMap<string, ActivityCode>
  readonly heldActivities: HeldActivities
  readonly outcomes: Outcomes
  readonly settings: Complete
  /** What may be claimed. */
  readonly paused: Pauses
  readonly supervisor: Supervisor
}): Effect.fn.Return<WorkerDispatcher, never, Scope.Scope> {
  const { heldActivities, paused, provider, settings, supervisor } = options
  const clock = yield* Clock.Clock
  const looks = claims.looks(clock)
  const sessions = yield* sessionsOf.make({ provider, settings, supervisor })
  const slots = new ActivitySlots<Delivery>(settings, {
    nowMs: () => monotonicMs(clock),
    mostAhead: yield* MostAhead
  })
  const deliveries = deliveriesOf.make({
    ...options,
    sessions,
    slots,
    services: yield* ours()(Effect.context<never>()),
    clock
  })
  const isStopping = () => Deferred.isDoneUnsafe(supervisor.stopping)

  let lookedAtMs = 0
  const mayClaim = () => paused.activities().size > 0 && paused.tags()._tag !== "None"
  const claim = paused.claiming(
    mayClaim,
    Effect.suspend(() =>
      Effect.raceFirst(
        Effect.map(
          provider.fetchWorkItems({
            lockTimeout: settings.workerLockTimeout,
            pollTimeout: settings.pollTimeout,
            tags: paused.tags(),
            activities: [...paused.activities()],
            session: sessions.forClaim(),
            most: () => {
              lookedAtMs = monotonicMs(clock)
              return slots.room()
            },
            onLook: looks.answered
          }),
          (claimed) => {
            for (const one of claimed) deliveries.accept(one, lookedAtMs)
            deliveries.beginNext()
            return claimed.length === 0 && slots.room() > 0 ? "Nothing" : "Something"
          }
        ),
        Effect.as(sessions.limitCrossed, "Something" as const)
      )
    )
  )
  const repeated = claims.repeated(component, clock)(
    Effect.andThen(heldActivities.inTouch, claim),
    (found) => found === "Nothing"
  )
  const claimLoop = Effect.forever(Effect.suspend(() => {
    if (slots.room() > 0) return repeated
    deliveries.room.closeUnsafe()
    return deliveries.room.await
  }))

  /** Gives back what has waited too long. */
  const waitLoop = Effect.forever(Effect.suspend(() => {
    const untilMs = slots.untilOverdueMs()
    if (untilMs !== undefined) {
      return Effect.andThen(Effect.sleep(untilMs), Effect.sync(() => slots.takeOverdue().forEach(deliveries.giveBack)))
    }
    deliveries.queued.closeUnsafe()
    return deliveries.queued.await
  }))

  paused.onAnswer((hasChanged) => {
    looks.answered()
    if (!hasChanged) return
    for (const delivery of slots.takeWaiting()) {
      if (paused.isActivityPaused(delivery.item.name, delivery.item.tag)) deliveries.giveBack(delivery)
      else slots.add(delivery)
    }
  })

  const giveBackWaiting = Effect.sync(() => slots.takeWaiting().forEach(deliveries.giveBack))
  const loops = Effect.raceFirst(
    Effect.all([claimLoop, waitLoop], { concurrency: "unbounded", discard: true }),
    // At once: while a claim under way ends, a slot may become free.
    Effect.andThen(Deferred.await(supervisor.stopping), giveBackWaiting)
  ).pipe(
    // Also when a loop has failed.
    Effect.ensuring(giveBackWaiting),
    (loop) => supervisor.watch(component, loop)
  )

  let loopFiber: Fiber.Fiber<void> | undefined
  const loopEnded = Effect.suspend(() => loopFiber === undefined ? Effect.void : Effect.asVoid(Fiber.await(loopFiber)))
  return {
    looks,
    running: function*() {
      for (const { item } of slots.begun) yield `${item.name} of ${item.instance}`
    },
    slotsInUse: () => slots.inUse,
    underWay: () => slots.underWay,
    start: Effect.map(Effect.forkDetach(loops), (fiber) => void (loopFiber = fiber)),
    ended: deliveries.allSettled(() => loopEnded),
    interrupt: deliveries.allSettled(() =>
      Effect.all([loopEnded, ...deliveries.interruptAll()], { concurrency: "unbounded", discard: true })
    ),
    handOverSlots: {
      activities: paused.activities,
      tags: paused.tags,
      lockTimeout: settings.workerLockTimeout,
      reserve: (most) => isStopping() ? 0 : slots.reserve(most),
      free: () => slots.room(),
      release: (count) => {
        slots.release(count)
        deliveries.changed()
      },
      begin: (claimed, askedAtMs) => {
        slots.release(1)
        deliveries.accept(claimed, askedAtMs)
        deliveries.changed()
      }
    }
  }
})
