/**
 * The operations that put something new into the store: the start of an instance, a message, an activity.
 *
 * `Provider` sends them in shared statements; `Transaction` sends each alone on a connection of the application.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as Metrics from "../../model/Metrics.ts"
import * as WorkItem from "../../model/WorkItem.ts"
import type { Provider } from "../Provider.ts"
import type { EncodedActivity, EncodedMessage, OrchestrationStart, ProviderDriver } from "../ProviderDriver.ts"
import type { ProviderError } from "../ProviderError.ts"
import * as check from "./check.ts"
import { checked } from "./check.ts"
import { encodeActivity, encodeItem, encodeMessage, sizeOfItem } from "./encoding.ts"
import { answeredAlike, measured, shared } from "./statement.ts"
import type { Sharing } from "./statement.ts"
import type { Wakeups } from "./wakeups.ts"

export type Enqueue = Pick<
  Provider["Service"],
  "startOrchestration" | "enqueueForOrchestrator" | "enqueueForWorker"
>

/** Sends single rows, and wakes those that wait for them. */
export interface Senders {
  readonly sendStart: (start: OrchestrationStart) => Effect.Effect<"Started" | "AlreadyExists", ProviderError>
  readonly sendMessage: (message: EncodedMessage) => Effect.Effect<void, ProviderError>
  readonly sendActivity: (activity: EncodedActivity) => Effect.Effect<void, ProviderError>
  /** Absent where nothing is visible before a commit. */
  readonly wakeups?: Wakeups
}

export const make = (senders: Senders): Enqueue => ({
  startOrchestration: startOrchestration(senders),
  enqueueForOrchestrator: enqueueForOrchestrator(senders),
  enqueueForWorker: enqueueForWorker(senders)
})

/** The senders of a provider. */
export const sharing = Effect.fnUntraced(function*(
  driver: ProviderDriver["Service"],
  wakeups: Wakeups,
  options: Sharing
): Effect.fn.Return<Senders, never, Scope.Scope> {
  const ofItems = { ...options, sizeOf: sizeOfItem }
  return {
    sendStart: yield* shared("startOrchestration", driver.startOrchestrations, ofItems),
    sendMessage: yield* shared(
      "enqueueForOrchestrator",
      (messages: ReadonlyArray<EncodedMessage>) => answeredAlike(messages, driver.enqueueForOrchestrator(messages)),
      ofItems
    ),
    sendActivity: yield* shared(
      "enqueueForWorker",
      (activities: ReadonlyArray<EncodedActivity>) => answeredAlike(activities, driver.enqueueForWorker(activities)),
      ofItems
    ),
    wakeups
  }
})

// -- operations ------------------------------------------------------------------------------------

const startOrchestration =
  ({ sendStart, wakeups }: Senders): Enqueue["startOrchestration"] => ({ delay, pinnedVersion, start }) =>
    checked("startOrchestration", [
      check.id("instance", start.instance),
      check.id("parentInstance", start.parentInstance),
      check.name("orchestration", start.orchestration),
      check.name("version", start.version),
      check.version("pinnedVersion", pinnedVersion),
      check.delay(delay)
    ], () => {
      const delayMs = check.millisOrNull(delay)
      return measured(
        "enqueue",
        Metrics.enqueueOrchestratorDuration,
        sendStart({
          instanceId: start.instance,
          orchestrationName: start.orchestration,
          orchestrationVersion: start.version,
          workItem: encodeItem(start),
          pinnedVersion,
          delayMs
        })
      ).pipe(Effect.tap((answer) => answer === "Started" ? wakeAfter(wakeups, start.instance, delayMs) : Effect.void))
    })

const enqueueForOrchestrator =
  ({ sendMessage, wakeups }: Senders): Enqueue["enqueueForOrchestrator"] => ({ delay, message }) =>
    checked("enqueueForOrchestrator", [
      message._tag === "ActivityExecute"
        ? ["item", "ActivityExecute belongs to the worker queue"]
        : check.message(message),
      check.delay(delay)
    ], () => {
      const delayMs = check.millisOrNull(delay)
      return measured(
        "enqueue",
        Metrics.enqueueOrchestratorDuration,
        sendMessage({ ...encodeMessage(message), delayMs })
      ).pipe(Effect.tap(() => wakeAfter(wakeups, WorkItem.target(message), delayMs)))
    })

const enqueueForWorker = ({ sendActivity, wakeups }: Senders): Enqueue["enqueueForWorker"] => (activity) =>
  checked(
    "enqueueForWorker",
    [check.activity(activity)],
    () => Effect.tap(sendActivity(encodeActivity(activity)), () => Effect.sync(() => wakeups?.workers.wake()))
  )

// internal

const wakeAfter = (wakeups: Wakeups | undefined, instanceId: string, delayMs: number | null) =>
  wakeups === undefined ? Effect.void : Effect.map(
    Clock.currentTimeMillis,
    (nowMs) => wakeups.messageSent(instanceId, delayMs === null ? null : nowMs + delayMs)
  )
