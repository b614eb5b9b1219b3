import { assert, describe, it } from "@effect/vitest"
import { FromDriver, MemoryDriver, Provider, ProviderDriver, ProviderError } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import { start } from "../utils/starts.ts"

type Service = Provider.Provider["Service"]
type Driver = ProviderDriver.ProviderDriver["Service"]

interface Look {
  readonly ids: ReadonlyArray<string>
  readonly atMs: number
}

const turn: Provider.Turn = {
  executionId: 1,
  historyDelta: [],
  workerItems: [],
  orchestratorItems: [],
  metadata: {},
  cancelledActivities: []
}

const event = (instanceId: string) => ({
  instanceId,
  executionId: 1,
  eventId: 1,
  sourceEventId: null,
  timestampMs: 0,
  duroxideVersion: "1000.0.0"
})

const completion = (instanceId: string): Provider.Turn => ({
  ...turn,
  historyDelta: [{ _tag: "OrchestrationCompleted", ...event(instanceId), output: "1" }],
  metadata: { status: "Completed", output: "1", orchestrationName: "O", orchestrationVersion: "1.0.0" }
})

const details = { _tag: "Configuration", kind: "Nondeterminism", resource: "O", message: null } as const

const failure = (instanceId: string): Provider.Turn => ({
  ...completion(instanceId),
  historyDelta: [{ _tag: "OrchestrationFailed", ...event(instanceId), details }],
  metadata: { ...completion(instanceId).metadata, status: "Failed", output: "it failed" }
})

const completed = Option.some({ _tag: "Completed", output: "1" } as const)
const failed = Option.some({ _tag: "Failed", details } as const)

/** Takes the only instance that can be claimed, and stores a turn of it. */
const run = (provider: Service, turnOf: (instanceId: string) => Provider.Turn) =>
  Effect.gen(function*() {
    const claimed = Option.getOrThrow(
      yield* provider.fetchOrchestrationItem({
        lockTimeout: Duration.seconds(30),
        pollTimeout: Duration.zero,
        versions: Option.none()
      })
    )
    yield* provider.ackOrchestrationItem(claimed.lockToken, turnOf(claimed.item.instanceId))
  })

/** Two processes that share a store, and the looks of the first, each of which takes `lookMs`. */
const open = Effect.fnUntraced(function*({ change = {}, lookMs = 0 }: {
  readonly change?: Partial<Driver>
  readonly lookMs?: number
} = {}) {
  const driver = MemoryDriver.make()
  const looks: Array<Look> = []
  const counts = { underWay: 0, most: 0 }
  const watched: Driver = {
    ...driver,
    readEnds: (ids) =>
      Effect.gen(function*() {
        looks.push({ ids, atMs: yield* Clock.currentTimeMillis })
        counts.most = Math.max(counts.most, ++counts.underWay)
        if (lookMs > 0) yield* Effect.sleep(lookMs)
        return yield* driver.readEnds(ids)
      }).pipe(Effect.ensuring(Effect.sync(() => counts.underWay--))),
    ...change
  }
  return {
    driver,
    looks,
    counts,
    provider: yield* FromDriver.make(watched),
    other: yield* FromDriver.make(driver)
  }
})

/** Lets time pass in small steps, as it does. */
const pass = (ms: number, stepMs = 10) =>
  Effect.gen(function*() {
    for (let passed = 0; passed < ms; passed += stepMs) yield* TestClock.adjust(stepMs)
  })

const isDone = (fiber: Fiber.Fiber<unknown, unknown>) => fiber.pollUnsafe() !== undefined

const reasonOf = (exit: Exit.Exit<unknown, ProviderError.ProviderError>) =>
  Exit.isFailure(exit) && exit.cause.reasons[0]?._tag === "Fail" ? exit.cause.reasons[0].error.reason._tag : "none"

