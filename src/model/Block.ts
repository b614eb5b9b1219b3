/**
 * Why an instance is blocked: it is `Running`, and no process has been able to run its next turn.
 *
 * @since 0.2.0
 */

/**
 * Why a turn could not be run by the code that tried.
 *
 * **Details**
 *
 * - `HistoryDiffers`: the program asks for something else than its history holds, because it was changed in place, or
 *   reads time or chance outside of Effect.
 * - `DataUnreadable`: a Schema refuses a stored payload, result, message or value, or the release cannot read an event.
 * - `NotDurable`: the program awaits a promise, a callback or a real timer.
 * - `Endless`: the program never comes to rest.
 *
 * @category models
 * @since 0.2.0
 */
export type BlockReason = "HistoryDiffers" | "DataUnreadable" | "NotDurable" | "Endless"

/**
 * What a process reports when it cannot run a turn.
 *
 * @category models
 * @since 0.2.0
 */
export interface BlockReport {
  readonly reason: BlockReason
  /** What does not fit, for people; never a payload. */
  readonly problem: string
  /** The event at which the replay stopped. */
  readonly eventId: number
  /** The build of the process that tried. */
  readonly build: string
}

/**
 * Describes an instance that is blocked. It keeps everything, takes messages, and is tried again at growing pauses, and
 * at once when a process starts that serves its definition.
 *
 * @category models
 * @since 0.2.0
 */
export interface Block extends BlockReport {
  /** First try that failed, milliseconds since the Unix epoch. */
  readonly sinceMs: number
  /** Last try. */
  readonly triedAtMs: number
  readonly tries: number
}
