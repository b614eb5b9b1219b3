import { assert, describe, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as TestClock from "effect/testing/TestClock"
import * as v8 from "node:v8"
import * as vm from "node:vm"
import * as claims from "../../src/runtime/claims.ts"
import * as settings from "../../src/runtime/settings.ts"
import * as shutdown from "../../src/runtime/shutdown.ts"
import * as slots from "../../src/runtime/slots.ts"
import * as supervisors from "../../src/runtime/supervisor.ts"

v8.setFlagsFromString("--expose-gc")
const collectGarbage = vm.runInNewContext("gc") as () => void

describe("Slots", () => {
  it.effect("an item can be collected once it is handled, however long its slot waits for the next one", () =>
    Effect.gen(function*() {
      const items: Array<WeakRef<object>> = []
      const claim = Effect.suspend(() => {
        if (items.length === 4) return Effect.never
        const item = { history: Array.from({ length: 1_000 }, () => "event") }
        items.push(new WeakRef(item))
        return Effect.succeed(Option.some(Effect.map(Effect.yieldNow, () => void item.history.length)))
      })
      const supervisor = supervisors.make()
      const source = { name: "test", concurrency: 4, claim, looks: claims.looks(yield* Clock.Clock) }
      const dispatcher = yield* slots.make(source, supervisor)
      yield* shutdown.run([dispatcher], settings.makeUnsafe({ shutdownTimeout: 0 }), supervisor)
      yield* TestClock.adjust("1 second")
      assert.lengthOf(items, 4)
      yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
      collectGarbage()
      assert.deepStrictEqual(items.map((item) => item.deref() === undefined), [true, true, true, true])
    }))
})
