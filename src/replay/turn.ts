/**
 * One turn as a pure call: a claimed item and the code in, the decisions to store out.
 *
 * Steps: the history is replayed, messages become events, the code resumes with them, its new requests become events,
 * and its outcome decides what is enqueued. A program that waits can stay warm: the next turn then resumes it instead
 * of replaying the history.
 */
import * as Cause from "effect/Cause"
import * as Result from "effect/Result"
import type { BlockReason } from "../model/Block.ts"
import * as ErrorDetails from "../model/ErrorDetails.ts"
import type * as Event from "../model/Event.ts"
import type { CoreVersion } from "../model/Instance.ts"
import { isOwn } from "../model/shared/coreVersion.ts"
import { died } from "../model/shared/cures.ts"
import * as interruptSignal from "../model/shared/interruptSignal.ts"
import { Ledger } from "../model/shared/ledger.ts"
import * as markers from "../model/shared/markers.ts"
import * as requestSignal from "../model/shared/requestSignal.ts"
import * as retrySignal from "../model/shared/retrySignal.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import * as action from "./action.ts"
import * as arrivals from "./arrivals.ts"
import { conclude, record } from "./conclude.ts"
import type { End, Execution, Outcome, Recorder, Request, Result as Decided } from "./conclude.ts"
import type { AppendedChunk } from "./context.ts"
import { Interpreter, InvalidProgram, Nondeterminism, Unreadable } from "./interpreter.ts"
import type { Dropped, Ended, Options } from "./interpreter.ts"
import { limitExceeded } from "./limits.ts"
import type { ProgramSpan } from "./programSpans.ts"

export interface Input extends Omit<Execution, "lastEventId">, Omit<Options, "strict" | "onStray" | "blocks"> {
  /** Stored events; empty on the first turn. */
  readonly history: ReadonlyArray<Event.Event>
  /** Written as event 1 when there is no history. */
  readonly started: StartedFields
  /** Messages in order of arrival, without start messages. */
  readonly messages: ReadonlyArray<WorkItem.WorkItem>
  /** The messages were made from events of a recorded history: none is left out. Defaults to false. */
  readonly areRecorded?: boolean | undefined
  /**
   * Signals that the code continues without if it cannot read them: this event, these messages, and what was recorded
   * until then. Defaults to none.
   */
  readonly setsAside?: {
    readonly eventId: number
    readonly messages: ReadonlySet<WorkItem.WorkItem>
    readonly recordedUntilMs: number
  } | undefined
  /** All events of a recorded history, also those after the messages. Defaults to none: the turn is new. */
  readonly recorded?: ReadonlyArray<Event.Event> | undefined
  /** Called once when the code continues outside a turn, because it awaits something that is not durable. */
  readonly onStray: () => void
}

export type StartedFields = action.Recorded<Event.Of<"OrchestrationStarted">>

export type { Outcome, Result } from "./conclude.ts"

export interface Ran extends Decided {
  /** The program after this turn, if it waits. Use it only if the turn is stored. */
  readonly warm: WarmProgram | undefined
  /** The full cause, if the program died in this turn; the stored failure holds an excerpt. */
  readonly diedOf?: Cause.Cause<never> | undefined
  /** The new requests of the program. */
  readonly requests: ReadonlyArray<Request>
  /** What the program appends to streams: `chunks` of the turn, with what decodes them. */
  readonly appended: ReadonlyArray<AppendedChunk>
  /** How many lossy signals of this turn found no open wait. */
  readonly lostSignals: number
  /** Spans that the program ended in this turn. Export them only if the turn is stored. */
  readonly spans: ReadonlyArray<ProgramSpan>
}

/** A turn that this code cannot run. It stores nothing: code that fits may run it later. */
export class Blocked {
  readonly reason: BlockReason
  /** What does not fit, for people; never a payload. */
  readonly problem: string
  /** The event at which the replay stopped. */
  readonly eventId: number
  readonly spans: ReadonlyArray<ProgramSpan>
  /** The signal that the code cannot read, if nothing recorded depends on it; its message, if it came in this turn. */
  readonly newSignal: { readonly eventId: number; readonly message: WorkItem.WorkItem | undefined } | undefined
  /** The full cause, if the program died where its history continues. */
  readonly diedOf: Cause.Cause<never> | undefined
  constructor(
    reason: BlockReason,
    problem: string,
    eventId: number,
    spans: ReadonlyArray<ProgramSpan> = [],
    newSignal?: Blocked["newSignal"],
    diedOf?: Cause.Cause<never>
  ) {
    this.reason = reason
    this.problem = problem
    this.eventId = eventId
    this.spans = spans
    this.newSignal = newSignal
    this.diedOf = diedOf
  }
}

