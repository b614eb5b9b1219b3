/**
 * When a process writes its row, in virtual time, by what its driver and its notifier can do.
 */
import { assert, describe, it } from "@effect/vitest"
import { FromDriver, MemoryDriver, Notifier, ProviderDriver } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Latch from "effect/Latch"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import { ConnectionLost, ProviderError } from "../../src/provider/ProviderError.ts"
import type { Listener } from "../../src/waking/Notifier.ts"

const duties: ProviderDriver.ProcessDuties = {
  build: "a1b2",
  orchestrations: [],
  activities: [],
  tags: { _tag: "Any" },
  orchestrationSlots: 16,
  activitySlots: 16
}

/** A process on a store that forgets a process that neither listens nor writes for three minutes. */
const open = Effect.fnUntraced(function*(options: { readonly listens: boolean }) {
  const writes: Array<"listens" | "polls" | "fails" | "closes"> = []
  const store = { isAway: false }
  const driver: ProviderDriver.ProviderDriver["Service"] = {
    ...(yield* ProviderDriver.ProviderDriver),
    registerProcess: ({ isListening }) =>
      Effect.suspend(() => {
        writes.push(store.isAway ? "fails" : isListening ? "listens" : "polls")
        return store.isAway
          ? Effect.fail(
            new ProviderError({ operation: "registerProcess", reason: new ConnectionLost({ problem: "gone" }) })
          )
          : Effect.succeed(isListening ? null : 180_000)
      }),
    removeProcess: () => Effect.sync(() => void writes.push("closes"))
  }
  let listener: Listener | undefined
  const locked = Latch.makeUnsafe()
  const notifier = Notifier.Notifier.of({
    name: "test",
    listen: (one) => Effect.sync(() => void (listener = one)),
    announce: () => Effect.void,
    showAlive: () => locked.await
  })
  const scope = yield* Scope.make()
  const opened = FromDriver.make(driver, { longPolling: { aggressivePollInterval: "1 hour" } })
  const provider = yield* Scope.provide(
    options.listens ? Effect.provideService(opened, Notifier.Notifier, notifier) : opened,
    scope
  )
  const processScope = yield* Scope.fork(scope)
  yield* Scope.provide(provider.announceProcess(duties, () => ({ orchestrations: 1, activities: 0 })), processScope)
  return {
    store,
    /** What was written since the last call, after this time. */
    after: Effect.fnUntraced(function*(time: "0 seconds" | "1 second" | "5 seconds" | "3 minutes" | "1 hour") {
      yield* TestClock.adjust(time)
      return writes.splice(0)
    }),
    connect: Effect.sync(() => {
      listener!.connected()
      locked.openUnsafe()
    }),
    disconnect: Effect.sync(() => listener!.disconnected("gone")),
    close: Scope.close(processScope, Exit.void)
  }
})

const inMemory = Effect.provide(Layer.merge(MemoryDriver.layer, Logger.layer([])))

describe("the row of a process", () => {
  it.effect("is written once while it listens, however long it is idle", () =>
    Effect.gen(function*() {
      const { after, close, connect } = yield* open({ listens: true })
      assert.deepStrictEqual(yield* after("0 seconds"), [], "it waits for the connection")
      yield* connect
      assert.deepStrictEqual(yield* after("1 hour"), ["listens"])
      yield* close
      assert.deepStrictEqual(yield* after("1 hour"), ["closes"])
    }).pipe(inMemory))

  it.effect("is written once a minute while it does not", () =>
    Effect.gen(function*() {
      const { after, close } = yield* open({ listens: false })
      assert.deepStrictEqual(yield* after("0 seconds"), ["polls"])
      assert.lengthOf(yield* after("1 hour"), 60)
      yield* close
      assert.deepStrictEqual(yield* after("1 hour"), ["closes"])
    }).pipe(inMemory))

  it.effect("follows the connection, and a short loss leads to one write", () =>
    Effect.gen(function*() {
      const { after, connect, disconnect } = yield* open({ listens: true })
      assert.deepStrictEqual(yield* after("1 second"), ["polls"], "without a connection within a second")
      yield* connect
      assert.deepStrictEqual(yield* after("0 seconds"), ["listens"])
      yield* disconnect
      assert.deepStrictEqual(yield* after("1 second"), [])
      yield* connect
      assert.deepStrictEqual(yield* after("5 seconds"), ["listens"])
      yield* disconnect
      assert.deepStrictEqual(yield* after("5 seconds"), ["polls"])
      assert.lengthOf(yield* after("3 minutes"), 3)
      yield* connect
      assert.deepStrictEqual(yield* after("1 hour"), ["listens"])
    }).pipe(inMemory))

  it.effect("is tried again until the store answers", () =>
    Effect.gen(function*() {
      const { after, store } = yield* open({ listens: false })
      yield* after("0 seconds")
      store.isAway = true
      const tries = yield* after("3 minutes")
      assert.isAtLeast(tries.length, 20)
      assert.isTrue(tries.every((write) => write === "fails"))
      store.isAway = false
      assert.deepStrictEqual(yield* after("5 seconds"), ["polls"])
    }).pipe(inMemory))
})
