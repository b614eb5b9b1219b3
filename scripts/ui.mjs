// `npm run ui`: the page with hot reload, before a hotel that is at work (examples/hotel), or before the server that
// `UI_API` names.

import { spawn } from "node:child_process"
import { once } from "node:events"

const children = []
const start = (...args) => {
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] })
  children.push(child)
  // One does not help without the other.
  child.once("exit", (code) => stop(code ?? 1))
  return child
}
const stop = (code) => {
  for (const child of children) child.kill("SIGTERM")
  process.exitCode ??= code
}
process.once("SIGINT", () => stop(0)).once("SIGTERM", () => stop(0))

let fragment = ""
if (process.env.UI_API === undefined) {
  const hotel = start("build/examples/hotel/main.js", String(24 * 3600))
  for await (const text of hotel.stdout) {
    const found = /^(http\S+\/hotel\/)(#token=\S+)/m.exec(String(text))
    if (found === null) continue
    process.env.UI_API = found[1]
    fragment = found[2]
    break
  }
}
if (process.exitCode !== undefined) process.exit()
const vite = start("node_modules/vite/bin/vite.js", "--config", "ui/vite.config.ts")
vite.stdout.pipe(process.stdout)
await once(vite.stdout, "data")
console.log(`  open http://localhost:4984/${fragment}\n`)
