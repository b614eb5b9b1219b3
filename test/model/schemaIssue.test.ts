import { assert, describe, it } from "@effect/vitest"
import * as Exit from "effect/Exit"
import * as Schema from "effect/Schema"
import { describe as describeIssue } from "../../src/model/shared/schemaIssue.ts"

const described = (schema: Schema.Codec<any, any>, value: unknown, options?: { onExcessProperty: "error" }) => {
  const exit = Schema.decodeUnknownExit(schema, options)(value)
  assert.isTrue(Exit.isFailure(exit))
  return Exit.isFailure(exit) ? describeIssue(exit) : ""
}

const Guest = Schema.Struct({
  cards: Schema.Record(Schema.String, Schema.Struct({ limit: Schema.Int })),
  nights: Schema.optional(Schema.Array(Schema.Union([Schema.Int, Schema.Struct({ from: Schema.String })])))
})

describe("what a Schema refuses", () => {
  it("is shown by the fields that the Schema names and by places in arrays", () => {
    assert.include(described(Guest, {}), `["cards"]`)
    assert.include(described(Guest, { cards: {}, nights: [1, { from: 4711 }] }), `["nights"][1]["from"]`)
    assert.include(described(Schema.Struct({ at: Schema.FiniteFromString }), { at: {} }), `["at"]`)
  })

  it("hides the keys of a record and fields that the Schema does not name, like all values", () => {
    const inRecord = described(Guest, { cards: { "4711": { limit: "4711" } } })
    assert.include(inRecord, `["cards"]["…"]["limit"]`)
    const ofRecord = described(Schema.Record(Schema.String, Schema.Int), { "4711": "4711" })
    assert.include(ofRecord, `["…"]`)
    const unexpected = described(Guest, { cards: {}, "4711": 1 }, { onExcessProperty: "error" })
    assert.include(unexpected, `["…"]`)
    for (const text of [inRecord, ofRecord, unexpected]) assert.notInclude(text, "4711")
  })
})
