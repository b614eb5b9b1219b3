/**
 * The operations that put something new into the store, with sealed payloads.
 */
import * as Effect from "effect/Effect"
import type * as WorkItem from "../../model/WorkItem.ts"
import type { Enqueue } from "./enqueue.ts"
import * as sealing from "./sealing.ts"
import type { Sealing } from "./sealing.ts"

type Start = WorkItem.Of<"StartOrchestration">

export interface SealedEnqueue extends Enqueue {
  /** A start as its caller has given it, by what is stored. */
  readonly plainStart: (stored: Start) => Start
}

export const make = (provider: Enqueue, seals: Sealing): SealedEnqueue => {
  const plainStarts = new WeakMap<Start, Start>()
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

    startOrchestration: (options) =>
      sealing.isOurs(options.pinnedVersion)
        ? Effect.flatMap(
          sealing.ofItem(options.start, seals.seal("startOrchestration", options.start.instance)),
          (start) => {
            plainStarts.set(start, options.start)
            return provider.startOrchestration({ ...options, start })
          }
        )
        : provider.startOrchestration(options)
  }
}
