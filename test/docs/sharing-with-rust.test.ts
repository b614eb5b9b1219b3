import { assert, describe, it } from "@effect/vitest"
import * as Docs from "../utils/docs.ts"

const page = Docs.read("docs/sharing-with-rust.md")

describe("docs/sharing-with-rust.md", () => {
  it("how it starts an orchestration of Rust is what test/rust runs", () => {
    const [start] = Docs.blocks(page, "ts").filter(({ heading }) => heading.startsWith("Starts"))
    assert.include(
      Docs.withoutIndentation(Docs.read("test/rust/clients.check.ts")).replaceAll("Ours.", ""),
      start!.code
    )
  })

  it("the tag it names is the one that stored functions write and read", () => {
    for (const name of ["dx_no_tag", "dx_tag"]) {
      const [tag] = Docs.read(`prisma/functions/${name}.sql`).match(/(?<=')[a-z]+-[a-z]+(?=')/) ?? []
      assert.include(page, `the value \`${tag}\` in the column`)
    }
  })
})
