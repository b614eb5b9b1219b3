/**
 * Limits: how much of a definition is under way at once, and how often one begins, over all processes.
 *
 * @since 0.3.0
 */
import type * as Duration from "effect/Duration"

/**
 * What a limit is of: calls of an activity, instances of an orchestration, or tasks of a name.
 *
 * @category models
 * @since 0.3.0
 */
export type LimitKind = "activity" | "orchestration" | "task"

/**
 * A bound as a program gives it. Without `concurrency`, only the processes bound how much runs at once. Without `rate`,
 * all begins as soon as it can.
 *
 * @category models
 * @since 0.3.0
 */
export interface Bound {
  /**
   * How many may have a slot at once; each keeps it until its result is stored, an instance until it ends. From 1 to
   * 1,000,000.
   */
  readonly concurrency?: number | undefined
  readonly rate?: Rate | undefined
}

/**
 * How often something may begin: a bucket of `burst` tokens, of which one comes back every `per / count`.
 *
 * **Details**
 *
 * In any span of time at most `burst` begin, and one more for each `per / count` of it. A delivery after a crash takes
 * no token.
 *
 * @category models
 * @since 0.3.0
 */
export interface Rate {
  /** From 1 to 1,000,000. */
  readonly count: number
  /** From 1 millisecond to 365 days. */
  readonly per: Duration.Input
  /** How many may begin at once after a pause. Defaults to 1, which spaces them evenly. At most 1,000,000. */
  readonly burst?: number | undefined
}

/**
 * Changes of the limits of a definition. A bound that is left out stays as it is; null removes it; any other replaces
 * it as a whole, concurrency and rate together: after `{ total: { rate } }`, `total` has no concurrency.
 *
 * **Details**
 *
 * `total` bounds all of the definition together, `eachKey` those of each key, and `keys` those of single keys, in place
 * of `eachKey`. `limitKey` of the definition makes the key from a payload; those without a key share the key `""`. One
 * begins when all bounds that apply to it have room. Without any bound, the keys still take turns.
 *
 * @category models
 * @since 0.3.0
 */
export interface LimitChanges {
  readonly total?: Bound | null | undefined
  readonly eachKey?: Bound | null | undefined
  readonly keys?: { readonly [key: string]: Bound | null } | undefined
}

/**
 * A bound as it is stored. Null: no bound.
 *
 * @category models
 * @since 0.3.0
 */
export interface StoredBound {
  readonly concurrency: number | null
  readonly rate: { readonly count: number; readonly perMs: number; readonly burst: number } | null
}

/**
 * The limits of a definition, and how they are used at this moment.
 *
 * @category models
 * @since 0.3.0
 */
export interface Limit {
  readonly kind: LimitKind
  /** The name of the definition. */
  readonly name: string
  readonly total: StoredBound | null
  readonly eachKey: StoredBound | null
  /** When they last changed: milliseconds since the Unix epoch. */
  readonly sinceMs: number
  /** How many have a slot: they run, or may begin as soon as a process takes them. */
  readonly inUse: number
  /** How many wait for a slot or a token. */
  readonly waiting: number
  /** When the activity that has waited longest was stored: milliseconds since the Unix epoch; null if none waits. */
  readonly oldestMs: number | null
  /** How many keys have some that have a slot or wait, also the key `""` of those without one. */
  readonly keyCount: number
  /**
   * Keys with a bound of their own, and the busiest 100 others. The key with the most waiting activities comes first.
   */
  readonly keys: ReadonlyArray<LimitedKey>
}

/**
 * A key of a limit, and how it is used at this moment.
 *
 * @category models
 * @since 0.3.0
 */
export interface LimitedKey {
  /** Empty for those without a key. */
  readonly key: string
  /** The bound of this key, in place of `eachKey`; null without one. */
  readonly own: StoredBound | null
  readonly inUse: number
  readonly waiting: number
  readonly oldestMs: number | null
}
