import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"

const Remind = Activity.make("Remind", { payload: Schema.Int, success: Schema.Number })

const Month = Orchestration.make("Month", { success: Schema.Array(Schema.Number) })

const runtime = Runtime.layer({ orchestrations: [Month], activities: [Remind] }).pipe(Layer.provide([
  Remind.toLayer(() => Clock.currentTimeMillis),
  Month.toLayer(Effect.fn(function*() {
    const times: Array<number> = []
    for (let day = 0; day < 30; day++) {
      yield* Effect.sleep("1 day")
      times.push(yield* Remind.execute(day))
    }
    return times
  }))
]))

describe("MemoryDriver", () => {
  it.effect("runs thirty days of an orchestration in virtual time, each timer when it is due", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const begun = yield* Clock.currentTimeMillis
      yield* client.start(Month, { instanceId: "month" })
      yield* TestRuntime.advance("30 days")
      const times = yield* client.wait(Month, "month")
      assert.deepStrictEqual(
        times.map((time) => (time - begun) / 86_400_000),
        Array.from({ length: 30 }, (_, i) => i + 1)
      )
    }).pipe(Effect.provide(TestRuntime.layer(runtime))))
})
