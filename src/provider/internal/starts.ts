/**
 * The start of instances: one, which may bring its first turn along, or many in one statement.
 */
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Metrics from "../../model/Metrics.ts"
import * as interruptSignal from "../../model/shared/interruptSignal.ts"
import { problemOfLimitKey } from "../../model/shared/limits.ts"
import * as taskSignal from "../../model/shared/taskSignal.ts"
import * as WorkItem from "../../model/WorkItem.ts"
import type { Queue } from "../../waking/Notifier.ts"
import type { StoreClock } from "../../waking/storeClock.ts"
import type { Provider, Start, StartOutcome, Turn } from "../Provider.ts"
import type { EncodedActivity, EncodedMessage, OrchestrationStart, StartAnswer } from "../ProviderDriver.ts"
import { InstanceFull, ProviderError } from "../ProviderError.ts"
import * as bounds from "../shared/bounds.ts"
import { isOfOneCall } from "../shared/statement.ts"
import * as check from "./check.ts"
import { checked } from "./check.ts"
import { changesOf, encodeItem, encodeUnclaimedTurn, sizeOfItem, Unstorable } from "./encoding.ts"
import { measured } from "./gate.ts"
import { claimedOf, encodeHandOver } from "./optimistic.ts"
import type { BegunTurn, FirstTurns } from "./optimistic.ts"
import type { Wakeups } from "./wakeups.ts"

