/**
 * Runs the code of one execution along its events: history in, requests out. No store, no clock, no event loop.
 *
 * The code runs from the top. The recorded events are applied one by one, in order; after each, every fiber runs until
 * it waits. The requests of the code are matched with the recorded request events; requests beyond the last event are
 * new. An `Effect.sleep` becomes the request `CreateTimer` here. Answers are delivered in history order, so the order
 * of arrival alone decides races. When the code drops a handle (the loser of a race, a scope that ends), it gives up
 * the answer at once.
 *
 * Semantics: the rules that Duroxide's core calls "next", for executions started by 0.1.31 and later.
 */
import type * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as References from "effect/References"
import type * as Event from "../model/Event.ts"
import * as attributes from "../model/shared/attributes.ts"
import * as completion from "../model/shared/completion.ts"
import { Ledger } from "../model/shared/ledger.ts"
import type { Delivery } from "../model/shared/ledger.ts"
import { linked } from "../model/shared/logging.ts"
import * as markers from "../model/shared/markers.ts"
import { isArrival } from "../model/shared/recordedArrivals.ts"
import * as retrySignal from "../model/shared/retrySignal.ts"
import * as taskSignal from "../model/shared/taskSignal.ts"
import { describeEvent, isRequest, mayBeMissing, mismatch } from "./action.ts"
import type { Action, Awaited, Immediate, RequestEvent } from "./action.ts"
import { Changes } from "./changes.ts"
import { Engine, OrchestrationContext } from "./context.ts"
import type { AppendedChunk } from "./context.ts"
import type { Decode } from "./difference.ts"
import * as fibers from "./fibers.ts"
import type { ProgramSpan } from "./programSpans.ts"
import { Questions } from "./questions.ts"
import { silentWhile } from "./silence.ts"

/** An orchestration's code as the interpreter runs it: encoded input in, encoded success or error out. */
export interface Code {
  (input: string): Effect.Effect<string, string, OrchestrationContext>
  /** What decodes its input, its result and its error. */
  readonly decodes?: { readonly payload: Decode; readonly success: Decode; readonly error: Decode }
}

export interface Options {
  readonly code: Code
  /** Values that ended executions left behind, by key. */
  readonly keyValues: ReadonlyMap<string, { readonly value: string; readonly lastUpdatedAtMs?: number }>
  /** Loggers of the host; they are silent while recorded events are replayed. */
  readonly services: Context.Context<never>
  /** False for executions of Duroxide, which does not notice when some kinds of requests vanish from the code. */
  readonly strict: boolean
  /** Called, at least once, when the code continues outside a turn, because it awaits something that is not durable. */
  readonly onStray: () => void
  /** Whether stored data that its Schema refuses stops the replay. Otherwise the program dies of it. */
  readonly blocks: boolean
}

/** A handle that the code dropped before its answer came. */
export interface Dropped {
  readonly eventId: number
  readonly action: Awaited
  /** The child is interrupted, and the code waits for its end. */
  readonly awaitsEnd?: true
}

/** How the code ended. */
export type Ended =
  | { readonly _tag: "Succeeded"; readonly output: string }
  | { readonly _tag: "Failed"; readonly error: string }
  | { readonly _tag: "Died"; readonly defect: unknown }
  /** By request, after its finalizers have run. */
  | { readonly _tag: "Interrupted" }

/** The code cannot run as an orchestration, whatever its history. */
export class InvalidProgram {
  readonly message: string
  readonly reason: "NotDurable" | "Endless"
  constructor(reason: "NotDurable" | "Endless", message: string) {
    this.reason = reason
    this.message = message
  }
}

/** The code cannot read what is stored. */
export class Unreadable {
  readonly message: string
  /** The event of the signal, if it is one on which nothing recorded depends. */
  readonly newSignalId: number | undefined
  constructor(message: string, newSignalId: number | undefined) {
    this.message = message
    this.newSignalId = newSignalId
  }
}

