/**
 * When a provider polls, in virtual time: hints that are missing or late, a store that fails. And the moments at which
 * a wake-up meets what this process holds.
 */
import { assert, describe, it } from "@effect/vitest"
import { Notifier, ProviderError } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as References from "effect/References"
import * as Clocks from "../utils/clock.ts"
import {
  ended,
  fetchActivity,
  fetchInstance,
  hub,
  manual,
  open,
  pass,
  settle,
  storeOf,
  waiting
} from "../utils/longPolling.ts"
import * as Starts from "../utils/starts.ts"

const work = (queue: Notifier.Queue, visibleAtMs = 0): Notifier.Received => ({
  hint: Notifier.Hint.Work({ queue, visibleAtMs }),
  sender: "other"
})

const signal = (instance: string) => ({
  message: { _tag: "ExternalRaised", instance, name: "poke", data: "1" } as const,
  delay: Option.none()
})

const turn = {
  executionId: 1,
  historyDelta: [],
  workerItems: [],
  orchestratorItems: [],
  metadata: {},
  cancelledActivities: []
}

/** A process with a notifier of the test, and callers that have looked for nothing. */
const process = Effect.gen(function*() {
  const store = storeOf()
  const held = manual()
  let failure: ProviderError.Reason | undefined
  const driver: typeof store.driver = {
    ...store.driver,
    fetchWorkItems: (request) =>
      Effect.suspend(() =>
        failure === undefined
          ? store.driver.fetchWorkItems(request)
          : Effect.fail(new ProviderError.ProviderError({ operation: "fetchWorkItems", reason: failure }))
      )
  }
  const provider = yield* open(driver, held.notifier)
  return {
    ...held,
    provider,
    store,
    fail: (reason: ProviderError.Reason | undefined) => void (failure = reason),
    /** The looks of a second. */
    perSecond: Effect.suspend(() => {
      store.looks()
      return Effect.map(pass("1 second"), () => store.looks().length)
    })
  }
})

const waits = Effect.gen(function*() {
  const self = yield* process
  self.listener().connected()
  yield* waiting(10, fetchActivity(self.provider))
  yield* pass("1 minute")
  assert.strictEqual(yield* self.perSecond, 0)
  return self
})

