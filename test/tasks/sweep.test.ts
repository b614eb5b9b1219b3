/**
 * When a worker looks for attempts whose workers are gone.
 */
import { assert, describe, it } from "@effect/vitest"
import type { TaskDriver } from "duroxide-prisma/tasks"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/testing/TestClock"
import { ConnectionLost, ProviderError } from "../../src/provider/ProviderError.ts"
import * as sweeps from "../../src/tasks/internal/sweep.ts"
import { Topic, Topics } from "../../src/waking/Topics.ts"
import type { Subscriber } from "../../src/waking/Topics.ts"

const nothing: TaskDriver.Swept = {
  lost: 0,
  woken: 0,
  isFull: false,
  hasUnserved: false,
  nextMs: null,
  backlog: { pending: 0, running: 0, dead: 0, oldestAgeMs: 0 }
}

/**
 * A worker whose shortest lease is 10 seconds; `at` are the seconds of its sweeps, `asked` how many tasks each may
 * wake, and which of those that no worker has served; `cleanedAt` are the seconds of its statements that delete.
 */
const open = Effect.fnUntraced(function*(
  answer: () => TaskDriver.Swept | ProviderError,
  isConnected = true,
  isBusy = false,
  deleted: (cleaning: number) => number = () => 0
) {
  const begin = yield* Clock.currentTimeMillis
  const at: Array<number> = []
  const cleanedAt: Array<number> = []
  const asked: Array<readonly [wakeups: number, serving: TaskDriver.Serving | undefined]> = []
  const subscribers = new Map<Topic, Subscriber>()
  const topics = Topics.of({
    announce: () => Effect.void,
    subscribe: (topic, subscriber) => Effect.sync(() => void subscribers.set(topic, subscriber)),
    isConnected: () => isConnected
  })
  yield* sweeps.run({
    driver: {
      sweep: (_, wakeups, serving) =>
        Effect.flatMap(Clock.currentTimeMillis, (now) => {
          at.push((now - begin) / 1000)
          asked.push([wakeups, serving])
          const answered = answer()
          return answered instanceof ProviderError ? Effect.fail(answered) : Effect.succeed(answered)
        }),
      clean: () => Effect.map(Clock.currentTimeMillis, (now) => deleted(cleanedAt.push((now - begin) / 1000))),
      readBacklog: Effect.succeed(nothing.backlog)
    },
    shortestLease: Duration.seconds(10),
    keeping: { endedMs: 604_800_000, deadMs: 2_592_000_000 },
    isBusy: () => isBusy,
    inTouch: Effect.void,
    names: ["T"],
    queues: ["q"]
  }).pipe(Effect.provideService(Topics, topics))
  yield* TestClock.adjust(0)
  return { at, asked, cleanedAt, hint: (topic: Topic = Topic.outbox) => subscribers.get(topic)?.received(0, "o") }
})

