/**
 * Chunks that instances and their activities append to streams, besides their histories.
 *
 * @since 0.3.0
 */

/**
 * Who has appended a chunk: the program of an instance, or one delivery of an activity.
 *
 * @category models
 * @since 0.3.0
 */
export type Writer =
  | { readonly _tag: "Program"; readonly executionId: number }
  | {
    readonly _tag: "Activity"
    readonly executionId: number
    /** Event id of the first try: the same for all tries and deliveries of one call. */
    readonly callId: number
    /** From 1: more than 1 only with the `retry` option. */
    readonly tryNumber: number
    /** From 1, as `Activity.Call` says it; `deliveryId` is another one for each delivery. */
    readonly deliveryNumber: number
    readonly deliveryId: string
    /**
     * Place among the chunks of the call, from 1. A delivery that resumes continues the count of the earlier one; one
     * that starts over counts from 1 again.
     */
    readonly number: number
  }

/**
 * A stored chunk, encoded.
 *
 * @category models
 * @since 0.3.0
 */
export interface ProgressChunk {
  /** Place in the stream, from 0, without gaps. */
  readonly offset: number
  readonly writer: Writer
  /** By the clock of the store, milliseconds since the Unix epoch. */
  readonly appendedAtMs: number
  /** JSON text. */
  readonly chunk: string
}

/**
 * A stream of an instance, without its chunks.
 *
 * @category models
 * @since 0.3.0
 */
export interface ProgressStreamInfo {
  readonly name: string
  /** Offset of the oldest chunk that is kept; `nextOffset` if the stream is empty. */
  readonly firstOffset: number
  /** Offset of the next chunk, which is the number of chunks appended so far. */
  readonly nextOffset: number
  /** UTF-8 bytes of the chunks that are kept. */
  readonly bytes: number
  /** When the last chunk was appended, milliseconds since the Unix epoch. */
  readonly appendedAtMs: number
}
