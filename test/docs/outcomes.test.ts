import { assert, describe, it } from "@effect/vitest"
import { sections } from "../runtime/badInput/cases.ts"
import * as Docs from "../utils/docs.ts"

/** The first column of each table under a heading, where the table lists cases. */
const rows = (page: string) => {
  const found: Array<[section: string, rows: Array<string>]> = []
  let section = ""
  for (const line of page.split("\n")) {
    if (line.startsWith("## ")) section = line.slice(3)
    else if (/^\| When( you)? +\|/.test(line)) found.push([section, []])
    else if (line.startsWith("| ") && !line.startsWith("| -") && found.at(-1)?.[0] === section) {
      found.at(-1)![1].push(line.split("|")[1]!.trim())
    }
  }
  return found
}

describe("docs/outcomes.md", () => {
  it("every row is a test of the same name, and every test a row", () => {
    assert.deepStrictEqual(
      rows(Docs.read("docs/outcomes.md")),
      Object.entries(sections).map(([section, cases]) => [section, Object.keys(cases)])
    )
  })
})
