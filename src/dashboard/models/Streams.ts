/**
 * Streams of instances, as the HTTP interface says them.
 *
 * @since 0.3.0
 */
import * as Schema from "effect/Schema"

const Ms = Schema.Finite
const Count = Schema.Finite

/**
 * A stream of an instance, without its chunks.
 *
 * @category models
 * @since 0.3.0
 */
export const ProgressStream = Schema.Struct({
  name: Schema.String,
  /** Offset of the oldest chunk that is kept. */
  firstOffset: Count,
  /** Offset of the next chunk: so many were appended. */
  nextOffset: Count,
  /** Bytes of the chunks that are kept. */
  bytes: Count,
  /** When the last chunk was appended. */
  appendedAtMs: Ms
})

/**
 * A chunk of a stream.
 *
 * @category models
 * @since 0.3.0
 */
export const Chunk = Schema.Struct({
  offset: Count,
  appendedAtMs: Ms,
  executionId: Count,
  /** The event of the call whose activity has appended it; null: the program has. */
  event: Schema.NullOr(Count),
  /** Whether a try of the activity begins with it: what the same call has appended before is of an aborted one. */
  startsOver: Schema.Boolean,
  /** JSON text; null where the caller may not see payloads. */
  chunk: Schema.NullOr(Schema.String)
})

/**
 * Chunks in order, and where the stream is.
 *
 * @category models
 * @since 0.3.0
 */
export const ChunkPage = Schema.Struct({
  /** At most 256 KiB, and the rest of the last one. */
  chunks: Schema.Array(Chunk),
  firstOffset: Count,
  nextOffset: Count,
  /** Whether the instance has ended, so that no chunk follows. */
  hasEnded: Schema.Boolean
})
