/**
 * How an activity ends that is completed from outside: its completion, and each heartbeat before that, reaches the
 * orchestration in a signal of the call. The history of the execution says how the call stands.
 */
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Event from "../Event.ts"

/** A call, by its execution and the event id of its first try. */
export interface CallId {
  readonly executionId: number
  readonly callId: number
}

/** The signal of a call. */
export const nameOf = ({ callId, executionId }: CallId): string => `${prefix}${executionId}/${callId}`

export const isName = (name: string): boolean => name.startsWith(prefix)

/** The event id of the first try of the call that this signal is for. */
export const callIdOf = (name: string): number => Number(name.slice(name.lastIndexOf("/") + 1))

/** The result of the activity that sends the token. */
export const Requested = Schema.Struct({
  executionId: Schema.Int,
  callId: Schema.Int,
  /** Milliseconds since the Unix epoch. */
  expiresAtMs: Schema.Int,
  /** How long a heartbeat extends it. */
  expiryMs: Schema.Int
})

/** What the signal carries. Results and errors are JSON texts. */
export const Message = Schema.Union([
  Schema.Struct({ _tag: Schema.Literal("Completed"), result: Schema.String }),
  Schema.Struct({ _tag: Schema.Literal("Failed"), error: Schema.String }),
  Schema.Struct({ _tag: Schema.Literal("Heartbeat"), details: Schema.Unknown })
])

export type Message = typeof Message.Type

/** The program waits so much longer than a completion is accepted: one that is accepted counts. */
export const graceMs = 1_000

export interface Heartbeat {
  readonly atMs: number
  readonly details: unknown
}

/** How a call stands. */
export type State =
  /** The execution has made no such call. */
  | { readonly _tag: "Unknown" }
  /** `message` is the text of its completion. */
  | { readonly _tag: "Done"; readonly message: string }
  | {
    readonly _tag: "Open"
    /** Undefined while the activity that sends the token has not ended. */
    readonly expiresAtMs: number | undefined
    readonly heartbeat: Heartbeat | undefined
  }
  | { readonly _tag: "Expired"; readonly expiresAtMs: number }
  /** The program waits no longer, or its execution has ended. */
  | { readonly _tag: "GivenUp" }

/** `events` are those of the execution. */
export const stateOf = (
  events: ReadonlyArray<Event.Event>,
  call: CallId & { readonly activityName: string }
): State => {
  const name = nameOf(call)
  let isKnown = false
  let isOver = false
  let wait: number | undefined
  let expiresAtMs: number | undefined
  let expiryMs = 0
  let heartbeat: Heartbeat | undefined
  for (const event of events) {
    switch (event._tag) {
      case "ActivityScheduled":
        if (event.eventId === call.callId && event.name === call.activityName) isKnown = true
        break
      case "ActivityCompleted": {
        const requested = decodeRequested(event.result)
        if (Option.isNone(requested) || requested.value.callId !== call.callId) break
        expiresAtMs = requested.value.expiresAtMs
        expiryMs = requested.value.expiryMs
        break
      }
      case "ExternalSubscribedPersistent":
        if (event.name === name) wait = event.eventId
        break
      case "ExternalSubscribedPersistentCancelled":
        if (event.sourceEventId === wait && wait !== undefined) {
          return expiresAtMs !== undefined && event.timestampMs >= expiresAtMs
            ? { _tag: "Expired", expiresAtMs }
            : { _tag: "GivenUp" }
        }
        break
      case "ExternalEventPersistent": {
        if (event.name !== name) break
        const message = Option.getOrUndefined(decodeMessage(event.data))
        if (message?._tag !== "Heartbeat") return { _tag: "Done", message: event.data }
        heartbeat = { atMs: event.timestampMs, details: message.details }
        if (expiresAtMs !== undefined) expiresAtMs = Math.max(expiresAtMs, event.timestampMs + expiryMs)
        break
      }
      case "OrchestrationCompleted":
      case "OrchestrationFailed":
      case "OrchestrationContinuedAsNew":
        isOver = true
    }
  }
  return !isKnown ? { _tag: "Unknown" } : isOver ? { _tag: "GivenUp" } : { _tag: "Open", expiresAtMs, heartbeat }
}

// internal

const prefix = "duroxide-prisma/completion/"

const decodeRequested = Schema.decodeUnknownOption(Schema.fromJsonString(Requested))

const decodeMessage = Schema.decodeUnknownOption(Schema.fromJsonString(Message))
