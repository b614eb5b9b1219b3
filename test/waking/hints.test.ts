import { assert, describe, it } from "@effect/vitest"
import { Notifier } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Logger from "effect/Logger"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import * as hintsOf from "../../src/waking/hints.ts"
import * as Clocks from "../utils/clock.ts"
import { manual, pass, settle } from "../utils/longPolling.ts"

const { Hint } = Notifier

const options = { notifyDeliveryTimeoutMs: 100 }

const work = (visibleAtMs: number, queue: Notifier.Queue = "worker") => Hint.Work({ queue, visibleAtMs })

describe("Hints", () => {
  it.effect("five leave at once, then those of 20 milliseconds together", () =>
    Effect.gen(function*() {
      const { notifier, sent } = manual()
      const hints = yield* hintsOf.make(notifier, options)
      for (let i = 0; i < 5; i++) {
        hints.announce(work(0))
        yield* settle
        assert.deepStrictEqual(sent.splice(0), [work(0)])
      }
      hints.announce(Hint.Changed({ fingerprints: ["a", "b"] }))
      hints.announce(Hint.Waiting())
      hints.announce(Hint.Locks({ queue: "worker", untilMs: 5 }))
      hints.announce(Hint.Changed({ fingerprints: ["b", "c"] }))
      hints.announce(Hint.Locks({ queue: "worker", untilMs: 7 }))
      yield* pass(19)
      assert.deepStrictEqual(sent, [])
      yield* pass(1)
      assert.deepStrictEqual(sent, [
        Hint.Locks({ queue: "worker", untilMs: 7 }),
        Hint.Changed({ fingerprints: ["a", "b", "c"] }),
        Hint.Waiting()
      ])
    }))

  it.effect("what waits when the provider is closed leaves then, after what is being sent", () =>
    Effect.gen(function*() {
      const { notifier, sent } = manual()
      const scope = yield* Scope.make()
      const announce: typeof notifier.announce = (hints) => Effect.delay(notifier.announce(hints), "100 millis")
      const hints = yield* Scope.provide(hintsOf.make({ ...notifier, announce }, options), scope)
      hints.announce(work(0))
      yield* pass("50 millis")
      hints.announce(work(0, "orchestrator"))
      hints.announce(Hint.Locks({ queue: "worker", untilMs: null }))
      const closing = yield* Effect.forkChild(Scope.close(scope, Exit.void))
      yield* pass("50 millis")
      assert.deepStrictEqual(sent, [work(0)])
      yield* pass("100 millis")
      assert.deepStrictEqual(sent.slice(1), [
        work(0, "orchestrator"),
        Hint.Locks({ queue: "worker", untilMs: null })
      ])
      yield* Fiber.join(closing)
    }))

  it.effect("a notifier that does not answer delays the closing by a second at most", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const hints = yield* Scope.provide(
        hintsOf.make({ ...manual().notifier, announce: () => Effect.never }, options),
        scope
      )
      hints.announce(work(0))
      yield* settle
      hints.announce(work(0, "orchestrator"))
      const closing = yield* Effect.forkChild(Scope.close(scope, Exit.void))
      yield* pass("1 second")
      assert.isDefined(closing.pollUnsafe())
    }))

  it.effect("a notifier may ask for fewer announcements: 14 in a second of constant hints", () =>
    Effect.gen(function*() {
      const { notifier, sent } = manual()
      const hints = yield* hintsOf.make({ ...notifier, announceEvery: "100 millis" }, options)
      for (let ms = 0; ms < 1000; ms += 10) {
        hints.announce(work(0))
        yield* pass(10)
      }
      assert.lengthOf(sent, 14)
    }))

  it.effect("of work that is visible, one leaves for each queue; of later work, the first times", () =>
    Effect.gen(function*() {
      const { notifier, sent } = manual()
      yield* TestClock.setTime(1_000)
      const hints = yield* hintsOf.make(notifier, options)
      for (let ms = 900; ms < 1_200; ms++) hints.announce(work(ms))
      hints.announce(work(950, "orchestrator"))
      yield* settle
      assert.deepStrictEqual(sent, [
        ...Array.from({ length: 16 }, (_, i) => work(1_000 + i)),
        work(950, "orchestrator")
      ])
    }))

  it.effect("work is about one item while it leaves and arrives alone", () =>
    Effect.gen(function*() {
      const { listener, notifier, sent } = manual()
      const hints = yield* hintsOf.make(notifier, options)
      const received: Array<Notifier.Hint> = []
      hints.subscribe({ received: ({ hint }) => void received.push(hint) })
      const about = (id: string) => Hint.Work({ queue: "worker", visibleAtMs: 0, only: { id, fingerprint: id } })
      hints.announce(about("a"))
      hints.announce(Hint.Taken({ queue: "worker", ids: ["x"] }))
      hints.announce(Hint.Taken({ queue: "worker", ids: ["x", "y"] }))
      yield* settle
      assert.deepStrictEqual(sent.splice(0), [about("a"), Hint.Taken({ queue: "worker", ids: ["x", "y"] })])
      hints.announce(about("b"))
      hints.announce(about("c"))
      yield* settle
      assert.deepStrictEqual(sent.splice(0), [work(0)])

      listener().receive({ hint: about("d"), sender: "s" })
      yield* settle
      listener().receive({ hint: about("e"), sender: "s" })
      listener().receive({ hint: about("f"), sender: "s" })
      listener().receive({ hint: about("g"), sender: "other" })
      yield* settle
      listener().receive({ hint: about("h"), sender: "s" })
      yield* settle
      assert.deepStrictEqual(received, [about("d"), work(0), about("h")])
    }))

  it.effect("that something was taken may find no room: nothing is reported", () =>
    Effect.gen(function*() {
      const { listener, notifier } = manual()
      const hints = yield* hintsOf.make(notifier, options)
      let received = 0
      hints.subscribe({
        received: () => void received++,
        unreliable: () => assert.fail("unreliable")
      })
      for (let i = 1; i <= 64; i++) listener().receive({ hint: work(i), sender: "s" })
      listener().receive({ hint: Hint.Taken({ queue: "worker", ids: ["x"] }), sender: "s" })
      yield* settle
      assert.strictEqual(received, 64)
    }))

  it.effect("counts the processes that serve a queue when it connects, and those that begin to later", () =>
    Effect.gen(function*() {
      const { listener, notifier } = manual()
      let counts = 0
      const hints = yield* hintsOf.make({
        ...notifier,
        processes: Effect.sync(() => (counts++, { orchestrator: 0, worker: 3 }))
      }, options)
      listener().connected()
      yield* settle
      assert.strictEqual(hints.processes("worker"), 3)
      for (const sender of ["a", "b", "a"]) listener().receive({ hint: Hint.Serves({ queue: "worker" }), sender })
      listener().receive({ hint: Hint.Hello(), sender: "client" })
      yield* settle
      assert.strictEqual(hints.processes("worker"), 5)
      assert.strictEqual(hints.processes("orchestrator"), 1)
      yield* pass("1 hour")
      assert.strictEqual(counts, 1)
      listener().receive({ hint: work(0), sender: "a" })
      yield* settle
      assert.strictEqual(counts, 2)
      assert.strictEqual(hints.processes("worker"), 3)
    }))

  it.effect("those that lead to the same, read at once, take one place: of work that is visible, of locks, of changes", () =>
    Effect.gen(function*() {
      const { listener, notifier } = manual()
      yield* TestClock.setTime(1_000)
      const hints = yield* hintsOf.make(notifier, { ...options, storeNowMs: () => 500 })
      const received: Array<Notifier.Hint> = []
      let reports = 0
      hints.subscribe({
        received: ({ hint }) => void received.push(hint),
        unreliable: () => void reports++
      })
      const fingerprints = Array.from({ length: 1_000 }, (_, i) => `${i}`)
      fingerprints.forEach((fingerprint, i) => {
        // By transactions of other programs: each has a time of its own.
        listener().receive({ hint: work(i / 2), sender: null })
        listener().receive({ hint: work(0, "orchestrator"), sender: null })
        listener().receive({ hint: Hint.Locks({ queue: "worker", untilMs: i }), sender: "a" })
        listener().receive({ hint: Hint.Changed({ fingerprints: [fingerprint] }), sender: null })
      })
      listener().receive({ hint: Hint.Locks({ queue: "worker", untilMs: null }), sender: "b" })
      listener().receive({ hint: work(501), sender: null })
      listener().receive({ hint: work(502), sender: null })
      yield* settle
      assert.strictEqual(reports, 0)
      assert.deepStrictEqual(received, [
        work(499.5),
        work(0, "orchestrator"),
        Hint.Locks({ queue: "worker", untilMs: 999 }),
        Hint.Changed({ fingerprints }),
        Hint.Locks({ queue: "worker", untilMs: null }),
        work(501),
        work(502)
      ])
      for (let i = 0; i < 65; i++) listener().receive({ hint: work(600 + i), sender: null })
      yield* settle
      assert.strictEqual(reports, 1)
    }))

  it.effect("one that waited too long is delivered and logged, at most once a minute", () => {
    const lines: Array<string> = []
    const logger = Logger.make(({ logLevel, message }) => void lines.push(`${logLevel} ${String(message)}`))
    return Effect.gen(function*() {
      let blockedNs = 0n
      const clock = yield* Clock.Clock
      const blocked = Clocks.changed(clock, {
        monotonicTimeNanosUnsafe: () => clock.monotonicTimeNanosUnsafe() + blockedNs
      })
      const { listener, notifier } = manual()
      const hints = yield* hintsOf.make(notifier, options).pipe(Effect.provideService(Clock.Clock, blocked))
      const received: Array<Notifier.Received> = []
      hints.subscribe({
        received: (one) => void received.push(one),
        unreliable: () => assert.fail("unreliable")
      })
      const arrive = (waitMs: bigint) =>
        Effect.suspend(() => {
          listener().receive({ hint: work(0), sender: "a" })
          blockedNs += waitMs * 1_000_000n
          return settle
        })
      yield* arrive(100n)
      assert.deepStrictEqual(lines, [])
      yield* arrive(101n)
      yield* arrive(101n)
      assert.lengthOf(received, 3)
      assert.lengthOf(lines, 1)
      assert.match(lines[0]!, /^Warn Provider: a hint of another process waited too long/)
    }).pipe(Effect.provide(Logger.layer([logger])))
  })

  it.effect("without a notifier nothing is connected", () =>
    Effect.gen(function*() {
      const hints = yield* hintsOf.make(undefined, options)
      hints.subscribe({ connected: () => assert.fail("connected") })
      hints.announce(work(0))
      yield* settle
      assert.isFalse(hints.isConnected())
    }))
})
