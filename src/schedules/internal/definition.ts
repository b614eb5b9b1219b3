/**
 * The definition of a schedule as it is stored.
 */
import * as Schema from "effect/Schema"
import { Encoding } from "../../model/shared/attributes.ts"
import { Timing } from "./timing.ts"

/**
 * What an occurrence starts, as it is stored.
 *
 * @category models
 * @since 0.3.0
 */
export type Target = typeof Target.Type

const Target = Schema.Union([
  Schema.TaggedStruct("Orchestration", {
    name: Schema.String,
    /** Null: the newest one that is served where it starts. */
    version: Schema.NullOr(Schema.String),
    servedBy: Schema.Literals(["typescript", "rust"]),
    attributes: Schema.optionalKey(Encoding)
  }),
  Schema.TaggedStruct("Task", {
    name: Schema.String,
    queue: Schema.String,
    maxAttempts: Schema.Int,
    wakeupKind: Schema.optionalKey(Schema.String)
  })
])

/**
 * What happens to an occurrence while the last run continues: it is left out (`skip`); it starts when that has ended,
 * and further ones are left out meanwhile (`queue`); it starts beside it (`allow`); or the run is interrupted, and the
 * newest occurrence starts when it has ended (`interrupt`).
 *
 * @category models
 * @since 0.3.0
 */
export type Overlap = typeof Overlap.Type

const Overlap = Schema.Literals(["skip", "queue", "allow", "interrupt"])

export const CatchUp = Schema.Union([
  Schema.TaggedStruct("None", {}),
  Schema.TaggedStruct("Last", {}),
  Schema.TaggedStruct("Within", { ms: Schema.Int })
])

export const Definition = Schema.Struct({
  timing: Timing,
  target: Target,
  overlap: Overlap,
  jitterMs: Schema.Int,
  catchUp: CatchUp
})

export type Definition = typeof Definition.Type

export const decode = Schema.decodeUnknownOption(Definition)
