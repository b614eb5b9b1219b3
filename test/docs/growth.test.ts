import { assert, describe, it } from "@effect/vitest"
import { Partitions } from "duroxide-prisma/prisma"
import * as Docs from "../utils/docs.ts"

const migrator = "postgresql://…"

// docs/postgresql.md
export const partition = Partitions.apply({ url: migrator, schema: "orders", partitions: 8 })
// docs/postgresql.md

describe("docs/postgresql.md, Growth:", () => {
  const page = Docs.section("docs/postgresql.md", "Growth")

  it("its code is the code of this test", () => {
    const source = Docs.withoutIndentation(Docs.read("test/docs/growth.test.ts"))
    for (const { code } of Docs.blocks(page, "ts")) assert.include(source, Docs.withoutIndentation(code))
  })

  it("page, code and file have one default, which the code can replace in the file", () => {
    const [, standard] = /It defaults to (\d+)\./.exec(page)!
    assert.include(Docs.read("src/prisma/Partitions.ts"), `options.partitions ?? ${standard}`)
    const text = `CONSTANT integer := ${standard};`
    assert.lengthOf(Docs.read("prisma/partitions/history.sql").split(text), 2)
    assert.include(Docs.read("src/prisma/Partitions.ts"), `"${text}"`)
  })
})
