/**
 * One process of a test: what its runtime sees of the store, and how it dies.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as WorkItem from "../../model/WorkItem.ts"
import type { Claimed, Provider } from "../../provider/Provider.ts"
import { InBackground } from "./virtualTime.ts"

export interface Process {
  readonly provider: Provider["Service"]
  /** From now on nothing the process does reaches the store, and it gets nothing from there. */
  readonly kill: () => void
}

export const make = (
  provider: Provider["Service"],
  onActivity: (claimed: Claimed<WorkItem.Of<"ActivityExecute">>) => void
): Process => {
  let alive = true
  const whileAlive = <A, E>(call: () => Effect.Effect<A, E>) => Effect.suspend(() => alive ? call() : Effect.interrupt)
  const claims = <A, E>(call: () => Effect.Effect<A, E>) =>
    Effect.suspend(() => alive ? call() : Effect.never).pipe(
      // What falls due in the store is what time passes for.
      Effect.provideService(InBackground, false),
      // What was claimed at the moment of death stays claimed.
      Effect.flatMap((claimed) => alive ? Effect.succeed(claimed) : Effect.never)
    )
  const gated = Object.fromEntries(
    Object.entries(provider).map(([name, member]) => [
      name,
      typeof member === "function"
        ? (...args: ReadonlyArray<never>) => whileAlive(() => (member as (...args: any) => Effect.Effect<any>)(...args))
        : whileAlive(() => member)
    ])
  ) as unknown as Provider["Service"]
  return {
    kill: () => {
      alive = false
    },
    provider: {
      ...gated,
      onCancelled: (listener) => provider.onCancelled((activities) => alive ? listener(activities) : undefined),
      // To wait for work is nothing that happens: it takes as long as it takes.
      fetchOrchestrationItem: (options) =>
        claims(() => provider.fetchOrchestrationItem({ ...options, pollTimeout: Duration.infinity })),
      fetchWorkItem: (options) =>
        Effect.tap(
          claims(() => provider.fetchWorkItem({ ...options, pollTimeout: Duration.infinity })),
          (claimed) => Effect.sync(() => Option.map(claimed, onActivity))
        )
    }
  }
}
