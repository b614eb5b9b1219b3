import { assert, describe, it } from "@effect/vitest"
import { Notifier, ProviderError } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import { fingerprint } from "../../src/provider/internal/changes.ts"
import * as Notified from "../utils/notified.ts"
import { pass } from "../utils/notified.ts"
import { start } from "../utils/starts.ts"

const completed = Option.some({ _tag: "Completed", output: "1" } as const)

/** A process that waits for `waiting`, one that does not, and the ids that the first has looked at. */
const open = Effect.fnUntraced(function*(options: {
  readonly waiting?: ReadonlyArray<string>
  readonly other?: Notified.Options
} = {}) {
  const { other = {}, waiting = [] } = options
  const store = Notified.make()
  const looks: Array<ReadonlyArray<string>> = []
  const waiter = yield* store.process({
    change: (driver) => ({
      readEnds: (ids) =>
        Effect.suspend(() => {
          looks.push(ids)
          return driver.readEnds(ids)
        })
    })
  })
  const wait = (instanceId: string, timeoutMs?: number) =>
    Effect.forkChild(waiter.provider.awaitEnd({
      instanceId,
      ...(timeoutMs !== undefined && { timeout: Duration.millis(timeoutMs) })
    }))
  const waits = yield* Effect.forEach(waiting, (instanceId) => wait(instanceId))
  const ender = yield* store.process(other)
  /** Starts an instance, and ends it, in the process that does not wait. */
  const end = (instanceId: string, { provider } = ender) =>
    Effect.andThen(provider.startOrchestration(start(instanceId)), Notified.run(provider, Notified.completion))
  return { ...store, end, ender, looks, wait, waiter, waits }
})

const isDone = (fiber: Fiber.Fiber<unknown, unknown>) => fiber.pollUnsafe() !== undefined

/** How long it takes until the wait is over. */
const latenessMs = (fiber: Fiber.Fiber<unknown, unknown>) =>
  Effect.gen(function*() {
    const beganMs = yield* Clock.currentTimeMillis
    while (!isDone(fiber)) yield* pass(10)
    return (yield* Clock.currentTimeMillis) - beganMs
  })