describe("Poll mode:", () => {
  it.effect("a lost listener makes the process poll, and it stops some time after the listener is back", () =>
    Effect.gen(function*() {
      const { listener, perSecond } = yield* waits
      listener().disconnected("gone")
      assert.isAtLeast(yield* perSecond, 9)
      yield* pass("10 minutes")
      assert.isAtMost(yield* perSecond, 11)
      listener().connected()
      assert.isAtMost(yield* perSecond, 7)
      assert.strictEqual(yield* perSecond, 0)
    }))

  it.effect("a listener that comes back soon is trusted after a minute", () =>
    Effect.gen(function*() {
      const { listener, perSecond } = yield* waits
      listener().disconnected("gone")
      yield* pass("1 second")
      listener().connected()
      yield* pass("57 seconds")
      assert.isAtLeast(yield* perSecond, 9)
      yield* pass("2 seconds")
      assert.strictEqual(yield* perSecond, 0)
    }))

  it.effect("work that is due later, of which no hint came while the process polled, is found on time", () =>
    Effect.gen(function*() {
      const { listener, provider, store } = yield* process
      listener().connected()
      const fibers = yield* waiting(1, fetchInstance(provider))
      listener().disconnected("gone")
      yield* pass("1 second")
      listener().connected()
      yield* pass("1 second")
      const silent = yield* open(store.directly, undefined)
      yield* silent.startOrchestration({ ...Starts.start("later"), delay: Option.some(Duration.minutes(3)) })
      yield* pass("2 minutes")
      assert.lengthOf(yield* ended(fibers), 0)
      yield* pass("61 seconds")
      assert.lengthOf(yield* ended(fibers), 1)
    }))

  it.effect("work is found at once when a listener is back", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const { listener, notifier } = manual()
      const provider = yield* open(store.driver, notifier, { aggressivePollInterval: "1 hour" })
      listener().connected()
      const [fetch] = yield* waiting(1, fetchInstance(provider))
      listener().disconnected("gone")
      const other = yield* open(store.driver, undefined)
      yield* other.startOrchestration(Starts.start("a"))
      yield* settle
      assert.isUndefined(fetch!.pollUnsafe())
      listener().connected()
      yield* settle
      assert.strictEqual((yield* Fiber.join(fetch!))?.item.instanceId, "a")
    }))

  it.effect("a hint that cannot be sent makes the process poll for a minute", () =>
    Effect.gen(function*() {
      const { perSecond, provider, state } = yield* waits
      state.fails = true
      yield* provider.startOrchestration(Starts.start("a"))
      assert.isAtLeast(yield* perSecond, 9)
      state.fails = false
      yield* pass("1 minute")
      assert.strictEqual(yield* perSecond, 0)
    }))

  it.effect("a failed look makes it poll", () =>
    Effect.gen(function*() {
      const { fail, listener, perSecond, provider } = yield* waits
      fail(new ProviderError.SchemaMismatch({ problem: "no function", sqlState: "42883" }))
      listener().receive(work("worker"))
      yield* settle
      fail(undefined)
      yield* waiting(1, fetchActivity(provider))
      assert.isAtLeast(yield* perSecond, 9)
      yield* pass("1 minute")
      assert.strictEqual(yield* perSecond, 0)
    }))

  it.effect("more hints than the process can take make it poll", () =>
    Effect.gen(function*() {
      const { listener, perSecond } = yield* waits
      for (let i = 0; i < 64; i++) listener().receive(work("orchestrator", 1_000_000 + i))
      assert.strictEqual(yield* perSecond, 0)
      for (let i = 0; i < 65; i++) listener().receive(work("orchestrator", 2_000_000 + i))
      assert.isAtLeast(yield* perSecond, 9)
    }))

  it.effect("a hint that waited too long in the process leads to the look it asks for, and to no polling", () =>
    Effect.gen(function*() {
      let blockedNs = 0n
      const clock = yield* Clock.Clock
      const blocked = Clocks.changed(clock, {
        monotonicTimeNanosUnsafe: () => clock.monotonicTimeNanosUnsafe() + blockedNs
      })
      yield* Effect.gen(function*() {
        const { listener, perSecond, provider, store } = yield* process
        listener().connected()
        const [fetch] = yield* waiting(1, fetchInstance(provider))
        yield* pass("1 minute")
        const other = yield* open(store.directly, undefined)
        yield* other.startOrchestration(Starts.start("a"))
        listener().receive(work("orchestrator"))
        blockedNs += 10_000_000_000n
        yield* settle
        assert.strictEqual((yield* Fiber.join(fetch!))?.item.instanceId, "a")
        yield* waiting(10, fetchActivity(provider))
        assert.strictEqual(yield* perSecond, 0)
      }).pipe(Effect.provideService(Clock.Clock, blocked))
    }).pipe(Effect.provide(Logger.layer([]))))

  it.effect("equal hints count once", () =>
    Effect.gen(function*() {
      const { listener, perSecond } = yield* waits
      for (let i = 0; i < 1_000; i++) listener().receive(work("orchestrator", 1_000_000))
      assert.strictEqual(yield* perSecond, 0)
    }))

  it.effect("entering and leaving the mode is logged for each queue, with its reason, duration and empty looks", () => {
    const lines: Array<unknown> = []
    const logger = Logger.make(({ fiber, logLevel, message }) => {
      if (!String(message).includes("aggressive mode")) return
      const { package: _, ...annotations } = fiber.getRef(References.CurrentLogAnnotations)
      lines.push([logLevel, String(message), annotations])
    })
    return Effect.gen(function*() {
      const { listener, provider } = yield* waits
      yield* waiting(1, fetchInstance(provider))
      yield* pass("1 second")
      listener().receive(work("worker", 1e12))
      yield* pass("10 seconds")
      lines.length = 0
      listener().disconnected("gone")
      listener().connected()
      yield* pass("2 minutes")
      const enters = "Provider: enters aggressive mode, it polls"
      const leaves = "Provider: leaves aggressive mode, hints wake it again"
      const reason = "ListenerDisconnected"
      const polled = { reason, duration_ms: 60_000, empty_looks: 601 }
      assert.deepStrictEqual(lines, [
        ["Debug", enters, { queue: "orchestrator", reason }],
        ["Debug", enters, { queue: "worker", reason, since_hint_ms: 10_000 }],
        ["Debug", leaves, { queue: "orchestrator", ...polled }],
        ["Debug", leaves, { queue: "worker", ...polled, since_hint_ms: 70_000 }]
      ])
    }).pipe(Effect.provide(Logger.layer([logger])), Effect.provideService(References.MinimumLogLevel, "Debug"))
  })
})

