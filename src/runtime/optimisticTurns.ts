/**
 * Runs turns before they are claimed, and stores each with what leads to it: the start of an instance, or the outcomes
 * of activities that end here while the program of their instance waits here. Where that is not possible, the start or
 * the outcomes are stored alone, and a claim runs the turn.
 *
 * An instance has one such turn under way at most. Outcomes that come in the same tick, or during a turn, lead to one
 * turn together.
 */
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type * as Event from "../model/Event.ts"
import * as Metrics from "../model/Metrics.ts"
import * as coreVersion from "../model/shared/coreVersion.ts"
import { seriesOf } from "../model/shared/labelled.ts"
import { linked, ours } from "../model/shared/logging.ts"
import { monotonicMs } from "../model/shared/monotonic.ts"
import type { Claimed, HandOver, Provider, Turn } from "../provider/Provider.ts"
import { LockLost, ProviderError } from "../provider/ProviderError.ts"
import * as turns from "../replay/turn.ts"
import * as decide from "./decide.ts"
import type { Activity, Completion } from "./decide.ts"
import type { Backoff, UnstoredTurns } from "./policies.ts"
import type { Registry } from "./registry.ts"
import { component, executionOf, report, reportWarm } from "./reports.ts"
import type { Settings } from "./settings.ts"
import * as spans from "./spans.ts"
import type { TurnRunner } from "./turnRunner.ts"
import type { WarmInstances } from "./warmInstances.ts"

export interface OptimisticTurns {
  /** Stores an outcome, as `ackWorkItem` does: if possible, together with the turn it leads to. */
  readonly store: StoreOutcome
  /** From now on, activities of these turns are handed over to `slots`. */
  readonly handOverTo: (slots: HandOverSlots) => void
}

export type StoreOutcome = (
  activity: Pick<Claimed<Activity>, "attemptCount" | "item" | "lockToken">,
  completion: Completion
) => Effect.Effect<void, ProviderError>

/** The slots for activities that are handed over. */
export interface HandOverSlots {
  /** What they serve. */
  readonly activities: () => ReadonlySet<string>
  readonly tags: () => Settings["tags"]
  readonly lockTimeout: Settings["workerLockTimeout"]
  /** Keeps room for up to `most` activities; returns for how many. */
  readonly reserve: (most: number) => number
  /** How many more could be reserved. */
  readonly free: () => number
  /** Gives back slots that are not used. */
  readonly release: (count: number) => void
  /** Runs an activity in a slot that was reserved for it; its turn was sent at `askedAtMs`, monotonic milliseconds. */
  readonly begin: (claimed: Claimed<Activity>, askedAtMs: number) => void
}