describe("An end stored by another process that announces it", () => {
  it.effect("is found by one look at that instance, at once; until then nothing is polled", () =>
    Effect.gen(function*() {
      const { end, looks, waits } = yield* open({ waiting: ["a", "b"] })
      yield* pass(2_000)
      looks.length = 0
      yield* pass(3_000)
      assert.deepStrictEqual(looks, [])
      yield* end("a")
      yield* TestClock.adjust(0)
      assert.deepStrictEqual(yield* Fiber.join(waits[0]!), completed)
      assert.deepStrictEqual(looks, [["a"]])
      assert.isFalse(isDone(waits[1]!))
    }))

  it.effect("costs a first look and that one, once others know that this process waits", () =>
    Effect.gen(function*() {
      const { end, looks, wait } = yield* open({ waiting: ["first"] })
      yield* pass(2_000)
      looks.length = 0
      for (const instanceId of ["a", "b"]) {
        const waiting = yield* wait(instanceId)
        yield* pass(2_000)
        yield* end(instanceId)
        yield* TestClock.adjust(0)
        assert.deepStrictEqual(yield* Fiber.join(waiting), completed)
      }
      assert.deepStrictEqual(looks, [["a"], ["a"], ["b"], ["b"]])
    }))

  it.effect("needs no first look if this process starts the instance as part of the wait", () =>
    Effect.gen(function*() {
      const { ender, looks, waiter } = yield* open({ waiting: ["first"] })
      yield* pass(2_000)
      looks.length = 0
      const waiting = yield* Effect.forkChild(
        waiter.provider.awaitEnd({ instanceId: "a", start: waiter.provider.startOrchestration(start("a")) })
      )
      yield* pass(1_000)
      assert.deepStrictEqual(looks, [])
      yield* Notified.run(ender.provider, Notified.completion)
      yield* TestClock.adjust(0)
      assert.deepStrictEqual(yield* Fiber.join(waiting), completed)
      assert.deepStrictEqual(looks, [["a"]])
    }))

  it.effect("is found soon if it comes between the start by this process and the wait", () =>
    Effect.gen(function*() {
      const { ender, wait, waiter } = yield* open({ waiting: ["first"] })
      yield* pass(2_000)
      yield* waiter.provider.startOrchestration(start("a"))
      yield* Notified.run(ender.provider, Notified.completion)
      yield* pass(50)
      const waiting = yield* wait("a")
      assert.isAtMost(yield* latenessMs(waiting), 100)
    }))

  it.effect("is found soon while others do not know yet that this process waits", () =>
    Effect.gen(function*() {
      const { end, looks, wait } = yield* open({ other: { isNotified: false } })
      const waiting = yield* wait("a")
      yield* pass(900)
      yield* end("a")
      assert.isAtMost(yield* latenessMs(waiting), 510)
      // A first look, and after 20, 40, 80, 160, 320 and 500 ms.
      assert.isAtMost(looks.length, 7)
    }))

  it.effect("by a process that has just started, and does not know of the wait, is found soon", () =>
    Effect.gen(function*() {
      const { end, process, waits } = yield* open({ waiting: ["a", "b"] })
      yield* pass(5_000)
      const scope = yield* Scope.make()
      const next = yield* Scope.provide(process(), scope)
      yield* end("a", next)
      yield* pass(60)
      assert.isTrue(isDone(waits[0]!))
      yield* Scope.close(scope, Exit.void)
      // It says Hello, and so learns of the wait long before it would be repeated.
      const last = yield* process()
      yield* pass(3_000)
      yield* end("b", last)
      yield* pass(60)
      assert.isTrue(isDone(waits[1]!))
    }))

  it.effect("is found at once although another one was found just before", () =>
    Effect.gen(function*() {
      const { end, waits } = yield* open({ waiting: ["a", "b", "c"] })
      yield* pass(3_000)
      for (const [i, instanceId] of ["a", "b", "c"].entries()) {
        yield* end(instanceId)
        yield* pass(20)
        assert.isTrue(isDone(waits[i]!), instanceId)
      }
    }))

  it.effect("is not announced while no process waits", () =>
    Effect.gen(function*() {
      const { end, ender } = yield* open()
      yield* pass(2_000)
      yield* end("a")
      yield* pass(100)
      assert.notInclude(ender.announced.map(({ _tag }) => _tag), "Changed")
    }))
})

describe("An end whose announcement is lost", () => {
  for (const afterMs of [10, 2_000, 100_000, 1_000_000]) {
    it.effect(`${afterMs} ms after the wait began is found within as long again, with few looks`, () =>
      Effect.gen(function*() {
        const { end, looks, waits } = yield* open({
          waiting: ["a"],
          other: { drops: ({ _tag }) => _tag === "Changed" }
        })
        yield* pass(afterMs, Math.max(10, afterMs / 1_000))
        yield* end("a")
        assert.isAtMost(yield* latenessMs(waits[0]!), Math.min(afterMs + 6_000, 300_000))
        assert.deepStrictEqual(yield* Fiber.join(waits[0]!), completed)
        // About a second of growing looks, then after 5, 10, 20, … seconds, and each 5 minutes.
        assert.isAtMost(looks.length, 7 + 7 + afterMs / 300_000)
      }))
  }

  it.effect("is found by a caller when its short time is over", () =>
    Effect.gen(function*() {
      const { ender, waiter, waits } = yield* open({
        waiting: ["first"],
        other: { drops: ({ _tag }) => _tag === "Changed" }
      })
      yield* pass(2_000)
      const waiting = yield* Effect.forkChild(waiter.provider.awaitEnd({
        instanceId: "a",
        start: waiter.provider.startOrchestration(start("a")),
        timeout: Duration.millis(300)
      }))
      yield* pass(50)
      yield* Notified.run(ender.provider, Notified.completion)
      yield* pass(260)
      assert.deepStrictEqual(yield* Fiber.join(waiting), completed)
      assert.isFalse(isDone(waits[0]!))
    }))
})

