/**
 * What a process finds although no hint announces it, in virtual time: lost hints, and the work of processes that died.
 */
import { assert, describe, it } from "@effect/vitest"
import { Notifier } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import * as LocalProcess from "../utils/localProcess.ts"
import {
  activity,
  attempts,
  ended,
  fetchActivity,
  fetchInstance,
  hub,
  lockTimeout,
  manual,
  message,
  open,
  pair,
  pass,
  row,
  storeOf,
  storingSlowly,
  timed,
  waiting
} from "../utils/longPolling.ts"
import * as Starts from "../utils/starts.ts"

/** Until the process announces work that it has stored: then it is dead. */
const lasting = (announce: Notifier.Notifier["Service"]["announce"]): Notifier.Notifier["Service"]["announce"] => {
  let isDead = false
  return (hints) => {
    isDead ||= hints.some(({ _tag }) => _tag === "Work")
    return isDead ? Effect.void : announce(hints)
  }
}

/** Until the process is said to be dead, and then no more. */
const mortal = ({ announce, ...notifier }: Notifier.Notifier["Service"]) => {
  let isDead = false
  return {
    notifier: {
      ...notifier,
      announce: (hints) => Effect.suspend(() => isDead ? Effect.void : announce(hints))
    } satisfies Notifier.Notifier["Service"],
    die: () => void (isDead = true)
  }
}

type Opened = Effect.Success<ReturnType<typeof open>>

/** What a process stores, and the claim that finds it. */
const kinds = {
  "a start": {
    store: (process: Opened) => Effect.asVoid(process.startOrchestration(Starts.start("a"))),
    fetch: (process: Opened) => Effect.asVoid(fetchInstance(process))
  },
  "a message": {
    store: (process: Opened) => process.enqueueForOrchestrator(message("a")),
    fetch: (process: Opened) => Effect.asVoid(fetchInstance(process))
  },
  "an activity": {
    store: (process: Opened) => process.enqueueForWorker(activity(2)),
    fetch: (process: Opened) => Effect.asVoid(fetchActivity(process))
  }
}

