import { assert, describe, it } from "@effect/vitest"
import type { Provider } from "duroxide-prisma/provider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as TestClock from "effect/testing/TestClock"
import { completion, make, pass, run, turn } from "../utils/notified.ts"
import type { Options, Process } from "../utils/notified.ts"
import { start } from "../utils/starts.ts"

type Item = Provider.OrchestrationItem

/** The process whose callers wait, and another one. */
const open = Effect.fnUntraced(function*(options: Options = {}, others: Options = options) {
  const store = make()
  const { calls, provider } = yield* store.process(options)
  const other = yield* store.process(others)
  return {
    ...store,
    provider,
    other: other.provider,
    looks: () => calls.filter((call) => call === "readProgress").length,
    forget: () => void (calls.length = 0)
  }
})

type Service = Process["provider"]

const statusOf = ({ status, statusVersion }: Provider.Progress) => ({ status: Option.getOrNull(status), statusVersion })

/** The next status after a version, as text. */
const status = (provider: Service, instanceId: string, after = 0, timeoutMs?: number) =>
  Effect.forkChild(provider.awaitProgress<unknown>({
    instanceId,
    until: (progress) => progress.statusVersion > after ? Option.some(statusOf(progress)) : Option.none(),
    ...(timeoutMs !== undefined && { timeout: Duration.millis(timeoutMs) })
  }))

/** A value, by default any. */
const value = (provider: Service, instanceId: string, key: string, until: (value: string) => boolean = () => true) =>
  Effect.forkChild(
    provider.awaitProgress<unknown>({ instanceId, key, until: (progress) => Option.filter(progress.value, until) })
  )

const found = <A>(found: A) => ({ _tag: "Found", found }) as const
const ended = { _tag: "Ended" } as const

const isDone = (fiber: Fiber.Fiber<unknown, unknown>) => fiber.pollUnsafe() !== undefined

/** Sends something to an instance, so that its next turn can be stored. */
const poke = (provider: Service, instanceId: string) =>
  provider.enqueueForOrchestrator({
    message: { _tag: "QueueMessage", instance: instanceId, name: "m", data: "null" },
    delay: Option.none()
  })

const sets = (status: string | null) => (item: Item) => turn(item, [{ _tag: "CustomStatusUpdated", status }])
const puts = (...entries: ReadonlyArray<readonly [key: string, value: string]>) => (item: Item) =>
  turn(item, entries.map(([key, value]) => ({ _tag: "KeyValueSet", key, value, lastUpdatedAtMs: 1 })))
const nothing = (item: Item) => turn(item, [{ _tag: "TimerCreated", fireAtMs: 0 }])
const continues = (item: Item) =>
  turn(item, [{ _tag: "OrchestrationContinuedAsNew", input: "2" }], {
    orchestratorItems: [
      { _tag: "ContinueAsNew", instance: item.instanceId, orchestration: "O", input: "2", version: "1.0.0" }
    ],
    metadata: { status: "ContinuedAsNew", output: "2" }
  })

/** Stores turns one after another. */
const runs = (provider: Service, instanceId: string, ...turns: ReadonlyArray<(item: Item) => Provider.Turn>) =>
  Effect.forEach(turns, (turnOf) => Effect.andThen(poke(provider, instanceId), run(provider, turnOf)), {
    discard: true
  })

