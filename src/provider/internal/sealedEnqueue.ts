/**
 * The operations that put something new into the store, with sealed payloads.
 */
import * as Effect from "effect/Effect"
import type * as WorkItem from "../../model/WorkItem.ts"
import type { Start } from "../Provider.ts"
import type { ProviderError } from "../ProviderError.ts"
import type { Enqueue } from "./enqueue.ts"
import * as sealing from "./sealing.ts"
import type { Sealing } from "./sealing.ts"

type StartItem = WorkItem.Of<"StartOrchestration">

export interface SealedEnqueue extends Enqueue {
  /** A start as its caller has given it, by what is stored. */
  readonly plainStart: (stored: StartItem) => StartItem
}

export const make = (provider: Enqueue, seals: Sealing): SealedEnqueue => {
  const plainStarts = new WeakMap<StartItem, StartItem>()

  /** Also of the signal that comes with it: one for an instance of Rust that runs under this id stays plain. */
  const sealed = Effect.fnUntraced(function*(operation: string, given: Start): Effect.fn.Return<Start, ProviderError> {
    const { message, pinnedVersion, start } = given
    if (!sealing.isOurs(pinnedVersion)) return given
    const stored = yield* sealing.ofItem(start, seals.seal(operation, start.instance))
    plainStarts.set(stored, start)
    return {
      ...given,
      start: stored,
      ...(message !== undefined && { message: yield* seals.message(operation, message) })
    }
  })

  return {
    plainStart: (stored) => plainStarts.get(stored) ?? stored,

    enqueueForOrchestrator: ({ delay, message }) =>
      // A start without a pin may be taken by a process of Rust.
      message._tag === "StartOrchestration"
        ? provider.enqueueForOrchestrator({ delay, message })
        : Effect.flatMap(
          seals.message("enqueueForOrchestrator", message),
          (message) => provider.enqueueForOrchestrator({ delay, message })
        ),

    enqueueForWorker: (activity) =>
      Effect.flatMap(
        sealing.ofItem(activity, seals.seal("enqueueForWorker", activity.instance)),
        provider.enqueueForWorker
      ),

    startOrchestration: (options) => Effect.flatMap(sealed("startOrchestration", options), provider.startOrchestration),

    startOrchestrations: (all) =>
      Effect.flatMap(
        Effect.forEach(all, (one) => sealed("startOrchestrations", one), { concurrency: 16 }),
        provider.startOrchestrations
      )
  }
}
