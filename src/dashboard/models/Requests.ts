/**
 * Requests to instances, as the HTTP interface says them.
 *
 * @since 0.3.0
 */
import * as Schema from "effect/Schema"

const Ms = Schema.Finite

/**
 * A question to an instance.
 *
 * @category models
 * @since 0.3.0
 */
export const Question = Schema.Struct({
  requestId: Schema.String,
  /** Name of the request; null if an earlier execution was asked. */
  name: Schema.NullOr(Schema.String),
  /** `Waiting` until the program takes it, `Taken` until it is answered. `Failed`: its handler died. */
  state: Schema.Literals(["Waiting", "Taken", "Answered", "Refused", "Failed"]),
  /** When a turn has read it; null as `name`. */
  sinceMs: Schema.NullOr(Ms),
  /** The event of the question; null as `name`. */
  eventId: Schema.NullOr(Schema.Finite),
  /** JSON text of what was asked; null as `name`, and where the caller may not see payloads. */
  payload: Schema.NullOr(Schema.String),
  /** JSON text of the answer or the refusal; null without one, and where the caller may not see payloads. */
  answer: Schema.NullOr(Schema.String),
  /** Why it has failed; null otherwise. */
  problem: Schema.NullOr(Schema.String)
})

/**
 * What has become of a request.
 *
 * @category models
 * @since 0.3.0
 */
export const Asked = Schema.Struct({
  /** `TimedOut`: it stays with the instance, and may be answered later. */
  outcome: Schema.Literals(["Answered", "Refused", "Failed", "TimedOut"]),
  requestId: Schema.String,
  /** JSON text of the answer or the refusal; null without one, and where the caller may not see payloads. */
  answer: Schema.NullOr(Schema.String),
  /** What happened, in a sentence. */
  message: Schema.String
})
