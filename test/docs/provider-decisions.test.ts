import { assert, describe, it } from "@effect/vitest"
import * as Docs from "../utils/docs.ts"

const page = Docs.section("docs/writing-a-driver.md", "Decisions of the PostgreSQL driver")
const files = Docs.references(Docs.read("docs/writing-a-driver.md"))
const items = page.split(/\n(?=- |\n)/).filter((part) => part.startsWith("- **"))

/** `[label]: ``name``, ``name``` in the last line of an item. */
const named = (item: string) =>
  [
    ...(/^ {2}- tests: (.*)/ms.exec(item)?.[1] ?? "").replace(/\n +/g, " ").matchAll(
      /\[(\w+)\]: ((?:`[^`]+`(?:, )?)+)/g
    )
  ].flatMap((
    [, label, names]
  ) => [...names!.matchAll(/`([^`]+)`/g)].map(([, name]) => ({ label: label!, name: name! })))

/**
 * Whether the text declares the test: as the first argument of a call or of `each`, a key of a topic, or part of a
 * case.
 */
const declares = (text: string, name: string) =>
  new RegExp(`^ *(it\\.\\w+\\(|it\\(|\\]\\)\\(|\\[)?\\n? *"?${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}"?[,:]`, "m")
    .test(text)

describe("docs/writing-a-driver.md, Decisions of the PostgreSQL driver:", () => {
  it("every item names a test", () => {
    assert.isAbove(items.length, 30)
    for (const item of items) assert.isNotEmpty(named(item), item)
  })

  it("every test it names is there", () => {
    for (const { label, name } of items.flatMap(named)) {
      const path = files.get(label)
      assert.isDefined(path, label)
      assert.isTrue(declares(Docs.read(path), name), `${path} has no test "${name}"`)
    }
  })

  it("every file it lists is used", () => {
    const labels = new Set(items.flatMap(named).map(({ label }) => label))
    assert.deepStrictEqual([...files.keys()].filter((label) => !labels.has(label)), [])
  })
})
