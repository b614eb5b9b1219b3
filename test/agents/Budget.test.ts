import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { Budget } from "duroxide-prisma/agents"
import { TestRuntime } from "duroxide-prisma/testing"
import { LanguageModel } from "effect/ai"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Program, run, start, wait, withModel } from "./running.ts"

describe("Budget", () => {
  const Calls = Budget.make("few", { calls: 2 })

  it.effect("refuses the call after the last one with BudgetExceeded", () =>
    Effect.gen(function*() {
      const { server, value } = yield* run(
        Effect.gen(function*() {
          const texts: Array<string> = []
          const talk = Effect.forever(Effect.map(LanguageModel.generateText({ prompt: "go" }), ({ text }) => {
            texts.push(text)
          }))
          const error = yield* Effect.flip(Calls.limit(talk))
          return [texts, error instanceof Budget.BudgetExceeded ? error.message : error]
        }),
        (_, index) => ({ text: String(index) })
      )
      assert.deepStrictEqual(value, [["0", "1"], "budget \"few\" is used up: 2 of 2 calls"])
      assert.lengthOf(server.requests, 2)
    }))

  it.effect("counts tokens and cost of what was answered", () =>
    Effect.gen(function*() {
      const Dear = Budget.make("dear", { cost: 0.5, tokens: 1_000_000 })
      const { server, value } = yield* run(
        Effect.gen(function*() {
          const error = yield* Effect.flip(Dear.limit(Effect.forever(LanguageModel.generateText({ prompt: "go" }))))
          const spent = yield* Dear.spent.get
          return [error instanceof Budget.BudgetExceeded ? error.limit : error, Option.getOrThrow(spent)]
        }),
        () => ({ text: "ok" })
      )
      const [limit, spent] = value as [string, Budget.Spent]
      assert.strictEqual(limit, "cost")
      assert.strictEqual(spent.calls, server.requests.length)
      assert.isAtLeast(spent.cost, 0.5)
      assert.isAbove(spent.tokens, server.requests.length * 10)
    }))

  it.effect("counts over continue-as-new and crashes, and clients can read it", () =>
    withModel(
      (execution) =>
        Calls.limit(LanguageModel.generateText({ prompt: "go" })).pipe(
          Effect.andThen(Effect.sleep("1 hour")),
          Effect.andThen(Program.continueAsNew(execution + 1)),
          Effect.catchTag("BudgetExceeded", ({ spent }) => Effect.succeed({ execution, spent }))
        ),
      () => ({ text: "ok" }),
      ({ requests }) =>
        Effect.gen(function*() {
          const client = yield* Client.Client
          yield* start
          yield* TestRuntime.advance("1 minute")
          yield* TestRuntime.crash
          assert.strictEqual(Option.getOrThrow(yield* client.read(Calls.spent, "p")).calls, 1)
          assert.deepStrictEqual(yield* wait, { execution: 2, spent: 2 })
          assert.lengthOf(requests, 2)
        })
    ))

  it.effect("within another budget, a call counts in both, and each names itself", () =>
    Effect.gen(function*() {
      const Wide = Budget.make("wide", { calls: 3 })
      const name = (error: unknown) => error instanceof Budget.BudgetExceeded ? error.budget : String(error)
      const { server, value } = yield* run(
        Effect.gen(function*() {
          const forever = Effect.forever(LanguageModel.generateText({ prompt: "go" }))
          const inner = Effect.map(Effect.flip(Calls.limit(forever)), name)
          return yield* Wide.limit(Effect.gen(function*() {
            const first = yield* inner
            return [first, name(yield* Effect.flip(Wide.limit(forever)))]
          }))
        }),
        () => ({ text: "ok" })
      )
      assert.deepStrictEqual(value, ["few", "wide"])
      assert.lengthOf(server.requests, 3)
    }))

  it("refuses a limit below 0, and a budget without one", () => {
    assert.throws(() => Budget.make("x", {}), "has no limit")
    assert.throws(() => Budget.make("x", { calls: -1 }), "must be a number of at least 0")
  })
})
