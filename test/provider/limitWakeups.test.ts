/**
 * What wakes processes where instances and activities wait for limits, in virtual time and without a database: they
 * learn of each other by a notifier.
 */
import { assert, describe, it } from "@effect/vitest"
import { AdminDriver, MemoryDriver, ProviderDriver } from "duroxide-prisma/provider"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { BoundRow } from "../../src/model/shared/limits.ts"
import { ended, fetchInstance, hub, open, pass, storeOf, waiting } from "../utils/longPolling.ts"
import * as Starts from "../utils/starts.ts"

const oneEach = (rateMs: number): BoundRow => ({ concurrency: null, rate: 1, rateMs, burst: 1 })

/** A store with a limit, and processes that it wakes in no other way than by a notifier. */
const opened = Effect.gen(function*() {
  const services = yield* Layer.build(Layer.fresh(MemoryDriver.layer))
  const store = storeOf(Context.get(services, ProviderDriver.ProviderDriver))
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
})
