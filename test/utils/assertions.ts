/**
 * Fails a test without assertions, as it could never fail.
 *
 * Every assertion of chai goes through one method. Concurrent tests are counted separately.
 */
import { afterEach, beforeEach, chai } from "vitest"

let assertions = 0

const assert = Object.getOwnPropertyDescriptor(chai.Assertion.prototype, "assert")!.value as (
  ...args: Array<any>
) => void
chai.Assertion.prototype.assert = function(...args) {
  assertions++
  return assert.apply(this, args)
}

const before = new Map<string, number>()

beforeEach(({ task }) => void before.set(task.id, assertions))

afterEach(({ task }) => {
  if (task.result?.state !== "fail" && assertions === before.get(task.id)) {
    throw new Error("this test has asserted nothing")
  }
})
