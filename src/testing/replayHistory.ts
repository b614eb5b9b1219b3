/**
 * Checks code against recorded histories, so that a program is not changed in a way that breaks its running instances.
 *
 * A history is recorded once, from a test or from production, and stored beside the tests. As long as it replays, an
 * instance at the end of this history continues with the new code as it would have with the old code.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import type * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as Event from "../model/Event.ts"
import * as attributes from "../model/shared/attributes.ts"
import * as markers from "../model/shared/markers.ts"
import { isArrival } from "../model/shared/recordedArrivals.ts"
import { isClosing, isEnd, isOwnEnd } from "../model/shared/recordedEnds.ts"
import * as retrySignal from "../model/shared/retrySignal.ts"
import type * as Orchestration from "../Orchestration.ts"
import { Admin } from "../provider/Admin.ts"
import { PayloadCodec } from "../provider/PayloadCodec.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { reveal } from "../provider/shared/revealing.ts"
import { isRequest, mismatch } from "../replay/action.ts"
import { codeAfter, diesAfter, isDeath } from "../replay/codeAfter.ts"
import type { Code, StoredValue } from "../replay/codeAfter.ts"
import { whereDifferent } from "../replay/difference.ts"
import { decisionText } from "../replay/eventText.ts"
import * as historyDiff from "../replay/historyDiff.ts"
import { orchestrationKey } from "../runtime/handlers.ts"
import { readExecutions } from "./internal/executions.ts"

/**
 * All executions of one instance: the text that `recordHistory` returns, or its events, as typed events, as objects, as
 * row texts (`history.event_data`, also of a Rust runtime) or as rows with such a column. In any order.
 *
 * @category models
 * @since 0.1.0
 */
export type History = string | ReadonlyArray<string | object>

/**
 * What was replayed.
 *
 * @category models
 * @since 0.1.0
 */
export interface Replayed {
  readonly instanceId: string
  /** Oldest first. */
  readonly executions: ReadonlyArray<{
    readonly executionId: number
    /** The version that it was recorded with. */
    readonly version: string
    readonly events: number
    readonly status: "Running" | "Completed" | "Failed" | "ContinuedAsNew"
  }>
}

/**
 * The code does not do what the history has. The message shows both sides as a diff, with payloads.
 *
 * @category errors
 * @since 0.1.0
 */
export class HistoryMismatch extends Schema.TaggedError<HistoryMismatch>("duroxide-prisma/testing/HistoryMismatch")(
  "HistoryMismatch",
  {
    orchestration: Schema.String,
    instanceId: Schema.String,
    executionId: Schema.Number,
    /** The first event that differs; the number after the last event, when the code does more. */
    eventId: Schema.Number,
    report: Schema.String
  }
) {
  override get message() {
    return this.report
  }
}

/**
 * The given history is not a history of this orchestration, or cannot be read.
 *
 * @category errors
 * @since 0.1.0
 */
export class UnreadableHistory extends Schema.TaggedError<UnreadableHistory>(
  "duroxide-prisma/testing/UnreadableHistory"
)("UnreadableHistory", { problem: Schema.String }) {
  override get message() {
    return `the history cannot be replayed: ${this.problem}`
  }
}

/**
 * Runs the program of `orchestration` over a recorded history, and compares all it does with what is recorded.
 *
 * **Details**
 *
 * The program is the layer that `toLayer` returns. It runs without a store, a clock or activities. Its requests must be
 * the recorded ones, no more and no less: in kind, name, payload, session, tag and order. An execution that has ended
 * must end in the same way, with the same output; one that has not ended must wait where the history ends.
 *
 * Not compared is what a running instance takes from its history: due times of timers, ids of children, and the texts
 * of statuses (but that a status is set is compared: `setCustomStatus` is a request like any other). An instance that
 * was poisoned, or failed for nondeterminism, is compared up to that end.
 *
 * Given several versions, each execution is replayed with the version that it was recorded with, or with the first
 * where that version is missing. Given one definition, all executions are replayed with it, whatever their versions:
 * this shows whether a change needs a new version.
 *
 * The values of an instance pass from one execution to the next, so give the history of all executions. One with sealed
 * payloads needs the `PayloadCodec` that has stored it in the context.
 *
 * **Example** (A history of production in the test suite)
 *
 * ```ts
 * it.effect("Fulfil: continues what 1.0.0 began", () =>
 *   replayHistory(Fulfil, readFileSync("test/histories/order-1.json", "utf8")).pipe(Effect.provide(FulfilLive)))
 * ```
 *
 * @category replay
 * @since 0.1.0
 */
export const replayHistory = <const D extends Orchestration.Any | Versions>(
  orchestration: D,
  history: History
): Effect.Effect<
  Replayed,
  HistoryMismatch | UnreadableHistory,
  HandlerOf<D extends Versions ? D[number] : D>
