/**
 * Waits for the progress of an instance whose status and values are sealed.
 */
import type * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import type { Progress, ProgressAnswer } from "../calls/reads.ts"
import type { Provider } from "../Provider.ts"
import type { ProviderError } from "../ProviderError.ts"
import type { Texts, Through } from "./sealing.ts"

type Awaiting = Pick<Provider["Service"], "awaitProgress">

export const openOption = (text: Option.Option<string>, open: Through) =>
  Option.match(text, { onNone: () => Effect.succeedNone, onSome: (text) => Effect.asSome(open(text)) })

/** `until` is asked of what is stored, opened; a wait continues from what it has seen. */
export const openingProgress =
  ({ awaitProgress }: Awaiting, seals: Pick<Texts, "open">, clock: Clock.Clock): Awaiting["awaitProgress"] =>
  <A>({ instanceId, key, timeout, until }: Parameters<typeof awaitProgress<A>>[0]) =>
    Effect.suspend(() => {
      const open = seals.open("awaitProgress", instanceId)
      const begunMs = monotonicMs(clock)
      const wait = (seen: Progress | undefined): Effect.Effect<ProgressAnswer<A>, ProviderError> => {
        const left = timeout === undefined || seen === undefined
          ? timeout
          : Duration.subtract(timeout, Duration.millis(monotonicMs(clock) - begunMs))
        return Effect.flatMap(
          awaitProgress<Progress>({
            instanceId,
            key,
            timeout: left,
            until: (progress) => seen !== undefined && isSame(progress, seen) ? Option.none() : Option.some(progress)
          }),
          (answer): Effect.Effect<ProgressAnswer<A>, ProviderError> => {
            if (answer._tag !== "Found") return Effect.succeed(answer)
            const { found } = answer
            return Effect.flatMap(
              Effect.all([openOption(found.status, open), openOption(found.value, open)]),
              ([status, value]) =>
                Option.match(until({ ...found, status, value }), {
                  onNone: () => wait(found),
                  onSome: (found) => Effect.succeed({ _tag: "Found", found })
                })
            )
          }
        )
      }
      return wait(undefined)
    })

// internal

const isSame = (a: Progress, b: Progress) =>
  a.statusVersion === b.statusVersion && Option.getOrNull(a.status) === Option.getOrNull(b.status) &&
  Option.getOrNull(a.value) === Option.getOrNull(b.value)
