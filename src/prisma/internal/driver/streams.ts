/**
 * Streams of chunks.
 */
import * as Effect from "effect/Effect"
import * as chunkWriter from "../../../model/shared/chunkWriter.ts"
import type { AdminDriver } from "../../../provider/AdminDriver.ts"
import type { ChunksAppended, ProviderDriver } from "../../../provider/ProviderDriver.ts"
import { Prisma } from "../client.ts"
import { json, keptRow } from "../rows.ts"
import { timeless } from "../statements.ts"
import type { Calls } from "./calls.ts"

type Driver = ProviderDriver["Service"]

export const streams = ({ answer, rows }: Calls) => ({
  appendChunks: (items) =>
    items.length === 0
      ? Effect.succeed<ReadonlyArray<ChunksAppended>>([])
      : answer<ReadonlyArray<ChunksAppended>>("appendChunks", "dx_append_chunks", [
        json(items.map((item) => ({
          token: item.lockToken,
          instance_id: item.instanceId,
          stream: item.stream,
          writer: item.writer,
          number: item.number,
          is_repeat: item.isRepeat,
          ...keptRow(item),
          chunks: item.chunks
        })))
      ], { items: items.length, isQuiet: true }),

  readChunks: (items) =>
    items.length === 0 ? Effect.succeed([]) : Effect.map(
      rows<ChunksPageRow>("readChunks", "dx_read_chunks", [
        json(items.map(({ from, instanceId, maxBytes, stream }) => ({
          instance_id: instanceId,
          stream,
          from,
          max_bytes: maxBytes
        })))
      ], timeless),
      (pages) => pages.map(pageOf)
    ),

  resumeChunks: ({ call, instanceId, stream }) =>
    Effect.map(
      rows<{ readonly out_count: bigint; readonly out_chunks: ReadonlyArray<string> }>(
        "resumeChunks",
        "dx_resume_chunks",
        [Prisma.sql`${instanceId}::text`, Prisma.sql`${stream}::text`, Prisma.sql`${call}::text`],
        timeless
      ),
      ([row]) => ({ count: Number(row!.out_count), chunks: row!.out_chunks })
    )
} satisfies Partial<Driver>)

/** The streams of an instance. */
export const listStreams = (rows: Calls["rows"]): AdminDriver["Service"]["listStreams"] => (instanceId) =>
  Effect.map(
    rows<StreamRow>("listStreams", "dx_read_streams", [Prisma.sql`${instanceId}::text`], timeless),
    (found) =>
      found.map((row) => ({
        name: row.out_name,
        firstOffset: Number(row.out_first_offset),
        nextOffset: Number(row.out_next_offset),
        bytes: Number(row.out_bytes),
        appendedAtMs: Number(row.out_appended_at_ms)
      }))
  )

// internal

interface StreamRow {
  readonly out_name: string
  readonly out_first_offset: bigint
  readonly out_next_offset: bigint
  readonly out_bytes: bigint
  readonly out_appended_at_ms: bigint
}

interface ChunksPageRow {
  readonly out_stream_id: bigint | null
  readonly out_first_offset: bigint
  readonly out_next_offset: bigint
  readonly out_is_known: boolean
  readonly out_has_ended: boolean
  readonly out_chunks:
    | ReadonlyArray<readonly [offset: number, writer: string, number: number, appendedAtMs: number, chunk: string]>
    | null
}

const pageOf = (row: ChunksPageRow) => ({
  streamId: row.out_stream_id === null ? null : String(row.out_stream_id),
  firstOffset: Number(row.out_first_offset),
  nextOffset: Number(row.out_next_offset),
  isKnown: row.out_is_known,
  hasEnded: row.out_has_ended,
  chunks: (row.out_chunks ?? []).map(([offset, writer, number, appendedAtMs, chunk]) => ({
    offset,
    writer: chunkWriter.decode(writer, number),
    appendedAtMs,
    chunk
  }))
})
