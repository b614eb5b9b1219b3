/**
 * What readers of streams ask for, and what they are answered.
 */
import type { ChunksPage } from "../driver/streams.ts"

/**
 * What a reader asks for.
 *
 * @category models
 * @since 0.3.0
 */
export interface ReadStream {
  readonly instanceId: string
  readonly stream: string
  /** The first offset; null: the oldest one that is kept. */
  readonly from: number | null
  /** `streamId` of the page before: another stream of the same instance id is news. Null without one. */
  readonly streamId: string | null
  /** Whether to wait for a page that has news. */
  readonly waits: boolean
}

/**
 * A page of a stream. It has news if it has chunks, if the instance has ended or is gone, or if chunks are missing:
 * `from` is below `firstOffset` or above `nextOffset`, or the stream is another one.
 *
 * @category models
 * @since 0.3.0
 */
export type StreamPage = ChunksPage
