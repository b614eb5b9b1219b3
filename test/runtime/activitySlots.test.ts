import { assert, describe, it } from "@effect/vitest"
import { Activity, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { FromDriver, MemoryDriver, ProviderDriver, ProviderError } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import { ActivitySlots } from "../../src/runtime/activitySlots.ts"
import { MostAhead } from "../../src/runtime/workerDispatcher.ts"
import type { Options } from "../utils/app.ts"
import * as LocalProcess from "../utils/localProcess.ts"

/** Two are claimed ahead at most: for handlers of no time, as in virtual time, it would be all there are. */
const inMemory = Effect.provide([MemoryDriver.layer, Logger.layer([]), Layer.succeed(MostAhead, 2)])

const Step = Activity.make("Step", { payload: Schema.String, success: Schema.String })

/** Lets everything happen that happens at this time. */
const settle = Effect.repeat(TestClock.adjust(0), { times: 20 })

/** Lets time pass in small steps. */
const pass = (ms: number) => Effect.repeat(Effect.andThen(TestClock.adjust(10), settle), { times: ms / 10 - 1 })

/** Activities without an orchestration, in the store of the test. */
const enqueue = Effect.fnUntraced(function*(...names: ReadonlyArray<string>) {
  const provider = yield* FromDriver.make(yield* ProviderDriver.ProviderDriver)
  for (const [id, name] of names.entries()) {
    yield* provider.enqueueForWorker({
      _tag: "ActivityExecute",
      instance: name,
      executionId: 1,
      id: id + 1,
      name: "Step",
      input: JSON.stringify(name)
    })
  }
})

/** Four of them are less than 16 MiB. */
const big = "x".repeat(4_000_000)

/**
 * A process that runs steps. Those that are named `short…`, and `big…` with a big result, end at once, others when they
 * are ended; `claimed` are the numbers of activities in the answers of its claims.
 */
const process = Effect.fnUntraced(function*(
  workerConcurrency: number,
  options: {
    readonly runtime?: Options["runtime"]
    readonly change?: Parameters<typeof LocalProcess.intercept>[1]
  } = {}
) {
  const driver = yield* ProviderDriver.ProviderDriver
  const begun: Array<string> = []
  const deliveries: Array<number> = []
  const claimed: Array<number> = []
  const ends = new Map<string, Deferred.Deferred<void>>()
  const endOf = (name: string) => {
    const end = ends.get(name) ?? Deferred.makeUnsafe<void>()
    ends.set(name, end)
    return end
  }
  const intercepted = LocalProcess.intercept(driver, options.change ?? ((call) => call))
  const counting = {
    ...intercepted,
    fetchWorkItems: (request: Parameters<typeof driver.fetchWorkItems>[0]) =>
      Effect.tap(
        intercepted.fetchWorkItems(request),
        ({ length }) => Effect.sync(() => length > 0 && claimed.push(length))
      )
  }
  const { client, stop } = yield* LocalProcess.start(
    Runtime.layer({ orchestrations: [Single, Stoppable], activities: [Step] }).pipe(
      Layer.provide([
        Step.toLayer((name) =>
          Effect.flatMap(Activity.Call, ({ deliveryNumber }) =>
            Effect.suspend(() => {
              begun.push(name)
              deliveries.push(deliveryNumber)
              if (name.startsWith("big")) return Effect.succeed(big)
              return name.startsWith("short") ? Effect.succeed("") : Effect.as(Deferred.await(endOf(name)), "")
            }))
        ),
        Single.toLayer((name) => Effect.asVoid(Step.execute(name))),
        Stoppable.toLayer(() =>
          Effect.raceFirst(
            Effect.all([Step.execute("runs"), Step.execute("waits")], { concurrency: "unbounded", discard: true }),
            Stop.wait
          )
        )
      ])
    ),
    {
      provider: { longPolling: { aggressivePollInterval: "1 second" } },
      runtime: { workerConcurrency, optimisticTurns: false, ...options.runtime }
    }
  ).pipe(Effect.provideService(ProviderDriver.ProviderDriver, counting))
  return { client, stop, begun, deliveries, claimed, end: (name: string) => Deferred.succeed(endOf(name), undefined) }
})

const Stop = Signal.make("Stop")
const Stoppable = Orchestration.make("Stoppable")
const Single = Orchestration.make("Single", { payload: Schema.String })

const numbered = (name: string, count: number) => Array.from({ length: count }, (_, i) => `${name} ${i}`)

describe("A slot of an activity:", () => {
  it.effect("is free as soon as the handler has ended, while the store does not answer", () =>
    Effect.gen(function*() {
      const stored = yield* Deferred.make<void>()
      yield* enqueue("first", "second", "third")
      const one = yield* process(1, {
        change: (call, operation) => operation === "ackWorkItems" ? Effect.andThen(Deferred.await(stored), call) : call
      })
      yield* settle
      assert.deepStrictEqual(one.begun, ["first"])
      yield* one.end("first")
      yield* settle
      assert.deepStrictEqual(one.begun, ["first", "second"])
      yield* one.end("second")
      yield* settle
      assert.deepStrictEqual(one.begun, ["first", "second", "third"])
    }).pipe(inMemory))

  it.effect("an outage bounds the outcomes that wait for the store, and after it each handler has run once", () =>
    Effect.gen(function*() {
      const names = numbered("short", 300)
      yield* enqueue(...names)
      const one = yield* process(1, {
        change: (call, operation) =>
          operation !== "ackWorkItems" ?
            call :
            Effect.flatMap(Clock.currentTimeMillis, (now) =>
              now >= 60_000 ? call : Effect.fail(
                new ProviderError.ProviderError({
                  operation,
                  reason: new ProviderError.ConnectionLost({ problem: "cut" })
                })
              ))
      })
      yield* pass(1_000)
      const during = one.begun.length
      yield* Effect.repeat(TestClock.adjust("1 second"), { times: 50 })
      assert.strictEqual(one.begun.length, during)
      assert.isAbove(during, 1)
      assert.isBelow(during, 100)
      yield* Effect.repeat(Effect.andThen(TestClock.adjust("100 millis"), settle), {
        until: () => one.begun.length === names.length
      })
      yield* pass(1_000)
      assert.deepStrictEqual(one.begun, names)
    }).pipe(inMemory))
})

describe("Results that are not stored yet", () => {
  it.effect("are bounded in bytes: further handlers begin when the store has taken some", () =>
    Effect.gen(function*() {
      const stored = yield* Deferred.make<void>()
      const names = numbered("big", 16)
      yield* enqueue(...names)
      const one = yield* process(2, {
        change: (call, operation) => operation === "ackWorkItems" ? Effect.andThen(Deferred.await(stored), call) : call
      })
      yield* pass(1_000)
      // Those that reach the bound, and those that ran beside them.
      assert.isAtLeast(one.begun.length, 5)
      assert.isAtMost(one.begun.length, 6)
      yield* Deferred.succeed(stored, undefined)
      yield* Effect.repeat(Effect.andThen(TestClock.adjust("100 millis"), settle), {
        until: () => one.begun.length >= names.length
      })
      yield* pass(1_000)
      assert.deepStrictEqual(one.begun, names)
    }).pipe(inMemory))

  it.effect("are bounded in bytes, too, where they are stored with the turns they lead to", () =>
    Effect.gen(function*() {
      const stored = yield* Deferred.make<void>()
      let turns = 0
      const one = yield* process(2, {
        runtime: { optimisticTurns: true },
        change: (call, operation) =>
          operation !== "advanceOrchestrations"
            ? call
            : Effect.suspend(() => {
              turns++
              return Effect.andThen(Deferred.await(stored), call)
            })
      })
      const names = numbered("big", 12)
      const ended = yield* Effect.forkChild(
        Effect.forEach(names, (name) => one.client.execute(Single, { instanceId: name, payload: name }), {
          concurrency: "unbounded"
        })
      )
      yield* pass(1_000)
      assert.isAbove(turns, 0)
      assert.isAtLeast(one.begun.length, 5)
      assert.isAtMost(one.begun.length, 6)
      yield* Deferred.succeed(stored, undefined)
      yield* Effect.repeat(Effect.andThen(TestClock.adjust("100 millis"), settle), {
        until: () => one.begun.length >= names.length
      })
      yield* pass(1_000)
      yield* Fiber.join(ended)
      assert.sameMembers(one.begun, names)
    }).pipe(inMemory))

  it.effect("do not count when they are small", () =>
    Effect.gen(function*() {
      yield* enqueue(...numbered("short", 100))
      const one = yield* process(2, {
        change: (call, operation) => operation === "ackWorkItems" ? Effect.never : call
      })
      yield* pass(1_000)
      // As many as an outage may leave.
      assert.isAtLeast(one.begun.length, 32)
    }).pipe(inMemory))
})

describe("Activities that are claimed ahead of a slot", () => {
  it.effect("run in the order of their claims", () =>
    Effect.gen(function*() {
      const names = numbered("short", 40)
      yield* enqueue(...names)
      const one = yield* process(2)
      yield* pass(200)
      assert.deepStrictEqual(one.begun, names)
      // At the first claim no handler has ended yet.
      assert.deepStrictEqual(one.claimed.slice(0, 3), [2, 4, 4])
    }).pipe(inMemory))

  it.effect("are given back uncounted when their slot is taken for long, and another process runs them", () =>
    Effect.gen(function*() {
      yield* enqueue("short")
      const busy = yield* process(2)
      yield* settle
      yield* enqueue(...numbered("long", 5))
      yield* pass(1_200)
      assert.deepStrictEqual(busy.begun, ["short", "long 0", "long 1"])
      assert.deepStrictEqual(busy.claimed, [1, 4])
      const idle = yield* process(2)
      yield* pass(200)
      assert.deepStrictEqual(idle.begun, ["long 2", "long 3"])
      assert.deepStrictEqual(idle.deliveries, [1, 1])
      // Nothing is claimed ahead behind handlers that run for long.
      yield* pass(3_000)
      assert.deepStrictEqual([busy.claimed, idle.claimed], [[1, 4], [2]])
      yield* busy.end("long 1")
      yield* settle
      assert.deepStrictEqual(busy.begun.at(-1), "long 4")
    }).pipe(inMemory))

  it.effect("do not exist while handlers take long on average", () =>
    Effect.gen(function*() {
      const names = numbered("long", 8)
      yield* enqueue(...names)
      const one = yield* process(2)
      for (const name of names) {
        yield* pass(100)
        yield* one.end(name)
      }
      yield* settle
      assert.deepStrictEqual(one.begun, names)
      assert.deepStrictEqual(one.claimed, [2, 1, 1, 1, 1, 1, 1])
    }).pipe(inMemory))

  it.effect("are given back at once by a shutdown, uncounted, while what runs may end", () =>
    Effect.gen(function*() {
      yield* enqueue("short")
      const first = yield* process(1, { runtime: { shutdownTimeout: "1 minute" } })
      yield* settle
      yield* enqueue("runs", "waits")
      yield* pass(1_000)
      // Within the time that it may wait for a slot.
      assert.deepStrictEqual(first.claimed, [1, 2])
      const stopping = yield* Effect.forkChild(first.stop)
      yield* settle
      const second = yield* process(1)
      yield* settle
      assert.deepStrictEqual([first.begun, second.begun], [["short", "runs"], ["waits"]])
      assert.deepStrictEqual(second.deliveries, [1])
      assert.isUndefined(stopping.pollUnsafe())
      yield* first.end("runs")
      yield* settle
      assert.isDefined(stopping.pollUnsafe())
    }).pipe(inMemory))

  it.effect("do not begin while a shutdown waits for a claim under way", () =>
    Effect.gen(function*() {
      let isSlow = false
      let slowClaims = 0
      yield* enqueue("short")
      const first = yield* process(2, {
        runtime: { shutdownTimeout: "1 minute" },
        change: (call, operation) => {
          if (operation !== "fetchWorkItems" || !isSlow) return call
          slowClaims++
          return Effect.delay(call, "1 second")
        }
      })
      yield* settle
      yield* enqueue("a", "b", "c", "d", "e")
      yield* pass(1_000)
      isSlow = true
      // "c" takes its slot, and there is room for a claim.
      yield* first.end("a")
      yield* settle
      assert.strictEqual(slowClaims, 1)
      const stopping = yield* Effect.forkChild(first.stop)
      yield* settle
      yield* first.end("b")
      yield* settle
      assert.deepStrictEqual(first.begun, ["short", "a", "b", "c"])
      yield* first.end("c")
      yield* pass(1_000)
      assert.isDefined(stopping.pollUnsafe())
      const second = yield* process(2)
      yield* settle
      assert.deepStrictEqual([second.begun, second.deliveries], [["d", "e"], [1, 1]])
    }).pipe(inMemory))

  it.effect("never begin once they are cancelled", () =>
    Effect.gen(function*() {
      yield* enqueue("short")
      const one = yield* process(1)
      yield* settle
      yield* one.client.start(Stoppable, { instanceId: "i" })
      yield* settle
      assert.deepStrictEqual([one.begun, one.claimed], [["short", "runs"], [1, 2]])
      yield* one.client.send(Stop, "i")
      yield* one.client.wait(Stoppable, "i")
      yield* pass(2_000)
      assert.deepStrictEqual(one.begun, ["short", "runs"])
      assert.deepStrictEqual(one.claimed, [1, 2])
    }).pipe(inMemory))
})

describe("ActivitySlots", () => {
  const make = (workerConcurrency: number, mostAhead = 16) => {
    let nowMs = 0
    const slots = new ActivitySlots<string>({ workerConcurrency }, { nowMs: () => nowMs, mostAhead })
    return { slots, pass: (ms: number) => void (nowMs += ms) }
  }

  it("reserve: no more than are free, and neither a claim nor another caller gets them", () => {
    const { slots } = make(4)
    slots.add("a")
    assert.strictEqual(slots.next(), "a")
    assert.strictEqual(slots.reserve(2), 2)
    assert.strictEqual(slots.room(), 1)
    assert.strictEqual(slots.reserve(5), 1)
    assert.deepStrictEqual([slots.room(), slots.reserve(1)], [0, 0])
    slots.release(2)
    assert.strictEqual(slots.room(), 2)
  })

  it("reserve: those that wait for a slot come first", () => {
    const { pass, slots } = make(2)
    for (const name of ["a", "b"]) slots.add(name)
    assert.deepStrictEqual([slots.next(), slots.next()], ["a", "b"])
    pass(25)
    slots.forget("a")
    slots.add("a")
    slots.add("c")
    slots.add("d")
    assert.strictEqual(slots.next(), "a")
    // One per slot besides the slots, two of which run and two of which wait.
    assert.strictEqual(slots.reserve(3), 0)
    slots.forget("b")
    assert.strictEqual(slots.reserve(3), 1)
    assert.deepStrictEqual([slots.next(), slots.next()], ["c", undefined])
  })

  it("as many are claimed ahead as the slots run within 25 ms, at least one each, and none for slow handlers", () => {
    const ahead = (handlerMs: number, mostAhead = 5_000) => {
      const { pass, slots } = make(2, mostAhead)
      slots.add("a")
      slots.next()
      pass(handlerMs)
      slots.settling("a", 0)
      slots.forget("a")
      return slots.room() - 2
    }
    assert.deepStrictEqual([ahead(1), ahead(10), ahead(25), ahead(50), ahead(60)], [50, 5, 2, 2, 0])
    assert.deepStrictEqual([ahead(0), ahead(0, 16)], [5_000, 16])
  })

  it("many outcomes may wait for the store, unless the first of them waits for long", () => {
    const { pass, slots } = make(1, 5_000)
    for (let i = 0; i < 1_000; i++) {
      slots.add(`${i}`)
      slots.next()
      slots.settling(`${i}`, 0)
    }
    assert.isAbove(slots.room(), 0)
    pass(1_001)
    assert.strictEqual(slots.room(), 0)
    // What is stored makes room again.
    for (let i = 0; i < 970; i++) slots.forget(`${i}`)
    assert.isAbove(slots.room(), 0)
  })

  it("fewer run at once where outcomes have megabytes", () => {
    const running = (workerConcurrency: number, bytes: number) => {
      const { slots } = make(workerConcurrency)
      for (let i = 0; i < 100; i++) {
        slots.add(`before ${i}`)
        slots.next()
        slots.settling(`before ${i}`, bytes)
        slots.forget(`before ${i}`)
      }
      let begun = 0
      for (let i = 0; i < 100; i++) slots.add(`${i}`)
      while (slots.next() !== undefined) begun++
      return begun
    }
    assert.deepStrictEqual([running(40, 1_000), running(40, 1_500_000), running(40, 2_000_000)], [40, 40, 33])
    assert.deepStrictEqual([running(40, 8_000_000), running(8, 8_000_000)], [16, 8])
  })

  it("no more outcomes wait for the store than may be claimed ahead", () => {
    const { slots } = make(1, 100)
    for (let i = 0; i < 100; i++) {
      assert.isAbove(slots.room(), 0)
      slots.add(`${i}`)
      slots.next()
      slots.settling(`${i}`, 0)
    }
    assert.strictEqual(slots.room(), 0)
  })

  it("nothing is claimed ahead for slots whose handlers run for long", () => {
    const { pass, slots } = make(3)
    for (const name of ["short", "long", "longer"]) slots.add(name)
    while (slots.next() !== undefined);
    pass(25)
    slots.settling("short", 0)
    slots.forget("short")
    assert.strictEqual(slots.room(), 4)
    pass(60)
    assert.strictEqual(slots.room(), 2)
  })

  it("one that gets a slot and does not begin does not count for how long handlers run", () => {
    const { pass, slots } = make(1, 5)
    slots.add("slow")
    slots.next()
    pass(60)
    slots.settling("slow", 0)
    slots.forget("slow")
    assert.strictEqual(slots.room(), 1)
    slots.add("late")
    assert.strictEqual(slots.next(), "late")
    slots.notBegun("late")
    slots.settling("late", 0)
    slots.forget("late")
    assert.strictEqual(slots.room(), 1)
  })

  it("one that waits for its lock before it begins counts from then on", () => {
    const { pass, slots } = make(1, 5)
    slots.add("renewed")
    slots.next()
    pass(1_000)
    slots.begunLate("renewed")
    pass(25)
    slots.settling("renewed", 0)
    slots.forget("renewed")
    assert.strictEqual(slots.room(), 2)
  })

  it("nothing is claimed ahead for a second after an activity waited too long", () => {
    const { pass, slots } = make(1)
    slots.add("short")
    slots.next()
    pass(25)
    slots.settling("short", 0)
    slots.forget("short")
    assert.strictEqual(slots.room(), 2)
    slots.add("long")
    slots.add("next")
    slots.next()
    pass(99)
    assert.deepStrictEqual([slots.untilOverdueMs(), slots.takeOverdue()], [1, []])
    pass(1)
    assert.deepStrictEqual(slots.takeOverdue(), ["next"])
    slots.settling("long", 0)
    slots.forget("long")
    assert.strictEqual(slots.room(), 1)
    pass(1_000)
    assert.strictEqual(slots.room(), 2)
  })
})
