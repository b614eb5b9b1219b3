/**
 * What an operator has paused: no process claims its work until it is resumed.
 *
 * @since 0.2.0
 */
import * as Data from "effect/Data"

/**
 * What can be paused.
 *
 * - `Instance`: turns of one instance. Its activities still run.
 * - `Orchestration`: turns of its instances, of one version or of all.
 * - `Activity`, `Tag`: activities of a name, or with a tag.
 * - `Everything`: all turns and activities.
 *
 * @category models
 * @since 0.2.0
 */
export type PauseTarget = Data.TaggedEnum<{
  Instance: { readonly instanceId: string }
  Orchestration: { readonly name: string; readonly version?: string | undefined }
  Activity: { readonly name: string }
  Tag: { readonly tag: string }
  Everything: {}
}>

/**
 * Constructors and matchers of targets.
 *
 * @category constructors
 * @since 0.2.0
 */
export const PauseTarget = Data.taggedEnum<PauseTarget>()

/**
 * A pause, which lasts until an operator ends it.
 *
 * @category models
 * @since 0.2.0
 */
export interface Pause {
  readonly target: PauseTarget
  /** What the operator said; null if nothing. */
  readonly reason: string | null
  /** Milliseconds since the Unix epoch. */
  readonly sinceMs: number
}
