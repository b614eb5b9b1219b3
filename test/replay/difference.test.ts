import { assert, describe, it } from "@effect/vitest"
import * as Exit from "effect/Exit"
import { whereDifferent } from "../../src/replay/difference.ts"

const json = JSON.stringify

/** Reads texts like `7:"value"`, and refuses or throws on others. */
const unsealed = (text: string) => {
  if (text === "throw") throw new Error("no key")
  const at = text.indexOf(":")
  return at < 0 ? Exit.fail("not sealed") : Exit.succeed(JSON.parse(text.slice(at + 1)))
}

describe("The difference of two encoded values", () => {
  it("is the path of the first field that differs", () => {
    const order = { id: 1, lines: [{ sku: "a", tags: ["x", "y"] }, { sku: "b" }] }
    for (
      const [other, expected] of [
        [{ ...order, id: 2 }, "id"],
        [{ ...order, lines: [order.lines[0], { sku: "c" }] }, "lines[1].sku"],
        [{ ...order, lines: [{ sku: "a", tags: ["x"] }, { sku: "b" }] }, "lines[0].tags[1]"],
        [{ ...order, extra: true }, "extra"],
        [{ ...order, lines: {} }, "lines"],
        [[[1], [2]], ""],
        ["secret", ""]
      ] as const
    ) assert.strictEqual(whereDifferent(json(order), json(other), undefined), expected)
    assert.strictEqual(whereDifferent("[[1,2],3]", "[[1,4],3]", undefined), "[0][1]")
  })

  it("texts that are equal are not decoded", () => {
    assert.isUndefined(whereDifferent("throw", "throw", unsealed))
  })

  it("values that are equal do not differ, whatever their texts", () => {
    assert.isUndefined(whereDifferent("1:{\"a\":1,\"b\":2}", "2:{\"b\":2,\"a\":1}", unsealed))
    assert.strictEqual(whereDifferent("1:{\"a\":1}", "2:{\"a\":3}", unsealed), "a")
  })

  it("texts that cannot be decoded differ", () => {
    for (const other of ["throw", "refused"]) assert.strictEqual(whereDifferent("1:1", other, unsealed), "")
    assert.strictEqual(whereDifferent("{\"a\":1}", "{ \"a\": 1 }", undefined), "", "without a Schema, texts count")
  })
})
