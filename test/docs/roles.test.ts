import { assert, describe, it } from "@effect/vitest"
import { Migrator, Roles } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import { readdirSync } from "node:fs"
import { fileURLToPath } from "node:url"
import * as Docs from "../utils/docs.ts"

const administrator = "postgresql://…"
const migrator = "postgresql://…"

// docs/roles.md
export const deploy = Effect.gen(function*() {
  yield* Roles.apply({ url: administrator, schema: "orders", roles: { migrator: "orders_migrator" } })
  yield* Migrator.migrate({ url: migrator, schema: "orders" })
  yield* Roles.apply({
    url: migrator,
    schema: "orders",
    roles: { worker: "orders_worker", client: "orders_client", reader: "orders_reader" }
  })
})
// docs/roles.md

describe("docs/roles.md:", () => {
  const page = Docs.read("docs/roles.md")

  it("its code is the code of this test", () => {
    const source = Docs.withoutIndentation(Docs.read("test/docs/roles.test.ts"))
    for (const { code } of Docs.blocks(page, "ts")) assert.include(source, Docs.withoutIndentation(code))
  })

  it("lists each role that has a file, whose names are those that are replaced", () => {
    const folder = fileURLToPath(new URL("../../prisma/roles/", import.meta.url))
    const files = readdirSync(folder).map((name) => name.replace(".sql", ""))
    const listed = [...page.matchAll(/^\| `(\w+)` +\|/gm)].map(([, role]) => role!)
    assert.deepStrictEqual(listed.sort(), files.sort())
    for (const role of files) {
      const names = new Set([...Docs.read(`prisma/roles/${role}.sql`).matchAll(/"\w+"/g)].map(([name]) => name))
      assert.deepStrictEqual(names, new Set([`"duroxide_${role}"`, `"duroxide"`]))
    }
  })
})
