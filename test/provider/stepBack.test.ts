/**
 * The clock of the store is set back, as by ntpd, a restored virtual machine, or a standby with another clock.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import * as MemoryDriver from "../../src/provider/MemoryDriver.ts"
import { stepping } from "../utils/clock.ts"
import * as Test from "../utils/driver.ts"

const opened = Test.opener()

const stores: Record<string, Effect.Effect<Test.Driver, unknown, Scope.Scope>> = {
  memory: Effect.sync(() => MemoryDriver.make()),
  PostgreSQL: Effect.map(opened({ clock: "effect" }), ({ driver }) => driver)
}

const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => `${from + i}`)

for (const [store, open] of Object.entries(stores)) {
  for (const seconds of [5, 45]) {
    /** Runs a test on a driver whose clock it can set back. */
    const test = (
      name: string,
      body: (driver: Test.Driver, setBack: Effect.Effect<void>) => Effect.Effect<void, unknown>
    ) =>
      it.effect(name, () =>
        Effect.gen(function*() {
          const { clock, setBack } = stepping(yield* Clock.Clock)
          yield* TestClock.adjust("1 hour")
          yield* Effect.provideService(
            Effect.flatMap(open, (driver) => body(driver, Effect.sync(() => setBack(seconds * 1_000)))),
            Clock.Clock,
            clock
          )
        }))

    /** Sends messages one after another, 100 milliseconds apart. */
    const send = (driver: Test.Driver, texts: ReadonlyArray<string>) =>
      Effect.forEach(
        texts,
        (text) => Effect.andThen(driver.enqueueForOrchestrator([Test.message("box", text)]), TestClock.adjust(100))
      )

    /** Claims and settles the instance as often as it has messages; their texts, by claim. */
    const read = Effect.fnUntraced(function*(driver: Test.Driver, maxBytes = 1_000_000) {
      const batches: Array<ReadonlyArray<string>> = []
      while (true) {
        const [claimed] = yield* driver.fetchOrchestrationItems({
          limit: 4,
          lockTimeoutMs: 5_000,
          versions: null,
          maxBytes
        })
        if (claimed === undefined) return batches
        batches.push(claimed.messages.map(({ workItem }) => workItem))
        yield* driver.ackOrchestrationItems([Test.turn(claimed.lockToken, { executionId: 1 })])
      }
    })

    describe(`a step back of ${seconds} s, ${store}:`, () => {
      test(
        "messages that were sent before and after it are read in order, at once",
        (driver, setBack) =>
          Effect.gen(function*() {
            yield* Test.waiting(driver, ["box"])
            yield* send(driver, numbers(0, 40))
            yield* setBack
            yield* send(driver, numbers(40, 60))
            assert.deepStrictEqual((yield* read(driver)).flat(), numbers(0, 60))
          })
      )

      test("they are read in order in small batches as well", (driver, setBack) =>
        Effect.gen(function*() {
          yield* Test.waiting(driver, ["box"])
          yield* send(driver, numbers(10, 40))
          yield* setBack
          yield* send(driver, numbers(40, 60))
          const batches = yield* read(driver, 6)
          assert.isAbove(batches.length, 5)
          assert.deepStrictEqual(batches.flat(), numbers(10, 60))
        }))

      test("messages that were sent before it do not wait for others", (driver, setBack) =>
        Effect.gen(function*() {
          yield* Test.waiting(driver, ["box"])
          yield* send(driver, numbers(0, 10))
          yield* setBack
          assert.deepStrictEqual((yield* read(driver)).flat(), numbers(0, 10))
        }))

      test("a start does not wait", (driver, setBack) =>
        Effect.gen(function*() {
          yield* driver.startOrchestrations([Test.start("box")])
          yield* setBack
          assert.lengthOf(yield* Test.claim(driver), 1)
        }))

      test(
        "messages to a start that was sent before it do not wait, either",
        (driver, setBack) =>
          Effect.gen(function*() {
            yield* driver.startOrchestrations([Test.start("box")])
            yield* setBack
            yield* send(driver, numbers(0, 3))
            const [[, ...read] = []] = yield* Effect.map(
              Test.claim(driver),
              (claimed) => claimed.map(({ messages }) => messages.map(({ workItem }) => workItem))
            )
            assert.deepStrictEqual(read, numbers(0, 3))
          })
      )

      test("a message that was sent before it stops an optimistic turn", (driver, setBack) =>
        Effect.gen(function*() {
          const { box } = yield* Test.waiting(driver, ["box"])
          yield* send(driver, ["0"])
          yield* setBack
          const [answer] = yield* driver.advanceOrchestrations!([Test.optimistic("box", box!)])
          assert.deepInclude(answer, { _tag: "Queued", results: ["Done"] })
        }))

      test("activities do not wait, with a session or without", (driver, setBack) =>
        Effect.gen(function*() {
          yield* driver.enqueueForWorker([
            Test.activity({ activityId: 1 }),
            Test.activity({ activityId: 2, sessionId: "session" })
          ])
          yield* setBack
          const fetch = driver.fetchWorkItems({
            limit: 10,
            lockTimeoutMs: 5_000,
            tags: { _tag: "Any" },
            session: { workerId: "worker", lockTimeoutMs: 5_000 }
          })
          assert.lengthOf(yield* fetch, 2)
          assert.lengthOf(yield* fetch, 0)
        }))

      test("delayed messages and activities keep their due times", (driver, setBack) =>
        Effect.gen(function*() {
          const claimActivities = driver.fetchWorkItems({
            limit: 10,
            lockTimeoutMs: 5_000,
            tags: { _tag: "Any" },
            session: null
          })
          yield* Test.waiting(driver, ["box"])
          yield* driver.enqueueForWorker([Test.activity()])
          const [activity] = yield* claimActivities
          yield* driver.enqueueForOrchestrator([{ ...Test.message("box", "timer"), delayMs: 1_000 }])
          yield* driver.abandonWorkItems([{ lockToken: activity!.lockToken, delayMs: 1_000, ignoreAttempt: false }])
          yield* setBack
          yield* TestClock.adjust(seconds * 1_000 + 999)
          assert.lengthOf(yield* read(driver), 0)
          assert.lengthOf(yield* claimActivities, 0)
          yield* TestClock.adjust(1)
          assert.deepStrictEqual(yield* read(driver), [["timer"]])
          assert.lengthOf(yield* claimActivities, 1)
        }))

      test(
        "a message that came before a start with a delay waits as long as that start",
        (driver, setBack) =>
          Effect.gen(function*() {
            yield* send(driver, ["0"])
            yield* setBack
            yield* driver.startOrchestrations([Test.start("box", { delayMs: 1_000 })])
            const claim = Effect.map(
              driver.fetchOrchestrationItems({
                limit: 4,
                lockTimeoutMs: 5_000,
                versions: null,
                serves: [{ name: "Orchestration", versions: ["1.0.0"] }]
              }),
              (claimed) => claimed.map(({ messages }) => messages.length)
            )
            yield* TestClock.adjust(999)
            assert.deepStrictEqual(yield* claim, [])
            yield* TestClock.adjust(10)
            assert.deepStrictEqual(yield* claim, [2])
          })
      )

      test("what is delayed after it waits as long", (driver, setBack) =>
        Effect.gen(function*() {
          const claimActivities = driver.fetchWorkItems({
            limit: 10,
            lockTimeoutMs: 5_000,
            tags: { _tag: "Any" },
            session: null
          })
          yield* Test.waiting(driver, ["box"])
          yield* driver.enqueueForWorker([Test.activity()])
          yield* send(driver, ["0"])
          const [activity] = yield* claimActivities
          const [instance] = yield* Test.claim(driver)
          yield* setBack
          yield* driver.abandonWorkItems([{ lockToken: activity!.lockToken, delayMs: 1_000, ignoreAttempt: false }])
          const ids = instance!.messages.map(({ id }) => id)
          yield* driver.deferMessages([{ lockToken: instance!.lockToken, ids, delayMs: 1_000 }])
          yield* driver.abandonOrchestrationItems([
            { lockToken: instance!.lockToken, delayMs: null, ignoreAttempt: false, beginsFirst: false }
          ])
          yield* TestClock.adjust(999)
          assert.lengthOf(yield* read(driver), 0)
          assert.lengthOf(yield* claimActivities, 0)
          yield* TestClock.adjust(1)
          assert.deepStrictEqual(yield* read(driver), [["0"]])
          assert.lengthOf(yield* claimActivities, 1)
        }))
    })
  }
}
