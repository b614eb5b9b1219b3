import { assert, describe, it } from "@effect/vitest"
import * as defect from "../../src/model/shared/defect.ts"

describe("defect", () => {
  it("shows the message, and the stack with the causes", () => {
    const error = new TypeError("cannot pay", {
      cause: new Error("no route to the bank", { cause: new RangeError("port 0") })
    })
    const { message, stack } = defect.describe(error)
    assert.strictEqual(message, "cannot pay")
    assert.match(stack, /^TypeError: cannot pay\n +at /)
    assert.include(stack, "defect.test.ts")
    assert.include(stack, "no route to the bank")
    assert.include(stack, "port 0")
  })

  it("shows any thrown value", () => {
    const revoked = Proxy.revocable({}, {})
    revoked.revoke()
    const cyclic = new Error("around")
    cyclic.cause = cyclic
    for (
      const [thrown, message] of [
        ["a text", "a text"],
        [new Error(""), "Error"],
        [new RangeError(""), "RangeError"],
        [{ message: "like an error" }, "like an error"],
        [undefined, undefined],
        [null, undefined],
        [Symbol("s"), undefined],
        [Object.create(null), undefined],
        [{ toString: 1 }, undefined],
        [revoked.proxy, "a defect that cannot be shown (object)"],
        [cyclic, "around"]
      ] as const
    ) {
      const described = defect.describe(thrown)
      if (message !== undefined) assert.strictEqual(described.message, message)
      assert.isNotEmpty(described.message)
      assert.isNotEmpty(described.stack)
    }
  })

  it("keeps both short and storable", () => {
    const error = new Error(`\0${"😀".repeat(10_000)}\ud800`)
    const { message, stack } = defect.describe(error)
    assert.isAtMost(message.length, 4_000)
    assert.isAtMost(stack.length, 2_000)
    for (const text of [message, stack]) {
      assert.isTrue(text.endsWith("…"))
      assert.notMatch(text, /[\0\ud800-\udfff]/u)
    }
  })
})
