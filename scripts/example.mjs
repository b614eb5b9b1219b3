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
const timeout = 300_000

/** Lines of this package that an example must not log. */
const complaint =
  /(WARN|ERROR|FATAL) \(#\d+\): (Provider|Listener|Notifier|Migrator|Runtime|.* dispatcher|Task worker|Consumer|Outbox): .*/

/** A busy machine makes any example say so. */
const lacksCpu = /WARN .* Provider: a hint of another process waited too long in this one: .*/g

/** Lines that an example provokes on purpose. */
const provoked = { agent: /WARN .* Runtime: running work is interrupted, the shutdown timeout has passed/g }

const failed = (wanted === "all" ? names : [wanted]).filter((name) => {
  console.log(`--- ${name}`)
  const file = `build/examples/${name}/main.js`
  if (wanted !== "all") return spawnSync(process.execPath, [file, ...args], { stdio: "inherit" }).status !== 0
  const { error, status, stderr, stdout } = spawnSync(process.execPath, [file, ...args], {
    encoding: "utf8",
    maxBuffer: 64 * 1024 * 1024,
    timeout
  })
  process.stdout.write(stdout)
  process.stderr.write(stderr)
  if (error !== undefined) console.error(error.message)
  const complained = complaint.exec((stdout + stderr).replace(lacksCpu, "").replace(provoked[name] ?? "", ""))
  if (complained !== null) console.error(`${name} must not log: ${complained[0]}`)
  return status !== 0 || complained !== null
})
if (failed.length > 0) {
  console.error(`Failed: ${failed.join(", ")}`)
  process.exit(1)
}
