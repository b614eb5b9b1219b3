import { assert, describe, it } from "@effect/vitest"
import { Migrator, PrismaProvider, Roles } from "duroxide-prisma/prisma"
import { Admin } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import { readdirSync } from "node:fs"
import { fileURLToPath } from "node:url"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

// Those of the database of the test.
let administrator = ""
let migrator = ""

// docs/postgresql.md
export const prepare = Effect.gen(function*() {
  yield* Roles.apply({ url: administrator, schema: "orders", roles: { migrator: "orders_migrator" } })
})

export const deploy = Effect.gen(function*() {
  yield* Migrator.migrate({ url: migrator, schema: "orders" })
  yield* Roles.apply({
    url: migrator,
    schema: "orders",
    roles: { worker: "orders_worker", client: "orders_client", reader: "orders_reader" }
  })
})
// docs/postgresql.md

describe("docs/postgresql.md, Roles:", () => {
  const page = Docs.section("docs/postgresql.md", "Roles")

  it("its code is the code of this test", () => {
    const source = Docs.withoutIndentation(Docs.read("test/docs/roles.test.ts"))
    for (const { code } of Docs.blocks(page, "ts")) assert.include(source, Docs.withoutIndentation(code))
  })

  it.live(
    "its steps work on a fresh database, and the logins have the rights of their roles",
    () =>
      Effect.gen(function*() {
        const [logins] = Docs.blocks(page, "sql")
        const names = [...logins!.code.matchAll(/^CREATE ROLE (\w+) LOGIN PASSWORD '…';$/gm)].map(([, name]) => name!)
        assert.deepStrictEqual(names, ["orders_migrator", "orders_worker", "orders_client", "orders_reader"])
        const { sql, url } = yield* PgServer.emptyDatabase
        const plain = url.replace(/\?.*$/, "")
        yield* Effect.addFinalizer(() =>
          Effect.andThen(
            sql("DROP SCHEMA IF EXISTS orders CASCADE"),
            Effect.forEach(names, (name) => Effect.andThen(sql(`DROP OWNED BY ${name}`), sql(`DROP ROLE ${name}`)))
          )
        )
        yield* sql(logins!.code.replaceAll("…", "secret"))
        const as = (name: string) => Object.assign(new URL(plain), { username: name, password: "secret" }).toString()
        administrator = plain
        migrator = as("orders_migrator")
        yield* prepare
        yield* deploy
        // The next release.
        yield* deploy
        for (const name of names) yield* Migrator.verify({ url: as(name), schema: "orders" })
        yield* Effect.gen(function*() {
          assert.lengthOf((yield* (yield* Admin.Admin).list()).instances, 0)
        }).pipe(Effect.provide(PrismaProvider.layer({ url: as("orders_worker"), schema: "orders", migrate: "verify" })))
      }).pipe(Effect.scoped, Effect.provide(Logger.layer([])))
  )

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
