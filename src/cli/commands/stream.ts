import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { ProgressChunk } from "../../model/ProgressChunk.ts"
import { isoTime, time } from "../../operating/times.ts"
import { Admin } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import { readStream } from "../../provider/shared/readStream.ts"
import { CommandError, misused } from "../internal/failure.ts"
import { Output } from "../internal/Output.ts"
import * as Store from "../internal/store.ts"
import { bytes, oneLine, table } from "../internal/table.ts"

export const stream = Command.make("stream", {
  id: Argument.String("id").pipe(Argument.withDescription("Id of the instance")),
  name: Argument.String("name").pipe(
    Argument.withDescription("Name of the stream. Without it, the streams of the instance are listed"),
    Argument.optional
  ),
  from: Flag.Int("from").pipe(
    Flag.withMetavar("<offset>"),
    Flag.withDescription("The first chunk, from 0. Defaults to the oldest that is kept"),
    Flag.optional
  ),
  follow: Flag.Boolean("follow").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Print further chunks as they come, until the instance has ended"),
    Flag.withDefault(false)
  )
}, (flags) => Effect.provide(run(flags), Store.layer)).pipe(
  Command.withShortDescription("List the streams of an instance, or print one"),
  Command.withDescription(
    "List the streams of an instance, or print the chunks of one, each as JSON on a line of its own. Exits with 1 if " +
      "the chunk to begin with is no longer kept."
  ),
  Command.withExamples([
    { command: "duroxide-prisma stream chat-17" },
    { command: "duroxide-prisma stream chat-17 tokens --follow" },
    { command: "duroxide-prisma stream chat-17 tokens --from 120 --json", description: "For programs" }
  ])
)

// internal

const run = Effect.fnUntraced(function*({ follow, from, id, name }: {
  readonly id: string
  readonly name: Option.Option<string>
  readonly from: Option.Option<number>
  readonly follow: boolean
}) {
  const { answer, isTerminal, part } = yield* Output
  if (Option.isNone(name)) {
    return follow || Option.isSome(from)
      ? yield* misused("--from and --follow need the name of a stream")
      : yield* list(id)
  }
  const options = { instanceId: id, stream: name.value, from: Option.getOrNull(from), follows: follow }
  const text = ({ chunk }: ProgressChunk) => isTerminal ? oneLine(chunk) : chunk
  const chunks = Stream.catchTag(
    readStream(yield* Provider, options),
    "ChunksMissing",
    ({ _tag, message }) => Stream.fail(new CommandError({ code: _tag, message, exit: "no" }))
  )
  if (follow) return yield* Stream.runForEach(chunks, (chunk) => part({ json: jsonOf(chunk), text: [text(chunk)] }))
  const found = yield* Stream.runCollect(chunks)
  yield* answer({ json: { instanceId: id, stream: name.value, chunks: found.map(jsonOf) }, text: found.map(text) })
})

const list = Effect.fnUntraced(function*(id: string) {
  const { answer, style } = yield* Output
  const streams = yield* (yield* Admin).listStreams(id)
  yield* answer({
    json: {
      instanceId: id,
      streams: streams.map(({ appendedAtMs, ...stream }) => ({ ...stream, appendedAt: isoTime(appendedAtMs) }))
    },
    text: streams.length === 0 ? [oneLine(`no streams of ${id}`)] : table(
      streams,
      [
        { title: "STREAM", value: ({ name }) => name },
        { title: "CHUNKS", align: "right", value: ({ nextOffset }) => String(nextOffset) },
        { title: "FIRST KEPT", align: "right", value: ({ firstOffset }) => String(firstOffset) },
        { title: "SIZE", align: "right", value: (stream) => bytes(stream.bytes) },
        { title: "LAST", value: ({ appendedAtMs }) => time(appendedAtMs) }
      ],
      style
    )
  })
})

const jsonOf = ({ appendedAtMs, chunk, offset, writer }: ProgressChunk) => ({
  offset,
  chunk: JSON.parse(chunk) as unknown,
  writer,
  appendedAt: isoTime(appendedAtMs)
})
