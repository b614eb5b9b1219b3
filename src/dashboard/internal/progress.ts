/**
 * Streams of an instance, as the dashboard shows them.
 */
import * as Effect from "effect/Effect"
import { startsOver } from "../../ProgressStream.ts"
import { Admin } from "../../provider/Admin.ts"
import type * as Api from "../Api.ts"

export const list = (instanceId: string) =>
  Effect.map(
    Effect.flatMap(Admin, (admin) => admin.listStreams(instanceId)),
    (streams): ReadonlyArray<typeof Api.ProgressStream.Type> =>
      streams.map(({ appendedAtMs, bytes, firstOffset, name, nextOffset }) => ({
        name,
        firstOffset,
        nextOffset,
        bytes,
        appendedAtMs
      }))
  )

/** Chunks from an offset on; without one, the newest. */
export const read = Effect.fnUntraced(function*(
  { from, id, stream }: { readonly id: string; readonly stream: string; readonly from?: number | undefined },
  seesPayloads: boolean
) {
  const page = yield* (yield* Admin).readChunks(id, stream, from === undefined ? { last: newest } : { from })
  const shown: typeof Api.ChunkPage.Type = {
    chunks: page.chunks.map(({ appendedAtMs, chunk, offset, writer }) => ({
      offset,
      appendedAtMs,
      executionId: writer.executionId,
      event: writer._tag === "Activity" ? writer.callId : null,
      startsOver: startsOver({ writer }),
      chunk: seesPayloads ? chunk : null
    })),
    firstOffset: page.firstOffset,
    nextOffset: page.nextOffset,
    hasEnded: page.hasEnded
  }
  return shown
})

// internal

const newest = 500