/** The code does not do what its history says. */
export class Nondeterminism {
  readonly message: string
  readonly eventId: number
  /** The full cause, if the difference is that the program died. */
  readonly diedOf: Cause.Cause<never> | undefined
  constructor(eventId: number, problem: string, diedOf?: Cause.Cause<never>) {
    this.message = `event ${eventId}: ${problem}`
    this.eventId = eventId
    this.diedOf = diedOf
  }
}

export class Interpreter {
  /** Holds the events that were applied, and the requests that were bound. */
  readonly ledger = new Ledger()
  private readonly changes = new Changes()
  private readonly questions = new Questions()
  private readonly options: Options
  private readonly state: State
  /** Requests without an event, oldest first. */
  private readonly emitted: Array<Handle | Immediate> = []
  /** Open handles that have their event, by its id. */
  private readonly handles = new Map<number, Handle>()
  /** Messages that a wait would have received if the code had not continued as new. */
  private readonly undelivered: Array<Event.Of<"ExternalEventPersistent">> = []
  private dropped: Array<Dropped> = []
  private endedSpans: Array<ProgramSpan> = []
  private appended: Array<AppendedChunk> = []
  private taken: Handle | Immediate | undefined
  private continuation: { readonly input: string; readonly version: string | null } | undefined
  private running: fibers.Fibers | undefined
  private unreadable: Unreadable | undefined
  private newSignalId: number | undefined
  /** Event ids of signals that the code continues without if its Schema refuses them. */
  private mayBeSetAside: ReadonlySet<number> = none
  /** Recorded requests, without markers, and those of them that the code has made. */
  private recordedRequests = 0
  private passed = 0
  private isInterrupted = false
  private isReplaying = true
  private isInTurn = false
  private nowMs = 0
  private cuts: ReadonlyArray<Cut> = []
  /** The last event that was applied, or was given to a request. */
  private eventId = 0
  private name = ""

  constructor(options: Options) {
    this.options = options
    this.state = new State(options.keyValues)
  }

  /** The decisions of the code are those of this record from now on; or new ones, when it is undefined. */
  follow(recorded: ReadonlyArray<Event.Event> | undefined): void {
    this.changes.follow(recorded)
    this.questions.follow(recorded)
    if (recorded === undefined || recorded.length === 0) return
    this.ledger.leaveOut(markers.signalsSetAside(recorded))
    this.recordedRequests = countRequests(recorded)
    this.cuts = cutsOf(recorded)
  }

  /** Lets the code continue without these signals if its Schema refuses them. Defaults to none. */
  allowSetAside(eventIds: ReadonlySet<number> = none): void {
    this.mayBeSetAside = eventIds
  }

  /**
   * Hands over the next event, recorded (`isReplaying`) or new. Throws `Nondeterminism`, `InvalidProgram` or
   * `Unreadable`.
   */
  apply(event: Event.Event, isReplaying: boolean): void {
    this.turn(() => {
      this.isReplaying = isReplaying
      this.eventId = event.eventId
      if (this.running === undefined && event._tag !== "OrchestrationStarted") {
        throw new Nondeterminism(event.eventId, "history must begin with OrchestrationStarted")
      }
      this.nowMs = Math.max(this.nowMs, event.timestampMs)
      if (isRequest(event)) return this.match(event)
      if (isCompletion(event) && !this.ledger.unanswered.has(event.sourceEventId!)) {
        throw new Nondeterminism(
          event.eventId,
          `${event._tag} answers event ${event.sourceEventId}, which is not open`
        )
      }
      this.deliver(this.ledger.add(event))
      if (event._tag === "OrchestrationStarted") this.start(event)
      if (event === this.ledger.interruptRequest) this.interrupt()
    })
  }

  /** Requests without a recorded event, oldest first; each must be bound to its new event before the next call. */
  nextAction(): Action | undefined {
    this.taken = this.emitted.shift()
    return this.taken !== undefined && "action" in this.taken ? this.taken.action : this.taken
  }

  /** Gives the request last returned by `nextAction` its event. */
  bind(event: RequestEvent): void {
    this.turn(() => {
      this.eventId = event.eventId
      this.record(this.taken!, event)
    })
  }

