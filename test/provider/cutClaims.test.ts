/**
 * Claims that could not take all, because of their size: nothing waits for a hint or a fallback look.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { fetchInstance, hub, open, pass, storeOf, waiting } from "../utils/longPolling.ts"
import * as Starts from "../utils/starts.ts"

const large = "x".repeat(1024 * 1024)

/** A process with callers for ten instances, which it holds until the test drops them; and one that sends. */
const setup = Effect.gen(function*() {
  const store = storeOf()
  const { connect } = hub()
  const worker = yield* open(store.driver, connect("worker"))
  const sender = yield* open(store.driver, connect("sender"))
  const claimed: Array<{ readonly instanceId: string; readonly messages: number; readonly lockToken: string }> = []
  yield* waiting(
    10,
    Effect.forever(Effect.gen(function*() {
      const { item, lockToken } = (yield* fetchInstance(worker))!
      claimed.push({ instanceId: item.instanceId, messages: item.messages.length, lockToken })
    }))
  )
  // The looks for locks of others are over.
  yield* pass("1 minute")
  /** The messages of each batch of the instance, until it has so many. */
  const batches = Effect.fnUntraced(function*(count: number) {
    const sizes: Array<number> = []
    while (sizes.reduce((sum, size) => sum + size, 0) < count) {
      yield* pass(1)
      const [next] = claimed.splice(0)
      assert.isDefined(next, `after ${sizes.join(", ")} of ${count} messages`)
      sizes.push(next.messages)
      yield* worker.dropOrchestrationItem(next.lockToken)
    }
    return sizes
  })
  return { batches, claimed, sender, store }
})

describe("A claim that could not take all", () => {
  it.effect("the other messages of an instance are found after its turn", () =>
    Effect.gen(function*() {
      const { batches, sender } = yield* setup
      yield* sender.startOrchestration(Starts.start("a"))
      yield* pass(1)
      // They arrive during the turn.
      const message = { _tag: "ExternalRaised", instance: "a", name: "E", data: large } as const
      yield* Effect.forEach(
        Array.from({ length: 10 }),
        () => sender.enqueueForOrchestrator({ message, delay: Option.none() }),
        { concurrency: "unbounded" }
      )
      yield* pass(100)
      assert.isAbove((yield* batches(11)).length, 2)
    }))

  it.effect("the other instances are found at once", () =>
    Effect.gen(function*() {
      const { claimed, sender, store } = yield* setup
      const starts = Array.from({ length: 10 }, (_, i) => {
        const start = Starts.message(`${i}`, { input: JSON.stringify(large) })
        return { ...Starts.start(`${i}`), start }
      })
      yield* Effect.forEach(starts, sender.startOrchestration, { concurrency: "unbounded" })
      yield* pass(100)
      assert.lengthOf(claimed, 10)
      assert.isAtLeast(store.looks().length, 3)
    }))
})
