/**
 * Which texts of events, messages and turns are payloads, and how they pass through a `PayloadCodec`.
 */
import * as Effect from "effect/Effect"
import type * as ErrorDetails from "../../model/ErrorDetails.ts"
import type * as Event from "../../model/Event.ts"
import * as attributes from "../../model/shared/attributes.ts"
import * as coreVersion from "../../model/shared/coreVersion.ts"
import * as interruptSignal from "../../model/shared/interruptSignal.ts"
import * as markers from "../../model/shared/markers.ts"
import * as retrySignal from "../../model/shared/retrySignal.ts"
import * as taskSignal from "../../model/shared/taskSignal.ts"
import * as WorkItem from "../../model/WorkItem.ts"
import type { PayloadCodec } from "../PayloadCodec.ts"
import type { Turn } from "../Provider.ts"
import type { ProviderError } from "../ProviderError.ts"
import type { Through } from "../shared/sealing.ts"
import * as texts from "../shared/sealing.ts"

type Codec = PayloadCodec["Service"]

export interface Sealing extends texts.Texts {
  /** Its items are in the order of those of the given one. */
  readonly turn: (operation: string, turn: Turn) => Effect.Effect<Turn, ProviderError>
  /** The last event of a turn or history that passed through here, as it is stored. */
  readonly storedEvent: (event: Event.Event) => Event.Event
  readonly remember: (history: ReadonlyArray<Event.Event>, stored: ReadonlyArray<Event.Event>) => void
  /** A message to an instance, plain if the instance is one of Rust. */
  readonly message: <Item extends WorkItem.WorkItem>(
    operation: string,
    item: Item
  ) => Effect.Effect<Item, ProviderError>
}

export const make = (
  codec: Codec,
  isOfRust: (instanceId: string) => Effect.Effect<boolean, ProviderError>
): Sealing => {
  const { open, seal, sealAnew } = texts.make(codec, "instance_id")
  const storedEvents = new WeakMap<Event.Event, Event.Event>()

  const remember: Sealing["remember"] = (history, stored) => {
    const last = history.at(-1)
    if (last !== undefined && last !== stored.at(-1)) storedEvents.set(last, stored.at(-1)!)
  }

  /** Rust reads only plain texts. */
  const message = <Item extends WorkItem.WorkItem>(operation: string, item: Item) => {
    const instanceId = WorkItem.target(item)
    return Effect.flatMap(
      ofItem(item, seal(operation, instanceId)),
      (stored) =>
        stored === item || !codec.sharedWithRust
          ? Effect.succeed(stored)
          : Effect.map(isOfRust(instanceId), (isOfRust) => isOfRust ? item : stored)
    )
  }

  const turn = Effect.fnUntraced(function*(operation: string, turn: Turn) {
    const { chunks, forRust, historyDelta, metadata, orchestratorItems, startsPinnedTo, workerItems } = turn
    const instanceId = historyDelta[0]?.instanceId ?? ""
    const through = seal(operation, instanceId)
    const history = yield* Effect.forEach(historyDelta, (event) => ofEvent(event, through))
    remember(historyDelta, history)
    const activities = yield* Effect.forEach(
      workerItems,
      (item) => forRust?.has(item) === true ? Effect.succeed(item) : ofItem(item, through)
    )
    const messages = yield* Effect.forEach(
      orchestratorItems,
      (item): Effect.Effect<WorkItem.WorkItem, ProviderError> => {
        if (item._tag !== "StartOrchestration") {
          return WorkItem.target(item) === instanceId ? ofItem(item, through) : message(operation, item)
        }
        // One that is not listed may be taken by a process of Rust.
        const pinnedTo = startsPinnedTo?.get(item)
        return pinnedTo === undefined || !isOurs(pinnedTo)
          ? Effect.succeed(item)
          : ofItem(item, seal(operation, item.instance))
      }
    )
    const { output } = metadata
    const failure = historyDelta.findLast((event) => event._tag === "OrchestrationFailed")
    return {
      ...turn,
      historyDelta: history,
      workerItems: activities,
      orchestratorItems: messages,
      ...(chunks !== undefined && {
        chunks: yield* Effect.forEach(
          chunks,
          (chunk) => Effect.map(sealAnew(operation)(chunk.chunk), (text) => ({ ...chunk, chunk: text }))
        )
      }),
      ...(output !== undefined && mayHoldPayload(output, failure) && {
        metadata: { ...metadata, output: yield* through(output) }
      }),
      ...(forRust !== undefined && {
        forRust: new Set(activities.filter((_, index) => forRust.has(workerItems[index]!)))
      }),
      ...(startsPinnedTo !== undefined && {
        startsPinnedTo: new Map(orchestratorItems.flatMap((item, index) => {
          const pinnedTo = startsPinnedTo.get(item)
          return pinnedTo === undefined ? [] : [[messages[index]!, pinnedTo] as const]
        }))
      })
    }
  })

  return { seal, sealAnew, open, message, turn, remember, storedEvent: (event) => storedEvents.get(event) ?? event }
}