  /** The request of this event, if the code still waits for its answer. */
  open(eventId: number): Awaited | undefined {
    return this.handles.get(eventId)?.action
  }

  /** Set when the code asked for the next execution: it runs no further in this one. */
  continued(): { readonly input: string; readonly version: string | null } | undefined {
    return this.continuation
  }

  /**
   * Signals for the next execution: those that the code has not taken, and questions that it has not answered, oldest
   * first. No call of a task, or of an activity that is completed from outside, outlives its execution.
   */
  unread(): ReadonlyArray<Event.Of<"ExternalEventPersistent">> {
    return [...new Set([...this.ledger.unread(), ...this.undelivered, ...this.ledger.unansweredQuestions()])]
      .filter(({ name }) => !taskSignal.isName(name) && !completion.isName(name) && name !== retrySignal.name)
      .sort((a, b) => a.eventId - b.eventId)
  }

  customStatus(): string | null {
    return this.state.customStatus
  }

  attributes(): attributes.EncodedAttributes {
    return this.state.attributes
  }

  keyValues(): ReadonlyMap<string, string> {
    return this.state.keyValues
  }

  ended(): Ended | undefined {
    const exit = this.running?.exit()
    return exit === undefined ? undefined : describeExit(exit as Exit.Exit<string, string>, this.isInterrupted)
  }

  /** True while the code waits for something that can still arrive. */
  isWaiting(): boolean {
    return this.handles.size > 0
  }

  /** Handles dropped since the last call, in the order in which that happened. */
  takeDropped(): ReadonlyArray<Dropped> {
    const taken = this.dropped
    this.dropped = []
    return taken
  }

  /** Chunks that the code appended in new events since the last call. */
  takeAppended(): ReadonlyArray<AppendedChunk> {
    const taken = this.appended
    if (taken.length > 0) this.appended = []
    return taken
  }

  /** Spans that the code ended in new events since the last call, in the order of their ends. */
  takeEndedSpans(): ReadonlyArray<ProgramSpan> {
    const taken = this.endedSpans
    this.endedSpans = []
    return taken
  }

  private turn(f: () => void): void {
    this.isInTurn = true
    try {
      f()
    } finally {
      this.isInTurn = false
    }
  }

  private start(event: Event.Of<"OrchestrationStarted">): void {
    this.name = event.name
    this.state.customStatus = event.initialCustomStatus ?? null
    this.state.attributes = event.attributes ?? attributes.none
    const { code, onStray, services } = this.options
    const loggers = Context.get(services, References.CurrentLoggers)
    this.running = fibers.start(
      Effect.suspend(() => code(event.input)) as Effect.Effect<string, string>,
      services.pipe(
        Context.add(References.CurrentLoggers, silentWhile(loggers, () => this.isReplaying)),
        Context.add(References.CurrentLogAnnotations, {
          ...Context.get(services, References.CurrentLogAnnotations),
          ...linked(services, {
            orchestration_name: event.name,
            instance_id: event.instanceId,
            execution_id: event.executionId
          })
        }),
        Context.add(OrchestrationContext, {
          instanceId: event.instanceId,
          executionId: event.executionId,
          orchestrationName: event.name,
          orchestrationVersion: event.version,
          isReplaying: Effect.sync(() => this.isReplaying)
        }),
        Context.add(Engine, this.engine)
      ),
      {
        isInTurn: () => this.isInTurn,
        onStray,
        onSpan: (span) => {
          const isKept = this.isInTurn && !this.isReplaying && this.endedSpans.length < mostSpans
          if (isKept) this.endedSpans.push(span)
        },
        nowMs: () => this.now(),
        sleep: (duration) => this.sleep(duration),
        randomSeed: () => `${event.seedId ?? event.instanceId}\n${event.executionId}\n${event.timestampMs}`
      }
    )
    this.drain()
  }

