/**
 * The order of deliveries under concurrency: the messages of each producer keep their order, and no instance starves
 * beside an instance that is always busy.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Test from "../utils/driver.ts"

const numbers = (count: number) => Array.from({ length: count }, (_, i) => i)

describe("order:", () => {
  const producers = 8
  const perProducer = 40
  /** `<producer>:<number>`, sent by each producer one after another. */
  const produce = (send: (text: string) => Effect.Effect<unknown, unknown>) =>
    Effect.forEach(
      numbers(producers),
      (producer) => Effect.forEach(numbers(perProducer), (n) => send(`${producer}:${n}`), { discard: true }),
      { concurrency: "unbounded", discard: true }
    )
  const expectOrdered = (received: ReadonlyArray<string>) => {
    for (const producer of numbers(producers)) {
      assert.deepStrictEqual(
        received.filter((text) => text.startsWith(`${producer}:`)),
        numbers(perProducer).map((n) => `${producer}:${n}`)
      )
    }
  }

  it.live(`${producers} senders to one instance: messages arrive once and in the order of their sender`, () =>
    Effect.gen(function*() {
      const { driver } = yield* Test.open({ maxConnections: producers + 1, patient: true })
      const received: Array<string> = []
      let batches = 0
      const receive = Effect.gen(function*() {
        while (received.length < producers * perProducer) {
          for (const { lockToken, messages } of yield* Test.claim(driver)) {
            received.push(...messages.map(({ workItem }) => workItem))
            batches++
            yield* driver.ackOrchestrationItems([Test.turn(lockToken)])
          }
        }
      })
      yield* Effect.all([produce((text) => driver.enqueueForOrchestrator([Test.message("a", text)])), receive], {
        concurrency: "unbounded"
      })
      expectOrdered(received)
      assert.isAbove(batches, 5, "messages did not arrive while batches were taken")
    }))

  it.live(`${producers} senders of activities, one worker: activities arrive in the order of their sender`, () =>
    Effect.gen(function*() {
      const { driver } = yield* Test.open({ maxConnections: producers + 1, patient: true })
      const received: Array<string> = []
      const work = Effect.gen(function*() {
        while (received.length < producers * perProducer) {
          const taken = yield* Test.take(driver, { limit: 3 })
          received.push(...taken.map(({ workItem }) => workItem))
          yield* driver.ackWorkItems(taken.map(({ lockToken }) => ({ lockToken, completion: null })))
        }
      })
      yield* Effect.all([produce((workItem) => driver.enqueueForWorker([Test.activity({ workItem })])), work], {
        concurrency: "unbounded"
      })
      expectOrdered(received)
    }))
})

describe("starvation:", () => {
  it.live("an instance that constantly receives messages waits for its turn like the others", () =>
    Effect.gen(function*() {
      const { driver } = yield* Test.open()
      const cold = numbers(10).map((i) => `cold-${i}`)
      yield* driver.enqueueForOrchestrator([Test.message("hot")])
      yield* driver.enqueueForOrchestrator(cold.map((id) => Test.message(id)))
      const claimed: Array<string> = []
      for (const _ of numbers(12)) {
        const { instanceId, lockToken } = yield* Test.claimOne(driver)
        claimed.push(instanceId)
        // Messages it receives during its turn come after those of the others.
        yield* driver.enqueueForOrchestrator([Test.message("hot"), Test.message("hot")])
        yield* driver.ackOrchestrationItems([Test.turn(lockToken)])
      }
      assert.deepStrictEqual(claimed, ["hot", ...cold, "hot"])
    }))

  it.live("a locked instance with thousands of messages does not hide others", () =>
    Effect.gen(function*() {
      const { driver } = yield* Test.open()
      yield* Test.claimed(driver, "hot")
      yield* driver.enqueueForOrchestrator(numbers(3000).map(() => Test.message("hot")))
      yield* driver.enqueueForOrchestrator([Test.message("cold")])
      assert.strictEqual((yield* Test.claimOne(driver)).instanceId, "cold")
    }))

  it.live("a hundred locked instances do not hide others", () =>
    Effect.gen(function*() {
      const { driver } = yield* Test.open()
      const hot = numbers(100).map((i) => Test.message(`hot-${i}`))
      yield* driver.enqueueForOrchestrator(hot)
      assert.lengthOf(yield* Test.claim(driver, 100), 100)
      yield* driver.enqueueForOrchestrator([...hot, ...hot, ...hot])
      yield* driver.enqueueForOrchestrator([Test.message("cold")])
      assert.strictEqual((yield* Test.claimOne(driver)).instanceId, "cold")
    }))

  it.live("activities of a busy session or of another tag do not hide others", () =>
    Effect.gen(function*() {
      const { driver } = yield* Test.open()
      const session = (workerId: string) => ({ session: { workerId, lockTimeoutMs: 60_000 } })
      yield* driver.enqueueForWorker(numbers(300).map(() => Test.activity({ sessionId: "busy" })))
      yield* Test.take(driver, { limit: 1, ...session("owner") })
      yield* driver.enqueueForWorker(numbers(300).map(() => Test.activity({ tag: "gpu" })))
      yield* driver.enqueueForWorker([Test.activity({ workItem: "mine" })])
      const taken = yield* Test.take(driver, { limit: 1, tags: { _tag: "DefaultOnly" }, ...session("me") })
      assert.deepStrictEqual(taken.map(({ workItem }) => workItem), ["mine"])
    }))
})