/** Sends rows, and wakes those that wait for them. */
export interface Senders {
  readonly sendStart: (start: OrchestrationStart) => Effect.Effect<StartAnswer, ProviderError>
  /** Sends a set in one statement. */
  readonly sendStarts: (
    starts: ReadonlyArray<OrchestrationStart>
  ) => Effect.Effect<ReadonlyArray<StartAnswer>, ProviderError>
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

export interface StartWithTurn extends OrchestrationStart {
  readonly firstTurn: NonNullable<OrchestrationStart["firstTurn"]>
}

type Service = Provider["Service"]

export const startOrchestration = (senders: Senders): Service["startOrchestration"] => (given) =>
  checked("startOrchestration", problemsOf(given), () => {
    const stored = encoded(given)
    // Once begun, a first turn is settled, whenever the caller is interrupted.
    return Effect.uninterruptibleMask((restore) =>
      Effect.suspend(() => {
        const firstTurn = mayBringTurn(stored) ? senders.firstTurns?.begin(given.start, given.pinnedVersion) : undefined
        return firstTurn === undefined
          ? restore(sendAlone(senders, stored))
          : Effect.flatMap(
            Effect.forkDetach(sendWithTurn(senders, stored, firstTurn), { startImmediately: true }),
            (sent) => restore(Fiber.join(sent))
          )
      })
    ).pipe(
      (sent) => measured(Metrics.enqueueOrchestratorDuration, sent),
      Effect.flatMap((answer) =>
        answer === "Full" ? Effect.fail(full("startOrchestration", given.start.instance)) : Effect.succeed(answer)
      )
    )
  })

export const startOrchestrations = (senders: Senders): Service["startOrchestrations"] => (given) =>
  checked("startOrchestrations", [
    ...given.flatMap(problemsOf),
    given.some(({ message }) => message !== undefined) ? ["message", "a set of starts takes no messages"] : undefined
  ], () => {
    const { sendStarts, wakeups } = senders
    return Effect.map(
      Effect.forEach(chunksOf(given.map(encoded)), (chunk) =>
        measured(
          Metrics.enqueueOrchestratorDuration,
          storing(
            wakeups,
            "orchestrator",
            Effect.map(sendStarts(chunk), (answers) => {
              wakeAll(wakeups, chunk.filter((_, i) => answers[i] !== "AlreadyExists"))
              return answers.map((answer): StartOutcome => answer === "AlreadyExists" ? answer : "Started")
            })
          )
        )),
      (chunks) => chunks.flat()
    )
  })

/** Signals of applications. What this package sends, an instance must receive however full it is. */
export const isBounded = (message: WorkItem.WorkItem) =>
  message._tag === "ExternalRaised" ||
  message._tag === "QueueMessage" && message.name !== interruptSignal.name && !taskSignal.isName(message.name)

export const full = (operation: string, instanceId: string) =>
  new ProviderError({ operation, reason: new InstanceFull({ instanceId }) })

// internal

const sendAlone = ({ sendStart, wakeups }: Senders, start: OrchestrationStart) =>
  storing(
    wakeups,
    "orchestrator",
    Effect.map(sendStart(start), (answer) => {
      if (answer === "Ended" || answer === "Full") return answer
      if (answer !== "AlreadyExists") wakeStarted(wakeups, start)
      else if (start.message !== undefined) wakeups?.messageSent(start.instanceId, null, () => start.message!.workItem)
      return answer === "AlreadyExists" ? answer : "Started"
    })
  )

/**
 * A first turn that cannot be stored is left to the process that claims the start: the turn gives back its slots at
 * once, and the start is sent alone.
 */
const sendWithTurn = (senders: Senders, start: OrchestrationStart, firstTurn: BegunTurn) =>
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
      return "Started"
    }).pipe(
      Effect.onExit(() => Effect.sync(() => settled(stored))),
      // After `settled`: as long as the turn is open, the wake-up is held back.
      Effect.tap((answer) =>
        Effect.sync(() => answer === "Started" && Option.isNone(stored) && wakeStarted(wakeups, start))
      )
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

export const storing = <A, E, R>(wakeups: Wakeups | undefined, queue: Queue, call: Effect.Effect<A, E, R>) =>
  wakeups === undefined ? call : wakeups.storing(queue, call)

const wakeStarted = (wakeups: Wakeups | undefined, start: OrchestrationStart) => {
  const { delayMs, instanceId, startAtMs, workItem } = start
  wakeups?.started(instanceId)
  wakeups?.messageSent(instanceId, startAtMs === undefined ? delayMs : { atMs: startAtMs }, () => workItem)
}

/** All that begin at once are one piece of news, and so are those that begin at the same time. */
const wakeAll = (wakeups: Wakeups | undefined, starts: ReadonlyArray<OrchestrationStart>) => {
  const times = new Map<number | null, OrchestrationStart>()
  for (const start of starts) {
    wakeups?.started(start.instanceId)
    times.set(start.startAtMs ?? start.delayMs, start)
  }
  for (const { delayMs, instanceId, startAtMs } of times.values()) {
    wakeups?.messageSent(instanceId, startAtMs === undefined ? delayMs : { atMs: startAtMs })
  }
}

const problemsOf = ({ delay, message, pinnedVersion, start, startAtMs }: Start): ReadonlyArray<check.Problem> => [
  check.id("instance", start.instance),
  check.id("parentInstance", start.parentInstance),
  check.name("orchestration", start.orchestration),
  check.name("version", start.version),
  check.version("pinnedVersion", pinnedVersion),
  check.delay(delay),
  check.instant("startAtMs", startAtMs),
  start.limitKey === undefined ? undefined : limitKeyProblem(start.limitKey),
  startAtMs !== undefined && Option.isSome(delay)
    ? ["startAtMs", "it comes with a delay: give one of them"]
    : undefined,
  message === undefined || message.instance === start.instance
    ? undefined
    : ["message", "it is for another instance than its start"]
]

const limitKeyProblem = (key: string): check.Problem => {
  const problem = problemOfLimitKey(key)
  return problem === undefined ? undefined : ["limitKey", problem]
}

const encoded = ({ delay, message, pinnedVersion, replaces, start, startAtMs }: Start): OrchestrationStart => ({
  instanceId: start.instance,
  orchestrationName: start.orchestration,
  orchestrationVersion: start.version,
  workItem: encodeItem(start),
  pinnedVersion,
  delayMs: check.millisOrNull(delay),
  ...(startAtMs !== undefined && { startAtMs: Math.ceil(startAtMs) }),
  ...(replaces !== undefined && { replaces }),
  ...(message !== undefined && { message: { workItem: encodeItem(message), bounds } }),
  ...(start.attributes !== undefined && { attributes: changesOf(start.attributes) }),
  ...(start.limitKey !== undefined && { limitKey: start.limitKey })
})

/** Whether the start may bring its first turn along. */
const mayBringTurn = ({ delayMs, message, replaces, startAtMs }: OrchestrationStart) =>
  (delayMs === null || delayMs === 0) && startAtMs === undefined && replaces === undefined && message === undefined

/** Sets that travel in one statement each, in order. */
const chunksOf = (starts: ReadonlyArray<OrchestrationStart>): ReadonlyArray<ReadonlyArray<OrchestrationStart>> => {
  const chunks: Array<Array<OrchestrationStart>> = []
  let bytes = Infinity
  for (const start of starts) {
    if (bytes >= maxSetBytes || chunks.at(-1)!.length >= maxSetStarts) {
      chunks.push([])
      bytes = 0
    }
    chunks.at(-1)!.push(start)
    bytes += sizeOfItem(start)
  }
  return chunks
}

/** After that many bytes of texts, a set takes no further start. */
const maxSetBytes = 8 * 1024 * 1024

const maxSetStarts = 10_000
