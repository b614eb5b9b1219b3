/**
 * Streams of chunks: appends of activities, and readers.
 *
 * Appends of one process at the same time share a statement, and so do the pages of its readers. A reader asks for a
 * page, which says where the stream is at the same moment. If the page has nothing new, the reader waits as others wait
 * for the status of an instance: what this process appends reaches it at once, what others append by hints. Those have
 * the fingerprint of the instance's streams, so that callers who wait for the instance itself do not look at each
 * chunk.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import * as watches from "../../waking/watches.ts"
import type { Looking } from "../../waking/watches.ts"
import type { Provider, Turn } from "../Provider.ts"
import type {
  ChunksAppend,
  ChunksAppended,
  ChunksPage,
  ProviderDriver,
  ReadChunks,
  StreamPosition
} from "../ProviderDriver.ts"
import type { ProviderError } from "../ProviderError.ts"
import { isNews as isNewsOf, pageBytes } from "../shared/readStream.ts"
import { shared } from "../shared/statement.ts"
import type { Sharing } from "../shared/statement.ts"
import type { Changes } from "./changes.ts"
import * as check from "./check.ts"
import { checked } from "./check.ts"

type Service = Provider["Service"]

export interface Streams extends Pick<Service, "appendChunks" | "readStream" | "resumeChunks"> {
  /** This process has stored a turn. */
  readonly turnStored: (turn: Turn) => void
}

export const make = Effect.fnUntraced(function*(
  driver: Pick<ProviderDriver["Service"], "appendChunks" | "readChunks" | "resumeChunks">,
  changes: Changes,
  looking: Looking<ProviderError>,
  options: Sharing
): Effect.fn.Return<Streams, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const sendAppend = yield* shared<ChunksAppend, ChunksAppended>("appendChunks", driver.appendChunks, {
    ...options,
    sizeOf: ({ chunks }) => chunks.reduce((size, chunk) => size + chunk.length, 0)
  })
  const sendRead = yield* shared<ReadChunks, ChunksPage>("readChunks", driver.readChunks, {
    ...options,
    maxBatch: Math.min(options.maxBatch, pagesAtOnce)
  })

  const { learn, of, wait } = yield* watches.make<StreamPosition, ProviderError>({
    ...changes,
    watch: (instanceId, watcher) => {
      const releases = [instanceId, streamsOf(instanceId)].map((id) => changes.watch(id, watcher))
      return () => releases.forEach((release) => release())
    }
  }, {
    ...looking,
    operation: "readStream",
    read: (asked) =>
      driver.readChunks(asked.map(({ id, key }) => ({ instanceId: id, stream: key, from: null, maxBytes: 0 })))
  })

  const changed = (instanceId: string) => {
    for (const watch of of(instanceId)) watch.changed()
  }

  return {
    appendChunks: (append) =>
      checked("appendChunks", [
        check.text("lockToken", append.lockToken),
        check.id("instanceId", append.instanceId),
        check.id("writer", append.writer),
        check.whole("number", append.number, 1),
        check.chunk(append)
      ], () =>
        Effect.tap(sendAppend(append), (appended) =>
          Effect.sync(() => {
            if (appended !== "Done") return
            changed(append.instanceId)
            changes.announce(streamsOf(append.instanceId))
          }))),

    resumeChunks: (options) =>
      checked("resumeChunks", [
        check.text("instanceId", options.instanceId),
        check.text("stream", options.stream),
        check.text("call", options.call)
      ], () => driver.resumeChunks(options)),

    readStream: ({ from, instanceId, stream, streamId, waits }) =>
      checked("readStream", [
        check.text("instanceId", instanceId),
        check.text("stream", stream),
        check.whole("from", from ?? undefined)
      ], () => {
        const read = Effect.suspend(() => sendRead({ instanceId, stream, from, maxBytes: pageBytes }))
        if (!waits) return read
        const isNews = (position: StreamPosition) => isNewsOf(position, { from, streamId })
        let page: ChunksPage | undefined
        const next = wait({
          id: instanceId,
          key: stream,
          select: (position) => isNews(position) ? Option.some(position) : Option.none(),
          timeout: undefined,
          start: Effect.tap(read, (found) =>
            Effect.sync(() => {
              page = found
              learn(instanceId, stream, found)
            })),
          // The page says what a first look would say.
          startedMs: () => monotonicMs(clock)
        })
        return Effect.suspend(() => {
          page = undefined
          return next
        }).pipe(
          Effect.flatMap(() => page !== undefined && isNews(page) ? Effect.succeed(page) : read),
          Effect.repeat({ until: isNews })
        )
      }),

    turnStored: ({ chunks, historyDelta, metadata: { status } }) => {
      const instanceId = historyDelta[0]?.instanceId
      if (instanceId === undefined) return
      if (chunks !== undefined) changes.announce(streamsOf(instanceId))
      if (chunks !== undefined || status === "Completed" || status === "Failed") changed(instanceId)
    }
  }
})

// internal

/** Stands for the streams of an instance in hints. No id of an instance begins like it: a collision costs a look. */
const streamsOf = (instanceId: string) => `streams of ${instanceId}`

/** Most pages in one statement. */
const pagesAtOnce = 16
