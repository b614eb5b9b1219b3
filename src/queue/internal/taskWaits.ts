/**
 * Callers that wait for the ends of tasks.
 *
 * Each look asks for all tasks that have news, in one statement; it also marks them as awaited, so that their ends are
 * announced. Without news there is a look at all of them each 30 seconds, or each second while no signals arrive.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import type * as Scope from "effect/Scope"
import { InBackground } from "../../model/internal/inBackground.ts"
import { monotonicMs } from "../../model/internal/monotonic.ts"
import { shared } from "../../provider/internal/statement.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { QueueSignals, Topic } from "./signals.ts"
import type { EndedTask, TaskStore } from "./taskStore.ts"

/** Waits for the end of a task; for one that does not exist, the status is `Missing`. Its first look may fail. */
export type Wait = (taskId: string) => Effect.Effect<EndedTask, ProviderError>

export const make = Effect.fnUntraced(function*(
  store: Pick<TaskStore, "await">
): Effect.fn.Return<Wait, never, QueueSignals | Scope.Scope> {
  const signals = yield* QueueSignals
  const clock = yield* Clock.Clock
  /** Each opens when its task may have ended. */
  const waiting = new Set<Latch.Latch>()
  const begun = Latch.makeUnsafe()

  const look = yield* shared<string, EndedTask | undefined>(
    "awaitTasks",
    (ids) =>
      Effect.map(store.await([...new Set(ids)]), (rows) => {
        const ends = new Map(rows.map((row) => [row.out_id, row]))
        return ids.map((id) => ends.get(id))
      }),
    { lanes: 2, maxBatch: 1000, patience: Duration.seconds(30), repeats: true }
  )

  // One timer for all.
  let lookedAllMs = monotonicMs(clock)
  yield* Effect.forever(Effect.suspend(() => {
    if (waiting.size === 0) {
      begun.closeUnsafe()
      return Effect.andThen(begun.await, Effect.sync(() => (lookedAllMs = monotonicMs(clock))))
    }
    const untilMs = lookedAllMs + (signals.isConnected() ? connectedMs : alonePollMs) - monotonicMs(clock)
    // In short steps: the connection may be lost meanwhile.
    if (untilMs > 0) return Effect.sleep(Math.min(untilMs, alonePollMs))
    lookedAllMs = monotonicMs(clock)
    for (const latch of waiting) latch.openUnsafe()
    return Effect.yieldNow
  })).pipe(Effect.provideService(InBackground, true), Effect.forkScoped)

  return (taskId) =>
    Effect.suspend(() => {
      const news = Latch.makeUnsafe(true)
      const open = () => {
        news.openUnsafe()
      }
      const subscribed = Effect.acquireRelease(
        Effect.sync(() => {
          waiting.add(news)
          begun.openUnsafe()
        }),
        () => Effect.sync(() => void waiting.delete(news))
      ).pipe(Effect.andThen(signals.subscribe(Topic.task(taskId), { received: open, connected: open })))
      let hasLooked = false
      const next = Effect.gen(function*() {
        yield* news.await
        news.closeUnsafe()
        const end = yield* Effect.catch(look(taskId), (error) =>
          hasLooked || error.reason._tag === "Contention" ? Effect.succeed(undefined) : Effect.fail(error))
        hasLooked = true
        return end
      })
      const end: Effect.Effect<EndedTask, ProviderError> = Effect.flatMap(
        next,
        (found) =>
          found === undefined ? end : Effect.succeed(found)
      )
      return Effect.scoped(Effect.andThen(subscribed, end))
    })
})

// internal

const connectedMs = 30_000

const alonePollMs = 1_000