/** A program that waits in memory for its next turn. */
export interface WarmProgram {
  readonly started: Event.Of<"OrchestrationStarted">
  readonly executionId: number
  /** The last event that it has seen. */
  readonly lastEvent: Event.Event
  /** Its memory, estimated from above. */
  readonly bytes: number
  /** False when its code has run outside a turn, or has ended: then no replay would reach its state. */
  readonly isSound: () => boolean
  /** Runs its next turn, once; undefined when only a replay can decide the turn. */
  readonly resume: (next: {
    readonly nowMs: number
    readonly messages: ReadonlyArray<WorkItem.WorkItem>
    /** See `Execution`. */
    readonly traceparent?: string | undefined
  }) => Ran | undefined
}

/** Runs a turn. An execution whose code does not fit what is stored fails. */
export const run = (input: Input): Ran => decide(input, false) as Ran

/** Runs a turn. An execution of this package whose code does not fit what is stored is blocked. */
export const runOrBlock = (input: Input): Ran | Blocked => decide(input, true)

const decide = (input: Input, mayBlock: boolean): Ran | Blocked => {
  const { executionId, history, instanceId, nowMs, traceparent, version } = input
  const lastEventId = history.at(-1)?.eventId ?? 0
  const execution = { instanceId, executionId, nowMs, version, lastEventId, traceparent }
  const recorder = record(execution)
  const started = (history[0] ?? recorder.append(input.started)) as Event.Of<"OrchestrationStarted">
  const isOurs = isOwn(started.duroxideVersion)
  const blocks = mayBlock && isOurs
  const program = new Program(input, started, version, blocks)
  const { setsAside } = input
  const mayBeSetAside = setsAside === undefined ? undefined : new Set([
    setsAside.eventId,
    ...history.flatMap(({ eventId, timestampMs }) => timestampMs <= setsAside.recordedUntilMs ? eventId : [])
  ])
  program.allowSetAside(mayBeSetAside)
  const problem = program.catchUp(input)

  // The unread messages of the execution before come first.
  const carried = history.length === 0 ? started.carryForwardEvents ?? [] : []
  for (const [name, data] of carried) recorder.append({ _tag: "ExternalEventPersistent", name, data })
  const questions = new Set(carried.map(([, data]) => requestSignal.decode(data)?.id))
  const ledger = problem === undefined ? program.ledger : Ledger.of(history)
  let signals: Map<number, WorkItem.WorkItem> | undefined
  const arrived = arrivals.toEvents(executionId, ledger, input.messages, recorder.append, {
    areRecorded: input.areRecorded,
    isOwn: isOurs,
    // In this execution, and in none before it.
    hasNotBegun: isOurs && history.length === 0 && executionId === 1 && input.areRecorded !== true,
    isAnswered: (id) => questions.has(id) || program.isAnswered(id),
    onSignal: (message, { eventId }) => {
      signals = (signals ?? new Map()).set(eventId, message)
      if (setsAside?.messages.has(message) === true) mayBeSetAside!.add(eventId)
    }
  })
  const arrivedCount = recorder.added.length
  const ran = arrived.abort === undefined && problem === undefined
    ? program.advance(execution, recorder, arrived.warnings)
    : Result.fail(arrived.abort === undefined ? problem! : { details: arrived.abort })
  // The turns that follow in memory decide anew.
  program.allowSetAside()
  if (Result.isSuccess(ran)) return ran.success

  // A turn that failed keeps only the events of arrivals.
  recorder.truncate(arrivedCount)
  const stored = Ledger.of([...history, ...recorder.added])
  const { details, reason } = ran.failure
  // What no code can run can be cancelled nevertheless.
  const cancelled = blocks && reason !== undefined ? stored.cancelRequest : undefined
  if (blocks && reason !== undefined && cancelled === undefined) {
    const { diedOf, eventId = program.lastEventId, message, newSignalId } = ran.failure
    const newSignal = newSignalId === undefined ? undefined : {
      eventId: newSignalId,
      message: signals?.get(newSignalId)
    }
    return new Blocked(reason, message, eventId, program.takeEndedSpans(), newSignal, diedOf)
  }
  const outcome = failed(cancelled === undefined ? details : ErrorDetails.cancelled(terminationReason(stored)))
  const end = cancelled === undefined ? "runtime" : "cancellation"
  const diedOf = program.diedOf()
  // What a program appends before it dies is stored as well: it may say why.
  const appended = diedOf === undefined ? [] : program.takeAppended()
  return {
    ...appending(conclude(execution, recorder, stored, outcome, { requests: [], dropped: [], end, started }), appended),
    warnings: arrived.warnings,
    warm: undefined,
    requests: [],
    appended,
    lostSignals: lostSince(stored, lastEventId),
    diedOf,
    spans: program.takeEndedSpans()
  }
}