describe("Long polling: what no hint announces", () => {
  it.effect("is found by the fallback look, and then the process polls for a while", () =>
    Effect.gen(function*() {
      const { store, worker } = yield* pair
      const [fetch] = yield* waiting(1, timed(fetchInstance(worker)))
      // The look for locks of processes that died before it began is over.
      yield* pass("31 seconds")
      yield* store.directly.enqueueForOrchestrator([row("lost")])
      yield* pass("299 seconds")
      assert.isUndefined(fetch!.pollUnsafe())
      yield* pass("1 second")
      const [claimed] = yield* Fiber.join(fetch!)
      assert.strictEqual(claimed!.item.instanceId, "lost")
      store.looks()
      yield* waiting(1, fetchInstance(worker))
      yield* pass("1 second")
      assert.isAtLeast(store.looks().length, 9)
      yield* pass("2 minutes")
      store.looks()
      yield* pass("1 minute")
      assert.isAtMost(store.looks().length, 1)
    }))

  it.effect("locks of a process that dies are found within their time and a second", () =>
    Effect.gen(function*() {
      const { connect, sender, store, worker } = yield* pair
      const scope = yield* Scope.make()
      const mortal = yield* Scope.provide(open(store.driver, connect("mortal")), scope)
      yield* sender.enqueueForWorker(activity(2))
      yield* sender.startOrchestration(Starts.start("a"))
      assert.isDefined(yield* fetchActivity(mortal))
      assert.isDefined(yield* fetchInstance(mortal))
      const fetches = [
        ...(yield* waiting(1, timed(attempts(fetchActivity(worker))))),
        ...(yield* waiting(1, timed(attempts(fetchInstance(worker)))))
      ]
      yield* pass("3 seconds")
      yield* Scope.close(scope, Exit.void)
      store.looks()
      yield* pass("31 seconds")
      const found = yield* ended(fetches)
      assert.deepStrictEqual(found.map(([attempt]) => attempt), [2, 2])
      for (const [, atMs] of found) assert.isAtMost(atMs, 31_000)
      assert.isAtMost(store.looks().length, 6)
    }))

  it.effect("what a process has stored in the other queue, and not announced, is found with its locks", () =>
    Effect.gen(function*() {
      const { connect, sender, store, worker } = yield* pair
      const scope = yield* Scope.make()
      const mortal = yield* Scope.provide(open(store.driver, connect("mortal")), scope)
      yield* sender.enqueueForWorker(activity(2))
      assert.isDefined(yield* fetchActivity(mortal))
      const [fetch] = yield* waiting(1, timed(fetchInstance(worker)))
      yield* pass("3 seconds")
      yield* store.directly.enqueueForOrchestrator([row("kept back")])
      yield* Scope.close(scope, Exit.void)
      yield* pass("29 seconds")
      const [[claimed, atMs] = []] = yield* ended([fetch!])
      assert.strictEqual(claimed?.item.instanceId, "kept back")
      assert.isAtMost(atMs!, 31_000)
    }))

  it.effect("what a process has stored for later, and not announced, is found when it is due", () =>
    Effect.gen(function*() {
      const { connect, sender, store, worker } = yield* pair
      const scope = yield* Scope.make()
      const mortal = yield* Scope.provide(open(store.driver, connect("mortal")), scope)
      yield* sender.enqueueForWorker(activity(2))
      assert.isDefined(yield* fetchActivity(mortal))
      const [fetch] = yield* waiting(1, timed(fetchInstance(worker)))
      yield* pass("3 seconds")
      // Long after the last look for the locks of a process that has died.
      const dueMs = (yield* Clock.currentTimeMillis) + 150_000
      yield* store.directly.enqueueForOrchestrator([row("later", dueMs)])
      yield* Scope.close(scope, Exit.void)
      yield* pass("149 seconds")
      assert.isUndefined(fetch!.pollUnsafe())
      yield* pass("2 seconds")
      const [[claimed] = []] = yield* ended([fetch!])
      assert.strictEqual(claimed?.item.instanceId, "later")
    }))

  it.effect("a message with a delay, from a process that dies before the store has said its time, is found then", () =>
    Effect.gen(function*() {
      const { connect, store, worker } = yield* pair
      const scope = yield* Scope.make()
      const { die, notifier } = mortal(connect("mortal"))
      const silent = LocalProcess.intercept(
        store.driver,
        (call, operation) => operation === "readNextDue" ? Effect.never : call
      )
      const sends = yield* Scope.provide(open(silent, notifier), scope)
      const [fetch] = yield* waiting(1, fetchInstance(worker))
      yield* pass("1 minute")
      yield* sends.enqueueForOrchestrator(message("a", Duration.seconds(80)))
      yield* pass("10 millis")
      die()
      yield* Scope.close(scope, Exit.void)
      yield* pass("79 seconds")
      assert.isUndefined(fetch!.pollUnsafe())
      yield* pass("2 seconds")
      const [claimed] = yield* ended([fetch!])
      assert.strictEqual(claimed?.item.instanceId, "a")
    }))

  for (const stores of ["a start", "a message", "an activity"] as const) {
    it.effect(`${stores}, stored by a process that died before it announced it, is found`, () =>
      Effect.gen(function*() {
        const { connect, store, worker } = yield* pair
        const scope = yield* Scope.make()
        const { announce, ...notifier } = connect("mortal")
        const dying = { ...notifier, announce: lasting(announce) }
        const mortal = yield* Scope.provide(open(storingSlowly(store.driver, "2 millis"), dying), scope)
        const [waits] = yield* waiting(1, timed(kinds[stores].fetch(worker)))
        yield* pass("1 minute")
        store.looks()
        yield* waiting(1, kinds[stores].store(mortal))
        yield* pass("2 millis")
        yield* Scope.close(scope, Exit.void)
        yield* pass("4 seconds")
        const [[, atMs] = []] = yield* ended([waits!])
        assert.isAtMost(atMs!, 64_000)
      }))
  }

  for (const stores of ["a start", "a message", "an activity"] as const) {
    it.effect(`${stores}, stored by a process that died with the answer, its hints still on their way, is found`, () =>
      Effect.gen(function*() {
        const { connect, store, worker } = yield* pair
        const scope = yield* Scope.make()
        let isDead = false
        const { announce, ...notifier } = connect("mortal")
        const slow: Notifier.Notifier["Service"] = {
          ...notifier,
          announce: (hints) =>
            Effect.suspend(() => {
              const sent = Effect.suspend(() => isDead ? Effect.void : announce(hints))
              return isDead ? sent : Effect.delay(sent, "100 millis")
            })
        }
        const driver = LocalProcess.intercept(
          store.driver,
          (call, operation) =>
            /^(start|enqueue)/.test(operation) ? Effect.tap(call, () => Effect.sync(() => void (isDead = true))) : call
        )
        const mortal = yield* Scope.provide(open(driver, slow), scope)
        const [waits] = yield* waiting(1, timed(kinds[stores].fetch(worker)))
        yield* pass("1 minute")
        yield* waiting(1, kinds[stores].store(mortal))
        yield* pass("200 millis")
        assert.isTrue(isDead)
        yield* Scope.close(scope, Exit.void)
        yield* pass("4 seconds")
        const [[, atMs] = []] = yield* ended([waits!])
        assert.isAtMost(atMs!, 64_200)
      }))
  }

  it.effect("what is stored by a statement that outlives its process by half a minute is found", () =>
    Effect.gen(function*() {
      const { connect, store, worker } = yield* pair
      const scope = yield* Scope.make()
      const { die, notifier } = mortal(connect("mortal"))
      const never = LocalProcess.intercept(
        store.driver,
        (call, operation) => operation === "startOrchestrations" ? Effect.never : call
      )
      const starts = yield* Scope.provide(open(never, notifier), scope)
      const [waits] = yield* waiting(1, timed(fetchInstance(worker)))
      yield* pass("1 minute")
      yield* waiting(1, starts.startOrchestration(Starts.start("a")))
      die()
      yield* Scope.close(scope, Exit.void)
      yield* pass("30 seconds")
      yield* store.directly.enqueueForOrchestrator([row("a")])
      yield* pass("20 seconds")
      const [[claimed] = []] = yield* ended([waits!])
      assert.strictEqual(claimed?.item.instanceId, "a")
    }))

  it.effect("a notifier that does not answer delays what is stored by five seconds, once", () =>
    Effect.gen(function*() {
      const { connect, store } = yield* pair
      const silent = { ...connect("silent"), announce: () => Effect.never }
      const scope = yield* Scope.make()
      const provider = yield* Scope.provide(open(store.driver, silent), scope)
      // It holds nothing in one queue, and an activity in the other one.
      yield* store.directly.enqueueForWorker([{
        instanceId: "a",
        executionId: 1,
        activityId: 2,
        name: "A",
        sessionId: null,
        tag: null,
        workItem: JSON.stringify({ ActivityExecute: { instance: "a", execution_id: 1, id: 2, name: "A", input: "1" } })
      }])
      yield* pass("3 seconds")
      assert.isDefined(yield* fetchActivity(provider))
      const first = yield* Effect.forkChild(timed(provider.startOrchestration(Starts.start("a"))))
      yield* pass("4999 millis")
      assert.isUndefined(first.pollUnsafe())
      yield* pass("1 millis")
      assert.strictEqual((yield* Fiber.join(first))[1], 5_000)
      assert.strictEqual((yield* timed(provider.startOrchestration(Starts.start("b"))))[1], 0)
      const closed = yield* Effect.forkChild(Scope.close(scope, Exit.void))
      yield* pass("1 second")
      yield* Fiber.join(closed)
    }))

  it.effect("locks of a process that renews them are not looked at", () =>
    Effect.gen(function*() {
      const { sender, store, worker, connect } = yield* pair
      const busy = yield* open(store.driver, connect("busy"))
      yield* sender.enqueueForWorker(activity(2))
      const claimed = yield* fetchActivity(busy)
      yield* waiting(1, fetchActivity(worker))
      yield* Effect.forkChild(Effect.forever(Effect.andThen(
        busy.renewWorkItemLock({ lockToken: claimed!.lockToken, extendFor: lockTimeout }),
        Effect.sleep("15 seconds")
      )))
      // It looks for the locks of those that died before it began, and after the first wake-up.
      yield* pass("40 seconds")
      store.looks()
      yield* pass("3 minutes")
      assert.lengthOf(store.looks(), 0)
      yield* busy.ackWorkItem(claimed!.lockToken, Option.none())
    }))

  it.effect("locks of processes that died before it connected have run out after half a second more", () =>
    Effect.gen(function*() {
      const store = storeOf()
      yield* store.directly.enqueueForWorker([{
        workItem: JSON.stringify({
          ActivityExecute: { instance: "a", execution_id: 1, id: 2, name: "A", input: "1" }
        }),
        name: "A",
        instanceId: "a",
        executionId: 1,
        activityId: 2,
        sessionId: null,
        tag: null
      }])
      yield* fetchActivity(yield* open(store.driver, undefined), Duration.zero)
      const provider = yield* open(store.driver, hub().connect("one"))
      const [fetch] = yield* waiting(1, timed(fetchActivity(provider)))
      yield* pass("31 seconds")
      const [claimed, atMs] = yield* Fiber.join(fetch!)
      assert.strictEqual(claimed?.attemptCount, 2)
      assert.isAtMost(atMs, 30_600)
    }))

  it.effect("a lock of its own that runs out", () =>
    Effect.gen(function*() {
      const { worker } = yield* pair
      yield* worker.enqueueForWorker(activity(2))
      assert.isDefined(yield* fetchActivity(worker))
      const [fetch] = yield* waiting(1, timed(fetchActivity(worker)))
      yield* pass("31 seconds")
      const [claimed, atMs] = yield* Fiber.join(fetch!)
      assert.strictEqual(claimed?.attemptCount, 2)
      assert.isAtMost(atMs, 31_000)
    }))

  it.effect("what another program has taken, and not ended", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const { listener, notifier } = manual()
      const provider = yield* open(store.driver, notifier)
      listener().connected()
      const [fetch] = yield* waiting(1, timed(fetchInstance(provider)))
      yield* pass("2 minutes")
      yield* store.directly.enqueueForOrchestrator([row("a")])
      const request = { lockTimeoutMs: 30_000, limit: 1, versions: null }
      assert.lengthOf(yield* store.directly.fetchOrchestrationItems(request), 1)
      listener().receive({ hint: Notifier.Hint.Work({ queue: "orchestrator", visibleAtMs: 120_000 }), sender: null })
      yield* pass("31 seconds")
      const [claimed, atMs] = yield* Fiber.join(fetch!)
      assert.strictEqual(claimed?.attemptCount, 2)
      assert.isAtMost(atMs, 151_000)
    }))
})
