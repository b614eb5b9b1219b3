/**
 * Callers that wait for the ends of tasks.
 *
 * Each look asks for all tasks that have news, in one statement; it also marks them as awaited, so that their ends are
 * announced. Without news there is a look at all of them each 30 seconds, or each second while no hints arrive.
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Latch from "effect/Latch"
import * as Scope from "effect/Scope"
import { InBackground } from "../../model/shared/inBackground.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import { closed, isOfOneCall, retried, shared } from "../../provider/internal/statement.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { Topic, Topics } from "../../waking/topics.ts"
import type { EndedTask, TaskDriver } from "../TaskDriver.ts"

/** Waits for the end of a task; for one that does not exist, the status is `Missing`. Its first look may fail. */
export type Wait = (taskId: string) => Effect.Effect<EndedTask, ProviderError>

interface Waiter {
  readonly resume: (exit: Exit.Exit<EndedTask, ProviderError>) => void
  /** A look has found the task before its end. */
  hasLooked: boolean
}

export const make = Effect.fnUntraced(function*(
  store: Pick<TaskDriver["Service"], "await">
): Effect.fn.Return<Wait, never, Topics | Scope.Scope> {
  const topics = yield* Topics
  const clock = yield* Clock.Clock
  const scope = yield* Effect.scope
  /** By the id of the task, in lower case as the store has it. */
  const waiting = new Map<string, Set<Waiter>>()
  /** Tasks to look at. */
  const news = new Set<string>()
  const woken = Latch.makeUnsafe()
  let isClosed = false

  const hasNews = (taskId: string) => {
    if (!waiting.has(taskId)) return
    news.add(taskId)
    woken.openUnsafe()
  }

  const allHaveNews = () => {
    for (const taskId of waiting.keys()) news.add(taskId)
    woken.openUnsafe()
  }

  const leave = (taskId: string, waiter: Waiter) => {
    const waiters = waiting.get(taskId)
    waiters?.delete(waiter)
    if (waiters?.size === 0) waiting.delete(taskId)
  }

  const answer = (ids: ReadonlyArray<string>, ends: ReadonlyArray<EndedTask>) => {
    for (const end of ends) {
      const waiters = waiting.get(end.id)
      waiting.delete(end.id)
      for (const { resume } of waiters ?? []) resume(Exit.succeed(end))
    }
    for (const id of ids) for (const waiter of waiting.get(id) ?? []) waiter.hasLooked = true
  }

  /** Those that know of their task wait for the next look. */
  const fail = (ids: ReadonlyArray<string>, cause: Cause.Cause<ProviderError>) => {
    const error = cause.reasons[0]
    const isHeld = error?._tag === "Fail" && error.error.reason._tag === "Contention"
    for (const id of ids) {
      for (const waiter of waiting.get(id) ?? []) {
        if (waiter.hasLooked || isHeld) continue
        leave(id, waiter)
        waiter.resume(Exit.failCause(cause))
      }
    }
  }

  // A set that fails because of one task.
  const lookAlone = yield* shared(
    "awaitTasks",
    (ids: ReadonlyArray<string>) =>
      Effect.map(store.await([...new Set(ids)]), (ends) => ids.map((id) => ends.filter((end) => end.id === id))),
    { lanes: 2, maxBatch: 100, patience: Duration.seconds(30), repeats: true }
  )

  const look = (ids: ReadonlyArray<string>): Effect.Effect<void> =>
    Effect.matchCauseEffect(retried(store.await(ids), (error) => !isOfOneCall(error)), {
      onSuccess: (ends) => Effect.sync(() => answer(ids, ends)),
      onFailure: (cause) => {
        const reason = cause.reasons[0]
        if (reason?._tag !== "Fail" || !isOfOneCall(reason.error)) return Effect.sync(() => fail(ids, cause))
        return Effect.forEach(ids, (id) =>
          Effect.matchCause(lookAlone(id), {
            onSuccess: (ends) => answer([id], ends),
            onFailure: (cause) => fail([id], cause)
          }), { concurrency: "unbounded", discard: true })
      }
    })

  const lane = Effect.forever(Effect.suspend(() => {
    woken.closeUnsafe()
    // Calls of one tick share a look.
    if (news.size === 0) return Effect.andThen(woken.await, Effect.yieldNow)
    const ids: Array<string> = []
    for (const id of news) {
      if (ids.length === mostPerStatement) break
      news.delete(id)
      if (waiting.has(id)) ids.push(id)
    }
    return ids.length === 0 ? Effect.void : look(ids)
  })).pipe(Effect.provideService(InBackground, true))
  for (let i = 0; i < mostAtOnce; i++) yield* Effect.forkScoped(lane)

  // One timer for all.
  const begun = Latch.makeUnsafe()
  let lookedAllMs = monotonicMs(clock)
  yield* Effect.forever(Effect.suspend(() => {
    if (waiting.size === 0) {
      begun.closeUnsafe()
      return Effect.andThen(begun.await, Effect.sync(() => (lookedAllMs = monotonicMs(clock))))
    }
    const untilMs = lookedAllMs + (topics.isConnected() ? connectedMs : alonePollMs) - monotonicMs(clock)
    // In short steps: the connection may be lost meanwhile.
    if (untilMs > 0) return Effect.sleep(Math.min(untilMs, alonePollMs))
    lookedAllMs = monotonicMs(clock)
    allHaveNews()
    return Effect.yieldNow
  })).pipe(Effect.provideService(InBackground, true), Effect.forkScoped)

  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      isClosed = true
      const exit = Exit.fail(closed("awaitTasks"))
      for (const waiters of waiting.values()) for (const { resume } of waiters) resume(exit)
      waiting.clear()
    })
  )

  /** A process that only creates tasks does not listen. */
  let isSubscribed = false
  const subscribe = Effect.suspend(() => {
    if (isSubscribed) return Effect.void
    isSubscribed = true
    const subscriber = { received: (_: number, topic: Topic) => hasNews(Topic.taskId(topic)), connected: allHaveNews }
    return Scope.provide(Effect.uninterruptible(topics.subscribe(Topic.tasks, subscriber)), scope)
  })

  const wait = (taskId: string) =>
    Effect.callback<EndedTask, ProviderError>((resume) => {
      if (isClosed) return resume(Exit.fail(closed("awaitTasks")))
      const id = taskId.toLowerCase()
      const waiter: Waiter = { resume, hasLooked: false }
      const waiters = waiting.get(id)
      if (waiters === undefined) waiting.set(id, new Set([waiter]))
      else waiters.add(waiter)
      hasNews(id)
      begun.openUnsafe()
      return Effect.sync(() => leave(id, waiter))
    })

  return (taskId) => isSubscribed ? wait(taskId) : Effect.andThen(subscribe, wait(taskId))
})

// internal

const connectedMs = 30_000

const alonePollMs = 1_000

/** Looks under way at once. */
const mostAtOnce = 2

const mostPerStatement = 1000
