import { assert, describe, it } from "@effect/vitest"
import * as Table from "../../src/cli/internal/table.ts"

const plain = (text: string) => text
const style = { bold: plain, dim: plain } as unknown as Parameters<typeof Table.table>[2]

describe("texts of payloads", () => {
  // Time that grows with the square of the length would be many minutes.
  it.each([["ASCII", "x"], ["wide characters", "値"], ["clusters", "👨‍👩‍👧‍👦"]])(
    "of a million %s are shortened at once",
    (_, one) => {
      const text = one.repeat(1_000_000 / one.length)
      const columns = one === "x" ? 99 : 98
      const widthOfOne = one === "x" ? 1 : 2
      assert.strictEqual(Table.shortened(text, 100), `${one.repeat(Math.floor(columns / widthOfOne))}…`)
      const abridged = Table.abridged(text, 100)
      assert.match(abridged, /^[^…]+…[^…]+$/)
      assert.isAtMost(abridged.length, 100 * one.length)
      assert.strictEqual(Table.shortened(text, Number.POSITIVE_INFINITY), text)
      const [, line] = Table.table([text], [{ title: "TEXT", value: plain }], style)
      assert.strictEqual(line, text)
    }
  )

  it("that fit stay whole; an accent belongs to its letter, and controls take no line", () => {
    assert.strictEqual(Table.shortened("e\u0301".repeat(20), 20), "e\u0301".repeat(20))
    assert.strictEqual(Table.shortened("e\u0301".repeat(21), 20), `${"e\u0301".repeat(19)}…`)
    assert.strictEqual(Table.shortened("a\nb\u202ec", 20), "a b c")
    assert.strictEqual(Table.abridged("0123456789", 10), "0123456789")
    assert.strictEqual(Table.abridged("0123456789a", 10), "0123…6789a".slice(0, 10))
  })
})
