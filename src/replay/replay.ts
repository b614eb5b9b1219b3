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
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as References from "effect/References"
import type * as Event from "../model/Event.ts"
import { describeEvent, isRequest, mayBeMissing, mismatch } from "./action.ts"
import type { Action, Awaited, Immediate, RequestEvent } from "./action.ts"
import { Engine, OrchestrationContext } from "./context.ts"
import * as program from "./program.ts"
import { silentWhile } from "./silence.ts"

/** An orchestration as replay runs it: encoded input in, encoded success or error out. */
export type Code = (input: string) => Effect.Effect<string, string, OrchestrationContext>

export interface Options {
  readonly code: Code
  /** Values that ended executions left behind, by key. */
  readonly keyValues: ReadonlyMap<string, { readonly value: string; readonly lastUpdatedAtMs?: number }>
  /** Loggers of the host; they are silent while recorded events are replayed. */
  readonly services: Context.Context<never>
  /** False for executions of the reference, which does not notice when some kinds of requests vanish from the code. */
  readonly strict: boolean
  /** Called, at least once, when the code goes on outside a turn, because it awaits something that is not durable. */
  readonly onStray: () => void
}

/** A handle the code let go of before its answer came. */
export interface Dropped {
  readonly eventId: number
  readonly action: Awaited
}

/** How the code ended. */
export type Ended =
  | { readonly _tag: "Succeeded"; readonly output: string }
  | { readonly _tag: "Failed"; readonly error: string }
  | { readonly _tag: "Died"; readonly defect: unknown }

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
  readonly nextAction: () => Action | undefined
  /** Gives the request last returned by `nextAction` its event. */
  readonly bind: (eventId: number) => void
  /** Set when the code asked for the next execution: it goes no further in this one. */
  readonly continued: () => { readonly input: string; readonly version: string | null } | undefined
  /** Unread mailbox messages, oldest first. */
  readonly unread: () => ReadonlyArray<readonly [mailbox: string, data: string]>
  readonly customStatus: () => string | null
  readonly keyValues: () => ReadonlyMap<string, string>
  readonly ended: () => Ended | undefined
  /** True while the code waits for something that can still arrive. */
  readonly isWaiting: () => boolean
  /** Handles dropped since the last call, in the order in which that happened. */
  readonly takeDropped: () => ReadonlyArray<Dropped>
}

