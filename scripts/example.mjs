// Runs an example of `examples`, or `all` of them one after the other: `npm run example -- approval`. It is compiled
// before. Fails when one of them does.

import { spawnSync } from "node:child_process"
import { existsSync, readdirSync } from "node:fs"

const names = readdirSync("examples").filter((name) => existsSync(`examples/${name}/main.ts`))
const [wanted, ...args] = process.argv.slice(2)

if (wanted !== "all" && !names.includes(wanted)) {
  console.error(
    `usage: npm run example -- <name>\nexamples: ${names.join(", ")}, or all; also npm run demo, npm run lite`
  )
  process.exit(2)
}

// An example that waits forever must not block the checks.
const timeout = wanted === "all" ? 60_000 : undefined

const failed = (wanted === "all" ? names : [wanted]).filter((name) => {
  console.log(`--- ${name}`)
  const file = `build/examples/${name}/main.js`
  return spawnSync(process.execPath, [file, ...args], { stdio: "inherit", timeout }).status !== 0
})
if (failed.length > 0) {
  console.error(`Failed: ${failed.join(", ")}`)
  process.exit(1)
}
