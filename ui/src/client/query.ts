/** Reads and actions as hooks. */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { useCallback, useEffect, useRef, useState } from "preact/hooks"
import { codeOf, problemOf } from "./client.ts"
import { isVisible } from "./signal.ts"

export interface Query<A> {
  /** The newest answer; null before the first one. It stays while another one is on its way. */
  readonly data: A | null
  readonly problem: string | null
  /** The tag of the reason, if the store refused. */
  readonly code: string | null
  readonly isLoading: boolean
  readonly reload: () => void
}

interface State<A> {
  readonly data: A | null
  readonly problem: string | null
  readonly code: string | null
  readonly isLoading: boolean
}

/**
 * Runs `read` now, whenever `deps` change and every `everyMs` while the tab is visible. An answer to earlier `deps` is
 * dropped.
 */
export const useQuery = <A, E>(
  read: () => Effect.Effect<A, E>,
  deps: ReadonlyArray<unknown>,
  options: {
    readonly everyMs?: number | null
    /** How long `deps` must stay the same before it reads again, where someone types them. */
    readonly delayMs?: number
  } = {}
): Query<A> => {
  const [state, setState] = useState<State<A>>({ data: null, problem: null, code: null, isLoading: true })
  const [round, setRound] = useState(0)
  const latest = useRef(read)
  latest.current = read
  const everyMs = options.everyMs ?? null
  const isFirst = useRef(true)
  // A reload does not interrupt a read: where changes come fast, none would be answered.
  const running = useRef({ isRunning: false, again: false })

  useEffect(() => {
    setState((before) => ({ ...before, isLoading: true }))
    const read = Effect.suspend(() => latest.current())
    const fiber = Effect.runFork(isFirst.current ? read : Effect.delay(read, options.delayMs ?? 0))
    isFirst.current = false
    running.current = { isRunning: true, again: false }
    fiber.addObserver((exit) => {
      if (Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause)) return
      const { again } = running.current
      running.current = { isRunning: false, again: false }
      if (again) setRound((n) => n + 1)
      if (Exit.isSuccess(exit)) setState({ data: exit.value, problem: null, code: null, isLoading: false })
      else {
        const error = Cause.squash(exit.cause)
        const problem = problemOf(error)
        setState((before) => ({ data: before.data, problem, code: codeOf(error), isLoading: false }))
      }
    })
    return () => void Effect.runFork(Fiber.interrupt(fiber))
  }, [...deps, round])

  const reload = useCallback(() => {
    if (running.current.isRunning) running.current.again = true
    else setRound((n) => n + 1)
  }, [])
  useEffect(() => {
    if (everyMs === null) return
    const timer = setInterval(() => {
      if (isVisible.get() && !running.current.isRunning) reload()
    }, everyMs)
    return () => clearInterval(timer)
  }, [everyMs])

  return { ...state, reload }
}

/** Calls `run` at most once in `ms`, and once more after the last call. */
export const useThrottled = (run: () => void, ms: number): () => void => {
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null)
  const latest = useRef(run)
  latest.current = run
  useEffect(() => () => {
    if (timer.current !== null) clearTimeout(timer.current)
  }, [])
  return useCallback(() => {
    timer.current ??= setTimeout(() => {
      timer.current = null
      latest.current()
    }, ms)
  }, [ms])
}

export interface Action {
  readonly isRunning: boolean
  readonly problem: string | null
  readonly run: <A, E>(effect: Effect.Effect<A, E>, then: (value: A) => void) => void
}

/** Runs one effect at a time, and keeps why the last one failed. An action that was begun is not interrupted. */
export const useAction = (): Action => {
  const [state, setState] = useState<{ isRunning: boolean; problem: string | null }>({
    isRunning: false,
    problem: null
  })
  const run = useCallback(<A, E>(effect: Effect.Effect<A, E>, then: (value: A) => void) => {
    setState({ isRunning: true, problem: null })
    Effect.runFork(effect).addObserver((exit) => {
      if (Exit.isSuccess(exit)) {
        setState({ isRunning: false, problem: null })
        then(exit.value)
      } else setState({ isRunning: false, problem: problemOf(Cause.squash(exit.cause)) })
    })
  }, [])
  return { ...state, run }
}
