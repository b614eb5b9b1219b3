/**
 * Runs turns of programs, which do not yield: by resuming a warm program, or by replaying a history.
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as References from "effect/References"
import * as ErrorDetails from "../model/ErrorDetails.ts"
import * as Event from "../model/Event.ts"
import * as Metrics from "../model/Metrics.ts"
import * as coreVersion from "../model/shared/coreVersion.ts"
import { DashboardUrl } from "../model/shared/dashboardUrl.ts"
import { SealsDefects } from "../model/shared/defect.ts"
import { seriesOf } from "../model/shared/labelled.ts"
import { harmless } from "../model/shared/logging.ts"
import * as tracing from "../model/shared/tracing.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import type { OrchestrationItem } from "../provider/Provider.ts"
import { whereDifferent } from "../replay/difference.ts"
import type { Decode } from "../replay/difference.ts"
import type { Code } from "../replay/interpreter.ts"
import { silentWhile } from "../replay/silence.ts"
import * as turns from "../replay/turn.ts"
import type * as batches from "./batch.ts"
import type { EventLoop } from "./eventLoop.ts"
import type { Registration } from "./registry.ts"
import { component, LongHistoryReport, StrayReport } from "./reports.ts"
import type { Complete } from "./settings.ts"
import * as untakenSignals from "./untakenSignals.ts"

export interface TurnRunner {
  /** `Replay` when the warm program cannot run this turn, or has run it but signals must stay in the queue. */
  readonly resume: (
    warm: turns.WarmProgram,
    item: Pick<OrchestrationItem, "nowMs" | "messages">,
    batch: Pick<batches.Run, "messages">
  ) => Effect.Effect<Resumed>
  /** `ran` is the turn that the warm program has already run, if it has. */
  readonly replay: (options: {
    readonly item: OrchestrationItem
    readonly batch: batches.Run
    readonly registration: Registration
    readonly warm: turns.WarmProgram | undefined
    readonly ran: turns.Ran | undefined
    /** The event of a signal that the program may set aside, and with it others that are old enough. */
    readonly setsAside?: number | undefined
  }) => Effect.Effect<turns.Ran | turns.Blocked>
  /** Logs programs that continued outside their turns, and instances with long histories, since the last call. */
  readonly reportPrograms: Effect.Effect<void>
}

export type Resumed =
  | { readonly _tag: "Ran"; readonly ran: turns.Ran }
  | { readonly _tag: "Replay"; readonly ran: turns.Ran | undefined }

export const make = (
  context: Context.Context<never>,
  { eventLoop, settings: { onMismatch, unreadableSignalTimeout, verifyReplay } }: {
    readonly eventLoop: EventLoop
    readonly settings: Pick<Complete, "onMismatch" | "unreadableSignalTimeout" | "verifyReplay">
  }
): TurnRunner => {
  const secondRun = { isUnderWay: false }
  const services = hostServices(context, secondRun)
  const strays = new StrayReport()
  const longHistories = new LongHistoryReport()
  const runTurn = onMismatch === "block" ? turns.runOrBlock : turns.run

  /** Warns of a turn that blocks the event loop. */
  const atOnce = <A>(name: string, run: () => A): Effect.Effect<A> =>
    Effect.suspend(() => {
      const { blockedMs, result } = eventLoop.turn(run)
      if (blockedMs === undefined) return Effect.succeed(result)
      return Effect.logWarning(`${component}: a turn blocked the event loop; computing belongs in activities`).pipe(
        Effect.annotateLogs({ orchestration_name: name, duration_ms: blockedMs }),
        Effect.as(result)
      )
    })

  /** The second run of a turn logs nothing. */
  const silently = <A>(run: () => A): A => {
    secondRun.isUnderWay = true
    try {
      return run()
    } finally {
      secondRun.isUnderWay = false
    }
  }

  return {
    resume: (warm, item, { messages }) =>
      Effect.map(
        Effect.flatMap(
          tracing.traceparent,
          (traceparent) => atOnce(warm.started.name, () => warm.resume({ nowMs: item.nowMs, messages, traceparent }))
        ),
        // Only a replay can run the turn again, without the signals that stay behind.
        (ran) => {
          if (ran === undefined || untakenSignals.leavesSignals(ran, item)) return { _tag: "Replay", ran }
          longHistories.add(warm.started.name, ran)
          return { _tag: "Ran", ran: untakenSignals.requeue(ran) }
        }
      ),
    replay: ({ batch, item, ran, registration, setsAside: eventId, warm }) =>
      Effect.flatMap(tracing.traceparent, (traceparent) => {
        const held = untakenSignals.withStart(batch)
        const messages = batch.messages.filter((message) => !held.has(message))
        const recordedUntilMs = item.nowMs - Duration.toMillis(unreadableSignalTimeout)
        const setsAside = eventId === undefined ? undefined : {
          eventId,
          messages: new Set(item.messages.filter((_, index) => item.enqueuedAtMs[index]! <= recordedUntilMs)),
          recordedUntilMs
        }
        const run = (messages: ReadonlyArray<WorkItem.WorkItem>) =>
          runTurn({
            instanceId: item.instanceId,
            executionId: batch.executionId,
            nowMs: item.nowMs,
            history: batch.history,
            started: { ...batch.started, version: registration.version },
            messages,
            keyValues: item.keyValues,
            version: coreVersion.current,
            traceparent,
            code: registration.code,
            services,
            setsAside,
            onStray: () => strays.add(registration.name, item.instanceId)
          })
        const verified = (replayed: turns.Ran | turns.Blocked) => {
          if (
            replayed instanceof turns.Blocked || !verifyReplay || setsAside !== undefined || warm === undefined ||
            !warm.isSound() ||
            !hasSeen(warm, item.history)
          ) return replayed
          return agreed(
            replayed,
            silently(() => warm.resume({ nowMs: item.nowMs, messages: batch.messages, traceparent })),
            warm,
            item,
            registration,
            onMismatch
          )
        }
        const turn = atOnce(registration.name, () => {
          const first = verified(ran ?? run(messages))
          if (first instanceof turns.Blocked) return first
          const ofBatch = untakenSignals.leave(
            first,
            item,
            (isLeft) => silently(() => run(messages.filter((message) => !isLeft(message))))
          )
          return untakenSignals.requeue(untakenSignals.leaveHeld(ofBatch, item, held))
        })
        if (batch.history.length === 0) return turn
        return Effect.tap(turn, (ran) => {
          if (!(ran instanceof turns.Blocked)) longHistories.add(registration.name, ran)
          return Metric.update(replays(registration.name), 1)
        })
      }),
    reportPrograms: Effect.andThen(strays.flush, longHistories.flush)
  }
}

