/**
 * The three calls that put something new into the store: from the typed item to the encoded row, on whatever way the
 * rows travel.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { EncodedActivity, EncodedMessage, OrchestrationStart } from "../ProviderDriver.ts"
import type { ProviderError } from "../ProviderError.ts"
import { refused } from "./calls.ts"
import { encodeActivity, encodeItem, encodeMessage } from "./encoding.ts"
import { guardEnqueue } from "./input.ts"
import type { Enqueue } from "./input.ts"

/** How single rows travel. */
export interface Senders {
  readonly sendStart: (start: OrchestrationStart) => Effect.Effect<"Started" | "AlreadyExists", ProviderError>
  readonly sendMessage: (message: EncodedMessage) => Effect.Effect<void, ProviderError>
  readonly sendActivity: (activity: EncodedActivity) => Effect.Effect<void, ProviderError>
}

export const make = ({ sendActivity, sendMessage, sendStart }: Senders): Enqueue =>
  guardEnqueue({
    startOrchestration: ({ delay, pinnedVersion, start }) =>
      Effect.suspend(() =>
        sendStart({
          instanceId: start.instance,
          orchestrationName: start.orchestration,
          orchestrationVersion: start.version,
          workItem: encodeItem(start),
          pinnedVersion,
          delayMs: millisOrNull(delay)
        })
      ),

    enqueueForOrchestrator: (item, delay) =>
      item._tag === "ActivityExecute"
        ? refused("enqueueForOrchestrator", "item", "ActivityExecute belongs to the worker queue")
        : Effect.suspend(() => sendMessage({ ...encodeMessage(item), delayMs: millisOrNull(delay) })),

    enqueueForWorker: (item) => Effect.suspend(() => sendActivity(encodeActivity(item)))
  })

// internal

const millisOrNull = (delay: Option.Option<Duration.Duration>) => Option.getOrNull(Option.map(delay, Duration.toMillis))
