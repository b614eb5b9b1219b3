/**
 * The operations that put something new into the store: the start of an instance, a message, an activity.
 *
 * `Provider` sends them in shared statements; `Transaction` sends each alone on a connection of the application.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Metrics from "../../model/Metrics.ts"
import * as interruptSignal from "../../model/shared/interruptSignal.ts"
import * as taskSignal from "../../model/shared/taskSignal.ts"
import type * as WorkItem from "../../model/WorkItem.ts"
import type { Queue } from "../../waking/Notifier.ts"
import type { StoreClock } from "../../waking/storeClock.ts"
import type { Provider, Turn } from "../Provider.ts"
import type {
  EncodedActivity,
  EncodedMessage,
  OrchestrationStart,
  ProviderDriver,
  StartAnswer
} from "../ProviderDriver.ts"
import { InstanceFull, ProviderError } from "../ProviderError.ts"
import * as bounds from "../shared/bounds.ts"
import { answeredAlike, isOfOneCall, shared } from "../shared/statement.ts"
import type { Sharing } from "../shared/statement.ts"
import * as check from "./check.ts"
import { checked } from "./check.ts"
import {
  changesOf,
  encodeActivity,
  encodeItem,
  encodeMessage,
  encodeUnclaimedTurn,
  sizeOfAck,
  sizeOfItem,
  Unstorable
} from "./encoding.ts"
import { measured } from "./gate.ts"
import { claimedOf, encodeHandOver } from "./optimistic.ts"
import type { BegunTurn, FirstTurns } from "./optimistic.ts"
import type { Wakeups } from "./wakeups.ts"

export type Enqueue = Pick<
  Provider["Service"],
  "startOrchestration" | "enqueueForOrchestrator" | "enqueueForWorker"
>

/** Sends single rows, and wakes those that wait for them. */
export interface Senders {
  readonly sendStart: (start: OrchestrationStart) => Effect.Effect<StartAnswer, ProviderError>
  /** Stores a start with its first turn. Fails at once when another transaction locks what it writes. */
  readonly sendFirstTurn?: (start: StartWithTurn) => Effect.Effect<StartAnswer, ProviderError>
  readonly sendMessage: (message: EncodedMessage) => Effect.Effect<"Sent" | "Full", ProviderError>
  readonly sendActivity: (activity: EncodedActivity) => Effect.Effect<void, ProviderError>
  /** Absent where nothing is visible before a commit. */
  readonly wakeups?: Wakeups
  readonly firstTurns?: FirstTurns
  readonly storeClock?: StoreClock
  /** Passes the payloads of a first turn through the codec. */
  readonly sealTurn?: ((operation: string, turn: Turn) => Effect.Effect<Turn, ProviderError>) | undefined
}

