/**
 * Callers that wait for the end of an instance.
 *
 * A turn that this process stores hands the outcome to those who wait: no statement reads it again. How ends are found
 * that other processes store is in `watches`.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import * as watches from "../../waking/watches.ts"
import type { Looking } from "../../waking/watches.ts"
import type { End, Provider, Turn } from "../Provider.ts"
import type { ProviderDriver } from "../ProviderDriver.ts"
import type { ProviderError } from "../ProviderError.ts"
import { endOf } from "../shared/endOf.ts"
import type { Changes } from "./changes.ts"
import * as check from "./check.ts"

export interface Ends extends Pick<Provider["Service"], "awaitEnd"> {
  /** This process has stored the start of an instance. */
  readonly started: (instanceId: string) => void
  /** This process has stored a turn. */
  readonly turnStored: (turn: Turn) => void
}

export const make = Effect.fnUntraced(function*(
  driver: Pick<ProviderDriver["Service"], "readEnds">,
  changes: Changes,
  options: Looking<ProviderError>
): Effect.fn.Return<Ends, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  /** Last starts of this process, monotonic milliseconds, of instances not known to have ended. */
  const starts = new Map<string, number>()

  const { learn, runsHere, wait } = yield* watches.make<End, ProviderError>(changes, {
    ...options,
    operation: "awaitEnd",
    read: (asked) =>
      Effect.map(driver.readEnds(asked.map(({ id }) => id)), (ended) => {
        const ends = new Map(ended.map((state) => [state.instanceId, endOf(state)]))
        return asked.map(({ id }) => ends.get(id))
      })
  })

  const startedLately = (instanceId: string) => {
    const startedMs = starts.get(instanceId)
    return startedMs === undefined || startedMs + watches.pauseAfterStartMs <= monotonicMs(clock)
      ? undefined
      : startedMs
  }

  return {
    awaitEnd: ({ instanceId, start, timeout }) => {
      const problem = check.text("instanceId", instanceId)
      return problem !== undefined
        ? check.refused("awaitEnd", problem)
        : wait({ id: instanceId, select: Option.some, timeout, start, startedMs: () => startedLately(instanceId) })
    },

    started: (instanceId) => {
      const nowMs = monotonicMs(clock)
      starts.set(instanceId, nowMs)
      for (const [oldest, startedMs] of starts) {
        if (starts.size <= maxStarts && startedMs + watches.pauseAfterStartMs > nowMs) break
        starts.delete(oldest)
      }
    },

    turnStored: ({ historyDelta, metadata }) => {
      const instanceId = historyDelta[0]?.instanceId
      if (instanceId === undefined) return
      const end = endOfTurn(historyDelta, metadata)
      if (end === undefined) return runsHere(instanceId)
      starts.delete(instanceId)
      learn(instanceId, "", end)
    }
  }
})

// internal

const endOfTurn = (history: Turn["historyDelta"], { output, status }: Turn["metadata"]): End | undefined => {
  if (status === "Completed") return { _tag: "Completed", output: output ?? "null" }
  const failed = status === "Failed" && history.findLast((event) => event._tag === "OrchestrationFailed")
  return failed ? { _tag: "Failed", details: failed.details } : undefined
}

/** Most starts to remember; within `pauseAfterStartMs` there are seldom as many. */
const maxStarts = 1_000
