import { assert, describe, it } from "@effect/vitest"
import { MemoryDriver } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as Test from "../utils/driver.ts"

const drivers: { readonly [where: string]: Effect.Effect<Test.Driver, unknown, Scope.Scope> } = {
  "on PostgreSQL": Effect.map(Test.open(), ({ driver }) => driver),
  "in memory": Effect.sync(() => MemoryDriver.make())
}

describe("enqueueForOrchestrator with bounds", () => {
  for (const [where, open] of Object.entries(drivers)) {
    it.live(`refuses messages to a full instance, and no others of the set, ${where}`, () =>
      Effect.gen(function*() {
        const driver = yield* open
        // Events 1 and 2.
        yield* Test.waiting(driver, ["c"])
        const message = (to: string, mostWaiting: number, mostEvents: number) => ({
          ...Test.message(to, JSON.stringify({ QueueMessage: { instance: to, name: "n", data: "1" } })),
          bounds: { mostWaiting, mostEvents }
        })
        assert.deepStrictEqual(yield* driver.enqueueForOrchestrator([message("a", 2, 9), message("a", 2, 9)]), [
          "Sent",
          "Sent"
        ])
        const bare = Test.message("a", "{}")
        assert.deepStrictEqual(
          yield* driver.enqueueForOrchestrator([message("a", 2, 9), message("b", 2, 9), bare, message("a", 4, 9)]),
          ["Full", "Sent", "Sent", "Sent"]
        )
        assert.deepStrictEqual(yield* driver.enqueueForOrchestrator([message("a", 4, 9)]), ["Full"])
        assert.deepStrictEqual(yield* driver.enqueueForOrchestrator([message("c", 9, 2), message("c", 9, 3)]), [
          "Full",
          "Sent"
        ])
      }))
  }
})
