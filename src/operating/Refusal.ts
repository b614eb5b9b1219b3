/**
 * What an operator asked for is not done, because of what is stored.
 */
import * as Schema from "effect/Schema"

export class Refusal extends Schema.TaggedError<Refusal>("duroxide-prisma/operating/Refusal")("Refusal", {
  /** For programs, as the tags of the reasons of `ProviderError`: `InstanceEnded`. */
  code: Schema.String,
  /** For people. */
  message: Schema.String
}) {}