/**
 * Fails an execution without running its code. An `unreadable` history keeps its rows, and the failure is appended to
 * them; its first event names the parent, if it can be read.
 */
export const fail = (
  input: Pick<Input, "instanceId" | "executionId" | "nowMs" | "version" | "history" | "started">,
  details: ErrorDetails.ErrorDetails,
  options: { readonly unreadable: boolean }
): Decided => {
  const { executionId, history, instanceId, nowMs, version } = input
  const lastEventId = options.unreadable ? unreadableEventId - 1 : history.at(-1)?.eventId ?? 0
  const execution = { instanceId, executionId, nowMs, version, lastEventId }
  const recorder = record(execution)
  const first = history[0] ?? (options.unreadable ? undefined : recorder.append(input.started))
  const started = first?._tag === "OrchestrationStarted" ? first : null
  const ledger = Ledger.of([...history, ...recorder.added])
  const outcome = failed(details)
  return {
    ...conclude(execution, recorder, ledger, outcome, { requests: [], dropped: [], end: "runtime", started }),
    warnings: []
  }
}

// internal

/** The event id that Duroxide gives to the failure of an execution whose events cannot be counted. */
const unreadableEventId = 99_999

// Measured with 2,000 programs each: a program that waits for a signal takes 13 kB, and 1.9 kB for each further branch.
// The texts of its history are counted although the program may not hold all of them.
const programBytes = 14_336
const handleBytes = 2_048

const breadcrumbs: ReadonlySet<string> = new Set<Event.Event["_tag"]>([
  "ActivityCancelRequested",
  "SubOrchestrationCancelRequested",
  "ExternalSubscribedCancelled",
  "ExternalSubscribedPersistentCancelled"
])

/** A program that runs, from its first event or across several turns. */
class Program {
  private readonly interpreter: Interpreter
  private readonly started: Event.Of<"OrchestrationStarted">
  private readonly version: CoreVersion
  private readonly isOwn: boolean
  private dropped: ReadonlyArray<Dropped> = []
  private lastEvent: Event.Event
  private strayed = false

  constructor(input: Input, started: Event.Of<"OrchestrationStarted">, version: CoreVersion, blocks: boolean) {
    const { code, keyValues, onStray, services } = input
    this.started = started
    this.lastEvent = started
    this.version = version
    this.isOwn = isOwn(started.duroxideVersion)
    this.interpreter = new Interpreter({
      code,
      keyValues,
      services,
      strict: this.isOwn,
      blocks,
      onStray: () => {
        if (!this.strayed) onStray()
        this.strayed = true
      }
    })
  }

  get ledger(): Ledger {
    return this.interpreter.ledger
  }

  /** Whether the answer to this question is kept. */
  isAnswered(id: string): boolean {
    return this.interpreter.keyValues().has(requestSignal.answerKey(id))
  }

  allowSetAside(eventIds?: ReadonlySet<number>): void {
    this.interpreter.allowSetAside(eventIds)
  }

  /** The last event that the code has seen. */
  get lastEventId(): number {
    return this.lastEvent.eventId
  }

