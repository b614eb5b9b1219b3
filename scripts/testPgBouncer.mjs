// Runs whole orchestrations through a PgBouncer in transaction mode: `npm run test:pgbouncer`.
//
// Not part of `npm test`, because npm cannot install PgBouncer: without it this fails and says what to do, so that
// no test is skipped silently.

import { spawnSync } from "node:child_process"
import { fileURLToPath } from "node:url"

process.chdir(fileURLToPath(new URL("..", import.meta.url)))
const found = spawnSync("pgbouncer", ["--version"], { encoding: "utf8" })
if (found.error) {
  console.error(
    "There is no pgbouncer on the PATH. Install it, then run this again:\n" +
      "  Debian, Ubuntu   apt-get install pgbouncer\n" +
      "  Fedora           dnf install pgbouncer\n" +
      "  macOS            brew install pgbouncer"
  )
  process.exit(1)
}
console.log(found.stdout.split("\n")[0])
const { status } = spawnSync(
  process.execPath,
  ["node_modules/vitest/vitest.mjs", "run", "--config", "vitest.pgbouncer.config.ts", ...process.argv.slice(2)],
  { stdio: "inherit" }
)
process.exitCode = status ?? 1