describe("A wake-up is not lost", () => {
  it.effect("when another process announces a message during the turn of its instance", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const { connect } = hub()
      const provider = yield* open(store.driver, connect("one"))
      const other = yield* open(store.driver, connect("two"))
      yield* provider.startOrchestration(Starts.start("a"))
      const claimed = yield* fetchInstance(provider)
      const [fetch] = yield* waiting(1, fetchInstance(provider))
      yield* other.enqueueForOrchestrator(signal("a"))
      yield* pass("1 second")
      assert.isUndefined(fetch!.pollUnsafe())
      yield* provider.ackOrchestrationItem(claimed!.lockToken, turn)
      yield* settle
      assert.strictEqual((yield* Fiber.join(fetch!))?.item.instanceId, "a")
    }))

  for (const sender of ["this process", "another one"]) {
    it.effect(`when ${sender} stores a message between a claim and its answer`, () =>
      Effect.gen(function*() {
        const store = storeOf()
        const { connect } = hub()
        const answer = yield* Deferred.make<void>()
        let isSlow = false
        const slow: typeof store.driver = {
          ...store.driver,
          fetchOrchestrationItems: (request) =>
            Effect.tap(
              store.driver.fetchOrchestrationItems(request),
              (claims) => isSlow && claims.length > 0 ? Deferred.await(answer) : Effect.void
            )
        }
        const provider = yield* open(slow, connect("one"))
        const other = yield* open(store.driver, connect("two"))
        isSlow = true
        yield* provider.startOrchestration(Starts.start("a"))
        const fetches = yield* waiting(2, fetchInstance(provider))
        yield* (sender === "another one" ? other : provider).enqueueForOrchestrator(signal("a"))
        yield* pass("1 second")
        isSlow = false
        yield* Deferred.succeed(answer, undefined)
        yield* settle
        const [claimed] = yield* ended(fetches)
        yield* provider.ackOrchestrationItem(claimed!.lockToken, turn)
        yield* settle
        assert.lengthOf(yield* ended(fetches), 2)
      }))
  }

  it.effect("when this process has no caller for what it leaves: the others are notified", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const { connect, heard, listen } = hub()
      const provider = yield* open(store.driver, connect("one"))
      yield* waiting(1, fetchInstance(provider))
      yield* pass("1 minute")
      yield* listen
      const other = yield* open(store.driver, undefined)
      yield* other.startOrchestration(Starts.start("a"))
      yield* other.startOrchestration(Starts.start("b"))
      heard.length = 0
      yield* pass("5 minutes")
      assert.deepStrictEqual(heard.filter(({ _tag }) => _tag === "Work").length, 1)
    }))

  it.effect("when the answer to the statement that has stored work is lost", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const { connect } = hub()
      const lossy: typeof store.driver = {
        ...store.driver,
        enqueueForOrchestrator: (messages) =>
          Effect.andThen(
            store.driver.enqueueForOrchestrator(messages),
            Effect.fail(
              new ProviderError.ProviderError({
                operation: "enqueueForOrchestrator",
                reason: new ProviderError.ConnectionLost({ problem: "cut" })
              })
            )
          )
      }
      const sender = yield* open(lossy, connect("sender"))
      const worker = yield* open(store.driver, connect("worker"))
      const [fetch] = yield* waiting(1, fetchInstance(worker))
      yield* pass("1 minute")
      yield* Effect.flip(sender.enqueueForOrchestrator({ message: Starts.message("a"), delay: Option.none() }))
      yield* settle
      assert.strictEqual((yield* Fiber.join(fetch!))?.item.instanceId, "a")
    }).pipe(Effect.provide(Logger.layer([]))))

  it.effect("for work that was abandoned with a pause: another process comes first", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const { connect } = hub()
      const one = yield* open(store.driver, connect("one"))
      const two = yield* open(store.driver, connect("two"))
      yield* one.startOrchestration(Starts.start("a"))
      const { lockToken } = (yield* fetchInstance(one))!
      const [mine] = yield* waiting(1, fetchInstance(one))
      const [theirs] = yield* waiting(1, fetchInstance(two))
      yield* one.abandonOrchestrationItem({ lockToken, delay: Option.some(Duration.seconds(1)), ignoreAttempt: false })
      yield* pass("1050 millis")
      assert.strictEqual((yield* Fiber.join(theirs!))?.attemptCount, 2)
      assert.isUndefined(mine!.pollUnsafe())
    }))

  it.effect("for work that was abandoned with a pause: without another process, this one takes it", () =>
    Effect.gen(function*() {
      const one = yield* open(storeOf().driver, hub().connect("one"))
      yield* one.startOrchestration(Starts.start("a"))
      const { lockToken } = (yield* fetchInstance(one))!
      const [mine] = yield* waiting(1, fetchInstance(one))
      yield* one.abandonOrchestrationItem({ lockToken, delay: Option.some(Duration.seconds(1)), ignoreAttempt: false })
      yield* pass("1200 millis")
      assert.strictEqual((yield* Fiber.join(mine!))?.attemptCount, 2)
    }))
})

describe("What a process announces:", () => {
  it.effect("work that is visible already has no time, as its clock may be wrong", () =>
    Effect.gen(function*() {
      const { notifier, sent } = manual()
      const provider = yield* open(storeOf().driver, notifier)
      yield* pass("1 hour")
      yield* provider.startOrchestration(Starts.start("i"))
      yield* settle
      const works = sent.filter(({ _tag }) => _tag === "Work")
      assert.deepStrictEqual(works, [Notifier.Hint.Work({ queue: "orchestrator", visibleAtMs: 0 })])
    }))

  it.effect("locks of activities that are handed over, before the answer: its first activity may end the process", () =>
    Effect.gen(function*() {
      const { notifier, sent } = manual()
      const { driver } = storeOf()
      const provider = yield* open(
        {
          ...driver,
          advanceOrchestrations: (turns) => Effect.andThen(driver.advanceOrchestrations!(turns), Effect.never)
        },
        notifier
      )
      yield* Effect.forkChild(provider.advanceOrchestration({
        instanceId: "i",
        lastEvent: Starts.scheduled("i", 3),
        results: [],
        turn,
        clockMs: 0,
        handOver: { limit: 1, lockTimeout: Duration.seconds(30), activities: ["A"], tags: { _tag: "DefaultOnly" } }
      }))
      yield* settle
      assert.deepInclude(sent, Notifier.Hint.Locks({ queue: "worker", untilMs: 30_000 }))
    }))
})
