/**
 * Streams of instances, for operators.
 */
import * as Effect from "effect/Effect"
import type { Admin } from "../Admin.ts"
import type { AdminDriver } from "../AdminDriver.ts"
import { pageBytes } from "../shared/readStream.ts"
import * as check from "./check.ts"
import { checked } from "./check.ts"

export const streams = (
  driver: Pick<AdminDriver["Service"], "listStreams" | "readChunks">
): Pick<Admin["Service"], "listStreams" | "readChunks"> => ({
  listStreams: (instanceId) =>
    checked("listStreams", [check.text("instanceId", instanceId)], () => driver.listStreams(instanceId)),

  readChunks: (instanceId, stream, { from, last } = {}) =>
    checked("readChunks", [
      check.text("instanceId", instanceId),
      check.text("stream", stream),
      check.whole("from", from),
      check.whole("last", last, 1)
    ], () => {
      const read = (from: number | null, maxBytes: number) =>
        Effect.map(driver.readChunks([{ instanceId, stream, from, maxBytes }]), ([page]) => page!)
      const page = last === undefined
        ? read(from ?? null, pageBytes)
        : Effect.flatMap(
          read(null, 0),
          ({ firstOffset, nextOffset }) => read(Math.max(firstOffset, nextOffset - last), pageBytes)
        )
      return Effect.map(
        page,
        ({ chunks, firstOffset, hasEnded, nextOffset }) => ({ chunks, firstOffset, nextOffset, hasEnded })
      )
    })
})