  /** Replays the stored events. Returns why code and history do not fit together. */
  catchUp({ history, messages, recorded }: Pick<Input, "history" | "messages" | "recorded">): Problem | undefined {
    // A retry or a fork may have removed the end of the turn in which the code ended.
    const isPending = messages.some((message) => message._tag === "QueueMessage" && message.name === retrySignal.name)
    const isCut = isPending || history.some(isRetry)
    return attempt(() => {
      this.interpreter.follow(recorded ?? history)
      for (const [index, event] of history.entries()) {
        this.forbidEnd(history, index, { isCut, isPending })
        // A turn may have made requests before its code ended; a cut leaves some of them.
        const ended = this.interpreter.ended()
        const isFed = ended === undefined || isCut && this.isOwn && ended._tag !== "Died" && action.isRequest(event)
        if (isFed) this.feed(event, true)
        else this.ledger.add(event)
      }
      this.forbidEnd(history, history.length, { isCut, isPending })
      if (recorded === undefined) this.interpreter.follow(undefined)
      this.dropped = this.interpreter.takeDropped()
      if (this.interpreter.ended() !== undefined) return
      const dropped = new Set(this.dropped.map(({ eventId }) => eventId))
      for (const event of history) {
        if (
          breadcrumbs.has(event._tag) && "reason" in event &&
          (event.reason === "dropped_future" || event.reason === interruptSignal.ofChild) &&
          !dropped.has(event.sourceEventId!)
        ) {
          throw new Nondeterminism(
            event.eventId,
            `history says the code gave up event ${event.sourceEventId}, now it did not`
          )
        }
      }
      // The turn in which the code gave up a timer cancelled it. For timers no event says so.
      this.dropped = this.dropped.filter(({ action: { _tag } }) => _tag !== "CreateTimer")
    })
  }

  /** Resumes the code with the recorded arrivals, and decides. */
  advance(
    execution: Execution,
    recorder: Recorder,
    warnings: ReadonlyArray<string>
  ): Result.Result<Ran, Problem> {
    const { interpreter, started } = this
    const requests: Array<Request> = []
    const failure = attempt(() => {
      for (const event of recorder.added.slice()) {
        // The next execution gets the unread messages.
        if (interpreter.ended() === undefined || interpreter.continued() !== undefined) this.feed(event, false)
        else this.ledger.add(event)
      }
      for (let next = interpreter.nextAction(); next !== undefined; next = interpreter.nextAction()) {
        const { executionId, nowMs } = execution
        const at = { eventId: recorder.nextId(), executionId, nowMs }
        const event = recorder.append(action.record(next, at)) as action.RequestEvent
        requests.push({ action: next, event })
        interpreter.bind(event)
        if (next._tag !== "RecordChange" && next._tag !== "RecordSetAside") continue
        this.ledger.add(recorder.append({ _tag: "ActivityCompleted", result: markers.result }, event.eventId))
      }
      requests.push(...this.again(execution, recorder.added))
      if (interpreter.ended() === undefined && interpreter.continued() === undefined && !interpreter.isWaiting()) {
        throw new InvalidProgram("NotDurable", notDurable(started.name))
      }
    })
    const ended = interpreter.ended()
    if (failure !== undefined) return Result.fail(failure)
    if (ended?._tag === "Died") return Result.fail({ details: ErrorDetails.died(ended.defect) })

    const { end, outcome } = this.decide(requests, ended)
    const dropped = [...this.dropped, ...interpreter.takeDropped()].sort((a, b) => a.eventId - b.eventId)
    const openRequest = (eventId: number) => interpreter.open(eventId)
    const decided = conclude(execution, recorder, this.ledger, outcome, {
      requests,
      dropped,
      end,
      started,
      openRequest
    })
    this.dropped = []
    this.lastEvent = recorder.added.at(-1) ?? this.lastEvent
    const warm = outcome._tag === "Waiting" ? this.keepWarm() : undefined
    const lostSignals = lostSince(this.ledger, execution.lastEventId)
    const appended = interpreter.takeAppended()
    const spans = this.takeEndedSpans()
    return Result.succeed({ ...appending(decided, appended), warnings, warm, requests, appended, lostSignals, spans })
  }

