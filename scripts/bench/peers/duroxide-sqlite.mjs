// Duroxide on its SQLite provider, in a file: npm run bench -- S8 --peer duroxide-sqlite

import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { duroxide, open as run } from "./duroxideRuntime.mjs"

export async function open(options) {
  const folder = mkdtempSync(join(tmpdir(), "duroxide-bench-"))
  const provider = await duroxide.JsSqliteProvider.open(`sqlite:${join(folder, "bench.db")}?mode=rwc`)
  // One at a time is fastest with one slot that looks often, many with more slots that look less often: SQLite writes
  // one by one, and refuses what comes meanwhile.
  const alone = options.load.inFlight === 1
  const contender = await run(options, {
    manySlots: alone ? 1 : 8,
    pollMs: alone ? 2 : 10,
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
