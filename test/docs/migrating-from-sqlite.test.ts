import { assert, describe, it } from "@effect/vitest"
import { SqliteImport } from "duroxide-prisma/sqlite"
import * as Effect from "effect/Effect"
import * as SqliteFile from "../../src/sqlite/internal/sqliteFile.ts"
import * as Files from "../sqlite/files.ts"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

const page = Docs.read("docs/migrating-from-sqlite.md")

const move = Effect.fn(function*(file: string, url: string) {
  const imported = yield* SqliteImport.importFile({
    file,
    target: { url },
    serve: ["Fulfil"],
    onProgress: ({ done, phase, remainingMs, total }) =>
      Effect.logInfo(`${phase}: ${done} of ${total}`, { remainingMs })
  })
  const report = yield* SqliteImport.verify({ file, target: { url } })
  return { instances: imported.counts.instances, isEqual: report.isEqual, text: SqliteImport.render(report) }
})

describe("docs/migrating-from-sqlite.md", () => {
  it.live("its program imports and compares", () =>
    Effect.gen(function*() {
      const [block] = Docs.blocks(page, "ts")
      const code = block!.code.replace(/^import .*\n/gm, "")
      const own = Docs.read("test/docs/migrating-from-sqlite.test.ts")
      assert.include(Docs.withoutIndentation(own), Docs.withoutIndentation(code))
      const { url } = yield* PgServer.database
      const file = yield* Files.make()
      Files.addEverything(file)
      Files.addWaiting(file, "order-1", { name: "Fulfil" })
      const { instances, isEqual, text } = yield* move(file.path, url)
      assert.deepStrictEqual([instances, isEqual], [7, true], text)
    }))

  it("names the version of the package that reads files, as package.json and the error do", () => {
    const { devDependencies, peerDependencies } = JSON.parse(Docs.read("package.json"))
    assert.include(page, `npm install ${SqliteFile.packageName}`)
    assert.strictEqual(SqliteFile.packageName, `libsql@${devDependencies.libsql}`)
    assert.strictEqual(peerDependencies.libsql, `^${devDependencies.libsql}`)
  })
})
