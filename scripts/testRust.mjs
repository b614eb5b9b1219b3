// Runs the tests beside duroxide itself, in Rust: `npm run test:rust`. File arguments replace the default of all files;
// `-- import --instances 10000` is the long form of the import of a SQLite file.
//
// The other side is the binary of duroxide's Node binding, an npm package installed on first use into `.duroxide/rust`.
// It is not a dependency, because npm can install it on one platform only. Elsewhere it reports that nothing can run,
// which is a failure if the variable CI is set, so that no build passes without these tests.

import { spawnSync } from "node:child_process"
import { existsSync, mkdirSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import path from "node:path"
import process from "node:process"
import { fileURLToPath } from "node:url"

/** Contains duroxide 0.1.30 and duroxide-pg 0.1.35. */
const binding = { name: "duroxide-linux-x64-gnu", version: "0.1.29" }

process.chdir(fileURLToPath(new URL("..", import.meta.url)))
const glibc = process.report.getReport().header.glibcVersionRuntime
if (process.platform !== "linux" || process.arch !== "x64" || glibc === undefined) {
  console.error(
    `Not run: duroxide is published as a binary for Linux on x64 with glibc; this is ${process.platform} on ${process.arch}.`
  )
  process.exit(process.env.CI ? 1 : 0)
}
const args = process.argv.slice(2)
const at = args.indexOf("--instances")
const instances = at === -1 ? {} : { IMPORT_INSTANCES: args.splice(at, 2)[1] }
const { status } = spawnSync(
  process.execPath,
  ["node_modules/vitest/vitest.mjs", "run", "--config", "vitest.rust.config.ts", ...args],
  { stdio: "inherit", env: { ...process.env, ...instances, DUROXIDE_BINARY: install() } }
)
process.exitCode = status ?? 1

/** The installed binary. */
function install() {
  const folder = path.resolve(".duroxide/rust", binding.version)
  const manifest = path.join(folder, "package.json")
  if (!existsSync(path.join(folder, "node_modules", binding.name, "package.json"))) {
    mkdirSync(folder, { recursive: true })
    writeFileSync(manifest, "{ \"private\": true }\n")
    const wanted = `${binding.name}@${binding.version}`
    console.log(`Installing ${wanted}.`)
    const { status } = spawnSync("npm", ["install", "--no-audit", "--no-fund", "--prefix", folder, wanted], {
      stdio: "inherit"
    })
    if (status !== 0) process.exit(status ?? 1)
  }
  return createRequire(manifest).resolve(binding.name)
}
