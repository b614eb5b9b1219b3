/**
 * A process that begins after others have died: when it finds the work that they held, in virtual time.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import type { Driver } from "../utils/longPolling.ts"
import { fetchActivity, fetchInstance, hub, lockTimeout, open, pass, storeOf, waiting } from "../utils/longPolling.ts"

const row = (id: number, sessionId: string | null = null) => ({
  workItem: JSON.stringify({ ActivityExecute: { instance: "a", execution_id: 1, id, name: "A", input: "1" } }),
  name: "A",
  instanceId: "a",
  executionId: 1,
  activityId: id,
  sessionId,
  tag: null
})

const start = {
  instanceId: "a",
  workItem: JSON.stringify({
    StartOrchestration: {
      instance: "a",
      orchestration: "O",
      input: "1",
      version: null,
      parent_instance: null,
      parent_id: null,
      execution_id: 1
    }
  }),
  visibleAtMs: null,
  delayMs: null
}

/** Claims of a process that dies with them; the activities are new. */
const leave = Effect.fnUntraced(function*(
  driver: Driver,
  locks: ReadonlyArray<Duration.Input>,
  sessionLock?: Duration.Input
) {
  for (const [i, lock] of locks.entries()) {
    yield* driver.enqueueForWorker([row(i + 1, sessionLock === undefined ? null : "s")])
    const claimed = yield* driver.fetchWorkItems({
      limit: 1,
      lockTimeoutMs: Duration.toMillis(lock),
      tags: { _tag: "DefaultOnly" },
      session: sessionLock === undefined
        ? null
        : { workerId: "dead", lockTimeoutMs: Duration.toMillis(sessionLock) }
    })
    assert.lengthOf(claimed, 1)
  }
})

/** After how many milliseconds each of these claims found a second delivery. */
const taken = <E, R>(fetch: Effect.Effect<{ readonly attemptCount: number } | undefined, E, R>) =>
  Effect.flatMap(
    Clock.currentTimeMillis,
    (begunMs) =>
      Effect.flatMap(fetch, (claimed) =>
        Effect.map(Clock.currentTimeMillis, (nowMs) => {
          assert.strictEqual(claimed?.attemptCount, 2)
          return nowMs - begunMs
        }))
  )

const isWithinASecondOf = (lock: Duration.Input, ms: number) => {
  assert.isAtLeast(ms, Duration.toMillis(lock))
  assert.isAtMost(ms, Duration.toMillis(lock) + 1_000)
}

describe("Locks of processes that died before this one began:", () => {
  for (const lock of ["2 seconds", "2 minutes"] as const) {
    it.effect(`an activity is taken over within a second of its lock's end, after ${lock}`, () =>
      Effect.gen(function*() {
        const store = storeOf()
        yield* leave(store.directly, [lock])
        const provider = yield* open(store.driver, hub().connect("one"))
        const [fetch] = yield* waiting(1, taken(fetchActivity(provider)))
        yield* pass("3 minutes")
        isWithinASecondOf(lock, yield* Fiber.join(fetch!))
        assert.isAtMost(store.looks().length, 4)
      }))

    it.effect(`an instance is, too, after ${lock}`, () =>
      Effect.gen(function*() {
        const store = storeOf()
        yield* store.directly.enqueueForOrchestrator([start])
        const request = { limit: 1, lockTimeoutMs: Duration.toMillis(lock), versions: null }
        assert.lengthOf(yield* store.directly.fetchOrchestrationItems(request), 1)
        const provider = yield* open(store.driver, hub().connect("one"))
        const [fetch] = yield* waiting(1, taken(fetchInstance(provider)))
        yield* pass("3 minutes")
        isWithinASecondOf(lock, yield* Fiber.join(fetch!))
        assert.isAtMost(store.looks().length, 4)
      }))
  }

  it.effect("those that end one after another are each found within a second", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const locks = ["40 seconds", "40.1 seconds", "41 seconds", "90 seconds"] as const
      yield* leave(store.directly, locks)
      const provider = yield* open(store.driver, hub().connect("one"))
      const fetch = Effect.tap(fetchActivity(provider), (claimed) =>
        provider.ackWorkItem(claimed!.lockToken, Option.none()))
      const fetches = yield* waiting(locks.length, taken(fetch))
      yield* pass("2 minutes")
      const found = (yield* Effect.forEach(fetches, Fiber.join)).sort((one, other) =>
        one - other
      )
      for (const [i, lock] of locks.entries()) isWithinASecondOf(lock, found[i]!)
      assert.isAtMost(store.looks().length, 8)
    }))

  it.effect("that of a session counts like that of its activity", () =>
    Effect.gen(function*() {
      const store = storeOf()
      yield* leave(store.directly, ["10 seconds"], "50 seconds")
      const { readLocks } = store.directly
      assert.deepInclude(yield* readLocks!, { orchestrator: null, worker: { firstMs: 50_000, lastMs: 50_000 } })
    }))

  it.effect("a process that lives renews its own, and then costs nothing", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const { connect } = hub()
      const busy = yield* open(store.driver, connect("busy"))
      yield* store.directly.enqueueForWorker([row(1)])
      const claimed = yield* fetchActivity(busy, Duration.zero)
      yield* Effect.forkChild(Effect.forever(Effect.andThen(
        busy.renewWorkItemLock({ lockToken: claimed!.lockToken, extendFor: lockTimeout }),
        Effect.sleep("15 seconds")
      )))
      const provider = yield* open(store.driver, connect("one"))
      yield* waiting(1, fetchActivity(provider))
      yield* pass("1 minute")
      const statements = store.statements().filter((statement) => statement !== "renewWorkItemLocks")
      assert.isAtMost(statements.filter((statement) => statement === "readLocks").length, 4)
      assert.isAtMost(statements.filter((statement) => statement === "fetchWorkItems").length, 8)
      yield* pass("3 minutes")
      assert.deepStrictEqual(store.statements().filter((statement) => statement !== "renewWorkItemLocks"), [])
    }))

  it.effect("a driver that cannot say when they end is asked for work after the own lock timeout", () =>
    Effect.gen(function*() {
      const store = storeOf()
      yield* leave(store.directly, ["2 seconds"])
      const { readLocks: _, ...driver } = store.driver
      const provider = yield* open(driver, hub().connect("one"))
      const [fetch] = yield* waiting(1, taken(fetchActivity(provider)))
      yield* pass("1 minute")
      isWithinASecondOf("30 seconds", yield* Fiber.join(fetch!))
    }))
})

describe("The time that a process announces for its locks", () => {
  it.effect("falls when the longest of them is released", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const { connect, heard, listen } = hub()
      yield* listen
      const provider = yield* open(store.driver, connect("one"))
      const claim = (lock: Duration.Input) =>
        Effect.map(
          provider.fetchWorkItems({
            lockTimeout: Duration.fromInputUnsafe(lock),
            pollTimeout: Duration.zero,
            tags: { _tag: "DefaultOnly" },
            session: Option.none()
          }),
          ([claimed]) => claimed!.lockToken
        )
      yield* store.directly.enqueueForWorker([row(1), row(2)])
      const long = yield* claim("1 hour")
      yield* claim("30 seconds")
      yield* provider.ackWorkItem(long, Option.none())
      yield* pass("2 seconds")
      const announced = heard.flatMap((hint) => hint._tag === "Locks" && hint.queue === "worker" ? [hint.untilMs] : [])
      assert.isAtLeast(announced[0]!, 3_600_000)
      assert.isAtMost(announced.at(-1)!, 31_000)
    }))
})