// internal

const replays = seriesOf(Metrics.orchestrationReplays)

/** Code inherits only its host's loggers, and what their lines say and leave out. */
const hostServices = (
  context: Context.Context<never>,
  secondRun: { readonly isUnderWay: boolean }
): Context.Context<never> => {
  const loggers = harmless(Context.get(context, References.CurrentLoggers))
  return Context.empty().pipe(
    Context.add(References.CurrentLoggers, silentWhile(loggers, () => secondRun.isUnderWay)),
    Context.add(References.MinimumLogLevel, Context.get(context, References.MinimumLogLevel)),
    Context.add(DashboardUrl, Context.get(context, DashboardUrl)),
    Context.add(SealsDefects, Context.get(context, SealsDefects))
  )
}

/** Whether the stored history is the one that the program has seen. */
const hasSeen = ({ executionId, lastEvent }: turns.WarmProgram, history: ReadonlyArray<Event.Event>) => {
  const last = history.at(-1)
  return last !== undefined && last.executionId === executionId && Event.encode(last) === Event.encode(lastEvent)
}

/** The turn when the warm program has decided the same as its replay; otherwise its instance is blocked, or fails. */
const agreed = (
  replayed: turns.Ran,
  resumed: turns.Ran | undefined,
  { executionId, lastEvent, started }: turns.WarmProgram,
  item: OrchestrationItem,
  { code }: Registration,
  onMismatch: Complete["onMismatch"]
): turns.Ran | turns.Blocked => {
  // Only replays fail an instance.
  if (resumed === undefined && replayed.outcome._tag === "Failed") return replayed
  if (resumed !== undefined && sameDecisions(resumed, replayed, code)) return resumed
  if (onMismatch === "block" && coreVersion.isOwn(started.duroxideVersion)) {
    return new turns.Blocked("HistoryDiffers", notReproduced(started.name), lastEvent.eventId)
  }
  return {
    ...turns.fail(
      { ...item, executionId, started, version: coreVersion.current },
      ErrorDetails.nondeterminism(notReproduced(started.name)),
      { unreadable: false }
    ),
    warm: undefined,
    requests: [],
    appended: [],
    lostSignals: 0,
    spans: []
  }
}

const sameDecisions = (a: turns.Ran, b: turns.Ran, code: Code) => {
  const decisions = JSON.stringify([a.outcome, a.turn])
  if (decisions === JSON.stringify([b.outcome, b.turn])) return true
  const texts = sameValues(a, b, code)
  return texts.size > 0 && decisions === JSON.stringify(
        [b.outcome, b.turn],
        (_, value) => typeof value === "string" ? texts.get(value) ?? value : value
      )
}

/** Texts of `a` by those of `b` that stand for the same value: a Schema may encode it differently each time. */
const sameValues = (a: turns.Ran, b: turns.Ran, { decodes }: Code): ReadonlyMap<string, string> => {
  const texts = new Map<string, string>()
  const pair = (one: string, other: string, decode: Decode | undefined) => {
    if (one !== other && whereDifferent(one, other, decode) === undefined) texts.set(other, one)
  }
  for (const [index, { action }] of a.requests.entries()) {
    const other = b.requests[index]?.action
    if (other === undefined) continue
    if ("input" in action && "input" in other) pair(action.input, other.input, action.decode)
    if ("value" in action && "value" in other) pair(action.value, other.value, action.decode)
  }
  for (const [index, { chunk, decode }] of a.appended.entries()) {
    const other = b.appended[index]
    if (other !== undefined) pair(chunk, other.chunk, decode)
  }
  const [one, other] = [a.outcome, b.outcome]
  if (one._tag === "Completed" && other._tag === "Completed") pair(one.output, other.output, decodes?.success)
  if (one._tag === "ContinuedAsNew" && other._tag === "ContinuedAsNew") pair(one.input, other.input, decodes?.payload)
  if (
    one._tag === "Failed" && one.details._tag === "Application" && other._tag === "Failed" &&
    other.details._tag === "Application"
  ) pair(one.details.message, other.details.message, decodes?.error)
  return texts
}

const notReproduced = (name: string) =>
  `orchestration "${name}" is not deterministic: its replay decides otherwise than its program did in memory. ` +
  `Time, chance and everything outside must come from Effect's Clock and Random, or from activities`