describe("An end stored by this process", () => {
  for (const [name, turnOf, end] of [["result", completion, completed], ["failure", failure, failed]] as const) {
    it.effect(`brings its ${name} to every caller at once, and to no caller of another instance`, () =>
      Effect.gen(function*() {
        const { looks, provider } = yield* open()
        const waits = yield* Effect.forEach(
          ["a", "a", "b"],
          (instanceId) => Effect.forkChild(provider.awaitEnd({ instanceId }))
        )
        yield* TestClock.adjust(0)
        yield* provider.startOrchestration(start("a"))
        const before = looks.length
        yield* run(provider, turnOf)
        assert.deepStrictEqual(yield* Effect.forEach(waits.slice(0, 2), Fiber.join), [end, end])
        assert.isFalse(isDone(waits[2]!))
        assert.lengthOf(looks, before)
      }))
  }

  it.effect("needs no read after a start of this process, whether the start is part of the wait or comes before it", () =>
    Effect.gen(function*() {
      const { looks, provider } = yield* open()
      const executed = yield* Effect.forkChild(
        provider.awaitEnd({ instanceId: "a", start: provider.startOrchestration(start("a")) })
      )
      yield* TestClock.adjust(90)
      yield* run(provider, completion)
      assert.deepStrictEqual(yield* Fiber.join(executed), completed)

      yield* provider.startOrchestration(start("b"))
      yield* TestClock.adjust(50)
      const waited = yield* Effect.forkChild(provider.awaitEnd({ instanceId: "b" }))
      yield* TestClock.adjust(40)
      yield* run(provider, completion)
      assert.deepStrictEqual(yield* Fiber.join(waited), completed)
      assert.deepStrictEqual(looks, [])
    }))

  it.effect("needs no read if it comes with the start itself", () =>
    Effect.gen(function*() {
      const { looks, provider } = yield* open()
      const startAndRun = Effect.andThen(provider.startOrchestration(start("a")), run(provider, completion))
      assert.deepStrictEqual(yield* provider.awaitEnd({ instanceId: "a", start: startAndRun }), completed)
      assert.deepStrictEqual(looks, [])
    }))

  it.effect("is read by a wait that begins later", () =>
    Effect.gen(function*() {
      const { looks, provider } = yield* open()
      yield* provider.startOrchestration(start("a"))
      yield* run(provider, failure)
      assert.deepStrictEqual(yield* provider.awaitEnd({ instanceId: "a" }), failed)
      assert.lengthOf(looks, 1)
    }))

  it.effect("is found by a look if the answer of the ack was lost", () =>
    Effect.gen(function*() {
      const driver = MemoryDriver.make()
      const provider = yield* FromDriver.make({
        ...driver,
        ackOrchestrationItems: (acks) =>
          Effect.andThen(
            driver.ackOrchestrationItems(acks),
            Effect.fail(
              new ProviderError.ProviderError({
                operation: "ackOrchestrationItems",
                reason: new ProviderError.ConnectionLost({ problem: "reset" })
              })
            )
          )
      })
      const waiting = yield* Effect.forkChild(
        provider.awaitEnd({ instanceId: "a", start: provider.startOrchestration(start("a")) })
      )
      yield* TestClock.adjust(0)
      const ack = yield* Effect.forkChild(Effect.exit(run(provider, completion)))
      yield* pass(500)
      assert.isTrue(Exit.isFailure(yield* Fiber.join(ack)))
      assert.deepStrictEqual(yield* Fiber.join(waiting), completed)
    }).pipe(Effect.provide(Logger.layer([]))))

  it.effect("does not come with a turn that continues the instance, as new or in the same execution", () =>
    Effect.gen(function*() {
      const { other, provider } = yield* open()
      yield* other.startOrchestration(start("a"))
      const waiting = yield* Effect.forkChild(provider.awaitEnd({ instanceId: "a" }))
      yield* TestClock.adjust(0)
      yield* run(provider, (instanceId) => ({
        ...turn,
        historyDelta: [{ _tag: "OrchestrationContinuedAsNew", ...event(instanceId), input: "2" }],
        orchestratorItems: [
          { _tag: "ContinueAsNew", instance: instanceId, orchestration: "O", input: "2", version: "1.0.0" }
        ],
        metadata: {
          status: "ContinuedAsNew",
          output: "2",
          orchestrationName: "O",
          orchestrationVersion: "1.0.0"
        }
      }))
      yield* pass(3000)
      assert.isFalse(isDone(waiting))
    }))
})