  private readonly engine: Engine = {
    perform: (action, onLate) =>
      Effect.callback<any>((resume) => {
        if (!this.isInTurn) return this.options.onStray()
        if (this.continuation !== undefined) return
        const handle: Handle = { action, resume, state: "open", eventId: undefined }
        this.emitted.push(handle)
        return Effect.suspend(() => this.giveUp(handle, onLate))
      }),
    request: (action) =>
      Effect.suspend(() => {
        if (!this.isInTurn) {
          this.options.onStray()
          return Effect.never
        }
        if (this.continuation === undefined) {
          this.emitted.push(action)
          this.state.change(action, this.now())
        }
        return Effect.void
      }),
    append: (chunk) =>
      Effect.suspend(() => {
        if (!this.isInTurn) {
          this.options.onStray()
          return Effect.never
        }
        if (!this.isReplaying && this.continuation === undefined) this.appended.push(chunk)
        return Effect.void
      }),
    changed: (id) =>
      Effect.suspend(() => {
        if (!this.isInTurn) {
          this.options.onStray()
          return Effect.never
        }
        const { isChanged, isNew } = this.changes.ask(id, this.passed + this.countUnrecorded())
        if (isNew && this.continuation === undefined) this.emitted.push({ _tag: "RecordChange", id })
        return Effect.succeed(isChanged)
      }),
    verdict: (id) =>
      Effect.sync(() => {
        const rejection = this.questions.rejection(id)
        if (rejection !== undefined) return { _tag: "Rejected", answer: rejection }
        return { _tag: this.isPastRecord() ? "New" : "Accepted" }
      }),
    continueAsNew: (input, version) =>
      Effect.callback<never>(() => {
        if (this.isInTurn) this.continuation ??= { input, version }
        else this.options.onStray()
      }),
    historySize: Effect.sync(() => this.eventId),
    customStatus: Effect.sync(() => this.state.customStatus),
    attributes: Effect.sync(() => this.state.attributes),
    keyValues: Effect.sync(() => new Map(this.state.keyValues)),
    keyValueTimes: Effect.sync(() => new Map(this.state.keyValueTimes)),
    unreadable: (mismatch) =>
      this.options.blocks
        ? Effect.callback<never>(() => {
          if (this.isInTurn) this.unreadable ??= new Unreadable(mismatch.message, this.newSignalId)
          else this.options.onStray()
        })
        : Effect.die(mismatch)
  }

  private sleep(duration: Duration.Duration): Effect.Effect<void> {
    const millis = Math.ceil(Duration.toMillis(duration))
    // A sleep of no time needs no turn of its own.
    if (millis <= 0) return Effect.yieldNow
    const fireAtMs = this.now() + millis
    if (!Number.isSafeInteger(fireAtMs)) return Effect.never
    return Effect.asVoid(this.engine.perform({ _tag: "CreateTimer", fireAtMs }))
  }

  /** The time of the last event; of a cut, once the code has made the last request that the cut has left. */
  private now(): number {
    let nowMs = this.nowMs
    for (const { after, atMs, requests } of this.cuts) {
      if (this.eventId < after || this.passed + this.countUnrecorded() < requests) break
      nowMs = Math.max(nowMs, atMs)
    }
    return nowMs
  }

  private drain(): void {
    const isAtRest = this.running!.drain()
    if (this.unreadable !== undefined) throw this.unreadable
    if (isAtRest) return
    throw new InvalidProgram(
      "Endless",
      `orchestration "${this.name}" does not come to rest: it keeps running without waiting for anything durable`
    )
  }

  private deliver(delivery: Delivery | undefined): void {
    let next = delivery
    let handle = this.handleOf(next)
    while (next !== undefined && handle !== undefined && this.setsAside(handle.action, next.answer)) {
      next = this.ledger.reopen(next.requestId, next.answer)
      handle = this.handleOf(next)
    }
    if (next === undefined || handle === undefined) return
    const { answer, requestId } = next
    // Code that continues as new runs no further: it could not use the answer.
    if (this.continuation !== undefined) {
      if (answer._tag === "ExternalEventPersistent") this.undelivered.push(answer)
      return
    }
    this.handles.delete(requestId)
    handle.state = "answered"
    handle.resume(Effect.succeed(answer))
    this.drain()
  }