describe("a worker looks for lost attempts", () => {
  it.effect("half a second after the end of the lease of a task that another process may have claimed", () =>
    Effect.scoped(Effect.gen(function*() {
      const { at, hint } = yield* open(() => nothing)
      yield* TestClock.adjust("20 seconds")
      assert.deepStrictEqual(at, [0])
      hint() // a task was created
      yield* TestClock.adjust("5 seconds")
      hint() // another one, which does not put it off
      yield* TestClock.adjust("20 seconds")
      assert.deepStrictEqual(at, [0, 30.5])
    })))

  it.effect("also when its wake-up was stored in a queue, without a row of the outbox", () =>
    Effect.scoped(Effect.gen(function*() {
      const { at, hint } = yield* open(() => nothing)
      yield* TestClock.adjust("20 seconds")
      hint(Topic.messages("another"))
      hint(Topic.messages("q"))
      yield* TestClock.adjust("11 seconds")
      assert.deepStrictEqual(at, [0, 30.5])
    })))

  it.effect("when the store says that the next one is due", () =>
    Effect.scoped(Effect.gen(function*() {
      let sweeps = 0
      const { at } = yield* open(() => ({ ...nothing, nextMs: ++sweeps === 1 ? 3_500 : null }))
      yield* TestClock.adjust("50 seconds")
      assert.deepStrictEqual(at, [0, 3.5])
    })))

  it.effect("once a minute without news, and once a lease while no hints arrive", () =>
    Effect.scoped(Effect.gen(function*() {
      const connected = yield* open(() => nothing)
      const alone = yield* open(() => nothing, false)
      yield* TestClock.adjust("61 seconds")
      assert.deepStrictEqual(connected.at, [0, 60])
      assert.deepStrictEqual(alone.at, [0, 10, 20, 30, 40, 50, 60])
    })))

  it.effect("and at its start wakes all tasks that no worker has served, however busy it is", () =>
    Effect.scoped(Effect.gen(function*() {
      const away = new ProviderError({ operation: "sweepTasks", reason: new ConnectionLost({ problem: "away" }) })
      let sweeps = 0
      const { asked } = yield* open(() => ++sweeps === 1 ? away : nothing, true, true)
      yield* TestClock.adjust("5 seconds")
      yield* TestClock.adjust("2 seconds")
      yield* TestClock.adjust("61 seconds")
      const serving = { names: ["T"], sinceMs: 0 }
      assert.deepStrictEqual(asked, [[1000, serving], [1000, serving], [100, undefined]])
    })))

  it.effect("and each second until it has reached all tasks that no worker has served", () =>
    Effect.scoped(Effect.gen(function*() {
      let sweeps = 0
      const { asked, at } = yield* open(() => ({ ...nothing, hasUnserved: ++sweeps < 3 }))
      yield* TestClock.adjust("70 seconds")
      assert.deepStrictEqual(at, [0, 1, 2, 62])
      // What others refuse meanwhile does not count.
      assert.deepStrictEqual(
        asked.map(([, serving]) => serving),
        [0, 1000, 2000].map((sinceMs): TaskDriver.Serving | undefined => ({ names: ["T"], sinceMs })).concat(undefined)
      )
    })))

  it.effect("after an outage, two seconds after something else was answered: holders renew their leases first", () =>
    Effect.scoped(Effect.gen(function*() {
      const away = new ProviderError({ operation: "sweepTasks", reason: new ConnectionLost({ problem: "away" }) })
      let sweeps = 0
      const { at } = yield* open(() => ++sweeps === 1 ? away : nothing)
      yield* TestClock.adjust("5 seconds")
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(at, [0, 7])
    })))
})

describe("a worker deletes ended tasks", () => {
  it.effect("with one statement soon after its start, not at once with others, and then each ten minutes", () =>
    Effect.scoped(Effect.gen(function*() {
      const workers = yield* Effect.forEach(Array.from({ length: 20 }), () => open(() => nothing))
      yield* TestClock.adjust("11 seconds")
      const first = workers.map(({ cleanedAt }) => cleanedAt)
      assert.isTrue(first.every((at) => at.length === 1 && at[0]! >= 1 && at[0]! <= 10), JSON.stringify(first))
      assert.isAbove(new Set(first.flat()).size, 10)
      yield* TestClock.adjust("588 seconds")
      assert.deepStrictEqual(workers.map(({ cleanedAt }) => cleanedAt.length), first.map(() => 1))
      yield* TestClock.adjust("12 seconds")
      assert.deepStrictEqual(workers.map(({ cleanedAt }) => cleanedAt.length), first.map(() => 2))
    })))

  it.effect("all that are left some seconds after a first statement that has not deleted all", () =>
    Effect.scoped(Effect.gen(function*() {
      const { cleanedAt } = yield* open(() => nothing, true, false, (cleaning) => cleaning < 4 ? 500 : 7)
      yield* TestClock.adjust("21 seconds")
      assert.strictEqual(cleanedAt.length, 4)
      assert.isAbove(cleanedAt[1]!, cleanedAt[0]!)
      assert.deepStrictEqual(cleanedAt.slice(1), [cleanedAt[1]!, cleanedAt[1]!, cleanedAt[1]!])
    })))
})