describe("An end stored by another process", () => {
  it.effect("is found soon after a short wait, within half a second after a long one", () =>
    Effect.gen(function*() {
      const { looks, other, provider } = yield* open()
      const lateness = Effect.fnUntraced(function*(instanceId: string, afterMs: number) {
        yield* other.startOrchestration(start(instanceId))
        const waiting = yield* Effect.forkChild(provider.awaitEnd({ instanceId }))
        yield* pass(afterMs)
        yield* run(other, completion)
        const endedMs = yield* Clock.currentTimeMillis
        while (!isDone(waiting)) yield* pass(10)
        assert.deepStrictEqual(yield* Fiber.join(waiting), completed)
        return (yield* Clock.currentTimeMillis) - endedMs
      })
      assert.isAtMost(yield* lateness("soon", 30), 100)
      assert.isAtMost(yield* lateness("later", 10_000), 510)
      // One first look each, 20, 40, 80, 160, 320, and then every 500 ms.
      assert.isAtMost(looks.length, 32)
    }))

  it.effect("is found by a caller that looks once, and is not missed by a short wait after a start", () =>
    Effect.gen(function*() {
      const { other, provider } = yield* open()
      for (const timeout of [0, 1, 99]) {
        const instanceId = `timeout-${timeout}`
        yield* provider.startOrchestration(start(instanceId))
        yield* run(other, completion)
        const waiting = yield* Effect.forkChild(provider.awaitEnd({ instanceId, timeout: Duration.millis(timeout) }))
        yield* TestClock.adjust(timeout)
        assert.deepStrictEqual(yield* Fiber.join(waiting), completed)
      }
    }))

  it.effect("is found if the instance is started only during the wait", () =>
    Effect.gen(function*() {
      const { other, provider } = yield* open()
      const waiting = yield* Effect.forkChild(provider.awaitEnd({ instanceId: "a" }))
      yield* pass(1000)
      yield* other.startOrchestration(start("a"))
      yield* run(other, completion)
      yield* pass(500)
      assert.deepStrictEqual(yield* Fiber.join(waiting), completed)
    }))

  it.effect("is found although turns of the same instance are stored here", () =>
    Effect.gen(function*() {
      const { other, provider } = yield* open()
      yield* provider.startOrchestration(start("a"))
      const waiting = yield* Effect.forkChild(provider.awaitEnd({ instanceId: "a" }))
      yield* TestClock.adjust(0)
      yield* run(provider, (instanceId) => ({
        ...turn,
        historyDelta: [{ _tag: "TimerCreated", ...event(instanceId), fireAtMs: 0 }],
        orchestratorItems: [
          { _tag: "CancelInstance", instance: instanceId, reason: "" }
        ],
        metadata: { orchestrationName: "O", orchestrationVersion: "1.0.0" }
      }))
      yield* run(other, (instanceId) => ({
        ...completion(instanceId),
        historyDelta: completion(instanceId).historyDelta.map((event) => ({ ...event, eventId: 2 }))
      }))
      yield* pass(510)
      assert.deepStrictEqual(yield* Fiber.join(waiting), completed)
    }))
})

