/**
 * Replay: history in, decisions out. No store, no clock, no event loop.
 *
 * The code runs from the top while the recorded events are handed to it one by one, in order; after each of them every
 * fiber runs until it waits. Requests the code makes are matched with the recorded schedule events; what is left when
 * the events are used up is new. Completions are delivered in history order, so the order of arrival alone decides
 * races. A handle that is dropped (the loser of a race, a scope that ends) gives up its answer at once.
 *
 * Semantics: the rules Duroxide's core calls "next" for executions started by 0.1.31 and later.
 */
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Logger from "effect/Logger"
import * as References from "effect/References"
import type * as Event from "../../Event.ts"
import { describeEvent, isSchedule, mismatch, record } from "./action.ts"
import type { Action, Recorded, ScheduleEvent } from "./action.ts"
import { OrchestrationContext } from "./context.ts"
import * as program from "./program.ts"

/** An orchestration as replay runs it: encoded input in, encoded success or error out. */
export type Code = (input: string) => Effect.Effect<string, string, OrchestrationContext>

export interface Options {
  readonly code: Code
  /** Loggers of the host; they are silent while recorded events are replayed. */
  readonly services: Context.Context<never>
  /** Called when the code goes on outside a turn, because it awaits something that is not durable. */
  readonly onStray: () => void
}

/** How the code ended. */
export type Ended =
  | { readonly _tag: "Succeeded"; readonly output: string }
  | { readonly _tag: "Failed"; readonly error: string }
  | { readonly _tag: "Died"; readonly problem: string }

/** Code and history do not fit together. */
export class Nondeterminism {
  readonly message: string
  constructor(message: string) {
    this.message = message
  }
}

export interface Replay {
  /** Hands over the next event, recorded (`replaying`) or new. Throws `Nondeterminism`. */
  readonly apply: (event: Event.Event, replaying: boolean) => void
  /** Requests that no recorded event answers to, oldest first; each must be bound to its new event before the next call. */
  readonly nextAction: () => Recorded<ScheduleEvent> | undefined
  /** Gives the request last returned by `nextAction` its event. */
  readonly bind: (eventId: number) => void
  readonly ended: () => Ended | undefined
  /** True while the code waits for something that can still arrive. */
  readonly isWaiting: () => boolean
  /** Schedules whose handle was dropped before the answer came, ascending. */
  readonly dropped: () => ReadonlyArray<{ readonly eventId: number; readonly action: Action }>
}

