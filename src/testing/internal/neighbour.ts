/**
 * Another process, as far as the one of a `TestRuntime` sees it: by its hints.
 */
import * as Array from "effect/Array"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type { AdminDriver } from "../../provider/AdminDriver.ts"
import type * as tables from "../../provider/memory/tables.ts"
import { ProviderDriver } from "../../provider/ProviderDriver.ts"
import type { Abandon } from "../../provider/ProviderDriver.ts"
import { Hint } from "../../waking/Notifier.ts"
import type { Listener, Notifier, Queue } from "../../waking/Notifier.ts"

export interface Neighbour {
  readonly notifier: Notifier["Service"]
  /** Work that is visible from these times on, milliseconds since the Unix epoch. */
  readonly announce: (queue: Queue, times: ReadonlyArray<number>) => void
}

export const make = (): Neighbour => {
  let listener: Listener | undefined
  return {
    notifier: {
      name: "test",
      listen: (listening) =>
        Effect.sync(() => {
          listener = listening
          listening.connected()
        }),
      announce: () => Effect.void
    },
    announce: (queue, times) => {
      for (const visibleAtMs of new Set(times)) {
        listener?.receive({ hint: Hint.Work({ queue, visibleAtMs }), sender: "neighbour" })
      }
    }
  }
}

/**
 * The drivers, with hints for work that is abandoned with a pause: a process leaves it to the others.
 */
export const announcing = (
  drivers: Context.Context<ProviderDriver | AdminDriver>,
  neighbour: Neighbour
): Context.Context<ProviderDriver | AdminDriver> => {
  const driver = Context.get(drivers, ProviderDriver)
  const announce = (queue: Queue, items: ReadonlyArray<Abandon>) =>
    Effect.map(
      Clock.currentTimeMillis,
      (now) => neighbour.announce(queue, items.flatMap(({ delayMs }) => delayMs === null ? [] : [now + delayMs]))
    )
  return Context.add(drivers, ProviderDriver, {
    ...driver,
    abandonOrchestrationItems: (items) =>
      Effect.tap(driver.abandonOrchestrationItems(items), announce("orchestrator", items)),
    abandonWorkItems: (items) => Effect.tap(driver.abandonWorkItems(items), announce("worker", items))
  })
}

/**
 * Announces the work that an earlier process left to the next one; a real process would find it by polling. Some at a
 * time, since a provider that is announced too many hints at once leaves some out.
 */
export const announceLeftovers = (
  neighbour: Neighbour,
  store: tables.Tables,
  rest: Effect.Effect<void>
): Effect.Effect<void> =>
  Effect.suspend(() => {
    const later = ({ lock, visibleAtMs }: tables.Queued) => Math.max(visibleAtMs, lock?.untilMs ?? 0)
    const chunks = (queued: Iterable<tables.Queued>) => Array.chunksOf([...queued].map(later), 32)
    return Effect.forEach([
      ...chunks(store.activities.values()).map((times) => ["worker", times] as const),
      ...chunks(store.messages.values()).map((times) => ["orchestrator", times] as const)
    ], ([queue, times]) =>
      Effect.suspend(() => (neighbour.announce(queue, times), rest)), { discard: true })
  })
