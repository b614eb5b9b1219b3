import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { attributesOf, conditionsOf } from "../../src/operating/attributes.ts"

describe("Attributes as people write them", () => {
  it.effect("reads ranges with both ends in any order", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* conditionsOf(["a:<2", "b=x=y", "a:>=1", "t:=2026-11-27", "n:=-1.5e3", "e="]), {
        a: { below: 2, from: 1 },
        b: "x=y",
        t: new Date("2026-11-27"),
        n: -1500,
        e: ""
      })
      assert.isUndefined(yield* conditionsOf([]))
    }))

  it.effect("says what is wrong without naming where the text was given", () =>
    Effect.gen(function*() {
      const range = yield* Effect.flip(attributesOf(["a:<1"]))
      assert.strictEqual(range._tag, "AttributeUnreadable")
      assert.strictEqual(
        range.message,
        "\"a:<1\" is a range: an instance starts with one value, so use = or :="
      )
      assert.strictEqual((yield* Effect.flip(conditionsOf(["a=1", "a=2"]))).message, "a is given twice")
    }))
})
