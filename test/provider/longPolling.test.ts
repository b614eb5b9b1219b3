/**
 * Processes that wake each other, in virtual time: what wakes whom, and what each wait costs.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import {
  activity,
  attempts,
  ended,
  fetchActivity,
  fetchInstance,
  hub,
  lockTimeout,
  message,
  open,
  pair,
  pass,
  row,
  settle,
  storeOf,
  timed,
  waiting
} from "../utils/longPolling.ts"
import * as Starts from "../utils/starts.ts"

describe("Long polling: a fetch that waits", () => {
  it.effect("returns what was stored before the process began", () =>
    Effect.gen(function*() {
      const store = storeOf()
      yield* store.directly.enqueueForOrchestrator([row("a")])
      const provider = yield* open(store.driver, hub().connect("late"))
      const [found] = yield* ended(yield* waiting(1, fetchInstance(provider)))
      assert.strictEqual(found?.item.instanceId, "a")
    }))

  it.effect("waits as long as its caller says and sends nothing meanwhile, also at the end", () =>
    Effect.gen(function*() {
      const { store, worker } = yield* pair
      const [fetch] = yield* waiting(1, timed(fetchInstance(worker, Duration.seconds(2))))
      assert.lengthOf(store.looks(), 1)
      yield* pass("1999 millis")
      assert.isUndefined(fetch!.pollUnsafe())
      yield* pass(1)
      assert.deepStrictEqual(yield* Fiber.join(fetch!), [undefined, 2_000])
      const [next] = yield* waiting(1, fetchInstance(worker, Duration.seconds(2)))
      yield* pass("2 seconds")
      assert.isUndefined(yield* Fiber.join(next!))
      assert.lengthOf(store.looks(), 0)
    }))

  it.effect("waits no longer than maxWaitTime", () =>
    Effect.gen(function*() {
      const provider = yield* open(storeOf().driver, hub().connect("one"), { maxWaitTime: "3 seconds" })
      const [fetch] = yield* waiting(1, timed(fetchInstance(provider)))
      yield* pass("1 minute")
      assert.deepStrictEqual(yield* Fiber.join(fetch!), [undefined, 3_000])
    }))

  it.effect("does not wait with long polling off", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const provider = yield* open(store.driver, hub().connect("one"), { enabled: false })
      assert.isUndefined(yield* fetchInstance(provider))
      assert.isUndefined(yield* fetchActivity(provider))
      assert.deepStrictEqual(store.looks(), ["fetchOrchestrationItems", "fetchWorkItems"])
    }))

  it.effect("is woken by another process at once", () =>
    Effect.gen(function*() {
      const { sender, worker } = yield* pair
      const fetches = [
        ...(yield* waiting(1, timed(attempts(fetchInstance(worker))))),
        ...(yield* waiting(1, timed(attempts(fetchActivity(worker)))))
      ]
      yield* pass("10 seconds")
      yield* sender.startOrchestration(Starts.start("a"))
      yield* pass("1 second")
      yield* sender.enqueueForWorker(activity(2))
      yield* settle
      assert.deepStrictEqual(yield* ended(fetches), [[1, 10_000], [1, 11_000]])
    }))

  it.effect("is not woken by the other queue", () =>
    Effect.gen(function*() {
      const { sender, store, worker } = yield* pair
      const [fetch] = yield* waiting(1, timed(fetchActivity(worker, Duration.seconds(2))))
      store.looks()
      yield* sender.startOrchestration(Starts.start("a"))
      yield* pass("2 seconds")
      assert.deepStrictEqual(yield* Fiber.join(fetch!), [undefined, 2_000])
      assert.lengthOf(store.looks(), 0)
    }))

  it.effect("shares one look with all others, whatever is announced meanwhile", () =>
    Effect.gen(function*() {
      const { sender, store, worker } = yield* pair
      const fetches = yield* waiting(4, fetchActivity(worker))
      store.looks()
      yield* sender.enqueueForWorker(activity(2))
      yield* settle
      assert.lengthOf(yield* ended(fetches), 1)
      assert.lengthOf(store.looks(), 1)
    }))

  it.effect("gets work beside others that wait when there is enough", () =>
    Effect.gen(function*() {
      const { sender, worker } = yield* pair
      const fetches = yield* waiting(3, fetchActivity(worker))
      yield* Effect.forEach([2, 3, 4], (id) => sender.enqueueForWorker(activity(id)), { concurrency: "unbounded" })
      yield* pass(20)
      assert.deepStrictEqual(
        (yield* ended(fetches)).map((claimed) => claimed?.item.id).sort((one, other) => one! - other!),
        [2, 3, 4]
      )
    }))

  it.effect("finds what was announced while no caller waited", () =>
    Effect.gen(function*() {
      const { sender, store, worker } = yield* pair
      yield* sender.enqueueForWorker(activity(2))
      assert.strictEqual((yield* fetchActivity(worker))?.item.id, 2)
      yield* sender.enqueueForWorker(activity(3))
      yield* settle
      store.looks()
      assert.strictEqual((yield* fetchActivity(worker))?.item.id, 3)
      assert.lengthOf(store.looks(), 1)
    }))

  it.effect("looks when it has no time to wait", () =>
    Effect.gen(function*() {
      const { store, worker } = yield* pair
      yield* fetchInstance(worker, Duration.zero)
      yield* store.directly.enqueueForOrchestrator([row("a")])
      assert.strictEqual((yield* fetchInstance(worker, Duration.zero))?.item.instanceId, "a")
    }))
})

describe("Long polling: what it costs", () => {
  it.effect("nothing while nothing happens, but for one look in five minutes", () =>
    Effect.gen(function*() {
      const { store, worker } = yield* pair
      yield* waiting(4, fetchInstance(worker))
      yield* waiting(4, fetchActivity(worker))
      // Locks of processes that died before it began have run out.
      yield* pass("1 minute")
      store.statements()
      yield* pass("239 seconds")
      assert.deepStrictEqual(store.statements(), [])
      yield* pass("1 hour")
      const statements = store.statements()
      const counts = Object.fromEntries(
        [...new Set(statements)].map((one) => [one, statements.filter((other) => other === one).length])
      )
      assert.deepStrictEqual(counts, { fetchOrchestrationItems: 12, fetchWorkItems: 12, readNextDue: 12 })
    }))

  it.effect("no minute of polling after a wake-up, work and silence", () =>
    Effect.gen(function*() {
      const { sender, store, worker } = yield* pair
      yield* Effect.forkChild(Effect.forever(
        fetchActivity(worker).pipe(
          Effect.flatMap((claimed) => claimed ? worker.ackWorkItem(claimed.lockToken, Option.none()) : Effect.void)
        )
      ))
      yield* pass("1 minute")
      store.statements()
      yield* sender.enqueueForWorker(activity(2))
      yield* pass("1 minute")
      // The look that finds it, one because it took all it asked for, and one for what a process that died may hold.
      assert.deepStrictEqual(store.statements(), [
        "enqueueForWorker",
        "fetchWorkItems",
        "ackWorkItems",
        "fetchWorkItems",
        "fetchWorkItems"
      ])
    }))

  it.effect("without a notifier, at most ten looks a second per queue, whatever waits", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const provider = yield* open(store.driver, undefined)
      yield* waiting(100, fetchActivity(provider))
      for (const tag of ["a", "b", "c"]) {
        yield* waiting(
          10,
          provider.fetchWorkItems({
            lockTimeout,
            pollTimeout: Duration.days(1),
            tags: { _tag: "Tags", tags: [tag] },
            session: Option.none()
          })
        )
      }
      yield* pass("1 second")
      store.looks()
      yield* pass("10 seconds")
      assert.isAtLeast(store.looks().length, 95)
      yield* pass("10 seconds")
      assert.isAtMost(store.looks().length, 101)
    }))

  it.effect("twenty processes: four look for a start at once on average, and none looks twice", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const { connect } = hub()
      for (let i = 0; i < 20; i++) {
        const provider = yield* open(store.driver, connect(`${i}`))
        yield* waiting(
          2,
          Effect.forever(Effect.flatMap(
            fetchActivity(provider),
            (claimed) => provider.ackWorkItem(claimed!.lockToken, Option.none())
          ))
        )
      }
      const sender = yield* open(store.driver, connect("sender"))
      yield* pass("1 minute")
      store.looks()
      let atOnce = 0
      for (let round = 0; round < 20; round++) {
        yield* sender.enqueueForWorker(activity(2 + round))
        yield* settle
        const first = store.looks().length
        atOnce += first
        yield* pass("1 second")
        // The one that had the work looks again for its second caller.
        assert.isAtMost(first + store.looks().length, 21)
        // Each looks again for what another one may have taken and not ended.
        yield* pass("1 minute")
        store.looks()
      }
      // 20 × 4 on average.
      assert.isAtLeast(atOnce, 30)
      assert.isAtMost(atOnce, 160)
    }))
})

describe("Long polling: time", () => {
  it.effect("a timer of this process, of another one, and of one that has died fire on time", () =>
    Effect.gen(function*() {
      const { sender, store, worker } = yield* pair
      yield* worker.enqueueForOrchestrator(message("own", Duration.seconds(20)))
      yield* sender.enqueueForOrchestrator(message("other", Duration.seconds(10)))
      yield* store.directly.enqueueForOrchestrator([row("before", 31_000)])
      // It has stored nothing, and is notified of nothing.
      const late = yield* open(store.driver, hub().connect("late"))
      const found: Array<readonly [string, number]> = []
      const begunMs = yield* Clock.currentTimeMillis
      for (const provider of [worker, late]) {
        yield* Effect.forkChild(Effect.forever(Effect.gen(function*() {
          const { item, lockToken } = (yield* fetchInstance(provider))!
          found.push([item.instanceId, (yield* Clock.currentTimeMillis) - begunMs])
          yield* provider.dropOrchestrationItem(lockToken)
        })))
      }
      yield* pass("1 minute")
      assert.deepStrictEqual(found.map(([instanceId]) => instanceId), ["other", "own", "before"])
      found.forEach(([, atMs], i) => {
        const dueMs = 10_000 * (i + 1)
        assert.isAtLeast(atMs, dueMs)
        assert.isAtMost(atMs, dueMs + 110)
      })
    }))

  it.effect("many timers of another process, of which only the first was announced", () =>
    Effect.gen(function*() {
      const { heard, sender, worker } = yield* pair
      const times = Array.from({ length: 40 }, (_, i) => 1_500 + 250 * i)
      const begunMs = yield* Clock.currentTimeMillis
      yield* Effect.forEach(
        times,
        (timeMs) => sender.enqueueForOrchestrator(message(`${timeMs}`, Duration.millis(timeMs))),
        { concurrency: "unbounded" }
      )
      yield* settle
      assert.isAtMost(heard.filter(({ _tag }) => _tag === "Work").length, 16)
      const found: Array<number> = []
      yield* Effect.forkChild(Effect.forever(Effect.gen(function*() {
        const { item, lockToken } = (yield* fetchInstance(worker))!
        found.push((yield* Clock.currentTimeMillis) - begunMs - Number(item.instanceId))
        yield* worker.dropOrchestrationItem(lockToken)
      })))
      yield* pass("12 seconds")
      assert.lengthOf(found, times.length)
      for (const late of found) {
        assert.isAtLeast(late, 0)
        assert.isAtMost(late, 150)
      }
    }))

  it.effect("a timer that falls due while a turn of its instance is under way is found when the turn ends", () =>
    Effect.gen(function*() {
      const { worker } = yield* pair
      yield* worker.startOrchestration(Starts.start("a"))
      const { lockToken } = (yield* fetchInstance(worker))!
      yield* worker.enqueueForOrchestrator(message("a", Duration.seconds(10)))
      const [next] = yield* waiting(1, timed(fetchInstance(worker)))
      yield* Effect.repeat(pass("1 second"), { times: 15 })
      assert.isUndefined(next!.pollUnsafe())
      yield* worker.dropOrchestrationItem(lockToken)
      yield* settle
      const [[found, tookMs] = []] = yield* ended([next!])
      assert.strictEqual(found?.item.instanceId, "a")
      assert.strictEqual(tookMs, 16_000)
    }))

  it.effect("a timer that falls due while another process holds its instance is found within the lock and a second", () =>
    Effect.gen(function*() {
      const { store, worker } = yield* pair
      // Without a notifier: it receives no hint, and announces none.
      const deaf = yield* open(store.directly, undefined)
      yield* worker.startOrchestration(Starts.start("a"))
      const { lockToken } = (yield* fetchInstance(deaf))!
      const [next] = yield* waiting(1, timed(fetchInstance(worker)))
      // Until the worker is quiet.
      for (let n = 0; n < 4; n++) {
        yield* pass("25 seconds")
        yield* deaf.renewOrchestrationItemLock({ lockToken, extendFor: lockTimeout })
      }
      store.looks()
      yield* worker.enqueueForOrchestrator(message("a", Duration.seconds(10)))
      yield* pass("12 seconds")
      assert.isUndefined(next!.pollUnsafe())
      assert.lengthOf(store.looks(), 1)
      yield* deaf.abandonOrchestrationItem({ lockToken, delay: Option.none(), ignoreAttempt: false })
      yield* pass("30 seconds")
      const [[found, tookMs] = []] = yield* ended([next!])
      assert.strictEqual(found?.item.instanceId, "a")
      assert.isAtMost(tookMs!, 142_000)
    }))

  it.effect("a clock of the process that is fast, or slow, by ten seconds moves no timer", () =>
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      for (const skewMs of [10_000, -10_000]) {
        const now = () => clock.currentTimeMillisUnsafe() + 100_000 + skewMs
        const skewed = Object.assign(Object.create(clock) as Clock.Clock, {
          currentTimeMillisUnsafe: now,
          currentTimeMillis: Effect.sync(now)
        })
        const store = storeOf()
        const base = yield* Clock.currentTimeMillis
        // The store keeps its own time.
        const timely: typeof store.driver = {
          ...store.driver,
          fetchOrchestrationItems: (request) =>
            Effect.provideService(store.driver.fetchOrchestrationItems(request), Clock.Clock, clock),
          readNextDue: Effect.provideService(store.driver.readNextDue!, Clock.Clock, clock)
        }
        yield* store.directly.enqueueForOrchestrator([row("a", base + 60_000)])
        const provider = yield* open(timely, hub().connect("one")).pipe(Effect.provideService(Clock.Clock, skewed))
        const [fetch] = yield* waiting(1, fetchInstance(provider).pipe(Effect.provideService(Clock.Clock, skewed)))
        yield* pass("59999 millis")
        assert.isUndefined(fetch!.pollUnsafe())
        yield* pass("200 millis")
        assert.strictEqual((yield* Fiber.join(fetch!))!.item.instanceId, "a")
      }
    }))
})
