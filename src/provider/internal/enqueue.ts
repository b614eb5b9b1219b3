/**
 * The operations that put something new into the store: the start of an instance, a message, an activity.
 *
 * `Provider` sends them in shared statements; `Transaction` sends each alone on a connection of the application.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as Metrics from "../../model/Metrics.ts"
import type { StoreClock } from "../../waking/storeClock.ts"
import type { Provider } from "../Provider.ts"
import type { EncodedActivity, ProviderDriver } from "../ProviderDriver.ts"
import * as bounds from "../shared/bounds.ts"
import { answeredAlike, retried, shared } from "../shared/statement.ts"
import type { Sharing } from "../shared/statement.ts"
import * as check from "./check.ts"
import { checked } from "./check.ts"
import { encodeActivity, encodeMessage, sizeOfAck, sizeOfItem } from "./encoding.ts"
import { measured } from "./gate.ts"
import type { FirstTurns } from "./optimistic.ts"
import * as starts from "./starts.ts"
import type { Senders, StartWithTurn } from "./starts.ts"
import type { Wakeups } from "./wakeups.ts"

export type Enqueue = Pick<
  Provider["Service"],
  "startOrchestration" | "startOrchestrations" | "enqueueForOrchestrator" | "enqueueForWorker"
>

export const make = (senders: Senders): Enqueue => ({
  startOrchestration: starts.startOrchestration(senders),
  startOrchestrations: starts.startOrchestrations(senders),
  enqueueForOrchestrator: enqueueForOrchestrator(senders),
  enqueueForWorker: enqueueForWorker(senders)
})

/** The senders of a provider. */
export const sharing = Effect.fnUntraced(function*(
  driver: ProviderDriver["Service"],
  wakeups: Wakeups,
  firstTurns: FirstTurns,
  storeClock: StoreClock,
  options: Sharing
): Effect.fn.Return<Senders, never, Scope.Scope> {
  const ofItems = { ...options, sizeOf: sizeOfItem }
  return {
    sendStart: yield* shared("startOrchestration", driver.startOrchestrations, ofItems),
    // A set that lost against another transaction has stored nothing.
    sendStarts: (starts) => retried(driver.startOrchestrations(starts), ({ reason }) => reason._tag === "Contention"),
    // Not repeated: the start can be stored without the turn at once. A repetition would keep the slots of the turn,
    // and wait for rows of children that other transactions hold.
    sendFirstTurn: yield* shared(
      "startOrchestration",
      (starts: ReadonlyArray<StartWithTurn>) => driver.startOrchestrations(starts),
      {
        ...options,
        patience: Duration.zero,
        sizeOf: (start) => sizeOfItem(start) + sizeOfAck(start.firstTurn.turn)
      }
    ),
    sendMessage: yield* shared("enqueueForOrchestrator", driver.enqueueForOrchestrator, ofItems),
    sendActivity: yield* shared(
      "enqueueForWorker",
      (activities: ReadonlyArray<EncodedActivity>) => answeredAlike(activities, driver.enqueueForWorker(activities)),
      ofItems
    ),
    wakeups,
    firstTurns,
    storeClock
  }
})

// -- operations ------------------------------------------------------------------------------------

const enqueueForOrchestrator =
  ({ sendMessage, wakeups }: Senders): Enqueue["enqueueForOrchestrator"] => ({ delay, message }) =>
    checked("enqueueForOrchestrator", [
      message._tag === "ActivityExecute"
        ? ["item", "ActivityExecute belongs to the worker queue"]
        : check.message(message),
      check.delay(delay)
    ], () => {
      const delayMs = check.millisOrNull(delay)
      const encoded = encodeMessage(message)
      return measured(
        Metrics.enqueueOrchestratorDuration,
        starts.storing(
          wakeups,
          "orchestrator",
          Effect.flatMap(
            sendMessage({ ...encoded, delayMs, ...(starts.isBounded(message) && { bounds }) }),
            (answer) => {
              const { instanceId, workItem } = encoded
              if (answer === "Full") return Effect.fail(starts.full("enqueueForOrchestrator", instanceId))
              wakeups?.messageSent(instanceId, delayMs, () => workItem)
              return Effect.void
            }
          )
        )
      )
    })

const enqueueForWorker = ({ sendActivity, wakeups }: Senders): Enqueue["enqueueForWorker"] => (activity) =>
  checked(
    "enqueueForWorker",
    [check.activity(activity)],
    () => {
      const encoded = encodeActivity(activity)
      return starts.storing(
        wakeups,
        "worker",
        Effect.map(sendActivity(encoded), () => wakeups?.workStored("worker", () => encoded.workItem))
      )
    }
  )
