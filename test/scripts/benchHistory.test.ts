/**
 * The history of the bench: what counts as a fall, and the page.
 */
import { assert, describe, it } from "@effect/vitest"
import { existsSync, readFileSync } from "node:fs"
import { falls, page, parse } from "../../scripts/bench/history.ts"
import type { Night } from "../../scripts/bench/history.ts"

const night = (ratios: Night["ratios"], more: Partial<Night> = {}): Night => ({
  at: "2030-01-01T03:00:00.000Z",
  commit: "abc1234",
  cores: 2,
  node: "v20.0.0",
  options: "--seconds 30",
  ratios,
  ...more
})

const nights = (...values: ReadonlyArray<number>) => values.map((S8) => night({ S8 }))

describe("history of the bench:", () => {
  it("a ratio falls that is a tenth below the median of the five before", () => {
    assert.deepStrictEqual(falls(nights(9, 4, 4.1, 3.9, 4, 1, 3.61)), [])
    assert.deepStrictEqual(falls(nights(9, 4, 4.1, 3.9, 4, 1, 3.59)), ["S8: 3.59, at least 3.6 expected after 4"])
    // One outlier before it changes nothing.
    assert.lengthOf(falls(nights(4, 4, 40, 4, 4, 3.59)), 1)
  })

  it("the first run falls nowhere, nor does a new row", () => {
    assert.deepStrictEqual(falls(nights(1)), [])
    assert.deepStrictEqual(falls([...nights(4, 4), night({ S8: 4, J: 0.1 })]), [])
    assert.deepStrictEqual(falls([]), ["no run"])
  })

  it("a row that is missing is named, until five runs were without it", () => {
    const before = [night({ S8: 4, J: 1 })]
    assert.deepStrictEqual(falls([...before, night({ S8: 4 })]), ["J: not measured"])
    assert.deepStrictEqual(falls([...before, ...nights(4, 4, 4, 4, 4, 4)]), [])
  })

  it("runs on other machines, or with other options, are not compared", () => {
    const others = [night({ S8: 9 }, { cores: 8 }), night({ S8: 9 }, { options: "--seconds 1" })]
    assert.deepStrictEqual(falls([...others, night({ S8: 1 })]), [])
  })

  it("the page shows each row with its course", () => {
    const text = page([...nights(1, 2, 3), night({ S8: 8, J: 0.5 })])
    assert.include(text, "The last run, 2030-01-01: commit abc1234, 2 cores, Node v20.0.0, `--seconds 30`.")
    assert.match(text, /^\| S8 +\| 8 +\| 2 +\| 1.8 +\| ▁▂▃█ +\|$/m)
    assert.match(text, /^\| J +\| 0.5 +\| +\| +\| ···▄ +\|$/m)
    const other = page([...nights(1, 2), { ...night({ K: 0.9 }), options: "--only K" }])
    assert.match(other, /`--only K`\.[^]+^\| K +\| 0\.9 +[^]+`--seconds 30`\.[^]+^\| S8 +\| 2 +\|/m)
    assert.include(page([]), "no run yet")
  })

  it("the page in the repository is the one of the history", () => {
    const file = "scripts/bench/history.jsonl"
    const history = existsSync(file) ? parse(readFileSync(file, "utf8")) : []
    assert.strictEqual(readFileSync("scripts/bench/history.md", "utf8"), page(history))
  })
})
