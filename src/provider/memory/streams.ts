/**
 * Streams of chunks.
 */
import * as Effect from "effect/Effect"
import type { ProgressChunk, ProgressStreamInfo } from "../../model/ProgressChunk.ts"
import * as chunkWriter from "../../model/shared/chunkWriter.ts"
import { bytesOf } from "../../model/shared/valueBytes.ts"
import type { ChunksAppend, ChunksAppended, ProviderDriver, UnclaimedTurn } from "../ProviderDriver.ts"
import * as activities from "./activities.ts"
import * as tables from "./tables.ts"

export const make = (store: tables.Tables) =>
  ({
    appendChunks: (items) => tables.statement((now) => items.map((item) => append(store, item, now))),

    readChunks: (items) =>
      Effect.sync(() =>
        items.map(({ from, instanceId, maxBytes, stream }) => {
          const found = store.streams.get(instanceId)?.get(stream)
          const instance = store.instances.get(instanceId)
          const status = tables.executionOf(store, instanceId, instance?.executionId ?? 0)?.status
          return {
            streamId: found?.id ?? null,
            firstOffset: found === undefined ? 0 : firstOffset(found),
            nextOffset: found?.nextOffset ?? 0,
            isKnown: instance !== undefined,
            hasEnded: status === "Completed" || status === "Failed",
            chunks: found === undefined ? [] : page(found, from ?? firstOffset(found), maxBytes)
          }
        })
      ),

    resumeChunks: ({ call, instanceId, stream }) =>
      Effect.sync(() => {
        const ofCall = store.streams.get(instanceId)?.get(stream)?.chunks.filter(({ writer }) =>
          writer.startsWith(call)
        ) ?? []
        const since = ofCall.slice(Math.max(0, ofCall.findLastIndex(({ number }) => number === 1)))
        return { count: since.at(-1)?.number ?? 0, chunks: since.map(({ chunk }) => chunk) }
      })
  }) satisfies Partial<ProviderDriver["Service"]>

/** Stores what the program appends in a turn. */
export const storeChunks = (
  store: tables.Tables,
  instanceId: string,
  { chunks = [], executionId }: UnclaimedTurn,
  now: number
): void => {
  for (const { chunk, stream, ...keep } of chunks) {
    insert(streamOf(store, instanceId, stream, now), `${executionId}`, 0, [chunk], keep, now)
  }
}

export const list = (store: tables.Tables, instanceId: string): ReadonlyArray<ProgressStreamInfo> =>
  [...store.streams.get(instanceId) ?? []].sort(([a], [b]) => a < b ? -1 : 1).map(([name, stream]) => ({
    name,
    firstOffset: firstOffset(stream),
    nextOffset: stream.nextOffset,
    bytes: stream.bytes,
    appendedAtMs: stream.appendedAtMs
  }))

// internal

const firstOffset = ({ chunks, nextOffset }: tables.ChunkStream) => chunks[0]?.offset ?? nextOffset

const streamOf = (store: tables.Tables, instanceId: string, name: string, now: number): tables.ChunkStream =>
  tables.entry(
    tables.entry(store.streams, instanceId, () => new Map<string, tables.ChunkStream>()),
    name,
    (): tables.ChunkStream => ({ id: `${++store.lastRowId}`, appendedAtMs: now, nextOffset: 0, bytes: 0, chunks: [] })
  )

const append = (store: tables.Tables, item: ChunksAppend, now: number): ChunksAppended => {
  const { chunks, instanceId, isRepeat, lockToken, number, stream: name, writer } = item
  const activity = activities.notTakenOver(store, lockToken)
  if (activity === undefined || activity.instanceId !== instanceId || !store.instances.has(instanceId)) {
    return "LockLost"
  }
  if (tables.executionOf(store, instanceId, activity.executionId ?? 0)?.status !== "Running") return "LockLost"
  const stream = streamOf(store, instanceId, name, now)
  // The first of them may have been removed since.
  const last = isRepeat
    ? stream.chunks.findLast((chunk) => chunk.writer === writer && chunk.number >= number)
    : undefined
  const stored = last === undefined ? 0 : last.number + 1 - number
  insert(stream, writer, number + stored, chunks.slice(stored), item, now)
  return "Done"
}

/** A program's chunks have the number 0. */
const insert = (
  stream: tables.ChunkStream,
  writer: string,
  number: number,
  texts: ReadonlyArray<string>,
  keep: { readonly keepChunks: number; readonly keepBytes: number },
  now: number
) => {
  if (texts.length === 0) return
  const { chunks } = stream
  for (const [index, chunk] of texts.entries()) {
    chunks.push({
      offset: stream.nextOffset++,
      writer,
      number: number === 0 ? 0 : number + index,
      chunk,
      appendedAtMs: now
    })
  }
  stream.appendedAtMs = now
  stream.bytes += tables.bytesOf(texts)
  while (chunks.length > 1 && (chunks.length > keep.keepChunks || stream.bytes > keep.keepBytes)) {
    stream.bytes -= bytesOf(chunks.shift()!.chunk)
  }
}

const page = (stream: tables.ChunkStream, from: number, maxBytes: number): ReadonlyArray<ProgressChunk> => {
  if (maxBytes === 0 || from < firstOffset(stream)) return []
  const found: Array<ProgressChunk> = []
  let bytes = 0
  for (const { number, writer, ...chunk } of stream.chunks) {
    if (chunk.offset < from) continue
    if (bytes >= maxBytes) break
    bytes += bytesOf(chunk.chunk)
    found.push({ ...chunk, writer: chunkWriter.decode(writer, number) })
  }
  return found
}
