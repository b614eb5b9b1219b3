import { assert, it } from "@effect/vitest"
import { Client, Orchestration, Runtime } from "duroxide-prisma"
import { Completion, External } from "duroxide-prisma/recipes/completions"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import * as fc from "fast-check"

const hour = 3_600_000

const Approve = External.make("Approve", { success: Schema.Int, error: Schema.String, expiry: "4 hours" })

const Spend = Orchestration.make("Spend", { success: Schema.String })

const SpendLive = Spend.toLayer(() =>
  Approve.execute().pipe(
    Effect.map((n) => `completed ${n}`),
    Effect.catch((error) => Effect.succeed(typeof error === "string" ? `failed ${error}` : "expired")),
    // The instance lives on: what comes late meets an open execution.
    Effect.tap(() => Effect.sleep("30 days"))
  )
)

type Step =
  | { readonly _tag: "complete"; readonly n: number }
  | { readonly _tag: "fail"; readonly error: string }
  | { readonly _tag: "heartbeat" }
  | { readonly _tag: "pass"; readonly hours: number }
  | { readonly _tag: "crash" }

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 2, arbitrary: fc.record({ _tag: fc.constant("complete" as const), n: fc.integer({ min: 1, max: 2 }) }) },
  { weight: 1, arbitrary: fc.record({ _tag: fc.constant("fail" as const), error: fc.constantFrom("a", "b") }) },
  { weight: 4, arbitrary: fc.constant({ _tag: "heartbeat" as const }) },
  { weight: 4, arbitrary: fc.record({ _tag: fc.constant("pass" as const), hours: fc.integer({ min: 1, max: 3 }) }) },
  { weight: 1, arbitrary: fc.constant({ _tag: "crash" as const }) }
)

/** What the model expects of a call: `ended` is how it ended. */
class Model {
  ended: string | undefined
  expiresAtMs: number

  constructor(nowMs: number) {
    this.expiresAtMs = nowMs + 4 * hour
  }

  answer(wanted: string, nowMs: number): string {
    if (this.ended === wanted) return "taken"
    if (this.ended !== undefined) return "AlreadyCompleted"
    if (nowMs > this.expiresAtMs) return "CompletionExpired"
    this.ended = wanted
    return "taken"
  }

  beat(nowMs: number): string {
    if (this.ended !== undefined) return "AlreadyCompleted"
    if (nowMs > this.expiresAtMs) return "CompletionExpired"
    this.expiresAtMs = Math.max(this.expiresAtMs, nowMs + 4 * hour)
    return "beaten"
  }
}

const tagged = <A, E extends { readonly _tag: string }, R>(effect: Effect.Effect<A, E, R>, answer: (a: A) => string) =>
  Effect.match(effect, { onSuccess: answer, onFailure: ({ _tag }) => _tag })

const run = (steps: ReadonlyArray<Step>) =>
  Effect.suspend(() => {
    const tokens: Array<string> = []
    const runtime = Runtime.layer({ orchestrations: [Spend], activities: [Approve] }).pipe(
      Layer.provide([SpendLive, Approve.toLayer((_, token) => Effect.sync(() => void tokens.push(token)))])
    )
    return Effect.gen(function*() {
      const client = yield* Client.Client
      const { heartbeat } = yield* Completion.Completion
      yield* client.start(Spend, { instanceId: "s" })
      yield* TestRuntime.settle
      const model = new Model(yield* Clock.currentTimeMillis)
      const token = tokens[0]!
      for (const one of steps) {
        const nowMs = yield* Clock.currentTimeMillis
        switch (one._tag) {
          case "complete":
            assert.strictEqual(
              yield* tagged(Approve.complete(token, one.n), ({ state }) => state),
              model.answer(`completed ${one.n}`, nowMs)
            )
            break
          case "fail":
            assert.strictEqual(
              yield* tagged(Approve.fail(token, one.error), ({ state }) => state),
              model.answer(`failed ${one.error}`, nowMs)
            )
            break
          case "heartbeat":
            assert.strictEqual(yield* tagged(heartbeat(token), () => "beaten"), model.beat(nowMs))
            yield* TestRuntime.settle
            break
          case "pass":
            yield* TestRuntime.advance(`${one.hours} hours`)
            break
          case "crash":
            yield* TestRuntime.crash
        }
      }
      assert.strictEqual(yield* client.wait(Spend, "s"), model.ended ?? "expired")
      assert.lengthOf(tokens, 1)
    }).pipe(Effect.provide(
      Completion.layer({ activities: [Approve] }).pipe(
        Layer.provideMerge(TestRuntime.layer(runtime)),
        Layer.provideMerge(Completion.layerKeys([Redacted.make("a".repeat(32))])),
        Layer.provideMerge(Logger.layer([]))
      )
    ))
  })

it.live(
  "any order of completions, failures, heartbeats, time and crashes: each answer is true, and the first counts",
  () =>
    Effect.gen(function*() {
      const samples = fc.sample(fc.array(step, { maxLength: 12 }), { numRuns: 60 })
      for (const steps of samples) {
        yield* run(steps).pipe(Effect.onError(() => Effect.sync(() => console.log(JSON.stringify(steps)))))
      }
      assert.lengthOf(samples, 60)
    })
)