  takeEndedSpans(): ReadonlyArray<ProgramSpan> {
    return this.interpreter.takeEndedSpans()
  }

  takeAppended(): ReadonlyArray<AppendedChunk> {
    return this.interpreter.takeAppended()
  }

  diedOf(): Cause.Cause<never> | undefined {
    const ended = this.interpreter.ended()
    return ended?._tag === "Died" ? Cause.die(ended.defect) : undefined
  }

  // Must not close over any data of the turn, because it may stay in memory for a long time.
  private keepWarm(): WarmProgram {
    const { lastEvent, ledger, started, version } = this
    const { executionId, instanceId } = started
    return {
      started,
      executionId,
      lastEvent,
      bytes: programBytes + handleBytes * (ledger.unanswered.size + ledger.openWaits) + ledger.textBytes,
      isSound: () => !this.strayed && this.interpreter.ended() === undefined,
      resume: ({ messages, nowMs, traceparent }) => {
        if (this.strayed) return undefined
        const execution = { instanceId, executionId, nowMs, version, lastEventId: lastEvent.eventId, traceparent }
        const recorder = record(execution)
        const arrived = arrivals.toEvents(executionId, ledger, messages, recorder.append, {
          isAnswered: (id) => this.isAnswered(id)
        })
        if (arrived.abort !== undefined) return undefined
        return Result.getOrUndefined(this.advance(execution, recorder, arrived.warnings))
      }
    }
  }

  /** Requests that a retry carries out again, with their events. */
  private again(execution: Execution, arrived: ReadonlyArray<Event.Event>): ReadonlyArray<Request> {
    if (!arrived.some(isRetry)) return []
    return arrived.flatMap((event) => isRetry(event) ? retrySignal.decode(event.data) : []).flatMap((eventId) => {
      const again = this.interpreter.open(eventId)
      if (again === undefined) return []
      const { executionId, instanceId, nowMs } = execution
      const fields = action.record(again, { eventId, executionId, nowMs })
      return [{ action: again, event: { ...fields, eventId, instanceId, executionId } as action.RequestEvent }]
    })
  }

  private feed(event: Event.Event, isReplaying: boolean): void {
    this.lastEvent = event
    this.interpreter.apply(event, isReplaying)
  }

  private decide(
    requests: ReadonlyArray<Request>,
    ended: Exclude<Ended, { readonly _tag: "Died" }> | undefined
  ): { readonly outcome: Outcome; readonly end: End } {
    const { interpreter, ledger: { cancelRequest, interruptRequest } } = this
    if (cancelRequest !== undefined) {
      return { outcome: failed(ErrorDetails.cancelled(terminationReason(this.ledger))), end: "cancellation" }
    }
    const violation = limitExceeded(requests, interpreter)
    // Not `OrchestrationFailed`: a caller whose errors are strings would take the text for one of the program's own.
    if (violation !== undefined) {
      return { outcome: failed(ErrorDetails.application("Panicked", violation)), end: "runtime" }
    }
    const continued = interpreter.continued()
    if (continued !== undefined) {
      const [carried, customStatus] = [interpreter.unread(), interpreter.customStatus()]
      const attributes = interpreter.attributes()
      return { outcome: { _tag: "ContinuedAsNew", ...continued, carried, customStatus, attributes }, end: "runtime" }
    }
    const outcome: Outcome = ended === undefined
      ? { _tag: "Waiting" }
      : ended._tag === "Interrupted"
      ? failed(ErrorDetails.cancelled(interruptSignal.decode(interruptRequest!.data)))
      : ended._tag === "Succeeded"
      ? { _tag: "Completed", output: ended.output }
      : failed(ErrorDetails.application("OrchestrationFailed", ended.error))
    return { outcome, end: "code" }
  }

