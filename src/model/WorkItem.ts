/**
 * The messages of the two queues.
 *
 * `ActivityExecute` is for the worker queue, everything else for the orchestrator queue, addressed to an instance.
 * The encoded form is the row text of `work_item`, in the field order of Duroxide's Rust core.
 *
 * @since 0.1.0
 */
import type * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as ErrorDetails from "./ErrorDetails.ts"
import { Encoding } from "./shared/attributes.ts"
import { U64 } from "./shared/numbers.ts"
import { externallyTagged } from "./shared/wire.ts"
import type { Union, UnreadableText } from "./shared/wire.ts"

const text = Schema.String
const optionalText = Schema.optionalKey(Schema.String)
// See `internal/tracing.ts`. Duroxide ignores it.
const traceparent = optionalText
// Duroxide ignores them as well.
const attributes = Schema.optionalKey(Encoding)
const CarriedMessage = Schema.Tuple([Schema.String, Schema.String])

const variants = {
  StartOrchestration: {
    instance: text,
    orchestration: text,
    input: text,
    version: Schema.NullOr(text),
    parentInstance: Schema.NullOr(text),
    parentId: Schema.NullOr(U64),
    parentExecutionId: Schema.optionalKey(U64),
    executionId: U64,
    traceparent,
    attributes,
    // By which a limit distinguishes the instances of a definition.
    limitKey: Schema.optionalKey(text)
  },
  // The `id` of the four activity and timer items is the event id of the schedule. Only this package writes the fields
  // from `startedAtMs` on, the first three of them for idempotency keys; Duroxide ignores them.
  ActivityExecute: {
    instance: text,
    executionId: U64,
    id: U64,
    name: text,
    input: text,
    sessionId: optionalText,
    tag: optionalText,
    // When the execution started, milliseconds since the Unix epoch. Absent in rows that Rust wrote.
    startedAtMs: Schema.optionalKey(U64),
    // For a retry: the number of the try, from 2, and the event id of the first try.
    tryNumber: Schema.optionalKey(U64),
    firstTryId: Schema.optionalKey(U64),
    // By which a limit distinguishes the calls of a definition.
    limitKey: Schema.optionalKey(text),
    traceparent
  },
  ActivityCompleted: { instance: text, executionId: U64, id: U64, result: text },
  ActivityFailed: { instance: text, executionId: U64, id: U64, details: ErrorDetails.ErrorDetails },
  // Visible from `fireAtMs` on, milliseconds since the Unix epoch.
  TimerFired: { instance: text, executionId: U64, id: U64, fireAtMs: U64 },
  // `withStart`: sent with the start of its instance, and delivered after the first turn. Duroxide ignores it.
  ExternalRaised: {
    instance: text,
    name: text,
    data: text,
    traceparent,
    withStart: Schema.optionalKey(Schema.Boolean)
  },
  SubOrchCompleted: { parentInstance: text, parentExecutionId: U64, parentId: U64, result: text },
  SubOrchFailed: { parentInstance: text, parentExecutionId: U64, parentId: U64, details: ErrorDetails.ErrorDetails },
  CancelInstance: { instance: text, reason: text, traceparent },
  ContinueAsNew: {
    instance: text,
    orchestration: text,
    input: text,
    version: Schema.NullOr(text),
    parentInstance: optionalText,
    parentId: Schema.optionalKey(U64),
    parentExecutionId: Schema.optionalKey(U64),
    carryForwardEvents: Schema.optionalKey(Schema.Array(CarriedMessage)),
    initialCustomStatus: optionalText,
    traceparent,
    attributes
  },
  QueueMessage: { instance: text, name: text, data: text, traceparent }
}

/**
 * A message to an instance, or an activity to run.
 *
 * @category models
 * @since 0.1.0
 */
export type WorkItem = Union<typeof variants>

/**
 * The item of one kind: `WorkItem.Of<"TimerFired">`.
 *
 * @category models
 * @since 0.1.0
 */
export type Of<Tag extends WorkItem["_tag"]> = Extract<WorkItem, { readonly _tag: Tag }>

const codec = externallyTagged("WorkItem", variants)

/**
 * Encoded form: `{"Variant":{…}}`.
 *
 * @category models
 * @since 0.1.0
 */
export const WorkItem: Schema.Codec<WorkItem, unknown> = codec.schema

/**
 * Reads a `work_item`, in compact or `jsonb` form. Never throws; fails with the problem in words, without payloads.
 *
 * @category encoding
 * @since 0.1.0
 */
export const decode: (text: string) => Result.Result<WorkItem, UnreadableText> = codec.decode

/**
 * Writes a `work_item`: compact JSON in Duroxide's field order.
 *
 * @category encoding
 * @since 0.1.0
 */
export const encode: (item: WorkItem) => string = codec.encode

/**
 * The instance whose orchestrator queue the item belongs to.
 *
 * @category getters
 * @since 0.1.0
 */
export const target = (item: WorkItem): string =>
  item._tag === "SubOrchCompleted" || item._tag === "SubOrchFailed" ? item.parentInstance : item.instance
