import { assert, describe, it } from "@effect/vitest"
import { readdirSync } from "node:fs"
import { posix } from "node:path"
import * as Docs from "../utils/docs.ts"

const guide = Docs.read("docs/duroxide.md")
const folder = "test/compatibility/"
const page = Docs.read(`${folder}README.md`)
const text = Docs.unwrapped(page)
/** The files it lists, by label. */
const files = new Map(
  [...page.matchAll(/^\[(\w+)\]: (\S+)$/gm)].map(([, label, link]) => [label!, posix.join(folder, link!)])
)

/** The rows of the table of defects. */
const defects = page.split("\n").filter((line) => /^\| \d+ /.test(line))

/** `[label]: ``name``, ``name``` anywhere in a text. */
const named = (text: string) =>
  [...text.matchAll(/\[(\w+)\]: ((?:`[^`]+`(?:, )?)+)/g)].flatMap(([, label, names]) =>
    [...names!.matchAll(/`([^`]+)`/g)].map(([, name]) => ({ label: label!, name: name! }))
  )

/** Whether the text declares the test: as the first argument of a call, or a key of a table of cases. */
const declares = (text: string, name: string) =>
  new RegExp(`^ *(it\\.\\w+\\(|it\\()?"?${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}"?[,:]`, "m").test(text)

describe("test/compatibility/README.md:", () => {
  it("every defect is numbered, and names a test", () => {
    assert.deepStrictEqual(
      defects.map((row) => Number(row.split("|")[1])),
      Array.from({ length: 19 }, (_, index) => index + 1)
    )
    for (const row of defects) assert.isNotEmpty(named(row.split("|").at(-2)!), row)
  })

  it("every test it names is there", () => {
    for (const { label, name } of named(text)) {
      const path = files.get(label)
      assert.isDefined(path, label)
      assert.isTrue(declares(Docs.read(path), name), `${path} has no test "${name}"`)
    }
  })

  it("every file it lists is used", () => {
    const mentioned = [...files.keys()].filter((label) => page.split(`[${label}]`).length > 2)
    assert.deepStrictEqual(mentioned, [...files.keys()])
  })

  it("every recording of a defect stands in the table", () => {
    const recordings = readdirSync(new URL("../recordings/duroxide/", import.meta.url))
      .filter((name) => name.endsWith(".json") && !name.startsWith("_")).map((name) => name.replace(".json", ""))
    for (const one of [text, Docs.unwrapped(guide)]) assert.include(one, `${recordings.length} recordings of Duroxide`)
    const recorded = recordings.filter((name) => name.startsWith("defect-"))
    const shown = defects.flatMap(named).flatMap(({ label, name }) => label === "recordings" ? name : [])
    assert.deepStrictEqual(recorded.filter((name) => !shown.includes(name)), [])
    assert.isNotEmpty(recorded)
  })
})

describe("docs/duroxide.md:", () => {
  it("how it starts an orchestration of Rust is what test/rust runs", () => {
    const [start] = Docs.blocks(guide, "ts").filter(({ heading }) => heading.startsWith("Starts"))
    assert.include(
      Docs.withoutIndentation(Docs.read("test/rust/clients.check.ts")).replaceAll("Ours.", ""),
      start!.code
    )
  })

  it("the tag it names is the one that stored functions write and read", () => {
    for (const name of ["dx_no_tag", "dx_tag"]) {
      const [tag] = Docs.read(`prisma/functions/routes/${name}.sql`).match(/(?<=')[a-z]+-[a-z]+(?=')/) ?? []
      assert.include(Docs.unwrapped(guide), `the value \`${tag}\` in the column`)
    }
  })
})
