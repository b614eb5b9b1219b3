/** The events of an execution: loaded in pages, continued after the last one when the instance has changed. */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { useCallback, useEffect, useRef, useState } from "preact/hooks"
import { api, problemOf } from "../../client/client.ts"
import type { HistoryEvent } from "../../client/models.ts"

export interface Loaded {
  readonly executionId: number
  readonly events: ReadonlyArray<HistoryEvent>
  readonly total: number
}

export interface HistoryQuery {
  readonly loaded: Loaded | null
  readonly problem: string | null
  readonly isLoading: boolean
  readonly refresh: () => void
  /** Null if all are loaded, or are about to be. */
  readonly loadMore: (() => void) | null
}

const pageSize = 1000
/** Beyond, more are loaded only on demand: a tab should not take hundreds of megabytes unasked. */
const loadedByItself = 20_000

/** An answer has no name of its own: it gets that of what it answers, so that both are found by it. */
const named = (
  before: ReadonlyArray<HistoryEvent>,
  events: ReadonlyArray<HistoryEvent>
): ReadonlyArray<HistoryEvent> => {
  const byId = new Map<number, HistoryEvent>()
  for (const event of before) byId.set(event.eventId, event)
  return events.map((event) => {
    const request = event.answers === null ? undefined : byId.get(event.answers)
    const whole = event.name === null && request !== undefined
      ? {
        ...event,
        name: request.name,
        tag: event.tag ?? request.tag,
        instanceId: event.instanceId ?? request.instanceId
      }
      : event
    byId.set(event.eventId, whole)
    return whole
  })
}

export const useHistory = (id: string, execution: number | undefined): HistoryQuery => {
  const [loaded, setLoaded] = useState<Loaded | null>(null)
  const [problem, setProblem] = useState<string | null>(null)
  const [isLoading, setLoading] = useState(true)
  const [round, setRound] = useState(0)
  const [most, setMost] = useState(loadedByItself)
  const held = useRef<Loaded | null>(null)
  const running = useRef({ isRunning: false, again: false })

  useEffect(() => {
    held.current = null
    setLoaded(null)
    setMost(loadedByItself)
  }, [id, execution])

  useEffect(() => {
    const page = (after: number) =>
      api.read.history({
        query: {
          id,
          limit: pageSize,
          ...(after > 0 ? { after } : {}),
          ...(execution === undefined ? {} : { execution })
        }
      })
    const load = Effect.gen(function*() {
      while (true) {
        const before = held.current
        const last = before?.events.at(-1)
        // The last event is read once more: a retry may have replaced it, and then all is read again.
        const next = yield* page(last === undefined ? 0 : last.eventId - 1)
        const [first, ...rest] = next.events
        const continues = before !== null && last !== undefined && before.executionId === next.executionId &&
          before.total <= next.total && first?.eventId === last.eventId && first.atMs === last.atMs &&
          first.type === last.type
        if (before !== null && last !== undefined && !continues) {
          held.current = null
          continue
        }
        const events = continues ? [...before.events, ...named(before.events, rest)] : named([], next.events)
        held.current = { executionId: next.executionId, events, total: next.total }
        setLoaded(held.current)
        const isStuck = events.length === (before?.events.length ?? 0)
        if (isStuck || events.length >= next.total || events.length >= most) return
      }
    })
    setLoading(true)
    running.current = { isRunning: true, again: false }
    const fiber = Effect.runFork(load)
    fiber.addObserver((exit) => {
      if (Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause)) return
      const { again } = running.current
      running.current = { isRunning: false, again: false }
      if (again) setRound((n) => n + 1)
      if (Exit.isSuccess(exit)) setProblem(null)
      else setProblem(problemOf(Cause.squash(exit.cause)))
      setLoading(false)
    })
    return () => void Effect.runFork(Fiber.interrupt(fiber))
  }, [id, execution, round, most])

  const refresh = useCallback(() => {
    if (running.current.isRunning) running.current.again = true
    else setRound((n) => n + 1)
  }, [])
  const isCut = !isLoading && loaded !== null && loaded.events.length < loaded.total
  return {
    loaded,
    problem,
    isLoading,
    refresh,
    loadMore: isCut ? () => setMost(loaded.events.length + loadedByItself) : null
  }
}