> =>
  Effect.gen(function*() {
    const definitions: Versions = "name" in orchestration ? [orchestration] : orchestration
    const { name } = definitions[0]
    const stored = yield* Effect.fromResult(read(name, history))
    const codec = yield* Effect.serviceOption(PayloadCodec)
    const executions = Option.isNone(codec) ? stored : yield* reveal(stored, codec.value)
    const keyValues = new Map<string, StoredValue>()
    for (const events of executions) {
      const { version } = definitions.find(({ version }) => version === events[0].version) ?? definitions[0]
      const code = yield* Effect.service(orchestrationKey(name, version))
      const difference = compare(code, events, keyValues)
      if (difference !== undefined) {
        const { executionId, instanceId } = events[0]
        const eventId = events[difference.at]?.eventId ?? events.length + 1
        const report = historyDiff.report(name, difference)
        return yield* new HistoryMismatch({ orchestration: name, instanceId, executionId, eventId, report })
      }
      applyValues(keyValues, events)
    }
    return {
      instanceId: executions[0]![0].instanceId,
      executions: executions.map((events) => ({
        executionId: events[0].executionId,
        version: events[0].version,
        events: events.length,
        status: statusOf(events.find(isEnd))
      }))
    }
  }) as never

/**
 * The history of all executions of an instance, as the text of a file for `replayHistory`: a JSON array with one event
 * per line. Fails with `InstanceNotFound` when the instance does not exist.
 *
 * @category recording
 * @since 0.1.0
 */
export const recordHistory = (instanceId: string): Effect.Effect<string, ProviderError, Admin> =>
  Effect.gen(function*() {
    const admin = yield* Admin
    yield* admin.getInstanceInfo(instanceId)
    const executions = yield* readExecutions(admin, instanceId)
    return `[\n${executions.flat().map(Event.encode).join(",\n")}\n]\n`
  })

// internal

type Versions = readonly [Orchestration.Any, ...ReadonlyArray<Orchestration.Any>]

/** The service that the layer of a definition's program provides. */
type HandlerOf<D> = D extends { readonly toLayer: (program: any) => Layer.Layer<infer H> } ? H
  : D extends Orchestration.Any ? Orchestration.Handler<D["name"]>
  : never

type Events = readonly [Event.Of<"OrchestrationStarted">, ...ReadonlyArray<Event.Event>]

const unreadable = (problem: string) => Result.fail(new UnreadableHistory({ problem }))

/** The events of each execution, oldest first. */
const read = (name: string, history: History): Result.Result<ReadonlyArray<Events>, UnreadableHistory> => {
  let items: unknown = history
  if (typeof history === "string") {
    try {
      items = JSON.parse(history)
    } catch {
      return unreadable("it is not JSON")
    }
  }
  if (!Array.isArray(items) || items.length === 0) return unreadable("it is not an array of events, or it is empty")
  const byExecution = new Map<number, Array<Event.Event>>()
  for (const [index, item] of items.entries()) {
    const decoded = decode(item)
    if (Result.isFailure(decoded)) return unreadable(`its item ${index}: ${decoded.failure.problem}`)
    const event = decoded.success
    byExecution.set(event.executionId, [...byExecution.get(event.executionId) ?? [], event])
  }
  const executions = [...byExecution.values()].sort(([a], [b]) => a!.executionId - b!.executionId)
  const instances = new Set(executions.flat().map(({ instanceId }) => instanceId))
  if (instances.size > 1) return unreadable(`it is of several instances: ${[...instances].join(", ")}`)
  for (const events of executions) {
    events.sort((a, b) => a.eventId - b.eventId)
    const [first] = events
    if (first?._tag !== "OrchestrationStarted") {
      return unreadable(`execution ${first!.executionId} does not begin with OrchestrationStarted`)
    }
    const gap = events.findIndex((event, index) => !follows(event, events[index - 1]))
    if (gap >= 0) {
      const missing = (events[gap - 1]?.eventId ?? 0) + 1
      return unreadable(`execution ${first.executionId} has no event ${missing}, or two of them`)
    }
    if (first.name !== name) return unreadable(`it is of "${first.name}", not of "${name}"`)
  }
  return Result.succeed(executions as unknown as ReadonlyArray<Events>)
}

/** Whether no event is missing between two. A retry removes those before its own event. */
const follows = (event: Event.Event, { eventId }: Pick<Event.Event, "eventId"> = { eventId: 0 }) =>
  event.eventId === eventId + 1 || event.eventId === unreadableEventId ||
  event.eventId > eventId && event._tag === "ExternalEventPersistent" && event.name === retrySignal.name

/** The event id that a runtime gives to the failure of an execution whose events it cannot read. */
const unreadableEventId = 99_999

const decode = (item: unknown): ReturnType<typeof Event.decode> => {
  if (typeof item === "string") return Event.decode(item)
  if (typeof item !== "object" || item === null) return Event.decode("null")
  if ("_tag" in item) return Result.succeed(item as Event.Event)
  return Event.decode("event_data" in item ? String(item.event_data) : JSON.stringify(item))
}

