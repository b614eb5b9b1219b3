/**
 * Reads a stream page after page.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type { ProgressChunk } from "../../model/ProgressChunk.ts"
import type { Provider, ReadStream, StreamPage } from "../Provider.ts"
import type { StreamPosition } from "../ProviderDriver.ts"
import { InstanceNotFound, ProviderError } from "../ProviderError.ts"

/**
 * A stream does not have the chunk that the reader asks for. Either it was deleted because newer chunks needed the
 * room: continue from `firstOffset`. Or the instance was deleted and started again, and the offset is one of the old
 * stream: read from the beginning.
 *
 * @category errors
 * @since 0.3.0
 */
export class ChunksMissing extends Schema.TaggedError<ChunksMissing>("duroxide-prisma/ChunksMissing")("ChunksMissing", {
  instanceId: Schema.String,
  stream: Schema.String,
  /** The offset asked for. */
  from: Schema.Number,
  /** Offset of the oldest chunk that is kept. */
  firstOffset: Schema.Number,
  /** Offset of the next chunk that is appended. */
  nextOffset: Schema.Number,
  reason: Schema.Literals(["Deleted", "OtherStream"])
}) {
  override get message() {
    const { firstOffset, from, instanceId, nextOffset, reason, stream } = this
    const of = `stream "${stream}" of instance "${instanceId}"`
    return reason === "Deleted"
      ? `${of} no longer has the chunks ${from} to ${firstOffset - 1}: read on from ${firstOffset}`
      : `${of} is not the one that offset ${from} is of, its next is ${nextOffset}: read it from the beginning`
  }
}

/** Whether the position is news for a reader that asks for these chunks; see `StreamPage`. */
export const isNews = (
  { firstOffset, hasEnded, isKnown, nextOffset, streamId }: StreamPosition,
  asked: Pick<ReadStream, "from" | "streamId">
): boolean => {
  const next = asked.from ?? firstOffset
  return nextOffset !== next || next < firstOffset || hasEnded || isOther(streamId, asked) || (!isKnown && next > 0)
}

/** Bytes of chunks after which a page ends: with the next one, this is what a reader holds in memory. */
export const pageBytes = 256 * 1024

/** The chunks from an offset on, until the instance has ended; or those stored now, if it does not follow. */
export const readStream = (
  provider: Pick<Provider["Service"], "readStream">,
  { follows, from, instanceId, stream }: {
    readonly instanceId: string
    readonly stream: string
    /** Null: the oldest that is kept. */
    readonly from: number | null
    readonly follows: boolean
  }
): Stream.Stream<ProgressChunk, ProviderError | ChunksMissing> =>
  Stream.paginate<State, ProgressChunk, ProviderError | ChunksMissing>(
    { from, streamId: null },
    ({ from, streamId }) =>
      Effect.flatMap(
        provider.readStream({ instanceId, stream, from, streamId, waits: follows }),
        (page) => {
          const problem = missing(page, { instanceId, stream, from, streamId })
          if (problem !== undefined) return Effect.fail(problem)
          const next = (page.chunks.at(-1)?.offset ?? (from ?? page.firstOffset) - 1) + 1
          const isOver = next >= page.nextOffset && (page.hasEnded || !follows)
          return Effect.succeed([
            page.chunks,
            isOver ? Option.none<State>() : Option.some({ from: next, streamId: page.streamId })
          ])
        }
      )
  )

// internal

interface State {
  readonly from: number | null
  readonly streamId: string | null
}

/** The instance was deleted. */
const isOther = (streamId: string | null, asked: Pick<ReadStream, "streamId">) =>
  asked.streamId !== null && streamId !== asked.streamId

/** Why a page is not the one that follows. */
const missing = (
  { chunks, firstOffset, isKnown, nextOffset, streamId }: StreamPage,
  asked: State & { readonly instanceId: string; readonly stream: string }
) => {
  const { from, instanceId, stream } = asked
  const other = isOther(streamId, asked)
  if (!isKnown && (other || (from ?? 0) > 0)) {
    return new ProviderError({ operation: "readStream", reason: new InstanceNotFound({ instanceId }) })
  }
  if (other || (from !== null && from > nextOffset)) {
    return new ChunksMissing({ instanceId, stream, from: from ?? 0, firstOffset, nextOffset, reason: "OtherStream" })
  }
  return from !== null && from < firstOffset && chunks.length === 0
    ? new ChunksMissing({ instanceId, stream, from, firstOffset, nextOffset, reason: "Deleted" })
    : undefined
}