interface StartWithTurn extends OrchestrationStart {
  readonly firstTurn: NonNullable<OrchestrationStart["firstTurn"]>
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
  firstTurns: FirstTurns,
  storeClock: StoreClock,
  options: Sharing
): Effect.fn.Return<Senders, never, Scope.Scope> {
  const ofItems = { ...options, sizeOf: sizeOfItem }
  return {
    sendStart: yield* shared("startOrchestration", driver.startOrchestrations, ofItems),
    // The start can be stored without the turn, which keeps slots, and may start children that others hold.
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

const startOrchestration = (senders: Senders): Enqueue["startOrchestration"] => ({ delay, pinnedVersion, start }) =>
  checked("startOrchestration", [
    check.id("instance", start.instance),
    check.id("parentInstance", start.parentInstance),
    check.name("orchestration", start.orchestration),
    check.name("version", start.version),
    check.version("pinnedVersion", pinnedVersion),
    check.delay(delay)
  ], () => {
    const delayMs = check.millisOrNull(delay)
    const stored: OrchestrationStart = {
      instanceId: start.instance,
      orchestrationName: start.orchestration,
      orchestrationVersion: start.version,
      workItem: encodeItem(start),
      pinnedVersion,
      delayMs,
      ...(start.attributes !== undefined && { attributes: changesOf(start.attributes) })
    }
    // Once begun, a first turn is settled, whenever the caller is interrupted.
    return Effect.uninterruptibleMask((restore) =>
      Effect.suspend(() => {
        const firstTurn = delayMs === null || delayMs === 0
          ? senders.firstTurns?.begin(start, pinnedVersion)
          : undefined
        return firstTurn === undefined
          ? restore(sendAlone(senders, stored))
          : Effect.flatMap(
            Effect.forkDetach(sendWith(senders, stored, firstTurn), { startImmediately: true }),
            (sent) => restore(Fiber.join(sent))
          )
      })
    ).pipe(
      (sent) => measured(Metrics.enqueueOrchestratorDuration, sent),
      Effect.map((answer) => answer === "Begun" ? "Started" : answer)
    )
  })

const sendAlone = ({ sendStart, wakeups }: Senders, start: OrchestrationStart) =>
  storing(
    wakeups,
    "orchestrator",
    Effect.map(sendStart(start), (answer) => {
      if (answer === "AlreadyExists") return answer
      wakeStarted(wakeups, start)
      return "Started"
    })
  )

/**
 * A first turn that cannot be stored is left to the process that claims the start: it gives back its slots at once, and
 * the start is sent alone.
 */
const sendWith = (senders: Senders, start: OrchestrationStart, firstTurn: BegunTurn) =>
  Effect.suspend(() => {
    const { sealTurn, sendFirstTurn, storeClock, wakeups } = senders
    const { clockMs, handOver, settled, turn } = firstTurn
    let stored: Option.Option<ReturnType<typeof claimedOf>> = Option.none()
    const isUnstorable = [...check.turn(turn), ...check.handOver(handOver)].some((problem) => problem !== undefined)
    const sendTurn = (turn: Turn): Effect.Effect<StartAnswer | "Unstored", ProviderError> => {
      const encoded = isUnstorable ? undefined : encodedOrNot(turn, clockMs)
      return sendFirstTurn === undefined || encoded === undefined || check.turnSize(encoded) !== undefined
        ? Effect.succeed("Unstored")
        : Effect.catchIf(
          sendFirstTurn({ ...start, firstTurn: { turn: encoded, handOver: encodeHandOver(handOver) } }),
          isOfOneCall,
          () => Effect.succeed("Unstored" as const)
        )
    }
    const together = sealTurn === undefined
      ? sendTurn(turn)
      : Effect.matchEffect(sealTurn("startOrchestration", turn), {
        onSuccess: sendTurn,
        onFailure: () => Effect.succeed("Unstored" as const)
      })
    const announced = Effect.map(together, (answer) => {
      if (typeof answer === "string") return answer
      if (answer._tag === "Started") {
        storeClock?.corrected(answer.nowMs)
        return "Started"
      }
      storeClock?.heard(answer.nowMs)
      stored = Option.some(claimedOf(turn, answer.handedOver, wakeups))
      wakeups?.started(start.instanceId)
      wakeups?.turnStored(turn, answer.handedOver.length)
      return "Begun"
    }).pipe(
      Effect.onExit(() => Effect.sync(() => settled(stored))),
      // A turn under way would keep the wake-up back.
      Effect.tap((answer) => Effect.sync(() => answer === "Started" && wakeStarted(wakeups, start)))
    )
    // With a handover, the locks that it takes are announced.
    return storing(wakeups, "orchestrator", announced).pipe(
      Effect.flatMap((answer) => answer === "Unstored" ? sendAlone(senders, start) : Effect.succeed(answer))
    )
  })

const encodedOrNot = (turn: Turn, clockMs: () => number) => {
  try {
    return encodeUnclaimedTurn(turn, clockMs)
  } catch (thrown) {
    if (thrown instanceof Unstorable) return undefined
    throw thrown
  }
}

/** Signals of applications. What this package sends, an instance must receive however full it is. */
const isBounded = (message: WorkItem.WorkItem) =>
  message._tag === "ExternalRaised" ||
  message._tag === "QueueMessage" && message.name !== interruptSignal.name && !taskSignal.isName(message.name)

const full = (instanceId: string) =>
  new ProviderError({ operation: "enqueueForOrchestrator", reason: new InstanceFull({ instanceId }) })

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
        storing(
          wakeups,
          "orchestrator",
          Effect.flatMap(
            sendMessage({ ...encoded, delayMs, ...(isBounded(message) && { bounds }) }),
            (answer) => {
              const { instanceId, workItem } = encoded
              if (answer === "Full") return Effect.fail(full(instanceId))
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
      return storing(
        wakeups,
        "worker",
        Effect.map(sendActivity(encoded), () => wakeups?.workStored("worker", () => encoded.workItem))
      )
    }
  )

// internal

const storing = <A, E, R>(wakeups: Wakeups | undefined, queue: Queue, call: Effect.Effect<A, E, R>) =>
  wakeups === undefined ? call : wakeups.storing(queue, call)

const wakeStarted = (wakeups: Wakeups | undefined, { delayMs, instanceId, workItem }: OrchestrationStart) => {
  wakeups?.started(instanceId)
  wakeups?.messageSent(instanceId, delayMs, () => workItem)
}
