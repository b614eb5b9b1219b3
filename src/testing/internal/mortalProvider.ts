/**
 * The provider of one process of a test, which can be killed.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { InBackground } from "../../model/shared/inBackground.ts"
import type * as WorkItem from "../../model/WorkItem.ts"
import type { Claimed, Provider } from "../../provider/Provider.ts"

export interface MortalProvider {
  readonly provider: Provider["Service"]
  /** From now on no call of the process reaches the store, and no answer reaches the process. */
  readonly kill: () => void
  readonly isDead: () => boolean
}

export const make = (
  provider: Provider["Service"],
  onActivity: (claimed: Claimed<WorkItem.Of<"ActivityExecute">>) => void
): MortalProvider => {
  let alive = true
  const whileAlive = <A, E>(call: () => Effect.Effect<A, E>) => Effect.suspend(() => alive ? call() : Effect.interrupt)
  const claims = <A, E>(call: () => Effect.Effect<A, E>) =>
    Effect.suspend(() => alive ? call() : Effect.never).pipe(
      // Time passes for whatever falls due in the store.
      Effect.provideService(InBackground, false),
      // Work that was claimed at the moment of death stays claimed.
      Effect.flatMap((claimed) => alive ? Effect.succeed(claimed) : Effect.never)
    )
  const gated = Object.fromEntries(
    Object.entries(provider).map(([name, member]) => [
      name,
      typeof member === "function"
        ? (...args: ReadonlyArray<never>) => whileAlive(() => (member as (...args: any) => Effect.Effect<any>)(...args))
        : typeof member === "boolean"
        ? member
        : whileAlive<unknown, unknown>(() => member)
    ])
  ) as unknown as Provider["Service"]
  return {
    kill: () => {
      alive = false
    },
    isDead: () => !alive,
    provider: {
      ...gated,
      onCancelled: (listener) => provider.onCancelled((activities) => alive ? listener(activities) : undefined),
      onChanged: (listener) => provider.onChanged((hasChanged) => alive ? listener(hasChanged) : undefined),
      onPaused: (listener) => provider.onPaused((pauses) => alive ? listener(pauses) : undefined),
      isNotified: provider.isNotified,
      storedText: provider.storedText,
      onStart: (begin) =>
        provider.onStart((start, nowMs, pinnedVersion) => {
          const first = alive ? begin(start, nowMs, pinnedVersion) : undefined
          return first && {
            ...first,
            settled: (stored) => {
              if (!alive) return
              Option.map(stored, (handedOver) => handedOver.forEach(onActivity))
              first.settled(stored)
            }
          }
        }),
      ackWorkItemWithin: (options) =>
        Effect.map(
          whileAlive(() => provider.ackWorkItemWithin!(options)),
          ({ committed }) => ({ committed: whileAlive(() => committed) })
        ),
      advanceOrchestration: (turn) =>
        Effect.tap(
          whileAlive(() => provider.advanceOrchestration(turn)),
          (answer) => {
            if (!alive) return Effect.interrupt
            if (answer._tag === "Advanced") answer.handedOver.forEach(onActivity)
            return Effect.void
          }
        ),
      // Waiting for work is not an event: it must not end because a poll timeout is due.
      fetchOrchestrationItem: (options) =>
        claims(() => provider.fetchOrchestrationItem({ ...options, pollTimeout: Duration.infinity })),
      fetchWorkItems: (options) =>
        Effect.tap(
          claims(() => provider.fetchWorkItems({ ...options, pollTimeout: Duration.infinity })),
          (claimed) => Effect.sync(() => claimed.forEach(onActivity))
        )
    }
  }
}
