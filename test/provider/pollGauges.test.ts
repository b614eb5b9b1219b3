import { assert, describe, it } from "@effect/vitest"
import { Metrics } from "duroxide-prisma"
import type { Notifier } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import { make as makeHints } from "../../src/provider/internal/hints.ts"
import { isolated, values } from "../utils/metrics.ts"

describe("Gauges of waiting", () => {
  it.effect("the state of the listener is shown", () =>
    Effect.gen(function*() {
      let listener: Notifier.Listener | undefined
      yield* Effect.scoped(Effect.gen(function*() {
        yield* makeHints({
          name: "test",
          listen: (its) => Effect.sync(() => void (listener = its)),
          announce: () => Effect.void
        }, { notifyDeliveryTimeoutMs: 100 })
        assert.deepStrictEqual(yield* values(Metrics.listenerConnected), { "": 0 })
        listener!.connected()
        assert.deepStrictEqual(yield* values(Metrics.listenerConnected), { "": 1 })
        listener!.disconnected("cut")
        assert.deepStrictEqual(yield* values(Metrics.listenerConnected), { "": 0 })
      }))
      assert.deepStrictEqual(yield* values(Metrics.listenerConnected), {})
    }).pipe(isolated))
})
