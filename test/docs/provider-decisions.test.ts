import { assert, describe, it } from "@effect/vitest"
import * as Docs from "../utils/docs.ts"

const page = Docs.read("docs/provider-decisions.md")
const files = Docs.references(page)
const rows = page.split("\n").filter((line) => /^\| (?!Matter|Promise|-)/.test(line))

/** `[label]: ``name``, ``name``` in the last cell of a row. */
const named = (row: string) =>
  [...row.split("|").at(-2)!.matchAll(/\[(\w+)\]: ((?:`[^`]+`(?:, )?)+)/g)].flatMap(([, label, names]) =>
    [...names!.matchAll(/`([^`]+)`/g)].map(([, name]) => ({ label: label!, name: name! }))
  )

/** As a test is declared: the first argument of a call, also of `each`, a key of a topic, or the first part of a case. */
const declares = (text: string, name: string) =>
  new RegExp(`^ *(it\\.\\w+\\(|it\\(|\\]\\)\\(|\\[)?\\n? *"?${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}"?[,:]`, "m")
    .test(text)

describe("docs/provider-decisions.md:", () => {
  it("every row names a test", () => {
    assert.isAbove(rows.length, 30)
    for (const row of rows) assert.isNotEmpty(named(row), row)
  })

  it("every test it names is there", () => {
    for (const { label, name } of rows.flatMap(named)) {
      const path = files.get(label)
      assert.isDefined(path, label)
      assert.isTrue(declares(Docs.read(path), name), `${path} has no test "${name}"`)
    }
  })

  it("every file it lists is used", () => {
    const labels = new Set(rows.flatMap(named).map(({ label }) => label))
    assert.deepStrictEqual([...files.keys()].filter((label) => !labels.has(label)), [])
  })
})