export const make = (options: Options): Replay => {
  const emitted: Array<Handle> = []
  const unanswered = new Map<number, Handle>()
  const subscriptions = new Map<string, Array<Handle>>()
  const dropped = new Map<number, Handle>()
  let run: program.Program | undefined
  let replaying = true
  let inTurn = false
  let nowMs = 0
  let name = ""

  const turn = <A>(f: () => A): A => {
    inTurn = true
    try {
      return f()
    } finally {
      inTurn = false
    }
  }

  const deliver = (handle: Handle, answer: Event.Event) => {
    handle.state = "answered"
    handle.resume(Effect.succeed(answer))
    rest()
  }

  const rest = () => {
    if (run!.drain()) return
    throw new Nondeterminism(
      `orchestration "${name}" does not come to rest: it goes on and on without waiting for anything durable`
    )
  }

  const drop = (handle: Handle) => {
    if (handle.state !== "open") return
    handle.state = "dropped"
    if (handle.action._tag === "WaitExternal") {
      const waiting = subscriptions.get(handle.action.name)
      const index = waiting?.indexOf(handle) ?? -1
      if (index >= 0) waiting!.splice(index, 1)
    }
    if (handle.eventId !== undefined) dropped.set(handle.eventId, handle)
  }

  const bind = (handle: Handle, eventId: number) => {
    handle.eventId = eventId
    if (handle.state === "dropped") dropped.set(eventId, handle)
    if (handle.action._tag !== "WaitExternal") unanswered.set(eventId, handle)
    else if (handle.state === "open") {
      const waiting = subscriptions.get(handle.action.name)
      if (waiting === undefined) subscriptions.set(handle.action.name, [handle])
      else waiting.push(handle)
    }
  }

  const answer = (event: Event.Event) => {
    const handle = unanswered.get(event.sourceEventId!)
    if (handle === undefined) {
      throw new Nondeterminism(
        `event ${event.eventId}: ${event._tag} answers event ${event.sourceEventId}, which is not open`
      )
    }
    unanswered.delete(event.sourceEventId!)
    if (handle.state === "open") deliver(handle, event)
  }

  const start = (event: Event.Of<"OrchestrationStarted">) => {
    name = event.name
    const perform: OrchestrationContext["Service"]["perform"] = (action) =>
      Effect.callback<any>((resume) => {
        if (!inTurn) return options.onStray()
        const handle: Handle = { action, resume, state: "open", eventId: undefined }
        emitted.push(handle)
        return Effect.sync(() => drop(handle))
      })
    const services = options.services.pipe(
      Context.add(References.CurrentLoggers, silentWhile(options.services, () => replaying)),
      Context.add(OrchestrationContext, {
        instanceId: event.instanceId,
        executionId: event.executionId,
        orchestrationName: event.name,
        orchestrationVersion: event.version,
        isReplaying: Effect.sync(() => replaying),
        perform
      })
    )
    run = program.start(
      Effect.suspend(() => options.code(event.input)) as Effect.Effect<string, string>,
      services,
      {
        nowMs: () => nowMs,
        sleep: (duration) => {
          const millis = Math.ceil(Duration.toMillis(duration))
          // No time to wait is no reason for a turn of its own.
          if (millis <= 0) return Effect.yieldNow
          if (!Number.isSafeInteger(nowMs + millis)) return Effect.never
          return Effect.asVoid(perform({ _tag: "CreateTimer", fireAtMs: nowMs + millis }))
        },
        randomSeed: () => `${event.instanceId}\n${event.executionId}\n${event.timestampMs}`
      }
    )
    rest()
  }

  const apply = (event: Event.Event) => {
    nowMs = Math.max(nowMs, event.timestampMs)
    if (isSchedule(event)) {
      const handle = emitted.shift()
      if (handle === undefined) {
        throw new Nondeterminism(
          `event ${event.eventId}: history has ${describeEvent(event)}, the code asks for nothing more`
        )
      }
      const problem = mismatch(handle.action, event)
      if (problem !== undefined) throw new Nondeterminism(problem)
      return bind(handle, event.eventId)
    }
    switch (event._tag) {
      case "OrchestrationStarted":
        return start(event)
      case "ActivityCompleted":
      case "ActivityFailed":
      case "TimerFired":
        return answer(event)
      case "ExternalEvent": {
        const handle = subscriptions.get(event.name)?.shift()
        if (handle !== undefined) deliver(handle, event)
      }
    }
  }

  let taken: Handle | undefined

  return {
    apply: (event, isReplay) =>
      turn(() => {
        replaying = isReplay
        if (run === undefined && event._tag !== "OrchestrationStarted") {
          throw new Nondeterminism(`event ${event.eventId}: history must begin with OrchestrationStarted`)
        }
        apply(event)
      }),
    nextAction: () => {
      taken = emitted.shift()
      return taken && record(taken.action)
    },
    bind: (eventId) => turn(() => bind(taken!, eventId)),
    ended: () => {
      const exit = run?.exit()
      return exit === undefined ? undefined : describeExit(exit as Exit.Exit<string, string>)
    },
    isWaiting: () =>
      [...unanswered.values()].some((handle) => handle.state === "open") ||
      [...subscriptions.values()].some((waiting) => waiting.length > 0),
    dropped: () => [...dropped].sort(([a], [b]) => a - b).map(([eventId, { action }]) => ({ eventId, action }))
  }
}

// internal

interface Handle {
  readonly action: Action
  readonly resume: (effect: Effect.Effect<any>) => void
  state: "open" | "answered" | "dropped"
  /** Undefined until the request has its event. */
  eventId: number | undefined
}

const describeExit = (exit: Exit.Exit<string, string>): Ended => {
  if (Exit.isSuccess(exit)) return { _tag: "Succeeded", output: exit.value }
  const failure = exit.cause.reasons.find((reason) => reason._tag === "Fail")
  if (failure !== undefined) return { _tag: "Failed", error: failure.error }
  const defect = exit.cause.reasons.find((reason) => reason._tag === "Die")
  return {
    _tag: "Died",
    problem: defect === undefined
      ? "the orchestration interrupted itself"
      : Cause.prettyErrors(exit.cause)[0]?.message ?? "unknown"
  }
}

const silentWhile = (services: Context.Context<never>, replaying: () => boolean) =>
  new Set(
    [...Context.get(services, References.CurrentLoggers)].map((logger) =>
      Logger.make((options) => replaying() ? undefined : logger.log(options))
    )
  )
