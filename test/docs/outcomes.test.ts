import { assert, describe, it } from "@effect/vitest"
import * as agents from "../agents/outcomes.ts"
import { sections } from "../runtime/badInput/cases.ts"
import * as schedules from "../schedules/utils/outcomes.ts"
import * as tasks from "../tasks/outcomes/cases.ts"
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
      Object.entries<object>({ ...sections, ...tasks.sections, ...schedules.sections, ...agents.sections }).map((
        [section, cases]
      ) => [
        section,
        Object.keys(cases)
      ])
    )
  })

  it("every row on transactional activities and on completions is the beginning of a test", () => {
    for (
      const [heading, count, ...files] of [
        ["Transactional activities", 11, "runtime/transactional.postgres.long", "runtime/transactional"],
        ["Completions from outside", 7, "recipes/Completion"]
      ] as const
    ) {
      const section = Docs.read("docs/outcomes.md").split(`## ${heading}\n`)[1]!.split("\n##")[0]!
      const cases = section.split("\n").filter((line) => /^\| [a-z]/.test(line)).map((line) =>
        line.split("|")[1]!.trim()
      )
      assert.lengthOf(cases, count)
      const tests = files.map((file) => Docs.read(`test/${file}.test.ts`)).join("\n")
      for (const name of cases) assert.include(tests, `"${name}`)
    }
  })

  it("every row on tasks of a retry is the beginning of a test", () => {
    const section = Docs.read("docs/outcomes.md").split("## Retry\n")[1]!.split("\n## ")[0]!
    const cases = section.split("\n").filter((line) => line.startsWith("| a task ")).map((line) =>
      line.split("|")[1]!.trim()
    )
    assert.lengthOf(cases, 4)
    const tests = Docs.read("test/tasks/retries.test.ts")
    for (const name of cases) assert.include(tests, `"${name}: `)
  })

  it("every row on poison is the name of a test", () => {
    const section = Docs.read("docs/outcomes.md").split("## Poison")[1]!.split("\n## ")[0]!
    const cases = section.split("\n").filter((line) => /^\| [a-z]/.test(line)).map((line) => line.split("|")[1]!.trim())
    assert.isAbove(cases.length, 5)
    const tests = ["poison", "blame", "shutdown"].map((file) => Docs.read(`test/runtime/${file}.test.ts`)).join()
    for (const name of cases) assert.include(tests, `${name}: `)
  })
})
