/**
 * Streams of typed chunks that an instance and its activities append while they run, and that clients read as a
 * `Stream`: tokens of a language model, lines of a log, steps of a progress bar.
 *
 * Chunks are stored beside the history, not in it: a replay does not read them, and neither does the program. Each has
 * an offset, from 0, without gaps. `client.readStream` reads from an offset on, in any process and after any restart,
 * until the instance has ended. A stream keeps its newest chunks, and is deleted with its instance.
 *
 * **A program** appends with its turns: a chunk is stored if and only if its turn is, once and in order, however often
 * the turn is replayed. So readers see it when the program next waits.
 *
 * **An activity** appends at once. If it is delivered again, its earlier chunks stay. A handler that can continue after
 * them reads them with `resume`. One that cannot starts over, and readers find that with `startsOver`. If a newer
 * delivery has taken over the activity of a handler, its next append interrupts it.
 *
 * Continue-as-new and a retry append to the same stream. A fork begins without chunks.
 *
 * @since 0.3.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import type { Writer as ChunkWriter } from "./model/ProgressChunk.ts"
import { checkNameUnsafe } from "./model/shared/definitions.ts"
import * as payloads from "./model/shared/payload.ts"
import type { Payload, PayloadInput, PayloadSchema, SchemaOf } from "./model/shared/payload.ts"
import { bytesOf } from "./model/shared/valueBytes.ts"
import { ChunkPort } from "./replay/context.ts"
import type { AppendedChunk, StreamWriter } from "./replay/context.ts"
import { Call } from "./runtime/activityCall.ts"
import { ActivityStreams } from "./runtime/activityStreams.ts"

export type { Writer } from "./model/ProgressChunk.ts"
export { ChunksMissing } from "./provider/shared/readStream.ts"
export type { StreamWriter } from "./replay/context.ts"

/**
 * A stream that every instance may have.
 *
 * @category models
 * @since 0.3.0
 */
export interface ProgressStream<in out Chunk extends PayloadSchema> {
  readonly name: string
  readonly chunk: Chunk
  /** Most bytes of a chunk, of JSON text in UTF-8. */
  readonly maxChunkBytes: number
  /**
   * Appends a chunk, in a program or in the handler of an activity.
   *
   * **Details**
   *
   * In an activity it returns when the chunk is stored; while the store does not answer, it waits. Concurrent appends
   * of a process share a statement. Chunks of one fiber are stored in its order.
   *
   * A chunk that the Schema refuses, or with more than `maxChunkBytes`, is a defect.
   */
  readonly append: (chunk: Chunk["Type"]) => Effect.Effect<void, never, StreamWriter>
  /** Appends several chunks together, in order, as `append` appends one. */
  readonly appendAll: (chunks: Iterable<Chunk["Type"]>) => Effect.Effect<void, never, StreamWriter>
  /**
   * Continues, in the handler of an activity, where earlier tries and deliveries of the same call have stopped. Returns
   * their chunks, except those that the stream no longer keeps; in the first delivery there are none. Chunks that this
   * delivery appends continue them. A delivery that appends without `resume` starts over.
   *
   * A stored chunk that the Schema refuses is a defect.
   */
  readonly resume: Effect.Effect<ReadonlyArray<Chunk["Type"]>, never, Call>
  /** @internal */
  readonly codec: Payload<Chunk["Type"]>
}

/**
 * A chunk as a client reads it.
 *
 * @category models
 * @since 0.3.0
 */
export interface Entry<out A> {
  /** Place in the stream, from 0. To continue after this chunk, read from `offset + 1`. */
  readonly offset: number
  readonly chunk: A
  readonly writer: ChunkWriter
  /** When it was appended, by the clock of the store, milliseconds since the Unix epoch. */
  readonly appendedAtMs: number
}

/**
 * Options of a stream: how much of it each instance keeps. When newer chunks need the room, the oldest are deleted.
 *
 * @category models
 * @since 0.3.0
 */
export interface Options {
  /** Most bytes of a chunk, of JSON text in UTF-8. 1 to 1,048,576; defaults to 65,536. */
  readonly maxChunkBytes?: number | undefined
  /** Most chunks. 1 to 1,000,000; defaults to 10,000. */
  readonly keepChunks?: number | undefined
  /** Most bytes of all chunks, at least `maxChunkBytes`, at most 1 GiB. Defaults to 4 MiB. */
  readonly keepBytes?: number | undefined
}

