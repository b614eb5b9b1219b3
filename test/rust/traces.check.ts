import { assert, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Collector } from "../utils/traces.ts"
import * as Ours from "./ours.ts"
import * as Rust from "./Rust.ts"

it.live("traced work of ours: Rust runs it, takes its messages and reads its history", () =>
  Effect.gen(function*() {
    const shared = yield* Rust.open
    yield* shared.run()
    const collector = new Collector()
    yield* Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Ours.OurParent, { instanceId: "parent", payload: 1 })
      yield* client.start(Ours.OurCall, { instanceId: "call", payload: 1 })
      yield* client.start(Ours.RustErrand, { instanceId: "errand", payload: "anna" })
      yield* Rust.asking(shared, "errand")
      yield* client.send(Ours.Answer, "errand", "yes")
      yield* client.send(Ours.Letters, "errand", "dear")
      assert.strictEqual(yield* client.wait(Ours.OurParent, "parent"), 6)
      assert.strictEqual(yield* client.wait(Ours.OurCall, "call"), 2)
      assert.deepStrictEqual(
        yield* client.wait(Ours.RustErrand, "errand"),
        { name: "anna", answer: "yes", letter: "dear" }
      )
    }).pipe(Effect.withSpan("POST"), Effect.provide(Layer.provideMerge(Ours.app(shared), collector.layer("ours"))))

    const stored = yield* shared.sql("SELECT FROM history WHERE event_data LIKE '%\"traceparent\":\"00-%'")
    assert.isAbove(stored.length, 0)
    const events = yield* Rust.ask(shared, (client) => client.readExecutionHistory("call", 1))
    assert.strictEqual(events[0]!.kind, "OrchestrationStarted")
    assert.isAbove(collector.named("turn OurCall").length, 0)
  }))
