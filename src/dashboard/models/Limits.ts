/**
 * Limits, as the HTTP interface says them.
 *
 * @since 0.3.0
 */
import * as Schema from "effect/Schema"

const Ms = Schema.Finite
const Count = Schema.Finite

/**
 * How many may be under way at once, and how often one may begin: a bucket of `burst` tokens, of which one comes back
 * every `perMs / count`. Null stands for no bound.
 *
 * @category models
 * @since 0.3.0
 */
export const Bound = Schema.Struct({
  concurrency: Schema.NullOr(Count),
  rate: Schema.NullOr(Schema.Struct({ count: Count, perMs: Ms, burst: Count }))
})

/**
 * What a limit is of.
 *
 * @category models
 * @since 0.3.0
 */
export const LimitKind = Schema.Literals(["activity", "orchestration", "task"])

/**
 * The limits of a definition, and how they are used.
 *
 * @category models
 * @since 0.3.0
 */
export const Limit = Schema.Struct({
  kind: LimitKind,
  name: Schema.String,
  /** The bound of all together. */
  total: Schema.NullOr(Bound),
  eachKey: Schema.NullOr(Bound),
  /** When they last changed. */
  sinceMs: Ms,
  inUse: Count,
  waiting: Count,
  /** When the one that has waited longest was stored. */
  oldestMs: Schema.NullOr(Ms),
  /** How many keys have some that have a slot or wait, also the key `""` of those without one. */
  keyCount: Count,
  /** Keys with bounds of their own, and the busiest of the others. */
  keys: Schema.Array(Schema.Struct({
    /** Empty for those without a key. */
    key: Schema.String,
    /** In place of `eachKey`. */
    own: Schema.NullOr(Bound),
    inUse: Count,
    waiting: Count,
    oldestMs: Schema.NullOr(Ms)
  }))
})

/**
 * Which bound of a definition: of all together, of each key, or of one key.
 *
 * @category models
 * @since 0.3.0
 */
export const LimitScope = Schema.Struct({
  kind: Schema.Literals(["total", "eachKey", "key"]),
  /** The key; null unless it is of one. */
  key: Schema.NullOr(Schema.String)
})
