import { assert, describe, it } from "@effect/vitest"
import { FromDriver } from "duroxide-prisma/provider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import * as Drivers from "../utils/driver.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const cancel = { _tag: "CancelInstance", instance: "i", reason: "" } as const
const options = { lockTimeout: Duration.seconds(30), pollTimeout: Duration.millis(100) }

describe("A closed provider", () => {
  it.live("fails each call in progress and each later call with Closed; none hangs", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const scope = yield* Scope.make()
      const { driver, statements } = yield* Scope.provide(Drivers.openOn(test), scope)
      const provider = yield* Scope.provide(FromDriver.make(driver), scope)
      const calls: Record<string, Effect.Effect<unknown, unknown>> = {
        read: provider.read("i"),
        readInstance: provider.readInstance("i"),
        getKvValue: provider.getKvValue("i", "k"),
        getInstanceStats: provider.getInstanceStats("i"),
        enqueue: provider.enqueueForOrchestrator({ message: cancel, delay: Option.none() }),
        fetchOrchestrationItem: provider.fetchOrchestrationItem({ ...options, versions: Option.none() }),
        fetchWorkItems: provider.fetchWorkItems({ ...options, tags: { _tag: "Any" }, session: Option.none() })
      }
      const waiting = yield* Effect.forkChild(
        Effect.flip(provider.fetchOrchestrationItem({
          ...options,
          pollTimeout: Duration.minutes(5),
          versions: Option.none()
        }))
      )
      yield* waitUntil(Effect.map(statements, (count) => count > 0))
      yield* Scope.close(scope, Exit.void)
      assert.strictEqual((yield* Fiber.join(waiting)).reason._tag, "Closed")
      const outcomes = yield* Effect.forEach(
        Object.values(calls),
        (call) => Effect.map(Effect.flip(call), (error) => (error as { reason: { _tag: string } }).reason._tag),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(
        Object.keys(calls).map((name, i) => [name, outcomes[i]]),
        Object.keys(calls).map((name) => [name, "Closed"])
      )
    }))
})
