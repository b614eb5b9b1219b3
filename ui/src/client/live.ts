/** Streams of the server: they are opened again after a failure, and closed while no one can see the tab. */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Stream from "effect/Stream"
import { useEffect, useRef, useState } from "preact/hooks"
import { problemOf, signIn } from "./client.ts"
import { isVisible, useSignal } from "./signal.ts"

export interface Live<A> {
  readonly data: A | null
  /** Why nothing arrives at the moment; null while connected. */
  readonly problem: string | null
}

const firstPauseMs = 1000
const longestPauseMs = 30_000

export const useLive = <A, E, E2>(
  open: () => Effect.Effect<Stream.Stream<A, E>, E2>,
  deps: ReadonlyArray<unknown>,
  onItem?: (item: A) => void,
  /** Whenever it is connected: what happened before is not sent again. */
  onOpen?: () => void
): Live<A> => {
  const [data, setData] = useState<A | null>(null)
  const [problem, setProblem] = useState<string | null>("connecting")
  const visible = useSignal(isVisible)
  const signedOut = useSignal(signIn) !== null
  const latest = useRef({ open, onItem, onOpen })
  latest.current = { open, onItem, onOpen }

  useEffect(() => {
    if (!visible || signedOut) return
    let pauseMs = firstPauseMs
    const take = (item: A) =>
      Effect.sync(() => {
        pauseMs = firstPauseMs
        setData(item)
        latest.current.onItem?.(item)
      })
    const once = Effect.suspend(() => latest.current.open()).pipe(
      Effect.tap(() =>
        Effect.sync(() => {
          setProblem(null)
          latest.current.onOpen?.()
        })
      ),
      Effect.flatMap((stream) => Stream.runForEach(stream, take)),
      Effect.exit,
      Effect.flatMap((exit) => {
        // The server ends streams after some minutes, to ask again who looks.
        if (Exit.isSuccess(exit) && pauseMs === firstPauseMs) {
          pauseMs *= 2
          return Effect.void
        }
        const why = Exit.isSuccess(exit) ? "The server closed the stream." : problemOf(Cause.squash(exit.cause))
        const waitMs = pauseMs
        setProblem(`${why} Trying again in ${Math.round(waitMs / 1000)} s.`)
        pauseMs = Math.min(pauseMs * 2, longestPauseMs)
        return Effect.sleep(waitMs)
      })
    )
    const fiber = Effect.runFork(Effect.forever(once))
    return () => void Effect.runFork(Fiber.interrupt(fiber))
  }, [visible, signedOut, ...deps])

  return { data, problem }
}
