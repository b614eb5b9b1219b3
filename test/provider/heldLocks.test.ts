/**
 * What a process announces of work that it is about to store, and what that costs the others, in virtual time.
 */
import { assert, describe, it } from "@effect/vitest"
import { MemoryDriver } from "duroxide-prisma/provider"
import type { Notifier } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Scope from "effect/Scope"
import {
  fetchActivity,
  fetchInstance,
  hub,
  manual,
  open,
  pass,
  settle,
  storeOf,
  storingSlowly,
  waiting
} from "../utils/longPolling.ts"
import type { Driver } from "../utils/longPolling.ts"
import * as Starts from "../utils/starts.ts"

/** A process that sends to a notifier of its own, and what it announces, each time together. */
const client = (driver: Driver) =>
  Effect.gen(function*() {
    const batches: Array<ReadonlyArray<string>> = []
    const { listener, notifier } = manual()
    const announce: Notifier.Notifier["Service"]["announce"] = (hints) =>
      Effect.sync(() =>
        void batches.push(hints.map((hint) => hint._tag === "Locks" && hint.untilMs === null ? "None" : hint._tag))
      )
    const provider = yield* open(driver, { ...notifier, announce })
    listener().connected()
    yield* settle
    batches.length = 0
    return { provider, batches }
  })

describe("What a process is about to store:", () => {
  it.effect("twenty clients that start one instance each and close make a server look for these, and no more", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const { connect } = hub()
      const server = yield* open(store.driver, connect("server"))
      const found: Array<string> = []
      yield* Effect.forkChild(Effect.forever(Effect.gen(function*() {
        const { item, lockToken } = (yield* fetchInstance(server))!
        found.push(item.instanceId)
        yield* server.dropOrchestrationItem(lockToken)
      })))
      yield* waiting(1, fetchActivity(server))
      yield* pass("1 minute")
      store.looks()
      for (let i = 0; i < 20; i++) {
        yield* Effect.scoped(Effect.gen(function*() {
          const provider = yield* open(storingSlowly(store.directly, "2 millis"), connect(`client ${i}`))
          yield* waiting(1, provider.startOrchestration(Starts.start(`${i}`)))
          yield* pass("2 millis")
        }))
        yield* pass("98 millis")
      }
      yield* pass("20 seconds")
      assert.lengthOf(found, 20)
      // One that finds the start, and one because it took all it asked for.
      assert.isAtMost(store.looks().length, 40)
    }))

  it.effect("a client takes its announcement back together with the hint of what it has stored", () =>
    Effect.gen(function*() {
      const { batches, provider } = yield* client(storingSlowly(MemoryDriver.make(), "2 millis"))
      for (const instance of ["a", "b"]) {
        yield* pass("1 minute")
        yield* waiting(1, provider.startOrchestration(Starts.start(instance)))
        yield* pass("2 millis")
        assert.deepStrictEqual(batches.splice(0), [["Locks"], ["Work", "None"]])
      }
      yield* pass("1 minute")
      assert.deepStrictEqual(batches, [])
    }))

  it.effect("a client that stores again within a second keeps its announcement until a second after the last", () =>
    Effect.gen(function*() {
      const { batches, provider } = yield* client(storingSlowly(MemoryDriver.make(), "2 millis"))
      for (let i = 0; i < 4; i++) {
        yield* waiting(1, provider.startOrchestration(Starts.start(`${i}`)))
        yield* pass("100 millis")
      }
      assert.deepStrictEqual(batches, [["Locks"], ["Work", "None"], ["Locks"], ["Work"], ["Work"], ["Work"]])
      yield* pass("1 second")
      assert.deepStrictEqual(batches.slice(6), [["None"]])
    }))

  it.effect("a process that serves takes it back a second after the last, or when it is closed", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const { batches, provider } = yield* Scope.provide(
        client(storingSlowly(MemoryDriver.make(), "2 millis")),
        scope
      )
      const [fetch] = yield* waiting(1, fetchActivity(provider))
      yield* pass("1 minute")
      batches.length = 0
      for (let i = 0; i < 2; i++) {
        yield* waiting(1, provider.startOrchestration(Starts.start(`${i}`)))
        yield* pass("500 millis")
      }
      assert.deepStrictEqual(batches.splice(0), [["Locks"], ["Work"], ["Work"]])
      yield* pass("600 millis")
      assert.deepStrictEqual(batches.splice(0), [["None"]])
      yield* waiting(1, provider.startOrchestration(Starts.start("last")))
      yield* pass("2 millis")
      assert.deepStrictEqual(batches.splice(0), [["Locks"], ["Work"]])
      yield* Fiber.interrupt(fetch!)
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(batches, [["None"]])
    }))

  it.effect("one that holds a lock when it is closed takes nothing back", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const { batches, provider } = yield* Scope.provide(client(MemoryDriver.make()), scope)
      yield* provider.startOrchestration(Starts.start("a"))
      assert.isDefined(yield* fetchInstance(provider))
      yield* settle
      batches.length = 0
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(batches, [])
    }))

  it.effect("what is stored although its caller was interrupted is found", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const { connect } = hub()
      const server = yield* open(store.driver, connect("server"))
      const provider = yield* open(storingSlowly(store.driver, "1 second"), connect("client"))
      const [fetch] = yield* waiting(1, fetchInstance(server))
      yield* pass("1 minute")
      const [starting] = yield* waiting(1, provider.startOrchestration(Starts.start("a")))
      yield* Fiber.interrupt(starting!)
      yield* pass("3 seconds")
      assert.isDefined(fetch!.pollUnsafe())
    }))

  it.effect("locks of the queue that a process does not serve are looked at when they end, not before", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const { connect } = hub()
      const other = yield* open(store.driver, connect("other"))
      yield* waiting(1, fetchActivity(other))
      yield* pass("1 minute")
      const scope = yield* Scope.make()
      const mortal = yield* Scope.provide(open(store.driver, connect("mortal")), scope)
      yield* mortal.startOrchestration(Starts.start("a"))
      assert.isDefined(yield* fetchInstance(mortal))
      yield* settle
      store.looks()
      yield* pass("3 seconds")
      yield* Scope.close(scope, Exit.void)
      yield* pass("26 seconds")
      assert.deepStrictEqual(store.looks(), [])
      yield* pass("4 seconds")
      assert.deepStrictEqual(store.looks(), ["fetchWorkItems", "fetchWorkItems"])
    }))

  it.effect("a statement of five seconds is announced until it ends, and leads to no look", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const { connect, heard, listen } = hub()
      yield* listen
      const other = yield* open(store.driver, connect("other"))
      const own = yield* open(storingSlowly(store.driver, "5 seconds"), connect("own"))
      yield* waiting(1, fetchActivity(other))
      yield* waiting(1, fetchActivity(own))
      yield* pass("1 minute")
      heard.length = 0
      store.looks()
      const [starting] = yield* waiting(1, own.startOrchestration(Starts.start("a")))
      for (let second = 1; second < 5; second++) {
        yield* pass("1 second")
        const untilMs = heard.flatMap((hint) => hint._tag === "Locks" ? [hint.untilMs!] : []).at(-1)!
        assert.isAbove(untilMs, 60_000 + second * 1_000)
      }
      assert.deepStrictEqual(store.statements(), ["startOrchestrations"])
      yield* pass("10 seconds")
      yield* Fiber.join(starting!)
      assert.deepStrictEqual(store.statements(), [])
    }))
})