export const make = (options: Options): Replay => {
  const emitted: Array<Handle | Immediate> = []
  const unanswered = new Map<number, Handle>()
  const signals = new Map<string, Array<Handle>>()
  const mailboxes = new Map<string, { readonly waiting: Array<Handle>; readonly unread: Array<Mail> }>()
  let dropped: Array<Dropped> = []
  /** Open handles that have their event. */
  let waiting = 0
  const keyValues = new Map([...options.keyValues].map(([key, { value }]) => [key, value]))
  const keyValueTimes = new Map([...options.keyValues].map(([key, { lastUpdatedAtMs }]) => [key, lastUpdatedAtMs ?? 0]))
  let arrivals = 0
  let customStatus: string | null = null
  let continued: { readonly input: string; readonly version: string | null } | undefined
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

  const rest = () => {
    if (run!.drain()) return
    throw new Nondeterminism(
      `orchestration "${name}" does not come to rest: it goes on and on without waiting for anything durable`
    )
  }

  const deliver = (handle: Handle, answer: Event.Event) => {
    // Code that continues as new goes no further: it could do nothing with an answer.
    if (continued !== undefined) return
    handle.state = "answered"
    waiting--
    handle.resume(Effect.succeed(answer))
    rest()
  }

  const mailbox = (name: string) => {
    const known = mailboxes.get(name) ?? { waiting: [], unread: [] }
    mailboxes.set(name, known)
    return known
  }

  /** Where a handle that is bound stands in line for its answer; none for what is answered by event id. */
  const lineOf = ({ action }: Handle): Array<Handle> | undefined => {
    if (action._tag === "DequeueEvent") return mailbox(action.name).waiting
    if (action._tag !== "WaitExternal") return undefined
    const line = signals.get(action.name) ?? []
    signals.set(action.name, line)
    return line
  }

  const drop = (handle: Handle) => {
    if (handle.state !== "open") return
    handle.state = "dropped"
    const line = lineOf(handle)
    const index = line?.indexOf(handle) ?? -1
    if (index >= 0) line!.splice(index, 1)
    if (handle.eventId === undefined) return
    waiting--
    dropped.push({ eventId: handle.eventId, action: handle.action })
  }

  const bind = (handle: Handle, eventId: number) => {
    handle.eventId = eventId
    if (handle.action._tag === "CallActivity" && handle.action.tryOf !== undefined) {
      handle.action.tryOf.call.firstTryId ??= eventId
    }
    if (handle.state === "dropped") dropped.push({ eventId, action: handle.action })
    else waiting++
    const line = lineOf(handle)
    if (line === undefined) unanswered.set(eventId, handle)
    else if (handle.state === "open") {
      line.push(handle)
      if (handle.action._tag === "DequeueEvent") hand(handle.action.name)
    }
  }

  /** A mailbox hands its oldest message to the dequeue that has waited longest. */
  const hand = (name: string) => {
    const { unread, waiting } = mailbox(name)
    if (continued !== undefined || unread.length === 0 || waiting.length === 0) return
    deliver(waiting.shift()!, unread.shift()!.event)
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

  /** What the code sees of its own requests changes as it makes them. */
  const show = (action: Immediate) => {
    switch (action._tag) {
      case "UpdateCustomStatus":
        customStatus = action.status
        break
      case "SetKeyValue":
        keyValues.set(action.key, action.value)
        // The recorded clock: the same on every replay.
        keyValueTimes.set(action.key, nowMs)
        break
      case "ClearKeyValue":
        keyValues.delete(action.key)
        keyValueTimes.delete(action.key)
        break
      case "ClearKeyValues":
        keyValues.clear()
        keyValueTimes.clear()
    }
  }

  const perform: Engine["perform"] = (action) =>
    Effect.callback<any>((resume) => {
      if (!inTurn) return options.onStray()
      if (continued !== undefined) return
      const handle: Handle = { action, resume, state: "open", eventId: undefined }
      emitted.push(handle)
      return Effect.sync(() => drop(handle))
    })

  const request = (action: Immediate) =>
    Effect.suspend(() => {
      if (!inTurn) {
        options.onStray()
        return Effect.never
      }
      if (continued === undefined) {
        emitted.push(action)
        show(action)
      }
      return Effect.void
    })

  const start = (event: Event.Of<"OrchestrationStarted">) => {
    name = event.name
    customStatus = event.initialCustomStatus ?? null
    const services = options.services.pipe(
      Context.add(
        References.CurrentLoggers,
        silentWhile(Context.get(options.services, References.CurrentLoggers), () => replaying)
      ),
      Context.add(References.CurrentLogAnnotations, {
        ...Context.get(options.services, References.CurrentLogAnnotations),
        orchestration: event.name,
        instanceId: event.instanceId,
        executionId: event.executionId
      }),
      Context.add(OrchestrationContext, {
        instanceId: event.instanceId,
        executionId: event.executionId,
        orchestrationName: event.name,
        orchestrationVersion: event.version,
        isReplaying: Effect.sync(() => replaying)
      }),
      Context.add(Engine, {
        perform,
        request,
        continueAsNew: (input, version) =>
          Effect.callback<never>(() => {
            if (inTurn) continued ??= { input, version }
            else options.onStray()
          }),
        customStatus: Effect.sync(() => customStatus),
        keyValues: Effect.sync(() => new Map(keyValues)),
        keyValueTimes: Effect.sync(() => new Map(keyValueTimes))
      })
    )
    run = program.start(
      Effect.suspend(() => options.code(event.input)) as Effect.Effect<string, string>,
      services,
      {
        isInTurn: () => inTurn,
        onStray: options.onStray,
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

  /** The reference clears keys it prunes in any order, another one on every replay. */
  const sortClears = (event: RequestEvent) => {
    if (options.strict || event._tag !== "KeyValueCleared") return
    const isClear = (request: Handle | Immediate) => "_tag" in request && request._tag === "ClearKeyValue"
    const end = emitted.findIndex((request) => !isClear(request))
    const run = end < 0 ? emitted : emitted.slice(0, end)
    const index = run.findIndex((request) => "key" in request && request.key === event.key)
    if (index > 0) emitted.unshift(...emitted.splice(index, 1))
  }

  const match = (event: RequestEvent) => {
    sortClears(event)
    const next = emitted[0]
    if (next === undefined) {
      if (mayBeMissing(event) && !options.strict) return
      throw new Nondeterminism(
        `event ${event.eventId}: history has ${describeEvent(event)}, the code asks for nothing more`
      )
    }
    const problem = mismatch("action" in next ? next.action : next, event)
    if (problem !== undefined) throw new Nondeterminism(problem)
    emitted.shift()
    if ("action" in next) bind(next, event.eventId)
  }

  const apply = (event: Event.Event) => {
    nowMs = Math.max(nowMs, event.timestampMs)
    if (isRequest(event)) return match(event)
    switch (event._tag) {
      case "OrchestrationStarted":
        return start(event)
      case "ActivityCompleted":
      case "ActivityFailed":
      case "TimerFired":
      case "SubOrchestrationCompleted":
      case "SubOrchestrationFailed":
        return answer(event)
      case "ExternalEvent": {
        const handle = signals.get(event.name)?.shift()
        if (handle !== undefined) deliver(handle, event)
        return
      }
      case "ExternalEventPersistent":
        mailbox(event.name).unread.push({ event, order: arrivals++ })
        return hand(event.name)
    }
  }

  let taken: Handle | Immediate | undefined

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
      return taken !== undefined && "action" in taken ? taken.action : taken
    },
    bind: (eventId) =>
      turn(() => {
        if (taken !== undefined && "action" in taken) bind(taken, eventId)
      }),
    continued: () => continued,
    unread: () =>
      [...mailboxes.values()].flatMap(({ unread }) => unread).sort((a, b) => a.order - b.order)
        .map(({ event }) => [event.name, event.data] as const),
    customStatus: () => customStatus,
    keyValues: () => keyValues,
    ended: () => {
      const exit = run?.exit()
      return exit === undefined ? undefined : describeExit(exit as Exit.Exit<string, string>)
    },
    isWaiting: () => waiting > 0,
    takeDropped: () => {
      const taken = dropped
      dropped = []
      return taken
    }
  }
}

// internal

interface Mail {
  readonly event: Event.Of<"ExternalEventPersistent">
  readonly order: number
}

interface Handle {
  readonly action: Awaited
  readonly resume: (effect: Effect.Effect<any>) => void
  state: "open" | "answered" | "dropped"
  /** Undefined until the request has its event. */
  eventId: number | undefined
}

const describeExit = (exit: Exit.Exit<string, string>): Ended => {
  if (Exit.isSuccess(exit)) return { _tag: "Succeeded", output: exit.value }
  const failure = exit.cause.reasons.find((reason) => reason._tag === "Fail")
  if (failure !== undefined) return { _tag: "Failed", error: failure.error }
  const death = exit.cause.reasons.find((reason) => reason._tag === "Die")
  return { _tag: "Died", defect: death === undefined ? "the orchestration interrupted itself" : death.defect }
}
