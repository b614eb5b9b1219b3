/**
 * How the handlers of activities append to streams: in order, once, and only while their activity is theirs.
 *
 * Appends of one delivery to one stream are sent one after another, each chunk with a number. While the store does not
 * answer, an append is repeated; the numbers show which chunks are stored already. A delivery that has lost its
 * activity is interrupted, as it would be by the next renewal of its lock.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"
import * as Semaphore from "effect/Semaphore"
import * as chunkWriter from "../model/shared/chunkWriter.ts"
import { ours } from "../model/shared/logging.ts"
import type { Provider } from "../provider/Provider.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import type { AppendedChunk, ChunkPort } from "../replay/context.ts"
import { Call, held } from "./activityCall.ts"
import { lose } from "./heldActivities.ts"
import type { Held, Writing } from "./heldActivities.ts"

/** Also reads what earlier deliveries have appended. */
export interface ActivityStreams extends ChunkPort {
  readonly resume: (stream: string) => Effect.Effect<ReadonlyArray<string>, never, Call>
}

export const ActivityStreams = Context.Reference<ActivityStreams>("duroxide-prisma/ActivityStreams", {
  defaultValue: () => {
    throw new Error("a stream is resumed outside an activity that a runtime runs")
  }
})

export const make = (provider: Pick<Provider["Service"], "appendChunks" | "resumeChunks">): ActivityStreams => {
  const settle = (delivery: Held, writing: Writing): Effect.Effect<void> =>
    Effect.suspend(() => {
      const { isRepeat, next, unsettled, writer } = writing
      if (unsettled.length === 0) return Effect.void
      const set = setOf(unsettled)
      const { keepBytes, keepChunks, stream } = set[0]!
      // Should this fiber be interrupted, the statement may be sent.
      writing.isRepeat = true
      return Effect.matchEffect(
        provider.appendChunks({
          lockToken: delivery.lockToken,
          instanceId: delivery.item.instance,
          stream,
          writer,
          number: next,
          isRepeat,
          chunks: set.map(({ chunk }) => chunk),
          keepChunks,
          keepBytes
        }),
        {
          onSuccess: (appended) => {
            if (appended === "LockLost") {
              lose(delivery)
              return Effect.interrupt
            }
            writing.isRepeat = appended === "Locked" && isRepeat
            if (appended === "Locked") return Effect.delay(settle(delivery, writing), lockedPauseMs)
            writing.next += set.length
            writing.unsettled = unsettled.slice(set.length)
            return settle(delivery, writing)
          },
          onFailure: (error) => again(error, settle(delivery, writing))
        }
      )
    })

  const resumed = (delivery: Held, writing: Writing, stream: string): Effect.Effect<ReadonlyArray<string>> => {
    const { executionId, firstTryId, id, instance: instanceId } = delivery.item
    const call = chunkWriter.callOf(executionId, firstTryId ?? id)
    return Effect.matchEffect(provider.resumeChunks({ instanceId, stream, call }), {
      onSuccess: ({ chunks, count }) => {
        writing.next = count + 1
        return Effect.succeed(chunks)
      },
      onFailure: (error) => again(error, Effect.suspend(() => resumed(delivery, writing, stream)))
    })
  }

  return {
    append: (chunks) =>
      Effect.gen(function*() {
        if (chunks.length === 0) return
        const delivery = yield* delivered
        const writing = yield* writingOf(delivery, chunks[0]!.stream)
        yield* writing.turn.withPermit(Effect.suspend(() => {
          writing.unsettled.push(...chunks)
          return settle(delivery, writing)
        }))
      }),
    resume: (stream) =>
      Effect.gen(function*() {
        const delivery = yield* delivered
        const writing = yield* writingOf(delivery, stream)
        return yield* writing.turn.withPermit(
          Effect.andThen(settle(delivery, writing), resumed(delivery, writing, stream))
        )
      })
  }
}

// internal

/** The delivery whose handler runs. The type of the port does not name its call. */
const delivered = Effect.flatMap(Effect.serviceOption(Call), (call) => {
  const delivery = call._tag === "Some" ? call.value[held] : undefined
  return delivery === undefined
    ? Effect.die(new Error("a stream is written to in an activity that no runtime runs"))
    : Effect.succeed(delivery)
})

const writingOf = (delivery: Held, stream: string): Effect.Effect<Writing> =>
  Effect.map(Random.nextIntBetween(0, 36 ** 6), (random) => {
    const known = delivery.writings?.get(stream)
    if (known !== undefined) return known
    const { executionId, firstTryId, id, tryNumber = 1 } = delivery.item
    const call = { executionId, callId: firstTryId ?? id, tryNumber }
    const writing: Writing = {
      turn: Semaphore.makeUnsafe(1),
      writer: chunkWriter.writerOf(call, delivery.attemptCount, random.toString(36).padStart(6, "0")),
      next: 1,
      unsettled: [],
      isRepeat: false
    }
    delivery.writings = (delivery.writings ?? new Map<string, Writing>()).set(stream, writing)
    return writing
  })

/** The first chunks, as many as one statement takes well. */
const setOf = (chunks: ReadonlyArray<AppendedChunk>): ReadonlyArray<AppendedChunk> => {
  let size = 0
  const end = chunks.findIndex(({ chunk }, index) => index === mostChunks || (size += chunk.length) > mostCharacters)
  return end < 0 ? chunks : chunks.slice(0, Math.max(1, end))
}

const mostChunks = 1_000

const mostCharacters = 512 * 1024

/** What can succeed later is repeated, as long as the activity is this delivery's. */
const again = <A>(error: ProviderError, call: Effect.Effect<A>): Effect.Effect<A> =>
  error.isRetryable
    ? Effect.andThen(
      Effect.logDebug("Worker dispatcher: chunks of a stream not stored yet").pipe(
        ours({ operation: error.operation, error_type: error.reason._tag, error: error.message })
      ),
      Effect.delay(call, repeatPauseMs)
    )
    : Effect.die(error)

const lockedPauseMs = 10

const repeatPauseMs = 200
