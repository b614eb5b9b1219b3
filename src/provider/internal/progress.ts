/**
 * Callers that wait for a status or a value of an instance.
 *
 * A look says how far the history of the instance goes. A turn of this process that follows directly on it needs no
 * further look: what the turn stores is all that has happened. After any other turn with news the store is asked.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as watches from "../../waking/watches.ts"
import type { Looking } from "../../waking/watches.ts"
import type { Provider, Turn } from "../Provider.ts"
import type { InstanceProgress, ProviderDriver } from "../ProviderDriver.ts"
import type { ProviderError } from "../ProviderError.ts"
import { answer, unknown } from "../shared/progress.ts"
import type { Changes } from "./changes.ts"
import { isNews } from "./changes.ts"
import * as check from "./check.ts"
import { keyValueChange, lastCustomStatus } from "./encoding.ts"

export interface ProgressWaits extends Pick<Provider["Service"], "awaitProgress"> {
  /** This process has stored a turn. */
  readonly turnStored: (turn: Turn) => void
}

export const make = Effect.fnUntraced(function*(
  driver: Pick<ProviderDriver["Service"], "readProgress">,
  changes: Changes,
  options: Looking<ProviderError>
): Effect.fn.Return<ProgressWaits, never, Scope.Scope> {
  const { learn, of, wait } = yield* watches.make<State, ProviderError>(changes, {
    ...options,
    operation: "awaitProgress",
    read: (asked) =>
      Effect.map(
        driver.readProgress(asked.map(({ id, key, state }) => ({
          instanceId: id,
          key: key === "" ? null : key.slice(1),
          executionId: state?.executionId ?? 0,
          lastEventId: state?.lastEventId ?? 0
        }))),
        (found) => asked.map(({ state }, i) => found[i] ?? (state === undefined ? unknown : undefined))
      ),
    // Rust announces nothing but ends.
    announces: ({ isOfRust }) => !isOfRust
  })

  return {
    awaitProgress: ({ instanceId, key, timeout, until }) => {
      const problem = check.text("instanceId", instanceId) ?? check.text("key", key)
      if (problem !== undefined) return check.refused("awaitProgress", problem)
      const select = answer(until)
      return Effect.map(
        wait({ id: instanceId, key: key === undefined ? "" : `/${key}`, select, timeout }),
        Option.getOrElse(() => timedOut)
      )
    },

    turnStored: (turn) => {
      const instanceId = turn.historyDelta[0]?.instanceId
      if (instanceId === undefined) return
      for (const watch of of(instanceId)) {
        const next = watch.state && following(watch.state, watch.key, turn)
        if (next !== undefined) learn(instanceId, watch.key, next)
        else if (isNews(turn)) watch.changed()
      }
    }
  }
})

// internal

interface State extends InstanceProgress {
  /** Its execution has continued as new: the next turn begins the next one. */
  readonly isContinued?: boolean
}

const timedOut = { _tag: "TimedOut" } as const

/** The state after a turn that follows directly on it; undefined: it does not. */
const following = (state: State, key: string, turn: Turn): State | undefined => {
  const { executionId, historyDelta, metadata } = turn
  const firstEventId = historyDelta[0]?.eventId
  const follows = state.isContinued === true
    ? executionId === state.executionId + 1 && firstEventId === 1
    : executionId === state.executionId && firstEventId === state.lastEventId + 1
  if (!follows) return undefined
  const status = lastCustomStatus(historyDelta)
  return {
    executionId,
    lastEventId: historyDelta.at(-1)!.eventId,
    customStatus: status === null ? state.customStatus : status.value,
    customStatusVersion: state.customStatusVersion + (status === null ? 0 : 1),
    value: historyDelta.flatMap(keyValueChange).reduce((value, change) => {
      if (change.action === "clear_all") return null
      if (`/${change.key}` !== key) return value
      return change.action === "set" ? change.value : null
    }, state.value),
    hasEnded: metadata.status === "Completed" || metadata.status === "Failed",
    isOfRust: false,
    isContinued: metadata.status === "ContinuedAsNew"
  }
}