/** A process whose notifier the test plays, and one that announces nothing. */
const play = Effect.gen(function*() {
  let listener: Notifier.Listener | undefined
  /** How long a look is under way after it has read. */
  const slow = { ms: 0 }
  const store = Notified.make()
  const { calls, provider } = yield* store.process({
    notifier: {
      name: "played",
      listen: (given) => Effect.sync(() => void (listener = given)),
      announce: () => Effect.void
    },
    change: (driver) => ({
      readEnds: (ids) => Effect.tap(driver.readEnds(ids), () => slow.ms === 0 ? Effect.void : Effect.sleep(slow.ms))
    })
  })
  const other = yield* store.process({ isNotified: false })
  const named = (...instanceIds: ReadonlyArray<string>) =>
    listener!.receive({ hint: Notifier.Hint.Changed({ fingerprints: instanceIds.map(fingerprint) }), sender: null })
  return {
    slow,
    wait: (instanceId: string) => Effect.forkChild(provider.awaitEnd({ instanceId })),
    end: Effect.andThen(
      other.provider.startOrchestration(start("a")),
      Notified.run(other.provider, Notified.completion)
    ),
    hint: Effect.sync(() => named("a")),
    named,
    connect: () => listener!.connected(),
    disconnect: () => listener!.disconnected("cut"),
    looks: () => calls.filter((call) => call === "readEnds").length,
    forget: () => void (calls.length = 0)
  }
})

/** Connected, with a wait of which the others know. */
const known = Effect.gen(function*() {
  const played = yield* play
  played.connect()
  yield* played.wait("first")
  yield* pass(2_000)
  played.forget()
  return played
})

describe("A hint", () => {
  it.effect("before the wait leads to no look; the first look finds the end", () =>
    Effect.gen(function*() {
      const { end, hint, looks, wait } = yield* known
      yield* end
      yield* hint
      yield* pass(100)
      assert.strictEqual(looks(), 0)
      const waiting = yield* wait("a")
      yield* TestClock.adjust(0)
      assert.deepStrictEqual(yield* Fiber.join(waiting), completed)
      assert.strictEqual(looks(), 1)
    }))

  it.effect("during the first look, which has read before the end, leads to another one", () =>
    Effect.gen(function*() {
      const { end, hint, looks, slow, wait } = yield* known
      slow.ms = 100
      const waiting = yield* wait("a")
      yield* pass(50)
      yield* end
      yield* hint
      yield* pass(150)
      assert.isTrue(isDone(waiting))
      assert.strictEqual(looks(), 2)
    }))

  it.effect("during a later look, which has read before the end, leads to another one", () =>
    Effect.gen(function*() {
      const { end, hint, looks, slow, wait } = yield* known
      const waiting = yield* wait("a")
      yield* pass(1_000)
      slow.ms = 100
      yield* hint
      yield* pass(50)
      yield* end
      yield* hint
      yield* pass(200)
      assert.isTrue(isDone(waiting))
      assert.strictEqual(looks(), 3)
    }))

  it.effect("that comes twice, or before what it announces, does no harm", () =>
    Effect.gen(function*() {
      const { end, hint, looks, wait } = yield* known
      const waiting = yield* wait("a")
      yield* pass(1_000)
      yield* hint
      yield* pass(1_000)
      yield* end
      yield* Effect.andThen(hint, hint)
      yield* pass(100)
      assert.isTrue(isDone(waiting))
      assert.strictEqual(looks(), 3)
    }))

  it.effect("that names several instances leads to one look at all of them", () =>
    Effect.gen(function*() {
      const { looks, named, wait } = yield* known
      yield* Effect.forEach(["a", "b", "c"], wait)
      yield* pass(1_000)
      const before = looks()
      named("a", "unknown", "c", "b")
      yield* pass(100)
      assert.strictEqual(looks(), before + 1)
    }))

  it.effect("that comes again and again for nothing leads to at most 20 looks per second", () =>
    Effect.gen(function*() {
      const { end, hint, looks, wait } = yield* known
      const waiting = yield* wait("a")
      for (let i = 0; i < 200; i++) yield* Effect.andThen(hint, pass(10))
      assert.isAtMost(looks(), 42)
      yield* end
      yield* hint
      assert.isAtMost(yield* latenessMs(waiting), 50)
    }))
})

