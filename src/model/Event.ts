/**
 * The events of a history: what happened to one execution, in order, append-only.
 *
 * Event ids count from 1 without gaps in each execution; event 1 is `OrchestrationStarted`. The encoded form is the row
 * text of `history.event_data`, byte for byte what Duroxide's Rust core writes. Unknown keys are ignored; an unknown
 * variant is an error that names it.
 *
 * @since 0.1.0
 */
import type * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as ErrorDetails from "./ErrorDetails.ts"
import { Encoding } from "./shared/attributes.ts"
import { U64 } from "./shared/numbers.ts"
import { internallyTagged } from "./shared/wire.ts"
import type { Union, UnreadableText } from "./shared/wire.ts"

const envelope = {
  // Position in the execution.
  eventId: U64,
  // The schedule this event answers: set for completions and for the four cancellation breadcrumbs.
  sourceEventId: Schema.NullOr(U64),
  instanceId: Schema.String,
  executionId: U64,
  // The clock of the turn that wrote the event, milliseconds since the Unix epoch. In executions started by this
  // package, `Clock` returns it to the code (see `src/replay/interpreter.ts`).
  timestampMs: U64,
  // Semver of the writer; on event 1 the execution's pinned version.
  duroxideVersion: Schema.String
}

const CarriedMessage = Schema.Tuple([Schema.String, Schema.String])
const text = Schema.String
const optionalText = Schema.optionalKey(Schema.String)
const reason = { reason: text }

const variants = {
  OrchestrationStarted: {
    name: text,
    version: text,
    input: text,
    parentInstance: Schema.NullOr(text),
    parentId: Schema.NullOr(U64),
    parentExecutionId: Schema.optionalKey(U64),
    carryForwardEvents: Schema.optionalKey(Schema.Array(CarriedMessage)),
    initialCustomStatus: optionalText,
    // See `shared/tracing.ts`. Only this package writes it and the next two; Duroxide ignores them.
    traceparent: optionalText,
    // Of a fork: the id that seeds its random numbers, that of the instance whose events it continues.
    seedId: optionalText,
    // Those with which the execution begins.
    attributes: Schema.optionalKey(Encoding)
  },
  OrchestrationCompleted: { output: text },
  OrchestrationFailed: { details: ErrorDetails.ErrorDetails },
  OrchestrationContinuedAsNew: { input: text },
  OrchestrationCancelRequested: reason,
  OrchestrationChained: { name: text, instance: text, input: text },
  ActivityScheduled: { name: text, input: text, sessionId: optionalText, tag: optionalText },
  ActivityCompleted: { result: text },
  ActivityFailed: { details: ErrorDetails.ErrorDetails },
  ActivityCancelRequested: reason,
  // `fireAtMs` is absolute, milliseconds since the Unix epoch.
  TimerCreated: { fireAtMs: U64 },
  TimerFired: { fireAtMs: U64 },
  ExternalSubscribed: { name: text },
  ExternalEvent: { name: text, data: text },
  ExternalSubscribedCancelled: reason,
  ExternalSubscribedPersistent: { name: text },
  ExternalEventPersistent: { name: text, data: text },
  ExternalSubscribedPersistentCancelled: reason,
  SubOrchestrationScheduled: { name: text, instance: text, input: text },
  SubOrchestrationCompleted: { result: text },
  SubOrchestrationFailed: { details: ErrorDetails.ErrorDetails },
  SubOrchestrationCancelRequested: reason,
  CustomStatusUpdated: { status: Schema.NullOr(text) },
  KeyValueSet: { key: text, value: text, lastUpdatedAtMs: Schema.optionalKey(U64) },
  KeyValueCleared: { key: text },
  KeyValuesCleared: {}
}

/**
 * An event of a history.
 *
 * @category models
 * @since 0.1.0
 */
export type Event = Union<typeof variants, typeof envelope>

/**
 * The event of one kind: `Event.Of<"ActivityScheduled">`.
 *
 * @category models
 * @since 0.1.0
 */
export type Of<Tag extends Event["_tag"]> = Extract<Event, { readonly _tag: Tag }>

const codec = internallyTagged("Event", envelope, variants)

/**
 * Encoded form: a flat JSON object, the envelope first, then `type` and the fields of the kind.
 *
 * @category models
 * @since 0.1.0
 */
export const Event: Schema.Codec<Event, unknown> = codec.schema

/**
 * Reads a row of `history.event_data`. Never throws; fails with the problem in words, without payloads.
 *
 * @category encoding
 * @since 0.1.0
 */
export const decode: (text: string) => Result.Result<Event, UnreadableText> = codec.decode

/**
 * Writes a row of `history.event_data`: compact JSON in Duroxide's field order.
 *
 * @category encoding
 * @since 0.1.0
 */
export const encode: (event: Event) => string = codec.encode
