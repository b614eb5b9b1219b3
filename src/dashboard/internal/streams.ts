/**
 * Streams that many pages share: what they show is read once for all of them, and only while someone looks.
 */
import * as Effect from "effect/Effect"
import * as PubSub from "effect/PubSub"
import * as RcMap from "effect/RcMap"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { Unavailable } from "../Api.ts"

/** The newest value for all that look at `key`; a page that reads slowly is passed over, and never waited for. */
export type Shared<A> = (key: string) => Stream.Stream<A>

/** Runs `watch` for a key while streams of it are open, and a moment longer, so that a reload costs nothing. */
export const share = <A>(
  watch: (key: string, publish: (value: A) => Effect.Effect<void>) => Effect.Effect<never>
): Effect.Effect<Shared<A>, never, Scope.Scope> =>
  Effect.map(
    RcMap.make({
      lookup: (key: string) =>
        Effect.gen(function*() {
          const values = yield* PubSub.sliding<A>({ capacity: 1, replay: 1 })
          yield* Effect.forkScoped(watch(key, (value) => Effect.asVoid(PubSub.publish(values, value))))
          return values
        }),
      idleTimeToLive: "10 seconds"
    }),
    (all) => (key) => Stream.scoped(Stream.unwrap(Effect.map(RcMap.get(all, key), Stream.fromPubSub)))
  )

/** Shares one stream. */
export const shareOne = <A>(
  watch: (publish: (value: A) => Effect.Effect<void>) => Effect.Effect<never>
): Effect.Effect<Stream.Stream<A>, never, Scope.Scope> =>
  Effect.map(share<A>((_, publish) => watch(publish)), (shared) => shared(""))

const longestStream = "5 minutes"

/** Refuses more than so many open streams: each is a connection and a timer of this process. */
export const limited = (most: number) => {
  let open = 0
  const full = new Unavailable({
    message: `${most} live streams are open already. Close some pages, or raise maxStreams of Dashboard.layer`
  })
  /** Takes the place of the request, which lasts as long as the stream. */
  return <A>(stream: Stream.Stream<A>): Effect.Effect<Stream.Stream<A>, Unavailable, Scope.Scope> =>
    Effect.suspend(() => {
      if (open >= most) return Effect.fail(full)
      return Effect.as(
        Effect.acquireRelease(Effect.sync(() => void open++), () => Effect.sync(() => void open--)),
        // The page opens it again, and is asked again who it is.
        Stream.interruptWhen(stream, Effect.sleep(longestStream))
      )
    })
}
