/**
 * Callers that wait for the ends of tasks, in a table of watches. A look also marks its tasks as awaited, so that their
 * ends are announced.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import { InBackground } from "../../model/shared/inBackground.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { closed, isOfOneCall, retried, shared } from "../../provider/shared/statement.ts"
import { Topic, Topics } from "../../waking/Topics.ts"
import * as watches from "../../waking/watches.ts"
import type { Watcher } from "../../waking/watches.ts"
import type { EndedTask, TaskDriver } from "../TaskDriver.ts"

/** Waits for the end of a task; for one that does not exist, the status is `Missing`. Its first look may fail. */
export type Wait = (taskId: string) => Effect.Effect<EndedTask, ProviderError>

export interface Waits {
  readonly wait: Wait
  /**
   * Whether a caller of this process began to wait within the last second. A task created then is marked as awaited at
   * once. Otherwise the first look of its caller would lock the row to mark it, just when a worker claims it; the
   * worker would pass over it and have to come back.
   */
  readonly hasRecentWait: () => boolean
}

export const make = Effect.fnUntraced(function*(
  driver: Pick<TaskDriver["Service"], "await">
): Effect.fn.Return<Waits, never, Topics | Scope.Scope> {
  const topics = yield* Topics
  const clock = yield* Clock.Clock
  const scope = yield* Effect.scope
  /** By the id of the task, in lower case as the store has it. */
  const watchers = new Map<string, Watcher>()
  let announcedSinceMs = Number.POSITIVE_INFINITY
  let begunMs = Number.NEGATIVE_INFINITY

  const read = (ids: ReadonlyArray<string>) =>
    Effect.map(driver.await([...new Set(ids)]), (ended) => {
      const ends = new Map(ended.map((end) => [end.id, end]))
      return ids.map((id) => ends.get(id))
    })
  const readAlone = yield* shared("awaitTasks", read, { ...sharing, maxBatch: 100 })
  /** One task may be why a set failed: it must not hold up the others. */
  const readLater = (id: string): Effect.Effect<unknown> =>
    readAlone(id).pipe(
      Effect.tap((end) => Effect.sync(() => end && learn(id, "", end))),
      Effect.ignore,
      Effect.forkIn(scope)
    )

  const { learn, wait } = yield* watches.make<EndedTask, ProviderError>({
    watch: (taskId, watcher) => {
      watchers.set(taskId, watcher)
      return () => watchers.delete(taskId)
    },
    announcedSinceMs: () => announcedSinceMs
  }, {
    operation: "awaitTasks",
    fallbackPollMs,
    hintPauseMs: 0,
    closed,
    shared: (operation, look, maxBatch) => shared(operation, look, { ...sharing, maxBatch }),
    read: (asked) => read(asked.map(({ id }) => id)),
    // A caller that has seen the task keeps waiting, whatever a later look says.
    readAgain: (asked) => {
      const ids = asked.map(({ id }) => id)
      return Effect.catch(retried(read(ids), (error) => !isOfOneCall(error)), (error) =>
        Effect.as(
          isOfOneCall(error) ? Effect.forEach(ids, readLater, { discard: true }) : Effect.void,
          ids.map(() => undefined)
        ))
    }
  }).pipe(Effect.provideService(InBackground, true))

  const doubt = (sinceMs: number) => {
    announcedSinceMs = sinceMs
    for (const watcher of watchers.values()) watcher.doubted()
  }

  /** A process that only creates tasks does not listen. */
  let isSubscribed = false
  const subscribe = Effect.suspend(() => {
    if (isSubscribed) return Effect.void
    isSubscribed = true
    return Effect.uninterruptible(topics.subscribe(Topic.tasks, {
      received: (_, topic) => watchers.get(Topic.taskId(topic))?.changed(),
      connected: () => doubt(monotonicMs(clock)),
      disconnected: () => doubt(Number.POSITIVE_INFINITY)
    })).pipe(Scope.provide(scope))
  })

  const waitOnce = (id: string): Effect.Effect<EndedTask, ProviderError> =>
    Effect.catch(
      Effect.map(wait<EndedTask, never>({ id, select: Option.some, timeout: undefined }), Option.getOrThrow),
      // Another transaction holds the task. `Effect.retry` would cost each of thousands of callers a schedule.
      (error) => error.reason._tag === "Contention" ? waitOnce(id) : Effect.fail(error)
    )

  return {
    wait: (taskId) =>
      Effect.suspend(() => {
        begunMs = monotonicMs(clock)
        const ended = waitOnce(taskId.toLowerCase())
        return isSubscribed ? ended : Effect.andThen(subscribe, ended)
      }),
    hasRecentWait: () => monotonicMs(clock) - begunMs < 1_000
  }
})

// internal

/** Between two looks at a task whose end would be announced. */
const fallbackPollMs = 30_000

const sharing = { lanes: 2, patience: Duration.seconds(30), repeats: true }
