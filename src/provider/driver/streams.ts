/**
 * Streams of chunks: what activities append, and what readers are answered.
 */
import type { ProgressChunk } from "../../model/ProgressChunk.ts"

/**
 * A chunk for a stream of an instance.
 *
 * @category models
 * @since 0.3.0
 */
export interface NewChunk {
  readonly stream: string
  /** JSON text. */
  readonly chunk: string
  /** What the stream keeps, at least 1 of each: the oldest chunks beyond it are deleted, the newest one never. */
  readonly keepChunks: number
  readonly keepBytes: number
}

/**
 * Chunks of a claimed activity for a stream of its instance.
 *
 * @category models
 * @since 0.3.0
 */
export interface ChunksAppend extends Omit<NewChunk, "chunk"> {
  readonly lockToken: string
  readonly instanceId: string
  readonly writer: string
  /** Number of the first chunk, among those of the writer. */
  readonly number: number
  /** An earlier call may have stored some of these chunks, the first ones: those are left out. */
  readonly isRepeat: boolean
  /** At least one. */
  readonly chunks: ReadonlyArray<string>
}

/**
 * The answer to an append. `LockLost`: the activity was cancelled or taken over, or its instance has ended or is gone.
 * `Locked`: another transaction holds the activity or the instance, so the call is to be repeated.
 *
 * @category models
 * @since 0.3.0
 */
export type ChunksAppended = "Done" | "LockLost" | "Locked"

/**
 * What a reader asks for.
 *
 * @category models
 * @since 0.3.0
 */
export interface ReadChunks {
  readonly instanceId: string
  readonly stream: string
  /** The first offset; null: the oldest one that is kept. */
  readonly from: number | null
  /** Bytes of chunks after which the page ends; 0: only where the stream is. */
  readonly maxBytes: number
}

/**
 * Where a stream is, and chunks of it, all read at one moment.
 *
 * @category models
 * @since 0.3.0
 */
export interface ChunksPage extends StreamPosition {
  /** From the offset asked for; empty if that is not kept. */
  readonly chunks: ReadonlyArray<ProgressChunk>
}

/**
 * Where a stream is.
 *
 * @category models
 * @since 0.3.0
 */
export interface StreamPosition {
  /** Another one after its instance was deleted and started again; null before the first chunk. */
  readonly streamId: string | null
  /** Offset of the oldest chunk that is kept. */
  readonly firstOffset: number
  readonly nextOffset: number
  /** Whether the instance exists. */
  readonly isKnown: boolean
  /** Whether its current execution is `Completed` or `Failed`: then no chunk follows, unless it is retried. */
  readonly hasEnded: boolean
}

/**
 * What the tries of a call have appended since the last of them began anew.
 *
 * @category models
 * @since 0.3.0
 */
export interface ResumedChunks {
  /** Also those that are no longer kept. */
  readonly count: number
  /** Those that are kept, the oldest first. */
  readonly chunks: ReadonlyArray<string>
}
