import { assert, it } from "@effect/vitest"
import { MemoryDriver } from "duroxide-prisma/provider"
import type { ProviderDriver } from "duroxide-prisma/provider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as TestClock from "effect/testing/TestClock"
import * as LongPolling from "../utils/longPolling.ts"
import { start } from "../utils/starts.ts"

const connection = { query: () => Promise.resolve({ rows: [] }) }

/** Commits each statement of an application at once. */
const committing = (): ProviderDriver.ProviderDriver["Service"] => {
  const driver = MemoryDriver.make()
  return {
    ...driver,
    ackWorkItemWithin: ({ completion, lockToken }) =>
      Effect.map(driver.ackWorkItems([{ lockToken, completion }]), ([settled]) => settled!)
  }
}

it.effect("the ack of an activity in a transaction is announced after the commit, and not before", () =>
  Effect.gen(function*() {
    const hub = LongPolling.hub()
    yield* hub.listen
    const provider = yield* LongPolling.open(committing(), hub.connect("a"))
    const announced = TestClock.adjust("100 millis").pipe(
      Effect.map(() => hub.heard.splice(0).filter((hint) => hint._tag === "Work" && hint.queue === "orchestrator"))
    )
    yield* provider.startOrchestration(start("i"))
    yield* provider.enqueueForWorker({
      _tag: "ActivityExecute",
      instance: "i",
      executionId: 1,
      id: 2,
      name: "Book",
      input: "1"
    })
    const [claimed] = yield* provider.fetchWorkItems({
      lockTimeout: Duration.hours(1),
      pollTimeout: Duration.zero,
      tags: { _tag: "Any" },
      session: Option.none()
    })
    yield* announced
    const completion = { _tag: "ActivityCompleted", instance: "i", executionId: 1, id: 2, result: "1" } as const
    const { committed } = yield* provider.ackWorkItemWithin!({ connection, lockToken: claimed!.lockToken, completion })
    assert.lengthOf(yield* announced, 0)
    yield* committed
    assert.lengthOf(yield* announced, 1)
    const again = yield* Effect.flip(
      provider.ackWorkItemWithin!({ connection, lockToken: claimed!.lockToken, completion })
    )
    assert.strictEqual(again.reason._tag, "LockLost")
  }))

it.effect("a provider whose driver joins no transactions has no such call", () =>
  Effect.gen(function*() {
    const provider = yield* LongPolling.open(MemoryDriver.make(), undefined)
    assert.isFalse("ackWorkItemWithin" in provider)
  }))
