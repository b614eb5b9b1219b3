/**
 * What an operator asked for is not done, because of what is stored.
 */
import * as Schema from "effect/Schema"

export class Refusal extends Schema.TaggedError<Refusal>("duroxide-prisma/operating/Refusal")("Refusal", {
  /** The kind of refusal, for programs, as the tags of `ProviderError`: `InstanceEnded`. */
  code: Schema.String,
  /** What to do, for people. */
  message: Schema.String
}) {}