describe("A connection", () => {
  it.effect("that is lost makes waits look as without one; when it is back, all are looked at", () =>
    Effect.gen(function*() {
      const { connect, disconnect, end, forget, looks, wait } = yield* known
      const waiting = yield* wait("a")
      yield* pass(20_000)
      forget()
      disconnect()
      yield* pass(10_000)
      assert.isAtLeast(looks(), 19)
      assert.isAtMost(looks(), 22)
      yield* end
      connect()
      yield* pass(60)
      assert.isTrue(isDone(waiting))
      yield* pass(2_000)
      forget()
      yield* pass(2_000)
      assert.strictEqual(looks(), 0)
    }))
})

describe("A wait for an hour", () => {
  it.effect("costs a process a statement in two minutes", () =>
    Effect.gen(function*() {
      const { looks, waiter } = yield* open({ waiting: ["a"] })
      yield* pass(600_000, 1_000)
      looks.length = 0
      waiter.announced.length = 0
      yield* pass(3_600_000, 1_000)
      assert.isAtMost(looks.length + waiter.announced.length, 30)
      assert.isAtLeast(looks.length, 12)
    }))
})

describe("Many waits", () => {
  const ids = (count: number) => Array.from({ length: count }, (_, i) => `never-${i}`)

  for (const count of [10, 10_000]) {
    it.effect(`${count} cost few statements, and a hint leads to its instance alone`, () =>
      Effect.gen(function*() {
        const { end, looks, wait, waits } = yield* open({ waiting: ids(count) })
        yield* pass(10_000, 50)
        const last = yield* wait("last")
        yield* pass(600_000, 1_000)
        looks.length = 0
        yield* pass(300_000, 1_000)
        // Each is looked at every five minutes, or shortly before that, in statements of a thousand.
        assert.isAtMost(looks.length, count === 10 ? 2 : 22)
        const looked = new Set(looks.flat())
        assert.strictEqual(looked.size, count + 1, "instances that were looked at")
        looks.length = 0
        yield* end("last")
        yield* TestClock.adjust(0)
        assert.deepStrictEqual(yield* Fiber.join(last), completed)
        assert.isTrue(looks.length === 1 && looks[0]!.length < 1_000 && looks[0]!.includes("last"), `${looks.length}`)
        assert.isFalse(waits.some(isDone))
      }))
  }

  it.effect("that end together are found in few looks", () =>
    Effect.gen(function*() {
      const { ender, looks, waits } = yield* open({ waiting: ids(500) })
      yield* pass(5_000, 50)
      yield* Effect.forEach(ids(500), (id) => ender.provider.startOrchestration(start(id)), {
        concurrency: "unbounded"
      })
      looks.length = 0
      yield* Effect.forEach(ids(500), () => Notified.run(ender.provider, Notified.completion), { discard: true })
      yield* pass(100)
      assert.isTrue(waits.every(isDone))
      assert.isAtMost(looks.length, 12)
    }))
})

describe("An end stored by a statement whose answer is lost", () => {
  it.effect("is found soon by callers of the same process", () =>
    Effect.gen(function*() {
      const lost = new ProviderError.ConnectionLost({ problem: "cut" })
      const { provider } = yield* Notified.make().process({
        change: (driver) => ({
          ackOrchestrationItems: (acks) =>
            Effect.andThen(
              driver.ackOrchestrationItems(acks),
              Effect.fail(new ProviderError.ProviderError({ operation: "ackOrchestrationItems", reason: lost }))
            )
        })
      })
      const waiting = yield* Effect.forkChild(provider.awaitEnd({ instanceId: "a" }))
      yield* pass(60_000)
      yield* provider.startOrchestration(start("a"))
      const turn = yield* Effect.forkChild(Effect.exit(Notified.run(provider, Notified.completion)))
      yield* pass(500)
      assert.isTrue(Exit.isFailure(yield* Fiber.join(turn)))
      assert.isAtMost(yield* latenessMs(waiting), 1_000)
    }))
})
