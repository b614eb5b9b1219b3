import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Docs from "../utils/docs.ts"

class Declined extends Schema.TaggedError<Declined>()("Declined", { reason: Schema.String }) {}

const Charge = Activity.make("Charge", { payload: Schema.Int, error: Declined })

const ChargeLive = Charge.toLayer((amount) =>
  amount > 100 ? Effect.fail(new Declined({ reason: "limit" })) : Effect.void
)

const pay = (amount: number) =>
  Charge.execute(amount).pipe(
    Effect.as("paid"),
    Effect.catchTag("Declined", ({ reason }) => Effect.succeed(`not paid: ${reason}`))
  )

describe("README.md", () => {
  it("the main program of a worker is that of examples/orders", () => {
    const example = Docs.read("examples/orders/worker.ts")
    const code = Docs.blocks(Docs.read("README.md"), "ts").find(({ heading }) => heading === "Run")?.code ?? ""
    const [imports, main] = code.split("\n\nconst main")
    assert.include(imports, `import { Runtime } from "duroxide-prisma"`)
    assert.isDefined(main)
    for (const line of `const main${main}`.split("\n")) assert.include(example, line)
  })

  it.effect("a failure with a type of its own is caught by its tag", () =>
    Effect.gen(function*() {
      const here = Docs.withoutIndentation(Docs.read("test/docs/readme.test.ts"))
      const { code } = Docs.blocks(Docs.read("README.md"), "ts").find(({ heading }) => heading === "Define")!
      assert.include(here, Docs.withoutIndentation(code))

      const Pay = Orchestration.make("Pay", { payload: Schema.Int, success: Schema.String })
      const PayLive = Runtime.layer({ orchestrations: [Pay], activities: [Charge] }).pipe(
        Layer.provide([Pay.toLayer(pay), ChargeLive])
      )
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        const ask = (amount: number) => client.execute(Pay, { instanceId: `pay-${amount}`, payload: amount })
        assert.strictEqual(yield* ask(100), "paid")
        assert.strictEqual(yield* ask(101), "not paid: limit")
      }).pipe(Effect.provide(TestRuntime.layer(PayLive)))
    }))
})
