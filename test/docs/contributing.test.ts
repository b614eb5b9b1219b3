import { assert, it } from "@effect/vitest"
import * as Docs from "../utils/docs.ts"

it("CONTRIBUTING.md: its map of commands has every script, and no other", () => {
  const page = Docs.unwrapped(Docs.read("CONTRIBUTING.md"))
  const mapped = [...page.matchAll(/`(?:npm run ([\w:]+)|npm (test)\b|([\w:]+)`)/g)].map(([, a, b, c]) => a ?? b ?? c!)
  const scripts = Object.keys(JSON.parse(Docs.read("package.json")).scripts).filter((name) => name !== "prepack")
  assert.deepStrictEqual(scripts.filter((name) => !mapped.includes(name)), [])
  const run = [...page.matchAll(/npm run ([\w:]+)/g)].map(([, name]) => name!)
  assert.deepStrictEqual(run.filter((name) => !scripts.includes(name)), [])
})
