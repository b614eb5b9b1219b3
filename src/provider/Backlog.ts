/**
 * What waits in a store: the measure of whether its processes keep up, and of how many are needed.
 *
 * @since 0.2.0
 */

/**
 * Work that could be claimed now: visible, without a live lock, and not waiting for a start.
 *
 * @category models
 * @since 0.2.0
 */
export interface Waiting {
  /** Number of items; of each definition, the oldest 10,000 are counted. */
  readonly depth: number
  /** How long the oldest item could have been claimed, milliseconds; null without an item. */
  readonly oldestAgeMs: number | null
}

/**
 * What waits at one moment of the store's clock.
 *
 * @category models
 * @since 0.2.0
 */
export interface Backlog {
  /** Messages to instances. */
  readonly orchestrator: Waiting
  /** Activities by their tag, null for those without one; no entry where nothing waits. */
  readonly worker: ReadonlyArray<Waiting & { readonly tag: string | null }>
  /** Instances that have not ended. An estimate in large stores. */
  readonly activeInstances: number
  /** Instances that are blocked; at most 10,000 are counted. */
  readonly blockedInstances: number
  /** Activities that wait for a slot or a token of a limit; at most 10,000 are counted. */
  readonly limitedActivities: number
  /** Instances whose start waits for a slot or a token of a limit; at most 10,000 are counted. */
  readonly limitedInstances: number
}