describe("A wait", () => {
  it.effect("ends with none after its timeout, for which a slow first look does not count", () =>
    Effect.gen(function*() {
      const { provider } = yield* open({ lookMs: 300 })
      const waiting = yield* Effect.forkChild(
        provider.awaitEnd({ instanceId: "a", timeout: Duration.millis(100) })
      )
      yield* pass(390)
      assert.isFalse(isDone(waiting))
      yield* pass(10)
      assert.deepStrictEqual(yield* Fiber.join(waiting), Option.none())
    }))

  it.effect("that is interrupted or over is no longer looked for, while another for the same instance continues", () =>
    Effect.gen(function*() {
      const { looks, provider } = yield* open()
      const waits = yield* Effect.forEach(
        ["a", "a", "b"],
        (instanceId) => Effect.forkChild(provider.awaitEnd({ instanceId }))
      )
      yield* pass(1000)
      yield* Fiber.interrupt(waits[0]!)
      yield* Fiber.interrupt(waits[2]!)
      looks.length = 0
      yield* pass(2000)
      assert.isAbove(looks.length, 1)
      assert.isTrue(looks.every(({ ids }) => ids.join() === "a"), JSON.stringify(looks))
      yield* Fiber.interrupt(waits[1]!)
      looks.length = 0
      yield* pass(2000)
      assert.deepStrictEqual(looks, [])
    }))

  it.effect("fails with the error of a start, and starts no look", () =>
    Effect.gen(function*() {
      const { looks, provider } = yield* open()
      const error = yield* Effect.flip(provider.awaitEnd({ instanceId: "a", start: Effect.fail("refused") }))
      assert.strictEqual(error, "refused")
      yield* pass(1000)
      assert.deepStrictEqual(looks, [])
    }))

  it.effect("fails with the error of a look that was repeated without success; the next wait is as good as any", () =>
    Effect.gen(function*() {
      const driver = MemoryDriver.make()
      let isDown = false
      const provider = yield* FromDriver.make({
        ...driver,
        readEnds: (ids) =>
          Effect.suspend(() =>
            isDown
              ? Effect.fail(
                new ProviderError.ProviderError({
                  operation: "readEnds",
                  reason: new ProviderError.Unavailable({ problem: "down", sqlState: null })
                })
              )
              : driver.readEnds(ids)
          )
      })
      yield* provider.startOrchestration(start("a"))
      const waiting = yield* Effect.forkChild(Effect.exit(provider.awaitEnd({ instanceId: "a" })))
      yield* pass(200)
      isDown = true
      yield* pass(1000)
      assert.strictEqual(reasonOf(yield* Fiber.join(waiting)), "Unavailable")
      isDown = false
      const again = yield* Effect.forkChild(provider.awaitEnd({ instanceId: "a" }))
      yield* pass(1000)
      assert.isFalse(isDone(again))
      yield* run(provider, completion)
      assert.deepStrictEqual(yield* Fiber.join(again), completed)
    }).pipe(Effect.provide(Logger.layer([]))))

  it.effect("fails with Closed when the provider is closed, during its first look and after it", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const driver = MemoryDriver.make()
      const provider = yield* FromDriver.make({
        ...driver,
        readEnds: (ids) => ids.includes("stuck") ? Effect.never : driver.readEnds(ids)
      }).pipe(Scope.provide(scope))
      const wait = (instanceId: string) => Effect.exit(provider.awaitEnd({ instanceId }))
      const waits = [yield* Effect.forkChild(wait("a"))]
      yield* pass(100)
      waits.push(yield* Effect.forkChild(wait("stuck")))
      yield* pass(100)
      yield* Scope.close(scope, Exit.void)
      const exits = [...(yield* Effect.forEach(waits, Fiber.join)), yield* wait("b")]
      assert.deepStrictEqual(exits.map(reasonOf), ["Closed", "Closed", "Closed"])
    }))

  it.effect("refuses an id that no store can hold", () =>
    Effect.gen(function*() {
      const { provider } = yield* open()
      const error = yield* Effect.flip(provider.awaitEnd({ instanceId: "\0" }))
      assert.strictEqual(error.reason._tag, "InvalidInput")
    }))
})

describe("Many waits", () => {
  const ids = (count: number) => Array.from({ length: count }, (_, i) => `never-${i}`)

  /** Per second, after the waits have lasted for a while. */
  const steadyLooks = Effect.fnUntraced(function*(count: number) {
    const { counts, looks, other, provider } = yield* open({ lookMs: 5 })
    yield* Effect.forEach(ids(count), (instanceId) => Effect.forkChild(provider.awaitEnd({ instanceId })))
    yield* pass(10_000, 50)
    looks.length = 0
    counts.most = 0
    yield* pass(10_000, 50)
    assert.strictEqual(counts.most, 1, "statements at once")
    assert.isAtMost(Math.max(...looks.map((look) => look.ids.length)), 1_000)
    const looked = new Set(looks.flatMap((look) => look.ids))
    assert.strictEqual(looked.size, count, "instances that were looked at")

    // One that comes last is found as soon as a few are, or nearly.
    yield* other.startOrchestration(start("last"))
    const last = yield* Effect.forkChild(provider.awaitEnd({ instanceId: "last" }))
    yield* pass(100)
    yield* run(other, completion)
    yield* pass(1000, 50)
    assert.deepStrictEqual(yield* Fiber.join(last), completed)
    return { statements: looks.length / 10, ids: looks.reduce((sum, look) => sum + look.ids.length, 0) / 10 }
  })

  it.effect("10,000 cost no more statements than 10, and a bounded number of lookups", () =>
    Effect.gen(function*() {
      const few = yield* steadyLooks(10)
      assert.isAtMost(few.statements, 3)
      const many = yield* steadyLooks(10_000)
      assert.isAtMost(many.statements, 5)
      assert.isAtMost(many.ids, 5_000)
    }))

  it.effect("first looks of waits that begin together share statements", () =>
    Effect.gen(function*() {
      const { looks, provider } = yield* open()
      yield* Effect.forEach(ids(640), (instanceId) => Effect.forkChild(provider.awaitEnd({ instanceId })))
      yield* TestClock.adjust(0)
      assert.isAtMost(looks.length, 20)
    }))
})