/** The first difference in an execution, if there is one. */
const compare = (
  code: Code,
  events: Events,
  keyValues: ReadonlyMap<string, StoredValue>
): historyDiff.Difference | undefined => {
  const differs = (at: number, ours: ReadonlyArray<Event.Event>, problem?: string) =>
    historyDiff.make(events, at, ours, problem)

  const [recorded, expected] = split(events)
  const after = codeAfter(code, events, recorded.length, keyValues)
  if (after._tag === "Fits") {
    // Code may ask for a change no longer, or have it recorded where an instance that waits has not come yet.
    const theirs = expected.filter((event) => !markers.isPart(event, events))
    const ours = after.events.filter((event) => !markers.isPart(event, after.events))
    const index = firstDifference(theirs, ours, (event, other) => {
      const request = after.requests.find((request) => request.event === other)
      return request === undefined
        ? isSameEnd(event, other, code)
        : isRequest(event) && mismatch(request.action, event) === undefined
    })
    if (index === undefined) return undefined
    if (!ours.some(isDeath)) {
      const first = theirs[index]
      return differs(first === undefined ? events.length : events.indexOf(first), ours.slice(index))
    }
    // A replay continues after code has died. The death explains more than the requests that are missing after it.
    const at = diesAfter(code, events, recorded.length, keyValues) ?? recorded.length
    const death = codeAfter(code, events, at, keyValues)
    return differs(at, death._tag === "Fits" ? death.events : [])
  }
  // The problem names the event. The code is run again with the history before it, to show what it does instead.
  const eventId = Number(/^event (\d+):/.exec(after.problem)?.[1])
  const at = recorded.findIndex((event) => event.eventId === eventId)
  if (at < 1) return differs(recorded.length, [], after.problem)
  const instead = codeAfter(code, events, at, keyValues)
  return instead._tag === "Differs"
    ? differs(at, [], instead.problem)
    : differs(at, instead.events, isGivenUp(events[at]!) ? after.problem : undefined)
}

const firstDifference = (
  theirs: ReadonlyArray<Event.Event>,
  ours: ReadonlyArray<Event.Event>,
  /** Whether events with other texts are the same decision. */
  isSame: (theirs: Event.Event, ours: Event.Event) => boolean
): number | undefined => {
  const [longer, shorter] = theirs.length > ours.length ? [theirs, ours] : [ours, theirs]
  const index = longer.findIndex((event, index) => {
    const other = shorter[index]
    if (other === undefined) return true
    return decisionText(other) !== decisionText(event) &&
      !(longer === theirs ? isSame(event, other) : isSame(other, event))
  })
  return index < 0 ? undefined : index
}

/** A Schema may encode the same value differently each time. */
const isSameEnd = (one: Event.Event, other: Event.Event, { decodes }: Code): boolean => {
  if (decodes === undefined) return false
  if (one._tag === "OrchestrationCompleted" && other._tag === "OrchestrationCompleted") {
    return whereDifferent(one.output, other.output, decodes.success) === undefined
  }
  if (one._tag === "OrchestrationContinuedAsNew" && other._tag === "OrchestrationContinuedAsNew") {
    return whereDifferent(one.input, other.input, decodes.payload) === undefined
  }
  const [error, otherError] = [errorOf(one), errorOf(other)]
  return error !== undefined && otherError !== undefined &&
    whereDifferent(error, otherError, decodes.error) === undefined
}

/** The error with which a program has failed, encoded. */
const errorOf = (event: Event.Event): string | undefined =>
  event._tag === "OrchestrationFailed" && event.details._tag === "Application" &&
    event.details.kind === "OrchestrationFailed"
    ? event.details.message
    : undefined

const isGivenUp = (event: Event.Event) => "reason" in event && event.reason === "dropped_future"

/** The events to replay, and those that the code must then produce: none, or its whole last turn. */
const split = (events: Events): readonly [recorded: Events, expected: ReadonlyArray<Event.Event>] => {
  const end = events.findIndex(isEnd)
  if (end < 0) return [events, []]
  let count = end
  if (isOwnEnd(events[end]!, events)) {
    while (count > 1 && !isArrival(events[count - 1]!, events)) count--
    return [take(events, count), events.slice(count)]
  }
  // The code may never have received the last arrivals.
  while (count > 1 && isClosing(events[count - 1]!)) count--
  while (count > 1 && isArrival(events[count - 1]!, events)) count--
  return [take(events, count), []]
}

const take = (events: Events, count: number) => events.slice(0, count) as unknown as Events

const statusOf = (end: Event.Event | undefined) => {
  switch (end?._tag) {
    case "OrchestrationCompleted":
      return "Completed"
    case "OrchestrationFailed":
      return "Failed"
    case "OrchestrationContinuedAsNew":
      return "ContinuedAsNew"
    default:
      return "Running"
  }
}

/** Adds the values that an execution leaves to the next one. */
const applyValues = (keyValues: Map<string, StoredValue>, events: Events): void => {
  for (const event of events) {
    if (event._tag === "KeyValueSet") {
      if (event.key === attributes.recordKey) continue
      keyValues.set(event.key, { value: event.value, lastUpdatedAtMs: event.lastUpdatedAtMs ?? 0 })
    } else if (event._tag === "KeyValueCleared") keyValues.delete(event.key)
    else if (event._tag === "KeyValuesCleared") keyValues.clear()
  }
}
