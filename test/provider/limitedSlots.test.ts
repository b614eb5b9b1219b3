import { assert, describe, it } from "@effect/vitest"
import * as limitedSlots from "../../src/provider/internal/limitedSlots.ts"

const make = (looks = true) => limitedSlots.make(() => looks)

describe("the end of an activity with a slot", () => {
  it("is a reason to look, until a claim has found that none waits", () => {
    const slots = make()
    for (const token of ["a", "b", "c", "d"]) slots.taken(token, "A")
    assert.isTrue(slots.freed("a"))
    assert.isFalse(slots.claiming()(false))
    assert.isFalse(slots.freed("b"))
    slots.stored()
    assert.isTrue(slots.freed("c"))
    assert.isFalse(slots.claiming()(false))
    assert.isFalse(slots.freed("d"))
  })

  it("without a slot leads to no look", () => {
    const slots = make()
    assert.isFalse(slots.freed("a"))
    slots.taken("a", "A")
    assert.isTrue(slots.freed("a"))
    assert.isFalse(slots.freed("a"))
  })

  it("counts as unseen by a claim that was under way, and that found others waiting", () => {
    const slots = make()
    for (const token of ["a", "b"]) slots.taken(token, "A")
    slots.claiming()(false)
    slots.stored()
    const early = slots.claiming()
    const late = slots.claiming()
    // Both claims are under way when the slot is freed.
    assert.isTrue(slots.freed("a"))
    assert.isTrue(late(true))
    // The older answer does not cover what was stored later.
    assert.isFalse(early(false))
    assert.isTrue(slots.freed("b"))
  })

  it("after a claim that was sent before others were stored is a reason to look", () => {
    const slots = make()
    slots.taken("a", "A")
    const claimed = slots.claiming()
    slots.stored()
    claimed(false)
    assert.isTrue(slots.freed("a"))
  })

  it("of a cancelled activity counts alike, once this process has met a limit", () => {
    const slots = make()
    assert.isFalse(slots.cancelled(["X"]))
    slots.taken("a", "A")
    assert.isTrue(slots.cancelled(["X"]))
    const claimed = slots.claiming()
    assert.isTrue(slots.cancelled(["X"]))
    assert.isTrue(claimed(true))
    slots.claiming()(false)
    assert.isFalse(slots.cancelled(["X"]))
  })

  it("of a cancelled activity is forgotten with it: its late ack does not lead to a look", () => {
    const slots = make()
    slots.taken("a", "A")
    slots.taken("b", "B")
    assert.isTrue(slots.cancelled(["A", "X"]))
    assert.isFalse(slots.freed("a"))
    assert.isTrue(slots.freed("b"))
  })

  it("of an instance is one once a claim has found others waiting", () => {
    const slots = make()
    assert.isFalse(slots.ended())
    assert.isFalse(slots.claiming()(true))
    assert.isTrue(slots.ended())
    slots.claiming()(false)
    assert.isFalse(slots.ended())
  })

  it("is a reason to look where what is stored leads to no look of this process", () => {
    const slots = make(false)
    slots.taken("a", "A")
    slots.claiming()(false)
    assert.isTrue(slots.freed("a"))
  })
})
