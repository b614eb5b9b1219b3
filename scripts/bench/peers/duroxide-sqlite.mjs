// Duroxide on its SQLite provider, in a file: npm run bench -- S8 --peer duroxide-sqlite

import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { duroxide, open as run } from "./duroxideRuntime.mjs"

export async function open(options) {
  const folder = mkdtempSync(join(tmpdir(), "duroxide-bench-"))
  const provider = await duroxide.JsSqliteProvider.open(`sqlite:${join(folder, "bench.db")}?mode=rwc`)
  const contender = await run(options, {
    manySlots: 2, // with more, SQLite answers that it is locked, and instances fail
    runtime: (settings) => new duroxide.JsRuntime(provider, settings),
    client: () => new duroxide.JsClient(provider)
  })
  return {
    ...contender,
    close: async () => {
      await contender.close()
      rmSync(folder, { recursive: true, force: true })
    }
  }
}
