/**
 * What wakes processes where instances and activities wait for limits, in virtual time and without a database: they
 * learn of each other by a notifier.
 */
import { assert, describe, it } from "@effect/vitest"
import { AdminDriver, MemoryDriver, ProviderDriver } from "duroxide-prisma/provider"
import type { Provider } from "duroxide-prisma/provider"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { BoundRow } from "../../src/model/shared/limits.ts"
import { ended, fetchInstance, hub, open, pass, storeOf, waiting } from "../utils/longPolling.ts"
import * as Starts from "../utils/starts.ts"

const concurrency = (concurrency: number): BoundRow => ({ concurrency, rate: null, rateMs: null, burst: null })

const oneEach = (rateMs: number): BoundRow => ({ concurrency: null, rate: 1, rateMs, burst: 1 })

const completion = (instanceId: string): Provider.Turn => ({
  executionId: 1,
  historyDelta: [{
    _tag: "OrchestrationCompleted",
    instanceId,
    executionId: 1,
    eventId: 1,
    sourceEventId: null,
    timestampMs: 0,
    duroxideVersion: "1000.0.0",
    output: "1"
  }],
  workerItems: [],
  orchestratorItems: [],
  metadata: { status: "Completed", output: "1", orchestrationName: "O", orchestrationVersion: "1.0.0" },
  cancelledActivities: []
})

/** A store with a limit, and processes that it wakes in no other way than by a notifier. */
const opened = Effect.gen(function*() {
  const services = yield* Layer.build(Layer.fresh(MemoryDriver.layer))
  const driver = Context.get(services, ProviderDriver.ProviderDriver)
  // Without what the store says of itself.
  const store = storeOf({ ...driver, pauseListeners: new Set() })
  const admin = Context.get(services, AdminDriver.AdminDriver)
  const { connect } = hub()
  return {
    store,
    limit: (kind: "activity" | "orchestration", name: string, total: BoundRow) =>
      admin.setLimit({ kind, name, changes: { total }, replaces: true }),
    process: (name: string) => open(store.driver, connect(name))
  }
})

describe("Limits of orchestrations:", () => {
  it.effect("a start that waits for a token of a rate begins when that is back, and not by polling", () =>
    Effect.gen(function*() {
      const { limit, process, store } = yield* opened
      yield* limit("orchestration", "O", oneEach(20_000))
      const worker = yield* process("worker")
      const sender = yield* process("sender")
      const fetches = yield* waiting(3, fetchInstance(worker))
      yield* pass("1 minute")
      store.looks()
      for (const id of ["a", "b", "c"]) yield* sender.startOrchestration(Starts.start(id))
      yield* pass("100 millis")
      assert.lengthOf(yield* ended(fetches), 1)
      yield* pass("20 seconds")
      assert.lengthOf(yield* ended(fetches), 2)
      yield* pass("20 seconds")
      assert.lengthOf(yield* ended(fetches), 3)
      assert.isBelow(store.looks().length, 20)
    }))

  for (const who of ["the process that ends the other", "another process"]) {
    it.effect(`a start that waits for a slot is begun by ${who} when that is free`, () =>
      Effect.gen(function*() {
        const { limit, process, store } = yield* opened
        yield* limit("orchestration", "O", concurrency(1))
        const ending = yield* process("ending")
        const fetchesFirst = yield* waiting(1, fetchInstance(ending))
        yield* ending.startOrchestration(Starts.start("one"))
        yield* pass("1 second")
        const [one] = yield* ended(fetchesFirst)
        const other = who === "another process" ? yield* process("other") : ending
        // It learns that "two" waits, as a process with free slots does.
        yield* Effect.forkChild(fetchInstance(ending, Duration.seconds(5)))
        yield* ending.startOrchestration(Starts.start("two"))
        yield* pass("6 seconds")
        const fetches = yield* waiting(1, fetchInstance(other))
        yield* pass("10 seconds")
        store.looks()
        yield* ending.ackOrchestrationItem(one!.lockToken, completion("one"))
        yield* pass("100 millis")
        assert.deepStrictEqual((yield* ended(fetches)).map((claimed) => claimed?.item.instanceId), ["two"])
        assert.isBelow(store.looks().length, 5)
      }))
  }
})
