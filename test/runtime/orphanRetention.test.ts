import { assert, describe, it } from "@effect/vitest"
import { Orchestration, Runtime, Signal } from "duroxide-prisma"
import { MemoryDriver, ProviderDriver } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "../utils/localProcess.ts"

const Words = Signal.make("Words", { payload: Schema.String })
const Reads = Orchestration.make("Reads", { success: Schema.Option(Schema.String) })

const runtime = Runtime.layer({ orchestrations: [Reads] }).pipe(
  Layer.provide(Reads.toLayer(() => Effect.timeoutOption(Words.wait, "10 seconds")))
)

const options = {
  runtime: { orphanRetention: "2 minutes" },
  provider: { longPolling: { aggressivePollInterval: "1 second" } }
} as const

/** What an instance reads that starts this many seconds after its message was sent, and what the store had then. */
const startedAfter = (seconds: number) =>
  Effect.gen(function*() {
    const driver = yield* ProviderDriver.ProviderDriver
    const { client } = yield* LocalProcess.start(runtime, options)
    yield* client.send(Words, "late", "hello")
    for (let second = 0; second < seconds; second++) yield* TestClock.adjust("1 second")
    // A claim as tools make it, including messages without an instance. It is abandoned.
    const waiting = yield* driver.fetchOrchestrationItems({ limit: 1, lockTimeoutMs: 1, versions: null, orphans: true })
    yield* driver.abandonOrchestrationItems(
      waiting.map(({ lockToken }) => ({ lockToken, delayMs: null, ignoreAttempt: true }))
    )
    yield* client.start(Reads, { instanceId: "late", payload: undefined })
    for (let second = 0; second < 20; second++) yield* TestClock.adjust("1 second")
    return { kept: waiting.length, read: yield* client.wait(Reads, "late") }
  }).pipe(Effect.provide([MemoryDriver.layer, Logger.layer([])]))

describe("orphanRetention", () => {
  it.effect("a start within that time gets the message", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* startedAfter(119), { kept: 1, read: Option.some("hello") })
    }))

  it.effect("after it the message is deleted with the next sweep, and a start comes too late", () =>
    Effect.gen(function*() {
      // A sweep comes every ten seconds, give or take two.
      assert.deepStrictEqual(yield* startedAfter(133), { kept: 0, read: Option.none() })
    }))
})
