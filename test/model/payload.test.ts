import { assert, describe, it } from "@effect/vitest"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as payloads from "../../src/model/shared/payload.ts"

const read = <S extends payloads.PayloadSchema>(schema: S, text: string) =>
  Option.getOrUndefined(payloads.make("payload", schema).decodeOption(text))

describe("payload", () => {
  it("reads a string that Rust stored without quotes, even if it happens to be JSON", () => {
    for (const text of ["hello", "42", "true", "null", "-0.5e3", "", `{"a":1}`, "[1]", `{"a":`]) {
      assert.strictEqual(read(Schema.String, text), text)
    }
  })

  it("reads JSON as JSON if it matches", () => {
    assert.strictEqual(read(Schema.String, `"42"`), "42")
    assert.strictEqual(read(Schema.Int, "42"), 42)
    assert.strictEqual(read(Schema.Union([Schema.String, Schema.Int]), "42"), 42)
    assert.deepStrictEqual(read(Schema.Unknown, "[1]"), [1])
    assert.isUndefined(read(Schema.Int, `"42"`))
    assert.isUndefined(read(Schema.Int, "x"))
    assert.deepStrictEqual(read(Schema.Union([Schema.String, Schema.Array(Schema.Int)]), "[1]"), [1])
    assert.isUndefined(read(Schema.Struct({ a: Schema.Int }), `{"a":"x"}`))
  })
})