  /**
   * Code that ends, dies or continues as new before the end of its history has changed, because its turns stored no
   * end. Not checked in executions of Duroxide.
   */
  private forbidEnd(
    history: ReadonlyArray<Event.Event>,
    index: number,
    { isCut, isPending }: { readonly isCut: boolean; readonly isPending: boolean }
  ): void {
    const ended = this.interpreter.ended()
    if (ended === undefined && this.interpreter.continued() === undefined) return
    if (history.length === 0 || !this.isOwn) return
    const left = history.slice(index)
    const lastRetry = isPending ? left.length : left.findLastIndex(isRetry)
    // In its last turn, the code ended with the first of the arrivals that it got.
    const firstOfCode = left.findIndex(isOfCode)
    // A turn in which the code dies stores none of its requests.
    const hasRequests = ended?._tag !== "Died"
    const isOfLastTurn = (event: Event.Event, i: number) =>
      isRetry(event) || hasRequests && (isOfCode(event) || markers.isPart(event, history)) ||
      i < lastRetry && (firstOfCode < 0 || i < firstOfCode)
    if (isCut && left.every(isOfLastTurn)) return
    const expected = left.find(action.isRequest)
    const held = expected === undefined ? "the code waiting for more" : action.describeEvent(expected)
    throw new Nondeterminism(
      (expected ?? history.at(-1)!).eventId,
      `history has ${held}, ${ended?._tag === "Died" ? died : "the code has already ended"}`,
      this.diedOf()
    )
  }
}

/** The turn stores what the program has appended. */
const appending = <Decision extends Omit<Decided, "warnings">>(
  decided: Decision,
  appended: ReadonlyArray<AppendedChunk>
): Decision =>
  appended.length === 0 ? decided : {
    ...decided,
    turn: {
      ...decided.turn,
      chunks: appended.map(({ chunk, keepBytes, keepChunks, stream }) => ({ stream, chunk, keepChunks, keepBytes }))
    }
  }

/** Whether the event was written because of what the code did in its turn. */
const isOfCode = (event: Event.Event) => action.isRequest(event) || breadcrumbs.has(event._tag)

const isRetry = (event: Event.Event): event is Event.Of<"ExternalEventPersistent"> =>
  event._tag === "ExternalEventPersistent" && event.name === retrySignal.name

/** The first interruption gives the reason, whichever deadline has passed. */
const terminationReason = ({ cancelRequest, interruptRequest }: Ledger): string => {
  const reason = cancelRequest?.reason ?? ""
  return interruptRequest !== undefined && interruptSignal.isPastDeadline(reason)
    ? interruptSignal.pastDeadline(interruptSignal.decode(interruptRequest.data))
    : reason
}

const lostSince = ({ lostSignals }: Ledger, eventId: number): number =>
  lostSignals.length - 1 - lostSignals.findLastIndex((id) => id <= eventId)

const failed = (details: ErrorDetails.ErrorDetails): Outcome => ({ _tag: "Failed", details })

/** Why a turn has not ended. With a reason, other code may run it; otherwise the execution fails. */
type Problem =
  | { readonly details: ErrorDetails.ErrorDetails; readonly reason?: undefined }
  | {
    readonly details: ErrorDetails.ErrorDetails
    readonly reason: BlockReason
    readonly message: string
    /** Undefined: the last event that the code has seen. */
    readonly eventId?: number
    readonly newSignalId?: number | undefined
    readonly diedOf?: Cause.Cause<never> | undefined
  }

const attempt = (f: () => void): Problem | undefined => {
  try {
    f()
    return undefined
  } catch (problem) {
    const { message } = problem as Error
    if (problem instanceof Nondeterminism) {
      const { diedOf, eventId } = problem
      // A death explains more than where it differs from the history.
      const details = diedOf === undefined
        ? ErrorDetails.nondeterminism(message)
        : ErrorDetails.died(Cause.squash(diedOf))
      return { details, reason: "HistoryDiffers", message, eventId, diedOf }
    }
    if (problem instanceof InvalidProgram) {
      return { details: ErrorDetails.invalidProgram(message), reason: problem.reason, message }
    }
    // Thrown only where a turn may block, so the details are those of a definition that died.
    if (problem instanceof Unreadable) {
      const { newSignalId } = problem
      const at = newSignalId === undefined ? {} : { eventId: newSignalId, newSignalId }
      return { details: ErrorDetails.died(problem), reason: "DataUnreadable", message, ...at }
    }
    throw problem
  }
}

const notDurable = (name: string) =>
  `orchestration "${name}" awaits something that is not durable (a promise, a callback, a real timer): ` +
  `nothing recorded can ever wake it. Put it in an activity. Instead of an endless sleep, wait for a signal`
