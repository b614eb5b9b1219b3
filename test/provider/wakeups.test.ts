import { assert, describe, it } from "@effect/vitest"
import { FromDriver, MemoryDriver } from "duroxide-prisma/provider"
import type { Provider } from "duroxide-prisma/provider"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import { scheduled, start } from "../utils/starts.ts"

type Service = Provider.Provider["Service"]

const turn: Provider.Turn = {
  executionId: 1,
  historyDelta: [],
  workerItems: [],
  orchestratorItems: [],
  metadata: {},
  cancelledActivities: []
}

const activity = { instanceId: "a", executionId: 1, activityId: 2 }

const claim = (provider: Service) =>
  Effect.map(
    provider.fetchOrchestrationItem({
      lockTimeout: Duration.seconds(30),
      pollTimeout: Duration.zero,
      versions: Option.none()
    }),
    (claimed) => Option.getOrThrow(claimed).lockToken
  )

const open = Effect.suspend(() => FromDriver.make(MemoryDriver.make()))

describe("News inside the process:", () => {
  it.effect("an activity that a stored turn cancels is announced to every listener, until its scope is closed", () =>
    Effect.gen(function*() {
      const provider = yield* open
      const heard: Array<unknown> = []
      yield* provider.onCancelled((activities) => heard.push(["first", activities]))
      yield* Effect.scoped(Effect.gen(function*() {
        yield* provider.onCancelled((activities) => heard.push(["second", activities]))
        yield* provider.startOrchestration(start("a"))
        yield* provider.ackOrchestrationItem(yield* claim(provider), { ...turn, cancelledActivities: [activity] })
      }))
      assert.deepStrictEqual(heard, [["first", [activity]], ["second", [activity]]])
      yield* provider.startOrchestration(start("b"))
      yield* provider.ackOrchestrationItem(yield* claim(provider), { ...turn, cancelledActivities: [activity] })
      assert.lengthOf(heard, 3)
    }))

  it.effect("a turn that was not stored cancels nothing, and one without cancellations notifies no worker", () =>
    Effect.gen(function*() {
      const provider = yield* open
      const heard: Array<unknown> = []
      yield* provider.onCancelled((activities) => heard.push(activities))
      yield* provider.startOrchestration(start("a"))
      const lockToken = yield* claim(provider)
      yield* provider.ackOrchestrationItem(lockToken, turn)
      const error = yield* Effect.flip(
        provider.ackOrchestrationItem(lockToken, { ...turn, cancelledActivities: [activity] })
      )
      assert.strictEqual(error.reason._tag, "LockLost")
      assert.deepStrictEqual(heard, [])
    }).pipe(Effect.provide(Logger.layer([]))))

  it.effect("an optimistic turn that cannot be stored keeps no wake-up of its instance", () =>
    Effect.gen(function*() {
      const provider = yield* FromDriver.make(MemoryDriver.make(), {
        longPolling: { aggressivePollInterval: "1 hour" }
      })
      const looked = yield* Deferred.make<void>()
      const claimed = yield* Effect.forkChild(provider.fetchOrchestrationItem({
        lockTimeout: Duration.seconds(30),
        pollTimeout: Duration.hours(1),
        versions: Option.none(),
        onLook: () => Deferred.doneUnsafe(looked, Effect.void)
      }))
      yield* Deferred.await(looked)
      const completion = { _tag: "ActivityCompleted", instance: "a", executionId: 1, id: 2, result: "\u0000" } as const
      const error = yield* Effect.flip(
        provider.advanceOrchestration({
          instanceId: "a",
          lastEvent: scheduled("a", 2),
          results: [{ lockToken: "1.t", completion }],
          turn,
          clockMs: 0
        })
      )
      assert.strictEqual(error.reason._tag, "InvalidInput")
      yield* provider.startOrchestration(start("a"))
      assert.strictEqual(Option.getOrThrow(yield* Fiber.join(claimed)).item.instanceId, "a")
    }))
})
