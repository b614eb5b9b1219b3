/** The chunks of a stream, from an offset or of its end, and those that are appended meanwhile. */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { useEffect, useRef, useState } from "preact/hooks"
import { api, problemOf } from "../../client/client.ts"
import type { Chunk, ProgressStream } from "../../client/models.ts"
import { signal } from "../../client/signal.ts"

export interface Tail {
  readonly chunks: ReadonlyArray<Chunk>
  /** Whether the first ones were left out, because there are too many. */
  readonly isCut: boolean
  readonly hasEnded: boolean
  readonly problem: string | null
}

const empty: Tail = { chunks: [], isCut: false, hasEnded: false, problem: null }

const mostChunks = 20_000

/** `stream` says how far it is; only then is more read. */
export const useTail = (id: string, stream: ProgressStream, from: number | undefined): Tail => {
  const [tail, setTail] = useState(empty)
  const { name, nextOffset } = stream
  const end = useRef(signal(nextOffset))
  useEffect(() => end.current.set(nextOffset), [nextOffset])

  useEffect(() => {
    setTail(empty)
    const isMore = (next: number) =>
      Effect.callback<void>((resume) => {
        if (end.current.get() > next) return resume(Effect.void)
        const stop = end.current.follow((value) => {
          if (value > next) resume(Effect.void)
        })
        return Effect.sync(stop)
      })
    const read = Effect.gen(function*() {
      let next = from
      while (true) {
        const page = yield* api.read.chunks({
          query: { id, stream: name, ...(next === undefined ? {} : { from: next }) }
        })
        setTail(({ chunks: before, isCut }) => {
          const chunks = page.chunks.length === 0 ? before : [...before, ...page.chunks]
          return {
            chunks: chunks.length > mostChunks ? chunks.slice(-mostChunks) : chunks,
            isCut: isCut || chunks.length > mostChunks,
            hasEnded: page.hasEnded && page.nextOffset <= (chunks.at(-1)?.offset ?? -1) + 1,
            problem: null
          }
        })
        // What is no longer kept is passed over.
        next = Math.max((page.chunks.at(-1)?.offset ?? (next ?? 0) - 1) + 1, page.firstOffset)
        yield* isMore(next)
      }
    })
    const fiber = Effect.runFork(Effect.forever(
      Effect.catchCause(read, (cause) => {
        setTail((before) => ({ ...before, chunks: [], problem: problemOf(Cause.squash(cause)) }))
        return Effect.sleep(pauseMs)
      })
    ))
    return () => void Effect.runFork(Fiber.interrupt(fiber))
  }, [id, name, from])

  return tail
}

const pauseMs = 5000