/**
 * Defines a stream that every instance may have. `chunk` is a Schema, or the fields of a `Schema.Struct`. Throws a
 * `RangeError` on an invalid option, and if the name is empty, is too long or cannot be stored.
 *
 * **Example** (Tokens of a language model)
 *
 * ```ts
 * const Tokens = ProgressStream.make("tokens", { chunk: Schema.String })
 *
 * const ThinkLive = Think.toLayer((question) =>
 *   Stream.tap(model.stream(question), Tokens.append).pipe(Stream.mkString)
 * )
 *
 * const text = client.readStream(Tokens, instanceId).pipe(
 *   Stream.runFold(() => "", (text, entry) => ProgressStream.startsOver(entry) ? entry.chunk : text + entry.chunk)
 * )
 * ```
 *
 * @category constructors
 * @since 0.3.0
 */
export const make = <C extends PayloadInput>(
  name: string,
  options: Options & { readonly chunk: C }
): ProgressStream<SchemaOf<C>> => {
  checkNameUnsafe("stream", name)
  const maxChunkBytes = count(name, "maxChunkBytes", options.maxChunkBytes ?? 65_536, 1, 1_048_576)
  const keepChunks = count(name, "keepChunks", options.keepChunks ?? 10_000, 1, 1_000_000)
  const keepBytes = count(
    name,
    "keepBytes",
    options.keepBytes ?? Math.max(maxChunkBytes, 4_194_304),
    maxChunkBytes,
    1_073_741_824
  )
  const schema = payloads.schemaOf(options.chunk)
  const codec = payloads.make(`chunk of stream "${name}"`, schema)
  const encode = (chunk: SchemaOf<C>["Type"]): Effect.Effect<AppendedChunk> =>
    Effect.flatMap(Effect.orDie(codec.encode(chunk)), (text) => {
      const bytes = bytesOf(text)
      return bytes <= maxChunkBytes
        ? Effect.succeed({ stream: name, chunk: text, keepChunks, keepBytes, decode: codec.decode })
        : Effect.die(new RangeError(`a chunk of stream "${name}" has ${bytes} bytes, the limit is ${maxChunkBytes}`))
    })
  const appendAll = (chunks: Iterable<SchemaOf<C>["Type"]>) =>
    Effect.flatMap(Effect.forEach(chunks, encode), (encoded) => Effect.flatMap(port, ({ append }) => append(encoded)))
  return {
    name,
    chunk: schema,
    maxChunkBytes,
    codec,
    append: (chunk) => appendAll([chunk]),
    appendAll,
    resume: Effect.flatMap(Call, () => ActivityStreams).pipe(
      Effect.flatMap(({ resume }) => resume(name)),
      Effect.flatMap((texts) =>
        Effect.forEach(texts, (text): Exit.Exit<SchemaOf<C>["Type"], unknown> => codec.decode(text))
      ),
      Effect.orDie
    )
  }
}

/**
 * Whether a try of an activity begins with this chunk: it is the first chunk of its call, or a new try or delivery has
 * started over. Earlier chunks of the same call (`writer.executionId` and `writer.callId`) are those of an aborted try.
 *
 * @category reading
 * @since 0.3.0
 */
export const startsOver = ({ writer }: Pick<Entry<unknown>, "writer">): boolean =>
  writer._tag === "Activity" && writer.number === 1

/**
 * Runs a handler without a runtime, as in a test of the handler alone: what it appends is dropped.
 *
 * @category testing
 * @since 0.3.0
 */
export const ignoring = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, Exclude<R, StreamWriter>> =>
  Effect.updateContext(
    self as Effect.Effect<A, E, Exclude<R, StreamWriter>>,
    (context: Context.Context<Exclude<R, StreamWriter>>) => Context.merge(context, ignored)
  )

// internal

/** The port with the type of what an append requires: programs and handlers have it, nothing else has. */
const port = ChunkPort as unknown as Effect.Effect<ChunkPort, never, StreamWriter>

const ignored = Context.make(ChunkPort, { append: () => Effect.void }).pipe(
  Context.add(ActivityStreams, { append: () => Effect.void, resume: () => Effect.succeed([]) })
)

const count = (name: string, option: keyof Options, value: number, least: number, most: number): number => {
  if (Number.isInteger(value) && value >= least && value <= most) return value
  throw new RangeError(
    `${option} of stream "${name}" is ${value}, but must be a whole number from ${least} to ${most}`
  )
}