  /** Undefined if the code has dropped it. */
  private handleOf(delivery: Delivery | undefined): Handle | undefined {
    return delivery === undefined ? undefined : this.handles.get(delivery.requestId)
  }

  /** Requests that the code has made, and that have no event yet. */
  private countUnrecorded(): number {
    return this.emitted.filter((request) => !("_tag" in request && isMark(request))).length
  }

  /** False where recorded requests may depend on what the code decides now. A cut may have removed them all. */
  private isPastRecord(): boolean {
    return !this.isReplaying || this.passed + this.countUnrecorded() >= this.recordedRequests
  }

  /** Whether the wait goes without this signal, which the code cannot read. */
  private setsAside(action: Awaited, signal: Event.Event): boolean {
    if (action._tag !== "DequeueEvent" && action._tag !== "WaitExternal" || action.read === undefined) return false
    if (signal._tag !== "ExternalEventPersistent" && signal._tag !== "ExternalEvent") return false
    if (!this.isPastRecord() || this.continuation !== undefined || Exit.isSuccess(action.read(signal.data))) {
      return false
    }
    const { eventId, name } = signal
    if (!this.mayBeSetAside.has(eventId)) {
      this.newSignalId = eventId
      return false
    }
    this.emitted.push({ _tag: "RecordSetAside", signalId: eventId, name })
    return true
  }

  /** Executions of Duroxide know no interruption: their programs never read the message. */
  private interrupt(): void {
    // The next execution gets the message.
    if (!this.options.strict || this.continuation !== undefined) return
    this.isInterrupted = true
    this.running!.interrupt()
    this.drain()
  }

  private giveUp(handle: Handle, onLate: (answer: any) => Effect.Effect<void> = () => Effect.void) {
    const { action, eventId } = handle
    const awaitsEnd = this.options.strict && action._tag === "StartSubOrchestration" &&
      (action.onInterrupt ?? "interrupt") === "interrupt" && eventId !== undefined && handle.state === "open"
    if (!awaitsEnd) return Effect.sync(() => this.drop(handle))
    this.dropped.push({ eventId, action, awaitsEnd })
    return Effect.flatMap(Effect.callback<Event.Event>((resume) => void (handle.resume = resume)), onLate)
  }

  private drop(handle: Handle): void {
    if (handle.state !== "open") return
    handle.state = "dropped"
    const { action, eventId } = handle
    if (eventId === undefined) return
    this.handles.delete(eventId)
    this.ledger.giveUpWait(eventId)
    this.dropped.push({ eventId, action })
  }

  private match(event: RequestEvent): void {
    // Its decision was read ahead by `follow`, whether the code still asks for it or not.
    if (markers.isMarker(event)) return void this.ledger.add(event)
    this.passed++
    this.sortClears(event)
    const next = this.emitted[0]
    if (next === undefined) {
      if (!mayBeMissing(event) || this.options.strict) {
        throw new Nondeterminism(
          event.eventId,
          `history has ${describeEvent(event)}, the code asks for nothing more`
        )
      }
      this.ledger.add(event)
      return
    }
    const problem = mismatch("action" in next ? next.action : next, event)
    if (problem !== undefined) throw new Nondeterminism(event.eventId, problem)
    this.emitted.shift()
    this.record(next, event)
  }

  private record(request: Handle | Immediate, event: RequestEvent): void {
    if (!("action" in request)) return void this.ledger.add(event)
    const { eventId } = event
    const { action, state } = request
    request.eventId = eventId
    if (action._tag === "CallActivity" && action.tryOf !== undefined) action.tryOf.call.firstTryId ??= eventId
    if (state === "open") this.handles.set(eventId, request)
    else this.dropped.push({ eventId, action })
    this.deliver(this.ledger.add(event, state !== "open"))
  }

  /** Duroxide clears the keys it prunes in no fixed order, so a replay may clear them in another one. */
  private sortClears(event: RequestEvent): void {
    if (this.options.strict || event._tag !== "KeyValueCleared") return
    const isClear = (request: Handle | Immediate) => "_tag" in request && request._tag === "ClearKeyValue"
    const end = this.emitted.findIndex((request) => !isClear(request))
    const clears = end < 0 ? this.emitted : this.emitted.slice(0, end)
    const index = clears.findIndex((request) => "key" in request && request.key === event.key)
    if (index > 0) this.emitted.unshift(...this.emitted.splice(index, 1))
  }
}

