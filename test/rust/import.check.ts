import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { mkdtempSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Lives from "./Lives.ts"
import * as Outcomes from "./outcomes.ts"
import { instancesOf } from "../programs/lives.ts"

const count = Number(process.env.IMPORT_INSTANCES ?? 300)

describe("a SQLite file of duroxide", () => {
  it.live("make", () =>
    Effect.gen(function*() {
      const folder = mkdtempSync(join(tmpdir(), "import-check-"))
      console.log(folder)
      let t = performance.now()
      const lap = (what: string) => { console.log(what, Math.round(performance.now() - t)); t = performance.now() }
      const instances = instancesOf(300)
      const all: Array<Outcomes.Outcomes> = []
      for (const name of ["a", "b"]) {
        const stays = join(folder, name + ".db")
        Lives.copy(`/tmp/wt/sqlite-samples/lives300.db`, stays)
        Lives.expire(stays)
        const store = yield* Lives.sqlite(stays)
        yield* Lives.finish(store, instances)
        lap("finished")
        all.push(yield* Outcomes.read(store))
      }
      const d = Outcomes.differences(all[0]!, all[1]!)
      console.log(d.length, d.map((x) => x[0]).join(" "))
      console.log(JSON.stringify(d[0], null, 1))
      assert.strictEqual(d.length, 0)
    }), 600_000)
})