describe("A status or value stored by this process", () => {
  it.effect("reaches every caller at once, and costs no look beside the first", () =>
    Effect.gen(function*() {
      const { looks, provider } = yield* open({ isNotified: false })
      yield* provider.startOrchestration(start("a"))
      const waits = [yield* status(provider, "a"), yield* status(provider, "a", 1), yield* value(provider, "a", "k")]
      const two = yield* value(provider, "a", "k", (value) => value === "2")
      yield* TestClock.adjust(0)
      const first = looks()
      yield* run(provider, sets("one"))
      assert.deepStrictEqual(yield* Fiber.join(waits[0]!), found({ status: "one", statusVersion: 1 }))
      yield* runs(provider, "a", nothing, sets(null))
      assert.deepStrictEqual(yield* Fiber.join(waits[1]!), found({ status: null, statusVersion: 2 }))
      yield* runs(provider, "a", puts(["other", "1"], ["k", "0"], ["k", "1"]))
      assert.deepStrictEqual(yield* Fiber.join(waits[2]!), found("1"))
      yield* runs(provider, "a", puts(["k", "2"]))
      assert.deepStrictEqual(yield* Fiber.join(two), found("2"))
      assert.strictEqual(looks(), first)
      assert.isAtMost(first, 2)
    }))

  it.effect("is known through continue-as-new without a look", () =>
    Effect.gen(function*() {
      const { looks, provider } = yield* open({ isNotified: false })
      yield* provider.startOrchestration(start("a"))
      const waiting = yield* status(provider, "a", 1)
      yield* TestClock.adjust(0)
      yield* run(provider, sets("one"))
      yield* runs(provider, "a", continues)
      const before = looks()
      yield* run(provider, (item) => sets("two")({ ...item, executionId: 2, history: [] }))
      assert.deepStrictEqual(yield* Fiber.join(waiting), found({ status: "two", statusVersion: 2 }))
      assert.strictEqual(looks(), before)
    }))

  it.effect("is read again if another process has stored turns in between, so that its version is right", () =>
    Effect.gen(function*() {
      const { looks, other, provider } = yield* open({ isNotified: false })
      yield* provider.startOrchestration(start("a"))
      const waiting = yield* status(provider, "a", 1)
      yield* pass(3_000)
      yield* run(other, sets("one"))
      yield* runs(other, "a", sets("two"))
      const before = looks()
      yield* runs(provider, "a", sets("three"))
      yield* pass(60)
      assert.deepStrictEqual(yield* Fiber.join(waiting), found({ status: "three", statusVersion: 3 }))
      assert.strictEqual(looks(), before + 1)
    }))

  it.effect("is not overwritten by the answer of a look that has read before it", () =>
    Effect.gen(function*() {
      const { provider } = yield* open({
        isNotified: false,
        change: (driver) => ({
          readProgress: (items) =>
            Effect.tap(Effect.delay(driver.readProgress(items), "50 millis"), () => Effect.sleep("100 millis"))
        })
      })
      yield* provider.startOrchestration(start("a"))
      const seen: Array<string | null> = []
      yield* value(provider, "a", "k", (value) => {
        seen.push(value)
        return false
      })
      // The second look begins after 170 milliseconds, and reads between the two turns.
      yield* pass(200)
      yield* run(provider, puts(["k", "one"]))
      yield* pass(50)
      yield* runs(provider, "a", puts(["k", "two"]))
      yield* pass(1_000)
      assert.deepStrictEqual([...new Set(seen)], ["one", "two"])
      assert.isBelow(seen.lastIndexOf("one"), seen.indexOf("two"), seen.join())
    }))
})

describe("A status or value stored by another process", () => {
  it.effect("that announces it is found by one look, at once; until then nothing is polled", () =>
    Effect.gen(function*() {
      const { forget, looks, other, provider } = yield* open()
      yield* other.startOrchestration(start("a"))
      const waits = [yield* status(provider, "a"), yield* value(provider, "a", "k")]
      yield* pass(2_000)
      forget()
      yield* pass(3_000)
      assert.strictEqual(looks(), 0)
      yield* run(other, sets("one"))
      yield* TestClock.adjust(0)
      assert.deepStrictEqual(yield* Fiber.join(waits[0]!), found({ status: "one", statusVersion: 1 }))
      assert.isFalse(isDone(waits[1]!))
      yield* pass(1_000)
      forget()
      yield* runs(other, "a", puts(["k", "1"]))
      yield* TestClock.adjust(0)
      assert.deepStrictEqual(yield* Fiber.join(waits[1]!), found("1"))
      assert.strictEqual(looks(), 1)
    }))

  it.effect("is found within half a second without notifications, and within 30 seconds if an announcement is lost", () =>
    Effect.gen(function*() {
      for (
        const [options, withinMs] of [
          [{ isNotified: false }, 510],
          [{ drops: ({ _tag }) => _tag === "Changed" }, 30_000]
        ] satisfies ReadonlyArray<readonly [Options, number]>
      ) {
        const { other, provider } = yield* open(options)
        yield* other.startOrchestration(start("a"))
        const waiting = yield* status(provider, "a")
        yield* pass(3_000)
        yield* run(other, sets("one"))
        yield* pass(withinMs)
        assert.isTrue(isDone(waiting), JSON.stringify(options))
      }
    }))

  it.effect("of an instance of Rust, which announces no status, is found as without notifications", () =>
    Effect.gen(function*() {
      const { other, provider } = yield* open({}, { isNotified: false, drops: () => true })
      yield* other.startOrchestration(start("a", { major: 0, minor: 1, patch: 29 }))
      const waiting = yield* status(provider, "a")
      yield* pass(10_000)
      // What Rust would have stored.
      yield* run(other, sets("one"))
      yield* pass(510)
      assert.deepStrictEqual(yield* Fiber.join(waiting), found({ status: "one", statusVersion: 1 }))
    }))
})

