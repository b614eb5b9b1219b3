import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as TestClock from "effect/testing/TestClock"
import * as receivePump from "../../src/prisma/internal/queue/receivePump.ts"

describe("ReceivePump", () => {
  it.effect("receive: an interrupted caller waits until the claim under way has been given back", () =>
    Effect.gen(function*() {
      const returned: Array<string> = []
      const pump = yield* receivePump.make<string, string>({
        fetch: () => Effect.as(Effect.sleep(50), { messages: ["late"], isMore: false, nextMs: null }),
        giveBack: (messages) => Effect.sync(() => returned.push(...messages)),
        isConnected: () => true,
        storeNowMs: () => 0,
        pollMs: 1_000,
        fallbackMs: 60_000,
        closed: "closed"
      })
      const waiting = yield* Effect.forkChild(pump.receive({ maxMessages: 1, visibilityMs: 30_000, waitMs: 60_000 }))
      yield* TestClock.adjust(20)
      const interrupted = yield* Effect.forkChild(Fiber.interrupt(waiting))
      yield* TestClock.adjust(29)
      assert.isUndefined(interrupted.pollUnsafe())
      yield* TestClock.adjust(1)
      assert.isDefined(interrupted.pollUnsafe())
      assert.deepStrictEqual(returned, ["late"])
    }))
})
