/** Forms that the page makes of Schemas: what they ask, and the JSON that the Schema then reads. */
import { assert, describe, it } from "@effect/vitest"
import * as Schema from "effect/Schema"
import { formOf } from "../../src/dashboard/internal/knowledge.ts"
import { emptyDraft, toDraft, toJson } from "../../ui/src/forms/draft.ts"
import type { Draft, Problem } from "../../ui/src/forms/draft.ts"
import { shapeOf } from "../../ui/src/forms/shape.ts"

const shapeFor = (payload: Schema.Codec<any, any>) => shapeOf(formOf({ name: "Any", payload })!)

const filled = (payload: Schema.Codec<any, any>, draft: (empty: Draft) => Draft) => {
  const shape = shapeFor(payload)
  const problems: Array<Problem> = []
  const json = toJson(shape, draft(emptyDraft(shape)), "", problems)
  return { json, problems: problems.map(({ path, text }) => `${path} ${text}`) }
}

const Order = Schema.Struct({
  item: Schema.String,
  amount: Schema.Int,
  price: Schema.Finite,
  gift: Schema.Boolean,
  size: Schema.Literals(["small", "large"]),
  tags: Schema.Array(Schema.String),
  note: Schema.optionalKey(Schema.String),
  from: Schema.NullOr(Schema.String),
  address: Schema.Struct({ city: Schema.String })
})

describe("A form", () => {
  it("asks for each field by its kind", () => {
    const shape = shapeFor(Order)
    assert.strictEqual(shape.kind, "object")
    const kinds = shape.kind === "object"
      ? shape.fields.map(({ isRequired, name, shape }) => [name, shape.kind, isRequired])
      : []
    assert.deepStrictEqual(kinds, [
      ["item", "text", true],
      ["amount", "number", true],
      ["price", "number", true],
      ["gift", "boolean", true],
      ["size", "choice", true],
      ["tags", "array", true],
      ["note", "text", false],
      ["from", "nullable", true],
      ["address", "object", true]
    ])
  })

  it("shows JSON that was written by hand, and says what it cannot show", () => {
    const shape = shapeFor(Order)
    const json = {
      item: "tea",
      amount: 3,
      price: 2.5,
      gift: true,
      size: "large",
      tags: ["hot"],
      from: null,
      address: { city: "Bath" }
    }
    const problems: Array<Problem> = []
    assert.deepStrictEqual(toJson(shape, toDraft(shape, json, "", problems), "", problems), json)
    assert.deepStrictEqual(problems, [])
    toDraft(shape, { ...json, amount: "3", size: "huge", address: {} }, "", problems)
    assert.deepStrictEqual(problems.map(({ path, text }) => `${path} ${text}`), [
      "amount needs a number",
      "size needs one of small, large",
      "address.city is missing"
    ])
    problems.length = 0
    toDraft(shape, { ...json, other: 1 }, "", problems)
    assert.deepStrictEqual(problems, [{ path: "", text: "has other, for which the form has no field" }])
  })

  it("makes JSON that the Schema reads", () => {
    const { json, problems } = filled(Order, (empty) => ({
      ...empty as object,
      item: "lamp",
      amount: "3",
      price: "9.5",
      gift: true,
      size: "\"large\"",
      tags: ["a", "b"],
      address: { city: "Rome" }
    }))
    assert.deepStrictEqual(problems, [])
    assert.deepStrictEqual(Schema.decodeUnknownSync(Schema.toCodecJson(Order))(json), {
      item: "lamp",
      amount: 3,
      price: 9.5,
      gift: true,
      size: "large",
      tags: ["a", "b"],
      from: null,
      address: { city: "Rome" }
    })
  })

  it("says which numbers are missing or are not whole, and where", () => {
    const { problems } = filled(Order, (empty) => ({ ...empty as object, amount: "1.5" }))
    assert.deepStrictEqual(problems, ["amount needs a whole number", "price needs a number"])
  })

  it("asks for JSON where it cannot ask better, and for nothing where there is no payload", () => {
    assert.strictEqual(shapeFor(Schema.Union([Schema.String, Schema.Struct({ a: Schema.String })])).kind, "json")
    assert.strictEqual(shapeFor(Schema.Unknown).kind, "json")
    assert.strictEqual(shapeFor(Schema.Void).kind, "null")
    assert.deepStrictEqual(filled(Schema.Void, (empty) => empty), { json: null, problems: [] })
    assert.deepStrictEqual(filled(Schema.Unknown, () => "{").problems, [" is not JSON"])
  })

  it("an endless Schema ends in JSON text", () => {
    interface Tree {
      readonly name: string
      readonly child: Tree | null
    }
    const Tree: Schema.Codec<Tree> = Schema.Struct({
      name: Schema.String,
      child: Schema.NullOr(Schema.suspend((): Schema.Codec<Tree> => Tree))
    })
    assert.strictEqual(shapeFor(Tree).kind, "object")
  })
})