// internal

const none: ReadonlySet<number> = new Set()

/** Most spans of a turn that are kept for export: enough for any trace, and no burden for code that makes millions. */
const mostSpans = 1_000

/** Where a retry or a fork has removed what followed: the code continues from there at the time of the cut. */
interface Cut {
  /** The last event before it with which the code resumed. */
  readonly after: number
  /** How many requests are before it. */
  readonly requests: number
  /** Milliseconds since the Unix epoch. */
  readonly atMs: number
}

const cutsOf = (recorded: ReadonlyArray<Event.Event>): ReadonlyArray<Cut> =>
  recorded.flatMap((event, index) =>
    event._tag === "ExternalEventPersistent" && event.name === retrySignal.name && retrySignal.isCut(event.data)
      ? [{
        after: recorded.slice(0, index).findLast((before) => isArrival(before, recorded))?.eventId ?? 0,
        requests: countRequests(recorded.slice(0, index)),
        atMs: event.timestampMs
      }]
      : []
  )

const countRequests = (events: ReadonlyArray<Event.Event>): number =>
  events.filter((event) => isRequest(event) && !markers.isMarker(event)).length

const isMark = ({ _tag }: Immediate) => _tag === "RecordChange" || _tag === "RecordSetAside"

interface Handle {
  readonly action: Awaited
  resume: (effect: Effect.Effect<any>) => void
  state: "open" | "answered" | "dropped"
  /** Undefined until the request has its event. */
  eventId: number | undefined
}

/** Custom status, attributes and values as the code sees them: its requests take effect as it makes them. */
class State {
  customStatus: string | null = null
  attributes: attributes.EncodedAttributes = attributes.none
  readonly keyValues: Map<string, string>
  /** Milliseconds since the Unix epoch. */
  readonly keyValueTimes: Map<string, number>

  constructor(keyValues: Options["keyValues"]) {
    this.keyValues = new Map([...keyValues].map(([key, { value }]) => [key, value]))
    this.keyValueTimes = new Map([...keyValues].map(([key, { lastUpdatedAtMs }]) => [key, lastUpdatedAtMs ?? 0]))
  }

  /** `nowMs` is the recorded clock: the same on every replay. */
  change(action: Immediate, nowMs: number): void {
    switch (action._tag) {
      case "UpdateCustomStatus":
        this.customStatus = action.status
        break
      case "SetAttributes":
        this.attributes = attributes.changed(this.attributes, action.changes)
        break
      case "SetKeyValue":
        this.keyValues.set(action.key, action.value)
        this.keyValueTimes.set(action.key, nowMs)
        break
      case "ClearKeyValue":
        this.keyValues.delete(action.key)
        this.keyValueTimes.delete(action.key)
        break
      case "ClearKeyValues":
        this.keyValues.clear()
        this.keyValueTimes.clear()
    }
  }
}

const completions: ReadonlySet<string> = new Set<Event.Event["_tag"]>([
  "ActivityCompleted",
  "ActivityFailed",
  "TimerFired",
  "SubOrchestrationCompleted",
  "SubOrchestrationFailed"
])

const isCompletion = (event: Event.Event) => completions.has(event._tag)

const describeExit = (exit: Exit.Exit<string, string>, isInterrupted: boolean): Ended => {
  if (Exit.isSuccess(exit)) return { _tag: "Succeeded", output: exit.value }
  const failure = exit.cause.reasons.find((reason) => reason._tag === "Fail")
  if (failure !== undefined) return { _tag: "Failed", error: failure.error }
  const death = exit.cause.reasons.find((reason) => reason._tag === "Die")
  if (death !== undefined) return { _tag: "Died", defect: death.defect }
  return isInterrupted ? { _tag: "Interrupted" } : { _tag: "Died", defect: "the orchestration interrupted itself" }
}