describe("A wait for progress", () => {
  it.effect("finds what is there already, by its first look", () =>
    Effect.gen(function*() {
      const { looks, other, provider } = yield* open()
      yield* other.startOrchestration(start("a"))
      yield* run(other, puts(["k", "1"]))
      yield* runs(other, "a", sets("one"))
      const waits = [yield* status(provider, "a"), yield* value(provider, "a", "k")]
      yield* TestClock.adjust(0)
      assert.deepStrictEqual(yield* Fiber.join(waits[0]!), found({ status: "one", statusVersion: 1 }))
      assert.deepStrictEqual(yield* Fiber.join(waits[1]!), found("1"))
      assert.isAtMost(looks(), 2)
    }))

  for (const [where, isHere] of [["this process", true], ["another process", false]] as const) {
    it.effect(`ends when ${where} ends the instance, unless its last turn has what it waits for`, () =>
      Effect.gen(function*() {
        const { other, provider } = yield* open()
        const ender = isHere ? provider : other
        yield* ender.startOrchestration(start("a"))
        const waits = [
          yield* status(provider, "a"),
          yield* value(provider, "a", "k", (value) => value === "2"),
          yield* value(provider, "a", "k")
        ]
        yield* pass(2_000)
        yield* run(ender, (item) => {
          const end = completion(item)
          const [put] = puts(["k", "1"])(item).historyDelta
          return { ...end, historyDelta: [put!, { ...end.historyDelta[0]!, eventId: put!.eventId + 1 }] }
        })
        yield* pass(20)
        assert.deepStrictEqual(yield* Effect.forEach(waits, Fiber.join), [ended, ended, found("1")])
        // And so it is for those that come later.
        const later = [
          yield* status(provider, "a"),
          yield* value(provider, "a", "k"),
          yield* value(provider, "a", "no")
        ]
        yield* pass(20)
        assert.deepStrictEqual(yield* Effect.forEach(later, Fiber.join), [ended, found("1"), ended])
      }))
  }

  it.effect("also waits for the start, and is over after its timeout", () =>
    Effect.gen(function*() {
      const { other, provider } = yield* open()
      const waiting = yield* status(provider, "a")
      const short = yield* status(provider, "a", 0, 100)
      yield* pass(110)
      assert.deepStrictEqual(yield* Fiber.join(short), { _tag: "TimedOut" })
      yield* pass(5_000)
      yield* other.startOrchestration(start("a"))
      yield* run(other, sets("one"))
      yield* pass(20)
      assert.deepStrictEqual(yield* Fiber.join(waiting), found({ status: "one", statusVersion: 1 }))
    }))

  it.effect("whose function throws dies alone", () =>
    Effect.gen(function*() {
      const { other, provider } = yield* open()
      yield* other.startOrchestration(start("a"))
      const broken = yield* Effect.forkChild(Effect.exit(
        provider.awaitProgress({
          instanceId: "a",
          until: ({ statusVersion }) => {
            if (statusVersion > 0) throw new Error("broken")
            return Option.none()
          }
        })
      ))
      const waiting = yield* status(provider, "a")
      yield* pass(2_000)
      yield* run(other, sets("one"))
      yield* pass(20)
      const exit = yield* Fiber.join(broken)
      assert.isTrue(Exit.isFailure(exit) && exit.cause.reasons[0]?._tag === "Die")
      assert.deepStrictEqual(yield* Fiber.join(waiting), found({ status: "one", statusVersion: 1 }))
    }))

  it.effect("refuses ids and keys that no store can hold", () =>
    Effect.gen(function*() {
      const { provider } = yield* open()
      for (const options of [{ instanceId: "\0" }, { instanceId: "a", key: "\0" }]) {
        const error = yield* Effect.flip(provider.awaitProgress({ ...options, until: Option.some }))
        assert.strictEqual(error.reason._tag, "InvalidInput")
      }
    }))

  it.effect("is one of 10,000 that cost few statements", () =>
    Effect.gen(function*() {
      const { forget, looks, provider } = yield* open()
      yield* Effect.forEach(Array.from({ length: 10_000 }, (_, i) => `never-${i}`), (instanceId, i) =>
        i % 2 === 0 ? status(provider, instanceId) : value(provider, instanceId, "k"))
      yield* pass(600_000, 1_000)
      forget()
      yield* pass(300_000, 1_000)
      assert.isAtMost(looks(), 22)
      assert.isAtLeast(looks(), 10)
    }))
})