export const make = Effect.fnUntraced(function*(options: {
  readonly provider: Provider["Service"]
  readonly registry: Registry
  readonly settings: Settings
  readonly warm: WarmInstances
  readonly runner: TurnRunner
  readonly backoff: Backoff
  readonly unstored: UnstoredTurns
  /** Whether an operator has paused this version of an orchestration. */
  readonly isPaused: (name: string, version: string) => boolean
  /** Whether another first turn may begin, while so many wait for the store. */
  readonly mayRunFirstTurn: (firstTurns: number) => boolean
}): Effect.fn.Return<OptimisticTurns, never, Scope.Scope> {
  const { backoff, isPaused, mayRunFirstTurn, provider, registry, runner, settings, unstored, warm } = options
  const clock = yield* Clock.Clock
  const context = yield* Effect.context<never>()
  const runFork = Effect.runForkWith(context)
  const runSyncExit = Effect.runSyncExitWith(context)
  let slots: HandOverSlots | undefined

  const reserve = (turn: Turn): Reserved | undefined => {
    const most = slots === undefined ? 0 : decide.mayBeHandedOver(turn, slots.activities())
    const limit = most === 0 ? 0 : slots!.reserve(most)
    if (limit === 0) return undefined
    const { activities, lockTimeout, tags } = slots!
    return {
      handOver: {
        limit,
        spare: Math.min(slots!.free(), mostSpare),
        lockTimeout,
        activities: [...activities()],
        tags: tags()
      },
      askedAtMs: monotonicMs(clock)
    }
  }

  /** Runs what was handed over, and gives back the slots that are left. */
  const beginHandedOver = (reserved: Reserved | undefined, handedOver: ReadonlyArray<Claimed<Activity>>) => {
    if (reserved === undefined) return
    const { askedAtMs, handOver: { limit } } = reserved
    for (const claimed of handedOver) slots!.begin(claimed, askedAtMs)
    if (limit > handedOver.length) slots!.release(limit - handedOver.length)
  }

  const stored = (
    instanceId: string,
    name: string,
    first: Event.Event | undefined,
    ran: turns.Ran,
    turnSpan: spans.TurnSpan
  ) => {
    if (ran.warm !== undefined) warm.add(instanceId, ran.warm, provider.storedText)
    return Effect.forEach(ran.warnings, (warning) => Effect.logWarning(`${component}: ${warning}`)).pipe(
      Effect.andThen(turnSpan.stored(ran)),
      Effect.andThen(report(executionOf(name, first, ran.turn), ran)),
      Effect.andThen(reportWarm(warm))
    )
  }

  const ofInstance = (instanceId: string, executionId: number) => <A>(effect: Effect.Effect<A>): Effect.Effect<A> =>
    Effect.tap(effect, runner.reportPrograms).pipe(
      ours(linked(context, { instance_id: instanceId, execution_id: executionId }))
    )

  // -- with the start of an instance ---------------------------------------------------------------

  let firstTurns = 0
  if (settings.optimisticTurns && !settings.verifyReplay) {
    yield* provider.onStart((start, nowMs, pinnedVersion) => {
      const isOurs = coreVersion.isWithin(pinnedVersion, coreVersion.supported)
      const first = isOurs && mayRunFirstTurn(firstTurns)
        ? decide.firstTurn(start, nowMs, registry, isPaused)
        : undefined
      if (first === undefined) return undefined
      const { batch: { executionId }, item: { instanceId }, registration: { name } } = first
      const { traceparent } = start
      const annotated = ofInstance(instanceId, executionId)
      const cause = { name, instanceId, executionId, traceparent, messages: [start] }
      const exit = runSyncExit(annotated(spans.inOpenTurn(
        cause,
        runner.replay({ ...first, warm: undefined, ran: undefined })
      )))
      // A turn that breaks or is blocked is left to the claim, which reports it.
      if (Exit.isFailure(exit)) return undefined
      const { ran, turnSpan } = exit.value
      if (ran instanceof turns.Blocked) {
        if (turnSpan.span !== undefined) runFork(turnSpan.end(Exit.void))
        return undefined
      }
      const { turn } = ran
      const reserved = reserve(turn)
      firstTurns++
      return {
        turn,
        handOver: reserved?.handOver,
        settled: (handedOver) => {
          firstTurns--
          // First: what is handed over may end at once, and leads to the next turn.
          runFork(
            annotated(
              Option.isSome(handedOver)
                ? Effect.andThen(count("first", "advanced"), stored(instanceId, name, undefined, ran, turnSpan))
                : count("first", "queued")
            )
          )
          beginHandedOver(reserved, Option.getOrElse(handedOver, () => []))
          if (Option.isNone(handedOver)) turnSpan.notStored()
          if (turnSpan.span !== undefined) runFork(turnSpan.end(Exit.void))
        }
      }
    })
  }

  // -- with outcomes of activities -----------------------------------------------------------------

  /** Outcomes by instance that wait for a turn. An instance is here while one of its turns is gathered or under way. */
  const waiting = new Map<string, Array<Outcome>>()
  const isOn = settings.optimisticTurns && !settings.verifyReplay

  const settle = (outcomes: ReadonlyArray<Outcome>, answer: Answer) => {
    for (const { settled } of outcomes) Deferred.doneUnsafe(settled, Exit.succeed(answer))
  }

  /** The turn that outcomes lead to: it is stored with them, or they are left to the ordinary way. */
  const advance = (instanceId: string, outcomes: ReadonlyArray<Outcome>): Effect.Effect<void> => {
    const program = warm.peek(instanceId)
    const clockMs = provider.storeNowMs()
    if (program === undefined || clockMs === undefined || isPaused(program.started.name, program.started.version)) {
      return Effect.sync(() => settle(outcomes, "Unstored"))
    }
    const fitting = outcomes.filter(({ activity }) => decide.canAdvance(activity, program))
    settle(outcomes.filter((outcome) => !fitting.includes(outcome)), "Unstored")
    if (fitting.length === 0) return Effect.void
    const nowMs = decide.optimisticTime(clockMs, program)
    // Whatever follows, only its next state may be used.
    warm.take(instanceId)
    const messages = fitting.map(({ completion }) => completion)
    const { executionId, started: { name, traceparent } } = program
    return spans.inTurn(
      { name, instanceId, executionId, traceparent, messages },
      (turnSpan) =>
        Effect.flatMap(runner.resume(program, { nowMs, messages }, { messages }), (resumed) => {
          if (resumed._tag === "Ran") return send(instanceId, program, clockMs, resumed.ran, fitting, turnSpan)
          turnSpan.notStored()
          return reportWarm(warm)
        })
    ).pipe(
      Effect.catchCause((cause) => Effect.logError(`${component}: turn broke, it is left to the next claim`, cause)),
      // Those that are not settled yet.
      Effect.ensuring(Effect.sync(() => settle(fitting, "Unstored"))),
      ofInstance(instanceId, program.executionId)
    )
  }

  const send = (
    instanceId: string,
    program: turns.WarmProgram,
    clockMs: number,
    ran: turns.Ran,
    outcomes: ReadonlyArray<Outcome>,
    turnSpan: spans.TurnSpan
  ): Effect.Effect<void> =>
    Effect.suspend(() => {
      turnSpan.ran(ran)
      const reserved = reserve(ran.turn)
      const results = outcomes.map(({ activity: { lockToken }, completion }) => ({ lockToken, completion }))
      return provider.advanceOrchestration({
        instanceId,
        lastEvent: program.lastEvent,
        results,
        turn: ran.turn,
        clockMs,
        handOver: reserved?.handOver
      }).pipe(
        Effect.onExit((exit) =>
          Effect.sync(() =>
            beginHandedOver(
              reserved,
              Exit.isSuccess(exit) && exit.value._tag === "Advanced" ? exit.value.handedOver : []
            )
          )
        ),
        Effect.matchEffect({
          onSuccess: (answer) => {
            if (answer._tag === "Queued") {
              turnSpan.notStored()
              outcomes.forEach((outcome, i) => settle([outcome], answer.results[i]!))
              return Effect.andThen(count("next", "queued"), reportWarm(warm))
            }
            settle(outcomes, "Done")
            backoff.forget(instanceId)
            return Effect.andThen(
              count("next", "advanced"),
              stored(instanceId, program.started.name, program.started, ran, turnSpan)
            )
          },
          // The turn may be stored nevertheless. Then no process knows the locks of its activities, which expire.
          onFailure: () => {
            turnSpan.notStored()
            unstored.add(instanceId)
            return Effect.andThen(count("next", "failed"), reportWarm(warm))
          }
        })
      )
    })

  /** Turn after turn, until no outcome waits. */
  const drain = (instanceId: string): Effect.Effect<void> =>
    Effect.suspend(() => {
      const outcomes = waiting.get(instanceId)!
      if (outcomes.length === 0) return Effect.sync(() => void waiting.delete(instanceId))
      waiting.set(instanceId, [])
      return Effect.andThen(advance(instanceId, outcomes), drain(instanceId))
    })

  const join = (instanceId: string, outcome: Outcome): void => {
    const others = waiting.get(instanceId)
    if (others !== undefined) return void others.push(outcome)
    waiting.set(instanceId, [outcome])
    // Others may end in the same tick.
    runFork(Effect.andThen(Effect.yieldNow, drain(instanceId)))
  }

  return {
    handOverTo: (its) => void (slots = its),
    store: (activity, completion) =>
      Effect.suspend(() => {
        const { item, lockToken } = activity
        const alone = provider.ackWorkItem(lockToken, Option.some(completion))
        const program = isOn ? warm.peek(item.instance) : undefined
        const mayJoin = program === undefined
          ? isOn && waiting.has(item.instance) && activity.attemptCount === 1
          : decide.canAdvance(activity, program)
        if (!mayJoin) return alone
        const settled = Deferred.makeUnsafe<Answer>()
        join(item.instance, { activity, completion, settled })
        return Effect.flatMap(Deferred.await(settled), (answer) =>
          answer === "Done"
            ? Effect.void
            : answer === "Unstored"
            ? alone
            : Effect.fail(
              new ProviderError({ operation: "advanceOrchestration", reason: new LockLost({ lockToken }) })
            ))
      })
  }
})

// internal

/** More free slots than that make no difference to a store. */
const mostSpare = 1_000_000

/** Slots for the activities of a turn, kept since just before it was sent. */
interface Reserved {
  readonly handOver: HandOver
  /** Monotonic milliseconds. */
  readonly askedAtMs: number
}

/** An outcome that waits for the turn it leads to. */
interface Outcome {
  readonly activity: Parameters<StoreOutcome>[0]
  readonly completion: Completion
  readonly settled: Deferred.Deferred<Answer>
}

/** `Unstored`: it is to be stored alone. */
type Answer = "Done" | "LockLost" | "Unstored"

const answers = seriesOf(Metrics.optimisticTurns)

const count = (turn: "first" | "next", answer: "advanced" | "queued" | "failed") =>
  Metric.update(answers(turn, answer), 1)