/** Whether a start that is pinned to this version is run by this package. */
export const isOurs = (version: Parameters<typeof coreVersion.isWithin>[0]): boolean =>
  version.major >= coreVersion.supported.min.major

/** The event with its payloads passed through; itself if none changes. */
export const ofEvent = <E extends Event.Event>(event: E, through: Through): Effect.Effect<E, ProviderError> =>
  event._tag === "KeyValueSet" && event.key === attributes.recordKey ||
    (event._tag === "ActivityScheduled" || event._tag === "ExternalEventPersistent") && isPublic(event.name)
    ? Effect.succeed(event)
    : ofFields(event, through)

/** The message or activity with its payloads passed through; itself if none changes. */
export const ofItem = <Item extends WorkItem.WorkItem>(
  item: Item,
  through: Through
): Effect.Effect<Item, ProviderError> =>
  (item._tag === "QueueMessage" || item._tag === "ActivityExecute") && isPublic(item.name)
    ? Effect.succeed(item)
    : ofFields(item, through)

export const ofDetails = (
  details: ErrorDetails.ErrorDetails,
  through: Through
): Effect.Effect<ErrorDetails.ErrorDetails, ProviderError> => {
  if (!holdsPayload(details)) return Effect.succeed(details)
  const { stack } = details as { readonly stack?: string }
  return Effect.flatMap(through(details.message), (message) => {
    if (stack === undefined) return Effect.succeed(message === details.message ? details : { ...details, message })
    // It begins with the message of the defect.
    return Effect.map(through(stack), (stack) => ({ ...details, message, stack }))
  })
}

/** The event, opened, also what a task has stored in it. */
export const openedEvent = (event: Event.Event, through: Through): Effect.Effect<Event.Event, ProviderError> =>
  event._tag === "ExternalEventPersistent" && taskSignal.isName(event.name)
    ? Effect.flatMap(ofEvent(event, through), (event) => withTaskEnd(event, through))
    : ofEvent(event, through)

/** The message, opened, also what a task has stored in it. */
export const openedMessage = (
  message: WorkItem.WorkItem,
  through: Through
): Effect.Effect<WorkItem.WorkItem, ProviderError> =>
  message._tag === "QueueMessage" && taskSignal.isName(message.name)
    ? Effect.flatMap(ofItem(message, through), (message) => withTaskEnd(message, through))
    : ofItem(message, through)

// internal

/** What operators and the store read themselves. */
const isPublic = (name: string) => name === interruptSignal.name || name === retrySignal.name || markers.isName(name)

type Failure = Extract<ErrorDetails.ErrorDetails, { readonly _tag: "Application" | "Poison" }>

/** Messages of all others are those of this package. The message of a poison is its payload. */
const holdsPayload = (details: ErrorDetails.ErrorDetails): details is Failure =>
  details._tag === "Poison" || details._tag === "Application" && typeof details.kind === "string"

const withTaskEnd = <A extends { readonly data: string }>(self: A, through: Through): Effect.Effect<A, ProviderError> =>
  Effect.map(texts.nested(self.data, through), (data) => data === self.data ? self : { ...self, data })

/** The store recognises a cancelled instance by its output. */
const mayHoldPayload = (output: string, failure: Event.Of<"OrchestrationFailed"> | undefined): boolean =>
  failure === undefined ? !output.startsWith("canceled: ") : holdsPayload(failure.details)

const fields = ["input", "output", "result", "data", "status", "value", "initialCustomStatus"] as const

const ofFields = <A extends object>(self: A, through: Through): Effect.Effect<A, ProviderError> => {
  const values = self as Record<string, unknown>
  const changes: Record<string, unknown> = {}
  const all: Array<Effect.Effect<void, ProviderError>> = []
  for (const field of fields) {
    const text = values[field]
    if (typeof text !== "string") continue
    all.push(Effect.map(through(text), (changed) => {
      if (changed !== text) changes[field] = changed
    }))
  }
  const { carryForwardEvents, details } = values
  if (details !== undefined) {
    all.push(Effect.map(ofDetails(details as ErrorDetails.ErrorDetails, through), (changed) => {
      if (changed !== details) changes["details"] = changed
    }))
  }
  if (carryForwardEvents !== undefined) {
    all.push(Effect.map(
      Effect.forEach(
        carryForwardEvents as ReadonlyArray<readonly [string, string]>,
        ([name, data]) => Effect.map(isPublic(name) ? Effect.succeed(data) : through(data), (data) => [name, data])
      ),
      (carried) => {
        if (carried.length > 0) changes["carryForwardEvents"] = carried
      }
    ))
  }
  if (all.length === 0) return Effect.succeed(self)
  return Effect.map(
    Effect.all(all, { discard: true }),
    () => Object.keys(changes).length === 0 ? self : { ...self, ...changes }
  )
}
