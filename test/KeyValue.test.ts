import { assert, describe, it } from "@effect/vitest"
import { KeyValue } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { Instance, signal } from "./replay/play.ts"

const A = KeyValue.make("a", Schema.Int)
const B = KeyValue.make("b", Schema.Int)

describe("KeyValue.clearAll", () => {
  it("removes what earlier executions, earlier turns and this one have set, under whatever key", () => {
    const instance = new Instance(
      Effect.gen(function*() {
        yield* A.set(1)
        yield* signal("Go")
        yield* KeyValue.clearAll
        const empty = [yield* A.get, yield* KeyValue.make("old", Schema.Int).get]
        yield* B.set(2)
        return [...empty, yield* B.get].map(Option.getOrNull)
      }),
      { keyValues: new Map([["old", { value: "0" }]]) }
    )
    instance.turn()
    instance.turn(instance.raised("Go"))
    assert.deepStrictEqual(instance.output, [null, null, 2])
    assert.deepStrictEqual(instance.written.slice(1), [
      "5 KeyValuesCleared",
      "6 KeyValueSet",
      "7 OrchestrationCompleted"
    ])
  })

  it("is nondeterminism when it is taken out of running code", () => {
    const instance = new Instance(Effect.andThen(KeyValue.clearAll, signal("Go")))
    instance.turn()
    instance.become(signal("Go")).turn(instance.raised("Go"))
    assert.strictEqual(instance.failure._tag, "Configuration")
  })
})
